"""Traces the corpus and writes down its operations.

    pip install "jax==0.10.2" flax optax equinox dm-haiku diffrax numpyro
    python tests/partir_core/rules/corpus/collect.py

`operations.json` then has every kind of operation of the programs and their gradients: primitive, parameters,
shapes and types, and the programs that perform it. The tests need the file alone.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from opcases.record import encode, kind_of  # noqa: E402

LIBRARIES = {
    "flax_nnx": "flax",
    "flax_linen": "flax",
    "optax_updates": "optax",
    "equinox_nn": "equinox",
    "haiku_nn": "dm-haiku",
    "solvers": "diffrax, numpyro",
    "jax_nn": "jax",
    "jax_scipy": "jax",
    "gpt": "jax",
}
INNER = {"jit", "closed_call", "remat2", "custom_jvp_call", "custom_vjp_call", "scan", "while", "cond"}
"""Calls and control flow: programs in a program, of which the operations inside count."""


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation, those of inner programs included."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else [value]:
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from equations(inner)


def traced(function: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[Any]:
    """The program of a function, and of the gradient of the sum of its results by all that is real."""
    yield jax.make_jaxpr(function)(*args).jaxpr
    leaves, tree = jax.tree.flatten(args)
    real = [n for n, leaf in enumerate(leaves) if jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating)]
    if not real:
        return

    def total(*given: Any) -> Any:
        filled = dict(zip(real, given, strict=True))
        results = function(*tree.unflatten([filled.get(n, leaf) for n, leaf in enumerate(leaves)]))
        inexact = [x for x in jax.tree.leaves(results) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.inexact)]
        return sum((jnp.real(x).astype("float32").sum() for x in inexact), jnp.float32(0))

    given = [jnp.asarray(leaves[n]) for n in real]
    yield jax.make_jaxpr(jax.grad(total, argnums=tuple(range(len(given)))))(*given).jaxpr


def main() -> None:
    warnings.simplefilter("ignore")
    kinds: dict[str, dict[str, Any]] = {}
    used: dict[str, set[str]] = {}
    for module, library in LIBRARIES.items():
        programs = importlib.import_module(f"programs.{module}").programs()
        for name, (function, args) in programs.items():
            try:
                for jaxpr in traced(function, args):
                    for equation in equations(jaxpr):
                        used.setdefault(equation.primitive.name, set()).add(f"{module}: {name}")
                        if equation.primitive.name not in INNER:
                            kinds.setdefault(kind_of(equation), encode(equation))
            except Exception as problem:
                reason = str(problem).strip().split("\n", 1)[0]
                print(f"{module}: {name}: {type(problem).__name__}: {reason[:120]}", file=sys.stderr)
        print(f"{module} ({library}): {len(programs)} programs", file=sys.stderr)
    names = {part for library in LIBRARIES.values() for part in library.split(", ")}
    content = {
        "libraries": {name: importlib.metadata.version(name) for name in sorted(names)},
        "programs": {name: sorted(where)[:3] for name, where in sorted(used.items())},
        "operations": [kinds[key] for key in sorted(kinds)],
    }
    lines = ",\n".join(json.dumps(one) for one in content["operations"])
    head = json.dumps({key: content[key] for key in ("libraries", "programs")}, indent=1)
    (HERE / "operations.json").write_text(f'{head[:-2]},\n "operations": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()

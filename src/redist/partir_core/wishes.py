"""A tactic against a program: which value gets which dimension, with names, globs and functions resolved."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redist.errors import LayoutError, TracingError
from redist.partir_core.names import leaf_paths, near, select
from redist.partir_core.program import Program, ValueType
from redist.partir_core.tactics import Choice, ManualPartition, Spec
from redist.types.mesh import Mesh, SubAxis

__all__ = ["Wish", "axis_of", "wishes"]


@dataclass(frozen=True, slots=True)
class Wish:
    """A dimension (counted from 0) or choice for one input or tagged value."""

    value: int
    name: str
    what: int | Choice


def axis_of(tactic: ManualPartition, mesh: Mesh) -> SubAxis:
    """The axis of a tactic in this mesh. Raises LayoutError naming the axes there are."""
    try:
        return mesh.resolve(tactic.axis)
    except LayoutError as error:
        raise LayoutError(f"tactic {tactic}: {error}") from None


def wishes(tactic: ManualPartition, program: Program) -> tuple[Wish, ...]:
    """What the tactic says of each value, in the program's order. Later entries override earlier ones.

    Raises TracingError, for all entries at once, where a name matches nothing, a dimension is out of range,
    or a function or pytree gives something else than a `Spec`.
    """
    values = [*program.block.inputs]
    names = [*program.input_names]
    for name, tagged in program.tags.items():
        values += tagged
        names += [name] * len(tagged)
    problems: list[str] = []
    found: dict[int, Wish] = {}
    for pattern, spec in tactic.inputs.items():
        matches = select(pattern, names)
        if not matches:
            problems.append(_unmatched(pattern, names))
            continue
        entries = _entries(spec)
        used: set[tuple[str, ...]] = set()
        for n, covered in matches.items():
            rest = tuple(names[n].split("/")[covered:])
            key = next((k for k in entries if rest[: len(k)] == k), None)
            if key is None:
                continue
            used.add(key)
            kind = program.types[values[n]]
            what = _decided(entries[key], names[n], kind, pattern, problems)
            if what is not None:
                found[values[n]] = Wish(values[n], names[n], what)
        unused = [key for key in entries if key not in used]
        if unused:
            listed = ", ".join("/".join((pattern, *key)) for key in unused)
            problems.append(f"{pattern!r}: the pytree names {listed}, which {_are(len(unused))} not in the program")
    if problems:
        raise TracingError(f"tactic {tactic}: {'; '.join(problems)}")
    order = {value: n for n, value in enumerate(values)}
    return tuple(sorted(found.values(), key=lambda wish: order[wish.value]))


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _unmatched(pattern: str, names: Sequence[str]) -> str:
    close = near(pattern, names)
    if not close:
        return f"{pattern!r} matches nothing: the function has no inputs and no tagged values"
    return f"{pattern!r} matches no input or tag; near matches are {', '.join(close)}"


def _entries(spec: Spec) -> dict[tuple[str, ...], Any]:
    """A spec by path below its name; one entry with an empty path where it is not a pytree."""
    if isinstance(spec, (int, Choice)) or callable(spec):
        return {(): spec}
    return dict(leaf_paths(spec))


def _decided(spec: Any, name: str, kind: ValueType, pattern: str, problems: list[str]) -> int | Choice | None:
    """The spec of one value, functions called; None where it is wrong, and says so."""
    if callable(spec):
        from redist.collectives.backends.jax.modules import jax

        spec = spec(name, jax.ShapeDtypeStruct(kind.shape, kind.dtype))
        told = f"{pattern!r}: the function returned {spec!r} for {name}"
    else:
        told = f"{name}: {spec!r}"
    if isinstance(spec, Choice):
        return spec
    try:
        if isinstance(spec, bool):
            raise TypeError
        dim = operator.index(spec)
    except TypeError:
        problems.append(f"{told}, which is not a dimension, FIRST_DIVISIBLE_DIM, REPLICATED or UNKNOWN")
        return None
    rank = len(kind.shape)
    if not -rank <= dim < rank:
        remedy = f"use -{rank}..{rank - 1}" if rank else "a scalar cannot be sharded: use REPLICATED or UNKNOWN"
        problems.append(f"{told}: {kind} has no dimension {dim}; {remedy}")
        return None
    return dim % rank

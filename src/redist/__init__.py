"""Derives, proves and runs the collectives that turn one layout of a distributed array into another.

Every name here is imported when it is first used: `import redist` itself loads no other module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redist.collectives import Plan, Topology, simulate
    from redist.errors import (
        BackendError,
        InfeasibleError,
        LayoutError,
        ParseError,
        ProofError,
        RedistError,
        TracingError,
        TypingError,
    )
    from redist.proofs import verify
    from redist.resharding import explain, reshard
    from redist.synth import pareto, synthesize
    from redist.types import Layout, Mesh, SubAxis

    __version__: str

__all__ = [
    "BackendError",
    "InfeasibleError",
    "Layout",
    "LayoutError",
    "Mesh",
    "ParseError",
    "Plan",
    "ProofError",
    "RedistError",
    "SubAxis",
    "Topology",
    "TracingError",
    "TypingError",
    "__version__",
    "explain",
    "pareto",
    "reshard",
    "simulate",
    "synthesize",
    "verify",
]

_EXPORTS = {
    "redist.collectives": ("Plan", "Topology", "simulate"),
    "redist.errors": (
        "BackendError",
        "InfeasibleError",
        "LayoutError",
        "ParseError",
        "ProofError",
        "RedistError",
        "TracingError",
        "TypingError",
    ),
    "redist.proofs": ("verify",),
    "redist.resharding": ("explain", "reshard"),
    "redist.synth": ("pareto", "synthesize"),
    "redist.types": ("Layout", "Mesh", "SubAxis"),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}
_MODULES = {"mpi": "redist.collectives.backends.mpi", "partir_core": "redist.partir_core"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    elif name == "__version__":
        from importlib.metadata import version

        value = version("redist")
    else:
        raise AttributeError(f"module 'redist' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

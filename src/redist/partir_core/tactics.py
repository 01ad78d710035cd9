"""Tactics: what a user says about the sharding of a program, one mesh axis at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from redist.errors import TracingError
from redist.types.mesh import SubAxis

__all__ = [
    "FIRST_DIVISIBLE_DIM",
    "REPLICATED",
    "UNKNOWN",
    "Choice",
    "ManualPartition",
]


class Choice(Enum):
    """What can be said of an input instead of a dimension."""

    FIRST_DIVISIBLE_DIM = "first_divisible_dim"
    REPLICATED = "replicated"
    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return self.name


FIRST_DIVISIBLE_DIM = Choice.FIRST_DIVISIBLE_DIM
"""The first dimension whose local size the axis divides, scanned dimensions left out."""
REPLICATED = Choice.REPLICATED
"""Whole along the axis, and so is everything that would have to be cut with it (PartIR's atomic)."""
UNKNOWN = Choice.UNKNOWN
"""Left to propagation, as an input that is not named."""

Spec = int | Choice | Callable[[str, Any], Any] | Any
"""A dimension (negative ones count from the end), a choice, a function of (name, shape and dtype) that
returns one of these, or a pytree of them that matches what is below the name."""


@dataclass(frozen=True, slots=True)
class ManualPartition:
    """Shard inputs and tagged values along one mesh axis, and everything that follows from them.

    `inputs` maps names to a `Spec`. A name is an argument's, then the pytree path (`params/layer_0/qkv`),
    or a tag's; it stands for all leaves below it, `*` matches inside a part, `**` any parts. Where several
    entries match a leaf, the last one counts. `axis` is an axis of the mesh, or a sub-axis (`x:(1)2`).
    `label` is what reports call the tactic.

    Raises TracingError for entries of the wrong kind. Source: PartIR's manual tactics, arXiv 2401.11202.
    """

    inputs: Mapping[str, Spec]
    axis: str | SubAxis
    label: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, Mapping) or not self.inputs:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TracingError(
                f"a tactic's inputs are a non-empty mapping from names to dimensions, got {self.inputs!r}; "
                'write ManualPartition(inputs={"x": 0}, axis="B")'
            )
        wrong = [key for key in self.inputs if not isinstance(key, str) or not key]  # pyright: ignore[reportUnnecessaryIsInstance]
        if wrong:
            raise TracingError(f"names of inputs are non-empty strings, got {', '.join(map(repr, wrong))}")
        flags = [key for key, spec in self.inputs.items() if isinstance(spec, (bool, float, str)) or spec is None]
        if flags:
            listed = ", ".join(f"{key}: {self.inputs[key]!r}" for key in flags)
            raise TracingError(
                f"{listed}: an input gets a dimension, FIRST_DIVISIBLE_DIM, REPLICATED, UNKNOWN, a function of "
                "(name, value), or a pytree of these"
            )
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))

    def __reduce__(self) -> tuple[Any, ...]:
        return ManualPartition, (dict(self.inputs), self.axis, self.label)

    def __str__(self) -> str:
        if self.label is not None:
            return self.label
        items = ", ".join(f"{key}: {_shown(spec)}" for key, spec in list(self.inputs.items())[:4])
        more = f", and {len(self.inputs) - 4} more" if len(self.inputs) > 4 else ""
        return f"{self.axis}({items}{more})"


def _shown(spec: Spec) -> str:
    if isinstance(spec, (int, Choice)):
        return repr(spec)
    return getattr(spec, "__name__", "function") if callable(spec) else "..."

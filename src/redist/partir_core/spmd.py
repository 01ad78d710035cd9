"""SPMD programs: what every device runs, on its blocks, with explicit redistributions. Plain immutable data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redist.partir_core.loops import Axes, Nest
from redist.partir_core.program import Literal, Op, Program, ValueType
from redist.partir_core.rules import FactorKind, Rule
from redist.types.layout import Layout
from redist.types.mesh import Mesh, SubAxis

if TYPE_CHECKING:
    from redist.collectives.plan import Plan

__all__ = [
    "Compute",
    "Partials",
    "Redistribute",
    "SpmdBlock",
    "SpmdOp",
    "SpmdProgram",
    "SpmdValue",
    "reads",
    "results",
]

Partials = tuple[tuple[SubAxis, FactorKind], ...]
"""Axes along which a value is a contribution, with the reduction."""


@dataclass(frozen=True, slots=True)
class SpmdValue:
    """A value on all devices: its global type, and how it is laid out."""

    type: ValueType
    axes: Axes
    partial: Partials = ()

    def local_shape(self, mesh: Mesh) -> tuple[int, ...]:
        """Shape of a device's block."""
        return tuple(
            size // mesh.count(axes) if axes else size for size, axes in zip(self.type.shape, self.axes, strict=True)
        )

    def local_size(self, mesh: Mesh) -> int:
        """Elements of a device's block."""
        size = self.type.size
        for axes in self.axes:
            if axes:
                size //= mesh.count(axes)
        return size

    def local_bytes(self, mesh: Mesh) -> int:
        """Bytes of a device's block."""
        return self.local_size(mesh) * self.type.itemsize

    def layout(self, mesh: Mesh) -> Layout:
        """As a layout. PRNG keys are words of 4 bytes in further dimensions."""
        shape, dtype = self.type.stored
        axes = (*self.axes, *((),) * (len(shape) - len(self.axes)))
        kinds = {kind for _, kind in self.partial}
        reduction: Any = next(iter(kinds)).value if kinds else "sum"
        return Layout(mesh, shape, axes, dtype, partial=[axis for axis, _ in self.partial], reduction=reduction)


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """An operation on the tiles that `nest` selects; control flow has its local `blocks`."""

    op: Op
    operands: tuple[int | Literal, ...]
    results: tuple[int, ...]
    rule: Rule | None
    nest: Nest
    blocks: tuple[SpmdBlock, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Redistribute:
    """A value under another layout. `op` is the operation it is for, or that made the contributions it
    reduces."""

    operand: int
    result: int
    plan: Plan
    op: Op


SpmdOp = Compute | Redistribute


def reads(op: SpmdOp) -> list[int]:
    """The values that an operation reads."""
    if isinstance(op, Redistribute):
        return [op.operand]
    return [x for x in op.operands if isinstance(x, int)]


def results(op: SpmdOp) -> tuple[int, ...]:
    """The values that an operation makes."""
    return (op.result,) if isinstance(op, Redistribute) else op.results


@dataclass(frozen=True, slots=True, eq=False)
class SpmdBlock:
    """Operations in order."""

    inputs: tuple[int, ...]
    ops: tuple[SpmdOp, ...]
    outputs: tuple[int | Literal, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SpmdProgram:
    """The program of one device. Values are numbers into `values`, other than the traced program's;
    `constants` are whole on every device."""

    program: Program
    mesh: Mesh
    values: tuple[SpmdValue, ...]
    block: SpmdBlock
    constants: Mapping[int, Any]

    def plans(self) -> Iterator[Plan]:
        """The plans of all redistributions, each distinct one once."""
        seen: set[int] = set()
        for op in _walk(self.block):
            if isinstance(op, Redistribute) and id(op.plan) not in seen:
                seen.add(id(op.plan))
                yield op.plan

    def as_text(self) -> str:
        """One operation a line, with local shapes."""
        from redist.partir_core.spmd_text import spmd_text

        return spmd_text(self)


def _walk(block: SpmdBlock) -> Iterator[SpmdOp]:
    for op in block.ops:
        yield op
        if isinstance(op, Compute):
            for inner in op.blocks:
                yield from _walk(inner)

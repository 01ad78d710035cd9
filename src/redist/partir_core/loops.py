"""Loop nests: which factors of each operation are cut along which axes, and what that makes of values.

An operation's nest is an ordered list of (axis, factor), at most one loop per axis. A value's layout follows
from the nest of the operation that makes it; an input's from the tactics and from its uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from redist.partir_core.graph import LITERAL, Graph, Node
from redist.partir_core.rules import FactorKind
from redist.types.mesh import Mesh, SubAxis

__all__ = ["Axes", "Loop", "Nest", "State", "axes_of", "partial_of"]

Loop = tuple[SubAxis, int]
"""(axis, factor)."""
Nest = tuple[Loop, ...]
Axes = tuple[tuple[SubAxis, ...], ...]
"""Axes of every dimension of a value, major to minor."""


def axes_of(nest: Nest, dims: tuple[tuple[int, ...], ...]) -> Axes:
    """The axes of a value whose dimensions run through these factors."""
    if not nest:
        return ((),) * len(dims)
    return tuple(tuple(axis for f in factors for axis, g in nest if g == f) for factors in dims)


def partial_of(node: Node, nest: Nest, result: int) -> tuple[tuple[SubAxis, FactorKind], ...]:
    """Axes along which a result is a contribution, with the reduction."""
    rule = node.rule
    if rule is None or not nest:
        return ()
    found: list[tuple[SubAxis, FactorKind]] = []
    for axis, f in nest:
        kind = rule.factors[f].kind
        if kind is not FactorKind.PARALLEL and not any(f in factors for factors in rule.results[result]):
            found.append((axis, kind))
    return tuple(found)


@dataclass(slots=True, eq=False)
class State:
    """The nests of all nodes, the axes of inputs, and which values are whole along which axes (`atomic`,
    with the number of the tactic that said so)."""

    graph: Graph
    mesh: Mesh
    nests: list[Nest]
    tiles: dict[int, Axes]
    atomic: dict[int, dict[SubAxis, int]] = field(default_factory=dict[int, "dict[SubAxis, int]"])
    cut_by: dict[tuple[int, SubAxis], int] = field(default_factory=dict[tuple[int, SubAxis], int])
    """(node, axis) -> the number of the tactic that made the loop."""
    tiled_by: dict[tuple[int, SubAxis], int] = field(default_factory=dict[tuple[int, SubAxis], int])
    """(input, axis) -> the number of the tactic that tiled it."""

    @staticmethod
    def of(graph: Graph, mesh: Mesh) -> State:
        """Nothing sharded."""
        return State(graph, mesh, [()] * len(graph.nodes), {})

    def copy(self) -> State:
        """A state that can go on while this one stays."""
        atomic = {value: dict(axes) for value, axes in self.atomic.items()}
        return State(
            self.graph, self.mesh, list(self.nests), dict(self.tiles), atomic, dict(self.cut_by), dict(self.tiled_by)
        )

    def axes(self, value: int) -> Axes:
        """Axes of every dimension of a value as its operation makes it, reductions aside."""
        made = self.graph.producer.get(value)
        if made is None:
            return self.tiles.get(value) or ((),) * len(self.graph.program.types[value].shape)
        node = self.graph.nodes[made[0]]
        if node.rule is None:
            return ((),) * len(self.graph.program.types[value].shape)
        return axes_of(self.nests[node.index], node.rule.results[made[1]])

    def needed(self, node: Node, operand: int) -> Axes:
        """Axes that a node needs its operand to have."""
        if node.rule is None:
            return ((),) * len(self.graph.program.type_of(node.op.operands[operand]).shape)
        return axes_of(self.nests[node.index], node.rule.operands[operand])

    def overlaps(self, one: SubAxis, other: SubAxis) -> bool:
        """Whether two (sub-)axes share devices' coordinates, or cannot be told apart by one factorisation."""
        if one.axis != other.axis:
            return False
        (pre1, size1), (pre2, _) = sorted((self.mesh.cut(one), self.mesh.cut(other)))
        return bool(pre2 % (pre1 * size1))

    def parts(self, node: Node, factor: int) -> int:
        """Into how many parts a factor is cut."""
        return self.mesh.count([axis for axis, f in self.nests[node.index] if f == factor])

    def leading(self, node: Node, factors: tuple[int, ...]) -> int | None:
        """The factor that cutting a dimension further cuts: the first that is not consumed."""
        assert node.rule is not None
        for f in factors:
            if not self.nests[node.index] or self.parts(node, f) != node.rule.factors[f].size:
                return f
        return None

    def obstacle(self, node: Node, factor: int, axis: SubAxis) -> str | None:
        """Why a node cannot get a loop, in words; None where it can."""
        rule = node.rule
        assert rule is not None
        kind = rule.factors[factor].kind
        if kind is FactorKind.WHOLE:
            return "it needs this dimension whole"
        nest = self.nests[node.index]
        local = rule.factors[factor].size // (self.parts(node, factor) if nest else 1)
        count = self.mesh.count([axis])
        if local % count:
            return f"local size {local} does not divide by {axis}={count}"
        if kind is not FactorKind.PARALLEL:
            others = {rule.factors[f].kind for _, f in nest} - {FactorKind.PARALLEL, kind}
            if others:
                return f"it already reduces by {', '.join(sorted(others))} and cannot by {kind} as well"
        for value, dims in self._values(node):
            for factors in dims:
                if factor not in factors:
                    continue
                for major in factors[: factors.index(factor)]:
                    if self.parts(node, major) != rule.factors[major].size:
                        return "the dimension is the minor part of a reshaped one whose major part is not cut up"
                if value in self.atomic and self.blocks(value, axis):
                    return f"{self.called(value)} is REPLICATED along {axis}"
        return None

    def blocks(self, value: int, axis: SubAxis) -> bool:
        """Whether a value is to be whole along an axis."""
        return any(self.overlaps(axis, kept) for kept in self.atomic.get(value, ()))

    def _values(self, node: Node) -> Iterator[tuple[int, tuple[tuple[int, ...], ...]]]:
        assert node.rule is not None
        for value, dims in zip(node.operands, node.rule.operands, strict=True):
            if value != LITERAL:
                yield value, dims
        yield from zip(node.results, node.rule.results, strict=True)

    def called(self, value: int) -> str:
        """Name of an input or tagged value, else its number."""
        program = self.graph.program
        if value in program.block.inputs:
            return program.input_names[program.block.inputs.index(value)]
        return next((name for name, tagged in program.tags.items() if value in tagged), f"%{value}")

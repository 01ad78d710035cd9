"""Propagation of one axis from what is tiled along it to everything that follows.

Operations get loops forward (an operand is tiled), backward (what uses the result demands a slice) and
by partial match (the other operands are sliced: free). A loop is added where exactly one factor matches.
Forward work goes first, in program order; backward work after that, from the end; so races are decided
the same way every time. Source: PartIR, arXiv 2401.11202.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from redist.partir_core.graph import LITERAL, Graph, Node
from redist.partir_core.loops import State
from redist.partir_core.rules import FactorKind
from redist.types.mesh import SubAxis

__all__ = ["Match", "Propagation", "propagate"]


@dataclass(frozen=True, slots=True)
class Match:
    """What an operation's neighbours ask of it: factors that fit, and why others do not."""

    fits: tuple[int, ...]
    obstacles: tuple[tuple[int | None, str], ...]


@dataclass(slots=True, eq=False)
class Propagation:
    """Where values and operations stand along one axis.

    `at[v]` is the dimension in which value v is tiled along the axis; `factor[n]` the factor that node n
    cuts along it; `busy` are nodes with a loop on this axis or one that overlaps it.
    """

    state: State
    axis: SubAxis
    tactic: int
    at: dict[int, int] = field(default_factory=dict[int, int])
    factor: dict[int, int] = field(default_factory=dict[int, int])
    busy: set[int] = field(default_factory=set[int])
    _forward: list[int] = field(default_factory=list[int])
    _backward: list[int] = field(default_factory=list[int])
    _queued: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))

    @staticmethod
    def of(state: State, axis: SubAxis, tactic: int) -> Propagation:
        """The state as it is, nothing to do yet."""
        made = Propagation(state, axis, tactic)
        for index, nest in enumerate(state.nests):
            for other, f in nest:
                if other == axis:
                    made.factor[index] = f
                    made.busy.add(index)
                elif state.overlaps(other, axis):
                    made.busy.add(index)
        for index in made.factor:
            made._note_results(state.graph.nodes[index])
        for value, axes in state.tiles.items():
            for d, names in enumerate(axes):
                if axis in names:
                    made.at[value] = d
        return made

    @property
    def graph(self) -> Graph:
        """The program's graph."""
        return self.state.graph

    def tile_input(self, value: int, dim: int) -> None:
        """Tile an input, and let its uses know."""
        axes = self.state.tiles.get(value) or ((),) * len(self.graph.program.types[value].shape)
        self.state.tiles[value] = (*axes[:dim], (*axes[dim], self.axis), *axes[dim + 1 :])
        self.state.tiled_by[value, self.axis] = self.tactic
        self.at[value] = dim
        self._wake_uses(value)

    def cut(self, node: Node, factor: int) -> None:
        """Add a loop to a node, and let its neighbours know."""
        assert node.rule is not None
        self.state.nests[node.index] = (*self.state.nests[node.index], (self.axis, factor))
        self.state.cut_by[node.index, self.axis] = self.tactic
        self.factor[node.index] = factor
        self.busy.add(node.index)
        self._note_results(node)
        for value in node.results:
            if value in self.at:
                self._wake_uses(value)
        for k, value in enumerate(node.operands):
            if value != LITERAL and self.demanded(node, k) is not None:
                self._wake_producer(value)

    def run(self) -> None:
        """To a fixpoint."""
        while self._forward or self._backward:
            if self._forward:
                index = heapq.heappop(self._forward)
                self._queued[0].discard(index)
            else:
                index = -heapq.heappop(self._backward)
                self._queued[1].discard(index)
            node = self.graph.nodes[index]
            if index in self.busy or node.rule is None:
                continue
            match = self.match(node)
            if len(match.fits) == 1:
                self.cut(node, match.fits[0])

    def match(self, node: Node) -> Match:
        """What operands and uses ask of a node that has no loop on the axis."""
        asked = self.asked_by_operands(node)
        rule = node.rule
        assert rule is not None
        for r, value in enumerate(node.results):
            d = self.agreed(value)
            if d is not None:
                asked.append(self.state.leading(node, rule.results[r][d]))
        return self._matched(node, asked)

    def asked_by_operands(self, node: Node, value: int | None = None, dim: int = 0) -> list[int | None]:
        """The factor that each tiled operand asks for, as if `value` were tiled in dimension `dim`."""
        rule = node.rule
        assert rule is not None
        asked: list[int | None] = []
        for k, x in enumerate(node.operands):
            d = dim if x == value else self.at.get(x)
            if d is not None and x != LITERAL:
                asked.append(self.state.leading(node, rule.operands[k][d]))
        return asked

    def _matched(self, node: Node, asked: list[int | None]) -> Match:
        fits: list[int] = []
        obstacles: list[tuple[int | None, str]] = []
        for f in dict.fromkeys(asked):
            why = "the dimension is already cut up" if f is None else self.state.obstacle(node, f, self.axis)
            if why is not None:
                obstacles.append((f, why))
            elif f is not None:
                fits.append(f)
        return Match(tuple(fits), tuple(obstacles))

    def demanded(self, node: Node, operand: int) -> int | None:
        """The dimension in which a node slices its operand along the axis."""
        f = self.factor.get(node.index)
        if f is None or node.rule is None:
            return None
        return next((d for d, factors in enumerate(node.rule.operands[operand]) if f in factors), None)

    def agreed(self, value: int) -> int | None:
        """The dimension in which some use slices a value, if every other use does the same or would follow."""
        uses = self.graph.uses.get(value, ())
        dims = {d for n, k in uses if (d := self.demanded(self.graph.nodes[n], k)) is not None}
        if len(dims) != 1:
            return None
        (d,) = dims
        return d if all(self._accepts(self.graph.nodes[n], k, value, d) for n, k in uses) else None

    def _accepts(self, node: Node, operand: int, value: int, dim: int) -> bool:
        if node.index in self.busy:
            return self.demanded(node, operand) == dim
        if node.rule is None:
            return False
        return len(self._matched(node, self.asked_by_operands(node, value, dim)).fits) == 1

    def _note_results(self, node: Node) -> None:
        f = self.factor[node.index]
        if node.rule is None:
            return
        for value, dims in zip(node.results, node.rule.results, strict=True):
            for d, factors in enumerate(dims):
                if f in factors:
                    self.at[value] = d

    def _wake_uses(self, value: int) -> None:
        for n, _ in self.graph.uses.get(value, ()):
            if n not in self.busy and n not in self._queued[0]:
                self._queued[0].add(n)
                heapq.heappush(self._forward, n)

    def _wake_producer(self, value: int) -> None:
        made = self.graph.producer.get(value)
        if made is None:
            self._follow(value)
        elif made[0] in self.busy:
            self._scatter(value, made[0], made[1])
        elif made[0] not in self._queued[1]:
            self._queued[1].add(made[0])
            heapq.heappush(self._backward, -made[0])

    def _scatter(self, value: int, index: int, result: int) -> None:
        """A contribution along the axis that some use slices will be scattered as it is reduced, if the other
        uses follow: to them it is tiled."""
        f = self.factor.get(index)
        rule = self.graph.nodes[index].rule
        if f is None or rule is None or value in self.at or value in self.graph.outputs:
            return
        contribution = rule.factors[f].kind is not FactorKind.PARALLEL and all(
            f not in factors for factors in rule.results[result]
        )
        d = self.agreed(value) if contribution else None
        if d is not None:
            self.at[value] = d
            self._wake_uses(value)

    def _follow(self, value: int) -> None:
        """Tile an input that no tactic spoke of once all its uses slice it alike."""
        if value in self.at or value in self.graph.program.constants or self.state.blocks(value, self.axis):
            return
        dims = {self.demanded(self.graph.nodes[n], k) for n, k in self.graph.uses.get(value, ())}
        if len(dims) != 1 or None in dims:
            return
        (d,) = dims
        assert d is not None
        size = self.graph.program.types[value].shape[d]
        axes = self.state.tiles.get(value) or ((),) * len(self.graph.program.types[value].shape)
        taken = any(self.state.overlaps(axis, self.axis) for names in axes for axis in names)
        if not taken and size % self.state.mesh.count([*axes[d], self.axis]) == 0:
            self.tile_input(value, d)


def propagate(state: State, axis: SubAxis, tactic: int) -> Propagation:
    """Propagation that starts from everything tiled along the axis so far."""
    made = Propagation.of(state, axis, tactic)
    for value in sorted(made.at):
        made._wake_uses(value)  # pyright: ignore[reportPrivateUsage]
    return made

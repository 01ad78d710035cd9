"""What stopped propagation: operations that were asked for two things at once, and those that could not follow."""

from __future__ import annotations

from dataclasses import dataclass

from redist.partir_core.graph import LITERAL, Node
from redist.partir_core.propagate import Match, Propagation

__all__ = ["Blocked", "Conflict", "found"]


@dataclass(frozen=True, slots=True)
class Conflict:
    """An operation that neighbours ask to be cut in several ways along one axis, so that none was chosen.

    `asked` says who asks for what, `tactic` which tactic was propagating. An earlier tactic for one of the
    values, or REPLICATED for one, decides it.
    """

    op: str
    source: str
    axis: str
    tactic: str
    asked: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op} at {self.source}: along {self.axis}, {'; '.join(self.asked)} (tactic {self.tactic})"


@dataclass(frozen=True, slots=True)
class Blocked:
    """An operation whose neighbours are sharded along an axis and which cannot be: it runs on whole values."""

    op: str
    source: str
    axis: str
    tactic: str
    reason: str

    def __str__(self) -> str:
        return f"{self.op} at {self.source}: along {self.axis}, {self.reason} (tactic {self.tactic})"


def found(done: Propagation, tactic: str) -> tuple[tuple[Conflict, ...], tuple[Blocked, ...]]:
    """Conflicts and blocked operations after propagation, in program order."""
    conflicts: list[Conflict] = []
    blocked: list[Blocked] = []
    axis = str(done.axis)
    for node in _asked(done):
        if node.rule is None:
            reason = "its primitive has no rule"
            blocked.append(Blocked(node.op.name, str(node.op.source), axis, tactic, reason))
            continue
        match = done.match(node)
        if len(match.fits) > 1:
            asked = _askers(done, node, match)
            conflicts.append(Conflict(node.op.name, str(node.op.source), axis, tactic, asked))
        elif match.obstacles:
            reason = "; ".join(dict.fromkeys(why for _, why in match.obstacles))
            blocked.append(Blocked(node.op.name, str(node.op.source), axis, tactic, reason))
    return tuple(conflicts), tuple(blocked)


def _asked(done: Propagation) -> list[Node]:
    """Nodes without a loop on the axis some neighbour of which is tiled, or demands a slice, along it."""
    indices: set[int] = set()
    for value in done.at:
        indices.update(n for n, _ in done.graph.uses.get(value, ()))
    for index in done.factor:
        node = done.graph.nodes[index]
        for k, value in enumerate(node.operands):
            made = done.graph.producer.get(value)
            if value != LITERAL and made is not None and done.demanded(node, k) is not None:
                indices.add(made[0])
    return [done.graph.nodes[n] for n in sorted(indices - done.busy)]


def _askers(done: Propagation, node: Node, match: Match) -> tuple[str, ...]:
    rule = node.rule
    assert rule is not None
    said: list[str] = []
    for k, value in enumerate(node.operands):
        d = done.at.get(value) if value != LITERAL else None
        if d is not None and done.state.leading(node, rule.operands[k][d]) in match.fits:
            said.append(f"operand {k} ({done.state.called(value)}) is tiled in dimension {d}")
    for r, value in enumerate(node.results):
        d = done.agreed(value)
        if d is not None and done.state.leading(node, rule.results[r][d]) in match.fits:
            said.append(f"uses of result {r} slice dimension {d}")
    return tuple(said)

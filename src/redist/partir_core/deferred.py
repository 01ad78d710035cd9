"""Additions of contributions: done before reducing, so that a sum of several takes one reduction.

`a + b`, both sums along the same axes still to be reduced and used nowhere else, is itself such a sum. So is
a transposed, reshaped or scaled one, and these are passed as well where such an addition follows.
"""

from __future__ import annotations

from redist.partir_core.graph import LITERAL, Node
from redist.partir_core.loops import Axes, Nest, State, axes_of, partial_of
from redist.partir_core.program import TAG, Literal
from redist.partir_core.rules import FactorKind, linear_in
from redist.types.mesh import SubAxis

__all__ = ["deferred"]

Pending = tuple[frozenset[SubAxis], Axes]
"""The axes along which a value is an unreduced sum, and the axes of its dimensions meanwhile."""


def deferred(state: State) -> dict[int, tuple[Nest, frozenset[SubAxis]]]:
    """{node: (its nest without loops on the axes, the axes along which its result stays a sum)}."""
    graph = state.graph
    pending: dict[int, Pending] = {}
    passing: dict[int, tuple[Nest, frozenset[SubAxis], bool]] = {}
    for node in graph.nodes:
        made = _made(state, node)
        if made is not None:
            pending[node.results[0]] = made
            continue
        if node.rule is None or node.port is not None or not any(x in pending for x in node.operands):
            continue
        passed = _passed(state, node, pending)
        if passed is not None:
            nest, axes, joins = passed
            passing[node.index] = nest, axes, joins
            pending[node.results[0]] = axes, axes_of(nest, node.rule.results[0])
    kept: dict[int, tuple[Nest, frozenset[SubAxis]]] = {}
    for index in sorted(passing, reverse=True):
        nest, axes, joins = passing[index]
        value = graph.nodes[index].results[0]
        if joins or (_single(state, value) and graph.uses[value][0][0] in kept):
            kept[index] = nest, axes
    return kept


def _single(state: State, value: int) -> bool:
    return len(state.graph.uses.get(value, ())) == 1 and value not in state.graph.outputs


def _made(state: State, node: Node) -> Pending | None:
    """What a node makes, where it is a sum along some axes."""
    if len(node.results) != 1 or node.rule is None:
        return None
    nest = state.nests[node.index]
    partial = partial_of(node, nest, 0)
    if not partial or any(kind is not FactorKind.SUM for _, kind in partial):
        return None
    return frozenset(axis for axis, _ in partial), axes_of(nest, node.rule.results[0])


def _passed(state: State, node: Node, pending: dict[int, Pending]) -> tuple[Nest, frozenset[SubAxis], bool] | None:
    """How a node passes sums on (its nest then, the axes, whether it joins several); None where it cannot."""
    rule, op = node.rule, node.op
    assert rule is not None
    if len(node.results) != 1 or op.name == TAG:
        return None
    places = [k for k, x in enumerate(node.operands) if x != LITERAL]
    sets = linear_in(op.name, op.params, len(node.operands))
    linear = next((one for one in sets if one.issuperset(places)), None)
    if linear is None or any(not _is_zero(op.operands[k]) for k in linear.difference(places)):
        return None
    waiting = [pending.get(node.operands[k]) for k in places]
    first = waiting[0]
    types = state.graph.program.types
    size = types[node.results[0]].size
    if first is None or any(one is None or one[0] != first[0] for one in waiting):
        return None
    axes = first[0]
    nest = tuple(loop for loop in state.nests[node.index] if not any(state.overlaps(loop[0], axis) for axis in axes))
    for k, one in zip(places, waiting, strict=True):
        value = node.operands[k]
        fits = one is not None and one[1] == axes_of(nest, rule.operands[k])
        if not fits or not _single(state, value) or types[value].size != size:
            return None
    return nest, axes, len(places) > 1


def _is_zero(operand: object) -> bool:
    return isinstance(operand, Literal) and bool(operand.value == 0)

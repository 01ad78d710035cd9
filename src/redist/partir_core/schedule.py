"""A schedule run on a program: one tactic after another, none of which undoes an earlier one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from redist.errors import LayoutError
from redist.partir_core.conflicts import Blocked, Conflict, found
from redist.partir_core.graph import LITERAL, Graph
from redist.partir_core.loops import State
from redist.partir_core.propagate import Propagation, propagate
from redist.partir_core.rules import FactorKind
from redist.partir_core.tactics import Choice, ManualPartition
from redist.partir_core.wishes import Wish, axis_of, wishes
from redist.types.mesh import Mesh, SubAxis

__all__ = ["Stage", "run_schedule"]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A program after one tactic (None: before the first): its loop nests, and what stopped propagation."""

    tactic: str | None
    state: State
    conflicts: tuple[Conflict, ...] = ()
    blocked: tuple[Blocked, ...] = ()


def run_schedule(graph: Graph, mesh: Mesh, schedule: Sequence[ManualPartition]) -> tuple[Stage, ...]:
    """The stages, the first of which is the program before any tactic.

    Raises LayoutError for an axis that the mesh does not have, a dimension that does not divide, and a
    tactic that contradicts an earlier one; TracingError as `wishes` does. Warns of a tactic that changes
    nothing, with the reason.
    """
    state = State.of(graph, mesh)
    stages = [Stage(None, state)]
    ready = [(tactic, axis_of(tactic, mesh), wishes(tactic, graph.program)) for tactic in schedule]
    for number, (tactic, axis, asked) in enumerate(ready):
        state = state.copy()
        notes: list[str] = []
        done = _apply(state, axis, asked, number, [str(t) for t in schedule], notes)
        before = stages[-1].state
        if (state.nests, state.tiles, state.atomic) == (before.nests, before.tiles, before.atomic):
            reasons = "; ".join(notes) or "everything it names is left UNKNOWN"
            warnings.warn(f"tactic {tactic} changes nothing: {reasons}", stacklevel=5)
        conflicts, blocked = found(done, str(tactic))
        stages.append(Stage(str(tactic), state, conflicts, blocked))
    return tuple(stages)


def _apply(
    state: State, axis: SubAxis, asked: Sequence[Wish], number: int, labels: Sequence[str], notes: list[str]
) -> Propagation:
    """What the tactic says of each value, then what follows."""
    program = state.graph.program
    done = propagate(state, axis, number)
    if state.mesh.count([axis]) == 1:
        notes.append(f"axis {axis} has size 1")
        return done
    problems: list[str] = []
    scanned: set[tuple[int, int]] = set()
    if any(wish.what is Choice.FIRST_DIVISIBLE_DIM for wish in asked):
        scanned = _scanned(state.graph)
    for wish in asked:
        if wish.what is Choice.REPLICATED:
            _keep(done, wish, labels, problems)
    for wish in asked:
        if wish.what is Choice.UNKNOWN or wish.what is Choice.REPLICATED:
            continue
        held = _held(done, wish.value)
        if held is not None and (held[0] == wish.what or wish.what is Choice.FIRST_DIVISIBLE_DIM):
            notes.append(f"{wish.name} is tiled along {axis} already, in dimension {held[0]}")
            continue
        dim = _first(state, wish.value, axis, scanned) if isinstance(wish.what, Choice) else wish.what
        if dim is None:
            kind = program.types[wish.value]
            notes.append(f"no dimension of {wish.name}, {kind}, divides by {axis}={state.mesh.count([axis])}")
            continue
        problem = _refusal(done, wish, dim, held, labels)
        if problem is not None:
            problems.append(problem)
        elif wish.value in state.graph.producer:
            node = state.graph.nodes[state.graph.producer[wish.value][0]]
            assert node.rule is not None
            done.cut(node, node.rule.results[0][dim][0])
        else:
            done.tile_input(wish.value, dim)
    if problems:
        raise LayoutError(f"tactic {labels[number]}: {'; '.join(problems)}")
    done.run()
    return done


def _keep(done: Propagation, wish: Wish, labels: Sequence[str], problems: list[str]) -> None:
    held = _held(done, wish.value)
    if held is None:
        done.state.atomic.setdefault(wish.value, {}).setdefault(done.axis, done.tactic)
        return
    problems.append(
        f"{wish.name} cannot be REPLICATED along {done.axis}: tactic {labels[held[1]]} shards its dimension {held[0]}, "
        "and no tactic undoes an earlier one; put REPLICATED before it"
    )


def _held(done: Propagation, value: int) -> tuple[int, int] | None:
    """(dimension, tactic) where a value is tiled along the axis or one that overlaps it."""
    state = done.state
    for d, axes in enumerate(state.axes(value)):
        for axis in axes:
            if state.overlaps(axis, done.axis):
                made = state.graph.producer.get(value)
                by = state.tiled_by[value, axis] if made is None else state.cut_by[made[0], axis]
                return d, by
    return None


def _first(state: State, value: int, axis: SubAxis, scanned: set[tuple[int, int]]) -> int | None:
    """The first dimension that the axis divides and no loop runs over."""
    count = state.mesh.count([axis])
    shape = state.graph.program.types[value].shape
    for d, (size, axes) in enumerate(zip(shape, state.axes(value), strict=True)):
        if size and (value, d) not in scanned and size % (state.mesh.count(axes) * count) == 0:
            return d
    return None


def _refusal(
    done: Propagation, wish: Wish, dim: int, held: tuple[int, int] | None, labels: Sequence[str]
) -> str | None:
    """Why an input or tagged value cannot be tiled in a dimension."""
    state, axis = done.state, done.axis
    kind = state.graph.program.types[wish.value]
    if held is not None:
        return (
            f"{wish.name}: dimension {dim} along {axis}, but tactic {labels[held[1]]} shards its dimension {held[0]} "
            "along it, and no tactic undoes an earlier one"
        )
    if state.blocks(wish.value, axis):
        by = next(t for kept, t in state.atomic[wish.value].items() if state.overlaps(kept, axis))
        return (
            f"{wish.name}: dimension {dim} along {axis}, but tactic {labels[by]} keeps it REPLICATED, and no tactic "
            "undoes an earlier one"
        )
    axes = state.axes(wish.value)[dim]
    count = state.mesh.count([axis])
    local = kind.shape[dim] // state.mesh.count(axes)
    if kind.shape[dim] % state.mesh.count(axes) or local % count or not local:
        over = f" ({local} on each device, over {', '.join(map(str, axes))})" if axes else ""
        return (
            f"dimension {dim} of {wish.name}, {kind}, has {kind.shape[dim]} elements{over}, which {axis}={count} does "
            f"not divide; pad it to {-(-max(local, 1) // count) * count * state.mesh.count(axes)}, or choose another "
            "dimension"
        )
    made = state.graph.producer.get(wish.value)
    if made is not None:
        node = state.graph.nodes[made[0]]
        assert node.rule is not None
        why = state.obstacle(node, node.rule.results[0][dim][0], axis) if kind.shape[dim] > 1 else "it has one element"
        if any(state.overlaps(other, axis) for other, _ in state.nests[node.index]):
            why = f"a loop along {axis} makes it already"
        if why is not None:
            return f"dimension {dim} of {wish.name} cannot be cut along {axis}: {why}"
    return None


def _scanned(graph: Graph) -> set[tuple[int, int]]:
    """(value, dimension) of everything that runs along the scanned dimension of some loop, through
    operations: a stacked parameter's, and its gradient's and optimizer state's."""
    parent: dict[tuple[int, int], tuple[int, int]] = {}

    def root(x: tuple[int, int]) -> tuple[int, int]:
        while parent.setdefault(x, x) != x:
            parent[x] = x = parent[parent[x]]
        return x

    marked: list[tuple[int, int]] = []
    if not any(node.op.name == "scan" for node in graph.nodes):
        return set()
    for node in graph.nodes:
        rule = node.rule
        if rule is None:
            continue
        first: dict[int, tuple[int, int]] = {}
        values = [*zip(node.operands, rule.operands, strict=True), *zip(node.results, rule.results, strict=True)]
        for value, dims in values:
            for d, factors in enumerate(dims):
                if value == LITERAL or len(factors) == 0 or _loose(node.op.name, rule.factors[factors[0]].kind):
                    continue
                place = (value, d)
                if factors[0] in first:
                    parent[root(place)] = root(first[factors[0]])
                else:
                    first[factors[0]] = place
                    root(place)
                if rule.factors[factors[0]].kind is FactorKind.WHOLE:
                    marked.append(place)
    whole = {root(place) for place in marked}
    return {place for place in list(parent) if root(place) in whole}


def _loose(name: str, kind: FactorKind) -> bool:
    """Whether a whole factor belongs to something else than a scan's dimension."""
    return kind is FactorKind.WHOLE and name != "scan"

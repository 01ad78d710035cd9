"""An independent simulation of plans: every device holds the numbers of its elements, and operations move them.

Nothing here comes from redist's typing rules or backends. Every operation's result is compared with the
layout that the planner states after it, and the last one with the target.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.blocks import blocks, coordinate, count, cut_alike, edge, place
from benchmarks.forms import Axes, Op
from redist.types import Layout, Mesh

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Simulation", "WrongPlanError", "simulate"]


class WrongPlanError(Exception):
    """A plan that does not do what it says, or does not reach its target."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a plan did, in elements.

    `received` is the sum over operations for the busiest device; `steps` the operations in which any
    device received something; `largest_block` the largest block that a device holds after any
    operation, source and target included; `live` the largest sum of a block before and after one
    operation. `idle` counts the blocks of permutes in which every device keeps its own, which move
    nothing and are in none of the others. `wrong` says what is wrong, None where the target is reached.
    """

    wrong: str | None
    received: int
    steps: int
    largest_block: int
    live: int
    idle: int = 0


@dataclass(slots=True)
class _State:
    """Per device id: the numbers of its elements, and for partial values which contributions they hold."""

    layout: Layout
    held: dict[int, NDArray[np.int64]]
    terms: dict[int, NDArray[np.int64]]
    received: dict[int, int] = field(default_factory=dict)

    def add(self, device: int, elements: int) -> None:
        self.received[device] = self.received.get(device, 0) + elements


def simulate(source: Layout, target: Layout, ops: Iterable[Op]) -> Simulation:
    """Run the operations on the blocks of `source`; a wrong plan is reported, not raised."""
    state = _State(source, blocks(source), _first_terms(source))
    steps, idle, largest, live = 0, 0, _largest(state), _largest(state)
    wrong: str | None = None
    total: dict[int, int] = {}
    for number, op in enumerate(ops, 1):
        before = _largest(state)
        state.received = {}
        try:
            _apply(state, op)
            _check(state, op.stated, f"operation {number} ({op.kind}) states {op.stated}")
        except WrongPlanError as error:
            wrong = str(error)
            break
        for device, got in state.received.items():
            total[device] = total.get(device, 0) + got
        steps += any(state.received.values())
        idle += _largest(state) if op.kind == "permute" and not any(state.received.values()) else 0
        largest, live = max(largest, _largest(state)), max(live, before + _largest(state))
    if wrong is None:
        try:
            _check(state, target, f"the target is {target}")
            _check_terms(state, source, target)
        except WrongPlanError as error:
            wrong = str(error)
    largest = max(largest, *(block.size for block in blocks(target).values()))
    return Simulation(wrong, max(total.values(), default=0), steps, largest, live, idle)


def _first_terms(layout: Layout) -> dict[int, NDArray[np.int64]]:
    """Contribution c counts 4^c, so that a contribution that is missing or counted twice shows in the sum."""
    if count(layout.mesh, layout.partial_axes) == 1:
        return {}
    made: dict[int, NDArray[np.int64]] = {}
    for position, (device, block) in enumerate(zip(layout.mesh.device_ids, blocks(layout).values(), strict=True)):
        made[device] = np.full(block.shape, 4 ** coordinate(layout.mesh, position, layout.partial_axes))
    return made


def _largest(state: _State) -> int:
    return max(block.size for block in state.held.values())


# -- checks --------------------------------------------------------------------------------------------


def _check(state: _State, wanted: Layout, what: str) -> None:
    """Every device must hold exactly its block of `wanted`."""
    for device, block in blocks(wanted).items():
        mine = state.held.get(device)
        if mine is None or not np.array_equal(mine, block):
            where = wanted.mesh.describe_device(device)
            raise WrongPlanError(f"{what}, but {where} holds {_summary(mine)} instead of {_summary(block)}")


def _summary(block: NDArray[np.int64] | None) -> str:
    if block is None:
        return "nothing"
    if block.size == 0:
        return f"an empty block {block.shape}"
    return f"elements {block.min()}..{block.max()} as {'x'.join(map(str, block.shape))}"


def _check_terms(state: _State, source: Layout, target: Layout) -> None:
    """Reduced over what the target leaves unreduced, every element has each contribution once."""
    contributors = count(source.mesh, source.partial_axes)
    if contributors == 1:
        return
    sums: dict[tuple[bytes, int], NDArray[np.int64]] = {}
    mesh = target.mesh
    kept = count(mesh, target.partial_axes)
    for position, device in enumerate(mesh.device_ids):
        rest = position - place(mesh, target.partial_axes, coordinate(mesh, position, target.partial_axes))
        key = (state.held[device].tobytes(), rest if kept > 1 else position)
        sums[key] = sums.get(key, np.zeros_like(state.terms[device])) + state.terms[device]
    complete = sum(4**c for c in range(contributors))
    if any((total != complete).any() for total in sums.values()):
        raise WrongPlanError(f"the target is {target}, but some contributions are missing or counted twice")


# -- operations ----------------------------------------------------------------------------------------


def _apply(state: _State, op: Op) -> None:
    match op.kind:
        case "permute":
            _permute(state, op)
        case "exchange":
            _exchange(state, op)
        case "slice":
            _regroup(state, op, communicates=False)
        case "all_gather" | "all_to_all":
            _regroup(state, op, communicates=True)
        case "reduce_scatter" | "all_reduce":
            _reduce(state, op)
    state.layout = op.stated


def _permute(state: _State, op: Op) -> None:
    receivers = sorted(receiver for _, receiver in op.pairs)
    if sorted(s for s, _ in op.pairs) != sorted(state.held) or receivers != sorted(op.stated.mesh.device_ids):
        raise WrongPlanError("the pairs of a permute are no bijection of the devices")
    for sender, receiver in op.pairs:
        state.add(receiver, state.held[sender].size if sender != receiver else 0)
    state.held = {receiver: state.held[sender] for sender, receiver in op.pairs}
    if state.terms:
        state.terms = {receiver: state.terms[sender] for sender, receiver in op.pairs}


def _refined(mesh: Mesh, axes: Axes, cutters: Axes) -> Axes:
    found = cut_alike(mesh, axes, cutters)
    if found is None:
        raise WrongPlanError(f"axes {axes} and {cutters} are not cuts of one factorisation")
    return found


def _suffix(layout: Layout, i: int, lost: Axes) -> Axes:
    """The lost axes in the order in which dimension i has them; they must be its last ones (axes of size 1
    aside)."""
    mesh = layout.mesh
    cuts = _refined(mesh, layout.dims[i].axes, lost), _refined(mesh, lost, layout.dims[i].axes)
    own, fine = (tuple(axis for axis in axes if count(mesh, (axis,)) > 1) for axes in cuts)
    tail = own[len(own) - len(fine) :]
    if sorted(map(str, tail)) != sorted(map(str, fine)):
        raise WrongPlanError(f"axes {[*map(str, lost)]} are not the last ones of dimension {i} of {layout}")
    return tail


def _regroup(state: _State, op: Op, communicates: bool) -> None:
    """Gather along the lost axes, keep the own part along the gained ones."""
    before, mesh = state.layout, state.layout.mesh
    lost = {i: _suffix(before, i, axes) for i, axes in op.lost}
    moved = [axis for axes in lost.values() for axis in axes]
    counts = [range(count(mesh, axes)) for axes in lost.values()]
    made: dict[int, NDArray[np.int64]] = {}
    terms: dict[int, NDArray[np.int64]] = {}
    for position, device in enumerate(mesh.device_ids):
        base = position - place(mesh, tuple(moved), coordinate(mesh, position, tuple(moved)))
        cut = {j: _part(op.stated, before, j, axes, position) for j, axes in op.gained}
        pieces: dict[tuple[int, ...], tuple[int, NDArray[np.int64]]] = {}
        for index in itertools.product(*counts):
            member = base + sum(place(mesh, axes, c) for axes, c in zip(lost.values(), index, strict=True))
            pieces[index] = member, _cut(state.held[mesh.device_ids[member]], cut)
            if member != position:
                state.add(device, pieces[index][1].size)
        made[device] = _assembled({n: piece for n, (_, piece) in pieces.items()}, list(lost), counts)
        if state.terms:
            parts = {n: _cut(state.terms[mesh.device_ids[m]], cut) for n, (m, _) in pieces.items()}
            terms[device] = _assembled(parts, list(lost), counts)
    if not communicates and any(state.received.values()):
        raise WrongPlanError(f"a {op.kind} needs what other devices hold")
    state.held, state.terms = made, terms


def _part(stated: Layout, before: Layout, j: int, axes: Axes, position: int) -> tuple[int, int]:
    """(start, stop) within its block of the part along j that a device keeps."""
    mesh, size = before.mesh, before.dims[j].size
    coarse, parts = count(mesh, before.dims[j].axes), count(mesh, axes)
    first = coordinate(mesh, position, before.dims[j].axes) * parts
    mine = first + coordinate(mesh, position, axes)
    start = edge(size, coarse * parts, stated, j, first)
    return tuple(edge(size, coarse * parts, stated, j, mine + end) - start for end in (0, 1))  # type: ignore[return-value]


def _cut(block: NDArray[np.int64], cut: dict[int, tuple[int, int]]) -> NDArray[np.int64]:
    return block[tuple(slice(*cut[i]) if i in cut else slice(None) for i in range(block.ndim))]


def _assembled(
    pieces: dict[tuple[int, ...], NDArray[np.int64]], dims: Sequence[int], counts: Sequence[range]
) -> NDArray[np.int64]:
    """Pieces by their index along each of `dims`, joined."""
    if not dims:
        return pieces[()]
    joined: dict[tuple[int, ...], NDArray[np.int64]] = {}
    for index in itertools.product(*counts[:-1]):
        joined[index] = np.concatenate([pieces[(*index, c)] for c in counts[-1]], axis=dims[-1])
    return _assembled(joined, dims[:-1], counts[:-1])


def _reduce(state: _State, op: Op) -> None:
    """Sum over the reduced axes; a reduce-scatter keeps the own part along the gained ones.

    Counted as (k-1)/k blocks for a reduce-scatter and twice that, rounded up, for an all-reduce.
    """
    if not state.terms:
        raise WrongPlanError(f"a {op.kind} of a value that is not partial")
    before, mesh = state.layout, state.layout.mesh
    k = count(mesh, op.reduced)
    held: dict[int, NDArray[np.int64]] = {}
    terms: dict[int, NDArray[np.int64]] = {}
    for position, device in enumerate(mesh.device_ids):
        base = position - place(mesh, op.reduced, coordinate(mesh, position, op.reduced))
        members = [mesh.device_ids[base + place(mesh, op.reduced, c)] for c in range(k)]
        if any(not np.array_equal(state.held[m], state.held[device]) for m in members):
            raise WrongPlanError(f"a {op.kind} sums blocks of different elements")
        cut = {j: _part(op.stated, before, j, axes, position) for j, axes in op.gained}
        held[device] = _cut(state.held[device], cut)
        terms[device] = _cut(np.sum([state.terms[m] for m in members], axis=0), cut)
        whole = state.held[device].size
        state.add(device, held[device].size * (k - 1) if op.gained else -(-2 * whole * (k - 1) // k))
    state.held, state.terms = held, terms


def _exchange(state: _State, op: Op) -> None:
    before = state.layout
    ours = _partial_index(before)
    theirs = _partial_index(op.stated)
    contributors = count(before.mesh, before.partial_axes)
    elements = math.prod(before.shape)
    known = np.zeros((contributors, elements), dtype=bool)
    terms = np.zeros((contributors, elements), dtype=np.int64)
    for device, block in state.held.items():
        known[ours[device], block.ravel()] = True
        if state.terms:
            terms[ours[device], block.ravel()] = state.terms[device].ravel()
    made = blocks(op.stated)
    sent = None if op.boxes is None else _delivered(state, op)
    for device, block in made.items():
        own = state.held[device].ravel() if device in state.held and ours[device] == theirs[device] else _NOTHING
        lacking = np.setdiff1d(block.ravel(), own)
        if sent is not None:
            if np.setdiff1d(block.ravel(), sent[device]).size:
                raise WrongPlanError(f"device {device} is not sent all of its block of {op.stated}")
        else:
            state.add(device, lacking.size)
            if not known[theirs[device], lacking].all():
                raise WrongPlanError(f"no device holds what device {device} lacks of {op.stated}")
    if state.terms:
        state.terms = {device: terms[theirs[device], block] for device, block in made.items()}
    state.held = made


_NOTHING: NDArray[np.int64] = np.empty(0, dtype=np.int64)


def _partial_index(layout: Layout) -> dict[int, int]:
    mesh = layout.mesh
    return {device: coordinate(mesh, p, layout.partial_axes) for p, device in enumerate(mesh.device_ids)}


def _delivered(state: _State, op: Op) -> dict[int, Any]:
    """Per device, the elements in the boxes sent to it; every sender must hold what it sends."""
    numbers = np.arange(math.prod(op.stated.shape)).reshape(op.stated.shape)
    got: dict[int, list[NDArray[np.int64]]] = {device: [_NOTHING] for device in op.stated.mesh.device_ids}
    for sender, receiver, starts, stops in op.boxes or ():
        box = numbers[tuple(map(slice, starts, stops))].ravel()
        if sender not in state.held or np.setdiff1d(box, state.held[sender]).size:
            raise WrongPlanError(f"device {sender} sends elements to device {receiver} that it does not hold")
        got[receiver].append(box)
        if sender != receiver:
            state.add(receiver, box.size)
    return {device: np.concatenate(boxes) for device, boxes in got.items()}

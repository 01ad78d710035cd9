"""Reference semantics: what each step does to the blocks of all devices, in one process.

Steps move data mechanically (groups exchange, concatenate, reduce and split blocks); nothing here looks
at where a block belongs in the global array, except an exchange, whose data says so. A simulated plan
is therefore evidence for the typing rules, not a restatement of them.

Blocks of equal shape are held stacked, as one array of shape (devices, *block) in mesh order, and a step
is a transposition of its digits; uneven blocks are held as a list.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from redist.collectives.bijection import senders, split_index
from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Owner,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)
from redist.collectives.typing import after, chunk_parts
from redist.types.blocks import block_edges
from redist.types.digits import Alignment, align
from redist.types.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.types.layout import Layout, Reduction

__all__ = [
    "block_at",
    "each_transfer",
    "owned_transfers",
    "owner_replicas",
    "reduce_blocks",
    "run_step",
    "run_steps",
    "stacked",
]

_REDUCE: dict[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of every block, along one dimension, that a chunk is working on."""

    dim: int
    part: int
    parts: int

    def of(self, length: int) -> tuple[int, int]:
        return chunk_parts(length, self.parts)[self.part]


def run_steps(blocks: Any, steps: Iterable[Step], source: Layout) -> tuple[Any, Layout]:
    """Run steps on the blocks of `source`; returns the blocks and the layout after the last."""
    layout = source
    for step in steps:
        blocks = run_step(blocks, step, layout)
        layout = after(step, layout)
    return blocks, layout


def run_step(blocks: Any, step: Step, before: Layout, windows: tuple[_Window, ...] = ()) -> Any:
    """The blocks of all devices after one step. Raises TypingError where the step does not apply."""
    following = after(step, before)
    match step:
        case Slice() | AllGather() | AllToAll() | ReduceScatter() | AllReduce():
            moves = _Moves.between(before, following)
            if _is_stacked(blocks) and following.is_even():
                return _run_stacked(blocks, moves, following)
            return stacked(_run_listed(blocks, moves, before, following), following)
        case Permute():
            order = senders(step, before)
            return blocks[order] if _is_stacked(blocks) else [blocks[s].copy() for s in order]
        case Exchange():
            return _run_exchange(blocks, step, before, following, windows)
        case Chunk():
            return _run_chunk(blocks, step, before, following, windows)
        case _:
            assert_never(step)


def _is_stacked(blocks: Any) -> bool:
    return isinstance(blocks, np.ndarray)


def block_at(blocks: Any, position: int) -> Any:
    """The block of a device, by its position in the mesh: an array, at rank 0 too."""
    return blocks[position, ...] if _is_stacked(blocks) else blocks[position]


def stacked(blocks: Sequence[NDArray[Any]], layout: Layout) -> Any:
    """Blocks in mesh order in the form the layout asks for: one array where it is even, else a list."""
    return np.stack(blocks, dtype=blocks[0].dtype) if layout.is_even() else list(blocks)


def reduce_blocks(reduction: Reduction, blocks: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """Elementwise reduction of blocks of one shape, in their dtype, which NumPy might widen or byte-swap."""
    first, *others = blocks
    return np.asarray(functools.reduce(_REDUCE[reduction], others, first), dtype=first.dtype)


# -- steps on axes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moves:
    """Digits that leave dimensions (`dropped`), join them (`added`), and that are reduced."""

    alignment: Alignment
    dropped: tuple[tuple[int, ...], ...]
    added: tuple[tuple[int, ...], ...]
    reduced: tuple[int, ...]
    reduction: Reduction

    @staticmethod
    def between(before: Layout, following: Layout) -> _Moves:
        alignment = align((before, following))
        assert alignment is not None, f"{before} and {following} are layouts of one mesh"
        first, second = alignment.forms
        return _Moves(
            alignment,
            tuple(a[len(b) :] for a, b in zip(first.dims, second.dims, strict=True)),
            tuple(b[len(a) :] for a, b in zip(first.dims, second.dims, strict=True)),
            tuple(d for d in first.partial if d not in second.partial),
            before.partial.reduction if before.partial else "sum",
        )


def _run_stacked(blocks: NDArray[Any], moves: _Moves, following: Layout) -> NDArray[Any]:
    """Every digit of a device position and every digit split off a dimension is an axis of its own."""
    sizes = moves.alignment.sizes
    digits = range(len(sizes))
    local = blocks.shape[1:]
    labels: list[Any] = [("device", d) for d in digits]
    shape = list(sizes)
    for j, extent in enumerate(local):
        labels += [*(("split", j, d) for d in moves.added[j]), ("rest", j)]
        shape += [*(sizes[d] for d in moves.added[j]), extent // moves.alignment.count(moves.added[j])]
    array = blocks.reshape(shape)
    for d in moves.reduced:
        axis = labels.index(("device", d))
        array = reduce_blocks(moves.reduction, np.moveaxis(array, axis, 0))
        labels.remove(("device", d))
    leaves = {d: i for i, dropped in enumerate(moves.dropped) for d in dropped}
    joins = {d: j for j, added in enumerate(moves.added) for d in added}
    for d, i in leaves.items():
        labels[labels.index(("device", d))] = ("joined", i, d)
    for d, j in joins.items():
        split = ("split", j, d)
        if ("device", d) in labels:  # a slice: the device keeps the part that its own coordinate names
            axes = labels.index(("device", d)), labels.index(split)
            array = np.diagonal(array, axis1=axes[0], axis2=axes[1])
            labels = [*(label for label in labels if label not in (("device", d), split)), ("device", d)]
        else:
            labels[labels.index(split)] = ("device", d)
    copied = [d for d in digits if ("device", d) not in labels]
    order: list[Any] = [("device", d) for d in digits]
    for i in range(len(local)):
        order += [*(("joined", i, d) for d in moves.dropped[i]), ("rest", i)]
    array = array.transpose([labels.index(label) for label in order if label in labels])
    array = np.expand_dims(array, tuple(copied)) if copied else array
    full = [sizes[d] if d in copied else extent for d, extent in enumerate(array.shape)]
    result = [
        math.prod(array.shape[n] for n, label in enumerate(order) if label[0] != "device" and label[1] == i)
        for i in range(len(local))
    ]
    return np.broadcast_to(array, full).reshape([following.mesh.size, *result])


def _run_listed(blocks: Sequence[NDArray[Any]], moves: _Moves, before: Layout, following: Layout) -> list[NDArray[Any]]:
    """The same for blocks of any shape: each device takes its part of the blocks of its group."""
    alignment = moves.alignment
    finer = [following.mesh.index(dim.axes) for dim in following.dims]

    def part(member: int, receiver: int) -> NDArray[Any]:
        """The member's block, cut to what the receiver takes along dimensions that gain axes."""
        cuts = [slice(None)] * before.rank
        for j, added in enumerate(moves.added):
            if added:
                dim, count = following.dims[j], following.mesh.count(following.dims[j].axes)
                coarse = alignment.count(added)
                mine = int(finer[j][receiver])
                first = int(before.mesh.index(before.dims[j].axes, np.asarray([member]))[0]) * coarse
                edges = block_edges(
                    dim.size, count, dim.rule, np.asarray([first, first + mine % coarse, first + mine % coarse + 1])
                )
                cuts[j] = slice(int(edges[1] - edges[0]), int(edges[2] - edges[0]))
        return blocks[member][tuple(cuts)]

    def joined(position: int, receiver: int, dims: Sequence[int]) -> NDArray[Any]:
        """Concatenation over the dropped digits of `dims`; reduction over the reduced ones inside."""
        if not dims:
            members = [_with(alignment, position, moves.reduced, c) for c in _coordinates(alignment, moves.reduced)]
            return reduce_blocks(moves.reduction, (part(member, receiver) for member in members))
        i, *others = dims
        return np.concatenate(
            [
                joined(_with(alignment, position, moves.dropped[i], c), receiver, others)
                for c in _coordinates(alignment, moves.dropped[i])
            ],
            axis=i,
            dtype=blocks[0].dtype,  # in its byte order
        )

    losing = [i for i, dropped in enumerate(moves.dropped) if dropped]
    return [np.array(joined(receiver, receiver, losing)) for receiver in range(following.mesh.size)]


def _coordinates(alignment: Alignment, digits: Sequence[int]) -> Iterable[tuple[int, ...]]:
    return itertools.product(*(range(alignment.sizes[d]) for d in digits))


def _with(alignment: Alignment, position: int, digits: Sequence[int], values: Sequence[int]) -> int:
    """The position with these digits replaced."""
    for d, value in zip(digits, values, strict=True):
        stride = alignment.strides[d]
        position += (value - position // stride % alignment.sizes[d]) * stride
    return position


# -- exchange and chunk --------------------------------------------------------------------------------


def _boxes(layout: Layout, windows: Iterable[_Window]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Global boxes of all devices, cut to the windows."""
    starts, stops = layout.boxes()
    for window in windows:
        for p in range(len(starts)):
            lower, upper = window.of(int(stops[p, window.dim] - starts[p, window.dim]))
            stops[p, window.dim] = starts[p, window.dim] + upper
            starts[p, window.dim] += lower
    return starts, stops


def _run_exchange(blocks: Any, step: Exchange, before: Layout, following: Layout, windows: tuple[_Window, ...]) -> Any:
    held = _boxes(before, windows)
    wanted = _boxes(following, windows)
    shapes = (wanted[1] - wanted[0]).tolist()
    dtype = block_at(blocks, 0).dtype if len(blocks) else numpy_dtype(before.dtype)
    made: Any
    if following.is_even():
        made = np.zeros([following.mesh.size, *(shapes[0] if shapes else [])], dtype=dtype)
    else:
        made = [np.zeros(shape, dtype=dtype) for shape in shapes]

    def copy(sender: int, receiver: int, starts: Sequence[int], stops: Sequence[int]) -> None:
        take = tuple(slice(a - o, b - o) for a, b, o in zip(starts, stops, held[0][sender].tolist(), strict=True))
        put = tuple(slice(a - o, b - o) for a, b, o in zip(starts, stops, wanted[0][receiver].tolist(), strict=True))
        block_at(made, receiver)[put] = block_at(blocks, sender)[take]

    each_transfer(step, before, held, wanted, copy)
    return made


Boxes = tuple["NDArray[np.int64]", "NDArray[np.int64]"]
"""Global (starts, stops) of all devices, each of shape (devices, rank)."""


def each_transfer(
    step: Exchange,
    before: Layout,
    held: Boxes,
    wanted: Boxes,
    emit: Callable[[int, int, Sequence[int], Sequence[int]], None],
) -> None:
    """Call `emit(sender, receiver, starts, stops)` (mesh positions, global box) for everything that an exchange
    moves or keeps between the given boxes of all devices."""
    following = step.layout
    if isinstance(step.transfers, Owner):
        owned_transfers(before, following, held, wanted, emit)
        return
    source_at = {device: p for p, device in enumerate(before.mesh.device_ids)}
    target_at = {device: p for p, device in enumerate(following.mesh.device_ids)}
    for transfer in step.transfers:
        receiver = target_at[transfer.receiver]
        starts = np.maximum(transfer.starts, wanted[0][receiver]).tolist()
        stops = np.minimum(transfer.stops, wanted[1][receiver]).tolist()
        if all(a < b for a, b in zip(starts, stops, strict=True)):
            emit(source_at[transfer.sender], receiver, starts, stops)


def owned_transfers(
    before: Layout,
    following: Layout,
    held: Boxes,
    wanted: Boxes,
    emit: Callable[[int, int, Sequence[int], Sequence[int]], None],
) -> None:
    """Call `emit(sender, receiver, starts, stops)` (mesh positions, global box) for every transfer of the
    owner rule, those of a device to itself included, between the given boxes of all devices."""
    replica = owner_replicas(before, following)
    counts = before.block_counts()
    for receiver in range(following.mesh.size):
        lower, upper = wanted[0][receiver], wanted[1][receiver]
        if (lower >= upper).any():
            continue
        ranges = [_overlapping(before, i, int(lower[i]), int(upper[i]), counts[i]) for i in range(before.rank)]
        for block in itertools.product(*ranges):
            sender = int(replica[receiver]) + sum(
                int(split_index(before.mesh, before.dims[i].axes, np.asarray([b]))[0]) for i, b in enumerate(block)
            )
            starts = np.maximum(lower, held[0][sender]).tolist()
            stops = np.minimum(upper, held[1][sender]).tolist()
            if all(a < b for a, b in zip(starts, stops, strict=True)):
                emit(sender, receiver, starts, stops)


def _overlapping(layout: Layout, i: int, lower: int, upper: int, count: int) -> range:
    """Indices of the blocks of dimension i that meet [lower, upper)."""
    starts, stops = layout.dim_bounds(i)
    first = int(np.searchsorted(stops, lower, side="right"))
    last = int(np.searchsorted(starts, upper, side="left"))
    return range(first, min(last, count))


def owner_replicas(before: Layout, following: Layout) -> NDArray[np.int64]:
    """Per receiver, the owner's coordinates on axes that do not shard in `before`, as part of a position."""
    mesh = before.mesh
    at = {device: p for p, device in enumerate(mesh.device_ids)}
    here = np.asarray([at.get(device, -1) for device in following.mesh.device_ids], dtype=np.int64)
    sharding = [digit for dim in before.dims for digit in map(mesh.digit, dim.axes)]
    partial = [mesh.digit(axis) for axis in before.partial_axes]
    used = sum(here // stride % size * stride for stride, size in [*sharding, *partial])
    own = here - used
    if (here < 0).any():
        outside = np.arange(following.mesh.size) % (mesh.size // math.prod(s for _, s in [*sharding, *partial]))
        own = np.where(here < 0, _spread(mesh.size, [*sharding, *partial], outside), own)
    return own + split_index(mesh, before.partial_axes, following.mesh.index(following.partial_axes))


def _spread(total: int, used: Sequence[tuple[int, int]], index: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index-th position (row-major) among those whose used digits are all 0."""
    gaps: list[tuple[int, int]] = []
    reached = 1
    for stride, size in sorted(digit for digit in used if digit[1] > 1):
        if stride > reached:
            gaps.append((reached, stride // reached))
        reached = stride * size
    if total > reached:
        gaps.append((reached, total // reached))
    position = np.zeros_like(index)
    for stride, size in gaps:
        position += index % size * stride
        index = index // size
    return position


def _run_chunk(blocks: Any, step: Chunk, before: Layout, following: Layout, windows: tuple[_Window, ...]) -> Any:
    parts: list[Any] = []
    made: Any = None
    for p in range(step.parts):
        window = _Window(step.dim, p, step.parts)
        part = _cut(blocks, window)
        layout = before
        for inner in step.steps:
            part = run_step(part, inner, layout, (*windows, window))
            layout = after(inner, layout)
        if _is_stacked(part):
            if made is None:
                shape = list(part.shape)
                shape[step.dim + 1] = blocks.shape[step.dim + 1] if _is_stacked(blocks) else blocks[0].shape[step.dim]
                made = np.empty(shape, dtype=part.dtype)
            lower, upper = window.of(made.shape[step.dim + 1])
            made[(slice(None),) * (step.dim + 1) + (slice(lower, upper),)] = part
        else:
            parts.append(part)
    if made is not None:
        return made
    dtype = parts[0][0].dtype
    joined = [np.concatenate(group, axis=step.dim, dtype=dtype) for group in zip(*parts, strict=True)]
    return stacked(joined, following)


def _cut(blocks: Any, window: _Window) -> Any:
    if _is_stacked(blocks):
        lower, upper = window.of(blocks.shape[window.dim + 1])
        return blocks[(slice(None),) * (window.dim + 1) + (slice(lower, upper),)]
    return [block[(slice(None),) * window.dim + (slice(*window.of(block.shape[window.dim])),)] for block in blocks]

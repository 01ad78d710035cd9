"""What each step does to the block of one device, inside a `shard_map` over all mesh axes.

Shapes are those of the blocks at hand, so that a step inside a chunk runs on a part of its block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from redist.collectives.backends.jax.exchange import Window, depends_on_part, exchange, permute
from redist.collectives.backends.jax.frame import Frame, Moves
from redist.collectives.backends.jax.modules import jnp, lax
from redist.collectives.backends.jax.pieces import joined, split
from redist.collectives.backends.jax.reduce import all_reduced, reduce_scattered
from redist.collectives.backends.jax.wire import packed, unpacked
from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)
from redist.collectives.typing import after, chunk_parts

if TYPE_CHECKING:
    from redist.types.layout import Layout

__all__ = ["run_steps"]


def run_steps(steps: Iterable[Step], before: Layout, frame: Frame, block: Any, windows: Sequence[Window] = ()) -> Any:
    """The block of this device after the steps, given that of the layout `before`."""
    dtype = block.dtype
    for step in steps:
        if isinstance(step, (ReduceScatter, AllReduce)):
            block = _reduce(step, before, frame, unpacked(block, dtype))
        elif isinstance(step, Chunk):
            block = _chunk(step, before, frame, unpacked(block, dtype), windows)
        else:
            block = _move(step, before, frame, packed(block), windows)
        before = after(step, before)
    return unpacked(block, dtype)


def _move(
    step: Slice | AllGather | AllToAll | Permute | Exchange,
    before: Layout,
    frame: Frame,
    block: Any,
    windows: Sequence[Window],
) -> Any:
    following = after(step, before)
    match step:
        case Slice():
            return _slice(Moves.between(before, following), frame, block)
        case AllGather():
            return _all_gather(Moves.between(before, following), frame, block)
        case AllToAll():
            return _all_to_all(Moves.between(before, following), frame, block)
        case Permute():
            return permute(step, before, frame, block)
        case Exchange():
            return exchange(step, before, frame, block, windows)
        case _:
            assert_never(step)


def _slice(moves: Moves, frame: Frame, block: Any) -> Any:
    sizes = list(block.shape)
    starts: list[Any] = [np.int32(0)] * block.ndim
    for j, added in enumerate(moves.added):
        if added:
            sizes[j] //= moves.count(added)
            starts[j] = frame.value(moves.mesh, moves.index(added) * sizes[j])
    return lax.dynamic_slice(block, starts, sizes)


def _all_gather(moves: Moves, frame: Frame, block: Any) -> Any:
    order = [d for dropped in moves.dropped for d in dropped]
    groups = moves.groups(order, frame)
    pieces = lax.all_gather(block, frame.axes, axis_index_groups=groups, axis=0, tiled=True)
    return joined(moves, order, pieces, apart=False)


def _all_to_all(moves: Moves, frame: Frame, block: Any) -> Any:
    order = [d for added in moves.added for d in added]
    groups = moves.groups(order, frame)
    pieces = split(moves, block)
    received = lax.all_to_all(pieces, frame.axes, 0, 0, axis_index_groups=groups, tiled=True)
    return joined(moves, order, received, apart=True)


def _reduce(step: ReduceScatter | AllReduce, before: Layout, frame: Frame, block: Any) -> Any:
    moves = Moves.between(before, after(step, before))
    reduction = before.partial.reduction if before.partial else "sum"
    if isinstance(step, AllReduce):
        return all_reduced(block, reduction, moves.groups(moves.reduced, frame), frame)
    order = [d for added in moves.added for d in added]
    pieces = split(moves, block)
    count = moves.count(order)
    by_receiver = pieces.reshape([count, pieces.shape[0] // count, *pieces.shape[1:]])
    return reduce_scattered(by_receiver, reduction, moves.groups(order, frame), frame)


def _chunk(step: Chunk, before: Layout, frame: Frame, block: Any, windows: Sequence[Window]) -> Any:
    parts = chunk_parts(block.shape[step.dim], step.parts)
    following = after(step, before)
    if windows or depends_on_part(step.steps, before, step.dim):
        made = [
            run_steps(
                step.steps,
                before,
                frame,
                lax.slice_in_dim(block, start, stop, axis=step.dim),
                (*windows, Window(step.dim, p, step.parts)),
            )
            for p, (start, stop) in enumerate(parts)
            if stop > start
        ]
        return jnp.concatenate(made, axis=step.dim)

    def put(result: Any, start: Any, length: int) -> Any:
        part = lax.dynamic_slice_in_dim(block, start, length, axis=step.dim)
        done = run_steps(step.steps, before, frame, part, windows)
        return lax.dynamic_update_slice_in_dim(result, done, start, axis=step.dim)

    def next_part(p: Any, result: Any) -> Any:
        return put(result, p * size, size)

    size = parts[0][1]
    full = sum(stop - start == size for start, stop in parts) if size else 0
    shape = _local_shape(following, before, block)
    result = jnp.zeros(shape, dtype=block.dtype)
    if full:
        result = lax.fori_loop(0, full, next_part, result)
    rest = block.shape[step.dim] - full * size
    return put(result, full * size, rest) if rest else result


def _local_shape(following: Layout, before: Layout, block: Any) -> tuple[int, ...]:
    """Shape of the block at hand after the step: windows cut only dimensions that keep their axes."""
    return tuple(
        length if old == new else length * a // b
        for length, old, new, a, b in zip(
            block.shape, before.dims, following.dims, before.block_counts(), following.block_counts(), strict=True
        )
    )

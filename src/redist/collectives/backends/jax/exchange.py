"""Steps that move boxes between stated devices: permutes, and exchanges as rounds of partial permutes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.jax.modules import jnp, lax
from redist.collectives.backends.numpy import each_transfer
from redist.collectives.bijection import senders
from redist.collectives.steps import Chunk, Exchange, Permute, Step
from redist.collectives.typing import after, chunk_parts

if TYPE_CHECKING:
    from redist.collectives.backends.jax.frame import Frame
    from redist.types.layout import Layout

__all__ = ["Copy", "Window", "copies_of", "depends_on_part", "exchange", "permute", "permute_pairs"]


@dataclass(frozen=True, slots=True)
class Window:
    """The part of every block, along one dimension, that a chunk is working on."""

    dim: int
    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A box of the sender's block that becomes a box of the receiver's: device ids, and where both start
    in the blocks."""

    sender: int
    receiver: int
    take: tuple[int, ...]
    put: tuple[int, ...]
    shape: tuple[int, ...]


def permute_pairs(step: Permute, before: Layout) -> list[tuple[int, int]]:
    """(sender id, receiver id), one per device."""
    ids = before.mesh.id_array()[senders(step, before)].tolist()
    return list(zip(ids, step.layout.mesh.device_ids, strict=True))


def permute(step: Permute, before: Layout, frame: Frame, block: Any) -> Any:
    """The block that this device takes; devices that keep their block send it to themselves."""
    pairs = permute_pairs(step, before)
    if all(sender == receiver for sender, receiver in pairs):
        return block
    at = {device: number for number, device in enumerate(frame.ids)}
    return lax.ppermute(block, frame.axes, [(at[sender], at[receiver]) for sender, receiver in pairs])


def depends_on_part(steps: Iterable[Step], before: Layout, dim: int) -> bool:
    """Whether some step moves other boxes in one part of a chunk along `dim` than in another: an exchange
    whose stated boxes do not span the blocks in that dimension."""
    for step in steps:
        if isinstance(step, Exchange) and dim not in _spanned(copies_of(step, before), before):
            return True
        if isinstance(step, Chunk) and depends_on_part(step.steps, before, dim):
            return True
        before = after(step, before)
    return False


def _spanned(copies: Iterable[Copy], before: Layout) -> set[int]:
    """Dimensions in which every box is as long as the block, and stays where it is."""
    spanned = {i for i in range(before.rank)}
    for copy in copies:
        spanned = {i for i in spanned if copy.take[i] == copy.put[i] == 0 and copy.shape[i] == before.block_shape()[i]}
    return spanned


@lru_cache(maxsize=256)
def copies_of(step: Exchange, before: Layout, windows: tuple[Window, ...] = ()) -> tuple[Copy, ...]:
    """Every box that the exchange moves, or that stays, inside the windows."""
    target = step.layout
    held, wanted = _boxes(before, windows), _boxes(target, windows)
    found: list[Copy] = []

    def add(sender: int, receiver: int, starts: Sequence[int], stops: Sequence[int]) -> None:
        found.append(
            Copy(
                before.mesh.device_ids[sender],
                target.mesh.device_ids[receiver],
                tuple(a - o for a, o in zip(starts, held[0][sender].tolist(), strict=True)),
                tuple(a - o for a, o in zip(starts, wanted[0][receiver].tolist(), strict=True)),
                tuple(b - a for a, b in zip(starts, stops, strict=True)),
            )
        )

    each_transfer(step, before, held, wanted, add)
    return tuple(found)


def _boxes(layout: Layout, windows: Iterable[Window]) -> tuple[Any, Any]:
    """Global boxes of all devices, cut to the windows."""
    starts, stops = layout.boxes()
    for window in windows:
        for p in range(len(starts)):
            lower, upper = chunk_parts(int(stops[p, window.dim] - starts[p, window.dim]), window.parts)[window.part]
            stops[p, window.dim] = starts[p, window.dim] + upper
            starts[p, window.dim] += lower
    return starts, stops


def exchange(step: Exchange, before: Layout, frame: Frame, block: Any, windows: Sequence[Window]) -> Any:
    """The target's block, box by box. In a round every device sends and receives at most one box, all of
    one shape; boxes that a device keeps go first and travel nowhere."""
    target = step.layout
    copies = copies_of(step, before, tuple(windows))
    starts, stops = _boxes(target, windows)
    extent = (stops - starts)[0].tolist()
    if block.shape != before.block_shape() and not windows:  # a part of a block, in dimensions that boxes span
        part = {i for i in range(block.ndim) if block.shape[i] != before.block_shape()[i]}
        copies = [replace(c, shape=_with_lengths(c.shape, block.shape, part)) for c in copies]
        extent = _with_lengths(extent, block.shape, part)
    made = jnp.zeros(extent, dtype=block.dtype)
    at = {device: number for number, device in enumerate(frame.ids)}
    rounds = _rounds(copies)
    in_turn = sum(math.prod(batch[0].shape) for batch in rounds) > made.size
    for batch in rounds:
        take = np.zeros((len(frame.ids), block.ndim), dtype=np.int32)
        put = np.zeros_like(take)
        takes_part = np.zeros(len(frame.ids), dtype=bool)
        for copy in batch:
            take[at[copy.sender]] = copy.take
            put[at[copy.receiver]] = copy.put
            takes_part[at[copy.receiver]] = True
        shape = batch[0].shape
        taken = frame.pick(take) + _zero_after(made, frame) if in_turn else frame.pick(take)
        piece = lax.dynamic_slice(block, list(taken) if shape else [], shape)
        if any(copy.sender != copy.receiver for copy in batch):
            piece = lax.ppermute(piece, frame.axes, [(at[copy.sender], at[copy.receiver]) for copy in batch])
        where = list(frame.pick(put)) if shape else []
        if not takes_part.all():
            piece = jnp.where(frame.pick(takes_part), piece, lax.dynamic_slice(made, where, shape))
        made = lax.dynamic_update_slice(made, piece, where)
    return made


def _with_lengths(shape: Sequence[int], lengths: Sequence[int], dims: set[int]) -> tuple[int, ...]:
    return tuple(lengths[i] if i in dims else extent for i, extent in enumerate(shape))


def _zero_after(made: Any, frame: Frame) -> Any:
    """0, known only once `made` is, so that a round begins when the one before it is done: XLA would have
    the pieces of all rounds alive together, and drops barriers before it assigns buffers."""
    zero = lax.axis_index(frame.axes) // len(frame.ids)
    return zero * (made[(0,) * made.ndim] != 0).astype(zero.dtype)


def _rounds(copies: Iterable[Copy]) -> list[list[Copy]]:
    """Copies of one shape in rounds, each device a sender and a receiver at most once."""
    by_kind: dict[tuple[bool, tuple[int, ...]], list[Copy]] = {}
    for copy in copies:
        by_kind.setdefault((copy.sender != copy.receiver, copy.shape), []).append(copy)
    rounds: list[list[Copy]] = []
    for kind in sorted(by_kind):
        open_rounds: list[tuple[set[int], set[int], list[Copy]]] = []
        for copy in by_kind[kind]:
            fitting = (r for r in open_rounds if copy.sender not in r[0] and copy.receiver not in r[1])
            sending, receiving, batch = next(fitting, (set[int](), set[int](), list[Copy]()))
            if not batch:
                open_rounds.append((sending, receiving, batch))
            sending.add(copy.sender)
            receiving.add(copy.receiver)
            batch.append(copy)
        rounds += [batch for _, _, batch in open_rounds]
    return rounds

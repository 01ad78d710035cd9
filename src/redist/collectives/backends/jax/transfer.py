"""Steps between different sets of devices: boxes are sent from device to device, by `device_put`.

Calls return before their work is done, so that a loop over all boxes would have all of them cut, on both sides,
before the first is in place. What is under way at once is bounded instead: beside source and target there are
at most `IN_FLIGHT_BYTES`, or one box on both sides where that is more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.jax.exchange import Copy, copies_of, permute_pairs
from redist.collectives.backends.jax.modules import jax, jnp, lax
from redist.collectives.backends.jax.program import flat_sharding, under
from redist.collectives.steps import Exchange, Permute
from redist.errors import BackendError

if TYPE_CHECKING:
    from redist.collectives.steps import Step
    from redist.types.layout import Layout

__all__ = ["IN_FLIGHT_BYTES", "crosses", "transfer"]

IN_FLIGHT_BYTES = 2**26
"""Bytes of boxes that are cut or sent but not yet in place, over all devices."""


def crosses(step: Step) -> bool:
    """Whether a step can go to other devices."""
    return isinstance(step, (Permute, Exchange))


def transfer(step: Step, before: Layout, blocks: Mapping[int, Any]) -> dict[int, Any]:
    """{device id: block} after the step. A receiver's pieces are cut on their senders' devices."""
    assert isinstance(step, (Permute, Exchange))
    device_of = _devices([*before.mesh.device_ids, *step.layout.mesh.device_ids])
    if isinstance(step, Permute):
        return {
            receiver: blocks[sender] if sender == receiver else jax.device_put(blocks[sender], device_of[receiver])
            for sender, receiver in permute_pairs(step, before)
        }
    shape = step.layout.block_shape()
    by_receiver: dict[int, list[Copy]] = {receiver: [] for receiver in step.layout.mesh.device_ids}
    for copy in copies_of(step, before):
        by_receiver[copy.receiver].append(copy)
    dtype = next(iter(blocks.values())).dtype
    flight = _Flight()
    return {
        receiver: _assembled(copies, shape, blocks, device_of[receiver], dtype, flight)
        for receiver, copies in by_receiver.items()
    }


class _Flight:
    """Bytes under way, and the blocks that they go to."""

    def __init__(self) -> None:
        self._bytes = 0
        self._done: list[Any] = []

    def admit(self, size: int, block: Any) -> None:
        """Wait, if `size` bytes more are too many, for all that is under way; `block` is the one it goes to."""
        if self._bytes and self._bytes + size > IN_FLIGHT_BYTES:
            jax.block_until_ready([*self._done, block])
            self._bytes = 0
            self._done.clear()
        self._bytes += size

    def finished(self, block: Any) -> Any:
        """The block, which nothing more goes to."""
        self._done.append(block)
        return block


def _assembled(
    copies: list[Copy], shape: tuple[int, ...], blocks: Mapping[int, Any], device: Any, dtype: Any, flight: _Flight
) -> Any:
    """A receiver's block from its pieces."""
    if len(copies) == 1 and copies[0].shape == shape:
        (copy,) = copies
        held = blocks[copy.sender]
        whole, stays = held.shape == shape, copy.sender == copy.receiver
        flight.admit(0 if whole or stays else math.prod(shape) * dtype.itemsize, None)
        piece = held if whole else _cut(held, _starts(copy.take), sizes=shape)
        return flight.finished(piece if stays else jax.device_put(piece, device))
    made = _blank(device, shape, dtype)
    for copy in copies:
        held = blocks[copy.sender]
        whole, stays = held.shape == copy.shape, copy.sender == copy.receiver
        sides = (not whole) + (not stays)
        flight.admit(sides * math.prod(copy.shape) * dtype.itemsize, made)
        piece = held if whole else _cut(held, _starts(copy.take), sizes=copy.shape)
        made = _paste(made, piece if stays else jax.device_put(piece, device), _starts(copy.put))
    return flight.finished(made)


def _starts(starts: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(map(np.int32, starts))


def _cut(block: Any, starts: tuple[Any, ...], sizes: tuple[int, ...]) -> Any:
    with under(flat_sharding([block.device.id]).mesh):
        return _jitted_cut()(block, starts, sizes=sizes)


def _paste(block: Any, piece: Any, starts: tuple[Any, ...]) -> Any:
    with under(flat_sharding([block.device.id]).mesh):
        return _jitted_paste()(block, piece, starts)


def _blank(device: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    with under(flat_sharding([device.id]).mesh):
        return _jitted_blank(device, shape, dtype)()


@lru_cache(maxsize=1024)
def _jitted_blank(device: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Zeros made where they belong: `jnp.zeros(device=)` makes them elsewhere and copies."""
    return jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=jax.sharding.SingleDeviceSharding(device))


@lru_cache(maxsize=1)
def _jitted_cut() -> Any:
    return jax.jit(_sliced, static_argnames="sizes")


def _sliced(block: Any, starts: Any, sizes: tuple[int, ...]) -> Any:
    return lax.dynamic_slice(block, starts, sizes)


@lru_cache(maxsize=1)
def _jitted_paste() -> Any:
    return jax.jit(lax.dynamic_update_slice, donate_argnums=0)


def _devices(ids: list[int]) -> dict[int, Any]:
    found = {device.id: device for device in jax.devices() if device.id in set(ids)}
    missing = sorted(set(ids) - set(found))
    if missing:
        there = sorted(device.id for device in jax.devices())
        raise BackendError(
            f"JAX does not have devices {missing}; it has {there}. Use those ids, or start JAX with more devices"
        )
    return found

"""Steps between different sets of devices: boxes are sent from device to device, by `device_put`."""

from __future__ import annotations

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

__all__ = ["crosses", "transfer"]


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
    return {
        receiver: _assembled(copies, shape, blocks, device_of[receiver], next(iter(blocks.values())).dtype)
        for receiver, copies in by_receiver.items()
    }


def _assembled(copies: list[Copy], shape: tuple[int, ...], blocks: Mapping[int, Any], device: Any, dtype: Any) -> Any:
    """A receiver's block from its pieces."""
    made: Any = None
    for copy in copies:
        held = blocks[copy.sender]
        piece = held if held.shape == copy.shape else _cut(held, _starts(copy.take), sizes=copy.shape)
        piece = piece if copy.sender == copy.receiver else jax.device_put(piece, device)
        if copy.shape == shape:
            return piece
        if made is None:
            made = _blank(device, shape, dtype)
        made = _paste(made, piece, _starts(copy.put))
    return _blank(device, shape, dtype) if made is None else made


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
        return jnp.zeros(shape, dtype, device=device)


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

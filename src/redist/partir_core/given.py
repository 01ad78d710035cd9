"""Arguments on MPI: the block that a rank starts with, and what brings it where the program needs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.jax.modules import jax
from redist.errors import BackendError, LayoutError
from redist.partir_core.distributed import DistributedArray, is_key, restored, stored
from redist.synth.planner import synthesize
from redist.types.dtypes import numpy_dtype
from redist.types.layout import Layout

if TYPE_CHECKING:
    from redist.collectives.plan import Plan
    from redist.collectives.topology import Topology

__all__ = ["Given", "given"]


@dataclass(frozen=True, slots=True)
class Given:
    """An argument. `take` hands over this rank's block, a JAX array, once; `plan` is what brings it to the
    program's layout, None where it is there; `fresh` tells that nobody else has the block."""

    take: Callable[[], Any]
    plan: Plan | None
    fresh: bool


def given(
    name: str, leaf: Any, layout: Layout, comm: Any, *, device: Any, donated: bool, topology: Topology | None
) -> Given:
    """The argument as the program's `layout` needs it on this rank of `comm`.

    A global array is sliced: of it, only the rank's block is read. A `DistributedArray` is taken as it is.
    Raises LayoutError where a block is not the one that its layout gives the rank, and BackendError for one
    over another communicator.
    """
    if not isinstance(leaf, DistributedArray):
        words = np.asarray(stored(leaf) if hasattr(leaf, "dtype") else leaf)
        block = _copied(words[layout.box(comm.rank)], layout, leaf, device)
        return Given(lambda: block, None, True)
    try:
        leaf.check()
    except LayoutError as error:
        raise LayoutError(f"{name}: {error}") from None
    if (leaf.comm.rank, leaf.comm.size) != (comm.rank, comm.size):
        raise BackendError(
            f"{name} is on rank {leaf.comm.rank} of {leaf.comm.size} of its communicator, which is rank {comm.rank} of "
            f"{comm.size} of the function's; use one communicator for both"
        )
    held = leaf.layout
    if held.dtype != layout.dtype:  # 64-bit numbers where JAX is not to have any
        held = _of_dtype(held, layout.dtype)
    plan = None if held.equivalent(layout) else synthesize(held, layout, topology=topology, backend="mpi")
    if not isinstance(leaf.data, jax.Array) or held is not leaf.layout:
        block = _copied(leaf.data, held, leaf.data, device)
        return Given(lambda: block, plan, True)
    return Given(leaf.release if donated else lambda: leaf.data, plan, donated)


def _of_dtype(layout: Layout, dtype: str) -> Layout:
    reduction = "sum" if layout.partial is None else layout.partial.reduction
    axes, rules = [dim.axes for dim in layout.dims], [dim.rule for dim in layout.dims]
    return Layout(layout.mesh, layout.shape, axes, dtype, rules=rules, partial=layout.partial_axes, reduction=reduction)


def _copied(words: Any, layout: Layout, like: Any, device: Any) -> Any:
    """A copy on the device that nobody else has."""
    copied = jax.device_put(np.array(stored(words), numpy_dtype(layout.dtype), order="C"), device)
    return restored(copied, like) if hasattr(like, "dtype") and is_key(like) else copied

"""What a rank checks on its own before ranks agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from redist.collectives.backends.mpi.reductions import require_reducible
from redist.collectives.steps import AllReduce, Chunk, ReduceScatter, Step
from redist.errors import BackendError, LayoutError, ProofError
from redist.types.dtypes import dtype_name, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from redist.collectives.plan import Plan
    from redist.types.layout import Layout

__all__ = ["check_input", "check_output", "check_plan", "describe"]


def check_plan(plan: Plan, ranks: int) -> None:
    """The plan types, ends at its target, and has its devices among so many ranks.

    Raises TypingError, ProofError, BackendError.
    """
    layouts = plan.layouts
    if not layouts[-1].equivalent(plan.target):
        raise ProofError(
            f"the plan ends at {layouts[-1]} on {layouts[-1].mesh}, and its target is {plan.target} on "
            f"{plan.target.mesh}; run `redist verify` on it"
        )
    beyond = sorted({d for layout in layouts for d in _beyond(layout.mesh.device_ids, ranks)})
    if beyond:
        raise BackendError(
            f"the plan is for devices up to {beyond[-1]}, and device d is rank d: the communicator has {ranks} ranks, "
            f"so devices {_listed(beyond)} have none; start at least {beyond[-1] + 1} (mpiexec -n {beyond[-1] + 1})"
        )
    if plan.source.partial is not None and any(_reduces(plan.steps)):
        require_reducible(plan.source.partial.reduction, plan.source.dtype)


def _beyond(ids: Any, ranks: int) -> Iterable[int]:
    return (d for d in ids if d >= ranks)


def _listed(ids: list[int]) -> str:
    shown = ", ".join(map(str, ids[:8]))
    return shown if len(ids) <= 8 else f"{shown} and {len(ids) - 8} more"


def _reduces(steps: Iterable[Step]) -> Iterable[bool]:
    for step in steps:
        if isinstance(step, Chunk):
            yield from _reduces(step.steps)
        else:
            yield isinstance(step, ReduceScatter | AllReduce)


def check_input(plan: Plan, rank: int, shape: tuple[int, ...] | None, block: Any) -> None:
    """Raises BackendError where the block is not the one that the source gives this rank."""
    _check(plan.source, "input", rank, shape, block, absent_is_fine=False)


def check_output(plan: Plan, rank: int, shape: tuple[int, ...] | None, block: Any, out: Any) -> None:
    """Raises BackendError where `out` cannot take the block that the target gives this rank."""
    if out is None:
        return
    _check(plan.target, "out", rank, shape, out, absent_is_fine=True)
    if not out.flags.writeable:
        raise BackendError("out is read-only; pass an array that can be written")
    if block is not None and np.may_share_memory(block, out):
        raise BackendError("out overlaps the input, which is read while out is written; pass memory of its own")


def _check(
    layout: Layout, what: str, rank: int, shape: tuple[int, ...] | None, block: Any, absent_is_fine: bool
) -> None:
    if shape is None:
        if block is not None:
            raise BackendError(
                f"{what} is {_block(block)}, and {layout} on {layout.mesh} has no block on device {rank}; pass None"
            )
        return
    if block is None and absent_is_fine:
        return
    if not _is_array(block) or block.shape != shape or block.dtype != numpy_dtype(layout.dtype):
        raise BackendError(
            f"{what} is {_block(block)}, and {layout} on {layout.mesh} gives device {rank} a block "
            f"{layout.dtype}{list(shape)}; pass a NumPy array of that shape and dtype"
        )


def _is_array(block: Any) -> TypeGuard[NDArray[Any]]:
    return isinstance(block, np.ndarray)


def _block(block: Any) -> str:
    if _is_array(block):
        try:
            return f"{dtype_name(block.dtype)}{list(block.shape)}"
        except LayoutError:
            return f"{block.dtype}{list(block.shape)}"
    return "None" if block is None else f"a {type(block).__name__}"


def describe(plan: Plan, doing: str) -> str:
    """What is being done, for the message with which all ranks end."""
    return f"{doing} {plan.source} on {plan.source.mesh} to {plan.target} on {plan.target.mesh}"

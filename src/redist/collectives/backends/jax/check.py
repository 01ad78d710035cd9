"""What this backend refuses, and how it says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from redist.collectives.backends.jax.modules import jax
from redist.collectives.steps import Chunk
from redist.collectives.typing import after
from redist.errors import BackendError

if TYPE_CHECKING:
    from redist.collectives.plan import Plan
    from redist.collectives.steps import Step
    from redist.types.layout import Layout

__all__ = ["require_even", "require_one_process", "require_same_order"]


def require_even(plan: Plan) -> None:
    """Raise BackendError naming every dimension whose blocks are not equal, in any layout of the plan."""
    problems: list[str] = []
    for layout in dict.fromkeys((plan.source, *_through(plan.steps, plan.source), plan.target)):
        for i, (dim, count) in enumerate(zip(layout.dims, layout.block_counts(), strict=True)):
            starts, stops = layout.dim_bounds(i)
            if len({*(stops - starts).tolist()}) > 1:
                axes = ",".join(map(str, dim.axes))
                problems.append(
                    f"dimension {i} of {layout} is cut into {count} blocks over {{{axes}}}, which are not equal"
                )
    if problems:
        raise BackendError(
            f"JAX holds blocks of equal size only: {'; '.join(problems)}. Pad the dimension to a multiple, or shard it "
            "over axes whose product divides it"
        )


def _through(steps: Iterable[Step], before: Layout) -> Iterator[Layout]:
    """Every layout that the steps pass through, those inside chunks included."""
    for step in steps:
        if isinstance(step, Chunk):
            yield from _through(step.steps, before)
        before = after(step, before)
        yield before


def require_one_process(plan: Plan) -> None:
    """Raise BackendError where data would go to devices that hold none of the source, across processes."""
    used = {*plan.source.mesh.device_ids, *plan.target.mesh.device_ids}
    elsewhere = sorted({device.process_index for device in jax.devices() if device.id in used} - {jax.process_index()})
    if elsewhere:
        raise BackendError(
            f"the source is on {_listed(plan.source.mesh.device_ids)} and the target on "
            f"{_listed(plan.target.mesh.device_ids)}, some of them of processes {elsewhere}; data goes to other "
            "devices within one process only. Put source and target on the same set of devices, in any order"
        )


def require_same_order(ours: Sequence[int], theirs: Sequence[int]) -> None:
    """Raise BackendError where a traced computation would need two lists of devices."""
    if tuple(ours) != tuple(theirs):
        raise BackendError(
            f"inside jit all arrays live on the same devices in the same order, but the source is on {_listed(ours)} "
            f"and the target on {_listed(theirs)}; call reshard outside jit, or build both meshes from one "
            "list of devices"
        )


def _listed(ids: Sequence[int]) -> str:
    return f"devices [{', '.join(map(str, ids))}]"

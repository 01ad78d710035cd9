"""How each step of a plan runs: packed or by datatypes, chunks one after another or overlapped.

Decided from the plan alone, so that all ranks decide the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from redist.collectives.backends.mpi.program import Method
from redist.collectives.cost import live
from redist.collectives.plan import Plan
from redist.collectives.profile import MPI, BackendProfile
from redist.collectives.steps import AllToAll, Chunk, Step
from redist.errors import InfeasibleError

if TYPE_CHECKING:
    from redist.types.layout import Layout

__all__ = ["Calibration", "Choice", "choose"]

_REDUCING = ("reduce_scatter", "all_reduce")
_BARE = BackendProfile("mpi", MappingProxyType({op: MPI.staging[op] for op in _REDUCING if op in MPI.staging}))
"""What remains of the profile with datatypes."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """From how many bytes per message on datatypes are faster than packing; None: never."""

    datatypes_from: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What the caller asked for; None leaves it open."""

    method: Method | None = None
    overlapped: bool | None = None
    calibration: Calibration | None = None


def choose(plan: Plan, choice: Choice) -> tuple[tuple[Method, ...], tuple[bool, ...]]:
    """(method, whether parts overlap) of each step. Raises InfeasibleError where no method that is allowed
    keeps a step within the plan's memory limit (bytes per device; the source stays the caller's, donated
    or not)."""
    limit = plan.options.memory_limit
    methods: list[Method] = []
    overlapped: list[bool] = []
    smallest = 0
    for n, (step, before) in enumerate(zip(plan.steps, plan.layouts, strict=False)):
        kept = plan.source.block_bytes() if n else 0
        peaks: dict[Method, int] = {
            "packed": kept + live(step, before, MPI).total,
            "datatypes": kept + live(step, before, _BARE).total,
        }
        method = choice.method or _preferred(step, before, choice.calibration or Calibration())
        if choice.method is None and limit is not None and peaks[method] > limit:
            method = min(peaks, key=lambda name: peaks[name])
        smallest = max(smallest, peaks[method] if choice.method else min(peaks.values()))
        again = live(step, before, MPI if method == "packed" else _BARE).staging_bytes
        roomy = limit is not None and peaks[method] + again <= limit
        methods.append(method)
        overlapped.append(isinstance(step, Chunk) and (roomy if choice.overlapped is None else choice.overlapped))
    if limit is not None and smallest > limit:
        raise InfeasibleError(
            f"on MPI the plan from {plan.source} to {plan.target} needs {smallest} bytes per device, and its memory "
            f"limit is {limit}; plan with backend='mpi' and that limit, or with a limit of {smallest} bytes",
            smallest,
        )
    return tuple(methods), tuple(overlapped)


def _preferred(step: Step, before: Layout, calibration: Calibration) -> Method:
    if calibration.datatypes_from is None:
        return "packed"
    match step:
        case AllToAll(moves, _):
            peers = before.mesh.count(map(before.mesh.resolve, (axis for axes, _, _ in moves for axis in axes)))
        case _:
            peers = 1
    return "datatypes" if before.block_bytes() // peers >= calibration.datatypes_from else "packed"

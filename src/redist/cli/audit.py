"""`redist audit`: another planner's plans for all pairs of layouts of a mesh, against the obligations."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from itertools import permutations
from random import Random
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from redist.cli.arguments import AsJson, reading
from redist.cli.failure import FAILED, OK, UsageError
from redist.cli.on_jax import load_jax
from redist.cli.progress import Progress
from redist.errors import BackendError, ParseError
from redist.proofs.audit.examine import ForeignPlanner, examine_pair
from redist.proofs.audit.foreign import ForeignOp, ForeignPlan
from redist.proofs.audit.summary import summarise
from redist.testing import all_layouts
from redist.types import Layout, Mesh

__all__ = ["audit"]

Peer = Literal["shardy", "xla", "dtensor", "dtensor-dijkstra", "redist"]

_MOST_LAYOUTS = 100_000


def audit(
    *,
    peer: Peer,
    mesh: str,
    rank: Annotated[int | None, Parameter(validator=Number(gte=1), show_default=False)] = None,
    shape: Annotated[str | None, Parameter(show_default=False)] = None,
    sample: Annotated[int | None, Parameter(validator=Number(gte=1), show_default=False)] = None,
    seed: int = 0,
    timeout: float = 10.0,
    as_json: AsJson = False,
) -> int:
    """Check another planner's plans: which are wrong, over the memory bound, or receive more than they must.

    Asks for the plan between every ordered pair of layouts of whole axes, in every order, and proves or
    refutes it. Exit status 0 only where none is wrong, failed, undecided or over the bound.

    Parameters
    ----------
    peer
        shardy: the pass in jaxlib. xla: its partitioner's compiled HLO. dtensor: what torch chooses;
        dtensor-dijkstra: its planner of shortest paths. redist: our own plans.
    mesh
        Axes and sizes, major to minor: x=2,y=3,z=5.
    rank
        Dimensions of the array (default: 2, or those of --shape).
    shape
        Sizes by comma, multiples of the number of devices (default: that number in every dimension).
    sample
        Ask for so many pairs, drawn with --seed, instead of all.
    seed
        Which pairs are drawn.
    timeout
        Seconds that each obligation of a plan may take.
    as_json
        Print the figures and all objections as JSON.
    """
    if timeout <= 0:
        raise UsageError(f"--timeout is {timeout:g} seconds; give a number above 0")
    over = reading("--mesh", Mesh.parse, mesh)
    sizes = _sizes(over, rank, shape)
    _require_few(over, len(sizes))
    planner = _PLANNERS[peer](over)
    layouts = all_layouts(over, len(sizes), shape=sizes)
    count = len(layouts) * (len(layouts) - 1)
    drawn = sample is not None and sample < count
    progress = Progress()
    with progress.phase(f"auditing {peer}", sample if drawn and sample else count) as step:
        findings = (step(examine_pair(planner, *pair, timeout)) for pair in _pairs(layouts, sample, seed))
        found = summarise(peer, f"{layouts[0]} on {over}", findings, count, seed if drawn else None)
    print(json.dumps(found.as_json()) if as_json else found)
    return OK if found.clean else FAILED


def _sizes(mesh: Mesh, rank: int | None, shape: str | None) -> list[int]:
    """The global shape. Raises UsageError where it does not fit the rank or has uneven blocks."""
    if shape is None:
        return [mesh.size] * (2 if rank is None else rank)
    sizes = reading("--shape", _integers, shape)
    if rank is not None and rank != len(sizes):
        raise UsageError(f"--shape {shape} has {len(sizes)} dimensions and --rank is {rank}; give one of them")
    uneven = [f"dimension {i} has size {size}" for i, size in enumerate(sizes) if size < 1 or size % mesh.size]
    if uneven:
        fitting = ",".join(str(max(1, -(-size // mesh.size)) * mesh.size) for size in sizes)
        raise UsageError(
            f"--shape {shape}: sizes have to be multiples of the {mesh.size} devices of {mesh}, for peers hold blocks "
            f"of equal size only; {', '.join(uneven)}; {fitting} would do"
        )
    return sizes


def _integers(text: str) -> list[int]:
    sizes: list[int] = []
    column = 0
    for part in text.split(","):
        if not part.strip().isdecimal():
            raise ParseError("expected sizes by comma, such as 64,64", text, column)
        sizes.append(int(part))
        column += len(part) + 1
    return sizes


def _require_few(mesh: Mesh, rank: int) -> None:
    axes = len(mesh.names)
    count = sum(math.perm(axes, k) * math.comb(k + rank - 1, rank - 1) for k in range(axes + 1))
    if count > _MOST_LAYOUTS:
        raise UsageError(
            f"an array of rank {rank} has {count:,} layouts over the {axes} axes of {mesh}, more than "
            f"{_MOST_LAYOUTS:,}; give fewer axes or a lower rank"
        )


def _pairs(layouts: tuple[Layout, ...], sample: int | None, seed: int) -> Iterator[tuple[Layout, Layout]]:
    count = len(layouts) * (len(layouts) - 1)
    if sample is None or sample >= count:
        yield from permutations(layouts, 2)
        return
    for n in sorted(Random(seed).sample(range(count), sample)):
        a, b = divmod(n, len(layouts) - 1)
        yield layouts[a], layouts[b + (b >= a)]


# -- planners ------------------------------------------------------------------------------------------


def _shardy(_: Mesh) -> ForeignPlanner:
    from redist.proofs.audit import shardy

    _require(shardy.missing())
    return shardy.plan_of_shardy


def _xla(mesh: Mesh) -> ForeignPlanner:
    from redist.proofs.audit import xla

    _require(xla.missing())
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA warns of every rematerialisation
    devices = 1 + max(mesh.device_ids)
    jax = load_jax(devices)
    if len(jax.devices()) < devices:
        raise BackendError(
            f"auditing XLA on {mesh} takes {devices} devices and JAX has {len(jax.devices())}; leave XLA_FLAGS unset, "
            f"or set --xla_force_host_platform_device_count={devices} there"
        )

    def plan(source: Layout, target: Layout) -> ForeignPlan:
        try:
            return xla.plan_of_xla(source, target)
        finally:
            jax.clear_caches()  # it keeps every executable, about 1.5 MB each

    return plan


def _dtensor(shortest_path: bool) -> Callable[[Mesh], ForeignPlanner]:
    def make(_: Mesh) -> ForeignPlanner:
        from redist.proofs.audit import dtensor

        _require(dtensor.missing())

        def plan(source: Layout, target: Layout) -> ForeignPlan:
            return dtensor.plan_of_dtensor(source, target, shortest_path)

        return plan

    return make


def _own(_: Mesh) -> ForeignPlanner:
    from redist.collectives.explain import describe
    from redist.synth import synthesize

    def plan(source: Layout, target: Layout) -> ForeignPlan:
        made = synthesize(source, target)
        ops = tuple(ForeignOp(describe(step), describe(step)) for step in made.steps)
        return ForeignPlan("redist", source, target, ops, made.steps, made.layouts[1:])

    return plan


def _require(reason: str | None) -> None:
    if reason is not None:
        raise BackendError(reason)


_PLANNERS: dict[Peer, Callable[[Mesh], ForeignPlanner]] = {
    "shardy": _shardy,
    "xla": _xla,
    "dtensor": _dtensor(False),
    "dtensor-dijkstra": _dtensor(True),
    "redist": _own,
}

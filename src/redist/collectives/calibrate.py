"""Fits a topology to a machine: times single collectives over each mesh axis and solves for what they cost.

The model is that of `topology` and `copies`, linear in what is sought: per axis the latency, the latency per
other participant, the seconds of a byte and of a byte in an all-to-all; for all together the seconds of a
copied byte and of a contiguous run, and what a call takes beside its step. Rows are weighted by 1/time, so
that small and large blocks count alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.copies import Copies, copy_seconds
from redist.collectives.plan import Plan
from redist.collectives.steps import AllGather, AllToAll, Pairs, Permute, Slice, Step
from redist.collectives.topology import Kind, Link, Topology, step_seconds
from redist.errors import BackendError
from redist.types.digits import prime_factors
from redist.types.layout import Layout
from redist.types.mesh import Mesh, SubAxis

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Experiment", "Measured", "calibrate", "clock", "experiments", "fit", "timed"]

Prepare = Callable[[Plan], Callable[[], float]]
"""Makes a plan ready to run; each call runs it once and returns its seconds (of the slowest process)."""

_BLOCKS = (1 << 14, 1 << 19, 1 << 22)
"""Bytes of the largest block of an experiment."""

_NARROW = 16
"""Elements along dimension 1 of a narrow piece: short runs show what each of them costs."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One step over `group` devices along an axis, on blocks of f32."""

    axis: str
    group: int
    plan: Plan

    @property
    def step(self) -> Step:
        """The step that is timed."""
        return self.plan.steps[0]


@dataclass(frozen=True, slots=True)
class Measured:
    """The topology, the seconds that a call takes beside its steps, and per experiment the seconds measured
    and those projected (the call's among them)."""

    topology: Topology
    call_seconds: float
    experiments: tuple[Experiment, ...]
    seconds: tuple[float, ...]
    projected: tuple[float, ...]

    @property
    def error(self) -> float:
        """Median over experiments of |projected/measured - 1|."""
        return median(abs(p / s - 1) for p, s in zip(self.projected, self.seconds, strict=True))


def calibrate(mesh: Mesh, prepare: Prepare, kinds: dict[str, Kind], name: str, rounds: int = 9) -> Measured:
    """Time the experiments of a mesh and fit a topology. `kinds` says how devices along each axis are joined.

    Raises BackendError for a mesh of one device, which has no links.
    """
    planned = tuple(experiments(mesh))
    if not planned:
        raise BackendError(f"mesh {mesh} has one device, and no links to measure; name a mesh of several")
    seconds = timed([prepare(one.plan) for one in planned], rounds)
    topology, call = fit(planned, seconds, kinds, name)
    projected = tuple(call + step_seconds(one.step, one.plan.source, topology) for one in planned)
    return Measured(topology, call, planned, tuple(seconds), projected)


def timed(runs: Sequence[Callable[[], float]], rounds: int) -> list[float]:
    """Median seconds of each, in turns; each runs once before that."""
    for run in runs:
        run()
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, times in zip(runs, found, strict=True):
            times.append(run())
    return [median(times) for times in found]


def clock(run: Callable[[], Any]) -> Callable[[], float]:
    """The run as a call that returns its seconds."""

    def once() -> float:
        started = perf_counter()
        run()
        return perf_counter() - started

    return once


def experiments(mesh: Mesh) -> Iterator[Experiment]:
    """Permutes, gathers, all-to-alls and slices over every axis and over parts of composite ones."""
    for axis, total in mesh.axes:
        for group in _groups(total):
            part = mesh.resolve(SubAxis(axis, total // group, group))
            for size in _BLOCKS:
                yield from (Experiment(axis, group, plan) for plan in _plans(mesh, part, group, size // 4))


def _groups(total: int) -> list[int]:
    """A prime part of the axis, a part of middle size, and the whole."""
    primes = prime_factors(total)
    if not primes:
        return []
    middle = math.prod(primes[: (len(primes) + 1) // 2])
    return sorted({primes[0], middle, total})


def _plans(mesh: Mesh, part: SubAxis, group: int, elements: int) -> Iterator[Plan]:
    """Blocks of up to so many elements, wide and narrow along dimension 1."""
    wide = 1 << (elements.bit_length() // 2)
    for width in (wide, _NARROW):
        shape = (max(1, elements // (width * group)) * group, width * group)

        def layout(*axes: Sequence[SubAxis], shape: tuple[int, int] = shape) -> Layout:
            return Layout(mesh, shape, axes, "f32")

        rows, columns, whole = layout([part], []), layout([], [part]), layout([], [])
        yield Plan(rows, whole, (AllGather({0: [part]}),))
        yield Plan(columns, whole, (AllGather({1: [part]}),))
        yield Plan(rows, columns, (AllToAll([([part], 0, 1)]),))
        yield Plan(columns, rows, (AllToAll([([part], 1, 0)]),))
        yield Plan(whole, columns, (Slice({1: [part]}),))
        if width == wide:
            yield Plan(whole, whole, (Permute(whole, _rotation(mesh, part)),))


def _rotation(mesh: Mesh, part: SubAxis) -> Pairs:
    """Every device sends to the next one along the axis."""
    stride, size = mesh.digit(part)
    where = np.arange(mesh.size)
    following = where + np.where(where // stride % size == size - 1, -(size - 1), 1) * stride
    ids = mesh.id_array()
    return Pairs(tuple(zip(ids[where].tolist(), ids[following].tolist(), strict=True)))


def fit(
    planned: Sequence[Experiment], seconds: Sequence[float], kinds: dict[str, Kind], name: str = "calibrated"
) -> tuple[Topology, float]:
    """(the topology, seconds per call) whose projections come nearest to the seconds, in the sense of least
    squares of relative errors, with nothing negative. Raises BackendError where SciPy is not installed."""
    try:
        solver: Any = import_module("scipy.optimize")
    except ImportError as error:
        raise BackendError(
            f"calibration solves with SciPy, which is not installed ({error}); pip install scipy"
        ) from None
    axes = sorted({one.axis for one in planned})
    rows = np.asarray([_row(one, axes, kinds) for one in planned])
    found = _solved(solver.nnls, rows / np.asarray(seconds)[:, None])
    copy, run, call = found[-3:]
    links: dict[str, Link] = {}
    for n, axis in enumerate(axes):
        latency, peer, byte, exchanged = found[n * 4 : n * 4 + 4]
        byte = byte or exchanged or 1e-15
        slowdown = exchanged / byte if exchanged else 1.0
        links[axis] = Link(latency, 1 / byte, kinds[axis], peer, slowdown)
    fastest = max(links.values(), key=lambda link: link.bandwidth)
    return Topology(name, links, fastest, Copies(1 / copy if copy else math.inf, run)), call


def _solved(nnls: Any, weighted: NDArray[np.float64]) -> list[float]:
    """Non-negative least squares for a right side of ones, with columns brought to one scale."""
    scale = np.abs(weighted).max(axis=0)
    scale[scale == 0] = 1.0
    solution, _ = nnls(weighted / scale, np.ones(len(weighted)))
    return [float(x) for x in solution / scale]


def _row(one: Experiment, axes: Sequence[str], kinds: dict[str, Kind]) -> list[float]:
    """What the step takes of each unknown."""
    step, before, group = one.step, one.plan.source, one.group
    kind = kinds[one.axis]
    crossing = 1 - 1 / group
    kept = 1 / group if kind == "memory" else 0.0
    latency, peers, moved, exchanged = 1.0, group - 1.0, 0.0, 0.0
    match step:
        case AllGather():
            moved = one.plan.target.block_bytes() * (crossing + kept)
        case AllToAll():
            moved = before.block_bytes() * kept
            exchanged = before.block_bytes() * crossing * Link(kind=kind).exchange_factor(group)
        case Permute():
            peers, moved = 1.0, float(before.block_bytes())
        case _:
            latency, peers = 0.0, 0.0
    row = [0.0] * (4 * len(axes))
    at = 4 * axes.index(one.axis)
    row[at : at + 4] = latency, peers, moved, exchanged
    copied, runs = (copy_seconds(step, before, unit) for unit in (Copies(1.0, 0.0), Copies(math.inf, 1.0)))
    return [*row, copied, runs, 1.0]

"""Which of packing and datatypes is faster on the machine at hand."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from redist.collectives.backends.mpi.choice import Calibration
from redist.collectives.backends.mpi.program import Method
from redist.collectives.backends.mpi.runtime import mpi
from redist.collectives.backends.mpi.transfer import Transfer
from redist.collectives.plan import Plan
from redist.collectives.steps import AllToAll
from redist.types.layout import Layout
from redist.types.mesh import Mesh

__all__ = ["calibrate"]

_SIZES = tuple(2**n for n in range(12, 23, 2))


def calibrate(comm: Any, sizes: tuple[int, ...] = _SIZES, rounds: int = 9) -> Calibration:
    """Time an all-to-all of blocks that are cut into columns, with messages of these sizes in bytes, both
    ways in turns; collective. The result says from which size on datatypes win at that and every larger
    size, by the medians of the slowest rank, and is the same on all ranks.

    Sizes are rounded to squares of 8-byte elements. Takes a second or so at the default sizes.
    """
    ranks = comm.Get_size()
    wins: list[tuple[int, bool]] = []
    mesh = Mesh({"rank": ranks})
    for size in sorted(sizes) if ranks > 1 else ():
        side = max(1, round((size / 8) ** 0.5)) * ranks
        source, target = (
            Layout(mesh, (side, side), [["rank"], []], "f64"),
            Layout(mesh, (side, side), [[], ["rank"]], "f64"),
        )
        plan = Plan(source, target, (AllToAll([(["rank"], 0, 1)]),))
        seconds = _race(plan, comm, rounds)
        wins.append((size, seconds["datatypes"] < seconds["packed"]))
    losing = [n for n, (_, won) in enumerate(wins) if not won]
    rest = wins[losing[-1] + 1 :] if losing else wins
    return Calibration(rest[0][0] if rest else None)


def _race(plan: Plan, comm: Any, rounds: int) -> dict[Method, float]:
    methods: tuple[Method, ...] = ("packed", "datatypes")
    transfers = {method: Transfer(plan, comm, method=method) for method in methods}
    given = np.zeros(plan.source.block_shape())
    made = np.zeros(plan.target.block_shape())
    bound = {method: transfer.bind(given, made) for method, transfer in transfers.items()}
    seconds: dict[Method, list[float]] = {method: [] for method in methods}
    for n in range(rounds + 1):
        for method in methods:
            comm.Barrier()
            started = perf_counter()
            bound[method]()
            taken = comm.allreduce(perf_counter() - started, op=mpi().MAX)
            if n:
                seconds[method].append(taken)
    for transfer in transfers.values():
        transfer.close()
    return {method: median(seconds[method]) for method in methods}

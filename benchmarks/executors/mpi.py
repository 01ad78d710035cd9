"""Timings on MPI, on every rank of one launch: redist's transfer and transfers by hand, side by side.

Run as `mpiexec -n N python -m benchmarks.executors.mpi JOB.json`; rank 0 prints one record per problem. All
contestants get the same block, are checked against NumPy's slice of the global array once, and then take
turns in balanced orders. A round's time is that of the slowest rank. Two contestants are what an
application would write by hand for a transposition in a group: Alltoallw with subarray datatypes, and pack,
Alltoall, unpack. mpi4py-fft does the former, where it is installed. The last gathers everything everywhere and slices.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.executors.jax import balanced_orders
from benchmarks.problems import Problem
from redist.types import Layout, Mesh
from redist.types.dtypes import numpy_dtype

__all__ = ["AGREEING", "BY_HAND", "CONTESTANTS", "CONTROL", "FFT", "GATHERING", "OWN", "race"]

OWN, AGREEING, GATHERING, CONTROL = "redist", "redist-agreeing", "allgather-slice", "control-nothing"
FFT = "mpi4py-fft"
BY_HAND = ("alltoallw", "pack-alltoall", FFT)

Call = Callable[[], Any]
"""Redistributes this rank's block; returns this rank's block of the target."""

Built = tuple[Call, int]
"""A call, and the bytes that this rank has in use at most, its block and the result among them."""

_SAMPLE_SECONDS = 0.005


def _moved(source: Layout, target: Layout) -> tuple[int, int] | None:
    """(dimension that is joined, dimension that is cut) where the move is a transposition in groups, evenly."""
    counts = list(zip(source.block_counts(), target.block_counts(), strict=True))
    joined = [i for i, (a, b) in enumerate(counts) if a > b]
    cut = [i for i, (a, b) in enumerate(counts) if b > a]
    even = source.is_even() and target.is_even() and source.mesh == target.mesh
    if not even or len(joined) != 1 or len(cut) != 1:
        return None
    before, after = source.dims[joined[0]].axes, target.dims[joined[0]].axes
    gone = before[len(after) :]
    added = target.dims[cut[0]].axes[len(source.dims[cut[0]].axes) :]
    return (joined[0], cut[0]) if before[: len(after)] == after and gone == added else None


def _group(problem: Problem, comm: Any) -> tuple[Any, int, int]:
    """(communicator of the group that transposes, joined dimension, cut dimension)."""
    source, target = problem.source, problem.target
    moved = _moved(source, target)
    if moved is None:
        raise ValueError("not a transposition in groups")
    axes = source.dims[moved[0]].axes[len(target.dims[moved[0]].axes) :]
    place = int(source.mesh.index(axes)[comm.rank])
    rest = comm.rank - sum(int(source.mesh.index([axis])[comm.rank]) * source.mesh.digit(axis)[0] for axis in axes)
    return comm.Split(rest, place), *moved


def _alltoallw(problem: Problem, comm: Any, given: Any) -> Built:
    from mpi4py import MPI

    group, joined, cut = _group(problem, comm)
    made = np.empty(problem.target.block_shape(), given.dtype)
    element = MPI.BYTE.Create_contiguous(given.itemsize)

    def types(shape: tuple[int, ...], dim: int) -> list[Any]:
        part = shape[dim] // group.size
        lengths = [*shape[:dim], part, *shape[dim + 1 :]]
        starts = [[0] * dim + [m * part] + [0] * (len(shape) - dim - 1) for m in range(group.size)]
        return [element.Create_subarray(shape, lengths, start).Commit() for start in starts]

    ones, zeros = [1] * group.size, [0] * group.size
    sent, received = types(given.shape, cut), types(made.shape, joined)

    def call() -> Any:
        group.Alltoallw([given, ones, zeros, sent], [made, ones, zeros, received])
        return made

    return call, given.nbytes + made.nbytes


def _pack_alltoall(problem: Problem, comm: Any, given: Any) -> Built:
    group, joined, cut = _group(problem, comm)
    made = np.empty(problem.target.block_shape(), given.dtype)
    p = group.size
    split = (*given.shape[:cut], p, given.shape[cut] // p, *given.shape[cut + 1 :])
    apart = np.moveaxis(given.reshape(split), cut, 0)
    packed = np.empty(apart.shape, given.dtype)
    together = (*made.shape[:joined], p, made.shape[joined] // p, *made.shape[joined + 1 :])
    places = np.moveaxis(made.reshape(together), joined, 0)
    direct = places.flags.c_contiguous
    arrived = made if direct else np.empty(places.shape, given.dtype)

    def call() -> Any:
        np.copyto(packed, apart)
        group.Alltoall(packed, arrived)
        if not direct:
            np.copyto(places, arrived)
        return made

    return call, given.nbytes + made.nbytes + packed.nbytes + (0 if direct else arrived.nbytes)


def _fft(problem: Problem, comm: Any, given: Any) -> Built:
    from mpi4py_fft.pencil import Transfer as PencilTransfer

    group, joined, cut = _group(problem, comm)
    made = np.empty(problem.target.block_shape(), given.dtype)
    shape = [max(a, b) for a, b in zip(given.shape, made.shape, strict=True)]
    transfer = PencilTransfer(group, shape, given.dtype, given.shape, cut, made.shape, joined)

    def call() -> Any:
        transfer.forward(given, made)
        return made

    return call, given.nbytes + made.nbytes


def _allgather(problem: Problem, comm: Any, given: Any) -> Built:
    source, target = problem.source, problem.target
    gathered = np.empty((comm.size, *given.shape), given.dtype)
    whole = np.empty(source.shape, given.dtype)
    places = [source.box(rank) for rank in range(comm.size)]
    mine = target.box(comm.rank)

    def call() -> Any:
        comm.Allgather(given, gathered)
        for place, block in zip(places, gathered, strict=True):
            whole[place] = block
        return np.ascontiguousarray(whole[mine])

    return call, given.nbytes + gathered.nbytes + whole.nbytes + whole[mine].nbytes


def _bound(problem: Problem, comm: Any, given: Any) -> Built:
    transfer = _transfer(problem, comm)
    return transfer.bind(given), transfer.peak_bytes


def _agreeing(problem: Problem, comm: Any, given: Any) -> Built:
    transfer = _transfer(problem, comm)
    made = np.empty(problem.target.block_shape(), given.dtype)
    return (lambda: transfer(given, made)), transfer.peak_bytes


def _transfer(problem: Problem, comm: Any) -> Any:
    import redist

    return redist.mpi.Transfer(redist.synthesize(problem.source, problem.target, backend="mpi"), comm)


CONTESTANTS: dict[str, Callable[[Problem, Any, Any], Built]] = {
    OWN: _bound,
    AGREEING: _agreeing,
    "alltoallw": _alltoallw,
    "pack-alltoall": _pack_alltoall,
    FFT: _fft,
    GATHERING: _allgather,
    CONTROL: lambda _, __, given: ((lambda: given), given.nbytes),
}
"""`redist` has its blocks bound once, as those by hand have theirs; `redist-agreeing` takes any blocks at every
call, and ranks agree on them each time. `control-nothing` hands back its input and must be found wrong."""


def race(problem: Problem, comm: Any, rounds: int, seed: int) -> dict[str, Any]:
    """One record: per contestant the seconds of each round, and what is wrong with its result."""
    source, target = problem.source, problem.target
    kind = numpy_dtype(source.dtype)
    size = math.prod(source.shape)
    value = (np.arange(size, dtype=np.int64) % 2**24).astype(kind).reshape(source.shape)
    given = np.ascontiguousarray(value[source.box(comm.rank)])
    wanted = np.ascontiguousarray(value[target.box(comm.rank)])
    del value
    calls: dict[str, Call] = {}
    wrong: dict[str, str] = {}
    stated: dict[str, int] = {}
    for name, build in CONTESTANTS.items():
        found = ""
        try:
            calls[name], peak = build(problem, comm, given)
            stated[name] = max(comm.allgather(peak))
            if not np.array_equal(calls[name](), wanted):
                found = f"rank {comm.rank} holds a wrong block"
        except (ImportError, ValueError) as error:  # it is not here, or this is not its case
            found = f"{type(error).__name__}: {error}"
        faults = [text for text in comm.allgather(found) if text]
        if faults:
            wrong[name] = faults[0]
            calls.pop(name, None)
    seconds = _rounds(calls, comm, rounds, Random(f"{seed}/{problem.key}"))
    return {
        "record": "mpi",
        "family": problem.family,
        "problem": problem.key,
        "who": "race",
        "bytes": size * source.itemsize,
        "seconds": seconds,
        "wrong": wrong,
        "stated": stated,
    }


def _rounds(calls: dict[str, Call], comm: Any, rounds: int, rng: Random) -> dict[str, list[float]]:
    once = {name: min(_timed(call, comm, 1) for _ in range(2)) for name, call in calls.items()}
    fastest = min(once.values(), default=1.0)
    repeats = comm.bcast(max(1, min(50, math.ceil(_SAMPLE_SECONDS / max(fastest, 1e-6)))))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    orders: list[list[str]] = []
    for _ in range(rounds):
        orders = orders or balanced_orders(list(calls), rng)
        for name in orders.pop():
            seconds[name].append(_timed(calls[name], comm, repeats))
    return seconds


def _timed(call: Call, comm: Any, repeats: int) -> float:
    """Seconds per call of the slowest rank."""
    comm.Barrier()
    started = perf_counter()
    for _ in range(repeats):
        call()
    return max(comm.allgather((perf_counter() - started) / repeats))


def main() -> None:
    """What each rank runs."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    job = json.loads(Path(sys.argv[1]).read_text())
    for row in job["problems"]:
        mesh = Mesh.parse(row["mesh"])
        source, target = Layout.parse(row["source"], mesh), Layout.parse(row["target"], mesh)
        record = race(Problem(row["family"], row["key"], source, target), comm, job["rounds"], job["seed"])
        if comm.rank == 0:
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()

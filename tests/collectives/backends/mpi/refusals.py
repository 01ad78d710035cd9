"""What must not run, and what fails while it runs: `mpiexec -n N python refusals.py SCENARIO`.

Rank 0 prints, per case, the error that each rank raised.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.collectives.backends.mpi import calls
from redist.collectives.plan import Plan
from redist.collectives.steps import AllReduce, AllToAll, Exchange, Slice
from redist.errors import RedistError

WORLD = MPI.COMM_WORLD
RANK = WORLD.rank


def plan(mesh: str, source: str, target: str, **options: Any) -> Plan:
    axes = redist.Mesh.parse(mesh)
    return redist.synthesize(
        redist.Layout.parse(source, axes), redist.Layout.parse(target, axes), backend="mpi", **options
    )


def raised(call: Callable[[], Any]) -> str:
    try:
        call()
    except RedistError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def everywhere(call: Callable[[], Any]) -> list[str]:
    """What each rank raised; equal texts once, with the number of ranks."""
    return WORLD.allgather(raised(call))


ROWS = plan("x=4", "f32[8{x}, 8]", "f32[8, 8{x}]")


def block() -> Any:
    return np.arange(16, dtype=np.float32).reshape(2, 8)


def shapes() -> Any:
    given = {1: np.zeros((3, 8), np.float32), 2: np.zeros((2, 8), np.float64), 3: [1.0, 2.0]}.get(RANK, block())
    kept = np.array(given)
    found = [everywhere(lambda: redist.mpi.redistribute(given, ROWS, WORLD))]
    assert everywhere(lambda: redist.mpi.redistribute(block(), ROWS, WORLD)) == ["nothing"] * 4  # and goes on
    for when in ("along", "before", "never"):
        with redist.mpi.Transfer(ROWS, WORLD, agree=when) as transfer:
            if when != "never":
                found.append(everywhere(lambda: transfer(given)))
            found.append(everywhere(lambda: transfer.bind(given)))
            assert everywhere(lambda: transfer(block())) == ["nothing"] * 4
            assert everywhere(transfer.bind(block())) == ["nothing"] * 4
    assert (np.array(given) == kept).all()
    return found


def absent() -> Any:
    two = plan("x=2", "f32[8{x}, 8]", "f32[8, 8{x}]")
    given = None if RANK == 1 else np.zeros((4, 8), np.float32)
    return everywhere(lambda: redist.mpi.redistribute(given, two, WORLD))


def outputs() -> Any:
    given, out = block(), np.zeros((8, 2), np.float32)
    if RANK == 0:
        out.flags.writeable = False
    if RANK == 1:
        out = given.reshape(8, 2)
    if RANK == 2:
        out = np.zeros((2, 8), np.float32)
    kept = given.copy()
    found = [everywhere(lambda: redist.mpi.redistribute(given, ROWS, WORLD, out))]
    with redist.mpi.Transfer(ROWS, WORLD) as transfer:
        found.append(everywhere(lambda: transfer.bind(given, out)))
    assert (given == kept).all()
    return found


def too_few() -> Any:
    return everywhere(lambda: redist.mpi.Transfer(plan("x=6", "f32[6{x}]", "f32[6]"), WORLD))


def no_communicator() -> Any:
    given = [None, MPI.COMM_NULL, 3, WORLD.Create_group(WORLD.group)][RANK]
    return everywhere(lambda: redist.mpi.redistribute(block(), ROWS, given if RANK < 3 else MPI.COMM_NULL))


def other_plans() -> Any:
    other = plan("x=4", "f32[8{x}, 8]", "f32[8, 8]")
    return everywhere(lambda: redist.mpi.redistribute(block(), other if RANK == 2 else ROWS, WORLD))


def ill_typed() -> Any:
    wrong = Plan(ROWS.source, ROWS.target, (Slice({2: ["x"]}),))
    return everywhere(lambda: redist.mpi.redistribute(block(), wrong, WORLD))


def elsewhere() -> Any:
    wrong = Plan(ROWS.source, ROWS.target, ())
    return everywhere(lambda: redist.mpi.redistribute(block(), wrong, WORLD))


def irreducible() -> Any:
    axes = redist.Mesh.parse("x=4")
    source, target = redist.Layout.parse("'M8[s]'[8] sum{x}", axes), redist.Layout.parse("'M8[s]'[8]", axes)
    times = np.zeros(8, "M8[s]")
    return everywhere(lambda: redist.mpi.redistribute(times, Plan(source, target, (AllReduce(["x"]),)), WORLD))


def limits() -> Any:
    axes = redist.Mesh.parse("x=4")
    source, target = redist.Layout.parse("f32[8{x}, 8]", axes), redist.Layout.parse("f32[8, 8{x}]", axes)
    small = Plan(source, target, (AllToAll([(["x"], 0, 1)]),))
    found = everywhere(lambda: redist.mpi.Transfer(_limited(small, 127), WORLD))
    with redist.mpi.Transfer(_limited(small, 128), WORLD) as transfer:
        transfer(block())
        return [*found, transfer.methods]


def _limited(given: Plan, limit: int) -> Plan:
    return replace(given, options=replace(given.options, memory_limit=limit))


def allocation() -> Any:
    big = plan("x=4", "f32[8192{x}, 8192]", "f32[8192, 8192{x}]")
    given = np.ones((2048, 8192), np.float32)
    transfer = redist.mpi.Transfer(big, WORLD)
    before = resource.getrlimit(resource.RLIMIT_AS)
    if RANK == 2:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**24, before[1]))
    found = [
        everywhere(lambda: transfer(given)),
        everywhere(lambda: transfer.bind(given)),
        everywhere(lambda: redist.mpi.Transfer(big, WORLD)),
    ]
    resource.setrlimit(resource.RLIMIT_AS, before)
    assert (given == 1).all()
    assert everywhere(lambda: transfer(given)) == ["nothing"] * 4
    transfer.close()
    return found


def misuse() -> Any:
    found = []
    transfer = redist.mpi.Transfer(ROWS, WORLD)
    found.append(everywhere(transfer.wait))
    transfer.start(block())
    found.append(everywhere(lambda: transfer.start(block())))
    transfer.wait()
    bound = transfer.bind(block())
    bound.start()
    found.append(everywhere(bound.start))
    bound.wait()
    found.append(everywhere(bound.wait))
    transfer.close()
    transfer.close()
    found.append(everywhere(lambda: transfer(block())))
    found.append(everywhere(lambda: transfer.bind(block())))
    found.append(everywhere(bound))
    return found


def _moved() -> None:
    redist.mpi.redistribute(block(), TWO_STEPS, WORLD)


TWO_STEPS = Plan(
    ROWS.source,
    ROWS.source,
    (Exchange(ROWS.target), Exchange(ROWS.source)),
)


def _failing_on_rank(rank: int, act: Callable[[], None]) -> None:
    """The second move of that rank does something else."""
    move, count = calls.move, 0

    def moved(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2 and rank == RANK:
            sys.stderr.write(f"failing at {time.time()}\n")
            sys.stderr.flush()
            act()
        return move(*arguments)

    calls.move = moved


def broken() -> Any:
    def fail() -> None:
        raise RuntimeError("the wire is cut")

    _failing_on_rank(1, fail)
    _moved()
    return "went on"


def killed() -> Any:
    _failing_on_rank(1, lambda: os.kill(os.getpid(), signal.SIGKILL))
    _moved()
    return "went on"


def interrupted() -> Any:
    _failing_on_rank(3, lambda: os.kill(os.getpid(), signal.SIGINT))
    _moved()
    return "went on"


def unchecked() -> Any:
    """Without the agreement, what is wrong on one rank ends all."""
    with redist.mpi.Transfer(ROWS, WORLD, agree="never") as transfer:
        transfer(block())
        sys.stderr.write(f"failing at {time.time()}\n")
        transfer(block()[:1] if RANK == 1 else block())
    return "went on"


if __name__ == "__main__":
    results = {name: globals()[name]() for name in sys.argv[1:]}
    if RANK == 0:
        print(json.dumps(results))

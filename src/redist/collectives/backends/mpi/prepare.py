"""What happens once per plan and communicator: checks, the rank's program, its memory, and an agreement."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.collectives.backends.mpi.agreement import agree
from redist.collectives.backends.mpi.arena import Arena
from redist.collectives.backends.mpi.check import check_plan
from redist.collectives.backends.mpi.choice import Choice, choose
from redist.collectives.backends.mpi.program import Method, Program, compile_program
from redist.collectives.backends.mpi.runtime import mpi
from redist.collectives.plan import Plan
from redist.errors import BackendError

__all__ = ["Prepared", "intracommunicator", "prepare"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A rank's program, how each step runs, and reserved memory: `spare` stands in for blocks that the
    caller should have passed and did not."""

    program: Program
    methods: tuple[Method, ...]
    overlapped: tuple[bool, ...]
    arena: Arena
    spare: Arena


def intracommunicator(comm: Any) -> Any:
    """The communicator. Raises BackendError for anything else, on this rank alone: there is none to agree over."""
    needed = ("Dup", "Split", "Get_attr", "Ialltoallv", "Is_inter")
    if any(not hasattr(comm, name) for name in needed) or comm == mpi().COMM_NULL or comm.Is_inter():
        raise BackendError(f"{comm!r} is not an intracommunicator; pass one of mpi4py, such as MPI.COMM_WORLD")
    return comm


def prepare(plan: Plan, base: Any, choice: Choice, others: str, also: Callable[[Program], None]) -> Prepared:
    """Compile and reserve, and call `also` with the program; collective. What is raised meanwhile on some
    rank is raised on all, and so is BackendError where ranks hold different plans, choices or `others`."""
    error: Exception | None = None
    made: Prepared | None = None
    chosen = None
    try:
        check_plan(plan, base.size)
        chosen = choose(plan, choice)
        program = compile_program(plan, base.rank, *chosen)
        made = Prepared(program, *chosen, Arena(program.arena_bytes), Arena(program.block_bytes))
        also(program)
    except Exception as raised:
        error = raised
    _same_everywhere(base, f"{plan.to_json()}{chosen}{others}", error is not None)
    agree(base, error)
    assert made is not None
    return made


def _same_everywhere(base: Any, text: str, failed: bool) -> None:
    mark = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])
    ends = np.asarray([mark, -mark, failed], dtype=np.int64)
    base.Allreduce(mpi().IN_PLACE, ends, op=mpi().MAX)
    if ends[2] or ends[0] == -ends[1]:
        return
    marks = base.allgather(mark)
    others = [rank for rank, other in enumerate(marks) if other != marks[0]]
    raise BackendError(
        f"ranks {others} have another plan or other options than rank 0; give all ranks the same plan, for instance "
        "by broadcasting plan.to_json()"
    )

"""One agreement among ranks before anything moves: all go on, or all raise the same error."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from redist import errors
from redist.collectives.backends.mpi.runtime import mpi
from redist.errors import BackendError, RedistError

__all__ = ["Agreement", "RefusalError", "Together", "abort", "agree", "fail"]


_NOTHING_DONE = "nothing has been redistributed, and all inputs are as they were. "
_FEW = 32
"""Up to so many ranks, each tells all others: one round of messages instead of a tree of them."""


class RefusalError(Exception):
    """What ranks agreed not to do; `error` is the same on all of them."""

    def __init__(self, error: RedistError) -> None:
        super().__init__(str(error))
        self.error = error


class Agreement:
    """Under way from construction on; `settle` ends it. All ranks of the communicator take part."""

    def __init__(self, comm: Any, error: Exception | None) -> None:
        self._comm, self._error = comm, error
        few = comm.size <= _FEW
        self._mine = np.full(comm.size if few else 1, error is not None, dtype=np.uint8)
        self._theirs = np.zeros_like(self._mine)
        self.request: Any = (
            comm.Ialltoall(self._mine, self._theirs) if few else comm.Iallreduce(self._mine, self._theirs, op=mpi().MAX)
        )

    def settle(self, about: str = _NOTHING_DONE) -> None:
        """Return where no rank has an error. Raises RefusalError, on every rank, where one has."""
        self.request.Wait()
        if self._theirs.any():
            raise RefusalError(_combined(self._comm, self._error, about))


def agree(comm: Any, error: Exception | None, about: str = _NOTHING_DONE) -> None:
    """Return where no rank has an error; else raise the same on every rank. `about` begins the message
    where ranks differ."""
    try:
        Agreement(comm, error).settle(about)
    except RefusalError as refused:
        raise refused.error from None


@dataclass(frozen=True, slots=True)
class Together:
    """What ranks refuse inside is raised as it is, on all of them; anything else ends all of them, with a message
    that says what they were `doing`."""

    comm: Any
    doing: Callable[[], str]

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            fail(self.comm, error, self.doing)


def fail(comm: Any, error: BaseException, doing: Callable[[], str]) -> NoReturn:
    """From the handler of an exception: raise what ranks refused, end all of them for anything else."""
    if isinstance(error, RefusalError):
        raise error.error from None
    abort(comm, doing())


def _combined(comm: Any, error: Exception | None, about: str) -> RedistError:
    """Texts are exchanged, not errors, which need not survive the journey."""
    mine = None if error is None else (type(error).__name__, str(error))
    all_of_them: list[tuple[str, str] | None] = comm.allgather(mine)
    if isinstance(error, RedistError) and all(other == mine for other in all_of_them):
        return error
    ranks: dict[str, list[int]] = {}
    for rank, other in enumerate(all_of_them):
        if other is not None:
            kind, text = other
            known = getattr(errors, kind, None) is not None
            ranks.setdefault(text if known else f"{kind}: {text}", []).append(rank)
    listed = "; ".join(f"{_ranks(where)}: {text}" for text, where in ranks.items())
    return BackendError(f"{about}{listed}")


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def abort(comm: Any, doing: str) -> NoReturn:
    """End all processes of the communicator, from the handler of an exception.

    Other ranks wait for this one's data and would do so forever.
    """
    kind, error, _ = sys.exc_info()
    traceback.print_exc()
    name = kind.__name__ if kind else "error"
    sys.stderr.write(f"redist: rank {comm.rank} failed while {doing}: {name}: {error}; aborting all ranks\n")
    sys.stderr.flush()
    comm.Abort(1)
    raise AssertionError("MPI_Abort has returned")

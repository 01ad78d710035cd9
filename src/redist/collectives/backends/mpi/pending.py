"""An execution that is under way, with the agreement that goes along with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from redist.collectives.backends.mpi.agreement import Agreement, Together
from redist.collectives.backends.mpi.execute import Run
from redist.collectives.backends.mpi.runtime import mpi

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Pending"]


class Pending:
    """Under way from construction on, when its first communication begins; `finish` ends it.

    What fails later on ends all ranks, which wait for this one's data, with a message that says what it was
    `doing`.
    """

    def __init__(
        self, run: Run, made: NDArray[Any] | None, agreement: Agreement | None, doing: Callable[[], str]
    ) -> None:
        self.made = made
        self._run, self._agreement, self._doing = run, agreement, doing
        self._steps = run.steps()
        self._waits_for: tuple[Any, ...] | None = next(self._steps, None)
        if agreement is not None:
            self._waits_for = (*(self._waits_for or ()), agreement.request)

    def test(self) -> bool:
        """Go on as far as possible without waiting; whether all is done."""
        with Together(self._run.base, self._doing):
            while self._waits_for is not None:
                if not mpi().Request.Testall(list(self._waits_for)):
                    return False
                self._waits_for = next(self._steps, None)
        return True

    def post_all(self) -> None:
        """Wait until all communication has begun: what is communicated after it then is so on all ranks."""
        with Together(self._run.base, self._doing):
            stages = self._run.program.communicating
            while self._waits_for is not None and self._run.posted < stages:
                self._wait()

    def finish(self) -> None:
        """Wait for the end. Raises, on all ranks, what one has found wrong."""
        with Together(self._run.base, self._doing):
            while self._waits_for is not None:
                self._wait()
            if self._agreement is not None:
                self._agreement.settle()

    def _wait(self) -> None:
        mpi().Request.Waitall(list(self._waits_for or ()))
        self._waits_for = next(self._steps, None)

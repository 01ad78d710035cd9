"""A transfer on blocks that stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.collectives.backends.mpi.transfer import Transfer

__all__ = ["Bound"]


class Bound:
    """A transfer on blocks that stay the same, as `Transfer.bind` makes it. Ranks have agreed on them, so that
    running it makes only ranks wait for each other that exchange data, and all that can be prepared is.

    What the blocks hold is read and written anew each time. Running, `start` and `wait` are collective like the
    transfer's, of which one execution is under way at a time. Ends with the transfer.
    """

    def __init__(
        self,
        transfer: Transfer,
        begin: Callable[[], None],
        through: Callable[[], None] | None,
        out: NDArray[Any] | None,
    ) -> None:
        self._transfer, self._begin, self._through = transfer, begin, through
        self.out = out
        """This rank's block of the target; None where it has none."""

    def __call__(self) -> NDArray[Any] | None:
        """Run the plan; returns `out`. Raises BackendError where the transfer is closed or under way: without
        asking other ranks, which raise the same if they run the same program."""
        if self._through is not None:  # in small groups the bookkeeping of `start` and `wait` takes as long as the data
            self._through()
            return self.out
        self._begin()
        return self._transfer.wait()

    def start(self) -> None:
        """Begin: when this returns, the first communication is under way. Raises as running does."""
        self._begin()

    def test(self) -> bool:
        """Go on as far as possible without waiting; whether all is done, and `wait` returns at once."""
        return self._transfer.test()

    def wait(self) -> NDArray[Any] | None:
        """Finish what `start` began; returns `out`. Raises BackendError where nothing has been started."""
        return self._transfer.wait()

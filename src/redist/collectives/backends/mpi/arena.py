"""Memory of a transfer: reserved at once, used page by page, handed back page by page."""

from __future__ import annotations

import contextlib
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from redist.collectives.backends.mpi.program import Place

__all__ = ["Arena", "bits_of"]


def bits_of(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory as elements that NumPy copies fastest: unsigned integers where there are any of the size."""
    size = array.dtype.itemsize
    return array.view({1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}.get(size, f"V{size}"))


def _anonymous(size: int) -> mmap.mmap:
    if hasattr(mmap, "MAP_PRIVATE") and hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has no huge pages
    return mmap.mmap(-1, size)


class Arena:
    """Anonymous memory, in which a page takes no space until it is written.

    Raises BackendError where so much cannot be reserved.
    """

    def __init__(self, size: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            self._map = _anonymous(self.size) if self.size else None
        except (OSError, ValueError, OverflowError) as error:
            raise BackendError(
                f"{size} bytes of working memory cannot be reserved ({error}); lower memory_limit when planning"
            ) from None
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._map, dtype=np.uint8) if self._map else np.empty(0, np.uint8)
        if self._map is not None and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE)

    def array(self, place: Place, like: np.dtype[Any]) -> NDArray[Any]:
        """The whole block of a place, with elements of this dtype."""
        size = like.itemsize
        for length in place.shape:
            size *= length
        start = place.offset if place.root == "left" else self.size - place.offset
        return self.bytes[start : start + size].view(like).reshape(place.shape)

    def free(self) -> None:
        """Hand back everything, when nobody uses the arrays any more."""
        self.bytes, self._map, self.size = np.empty(0, np.uint8), None, 0

    def trim(self, kept: Sequence[tuple[int, int]]) -> None:
        """Hand back all pages that lie outside the (start, stop) ranges; what they hold is lost."""
        if self._map is None or not hasattr(mmap, "MADV_DONTNEED"):
            return
        start = 0
        for lower, upper in [*sorted(kept), (self.size, self.size)]:
            first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, lower // mmap.PAGESIZE * mmap.PAGESIZE
            if first < last:
                self._map.madvise(mmap.MADV_DONTNEED, first, last - first)
            start = upper

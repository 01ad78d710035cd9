"""Boxes of strided blocks as MPI datatypes: data moves from where it lies to where it belongs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redist.collectives.backends.mpi.geometry import Box
from redist.collectives.backends.mpi.runtime import mpi

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Datatypes", "address"]


def address(array: NDArray[Any]) -> Any:
    """A buffer at the array's first element, whatever its strides."""
    return mpi().buffer.fromaddress(array.__array_interface__["data"][0], max(1, array.nbytes))


class Datatypes:
    """Committed datatypes, made once per boxes and strides, and freed together."""

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}

    def of(self, array: NDArray[Any], boxes: Sequence[Box]) -> Any:
        """The boxes of an array, relative to its first element."""
        ends = tuple((part.start, part.stop) for box in boxes for part in box)
        key = (array.strides, array.itemsize, len(boxes), ends)
        if key not in self._made:
            parts = [_box_type(array, box) for box in boxes]
            offsets = [
                sum(part.start * stride for part, stride in zip(box, array.strides, strict=True)) for box in boxes
            ]
            self._made[key] = mpi().Datatype.Create_struct([1] * len(parts), offsets, parts).Commit()
            for part in parts:
                part.Free()
        return self._made[key]

    def free(self) -> None:
        """Free all of them."""
        for made in self._made.values():
            made.Free()
        self._made.clear()


def _box_type(array: NDArray[Any], box: Box) -> Any:
    dims = [(part.stop - part.start, stride) for part, stride in zip(box, array.strides, strict=True)]
    dims = [(length, stride) for length, stride in dims if length != 1]
    run = array.itemsize
    while dims and dims[-1][1] == run:  # what lies side by side
        run *= dims.pop()[0]
    made = mpi().BYTE.Create_contiguous(run)
    for length, stride in reversed(dims):
        inner, made = made, made.Create_hvector(length, 1, stride)
        inner.Free()
    return made

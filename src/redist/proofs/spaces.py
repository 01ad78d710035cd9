"""The devices that counts range over: one entry per device, or one axis per digit of the device position.

With an axis per digit, a count that depends on few digits has few entries however many devices there are;
NumPy's broadcasting joins them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.proofs.positions import chain
from redist.types.blocks import block_edges
from redist.types.mesh import Mesh, SubAxis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.types.layout import Layout

__all__ = ["MOST", "Space", "TooManyDevicesError", "common_space", "product", "same_order", "total"]

MOST = 2**22
"""Entries that are enumerated at most."""

_AXES = 48
"""Digits that make axes of their own (NumPy has 64)."""


class TooManyDevicesError(Exception):
    """Counts that differ from device to device, on more devices than are enumerated."""


def same_order(one: Mesh, other: Mesh) -> bool:
    """Whether both meshes have the same devices at the same positions."""
    if one.has_default_ids and other.has_default_ids:
        return one.size == other.size
    return one.size == other.size and one.device_ids == other.device_ids


@dataclass(frozen=True, slots=True)
class Space:
    """All positions of a mesh. With `cuts`, entries have an axis per digit, major to minor, of extent 1 where
    they do not depend on it; these serve all meshes with the same devices in the same order.

    `classes` of digits: counts depend only on which digits of a class are equal, and digits have so many values
    as there are digits in their class, if not fewer. An entry then stands for all devices with its pattern.
    """

    mesh: Mesh
    cuts: tuple[int, ...] | None = None
    classes: tuple[tuple[int, ...], ...] | None = None

    def index(self, mesh: Mesh, axes: Iterable[SubAxis]) -> NDArray[np.int64]:
        """Mixed-radix index of every position over (sub-)axes, major to minor."""
        if self.cuts is None:
            if mesh.size > MOST:
                raise TooManyDevicesError(f"{mesh.size} devices, more than are enumerated")
            return mesh.index(tuple(axes))
        value = np.zeros([1] * (len(self.cuts) - 1), dtype=np.int64)
        for n in self.digits(mesh, axes):
            value = product([value], times=self.size(n)) + self.coordinate(n)
        return value

    def digits(self, mesh: Mesh, axes: Iterable[SubAxis]) -> list[int]:
        """Which digits axes are, major to minor; digit n has stride cuts[n]."""
        assert self.cuts is not None
        found: list[int] = []
        for axis in axes:
            stride, size = mesh.digit(axis)
            found += reversed([n for n, cut in enumerate(self.cuts) if stride <= cut < stride * size])
        return found

    def size(self, n: int) -> int:
        """Values of digit n."""
        assert self.cuts is not None
        return self.cuts[n + 1] // self.cuts[n]

    def coordinate(self, n: int) -> NDArray[np.int64]:
        """Digit n of every position."""
        assert self.cuts is not None
        shape = [1] * (len(self.cuts) - 1)
        shape[len(shape) - 1 - n] = self.values(n)
        return np.arange(self.values(n), dtype=np.int64).reshape(shape)

    def values(self, n: int) -> int:
        """How many values of digit n entries have, from 0 on."""
        for digits in self.classes or ():
            if n in digits:
                return min(self.size(n), len(digits))
        return self.size(n)

    def over_devices(self, counts: NDArray[Any]) -> int:
        """The sum of a count over all devices of the mesh, exactly. Raises TooManyDevicesError."""
        if self.classes is None:
            return int(counts.sum()) * (self.mesh.size // max(1, counts.size))
        assert self.cuts is not None
        extents = dict(enumerate(reversed(counts.shape)))
        factors: list[NDArray[np.int64]] = []
        often = 1
        for digits in self.classes:
            idle = [n for n in digits if extents.get(n, 1) == 1]
            if self.reduced(digits) and len(idle) < len(digits):
                factors.append(self._weights(digits))
            else:
                often *= math.prod(self.size(n) for n in idle)
        checked([counts, *factors])
        weights, wide = np.broadcast_arrays(product(factors), counts)
        values, inverse = np.unique(wide, return_inverse=True)
        times = np.zeros(len(values), dtype=np.int64)
        np.add.at(times, inverse.ravel(), weights.ravel())
        return often * sum(value * n for value, n in zip(values.tolist(), times.tolist(), strict=True))

    def reduced(self, digits: tuple[int, ...]) -> bool:
        """Whether digits of a class have fewer values than on the mesh."""
        return self.values(digits[0]) < self.size(digits[0])

    def _weights(self, digits: tuple[int, ...]) -> NDArray[np.int64]:
        """How many devices have the pattern of each entry, as far as one class goes; 0 but for the first entry with
        a pattern, the one in which every value has appeared before or is the next one."""
        assert self.cuts is not None
        size, among = self.size(digits[0]), self.values(digits[0])
        shape = [1] * (len(self.cuts) - 1)
        for n in digits:
            shape[len(shape) - 1 - n] = among
        found = np.zeros([among] * len(digits), dtype=np.int64)
        for entry in itertools.product(range(among), repeat=len(digits)):
            highest = list(itertools.accumulate(entry, max, initial=-1))
            if all(value <= high + 1 for value, high in zip(entry, highest, strict=False)):
                found[entry] = math.perm(size, highest[-1] + 1)
        return found.reshape(shape)

    def edges(self, layout: Layout) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Per dimension, (start, stop) of every position's block."""
        found: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        for dim, count in zip(layout.dims, layout.block_counts(), strict=True):
            block = self.index(layout.mesh, dim.axes)
            lower, upper = (block_edges(dim.size, count, dim.rule, block + end) for end in (0, 1))
            found.append((lower, upper))
        return found

    def position(self, shape: Sequence[int], entry: int) -> int:
        """A position that an entry of an array of this shape stands for: the first."""
        if self.cuts is None:
            return entry
        place = np.unravel_index(entry, tuple(shape))
        return sum(int(value) * cut for value, cut in zip(reversed(place), self.cuts, strict=False))


def product(factors: Sequence[NDArray[Any]], times: int = 1) -> NDArray[np.int64]:
    """Product with broadcasting. Raises TooManyDevicesError before it makes an array that is too large."""
    checked(factors)
    made = np.asarray(times, dtype=np.int64)
    for factor in factors:
        made = made * factor
    return made


def total(summands: Sequence[NDArray[Any] | int]) -> NDArray[np.int64]:
    """Sum with broadcasting, of any rank; the same error."""
    arrays = [np.asarray(summand, dtype=np.int64) for summand in summands]
    checked(arrays)
    made = np.zeros((), dtype=np.int64)
    for array in arrays:
        made = made + array
    return made


def checked(arrays: Sequence[NDArray[Any]]) -> None:
    """Raise TooManyDevicesError where arrays broadcast to more entries than are enumerated."""
    entries = math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))
    if entries > MOST:
        raise TooManyDevicesError(f"counts that differ between {entries} devices, more than are enumerated")


def common_space(mesh: Mesh, others: Iterable[Mesh], axes: Iterable[tuple[Mesh, Iterable[SubAxis]]]) -> Space | None:
    """One space of digits for meshes with the same devices in the same order; None where there is none."""
    if not all(same_order(mesh, other) for other in others):
        return None
    joined = {1, mesh.size}
    for other, used in axes:
        cuts = chain(other, used)
        if cuts is None:
            return None
        joined.update(cuts)
    ordered = sorted(joined)
    if len(ordered) > _AXES or any(b % a for a, b in pairwise(ordered)):
        return None
    return Space(mesh, tuple(ordered))

"""Device meshes and the (sub-)axes they are cut along."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.errors import LayoutError
from redist.types.pairs import pairs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AxisLike", "Mesh", "SubAxis", "mixed_radix_strides"]

_NAME = re.compile(r"[^\W\d][\w.\-/]*\Z")


def mixed_radix_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Stride of each digit, major to minor: `(4, 2, 3) -> (6, 3, 1)`."""
    strides: list[int] = []
    stride = 1
    for size in reversed(sizes):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class SubAxis:
    """A mesh axis, or the part `axis:(pre)size` of one.

    An axis of n devices split as (pre, size, n/(pre*size)), major to minor, has this middle part as
    a sub-axis. `size=None` is the whole axis, and is the form every whole axis is normalised to.
    """

    axis: str
    pre: int = 1
    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is None:
            if self.pre != 1:
                raise LayoutError(
                    f"sub-axis of '{self.axis}' states pre={self.pre} without a size; "
                    f"write {self.axis}:({self.pre})SIZE"
                )
        elif self.size < 2 or self.pre < 1:
            raise LayoutError(
                f"sub-axis {self} needs pre >= 1 and size >= 2, got pre={self.pre} and size={self.size}; "
                "leave out a part of size 1"
            )

    def __str__(self) -> str:
        return self.axis if self.size is None else f"{self.axis}:({self.pre}){self.size}"

    @staticmethod
    def parse(text: str) -> SubAxis:
        """Read `x` or `x:(2)4`. Raises ParseError."""
        from redist.types.text import parse_axis

        return parse_axis(text)


AxisLike = str | SubAxis


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Mesh:
    """Ordered named axes with sizes, and the device ids at the row-major positions.

    `Mesh({"x": 4, "y": 2})` has 8 positions; position p holds device `device_ids[p]`, by default p
    itself. Ids may be any distinct non-negative integers. A mesh without axes is one device.

    Raises LayoutError for malformed names, sizes below 1, and repeated or miscounted ids.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    _ids: tuple[int, ...] | None
    _hash: int = field(compare=False)
    _array: NDArray[np.int64] | None = field(compare=False)

    def __init__(
        self,
        axes: Mapping[str, int] | Iterable[tuple[str, int]],
        device_ids: Iterable[int] | None = None,
    ) -> None:
        pairs = pairs_of(axes)
        names = tuple(name for name, _ in pairs)
        _check_names(names)
        sizes = tuple(_check_size(name, size) for name, size in pairs)
        count = math.prod(sizes)
        ids = None if device_ids is None else _check_ids(device_ids, count)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "_ids", ids)
        object.__setattr__(self, "_hash", hash((names, sizes, ids)))
        object.__setattr__(self, "_array", None if ids is None else _frozen(ids))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Mesh, (self.axes, self._ids)  # built anew: another process hashes names to other numbers

    @staticmethod
    def parse(text: str) -> Mesh:
        """Read `x=4,y=2` or `x=4,y=2@[0,4,1,5,2,6,3,7]`. Raises ParseError."""
        from redist.types.text import parse_mesh

        return parse_mesh(text)

    @staticmethod
    def from_jax(mesh: Any) -> Mesh:
        """The mesh of a `jax.sharding.Mesh` or `AbstractMesh` (whose ids are 0..n-1)."""
        from redist.types.convert.jax import mesh_from_jax

        return mesh_from_jax(mesh)

    def to_jax(self, axis_types: Any = None) -> Any:
        """A `jax.sharding.Mesh` over `jax.devices()` with these ids. Raises LayoutError if one is missing."""
        from redist.types.convert.jax import mesh_to_jax

        return mesh_to_jax(self, axis_types)

    def __str__(self) -> str:
        text = ",".join(f"{name}={size}" for name, size in self.axes)
        return text if self._ids is None else f"{text}@[{','.join(map(str, self._ids))}]"

    def __repr__(self) -> str:
        return f"Mesh.parse({str(self)!r})"

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """(name, size) of each axis, major to minor."""
        return tuple(zip(self.names, self.sizes, strict=True))

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(self.sizes)

    @property
    def has_default_ids(self) -> bool:
        """Whether position p holds device p."""
        return self._ids is None

    @property
    def device_ids(self) -> Sequence[int]:
        """Device id at each row-major position."""
        return range(self.size) if self._ids is None else self._ids

    def id_array(self) -> NDArray[np.int64]:
        """Device ids as a read-only int64 vector of length `size`."""
        return np.arange(self.size) if self._array is None else self._array

    def positions_of(self, device_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row-major position of each of these devices, -1 where the mesh does not have it."""
        if self._array is None:
            return np.where(device_ids < self.size, device_ids, -1)
        top = max(int(self._array.max()), int(device_ids.max()))
        if top < _SPARSE * self.size:
            where = np.full(top + 1, -1, dtype=np.int64)
            where[self._array] = np.arange(self.size)
            return where[device_ids]
        order = np.argsort(self._array)
        found = order[np.minimum(np.searchsorted(self._array, device_ids, sorter=order), self.size - 1)]
        return np.where(self._array[found] == device_ids, found, -1)

    def axis_size(self, name: str) -> int:
        """Size of a whole axis. Raises LayoutError naming the axes there are."""
        try:
            return self.sizes[self.names.index(name)]
        except ValueError:
            raise LayoutError(f"unknown axis '{name}': mesh {self.axes_text()} has {_listing(self.names)}") from None

    def axes_text(self) -> str:
        """The axes without device ids: `x=4,y=2`."""
        return ",".join(f"{name}={size}" for name, size in self.axes) or "of one device"

    def resolve(self, axis: AxisLike) -> SubAxis:
        """Normal form of an axis of this mesh: whole axes have `size=None`.

        Raises LayoutError for an unknown axis, or pre*size that does not divide the axis.
        """
        ref = SubAxis.parse(axis) if isinstance(axis, str) else axis
        total = self.axis_size(ref.axis)
        if ref.size is None:
            return ref
        if total % (ref.pre * ref.size):
            raise LayoutError(
                f"sub-axis {ref} does not divide axis {ref.axis}={total}: pre*size = {ref.pre}*{ref.size} = "
                f"{ref.pre * ref.size}; choose pre and size whose product divides {total}"
            )
        return SubAxis(ref.axis) if ref.size == total else ref

    def cut(self, axis: SubAxis) -> tuple[int, int]:
        """(pre, size) of a resolved (sub-)axis."""
        return (axis.pre, axis.size) if axis.size is not None else (1, self.axis_size(axis.axis))

    def digit(self, axis: SubAxis) -> tuple[int, int]:
        """(stride, size) of a resolved (sub-)axis in row-major positions: its coordinate is
        `position // stride % size`."""
        index = self.names.index(axis.axis)
        inner = math.prod(self.sizes[index + 1 :])
        if axis.size is None:
            return inner, self.sizes[index]
        return inner * (self.sizes[index] // (axis.pre * axis.size)), axis.size

    def count(self, axes: Iterable[SubAxis]) -> int:
        """Product of the sizes of resolved (sub-)axes."""
        total = 1
        for axis in axes:
            total *= axis.size if axis.size is not None else self.axis_size(axis.axis)
        return total

    def index(self, axes: Sequence[SubAxis], positions: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Mixed-radix index of each position's coordinates over `axes`, major to minor."""
        where = np.arange(self.size) if positions is None else positions
        total = np.zeros_like(where)
        for axis in axes:
            stride, size = self.digit(axis)
            total = total * size + where // stride % size
        return total

    def coordinates(self, device_id: int) -> dict[str, int]:
        """Coordinate of a device on each axis. Raises LayoutError for an id that is not in the mesh."""
        try:
            position = self.device_ids.index(device_id)
        except ValueError:
            raise LayoutError(f"device {device_id} is not in mesh {self}") from None
        strides = mixed_radix_strides(self.sizes)
        return {name: position // stride % size for (name, size), stride in zip(self.axes, strides, strict=True)}

    def describe_device(self, device_id: int) -> str:
        """`device 3 (x=1, y=1)`, for messages."""
        inside = ", ".join(f"{name}={value}" for name, value in self.coordinates(device_id).items())
        return f"device {device_id} ({inside})" if inside else f"device {device_id}"

    def same_devices(self, other: Mesh) -> bool:
        """Whether both meshes hold the same set of device ids."""
        if self.size != other.size:
            return False
        if self._ids is None and other._ids is None:
            return True
        return bool((self.positions_of(other.id_array()) >= 0).all())


_SPARSE = 8
"""A table by device id is used while it has at most this many entries for each device."""


def _frozen(ids: tuple[int, ...]) -> NDArray[np.int64]:
    array = np.asarray(ids, dtype=np.int64)
    array.flags.writeable = False
    return array


def _listing(names: Sequence[str]) -> str:
    return ("axes " if len(names) != 1 else "axis ") + ", ".join(names) if names else "no axes"


def _check_names(names: tuple[str, ...]) -> None:
    malformed = [name for name in names if not isinstance(name, str) or not _NAME.match(name)]  # pyright: ignore[reportUnnecessaryIsInstance]
    if malformed:
        raise LayoutError(
            f"malformed axis name {', '.join(map(repr, malformed))}: a name starts with a letter or '_' and goes on "
            "with letters, digits and any of '_.-/'"
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise LayoutError(f"mesh axis named twice: {', '.join(repeated)}; give each axis its own name")


def _check_size(name: str, size: int) -> int:
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LayoutError(f"axis {name}={size!r}: an axis has an integer size of at least 1")
    return int(size)


def _check_ids(device_ids: Iterable[int], count: int) -> tuple[int, ...] | None:
    ids = tuple(map(int, device_ids))
    if len(ids) != count:
        raise LayoutError(f"{len(ids)} device ids for a mesh of {count} devices; give one id per device")
    if ids == tuple(range(count)):
        return None
    if len(set(ids)) != count:
        seen: set[int] = set()
        repeated = sorted({i for i in ids if i in seen or seen.add(i)})
        raise LayoutError(f"repeated device ids {repeated}; each device stands in a mesh once")
    negative = [i for i in ids if i < 0]
    if negative:
        raise LayoutError(f"negative device ids {negative}; ids are 0 or more")
    return ids

"""Layouts: what a distributed array is. A layout is a map from devices to boxes of the global array."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from redist.errors import LayoutError
from redist.types.blocks import CEIL, BlockRule, block_bounds, canonical_rule, even, longest
from redist.types.dtypes import dtype_name, itemsize
from redist.types.mesh import AxisLike, Mesh, SubAxis

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Dim", "Layout", "Partial", "Reduction", "merge_axes"]

Reduction = Literal["sum", "max", "min", "prod"]


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension: its global size, its (sub-)axes major to minor, and its block rule."""

    size: int
    axes: tuple[SubAxis, ...] = ()
    rule: BlockRule = CEIL

    def __str__(self) -> str:
        axes = f"{{{','.join(map(str, self.axes))}}}" if self.axes else ""
        return f"{self.size}{axes}{self.rule}"


@dataclass(frozen=True, slots=True)
class Partial:
    """The value is the reduction of the blocks along `axes`: an unreduced partial result."""

    axes: tuple[SubAxis, ...]
    reduction: Reduction

    def __str__(self) -> str:
        return f"{self.reduction}{{{','.join(map(str, self.axes))}}}"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Layout:
    """The layout (sharding) of an array over a mesh.

    A dimension of size g over axes of sizes k1..km is cut into k = k1*..*km blocks by its rule; the
    device with coordinates c1..cm on them holds block `mixed_radix(c1..cm)`. Axes not mentioned
    replicate. Normalised on construction: adjacent sub-axes merge, whole axes lose their cut, a
    block rule is the plainest that gives the same blocks, partial axes are in mesh order.

    Raises LayoutError naming every axis used twice, cuts that do not fit one factorisation, and
    offsets that do not cover their dimension. Source: arXiv 2112.01075 section 4, with sub-axes,
    uneven blocks and partial results added.
    """

    mesh: Mesh
    dtype: str
    dims: tuple[Dim, ...]
    partial: Partial | None
    _counts: tuple[int, ...] = field(compare=False)
    _block_shape: tuple[int, ...] = field(compare=False)
    _hash: int = field(compare=False)

    def __init__(
        self,
        mesh: Mesh,
        shape: Sequence[int],
        axes: Sequence[Iterable[AxisLike]] | None = None,
        dtype: Any = "f32",
        *,
        rules: Sequence[BlockRule] | None = None,
        partial: Iterable[AxisLike] = (),
        reduction: Reduction = "sum",
    ) -> None:
        per_dim = [_resolved(mesh, dim) for dim in axes] if axes is not None else [()] * len(shape)
        per_rule = list(rules) if rules is not None else [CEIL] * len(shape)
        if len(per_dim) != len(shape) or len(per_rule) != len(shape):
            raise LayoutError(
                f"an array of rank {len(shape)} got axes for {len(per_dim)} dimensions and rules for "
                f"{len(per_rule)}; give one of each per dimension"
            )
        sizes = [_check_dim_size(i, size) for i, size in enumerate(shape)]
        partial_axes = _resolved(mesh, partial)
        _check_usage(mesh, sizes, per_dim, partial_axes)
        dims = tuple(
            _normal_dim(mesh, i, size, dim_axes, rule)
            for i, (size, dim_axes, rule) in enumerate(zip(sizes, per_dim, per_rule, strict=True))
        )
        if reduction not in get_args(Reduction):
            raise LayoutError(f"unknown reduction {reduction!r}; use one of {', '.join(get_args(Reduction))}")
        ordered = tuple(sorted(partial_axes, key=lambda axis: (mesh.names.index(axis.axis), axis.pre)))
        set_field = object.__setattr__
        set_field(self, "mesh", mesh)
        set_field(self, "dtype", dtype_name(dtype))
        set_field(self, "dims", dims)
        set_field(self, "partial", Partial(merge_axes(mesh, ordered), reduction) if ordered else None)
        counts = tuple(mesh.count(dim.axes) for dim in dims)
        set_field(self, "_counts", counts)
        set_field(self, "_block_shape", tuple(longest(d.size, k, d.rule) for d, k in zip(dims, counts, strict=True)))
        set_field(self, "_hash", hash((mesh, self.dtype, dims, self.partial)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.mesh, self.dtype, self.dims, self.partial)

    @staticmethod
    def parse(text: str, mesh: Mesh) -> Layout:
        """Read `f32[1024{x,y}, 512]`, `bf16[13{p}:balanced] sum{q}`. Raises ParseError."""
        from redist.types.text import parse_layout

        return parse_layout(text, mesh)

    def __str__(self) -> str:
        from redist.types.text import print_layout

        return print_layout(self)

    def __repr__(self) -> str:
        return f"Layout.parse({str(self)!r}, {self.mesh!r})"

    def with_dims(self, dims: Sequence[Dim], partial: Iterable[SubAxis] | None = None) -> Layout:
        """The same array and mesh with other dimensions and, unless None, other partial axes."""
        kept = (self.partial.axes if self.partial else ()) if partial is None else tuple(partial)
        return Layout(
            self.mesh,
            [dim.size for dim in dims],
            [dim.axes for dim in dims],
            self.dtype,
            rules=[dim.rule for dim in dims],
            partial=kept,
            reduction=self.partial.reduction if self.partial else "sum",
        )

    # -- the array ---------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        return tuple(dim.size for dim in self.dims)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return itemsize(self.dtype)

    @property
    def partial_axes(self) -> tuple[SubAxis, ...]:
        """Axes over which the value is unreduced; empty for a plain layout."""
        return self.partial.axes if self.partial else ()

    def same_array(self, other: Layout) -> bool:
        """Whether both describe an array of the same global shape and dtype."""
        return self.dtype == other.dtype and self.shape == other.shape

    # -- blocks ------------------------------------------------------------------------------------

    def block_counts(self) -> tuple[int, ...]:
        """Number of blocks per dimension."""
        return self._counts

    def is_even(self) -> bool:
        """Whether every device holds a block of the same shape."""
        return all(even(d.size, k, d.rule) for d, k in zip(self.dims, self.block_counts(), strict=True))

    def dim_bounds(self, i: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(starts, stops) of the blocks of dimension i, by block index."""
        return block_bounds(self.dims[i].size, self.mesh.count(self.dims[i].axes), self.dims[i].rule)

    def block_shape(self) -> tuple[int, ...]:
        """Shape of the largest block: per dimension, the length of its longest block."""
        return self._block_shape

    def block_elements(self) -> int:
        """Elements of the largest block."""
        return math.prod(self._block_shape)

    def block_bytes(self) -> int:
        """Bytes of the largest block."""
        return self.block_elements() * self.itemsize

    def boxes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(starts, stops), each of shape (devices, rank), by mesh position."""
        starts = np.empty((self.mesh.size, self.rank), dtype=np.int64)
        stops = np.empty_like(starts)
        for i, dim in enumerate(self.dims):
            block = self.mesh.index(dim.axes)
            lower, upper = self.dim_bounds(i)
            starts[:, i], stops[:, i] = lower[block], upper[block]
        return starts, stops

    def box(self, device_id: int) -> tuple[slice, ...]:
        """The box that a device holds, as slices of the global array.

        Raises LayoutError for a device that is not in the mesh.
        """
        self.mesh.coordinates(device_id)
        position = np.asarray([self.mesh.device_ids.index(device_id)])
        slices: list[slice] = []
        for i, dim in enumerate(self.dims):
            block = int(self.mesh.index(dim.axes, position)[0])
            lower, upper = self.dim_bounds(i)
            slices.append(slice(int(lower[block]), int(upper[block])))
        return tuple(slices)

    # -- relations ---------------------------------------------------------------------------------

    def equivalent(self, other: Layout) -> bool:
        """Whether both put the same block on every device: same array, same box per device id (boxes
        without elements are equal when their shapes are), same partial axes and reduction."""
        from redist.types.equivalence import equivalent

        return equivalent(self, other)

    # -- other notations ---------------------------------------------------------------------------

    @staticmethod
    def from_jax(shape: Sequence[int], dtype: Any, sharding: Any) -> Layout:
        """The layout of a JAX array with a NamedSharding or SingleDeviceSharding."""
        from redist.types.convert.jax import layout_from_jax

        return layout_from_jax(shape, dtype, sharding)

    def to_jax(self, axis_types: Any = None) -> Any:
        """A NamedSharding; a layout with sub-axes gets a refined mesh. Raises LayoutError where JAX
        cannot hold it (uneven blocks, explicit block rules, missing devices)."""
        from redist.types.convert.jax import layout_to_jax

        return layout_to_jax(self, axis_types)

    @staticmethod
    def from_xla(text: str, shape: Sequence[int], dtype: Any = "f32") -> Layout:
        """Read XLA's tile text, `{devices=[2,1,4]<=[8] last_tile_dim_replicate}`."""
        from redist.types.convert.xla import layout_from_xla

        return layout_from_xla(text, shape, dtype)

    def to_xla(self) -> str:
        """XLA's tile text. Raises LayoutError for block rules that XLA does not have."""
        from redist.types.convert.xla import layout_to_xla

        return layout_to_xla(self)

    @staticmethod
    def from_shardy(text: str, mesh: Mesh, shape: Sequence[int], dtype: Any = "f32") -> Layout:
        """Read Shardy's text, `[{"x", "y":(1)2}, {}] unreduced={"z"}`."""
        from redist.types.convert.shardy import layout_from_shardy

        return layout_from_shardy(text, mesh, shape, dtype)

    def to_shardy(self) -> str:
        """Shardy's text. Raises LayoutError for what Shardy cannot express."""
        from redist.types.convert.shardy import layout_to_shardy

        return layout_to_shardy(self)

    @staticmethod
    def from_dtensor(placements: Sequence[Any], mesh: Mesh, shape: Sequence[int], dtype: Any = "f32") -> Layout:
        """The layout of a DTensor: one placement per mesh dimension, `S(0)`, `R`, `P(sum)` or torch's objects.

        Raises LayoutError where DTensor's nested chunks are not a grid of blocks."""
        from redist.types.convert.dtensor import layout_from_dtensor

        return layout_from_dtensor(placements, mesh, shape, dtype)

    def to_dtensor(self) -> tuple[str, ...]:
        """One placement per mesh axis as text. Raises LayoutError for what DTensor cannot express."""
        from redist.types.convert.dtensor import layout_to_dtensor

        return layout_to_dtensor(self)


def _resolved(mesh: Mesh, axes: Iterable[AxisLike]) -> tuple[SubAxis, ...]:
    """The axes in normal form; a bare string is one axis, not the letters of its name."""
    return tuple(map(mesh.resolve, (axes,) if isinstance(axes, str) else axes))


def _rebuilt(mesh: Mesh, dtype: str, dims: tuple[Dim, ...], partial: Partial | None) -> Layout:
    """What pickle calls: a hash is not carried over, since another process hashes names to other numbers."""
    return Layout(
        mesh,
        [dim.size for dim in dims],
        [dim.axes for dim in dims],
        dtype,
        rules=[dim.rule for dim in dims],
        partial=partial.axes if partial else (),
        reduction=partial.reduction if partial else "sum",
    )


def merge_axes(mesh: Mesh, axes: Sequence[SubAxis]) -> tuple[SubAxis, ...]:
    """`x:(1)2, x:(2)2 --> x`: adjacent parts of one axis that continue each other become one."""
    merged: list[SubAxis] = []
    for axis in axes:
        if merged and merged[-1].axis == axis.axis:
            pre, size = mesh.cut(merged[-1])
            next_pre, next_size = mesh.cut(axis)
            if pre * size == next_pre:
                merged[-1] = mesh.resolve(SubAxis(axis.axis, pre, size * next_size))
                continue
        merged.append(axis)
    return tuple(merged)


def _check_dim_size(i: int, size: int) -> int:
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LayoutError(f"dimension {i} has size {size!r}; a size is an integer of at least 0", (i, -1))
    return int(size)


def _normal_dim(mesh: Mesh, i: int, size: int, axes: tuple[SubAxis, ...], rule: BlockRule) -> Dim:
    try:
        return Dim(size, merge_axes(mesh, axes), canonical_rule(size, mesh.count(axes), rule))
    except LayoutError as error:
        raise LayoutError(f"dimension {i} ({Dim(size, axes, rule)}): {error}", (i, -1)) from None


def _check_usage(
    mesh: Mesh, shape: Sequence[int], per_dim: Sequence[tuple[SubAxis, ...]], partial: tuple[SubAxis, ...]
) -> None:
    """Every (sub-)axis is used once, and the parts of one axis are cuts of one factorisation."""
    uses: dict[str, list[tuple[int, int, int, int]]] = {}
    for i, axes in [*enumerate(per_dim), (-1, partial)]:
        for j, axis in enumerate(axes):
            pre, size = mesh.cut(axis)
            uses.setdefault(axis.axis, []).append((pre, size, i, j))
    problems: list[str] = []
    place: tuple[int, int] | None = None
    for name, parts in uses.items():
        if len(parts) < 2:
            continue
        ordered = sorted(parts)
        for first, second in itertools.pairwise(ordered):
            (pre1, size1, i1, j1), (pre2, size2, i2, j2) = first, second
            texts = [
                str(mesh.resolve(SubAxis(name, p, s)) if s > 1 else SubAxis(name))
                for p, s in ((pre1, size1), (pre2, size2))
            ]
            where = [_where(shape, i) for i in (i1, i2)]
            if pre1 * size1 > pre2 or size1 == size2 == 1:
                inside = f"'{texts[0]}' in {where[0]}" + (
                    f" and in {where[1]}" if texts[0] == texts[1] else f" and '{texts[1]}' in {where[1]}"
                )
                problems.append(f"axis '{name}' is used twice: {inside}")
            elif pre2 % (pre1 * size1):
                problems.append(
                    f"sub-axes '{texts[0]}' in {where[0]} and '{texts[1]}' in {where[1]} are not cuts of one "
                    f"factorisation of {name}={mesh.axis_size(name)}: {pre1}*{size1} = {pre1 * size1} does not "
                    f"divide {pre2}"
                )
            else:
                continue
            place = place or max((i1, j1), (i2, j2), key=lambda p: (p[0] == -1, p))
    if problems:
        raise LayoutError(
            f"{'; '.join(problems)}. A (sub-)axis is used once; cut the axis, as in x:(1)2 and x:(2)2, or drop a use",
            place,
        )


def _where(shape: Sequence[int], i: int) -> str:
    return "the partial axes" if i == -1 else f"dimension {i} (size {shape[i]})"

"""XLA's tile text, both ways: `{devices=[2,1,4]<=[8] last_tile_dim_replicate}`.

The devices are numbered by the text (V1, `[2,2]0,2,1,3`) or by a transposed iota (V2,
`[2,2]<=[2,2]T(1,0)`). Trailing tile dimensions are subgroups: replicated or unreduced. Blocks are
`ceil` blocks: XLA pads the last ones. XLA numbers partitions; these numbers are the mesh's device ids.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.errors import LayoutError
from redist.types.blocks import Ceil
from redist.types.digits import Alignment, Form, align
from redist.types.layout import Layout
from redist.types.mesh import Mesh, SubAxis
from redist.types.text import Scanner

__all__ = ["layout_from_xla", "layout_to_xla"]

_WORD = re.compile(r"[a-z_]+")
_METADATA = re.compile(r'\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}')
_WHOLE = ("replicated", "unreduced", "manual", "unknown")
_GROUPS = ("replicated", "unreduced", "manual")


@dataclass(frozen=True, slots=True)
class _Tiles:
    """`[dims]` over the devices `iota(reshape).transpose(order)` or, where given, the listed ids.

    `groups` are the kinds of the trailing tile dimensions.
    """

    dims: tuple[int, ...]
    reshape: tuple[int, ...]
    order: tuple[int, ...]
    ids: tuple[int, ...] | None
    groups: tuple[str, ...]


def layout_from_xla(text: str, shape: Sequence[int], dtype: Any = "f32", *, devices: int | None = None) -> Layout:
    """Read XLA's text for an array of this shape. Mesh axes are `d0`, `d1`, ..., device 0 first.

    A device order that permutes digits of the numbers 0..n-1 becomes a mesh with default ids, cut so
    that every tile dimension is a list of axes; any other order becomes a mesh with explicit ids.
    Unreduced subgroups are a partial sum. `devices` is how many devices share an array whose text does
    not say so (`{replicated}`, `{unreduced}`). Metadata and `shard_as`/`shard_like` marks are dropped.

    Raises ParseError for malformed text; LayoutError for tiles that do not fit the rank, for tuples
    and for shardings without meaning of their own (manual, unknown), and for a missing `devices`.
    """
    scan = Scanner(text)
    scan.need("{", "before the sharding")
    if scan.take("{"):
        raise LayoutError(f"{text} is the sharding of a tuple; convert the sharding of each element by itself")
    if scan.take("mesh"):
        raise LayoutError(f"{text} names the axes of a mesh; write it as tiles, {{devices=[...]<=[...]}}")
    column = scan.at
    word = scan.match(_WORD)
    if word in _WHOLE:
        _marks(scan)
        return _whole(text, word, shape, dtype, devices)
    if word == "maximal":
        scan.need("device=", "after 'maximal'")
        device = scan.integer("a device number")
        _marks(scan)
        return Layout(Mesh({}, [device]), shape, None, dtype)
    if word != "devices":
        raise scan.fail(
            "expected 'devices=', 'replicated', 'maximal device=', 'unreduced', 'manual' or 'unknown'", column
        )
    return _tiled(text, _tiles(scan), shape, dtype)


def _tiles(scan: Scanner) -> _Tiles:
    scan.need("=[", "after 'devices'")
    column = scan.at
    dims = _sizes(scan, "a tile size")
    count = math.prod(dims)
    scan.blanks()
    ids_column = scan.at
    ids: tuple[int, ...] | None = None
    reshape, order = (count,), (0,)
    if scan.take("<=["):
        reshape = _sizes(scan, "an iota size")
        if math.prod(reshape) != count:
            raise scan.fail(
                f"tile sizes {list(dims)} number {count} devices, the iota {list(reshape)} numbers "
                f"{math.prod(reshape)}; make the products equal",
                column,
            )
        order = _order(scan, len(reshape))
    else:
        ids = _ids(scan)
        problem = _id_problem(ids, count)
        if problem:
            raise scan.fail(problem, ids_column)
    groups = _marks(scan)
    if len(groups) > len(dims):
        raise scan.fail(f"{len(groups)} subgroups for the {len(dims)} tile sizes {list(dims)}", column)
    return _Tiles(dims, reshape, order, ids, groups)


def _sizes(scan: Scanner, what: str) -> tuple[int, ...]:
    def size() -> int:
        scan.blanks()
        column = scan.at
        found = scan.integer(what)
        if found < 1:
            raise scan.fail(f"{what} is {found}; it is at least 1", column)
        return found

    return tuple(scan.listing("]", size, what))


def _order(scan: Scanner, rank: int) -> tuple[int, ...]:
    """`T(1,0)`, or nothing for the order as it is."""
    scan.blanks()
    column = scan.at
    if not scan.take("T("):
        return tuple(range(rank))
    order = tuple(scan.listing(")", lambda: scan.integer("a transposed dimension"), "a transposed dimension"))
    if sorted(order) != list(range(rank)):
        raise scan.fail(
            f"T({','.join(map(str, order))}) does not permute the {rank} iota dimensions 0..{rank - 1}", column
        )
    return order


def _ids(scan: Scanner) -> tuple[int, ...]:
    ids = [scan.integer("device numbers, or '<=[' and iota sizes")]
    while scan.take(","):
        ids.append(scan.integer("a device number"))
    return tuple(ids)


def _id_problem(ids: tuple[int, ...], count: int) -> str | None:
    if len(ids) != count:
        return f"{len(ids)} device numbers for {count} tiles; give one per tile"
    repeated = sorted(i for i, uses in Counter(ids).items() if uses > 1)
    return f"repeated device numbers {repeated}; each device holds one tile" if repeated else None


def _marks(scan: Scanner) -> tuple[str, ...]:
    """What follows the devices, up to the end of the text; returns the kinds of the subgroups."""
    groups: tuple[str, ...] = ()
    while not scan.take("}"):
        scan.blanks()
        column = scan.at
        word = scan.match(_WORD)
        if word in ("last_tile_dim_replicate", "last_tile_dims") and groups:
            raise scan.fail("the subgroups are stated twice", column)
        if word == "last_tile_dim_replicate":
            groups = ("replicated",)
        elif word == "last_tile_dims":
            scan.need("={", "after 'last_tile_dims'")
            groups = tuple(scan.listing("}", lambda: _group(scan), "a subgroup"))
        elif word == "metadata":
            scan.need("=", "after 'metadata'")
            if scan.match(_METADATA) is None:
                raise scan.fail("expected the metadata in braces")
        elif word in ("shard_as", "shard_like"):
            scan.integer(f"the group of '{word}'")
        else:
            raise scan.fail(
                "expected 'last_tile_dim_replicate', 'last_tile_dims={...}', 'metadata={...}' or '}'", column
            )
    scan.end("the sharding")
    return groups


def _group(scan: Scanner) -> str:
    scan.blanks()
    column = scan.at
    word = scan.match(_WORD)
    if word not in _GROUPS:
        raise scan.fail(f"expected a kind of subgroup: {', '.join(_GROUPS)}", column)
    return word


# -- meaning -------------------------------------------------------------------------------------------


def _whole(text: str, word: str, shape: Sequence[int], dtype: Any, devices: int | None) -> Layout:
    if word == "manual":
        raise _manual(text, "all devices")
    if word == "unknown":
        raise LayoutError(
            f"{text} leaves the layout to XLA; convert the sharding that XLA chose, from the compiled HLO"
        )
    if devices is None:
        group = "last_tile_dim_replicate" if word == "replicated" else "last_tile_dims={unreduced}"
        ones = "1," * len(shape)
        raise LayoutError(
            f"{text} does not say how many devices there are; for N devices write {{devices=[{ones}N]<=[N] {group}}}"
        )
    mesh = Mesh({"d0": devices} if devices > 1 else {})
    return Layout(mesh, shape, None, dtype, partial=mesh.names if word == "unreduced" else ())


def _manual(text: str, what: str) -> LayoutError:
    return LayoutError(
        f"{text} is manual over {what}: every device has an array of its own there, and the text does not say how "
        "these make up one; convert the sharding outside the manual region, where the axes shard or replicate"
    )


def _tiled(text: str, tiles: _Tiles, shape: Sequence[int], dtype: Any) -> Layout:
    rank = len(tiles.dims) - len(tiles.groups)
    manual = [
        f"tile dimension {rank + i} (size {tiles.dims[rank + i]})"
        for i, group in enumerate(tiles.groups)
        if group == "manual"
    ]
    if manual:
        raise _manual(text, ", ".join(manual))
    if rank != len(shape):
        raise LayoutError(
            f"{text} tiles {rank} dimensions (tile sizes {list(tiles.dims)}, of which the last {len(tiles.groups)} are "
            f"subgroups), but the array has {len(shape)} (shape {list(shape)}); give one tile size per dimension"
        )
    layout = _over_iota(tiles, shape, dtype) or _over_list(tiles, shape, dtype)
    return _by_digits(layout) or layout


def _over_iota(tiles: _Tiles, shape: Sequence[int], dtype: Any) -> Layout | None:
    """Over a mesh with an axis per iota dimension; None where the tiles cut across these, or for a list."""
    if tiles.ids is not None:
        return None
    mesh = Mesh([(f"d{i}", size) for i, size in enumerate(tiles.reshape)])
    axes = _dealt(mesh, [SubAxis(mesh.names[i]) for i in tiles.order], tiles.dims)
    return None if axes is None else _grouped(mesh, axes, tiles.groups, shape, dtype)


def _dealt(mesh: Mesh, axes: Sequence[SubAxis], sizes: Sequence[int]) -> list[list[SubAxis]] | None:
    """Deal out the axes, major to minor, into lists with these products, cutting axes where needed."""
    left = [(axis.axis, 1, mesh.count([axis])) for axis in reversed(axes)]
    dealt: list[list[SubAxis]] = []
    for size in sizes:
        taken: list[SubAxis] = []
        need = size
        while need > 1:
            name, pre, extent = left.pop()
            part = math.gcd(need, extent)
            if part not in (need, extent):
                return None
            if part > 1:
                taken.append(mesh.resolve(SubAxis(name, pre, part)))
            if extent > part:
                left.append((name, pre * part, extent // part))
            need //= part
        dealt.append(taken)
    return dealt


def _over_list(tiles: _Tiles, shape: Sequence[int], dtype: Any) -> Layout:
    """Over a mesh with an axis `d{i}` per tile dimension i of size above 1, and its device ids."""
    ids = tiles.ids
    if ids is None:
        numbers = np.arange(math.prod(tiles.dims)).reshape(tiles.reshape)
        ids = tuple(numbers.transpose(tiles.order).ravel().tolist())
    mesh = Mesh([(f"d{i}", size) for i, size in enumerate(tiles.dims) if size > 1], ids)
    axes = [[SubAxis(f"d{i}")] if size > 1 else [] for i, size in enumerate(tiles.dims)]
    return _grouped(mesh, axes, tiles.groups, shape, dtype)


def _grouped(
    mesh: Mesh, axes: list[list[SubAxis]], groups: tuple[str, ...], shape: Sequence[int], dtype: Any
) -> Layout:
    """The layout of tile dimensions over these axes, the last ones subgroups."""
    rank = len(axes) - len(groups)
    partial = [axis for i, group in enumerate(groups) if group == "unreduced" for axis in axes[rank + i]]
    return Layout(mesh, shape, axes[:rank], dtype, partial=partial)


def _numbered(layout: Layout) -> tuple[Alignment, Form] | None:
    """The layout in digits of the device ids 0..n-1; None where its device order does not permute such digits."""
    plain = Layout(Mesh({"d": layout.mesh.size}), layout.shape, None, layout.dtype)
    alignment = align((plain, layout))
    return None if alignment is None else (alignment, alignment.forms[1])


def _by_digits(layout: Layout) -> Layout | None:
    """The same layout over a mesh with default ids and an axis for every digit."""
    found = _numbered(layout)
    if found is None:
        return None
    alignment, form = found
    mesh = Mesh([(f"d{i}", size) for i, size in enumerate(alignment.sizes)])
    axes = [[mesh.names[d] for d in dim] for dim in form.dims]
    return Layout(mesh, layout.shape, axes, layout.dtype, partial=[mesh.names[d] for d in form.partial])


# -- printing ------------------------------------------------------------------------------------------


def layout_to_xla(layout: Layout) -> str:
    """XLA's text: V2 (iota) where the device order permutes digits of the ids 0..n-1, else V1 (a list).

    A layout without sharded dimensions states its devices too, `{devices=[1,8]<=[8]
    last_tile_dim_replicate}`, where XLA itself prints `{replicated}`; a mesh of one device is
    `{maximal device=0}`.

    Raises LayoutError naming every dimension whose block rule is not `ceil`, and reductions but sum.
    """
    _refuse(layout)
    if layout.mesh.size == 1:
        return f"{{maximal device={layout.mesh.device_ids[0]}}}"
    found = _numbered(layout)
    if found is None:
        alignment = align((layout,))
        assert alignment is not None, "the sub-axes of a layout are cuts of one factorisation"
        form = alignment.forms[0]
    else:
        alignment, form = found
    rest = tuple(d for d in range(len(alignment.sizes)) if d not in form.used())
    order = [*(d for dim in form.dims for d in dim), *form.partial, *rest]
    sizes = [alignment.count(dim) for dim in form.dims]
    sizes += [count for count in map(alignment.count, (form.partial, rest)) if count > 1]
    if found is None:
        numbers = layout.mesh.id_array().reshape(alignment.sizes).transpose(order).ravel()
        devices = ",".join(map(str, numbers.tolist()))
    else:
        devices = _iota(alignment.sizes, order)
    return f"{{devices=[{','.join(map(str, sizes))}]{devices}{_group_text(form.partial, rest)}}}"


def _group_text(partial: tuple[int, ...], rest: tuple[int, ...]) -> str:
    if partial:
        return f" last_tile_dims={{unreduced{', replicated' if rest else ''}}}"
    return " last_tile_dim_replicate" if rest else ""


def _iota(sizes: Sequence[int], order: Sequence[int]) -> str:
    """`<=[2,4]T(1,0)`: digits that follow one another before and after transposing are one."""
    runs: list[list[int]] = []
    for d in order:
        if runs and runs[-1][-1] == d - 1:
            runs[-1].append(d)
        else:
            runs.append([d])
    ordered = sorted(runs)
    reshape = ",".join(str(math.prod(sizes[d] for d in run)) for run in ordered)
    transpose = f"T({','.join(str(ordered.index(run)) for run in runs)})" if len(runs) > 1 else ""
    return f"<=[{reshape}]{transpose}"


def _refuse(layout: Layout) -> None:
    ruled = [f"dimension {i} ({dim})" for i, dim in enumerate(layout.dims) if not isinstance(dim.rule, Ceil)]
    if ruled:
        raise LayoutError(
            f"XLA cuts a dimension into blocks of ceil(size/count) only, not {', '.join(ruled)}; redistribute to ceil "
            "blocks first"
        )
    if layout.partial and layout.partial.reduction != "sum":
        raise LayoutError(f"partial {layout.partial}: XLA's unreduced values are sums; reduce it first")

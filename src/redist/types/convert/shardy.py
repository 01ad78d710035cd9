"""Shardy's text, both ways: `[{"x", "y":(1)2}, {}], unreduced={"z"}`.

Shardy's sub-axes are the ones here. Its dimensions are cut into `ceil` blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redist.errors import LayoutError
from redist.types.blocks import Ceil
from redist.types.layout import Layout
from redist.types.mesh import Mesh, SubAxis
from redist.types.text import Scanner

__all__ = ["layout_from_shardy", "layout_to_shardy"]

_WRAPPER = re.compile(r"(#?sdy\.sharding\s*)?<")
_MESH_REF = re.compile(r'@(?:"[^"]*"|[\w.$\-]+)')
_QUOTED = re.compile(r'"[^"]*"')
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2})")  # MLIR prints the bytes of other than ASCII letters so
_PRIORITY = re.compile(r"p\d+")
_LISTS = ("replicated", "unreduced")


@dataclass(frozen=True, slots=True)
class _Axis:
    """A resolved (sub-)axis, its column in the text, and what it is used for."""

    axis: SubAxis
    column: int
    use: str


def layout_from_shardy(text: str, mesh: Mesh, shape: Sequence[int], dtype: Any = "f32") -> Layout:
    """Read Shardy's text, bare or as `#sdy.sharding<@mesh, [...], ...>`, over the given mesh.

    The lists `replicated={...}` and `unreduced={...}` may follow with or without commas; unreduced axes
    are a partial sum. Priorities (`{"x"}p1`) steer propagation only and are dropped. A mesh written out
    in the text must be the given one.

    Raises ParseError for malformed text, unknown axes and axes used twice; LayoutError for open
    dimensions, another mesh than the given one, and dimensions that do not match the rank.
    """
    scan = Scanner(text)
    wrapped = scan.match(_WRAPPER) is not None
    if wrapped:
        _mesh(scan, mesh)
        scan.need(",", "after the mesh")
    scan.need("[", "before the dimensions")
    opened: list[int] = []
    dims: list[list[_Axis]] = []

    def dimension() -> None:
        scan.need("{", "before the axes of a dimension")
        axes, is_open = _axes(scan, mesh, f"dimension {len(dims)}", may_open=True)
        if is_open:
            opened.append(len(dims))
        dims.append(axes)
        scan.match(_PRIORITY)

    scan.listing("]", dimension, "a dimension")
    lists = _trailing_lists(scan, mesh)
    if wrapped:
        scan.need(">", "after the sharding")
    scan.end("the sharding")
    _check_uses(scan, mesh, [*(axis for dim in dims for axis in dim), *(axis for use in _LISTS for axis in lists[use])])
    if opened:
        raise LayoutError(
            f"dimensions {opened} of {text} are open ('?'): propagation may shard them further, so their layout is not "
            "settled; convert the sharding after propagation, or close them by removing '?'"
        )
    if not dims and not mesh.names:  # Shardy writes [] for any rank on a mesh of one device
        dims = [[] for _ in shape]
    if len(dims) != len(shape):
        raise LayoutError(
            f"{text} has {len(dims)} dimensions, but the array has {len(shape)} (shape {list(shape)}); give one list "
            "of axes per dimension"
        )
    axes = [[axis.axis for axis in dim] for dim in dims]
    return Layout(mesh, shape, axes, dtype, partial=[axis.axis for axis in lists["unreduced"]])


def _mesh(scan: Scanner, mesh: Mesh) -> None:
    """`@name`, or `mesh<["x"=2, "y"=2], device_ids=[1,0,2,3]>`, which must agree with the given mesh."""
    if scan.match(_MESH_REF) is not None:
        return
    scan.need("mesh<[", "or '@' and the name of a mesh")

    def axis() -> tuple[str, int]:
        name = _quoted(scan)
        scan.need("=", f'after axis "{name}"')
        return name, scan.integer(f'the size of axis "{name}"')

    axes = tuple(scan.listing("]", axis, "an axis"))
    ids: list[int] | None = None
    if scan.take(","):
        scan.need("device_ids=[", "after the axes of the mesh")
        ids = scan.listing("]", lambda: scan.integer("a device id"), "a device id")
    scan.need(">", "after the mesh")
    if axes != mesh.axes or (ids is not None and tuple(ids) != tuple(mesh.device_ids)):
        written = ",".join(f"{name}={size}" for name, size in axes)
        listed = "" if ids is None else f"@[{','.join(map(str, ids))}]"
        raise LayoutError(
            f"the text is over mesh {written}{listed}, the given mesh is {mesh}; pass the mesh of the text"
        )


def _quoted(scan: Scanner) -> str:
    found = scan.match(_QUOTED)
    if found is None:
        raise scan.fail("expected an axis name in double quotes")
    name = _ESCAPE.sub(lambda byte: bytes([int(byte[1], 16)]), found[1:-1].encode())
    return name.decode(errors="replace")


def _axes(scan: Scanner, mesh: Mesh, use: str, *, may_open: bool = False) -> tuple[list[_Axis], bool]:
    """Axes up to the closing brace; whether the list ends in '?'."""
    axes: list[_Axis] = []
    is_open = False

    def item() -> None:
        nonlocal is_open
        scan.blanks()
        if is_open:
            raise scan.fail("expected '}' after '?', which comes last")
        if may_open and scan.take("?"):
            is_open = True
        else:
            axes.append(_axis(scan, mesh, use))

    scan.listing("}", item, "an axis")
    return axes, is_open


def _axis(scan: Scanner, mesh: Mesh, use: str) -> _Axis:
    scan.blanks()
    column = scan.at
    name = _quoted(scan)
    pre, size = 1, None
    if scan.take(":"):
        scan.need("(", "before the pre-size of a sub-axis")
        pre = scan.integer("the product of the parts before the sub-axis")
        scan.need(")", "after the pre-size of a sub-axis")
        size = scan.integer("the size of the sub-axis")
    try:
        return _Axis(mesh.resolve(SubAxis(name, pre, size)), column, use)
    except LayoutError as error:
        raise scan.fail(str(error), column) from None


def _trailing_lists(scan: Scanner, mesh: Mesh) -> dict[str, list[_Axis]]:
    lists: dict[str, list[_Axis]] = {}
    while True:
        comma = scan.take(",")
        scan.blanks()
        column = scan.at
        word = next((name for name in _LISTS if scan.take(name)), None)
        if word is None:
            if comma:
                raise scan.fail("expected 'replicated={...}' or 'unreduced={...}'")
            return {name: lists.get(name, []) for name in _LISTS}
        if word in lists:
            raise scan.fail(f"'{word}' is stated twice; join the lists", column)
        scan.need("=", f"after '{word}'")
        scan.need("{", f"after '{word}='")
        lists[word] = _axes(scan, mesh, f"the {word} axes")[0]


def _check_uses(scan: Scanner, mesh: Mesh, uses: Sequence[_Axis]) -> None:
    """Every (sub-)axis is used once, as the layout checks too; here with its column, and for replicated axes."""
    for n, second in enumerate(uses):
        for first in uses[:n]:
            if first.axis.axis == second.axis.axis and _overlap(mesh.cut(first.axis), mesh.cut(second.axis)):
                raise scan.fail(
                    f"axis '{second.axis}' in {second.use} is in use already, by '{first.axis}' in {first.use}; "
                    "a (sub-)axis is used once",
                    second.column,
                )


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    (pre_a, size_a), (pre_b, size_b) = a, b
    return max(pre_a, pre_b) < min(pre_a * size_a, pre_b * size_b) or size_a == size_b == 1


def layout_to_shardy(layout: Layout) -> str:
    """Shardy's text without the mesh: `#sdy.sharding<@mesh, TEXT>` is an attribute that MLIR reads.

    Raises LayoutError naming every dimension whose block rule is not `ceil`, and reductions but sum.
    """
    ruled = [f"dimension {i} ({dim})" for i, dim in enumerate(layout.dims) if not isinstance(dim.rule, Ceil)]
    if ruled:
        raise LayoutError(
            f"Shardy cuts a dimension into blocks of ceil(size/count) only, not {', '.join(ruled)}; redistribute to "
            "ceil blocks first"
        )
    if layout.partial and layout.partial.reduction != "sum":
        raise LayoutError(f"partial {layout.partial}: Shardy's unreduced axes are sums; reduce it first")
    dims = f"[{', '.join(_braced(dim.axes) for dim in layout.dims)}]"
    return f"{dims}, unreduced={_braced(layout.partial_axes)}" if layout.partial else dims


def _braced(axes: Iterable[SubAxis]) -> str:
    return f"{{{', '.join(map(_text, axes))}}}"


def _text(axis: SubAxis) -> str:
    return f'"{axis.axis}"' if axis.size is None else f'"{axis.axis}":({axis.pre}){axis.size}'

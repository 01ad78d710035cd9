"""The text syntax of meshes, axes and layouts: a parser whose errors point at the column, and the printer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar, get_args

from redist.errors import LayoutError, ParseError
from redist.types.blocks import BALANCED, CEIL, BlockRule, Offsets
from redist.types.dtypes import dtype_name
from redist.types.layout import Layout, Reduction
from redist.types.mesh import Mesh, SubAxis

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Scanner", "parse_axis", "parse_layout", "parse_mesh", "print_layout"]

_T = TypeVar("_T")
_NAME = re.compile(r"[^\W\d][\w.\-/]*")
_INT = re.compile(r"\d+")
_QUOTED = re.compile(r"'[^']*'")
_BLANKS = re.compile(r"\s*")


class Scanner:
    """A cursor over the text; every failure is a ParseError at the cursor."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, message: str, column: int | None = None) -> ParseError:
        return ParseError(message, self.text, self.at if column is None else column)

    def blanks(self) -> None:
        match = _BLANKS.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def take(self, literal: str) -> bool:
        self.blanks()
        if self.text.startswith(literal, self.at):
            self.at += len(literal)
            return True
        return False

    def need(self, literal: str, after: str) -> None:
        if not self.take(literal):
            raise self.fail(f"expected '{literal}' {after}")

    def match(self, pattern: re.Pattern[str]) -> str | None:
        self.blanks()
        found = pattern.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found.group()

    def name(self, what: str) -> str:
        found = self.match(_NAME)
        if found is None:
            raise self.fail(f"expected {what}")
        return found

    def integer(self, what: str) -> int:
        found = self.match(_INT)
        if found is None:
            raise self.fail(f"expected {what}, a non-negative integer")
        return int(found)

    def listing(self, close: str, item: Callable[[], _T], what: str) -> list[_T]:
        """Comma-separated items up to the closing bracket, which is consumed."""
        items: list[_T] = []
        if self.take(close):
            return items
        while True:
            items.append(item())
            if self.take(close):
                return items
            if not self.take(","):
                raise self.fail(f"expected ',' or '{close}' after {what}")

    def end(self, what: str) -> None:
        self.blanks()
        if self.at != len(self.text):
            raise self.fail(f"unexpected text after {what}")


def parse_mesh(text: str) -> Mesh:
    """Read `x=4,y=2` or `x=4,y=2@[0,4,1,5,2,6,3,7]`. Raises ParseError."""
    scan = Scanner(text)
    axes: list[tuple[str, int]] = []
    columns: dict[str, int] = {}
    scan.blanks()
    while scan.at < len(text) and text[scan.at] != "@":
        column = scan.at
        name = scan.name("an axis name")
        if name in columns:
            raise scan.fail(f"mesh axis named twice: {name}; give each axis its own name", column)
        columns[name] = column
        scan.need("=", f"after axis name '{name}'")
        scan.blanks()
        column = scan.at
        size = scan.integer(f"the size of axis '{name}'")
        if size < 1:
            raise scan.fail(f"axis {name}={size}: an axis has an integer size of at least 1", column)
        axes.append((name, size))
        if not scan.take(","):
            break
        scan.blanks()
        if scan.at == len(text) or text[scan.at] == "@":
            raise scan.fail("expected an axis name")
    ids = None
    column = scan.at
    if scan.take("@"):
        scan.need("[", "before the device ids")
        column = scan.at
        ids = scan.listing("]", lambda: scan.integer("a device id"), "a device id")
    scan.end("the mesh")
    try:
        return Mesh(axes, ids)
    except LayoutError as error:
        raise scan.fail(str(error), column) from None


def parse_axis(text: str) -> SubAxis:
    """Read `x` or `x:(2)4`. Raises ParseError."""
    scan = Scanner(text)
    axis = _axis(scan)
    scan.end("the axis")
    return axis


def _axis(scan: Scanner) -> SubAxis:
    scan.blanks()
    column = scan.at
    name = scan.name("an axis name")
    if not scan.text.startswith(":(", scan.at):
        return SubAxis(name)
    scan.at += 2
    pre = scan.integer(f"the product of the parts before it in sub-axis of '{name}'")
    scan.need(")", "after the pre-size of a sub-axis")
    size = scan.integer("the size of the sub-axis")
    try:
        return SubAxis(name, pre, size)
    except LayoutError as error:
        raise scan.fail(str(error), column) from None


def parse_layout(text: str, mesh: Mesh) -> Layout:
    """Read `f32[1024{x,y:(1)2}, 512]`, `bf16[13{p}:balanced, 5{q}@[0,2]] sum{r}`. Raises ParseError."""
    scan = Scanner(text)
    columns: dict[tuple[int, int], int] = {}

    def resolved(place: tuple[int, int]) -> SubAxis:
        scan.blanks()
        columns[place] = scan.at
        axis = _axis(scan)
        try:
            return mesh.resolve(axis)
        except LayoutError as error:
            raise scan.fail(str(error), columns[place]) from None

    def axes(i: int) -> list[SubAxis]:
        found: list[SubAxis] = []

        def one() -> SubAxis:
            found.append(resolved((i, len(found))))
            return found[-1]

        return scan.listing("}", one, "an axis")

    dtype = _dtype(scan)
    scan.need("[", "before the dimensions")
    sizes: list[int] = []
    per_dim: list[list[SubAxis]] = []
    rules: list[BlockRule] = []

    def dimension() -> None:
        scan.blanks()
        columns[len(sizes), -1] = scan.at
        sizes.append(scan.integer("a dimension's size"))
        per_dim.append(axes(len(sizes) - 1) if scan.take("{") else [])
        scan.blanks()
        column = scan.at
        rules.append(_rule(scan))
        if isinstance(rules[-1], Offsets):
            columns[len(sizes) - 1, -1] = column

    scan.listing("]", dimension, "a dimension")
    scan.blanks()
    column = scan.at
    reduction: Reduction = "sum"
    partial: list[SubAxis] = []
    if scan.at < len(text):
        word = scan.name("a reduction (sum, max, min, prod) or the end")
        if word not in get_args(Reduction):
            raise scan.fail(f"unknown reduction '{word}'; use one of {', '.join(get_args(Reduction))}", column)
        reduction = word  # pyright: ignore[reportAssignmentType]
        scan.need("{", f"after '{word}'")
        columns[-1, -1] = scan.at
        partial = axes(-1)
        if not partial:
            raise scan.fail(f"'{word}' names no axes; list the axes that are unreduced, or leave it out", column)
    scan.end("the layout")
    try:
        return Layout(mesh, sizes, per_dim, dtype, rules=rules, partial=partial, reduction=reduction)
    except LayoutError as error:
        raise scan.fail(str(error), columns[error.place] if error.place else 0) from None


def _dtype(scan: Scanner) -> str:
    scan.blanks()
    column = scan.at
    quoted = scan.match(_QUOTED)
    name = quoted[1:-1] if quoted else scan.match(_NAME)
    if name is None:
        return "f32"
    try:
        return dtype_name(name)
    except LayoutError as error:
        raise scan.fail(str(error), column) from None


def _rule(scan: Scanner) -> BlockRule:
    if scan.take("@"):
        scan.need("[", "before the offsets")
        return Offsets(tuple(scan.listing("]", lambda: scan.integer("an offset"), "an offset")))
    if scan.take(":"):
        scan.blanks()
        column = scan.at
        word = scan.name("a block rule")
        if word not in ("balanced", "ceil"):
            raise scan.fail(f"unknown block rule '{word}'; use balanced, ceil, or offsets as @[0,2,3]", column)
        return BALANCED if word == "balanced" else CEIL
    return CEIL


def print_layout(layout: Layout) -> str:
    """The text that `parse_layout` reads back into an equal layout."""
    dtype = layout.dtype if _NAME.fullmatch(layout.dtype) else f"'{layout.dtype}'"
    text = f"{dtype}[{', '.join(map(str, layout.dims))}]"
    return f"{text} {layout.partial}" if layout.partial else text

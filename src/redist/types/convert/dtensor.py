"""PyTorch DTensor placements, both ways: one per mesh axis, `S(0)`, `R`, `P(sum)`, `_S(0, 2)`.

DTensor applies placements from left to right. Each `S(i)` cuts what is left of dimension i as
torch.chunk does: chunks of ceil(n/k), trailing ones short or empty. Where that is uneven, the nested
chunks differ from `ceil` blocks, and the layout states them as offsets. `_S(i, f)` (`_StridedShard`)
says that f shards of the dimension come from mesh axes further right: it chunks each of f chunks, and
takes one piece of each.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from redist.errors import LayoutError, ParseError
from redist.types.blocks import CEIL, BlockRule, Offsets
from redist.types.layout import Layout, Reduction
from redist.types.mesh import Mesh, SubAxis
from redist.types.text import Scanner

__all__ = ["layout_from_dtensor", "layout_to_dtensor"]

_KINDS: dict[str, Literal["shard", "replicate", "partial"]] = {
    "S": "shard",
    "Shard": "shard",
    "_S": "shard",
    "_StridedShard": "shard",
    "R": "replicate",
    "Replicate": "replicate",
    "P": "partial",
    "Partial": "partial",
    "_Partial": "partial",
}
_STRIDED = ("_S", "_StridedShard")
_REDUCTIONS: dict[str, Reduction] = {"sum": "sum", "max": "max", "min": "min", "prod": "prod", "product": "prod"}
_WORD = re.compile(r"\w+")
_INT = re.compile(r"-?\d+")
_FACTOR = re.compile(r"(?:sf|split_factor)\s*=")
_DIM = re.compile(r"dim\s*=")
_OP = re.compile(r"reduce_op\s*=")

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Placement:
    """One placement: `dim` and `factor` (1 but for `_S`) of a shard, `op` of a partial."""

    kind: Literal["shard", "replicate", "partial"]
    dim: int = 0
    factor: int = 1
    op: str = ""

    def __str__(self) -> str:
        if self.kind == "shard":
            return f"S({self.dim})" if self.factor == 1 else f"_S({self.dim}, {self.factor})"
        return "R" if self.kind == "replicate" else f"P({self.op})"


@dataclass(frozen=True, slots=True)
class _Cut:
    """A mesh axis of size `count` that shards a dimension, `factor` of whose shards come from the right."""

    axis: str
    count: int
    factor: int


def layout_from_dtensor(placements: Sequence[Any], mesh: Mesh, shape: Sequence[int], dtype: Any = "f32") -> Layout:
    """The layout of a DTensor of this global shape: one placement per mesh axis, from left to right.

    A placement is an object of torch.distributed.tensor (recognised by the name of its class) or its
    text: `S(0)`, `Shard(dim=0)`, `R`, `Replicate()`, `P`, `P(max)`, `Partial(sum)`, `_S(0, 2)`. Negative
    dimensions count from the end. Dimensions whose size the shards divide have `ceil` blocks, others
    the blocks of the nested chunks, as offsets.

    Raises ParseError for malformed text; LayoutError for other objects, a wrong number of placements,
    dimensions out of range, reductions that a layout cannot hold (avg, bitwise), more than one
    reduction, and strided shards that leave a device with something else than one block.
    """
    if isinstance(placements, str):
        raise LayoutError(f"placements {placements!r} are one text; give one per mesh axis, as in ['S(0)', 'R']")
    found = [_placement(p) for p in placements]
    texts = f"[{', '.join(map(str, found))}]"
    if len(found) != len(mesh.names):
        raise LayoutError(
            f"{len(found)} placements {texts} for mesh {mesh.axes_text()} of {len(mesh.names)} axes; give one per axis"
        )
    rank = len(shape)
    outside = [
        f"{p} on axis {name}"
        for p, name in zip(found, mesh.names, strict=True)
        if p.kind == "shard" and not -rank <= p.dim < rank
    ]
    if outside:
        remedy = f"shard one of {-rank}..{rank - 1}" if rank else "replicate it"
        raise LayoutError(
            f"{', '.join(outside)}: the array has no such dimension, its shape is {list(shape)}; {remedy}"
        )
    partial, reduction = _partial(found, mesh)
    cuts: list[list[_Cut]] = [[] for _ in shape]
    for p, (name, size) in zip(found, mesh.axes, strict=True):
        if p.kind == "shard":
            cuts[p.dim % rank].append(_Cut(name, size, p.factor))
    dims = [_dimension(i, size, cuts[i]) for i, size in enumerate(shape)]
    axes, rules = [axes for axes, _ in dims], [rule for _, rule in dims]
    return Layout(mesh, shape, axes, dtype, rules=rules, partial=partial, reduction=reduction)


def _partial(placements: Sequence[_Placement], mesh: Mesh) -> tuple[list[str], Reduction]:
    ops = {name: p.op for p, name in zip(placements, mesh.names, strict=True) if p.kind == "partial"}
    foreign = [f"P({op}) on axis {name}" for name, op in ops.items() if op not in _REDUCTIONS]
    if foreign:
        raise LayoutError(
            f"{', '.join(foreign)}: a layout is unreduced by sum, max, min or product. Divide by the number of "
            "devices and use sum in place of avg; reduce others in PyTorch before"
        )
    kinds: list[Reduction] = list(dict.fromkeys(_REDUCTIONS[op] for op in ops.values()))
    if len(kinds) > 1:
        each = ", ".join(f"P({op}) on axis {name}" for name, op in ops.items())
        raise LayoutError(f"{each}: a layout is unreduced by one reduction; reduce all but one in PyTorch before")
    return list(ops), kinds[0] if kinds else "sum"


# -- placements ----------------------------------------------------------------------------------------


def _placement(given: Any) -> _Placement:
    if isinstance(given, str):
        return _parse(given)
    name = type(given).__name__
    kind = _KINDS.get(name)
    if kind is None:
        raise LayoutError(
            f"placement {given!r} of class {name} has no meaning here; use Shard, Replicate, Partial or _StridedShard"
        )
    if kind == "shard":
        return _Placement(kind, int(given.dim), int(given.split_factor) if name in _STRIDED else 1)
    return _Placement(kind, op=str(given.reduce_op)) if kind == "partial" else _Placement(kind)


def _parse(text: str) -> _Placement:
    scan = Scanner(text)
    word = scan.match(_WORD)
    kind = _KINDS.get(word or "")
    if word is None or kind is None:
        raise ParseError("expected a placement: S(dim), R, P(reduction) or _S(dim, split factor)", text, 0)
    inside = scan.take("(")
    found = _Placement(kind, op="sum" if kind == "partial" else "")
    if kind == "shard":
        if not inside:
            raise scan.fail(f"expected '(' and a dimension after '{word}'")
        found = _parse_shard(scan, word)
    elif kind == "partial" and inside:
        scan.match(_OP)
        found = _Placement(kind, op=scan.match(_WORD) or "sum")
    if inside:
        scan.need(")", "after the placement")
    scan.end("the placement")
    return found


def _parse_shard(scan: Scanner, word: str) -> _Placement:
    scan.match(_DIM)
    dim = scan.match(_INT)
    if dim is None:
        raise scan.fail("expected a dimension, an integer")
    factor = 1
    if word in _STRIDED:
        scan.need(",", "and the split factor")
        scan.match(_FACTOR)
        scan.blanks()
        column = scan.at
        factor = scan.integer("the split factor")
        if factor < 1:
            raise scan.fail(f"split factor {factor}; it is at least 1", column)
    return _Placement("shard", int(dim), factor)


# -- meaning -------------------------------------------------------------------------------------------


def _dimension(i: int, size: int, cuts: Sequence[_Cut]) -> tuple[list[SubAxis], BlockRule]:
    """Axes major to minor and block rule of a dimension."""
    axes = _order(cuts)
    if axes is None:
        factors = ", ".join(f"{cut.factor} on axis {cut.axis}={cut.count}" for cut in cuts)
        raise LayoutError(
            f"dimension {i} (size {size}): split factors {factors} are not matched by the axes to the right, so that "
            "devices hold several pieces instead of one block; let each factor be the product of the axes that shard "
            "the dimension first"
        )
    mesh = Mesh([(cut.axis, cut.count) for cut in cuts])
    axes = [mesh.resolve(axis) for axis in axes]
    if size % mesh.size == 0:
        return axes, CEIL
    blocks: list[list[Interval]] = [[] for _ in range(mesh.size)]
    where = mesh.index(axes).tolist()
    for position, coordinates in enumerate(itertools.product(*(range(cut.count) for cut in cuts))):
        blocks[where[position]] = _local([(0, size)], cuts, coordinates)
    starts = _starts(blocks)
    if starts is None:
        plain = Layout(mesh, [size], [axes])
        raise LayoutError(
            f"dimension {i} (size {size}): DTensor's chunks over {_braced(axes)} are {_pieces(blocks)}, no row of "
            f"blocks; ceil blocks there are {_pieces(_bounds(plain))}. Pad the dimension to a multiple of {mesh.size}, "
            "or use Shard in place of _StridedShard"
        )
    return axes, Offsets(starts)


def _order(cuts: Sequence[_Cut]) -> list[SubAxis] | None:
    """Mesh axes from major to minor, or None where the shards that split factors announce are missing.

    A dimension is a row of parts: taken by an axis, or free (an int). A cut skips as many free shards
    as its factor says and takes the next ones; later cuts take the skipped ones.
    """
    parts: list[SubAxis | int] = []
    for cut in cuts:
        skipped = _advance(parts, 0, cut.factor)
        taken = None if skipped is None else _advance(parts, skipped, cut.count)
        if skipped is None or taken is None:
            return None
        if cut.count == 1:
            parts.append(SubAxis(cut.axis))
        pre = 1
        for at in range(skipped, taken):
            part = parts[at]
            if isinstance(part, int):
                parts[at] = SubAxis(cut.axis, pre, part)
                pre *= part
    return None if any(isinstance(part, int) for part in parts) else [p for p in parts if isinstance(p, SubAxis)]


def _advance(parts: list[SubAxis | int], at: int, count: int) -> int | None:
    """The place after `count` free shards from `at` on, splitting or appending a free part.

    None where a free part would have to be cut into sizes that do not divide it.
    """
    while count > 1 and at < len(parts):
        part = parts[at]
        if isinstance(part, int):
            step = math.gcd(part, count)
            if step not in (part, count):
                return None
            if step < part:
                parts[at : at + 1] = [step, part // step]
            count //= step
        at += 1
    if count > 1:
        parts.append(count)
        at += 1
    return at


def _local(held: list[Interval], cuts: Sequence[_Cut], coordinates: Sequence[int]) -> list[Interval]:
    """What a device with these coordinates holds of the intervals, cut by cut."""
    for cut, coordinate in zip(cuts, coordinates, strict=True):
        pieces = [_chunk(held, cut.factor, f) for f in range(cut.factor)]
        held = _merged(interval for piece in pieces for interval in _chunk(piece, cut.count, coordinate))
    return held


def _chunk(held: Sequence[Interval], count: int, index: int) -> list[Interval]:
    """Chunk `index` of torch.chunk(held, count), the missing trailing ones empty."""
    total = sum(stop - start for start, stop in held)
    length = -(-total // count)
    lower, upper = min(index * length, total), min((index + 1) * length, total)
    found: list[Interval] = []
    offset = 0
    for start, stop in held:
        first, last = max(lower, offset), min(upper, offset + stop - start)
        if first < last:
            found.append((start + first - offset, start + last - offset))
        offset += stop - start
    return found


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for start, stop in intervals:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return merged


def _starts(blocks: Sequence[Sequence[Interval]]) -> tuple[int, ...] | None:
    """Starts of blocks that follow one another from 0; None where they do not."""
    starts: list[int] = []
    reached = 0
    for block in blocks:
        starts.append(reached)
        if len(block) > 1 or (block and block[0][0] != reached):
            return None
        reached = block[0][1] if block else reached
    return tuple(starts)


def _bounds(layout: Layout, i: int = 0) -> list[list[Interval]]:
    starts, stops = layout.dim_bounds(i)
    return [[(a, b)] if a < b else [] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]


def _pieces(blocks: Sequence[Sequence[Interval]], most: int = 16) -> str:
    """`[0:2, 2:3+4:5, empty]`."""
    texts = ["+".join(f"{a}:{b}" for a, b in block) or "empty" for block in blocks[:most]]
    more = [f"and {len(blocks) - most} more"] if len(blocks) > most else []
    return f"[{', '.join([*texts, *more])}]"


def _braced(axes: Iterable[SubAxis]) -> str:
    return f"{{{','.join(map(str, axes))}}}"


# -- to DTensor ----------------------------------------------------------------------------------------


def layout_to_dtensor(layout: Layout) -> tuple[str, ...]:
    """One placement per mesh axis, as the text that torch prints.

    Axes in mesh order are `S(i)`; an axis that is more minor than axes to its right is `_S(i, f)`.
    Raises LayoutError for sub-axes, and where DTensor's nested chunks are not the layout's blocks,
    naming both.
    """
    mesh = layout.mesh
    used = [*layout.partial_axes, *(axis for dim in layout.dims for axis in dim.axes)]
    parts = [str(axis) for axis in used if axis.size is not None]
    if parts:
        raise LayoutError(
            f"sub-axes {', '.join(parts)}: DTensor places whole mesh axes; give the parts mesh axes of their own"
        )
    placed = dict.fromkeys(mesh.names, _Placement("replicate"))
    if layout.partial:
        op = "product" if layout.partial.reduction == "prod" else layout.partial.reduction
        placed.update((axis.axis, _Placement("partial", op=op)) for axis in layout.partial.axes)
    for i, dim in enumerate(layout.dims):
        for n, axis in enumerate(dim.axes):
            right = [a for a in dim.axes[:n] if mesh.names.index(a.axis) > mesh.names.index(axis.axis)]
            placed[axis.axis] = _Placement("shard", i, mesh.count(right))
    texts = tuple(map(str, placed.values()))
    _check_blocks(layout, layout_from_dtensor(texts, mesh, layout.shape, layout.dtype), texts)
    return texts


def _check_blocks(layout: Layout, placed: Layout, texts: Sequence[str]) -> None:
    """Raise unless the placements, which have the layout's axes, mean its blocks too."""
    if placed.equivalent(layout):
        return
    wrong = [
        f"dimension {i} ({dim}) has blocks {_pieces(_bounds(layout, i))}, "
        f"DTensor's chunks are {_pieces(_bounds(placed, i))}"
        for i, dim in enumerate(layout.dims)
        if dim != placed.dims[i]
    ]
    raise LayoutError(
        f"placements [{', '.join(texts)}] would mean other blocks: {'; '.join(wrong)}. Pad the dimension to a multiple "
        "of its number of blocks, or redistribute to DTensor's blocks first"
    )

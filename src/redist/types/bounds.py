"""What a redistribution has to move: missing elements per device, and the lower bound on the busiest one.

`missing(d) = dst(d) minus src(d)`. No plan of any kind can have its busiest device receive fewer
elements than `lower_bound`. All counts are elements of the global array's dtype.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.errors import LayoutError
from redist.types.blocks import block_edges
from redist.types.digits import Alignment, align
from redist.types.layout import Dim

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.types.layout import Layout

__all__ = ["lower_bound", "max_missing", "missing_by_device", "require_same_array"]


def require_same_array(src: Layout, dst: Layout) -> None:
    """Raise LayoutError unless both lay out one array, and dst is unreduced only where src is."""
    problems: list[str] = []
    if src.rank != dst.rank:
        problems.append(f"rank {src.rank} (shape {list(src.shape)}) and rank {dst.rank} (shape {list(dst.shape)})")
    else:
        problems.extend(
            f"dimension {i} has size {a} in the source and {b} in the target"
            for i, (a, b) in enumerate(zip(src.shape, dst.shape, strict=True))
            if a != b
        )
    if src.dtype != dst.dtype:
        problems.append(f"dtype {src.dtype} in the source and {dst.dtype} in the target")
    if problems:
        raise LayoutError(
            f"source and target lay out different arrays: {'; '.join(problems)}. A redistribution keeps shape and "
            "dtype; reshape or cast before or after it"
        )
    extra = _extra_partial(src, dst)
    if extra:
        raise LayoutError(extra)


def _extra_partial(src: Layout, dst: Layout) -> str | None:
    if dst.partial is None or dst.mesh.count(dst.partial.axes) == 1:
        return None
    remedy = "reduce in the target, or state the source as unreduced over the same axes"
    if src.partial is None:
        return f"the target is unreduced ({dst.partial}) where the source is not; {remedy}"
    if src.partial.reduction != dst.partial.reduction:
        return f"the target is unreduced by {dst.partial.reduction}, the source by {src.partial.reduction}; {remedy}"
    alignment = align((_unsharded(src), _unsharded(dst)))
    if alignment is None or not set(alignment.forms[1].partial) <= set(alignment.forms[0].partial):
        return f"the target is unreduced over axes ({dst.partial}) where the source ({src.partial}) is not; {remedy}"
    return None


def _unsharded(layout: Layout) -> Layout:
    """The layout with its partial axes alone, whose cuts are all that matter for what is unreduced."""
    return layout.with_dims([Dim(dim.size) for dim in layout.dims])


def missing_by_device(src: Layout, dst: Layout) -> dict[int, int]:
    """Elements of its target block that each device of dst does not hold in src, partial axes aside."""
    counts = _missing(src, dst)
    return dict(zip(dst.mesh.device_ids, counts.tolist(), strict=True))


def max_missing(src: Layout, dst: Layout) -> int:
    """max over devices of |missing(d)|, partial axes aside; no devices are enumerated where aligned."""
    alignment = align((src, dst))
    if alignment is None:
        return int(_missing(src, dst).max())
    if src.is_even() and dst.is_even():
        return _even_missing(src, dst, alignment)
    return _uneven_missing(src, dst, alignment)


@lru_cache(maxsize=4096)
def lower_bound(src: Layout, dst: Layout) -> int:
    """Elements that the busiest device must receive at least, whatever the plan.

    Without partial axes to reduce, max over devices of |missing(d)|. With them, per element and kept
    partial coordinate (contributors - 1) + (destinations - 1) receives, one more where no destination
    contributes; the bound is max(largest need of one device, total / devices), rounded up.
    """
    reduced = _reduced_count(src, dst)
    if reduced == 1:
        return max_missing(src, dst)
    total = _total_with_reduction(src, dst, reduced)
    devices = dst.mesh.size if src.mesh.same_devices(dst.mesh) else len({*src.mesh.device_ids, *dst.mesh.device_ids})
    return max(dst.block_elements(), -(-total // devices))


# -- without reduction ---------------------------------------------------------------------------------


def _missing(src: Layout, dst: Layout) -> NDArray[np.int64]:
    """|missing(d)| by position of dst's mesh, over all devices."""
    starts, stops = dst.boxes()
    need = np.prod(stops - starts, axis=1, dtype=np.int64)
    where, held = _positions(src, dst)
    src_starts, src_stops = src.boxes()
    overlap = np.minimum(stops, src_stops[where]) - np.maximum(starts, src_starts[where])
    shared = np.prod(np.maximum(overlap, 0), axis=1, dtype=np.int64)
    return need - np.where(held, shared, 0)


def _positions(src: Layout, dst: Layout) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Per position of dst's mesh, the position of the same device in src's (0 and False where absent)."""
    if src.mesh.device_ids == dst.mesh.device_ids:
        return np.arange(dst.mesh.size), np.ones(dst.mesh.size, dtype=bool)
    ids = src.mesh.id_array()
    order = np.argsort(ids)
    wanted = dst.mesh.id_array()
    found = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    where = order[found]
    held = ids[where] == wanted
    return np.where(held, where, 0), held


def _even_missing(src: Layout, dst: Layout, alignment: Alignment) -> int:
    """All blocks are equal, so only the overlap varies with the device. In a dimension where one digit
    list is a prefix of the other the blocks nest and the overlap is fixed; where the lists part, some
    device (first digit 0 in one, last in the other) has no overlap at all."""
    block = math.prod(dst.block_shape())
    overlap = 1
    for i, (ours, theirs) in enumerate(zip(src.block_shape(), dst.block_shape(), strict=True)):
        a, b = (form.dims[i] for form in alignment.forms)
        if a[: len(b)] != b[: len(a)]:
            return block
        overlap *= min(ours, theirs)
    return block - overlap


def _uneven_missing(src: Layout, dst: Layout, alignment: Alignment) -> int:
    """Dimensions that share no digit vary independently: per group of dimensions, the pairs (target
    length, overlap) that its digits can take; the maximum is over their products."""
    pairs: set[tuple[int, int]] = {(1, 1)}
    for group in _groups(alignment):
        found = _group_pairs(src, dst, alignment, group)
        pairs = _undominated({(n * m, o * p) for n, o in pairs for m, p in found})
    return max(need - overlap for need, overlap in pairs)


def _undominated(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Drop what needs no more and overlaps no less than another pair."""
    kept: list[tuple[int, int]] = []
    for need, overlap in sorted(pairs, key=lambda p: (-p[0], p[1])):
        if not kept or overlap < kept[-1][1]:
            kept.append((need, overlap))
    return set(kept)


def _groups(alignment: Alignment) -> list[list[int]]:
    """Dimensions, grouped by shared digits."""
    groups: list[tuple[set[int], list[int]]] = []
    first, second = alignment.forms[:2]
    for i, (a, b) in enumerate(zip(first.dims, second.dims, strict=True)):
        digits, members = {*a, *b}, [i]
        apart: list[tuple[set[int], list[int]]] = []
        for other_digits, other_members in groups:
            if digits & other_digits:
                digits |= other_digits
                members = other_members + members
            else:
                apart.append((other_digits, other_members))
        groups = [*apart, (digits, members)]
    return [members for _, members in groups]


def _group_pairs(src: Layout, dst: Layout, alignment: Alignment, group: list[int]) -> set[tuple[int, int]]:
    digits = sorted({d for i in group for form in alignment.forms[:2] for d in form.dims[i]})
    if alignment.count(digits) > _FEW:
        # Most large problems have a device at the corner of the mesh that needs a full block and holds none of it.
        corners = _table(src, dst, alignment, group, {d: np.asarray([0, alignment.sizes[d] - 1]) for d in digits})
        largest = math.prod(dst.block_shape()[i] for i in group)
        if (largest, 0) in corners:
            return {(largest, 0)}
    return _table(src, dst, alignment, group, {d: np.arange(alignment.sizes[d]) for d in digits})


_FEW = 4096


def _table(
    src: Layout, dst: Layout, alignment: Alignment, group: list[int], values: dict[int, NDArray[np.int64]]
) -> set[tuple[int, int]]:
    """Undominated (target volume, overlap) of a group of dimensions, its digits running over `values`."""
    need = np.ones([1] * len(values), dtype=np.int64)
    overlap = need
    for i in group:
        length, shared = _dim_table(src, dst, alignment, i, values)
        need, overlap = need * length, overlap * shared
    # What the target does not depend on matters only where it leaves least overlap.
    apart = tuple(n for n in range(need.ndim) if need.shape[n] == 1 < overlap.shape[n])
    overlap = overlap.min(axis=apart, keepdims=True)
    need, overlap = (a.ravel() for a in np.broadcast_arrays(need, overlap))
    least = {int(n): int(overlap[need == n].min()) for n in np.unique(need)}
    return _undominated(set(least.items()))


def _dim_table(
    src: Layout, dst: Layout, alignment: Alignment, i: int, values: dict[int, NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(target length, overlap) of dimension i, broadcastable arrays with an axis for each digit in `values`."""
    order = {d: n for n, d in enumerate(sorted(values))}
    edges: list[NDArray[np.int64]] = []
    for layout, form in zip((src, dst), alignment.forms[:2], strict=True):
        block = np.zeros([1] * len(order), dtype=np.int64)
        for d in form.dims[i]:
            shape = [1] * len(order)
            shape[order[d]] = len(values[d])
            block = block * alignment.sizes[d] + values[d].reshape(shape)
        dim = layout.dims[i]
        count = alignment.count(form.dims[i])
        edges += [block_edges(dim.size, count, dim.rule, block + end) for end in (0, 1)]
    src_lower, src_upper, lower, upper = edges
    return upper - lower, np.maximum(np.minimum(src_upper, upper) - np.maximum(src_lower, lower), 0)


# -- with reduction ------------------------------------------------------------------------------------


def _reduced_count(src: Layout, dst: Layout) -> int:
    """How many contributions are reduced into one between the two layouts."""
    return src.mesh.count(src.partial_axes) // max(1, dst.mesh.count(dst.partial_axes))


def _total_with_reduction(src: Layout, dst: Layout, contributors: int) -> int:
    kept = dst.mesh.count(dst.partial_axes)
    elements = math.prod(dst.shape)
    holders = dst.mesh.size // (math.prod(dst.block_counts()) * kept)
    covered = _covered(src, dst)
    return elements * kept * (contributors - 1 + holders - 1 + 1) - covered * kept


def _covered(src: Layout, dst: Layout) -> int:
    """Elements for which some destination device holds a contribution (per kept partial coordinate).

    For one element the holders in src fix the source digits and those in dst the target digits, so the
    overlaps of devices that differ in a used digit are disjoint: their sum is the count.
    """
    alignment = align((src, dst))
    if alignment is None:
        return _covered_by_device(src, dst)
    digits = sorted({d for form in alignment.forms for dim in form.dims for d in dim})
    values = {d: np.arange(alignment.sizes[d]) for d in digits}
    operands: list[object] = []
    for i in range(dst.rank):
        overlap = _dim_table(src, dst, alignment, i, values)[1]
        mine = [n for n, d in enumerate(digits) if any(d in form.dims[i] for form in alignment.forms)]
        operands += [overlap.reshape([overlap.shape[n] for n in mine]).astype(object), mine]
    if not operands:
        return 1
    if math.prod(dst.shape) < 2**62:
        operands = [o.astype(np.int64) if isinstance(o, np.ndarray) else o for o in operands]
    contract: Any = np.einsum  # its stubs do not know the form of operands and index lists in turns
    return int(contract(*operands, [], optimize=True))


def _covered_by_device(src: Layout, dst: Layout) -> int:
    where, held = _positions(src, dst)
    (src_starts, src_stops), (starts, stops) = src.boxes(), dst.boxes()
    low, high = np.maximum(starts, src_starts[where]), np.minimum(stops, src_stops[where])
    boxes = {
        (tuple(a), tuple(b))
        for a, b, here in zip(low.tolist(), high.tolist(), held.tolist(), strict=True)
        if here and all(p < q for p, q in zip(a, b, strict=True))
    }
    return sum(math.prod(q - p for p, q in zip(a, b, strict=True)) for a, b in boxes)

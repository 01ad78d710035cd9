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
from redist.types.blocks import even
from redist.types.digits import Alignment, align
from redist.types.layout import Dim
from redist.types.tables import Values, digits_of, dim_groups, overlap, overlap_limits, pieces

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
    where = src.mesh.positions_of(dst.mesh.id_array())
    return np.maximum(where, 0), where >= 0


def _even_missing(src: Layout, dst: Layout, alignment: Alignment) -> int:
    """All blocks are equal, so only the overlap varies with the device. Where digit lists part, some device
    (first digit 0 in one, last in the other) has no overlap at all."""
    block = math.prod(dst.block_shape())
    overlaps = [_fixed_overlap(src, dst, alignment, i) for i in range(dst.rank)]
    return block if None in overlaps else block - math.prod(n for n in overlaps if n is not None)


def _uneven_missing(src: Layout, dst: Layout, alignment: Alignment) -> int:
    """Dimensions that share no digit vary independently: per group of dimensions, the pairs (target
    length, overlap) that its digits can take; the maximum is over their products."""
    pairs: set[tuple[int, int]] = {(1, 1)}
    for group in dim_groups(alignment, range(dst.rank)):
        found = _group_pairs(src, dst, alignment, group)
        pairs = _undominated({(n * m, o * p) for n, o in pairs for m, p in found})
    return max(need - overlap for need, overlap in pairs)


def _undominated(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Drop what needs no more and misses no more than another pair: since other dimensions multiply the
    overlap by no more than they multiply the need, such a pair never decides."""
    kept: list[tuple[int, int]] = []
    for need, shared in sorted(pairs, key=lambda p: (-p[0], p[1])):
        if not kept or need - shared > kept[-1][0] - kept[-1][1]:
            kept.append((need, shared))
    return set(kept)


def _group_pairs(src: Layout, dst: Layout, alignment: Alignment, group: list[int]) -> set[tuple[int, int]]:
    digits = digits_of(alignment, group)
    largest = math.prod(dst.block_shape()[i] for i in group)
    found: set[tuple[int, int]] = set()
    per_digit = int(_SAMPLE ** (1 / max(1, len(digits))))
    if per_digit > 1 and alignment.count(digits) > _SAMPLE:
        # Most large problems have some device that needs a full block and holds none of it, often at a corner.
        spread = {d: np.unique(np.linspace(0, alignment.sizes[d] - 1, per_digit, dtype=np.int32)) for d in digits}
        found = _table(src, dst, alignment, group, spread)
    for values in pieces(alignment, digits):
        if (largest, 0) in found:
            break
        limits = [overlap_limits(src, dst, alignment, i, values) for i in group]
        most, least = (math.prod(of) for of in zip(*limits, strict=True))
        if not any(need >= most and need - shared >= most - least for need, shared in found):
            found = _undominated(found | _table(src, dst, alignment, group, values))
    return found


_SAMPLE = 4096


def _table(src: Layout, dst: Layout, alignment: Alignment, group: list[int], values: Values) -> set[tuple[int, int]]:
    """Undominated (target volume, overlap) of a group of dimensions, its digits running over `values`."""
    need, shared = overlap(src, dst, alignment, group[0], values)
    for i in group[1:]:
        length, common = overlap(src, dst, alignment, i, values)
        need, shared = need.astype(np.int64) * length, shared.astype(np.int64) * common
    # What the target does not depend on matters only where it leaves least overlap.
    apart = tuple(n for n in range(need.ndim) if need.shape[n] == 1 < shared.shape[n])
    shared = shared.min(axis=apart, keepdims=True)
    need, shared = (a.ravel() for a in np.broadcast_arrays(need, shared))
    found: set[tuple[int, int]] = set()
    while len(need):
        most = need.max()
        least = shared[need == most].min()
        found.add((int(most), int(least)))
        better = need - shared > most - least
        need, shared = need[better], shared[better]
    return found


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
    constant, varying = 1, list[int]()
    for i in range(dst.rank):
        fixed = _fixed_overlap(src, dst, alignment, i)
        if fixed is None:
            varying.append(i)
        else:
            constant *= fixed
    free = set(digits_of(alignment, range(dst.rank))).difference(digits_of(alignment, varying))
    return constant * alignment.count(free) * _sum_of_overlaps(src, dst, alignment, varying)


def _fixed_overlap(src: Layout, dst: Layout, alignment: Alignment, i: int) -> int | None:
    """The overlap in dimension i where every device has the same: equal blocks that nest."""
    sizes: list[int] = []
    for layout, form in zip((src, dst), alignment.forms, strict=True):
        dim, count = layout.dims[i], alignment.count(form.dims[i])
        if not even(dim.size, count, dim.rule):
            return None
        sizes.append(dim.size // count)
    a, b = (form.dims[i] for form in alignment.forms)
    return min(sizes) if a[: len(b)] == b[: len(a)] else None


def _sum_of_overlaps(src: Layout, dst: Layout, alignment: Alignment, dims: list[int]) -> int:
    """Sum over the digits of these dimensions of the product of their overlaps."""
    contract: Any = np.einsum  # its stubs do not know the form of operands and index lists in turns
    total = 1
    for group in dim_groups(alignment, dims):
        digits = digits_of(alignment, group)
        if len(group) == 1 and _partitions(src, dst, alignment, group[0]):
            total *= dst.dims[group[0]].size
            continue
        found = 0
        for values in pieces(alignment, digits):
            operands: list[object] = []
            for i in group:
                shared = overlap(src, dst, alignment, i, values)[1]
                mine = [n for n, d in enumerate(digits) if any(d in form.dims[i] for form in alignment.forms)]
                kind = np.int64 if math.prod(dst.shape) < 2**62 else object
                operands += [shared.reshape([shared.shape[n] for n in mine]).astype(kind, copy=False), mine]
            found += int(contract(*operands, [], optimize=True))
        total *= found
    return total


def _partitions(src: Layout, dst: Layout, alignment: Alignment, i: int) -> bool:
    """Whether the overlaps in dimension i are the blocks of one cut of it: only one side cuts it, or both alike."""
    a, b = (form.dims[i] for form in alignment.forms)
    return not a or not b or (a == b and src.dims[i].rule == dst.dims[i].rule)


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

"""When two layouts mean the same: the same block on every device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from redist.types.blocks import even
from redist.types.digits import Alignment, align
from redist.types.tables import digits_of, dim_edges, dim_groups, pieces, straight_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.types.layout import Layout

__all__ = ["equivalent"]


def equivalent(a: Layout, b: Layout) -> bool:
    """Whether both put the same block on every device; decided on digits where the layouts are aligned."""
    if a == b:
        return True
    if not a.same_array(b) or not a.mesh.same_devices(b.mesh) or not _same_reduction(a, b):
        return False
    alignment = align((a, b))
    if alignment is None:
        return _equivalent_by_device(a, b)
    first, second = alignment.forms
    if set(first.partial) != set(second.partial):
        return False
    if 0 in a.shape:
        return _equivalent_on_digits(a, b, alignment)
    doubtful = False
    for i, (dim_a, dim_b) in enumerate(zip(a.dims, b.dims, strict=True)):
        if first.dims[i] == second.dims[i]:
            if dim_a.rule != dim_b.rule:
                return False
        elif _even(a, i) or _even(b, i):
            return False
        else:  # devices without a block may hide that the order of the axes differs
            doubtful = True
    return not doubtful or _equivalent_on_digits(a, b, alignment)


def _equivalent_on_digits(a: Layout, b: Layout, alignment: Alignment) -> bool:
    """Blocks have equal lengths everywhere, and equal starts wherever no dimension's block is empty.

    Groups of dimensions that share no digit vary independently: a device with a block at another place
    exists if some group has a place where starts differ, and every other one a place with elements.
    """
    filled_somewhere, moved_somewhere = True, False
    for group in dim_groups(alignment, range(a.rank)):
        elements = moved = False
        for values in pieces(alignment, digits_of(alignment, group)):
            lines = [
                straight_line(layout, alignment, form, i, values) for i in group for form, layout in ((0, a), (1, b))
            ]
            lengths = [line[2] for line in lines if line is not None]
            if len(lengths) == len(lines) and lengths[::2] == lengths[1::2] and 0 in lengths:
                continue  # all blocks are empty here
            filled, apart = np.asarray(True), np.asarray(False)
            for i in group:
                (start, stop), (other, other_stop) = (
                    dim_edges(layout, alignment, form, i, values) for form, layout in enumerate((a, b))
                )
                length = stop - start
                if np.any(length != other_stop - other):
                    return False
                filled, apart = filled & (length > 0), apart | (start != other)
            elements = elements or bool(filled.any())
            moved = moved or bool((filled & apart).any())
        filled_somewhere, moved_somewhere = filled_somewhere and elements, moved_somewhere or moved
    return not (filled_somewhere and moved_somewhere)


def _even(layout: Layout, i: int) -> bool:
    dim = layout.dims[i]
    return even(dim.size, layout.mesh.count(dim.axes), dim.rule)


def _same_reduction(a: Layout, b: Layout) -> bool:
    reductions = [
        layout.partial.reduction if layout.partial and layout.mesh.count(layout.partial.axes) > 1 else None
        for layout in (a, b)
    ]
    return reductions[0] == reductions[1]


def _equivalent_by_device(a: Layout, b: Layout) -> bool:
    order_a, order_b = np.argsort(a.mesh.id_array()), np.argsort(b.mesh.id_array())
    (starts_a, stops_a), (starts_b, stops_b) = a.boxes(), b.boxes()
    starts_a, stops_a, starts_b, stops_b = starts_a[order_a], stops_a[order_a], starts_b[order_b], stops_b[order_b]
    shapes = stops_a - starts_a
    if not np.array_equal(shapes, stops_b - starts_b):
        return False
    holds = np.all(shapes > 0, axis=1)
    if not np.array_equal(starts_a[holds], starts_b[holds]):
        return False
    return np.array_equal(
        _classes(a.mesh.index(a.partial_axes)[order_a]), _classes(b.mesh.index(b.partial_axes)[order_b])
    )


def _classes(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels renumbered by first occurrence, so that equal partitions compare equal."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]

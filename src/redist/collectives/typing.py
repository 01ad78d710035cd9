"""The typing rule of each step: the layout after it, from the layout before it.

Source: arXiv 2112.01075 section 4.3, extended to sub-axes, several axes and dimensions at once, uneven
blocks and partial results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import assert_never

import numpy as np

from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    AxesByDim,
    Chunk,
    Exchange,
    Free,
    Owner,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    op_name,
)
from redist.errors import LayoutError, TypingError
from redist.types.blocks import CEIL, BlockRule, Offsets, block_edges, even
from redist.types.digits import refine_axes
from redist.types.layout import Dim, Layout
from redist.types.mesh import Mesh, SubAxis

__all__ = ["after", "chunk_parts", "layouts_of"]


def after(step: Step, before: Layout) -> Layout:
    """The layout after a step. Raises TypingError naming the premise that fails, with its values."""
    try:
        return _after(step, before)
    except LayoutError as error:
        raise TypingError(f"{op_name(step)} on {before}: {error}") from None


def layouts_of(steps: Iterable[Step], source: Layout) -> tuple[Layout, ...]:
    """The layout before each step, and the one after the last. Raises TypingError as `after` does."""
    layouts = [source]
    for step in steps:
        layouts.append(after(step, layouts[-1]))
    return tuple(layouts)


@lru_cache(maxsize=4096)
def _after(step: Step, before: Layout) -> Layout:
    match step:
        case Slice(axes, rules):
            return _appended(before, _checked(before, axes), dict(rules), before.partial_axes)
        case AllGather(axes):
            return _gathered(before, _checked(before, axes))
        case AllToAll():
            return _exchanged_axes(step, before)
        case Permute():
            return _permuted(step, before)
        case Exchange():
            return _exchanged(step, before)
        case ReduceScatter(axes, rules):
            found = _checked(before, axes)
            rest = _without_partial(before, [axis for _, dim_axes in found for axis in dim_axes])
            return _appended(before, found, dict(rules), rest)
        case AllReduce(axes):
            if not axes:
                raise LayoutError("no axes are reduced; name at least one")
            return before.with_dims(before.dims, _without_partial(before, tuple(map(before.mesh.resolve, axes))))
        case Chunk():
            return _chunked(step, before)
        case _:
            assert_never(step)


def _checked(before: Layout, axes: AxesByDim) -> AxesByDim:
    """Axes resolved against the mesh, dimensions checked."""
    if not axes:
        raise LayoutError("the step names no dimension; name at least one")
    dims = [i for i, _ in axes]
    _check_dims(before, dims)
    if len(set(dims)) != len(dims):
        raise LayoutError(f"a dimension is named twice in {dims}; list its axes together")
    empty = [i for i, dim_axes in axes if not dim_axes]
    if empty:
        raise LayoutError(f"no axes are given for dimensions {empty}; leave those dimensions out")
    return tuple((i, tuple(map(before.mesh.resolve, dim_axes))) for i, dim_axes in axes)


def _check_dims(before: Layout, dims: Sequence[int]) -> None:
    outside = sorted({i for i in dims if not 0 <= i < before.rank})
    if outside:
        raise LayoutError(f"dimensions {outside} do not exist in an array of rank {before.rank}")


def _append(before: Layout, i: int, axes: Sequence[SubAxis], rule: BlockRule | None) -> Dim:
    """`A --> A·axes` on dimension i. Premise: the new blocks nest in the old ones."""
    dim = before.dims[i]
    count, added = before.mesh.count(dim.axes), before.mesh.count(axes)
    if count == 1:
        return Dim(dim.size, (*dim.axes, *axes), rule or CEIL)
    if rule is not None:
        raise LayoutError(
            f"a block rule ({str(rule).lstrip(':') or 'ceil'}) is stated for dimension {i} ({dim}), which is sharded "
            "already; state one only where a dimension was not sharded"
        )
    return Dim(dim.size, (*dim.axes, *axes), _split_rule(i, dim, count, added))


def _split_rule(i: int, dim: Dim, count: int, added: int) -> BlockRule:
    finer = count * added
    if dim.size % finer == 0 and even(dim.size, count, dim.rule):
        return CEIL
    if isinstance(dim.rule, Offsets):
        if added == 1:
            return dim.rule
        raise LayoutError(
            f"dimension {i} ({dim}) has explicit offsets, which do not say how a block splits in {added}; use an "
            "exchange"
        )
    blocks = np.arange(count + 1, dtype=np.int64)
    if np.array_equal(
        block_edges(dim.size, count, dim.rule, blocks), block_edges(dim.size, finer, dim.rule, blocks * added)
    ):
        return dim.rule
    longest = -(-dim.size // count)
    raise LayoutError(
        f"blocks of dimension {i} do not nest: {dim} has blocks of up to {longest} elements, which {added} does not "
        f"divide, so {finer} blocks of up to {-(-dim.size // finer)} cut across them; use an exchange"
    )


def _drop(before: Layout, i: int, axes: Sequence[SubAxis]) -> Dim:
    """`A·axes --> A` on dimension i. Premises: the axes are its minor suffix, in any order; blocks nest."""
    dim = before.dims[i]
    fine = refine_axes(before.mesh, dim.axes, axes)
    dropped = refine_axes(before.mesh, axes, dim.axes)
    if fine is None or dropped is None:
        raise LayoutError(f"axes {{{_text(axes)}}} and dimension {i} ({dim}) are not cuts of one factorisation")
    kept = tuple(axis for axis in fine if axis not in dropped)
    wide = [axis for axis in fine if before.mesh.count([axis]) > 1]
    stays = [axis for axis in wide if axis not in dropped]
    if len(kept) + len(dropped) != len(fine) or wide[: len(stays)] != stays:
        raise LayoutError(
            f"axes {{{_text(axes)}}} are not the minor suffix of dimension {i} ({dim}); only the last axes of a "
            "dimension can leave it"
        )
    count, removed = before.mesh.count(kept), before.mesh.count(dropped)
    if count == 1:
        return Dim(dim.size, kept)
    if isinstance(dim.rule, Offsets):
        return Dim(dim.size, kept, Offsets(dim.rule.starts[::removed]))
    _split_rule(i, Dim(dim.size, kept, dim.rule), count, removed)
    return Dim(dim.size, kept, dim.rule)


def _text(axes: Iterable[SubAxis]) -> str:
    return ",".join(map(str, axes))


def _appended(before: Layout, axes: AxesByDim, rules: dict[int, BlockRule], partial: Sequence[SubAxis]) -> Layout:
    named = {i for i, _ in axes}
    stray = sorted(set(rules) - named)
    if stray:
        raise LayoutError(f"block rules are stated for dimensions {stray}, which the step does not shard")
    dims = list(before.dims)
    for i, dim_axes in axes:
        dims[i] = _append(before, i, dim_axes, rules.get(i))
    return before.with_dims(dims, partial)


def _gathered(before: Layout, axes: AxesByDim) -> Layout:
    dims = list(before.dims)
    for i, dim_axes in axes:
        dims[i] = _drop(before, i, dim_axes)
    return before.with_dims(dims)


def _exchanged_axes(step: AllToAll, before: Layout) -> Layout:
    if not step.moves:
        raise LayoutError("the step moves no axes; name at least one move")
    _check_dims(before, [i for _, source, target in step.moves for i in (source, target)])
    lost: dict[int, list[SubAxis]] = {}
    gained: dict[int, list[SubAxis]] = {}
    for axes, i, j in step.moves:
        resolved = list(map(before.mesh.resolve, axes))
        if not resolved:
            raise LayoutError(f"the move from dimension {i} to {j} names no axes; leave it out")
        lost.setdefault(i, []).extend(resolved)
        gained.setdefault(j, []).extend(resolved)
    both = sorted(set(lost) & set(gained))
    if both:
        raise LayoutError(
            f"dimensions {both} both lose and gain axes; a dimension does one of them in a step, so use two steps or a "
            "permute"
        )
    stray = sorted({i for i, _ in step.rules} - set(gained))
    if stray:
        raise LayoutError(f"block rules are stated for dimensions {stray}, which gain no axes")
    rules = dict(step.rules)
    dims = list(before.dims)
    for i, axes in lost.items():
        dims[i] = _drop(before, i, axes)
    for j, axes in gained.items():
        dims[j] = _append(before, j, axes, rules.get(j))
    return before.with_dims(dims)


def _without_partial(before: Layout, axes: Sequence[SubAxis]) -> tuple[SubAxis, ...]:
    """The partial axes less `axes`. Premise: the value is unreduced over all of them."""
    partial = before.partial_axes
    fine, reduced = refine_axes(before.mesh, partial, axes), refine_axes(before.mesh, axes, partial)
    if fine is None or reduced is None or not set(reduced) <= set(fine):
        state = f"is unreduced over {{{_text(partial)}}} only" if partial else "is fully reduced"
        raise LayoutError(f"axes {{{_text(axes)}}} cannot be reduced: the value {state}")
    if len(set(reduced)) != len(reduced):
        raise LayoutError(f"axes {{{_text(axes)}}} name a part twice; reduce each once")
    return tuple(axis for axis in fine if axis not in reduced)


def _same_contents(step: Permute | Exchange, before: Layout) -> None:
    target = step.layout
    if not before.same_array(target):
        raise LayoutError(f"{target} lays out another array; shape and dtype stay the same")
    ours, theirs = before.mesh.count(before.partial_axes), target.mesh.count(target.partial_axes)
    if ours != theirs or (
        ours > 1 and before.partial and target.partial and before.partial.reduction != target.partial.reduction
    ):
        raise LayoutError(
            f"the value before is {_partial_text(before)} and after it {_partial_text(target)}; data that only moves "
            "stays unreduced as it is: reduce in a step of its own"
        )


def _partial_text(layout: Layout) -> str:
    return f"unreduced ({layout.partial})" if layout.partial else "fully reduced"


def _permuted(step: Permute, before: Layout) -> Layout:
    _same_contents(step, before)
    target = step.layout
    if before.mesh.size != target.mesh.size:
        raise LayoutError(f"{before.mesh.size} devices before and {target.mesh.size} after; whole blocks need as many")
    counts, wanted = before.block_counts(), target.block_counts()
    differing = [
        f"dimension {i} has blocks of {before.dims[i]} ({a}) before and of {target.dims[i]} ({b}) after"
        for i, (a, b) in enumerate(zip(counts, wanted, strict=True))
        if a != b or before.dims[i].rule != target.dims[i].rule
    ]
    if differing:
        raise LayoutError(
            f"blocks differ: {'; '.join(differing)}. Whole blocks move only between equal block counts and rules"
        )
    match step.source:
        case Free(groups):
            _check_free(before, target, groups)
        case Pairs(pairs):
            _check_pairs(before, target, pairs)
        case _:
            assert_never(step.source)
    return target


def _check_free(
    before: Layout, target: Layout, groups: Sequence[tuple[tuple[SubAxis, ...], tuple[SubAxis, ...]]]
) -> None:
    for sender, receiver in groups:
        ours = before.mesh.count(map(before.mesh.resolve, sender))
        theirs = target.mesh.count(map(target.mesh.resolve, receiver))
        if ours != theirs:
            raise LayoutError(
                f"free axes {{{_text(sender)}}} of the sender have {ours} values, {{{_text(receiver)}}} of the "
                f"receiver {theirs}"
            )
    for who, layout, axes in (
        ("sender", before, [axis for sender, _ in groups for axis in sender]),
        ("receiver", target, [axis for _, receiver in groups for axis in receiver]),
    ):
        used = [*layout.partial_axes, *(axis for dim in layout.dims for axis in dim.axes)]
        if not _covers_once(layout.mesh, [*used, *map(layout.mesh.resolve, axes)]):
            raise LayoutError(
                f"free axes {{{_text(axes)}}} of the {who} must be those that {layout} does not use on mesh "
                f"{layout.mesh.axes_text()}, each once"
            )


def _covers_once(mesh: Mesh, axes: Sequence[SubAxis]) -> bool:
    digits = sorted(digit for digit in map(mesh.digit, axes) if digit[1] > 1)
    reached = 1
    for stride, size in digits:
        if stride != reached:
            return False
        reached *= size
    return reached == mesh.size


def _check_pairs(before: Layout, target: Layout, pairs: Sequence[tuple[int, int]]) -> None:
    senders, receivers = [s for s, _ in pairs], [r for _, r in pairs]
    for who, ids, mesh in (("senders", senders, before.mesh), ("receivers", receivers, target.mesh)):
        if sorted(ids) != sorted(mesh.device_ids):
            raise LayoutError(f"{who} {ids} are not the devices of mesh {mesh}, each once")
    source_at = {device: p for p, device in enumerate(before.mesh.device_ids)}
    target_at = {device: p for p, device in enumerate(target.mesh.device_ids)}
    sent = np.asarray([source_at[s] for s in senders])
    received = np.asarray([target_at[r] for r in receivers])
    wrong = np.zeros(len(pairs), dtype=bool)
    for a, b in [
        (before.partial_axes, target.partial_axes),
        *((before.dims[i].axes, target.dims[i].axes) for i in range(before.rank)),
    ]:
        wrong |= before.mesh.index(a, sent) != target.mesh.index(b, received)
    if wrong.any():
        bad = [pairs[int(n)] for n in np.flatnonzero(wrong)]
        raise LayoutError(f"(sender, receiver) pairs {bad} move a block to a device that holds another one in {target}")


def _exchanged(step: Exchange, before: Layout) -> Layout:
    _same_contents(step, before)
    target = step.layout
    if isinstance(step.transfers, Owner):
        return target
    held = dict(zip(before.mesh.device_ids, zip(*(b.tolist() for b in before.boxes()), strict=True), strict=True))
    wanted = dict(zip(target.mesh.device_ids, zip(*(b.tolist() for b in target.boxes()), strict=True), strict=True))
    for transfer in step.transfers:
        for who, device, boxes in (("sender", transfer.sender, held), ("receiver", transfer.receiver, wanted)):
            if device not in boxes:
                raise LayoutError(f"{transfer}: the {who} is not a device of its mesh")
            lower, upper = boxes[device]
            if len(transfer.starts) != before.rank or len(transfer.stops) != before.rank:
                raise LayoutError(f"{transfer}: the box has another rank than the array, {before.rank}")
            if any(
                a < p or b > q or a > b
                for a, b, p, q in zip(transfer.starts, transfer.stops, lower, upper, strict=True)
            ):
                raise LayoutError(
                    f"{transfer}: the box is not inside the {who}'s block, {tuple(lower)} to {tuple(upper)}"
                )
    return target


def chunk_parts(length: int, parts: int) -> list[tuple[int, int]]:
    """(start, stop) of each part of a block of this length: ceil blocks, trailing ones short or empty."""
    size = -(-length // parts)
    return [(min(p * size, length), min((p + 1) * size, length)) for p in range(parts)]


def _chunked(step: Chunk, before: Layout) -> Layout:
    _check_dims(before, [step.dim])
    longest = before.block_shape()[step.dim]
    if not 2 <= step.parts <= max(longest, 2):
        raise LayoutError(
            f"{step.parts} parts of dimension {step.dim} ({before.dims[step.dim]}), whose longest block has {longest} "
            "elements; use from 2 to as many parts"
        )
    if not step.steps:
        raise LayoutError("a chunk has no steps; put at least one in")
    current = before
    for inner in step.steps:
        following = after(inner, current)
        if following.mesh != current.mesh:
            raise LayoutError(
                f"{op_name(inner)} goes from mesh {current.mesh} to {following.mesh}; the steps of a chunk keep "
                "the mesh"
            )
        if step.dim in _touched(inner, current):
            raise LayoutError(
                f"dimension {step.dim} is touched by {op_name(inner)}; chunk along a dimension that the steps leave "
                "alone"
            )
        current = following
    return current


def _touched(step: Step, before: Layout) -> set[int]:
    """Dimensions whose blocks a step changes or moves."""
    match step:
        case Slice(axes, _) | AllGather(axes) | ReduceScatter(axes, _):
            return {i for i, _ in axes}
        case AllToAll(moves, _):
            return {dim for _, i, j in moves for dim in (i, j)}
        case Permute(layout, _) | Exchange(layout, _):
            return {i for i, (a, b) in enumerate(zip(before.dims, layout.dims, strict=True)) if a != b}
        case AllReduce():
            return set()
        case Chunk(dim, _, steps):
            touched = {dim}
            for inner in steps:
                touched |= _touched(inner, before)
                before = after(inner, before)
            return touched
        case _:
            assert_never(step)

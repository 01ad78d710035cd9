"""Routes between meshes whose device orders have no digits in common: slice, permute, gather."""

from __future__ import annotations

import math
from collections.abc import Iterator

from redist.collectives.steps import AllGather, Free, Permute, Slice, Step
from redist.synth.problem import Problem
from redist.synth.single import choose_unused
from redist.types.blocks import Offsets
from redist.types.digits import align
from redist.types.layout import Dim, Layout

__all__ = ["relabelled"]


def relabelled(src: Layout, dst: Layout) -> Iterator[tuple[Step, ...]]:
    """At most one sequence: whole blocks go from the source's mesh to the target's, whatever the ids.

    Exists when both meshes have as many devices and the least common refinement of the block counts
    fits them.
    """
    ours, theirs = align((src,), primes=True), align((dst,), primes=True)
    if ours is None or theirs is None or src.mesh.size != dst.mesh.size:
        return
    before = Problem(ours.sizes, src.shape, ours.forms[0].dims, ours.forms[0].dims, frozenset(ours.forms[0].partial))
    after = Problem(
        theirs.sizes, dst.shape, theirs.forms[0].dims, theirs.forms[0].dims, frozenset(theirs.forms[0].partial)
    )
    counts = [math.lcm(a, b) for a, b in zip(src.block_counts(), dst.block_counts(), strict=True)]
    nothing = ((),) * src.rank
    sliced = choose_unused(
        before, before.source, [c // a for c, a in zip(counts, src.block_counts(), strict=True)], nothing
    )
    waiting = choose_unused(
        after, after.source, [c // b for c, b in zip(counts, dst.block_counts(), strict=True)], nothing
    )
    if sliced is None or waiting is None:
        return
    steps: list[Step] = []
    if any(sliced):
        steps.append(Slice(ours.axes_by_dim(sliced)))
    if any(waiting) and any(isinstance(dim.rule, Offsets) for dim in dst.dims):
        return
    finer = dst.with_dims(
        [
            Dim(dim.size, (*dim.axes, *theirs.axes(digits)), dim.rule)
            for dim, digits in zip(dst.dims, waiting, strict=True)
        ]
    )
    senders = [d for d in before.unused(before.source) if not any(d in digits for digits in sliced)]
    receivers = [d for d in after.unused(after.source) if not any(d in digits for digits in waiting)]
    free = Free(((ours.axes(senders), theirs.axes(receivers)),)) if senders else Free()
    steps.append(Permute(finer, free))
    if any(waiting):
        steps.append(AllGather(theirs.axes_by_dim(waiting)))
    yield tuple(steps)

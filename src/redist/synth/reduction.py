"""How partial results are reduced before the data moves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from redist.collectives.steps import AllReduce, ReduceScatter, Slice, Step
from redist.synth.problem import Problem, appended
from redist.types.digits import Alignment, align
from redist.types.layout import Dim, Layout

__all__ = ["reductions"]


def reductions(src: Layout, dst: Layout) -> Iterator[tuple[Step, ...]]:
    """Step sequences after which src is unreduced over dst's partial axes only; one empty sequence where
    nothing is to be reduced.

    Where the target shards a dimension next over an axis to be reduced, a reduce-scatter goes straight
    there; other axes are reduce-scattered to wherever sizes divide (to be moved or gathered later), or
    all-reduced.
    """
    if src.mesh.count(src.partial_axes) == dst.mesh.count(dst.partial_axes):
        yield ()
        return
    alignment = align((src, dst), primes=True)
    if alignment is None:
        yield from _blindly(src, dst)
        return
    first, second = alignment.forms
    problem = Problem(alignment.sizes, src.shape, first.dims, second.dims, frozenset(first.partial))
    reduced = [d for d in first.partial if d not in second.partial]
    yield from _toward(problem, alignment, reduced)
    if not (src.is_even() and dst.is_even()):
        yield (AllReduce(alignment.axes(reduced)),)


def _blindly(src: Layout, dst: Layout) -> Iterator[tuple[Step, ...]]:
    """No common digits: reduce over what the target does not leave partial, scattered to wherever sizes
    divide, or whole."""
    bare = [Dim(dim.size) for dim in src.dims]
    reduced = src.partial_axes
    if dst.mesh.count(dst.partial_axes) > 1:
        partials = align((src.with_dims(bare), dst.with_dims(bare)))
        assert partials is not None, "the target is partial only over axes of the source's"
        first, second = partials.forms
        reduced = partials.axes([d for d in first.partial if d not in second.partial])
    alone = align((src.with_dims(bare, reduced), src), primes=True)
    assert alone is not None, "parts of a layout's axes are aligned with it"
    digits, form = alone.forms[0].partial, alone.forms[1]
    problem = Problem(alone.sizes, src.shape, form.dims, form.dims, frozenset(form.partial))
    placed, left = _place(problem, list(digits), [problem.count(used) for used in form.dims])
    if not left:
        yield (ReduceScatter(alone.axes_by_dim(placed)),)
    yield (AllReduce(reduced),)


def _toward(problem: Problem, alignment: Alignment, reduced: list[int]) -> Iterator[tuple[Step, ...]]:
    free = set(problem.unused(problem.source))
    rank = len(problem.shape)
    ahead = [b[len(a) :] if b[: len(a)] == a else () for a, b in zip(problem.source, problem.target, strict=True)]
    sliced = [tuple(takewhile(free.__contains__, digits)) for digits in ahead]
    direct = [tuple(takewhile(reduced.__contains__, digits[len(s) :])) for digits, s in zip(ahead, sliced, strict=True)]
    lists = appended(appended(problem.source, tuple(sliced)), tuple(direct))
    others = [d for d in reduced if not any(d in digits for digits in direct)]
    start: list[Step] = []
    if any(sliced):
        start.append(Slice(alignment.axes_by_dim(sliced)))
    placed, left = _place(problem, others, [problem.count(digits) for digits in lists])
    for scattered, whole in ((placed, left), (((),) * rank, others)):
        joined = appended(tuple(direct), tuple(scattered))
        steps = list(start)
        if any(joined):
            steps.append(ReduceScatter(alignment.axes_by_dim(joined)))
        if whole:
            steps.append(AllReduce(alignment.axes(sorted(whole))))
        yield tuple(steps)
        if not others:
            return


def _place(problem: Problem, digits: list[int], counts: list[int]) -> tuple[tuple[tuple[int, ...], ...], list[int]]:
    """(digits appended per dimension so that blocks stay equal, digits that fit nowhere)."""
    placed: list[list[int]] = [[] for _ in counts]
    counts, left = list(counts), list[int]()
    for d in digits:
        for i in range(len(counts)):
            if problem.divides(i, counts[i] * problem.sizes[d]) and problem.shape[i]:
                counts[i] *= problem.sizes[d]
                placed[i].append(d)
                break
        else:
            left.append(d)
    return tuple(map(tuple, placed)), left

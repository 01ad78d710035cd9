"""Step sequences from one layout to another; the cheapest is among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from redist.collectives.steps import AllGather, Exchange, Slice, Step
from redist.collectives.topology import Topology
from redist.collectives.typing import after
from redist.errors import LayoutError, TypingError
from redist.synth.canonical import canonical
from redist.synth.mixed import permute_and_all_to_all
from redist.synth.prices import Prices, route_seconds
from redist.synth.problem import Problem, Route, TimedRoute, cost, shared_prefix
from redist.synth.realise import realise
from redist.synth.reduction import reductions
from redist.synth.relabel import relabelled
from redist.synth.remaining import Remaining
from redist.synth.search import several_moves, slicings
from redist.synth.single import local_route, one_all_to_all, one_permute
from redist.synth.timed import Effort, fastest_route
from redist.types.bounds import lower_bound
from redist.types.digits import Alignment, align
from redist.types.layout import Layout

__all__ = ["Candidate", "exchanges", "in_normal_form", "uniform_candidates"]

_FEW_DIGITS = 5
_FEW_MOVES, _MANY_MOVES = 500, 100_000
"""How many moves are looked at where digits are many, with a route at hand (that seldom finds a better one), and
without one."""
_SHORT = Effort(slicings=200, moves=1000)
"""For routes by time where digits are many."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Steps, and a proven lower bound on what any plan of uniform steps costs: elements received, or
    seconds where the topology counts more than bytes; None where nothing is proven."""

    steps: tuple[Step, ...]
    bound: float | None = None


def uniform_candidates(src: Layout, dst: Layout, topology: Topology, allowed: frozenset[str]) -> Iterator[Candidate]:
    """Sequences of uniform collectives; some may not reach the target where blocks are uneven, or use
    steps that are not allowed."""
    for prefix in _prefixes(src, dst):
        middle = _after_all(prefix, src)
        if middle is None:
            continue
        if middle.equivalent(dst):
            yield Candidate(prefix)
            continue
        for found in _uniform(middle, dst, topology, allowed):
            yield Candidate((*prefix, *found.steps)) if prefix else found


_MOST_SLICINGS = 64


def _prefixes(src: Layout, dst: Layout) -> Iterator[tuple[Step, ...]]:
    """What comes before data moves: reductions, with and without slicing first (for after a reduction it is
    too late to slice)."""
    yield from reductions(src, dst)
    if src.mesh.count(src.partial_axes) == dst.mesh.count(dst.partial_axes):
        return
    setting = _Setting.of(src, dst, primes=True)
    if setting is None:
        return
    partial = setting.alignment.forms[0].partial
    problem = replace(setting.problem, held=frozenset(partial))
    for added in islice(slicings(problem), _MOST_SLICINGS):
        if any(added):
            first = Slice(setting.alignment.axes_by_dim(added))
            sliced = _after_all([first], src)
            if sliced is not None:
                yield from ((first, *prefix) for prefix in reductions(sliced, dst))


def in_normal_form(steps: Iterable[Step]) -> bool:
    """Whether no slice comes after communication (the order of the rest is the planner's own)."""
    communicated = False
    for step in steps:
        if communicated and isinstance(step, Slice):
            return False
        communicated |= not isinstance(step, Slice)
    return True


def exchanges(src: Layout, dst: Layout) -> Iterator[Candidate]:
    """An exchange, after what has to be reduced."""
    for prefix in reductions(src, dst):
        yield Candidate((*prefix, Exchange(dst)))


def _after_all(steps: Iterable[Step], layout: Layout) -> Layout | None:
    try:
        for step in steps:
            layout = after(step, layout)
    except TypingError:
        return None
    return layout


@dataclass(frozen=True, slots=True)
class _Setting:
    """A problem on digits, and what is needed to turn its routes into steps."""

    problem: Problem
    alignment: Alignment
    src: Layout
    dst: Layout

    @staticmethod
    def of(src: Layout, dst: Layout, primes: bool) -> _Setting | None:
        alignment = align((src, dst), primes=primes)
        if alignment is None:
            return None
        first, second = alignment.forms
        problem = Problem(alignment.sizes, src.shape, first.dims, second.dims, frozenset(second.partial))
        return _Setting(problem, alignment, src, dst)

    def steps(self, route: Route | TimedRoute) -> tuple[Step, ...] | None:
        """The steps of a route, None where uneven blocks do not nest or offsets do not extend."""
        try:
            return realise(route, self.problem, self.alignment, self.src, self.dst)
        except (TypingError, LayoutError):
            assert not self.even, f"route {route} of {self.problem} does not type"
            return None

    def prices(self, topology: Topology) -> Prices:
        """What moves on these digits cost."""
        names = tuple(self.alignment.axes([d])[0].axis for d in range(len(self.problem.sizes)))
        links = tuple(map(topology.link, names))
        return Prices(self.problem.sizes, names, links, self.src.itemsize, topology.copies)

    def least_seconds(self, prices: Prices) -> float:
        """What any plan takes at least."""
        return Remaining.of(self.problem, prices).in_all(lower_bound(self.src, self.dst))

    @property
    def even(self) -> bool:
        return self.src.is_even() and self.dst.is_even()


def _uniform(src: Layout, dst: Layout, topology: Topology, allowed: frozenset[str]) -> Iterator[Candidate]:
    fine = _Setting.of(src, dst, primes=True)
    if fine is None:
        yield from (Candidate(steps) for steps in relabelled(src, dst))
        return
    if not allowed >= _MOVES:
        yield from _restricted(fine, allowed)
        return
    prices = None if topology.bytes_only(src.mesh) else fine.prices(topology)
    few = len(fine.problem.sizes) <= _FEW_DIGITS
    best: Route | None = None
    for route, bound in _by_bytes(fine):
        steps = fine.steps(route)
        if steps is not None:
            if best is None and prices and few and fine.even:
                yield from _by_seconds(fine, prices, route)  # first, for it also knows better where seconds are equal
            best = best or route
            least = fine.least_seconds(prices) if prices and fine.even else None
            yield Candidate(steps, least if prices else bound)
    if not fine.even:
        return
    if best is None:
        coarse = None if few else _Setting.of(src, dst, primes=False)
        yield from () if coarse is None else _whole_axes(coarse, _MANY_MOVES)
        return
    if not few and (prices or len(best.middle) > 1):
        coarse = _Setting.of(src, dst, primes=False)
        assert coarse is not None, "what is aligned in primes is aligned"
        if len(best.middle) > 1:
            yield from _whole_axes(coarse, _FEW_MOVES)
        if prices:
            start = TimedRoute(best.slices, best.middle, best.stages)
            to_beat, _ = route_seconds(fine.problem, prices, start)
            yield from _whole_axes_by_seconds(coarse, topology, to_beat)


_MOVES = frozenset({"all_to_all", "permute"})


def _restricted(setting: _Setting, allowed: frozenset[str]) -> Iterator[Candidate]:
    """All classes, and gathering before slicing, where some moves are not allowed: nothing is proven."""
    problem = setting.problem
    makers = (local_route, one_all_to_all, one_permute, permute_and_all_to_all)
    routes: list[Route | None] = [make(problem) for make in makers]
    if "all_to_all" in allowed and len(problem.sizes) <= _FEW_DIGITS:
        routes.append(several_moves(problem, None, permutes=False)[0])
    for route in routes:
        if route is not None and (steps := setting.steps(route)) is not None:
            yield Candidate(steps)
    yield Candidate(_gather_then_slice(setting))


def _gather_then_slice(setting: _Setting) -> tuple[Step, ...]:
    """Back to what source and target share in every dimension, then on to the target."""
    pairs = list(zip(setting.problem.source, setting.problem.target, strict=True))
    gathers = setting.alignment.axes_by_dim(a[shared_prefix(a, b) :] for a, b in pairs)
    slices = setting.alignment.axes_by_dim(b[shared_prefix(a, b) :] for a, b in pairs)
    return (*((AllGather(gathers),) if gathers else ()), *((Slice(slices),) if slices else ()))


def _by_bytes(setting: _Setting) -> list[tuple[Route, float | None]]:
    """(route, bound in elements) of every class worth trying."""
    same = canonical(setting.problem)
    return [(same.restored(route), bound) for route, bound in _routes(same.problem, setting.even)]


@lru_cache(maxsize=4096)
def _routes(problem: Problem, even: bool) -> tuple[tuple[Route, float | None], ...]:
    """The route of the first class that has one, for a later class is never cheaper; those of all classes
    where blocks are uneven, when a route may not type."""
    found: list[tuple[Route, float | None]] = []
    for make in (local_route, one_all_to_all, one_permute):
        route = make(problem)
        if route is not None:
            found.append((route, cost(problem, route)[0]))
            if even:
                return tuple(found)
    mixed = permute_and_all_to_all(problem)
    if len(problem.sizes) > _FEW_DIGITS:
        return tuple(found) if mixed is None else (*found, (mixed, None))
    best, bound = several_moves(problem, mixed)
    return tuple(found) if best is None else (*found, (best, bound))


def _whole_axes(setting: _Setting, most_moves: int) -> Iterator[Candidate]:
    """Routes of several moves on axes as they are cut, where primes are too many to search."""
    route, _ = several_moves(setting.problem, None, most_moves=most_moves)
    if route is not None and (steps := setting.steps(route)) is not None:
        yield Candidate(steps)


def _by_seconds(setting: _Setting, prices: Prices, best: Route) -> Iterator[Candidate]:
    """The fastest route, where digits are few enough to prove it, from the one of fewest bytes."""
    start = TimedRoute(best.slices, best.middle, best.stages)
    route, bound = fastest_route(setting.problem, prices, start)
    if route is not None and (steps := setting.steps(route)) is not None:
        yield Candidate(steps, bound)


def _whole_axes_by_seconds(setting: _Setting, topology: Topology, to_beat: float) -> Iterator[Candidate]:
    """A route on axes as they are cut that takes less time, where a short search finds one."""
    route, _ = fastest_route(setting.problem, setting.prices(topology), None, to_beat, _SHORT)
    if route is not None and (steps := setting.steps(route)) is not None:
        yield Candidate(steps)

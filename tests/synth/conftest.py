"""Brute force over full layouts: uniform-cost search, independent of the planner's code.

A layout is a tuple of digit tuples, one per dimension, major to minor; digit d has size `sizes[d]`.
Edges are every step that the calculus allows from a layout: slices, gathers of any suffixes, all-to-alls
of any suffixes in any order to any dimensions that do not lose, and permutes between equal block counts.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

State = tuple[tuple[int, ...], ...]
Cost = tuple[Fraction, int]


@dataclass(frozen=True)
class Memory:
    """Devices that share a memory: what they keep is moved as well, all-to-alls take `slowdown` times longer,
    and rearranging takes `element` seconds per element and `run` per contiguous run of them."""

    slowdown: Fraction
    element: Fraction
    run: Fraction

    def copy(self, lengths: tuple[int, ...], parts: tuple[int, ...]) -> Fraction:
        """Of bringing a block from row-major order to piece after piece (or back)."""
        pieces = _pieces(lengths, parts)
        order = [n for piece in pieces for n in piece]
        if order == sorted(order):
            return Fraction(0)
        return len(order) * self.element + sum(map(_runs, pieces)) * self.run

    def kept(self, lengths: tuple[int, ...], parts: tuple[int, ...]) -> Fraction:
        """Of copying the first of the pieces."""
        piece = _pieces(lengths, parts)[0]
        return len(piece) * self.element + _runs(piece) * self.run


@cache
def _pieces(lengths: tuple[int, ...], parts: tuple[int, ...]) -> list[list[int]]:
    """Per piece, the places of its elements in the row-major block."""
    block = np.arange(math.prod(lengths)).reshape(lengths)
    sizes = [n // p for n, p in zip(lengths, parts, strict=True)]
    return [
        block[tuple(slice(a * s, (a + 1) * s) for a, s in zip(at, sizes, strict=True))].ravel().tolist()
        for at in itertools.product(*map(range, parts))
    ]


def _runs(order: list[int]) -> int:
    return 1 + sum(b != a + 1 for a, b in itertools.pairwise(order))


class Oracle:
    """Cheapest (cost, communication steps) between all layouts of an array over digits.

    The cost is elements received, unless `pace` (seconds per element that crosses each digit) and
    `latency` (seconds per step) say otherwise: an element of an exchange is counted where sender and receiver
    differ on the slowest digit, of a gather once for all devices side by side along faster digits. With `memory`,
    what is copied counts as well.
    """

    Memory = Memory

    def __init__(
        self,
        sizes: tuple[int, ...],
        shape: tuple[int, ...],
        pace: tuple[Fraction, ...] | None = None,
        latency: Fraction = Fraction(0),
        memory: Memory | None = None,
    ) -> None:
        self.memory = memory
        self.sizes, self.shape = sizes, shape
        self.pace = pace or (Fraction(1),) * len(sizes)
        self.latency = latency
        self.states = self._states()
        self.block = {s: Fraction(math.prod(shape), math.prod(self._count(d) for d in s)) for s in self.states}
        self.number = {state: n for n, state in enumerate(self.states)}
        self.scale, self.prices = self._prices({state: self._edges(state) for state in self.states})

    def _count(self, digits: tuple[int, ...]) -> int:
        return math.prod(self.sizes[d] for d in digits)

    def _gather(self, digits: list[int], size: Fraction) -> Fraction:
        """An all-gather stage by stage: over the slowest digit first, while blocks are small."""
        cost, made = self.latency, size / self._count(tuple(digits))
        kept = made * min(self.pace[d] for d in digits) if self.memory else 0
        for d in sorted(digits, key=lambda d: -self.pace[d]):
            cost += made * (self.sizes[d] - 1) * self.pace[d]
            made *= self.sizes[d]
        assert made == size
        return cost + kept

    def _group(self, digits: list[int], size: Fraction, slowdown: Fraction = Fraction(1)) -> Fraction:
        """An all-to-all in the group of these digits of blocks of this size."""
        cost = self.latency
        for d in sorted(digits, key=lambda d: -self.pace[d]):
            cost += size * (1 - Fraction(1, self.sizes[d])) * self.pace[d] * slowdown
            size /= self.sizes[d]
        return cost + (size * min(self.pace[d] for d in digits) if self.memory else 0)

    def _lengths(self, state: State) -> tuple[int, ...]:
        return tuple(g // self._count(digits) for g, digits in zip(self.shape, state, strict=True))

    def _exchange(self, state: State, kept: State, to: State, moved: list[int]) -> Fraction:
        """An all-to-all, packed by receiver and unpacked by sender."""
        if self.memory is None:
            return self._group(moved, self.block[state])
        gained = tuple(self._count(b) // self._count(a) for a, b in zip(kept, to, strict=True))
        lost = tuple(self._count(a) // self._count(b) for a, b in zip(state, kept, strict=True))
        return (
            self._group(moved, self.block[state], self.memory.slowdown)
            + self.memory.copy(self._lengths(state), gained)
            + self.memory.copy(self._lengths(to), lost)
        )

    def _whole_blocks(self, state: State, to: State, size: Fraction) -> Fraction:
        """A permute: some block crosses every digit whose place changes; replicas send to themselves."""
        place = [{d: (i, self._count(x[:n])) for i, x in enumerate(s) for n, d in enumerate(x)} for s in (state, to)]
        moved = [d for d in range(len(self.sizes)) if place[0].get(d) != place[1].get(d)]
        return self.latency + size * max(self.pace[d] for d in moved)

    def _fits(self, state: State) -> bool:
        return all(g % self._count(digits) == 0 for g, digits in zip(self.shape, state, strict=True))

    def _states(self) -> list[State]:
        rank, found = len(self.shape), []
        for k in range(len(self.sizes) + 1):
            for order in itertools.permutations(range(len(self.sizes)), k):
                for cuts in itertools.combinations_with_replacement(range(k + 1), rank - 1):
                    ends = (0, *cuts, k)
                    state = tuple(order[a:b] for a, b in itertools.pairwise(ends))
                    if self._fits(state):
                        found.append(state)
        return found

    def _edges(self, state: State) -> list[tuple[State, Fraction, int, int]]:
        """(layout after, elements received, communication steps, phase): slices are phase 0, moves 1 and
        gathers 2; a plan in normal form never goes back to an earlier phase."""
        rank, block = len(state), self.block[state]
        used = {d for digits in state for d in digits}
        edges: dict[tuple[State, int], tuple[Fraction, int]] = {}

        def offer(to: State, received: Fraction, phase: int) -> None:
            price = (received, int(phase > 0))
            if to != state and self._fits(to) and ((to, phase) not in edges or price < edges[to, phase]):
                edges[to, phase] = price

        free = [d for d in range(len(self.sizes)) if d not in used]
        for k in range(1, len(free) + 1 if self.memory else min(2, len(free) + 1)):  # without copies, one by one
            for order in itertools.permutations(free, k):
                for places in itertools.combinations_with_replacement(range(rank), k):
                    added = [tuple(d for d, p in zip(order, places, strict=True) if p == i) for i in range(rank)]
                    to = tuple((*x, *new) for x, new in zip(state, added, strict=True))
                    if self._fits(to):
                        parts = tuple(self._count(b) // self._count(a) for a, b in zip(state, to, strict=True))
                        offer(to, self.memory.kept(self._lengths(state), parts) if self.memory else Fraction(0), 0)
        for lengths in itertools.product(*(range(len(x) + 1) for x in state)):
            if not any(lengths):
                continue
            kept = tuple(x[: len(x) - n] for x, n in zip(state, lengths, strict=True))
            moved = [d for x, n in zip(state, lengths, strict=True) for d in x[len(x) - n :]]
            gathered = self._gather(moved, block * self._count(tuple(moved)))
            if self.memory:
                lost = tuple(self._count(x[len(x) - n :]) for x, n in zip(state, lengths, strict=True))
                gathered += self.memory.copy(self._lengths(kept), lost)
            offer(kept, gathered, 2)
            takers = [i for i in range(rank) if lengths[i] == 0]
            for order in itertools.permutations(moved):
                for places in itertools.combinations_with_replacement(range(len(takers)), len(order)):
                    to = [list(x) for x in kept]
                    for d, p in zip(order, places, strict=True):
                        to[takers[p]].append(d)
                    made = tuple(map(tuple, to))
                    if takers and self._fits(made):
                        offer(made, self._exchange(state, kept, made, moved), 1)
        weak = tuple(map(self._count, state))
        for to in self.states:
            if to != state and tuple(map(self._count, to)) == weak:
                offer(to, self._whole_blocks(state, to, block), 1)
        return [(to, *price, phase) for (to, phase), price in edges.items()]

    def _prices(self, edges: dict[State, list[tuple[State, Fraction, int, int]]]) -> tuple[int, Any]:
        """(units per cost of 1, price of every step by phase, from, to), exact in integers."""
        scale = math.lcm(*(cost.denominator for leaving in edges.values() for _, cost, _, _ in leaving))
        prices = np.full((3, len(edges), len(edges)), _FAR)
        for state, leaving in edges.items():
            for to, cost, steps, phase in leaving:
                prices[phase, self.number[state], self.number[to]] = int(cost * scale) * _STEPS + steps
        assert prices[prices < _FAR].max(initial=0) < _FAR // _STEPS, "sums stay exact"
        return scale, prices

    def costs(self, source: State, bound: Fraction, normal_form: bool = True) -> dict[State, Cost]:
        """Cheapest cost to every layout, through blocks of at most `bound` elements; in normal form, or by
        steps in any order."""
        inside = [n for n, state in enumerate(self.states) if self.block[state] <= bound]
        best = np.full(len(inside), _FAR)
        best[inside.index(self.number[source])] = 0
        for prices in self.prices if normal_form else [self.prices.min(axis=0)]:
            steps, shorter = prices[np.ix_(inside, inside)], True
            while shorter:  # whatever the order in which layouts are reached, nothing is cheaper in the end
                found = np.minimum(best, (best[:, None] + steps).min(axis=0))
                shorter = bool((found < best).any())
                best = found
        return {
            self.states[n]: (Fraction(int(cost) // _STEPS, self.scale), int(cost) % _STEPS)
            for n, cost in zip(inside, best, strict=True)
            if cost < _FAR
        }


_STEPS = 64
"""No plan has as many steps: a price is the cost, in whole units, times this, and the steps."""
_FAR = 1 << 61


@pytest.fixture(scope="session")
def oracle() -> type[Oracle]:
    """The brute-force planner."""
    return Oracle


@pytest.fixture(scope="session")
def read_cases() -> Callable[[str], list[dict[str, Any]]]:
    """Reader of the tables in `data/`."""
    return lambda name: json.loads((Path(__file__).parent / "data" / name).read_text())

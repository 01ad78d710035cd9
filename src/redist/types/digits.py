"""Digits: one mixed-radix numbering of the devices in which several layouts can be written.

Every (sub-)axis of a mesh is a digit of the row-major position: `position // stride % size`. Layouts
whose digits have a common refinement are aligned, and everything about them can be decided on digits,
without enumerating devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from redist.types.layout import Layout, merge_axes
from redist.types.mesh import Mesh, SubAxis

__all__ = ["Alignment", "Form", "align", "aligned", "prime_factors", "refine_axes"]

Digit = tuple[int, int]
"""(stride, size) in row-major positions of the reference mesh."""


@dataclass(frozen=True, slots=True)
class Form:
    """A layout in digits: per dimension the digit indices major to minor, and the partial digits."""

    dims: tuple[tuple[int, ...], ...]
    partial: tuple[int, ...]

    def used(self) -> frozenset[int]:
        """Digits that some dimension or the partial axes use; the others replicate."""
        return frozenset(self.partial).union(*self.dims)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Digits of the positions of `mesh`, major to minor, and each layout written in them.

    Digit d of a position is `position // strides[d] % sizes[d]`; no digit has size 1.
    """

    mesh: Mesh
    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    forms: tuple[Form, ...]

    def count(self, digits: Iterable[int]) -> int:
        """Product of the sizes of these digits."""
        return math.prod(self.sizes[d] for d in digits)

    def axes(self, digits: Sequence[int]) -> tuple[SubAxis, ...]:
        """The digits as (sub-)axes of `mesh`, adjacent parts merged."""
        return merge_axes(self.mesh, [self._axis(d) for d in digits])

    def axes_by_dim(self, lists: Iterable[Sequence[int]]) -> dict[int, tuple[SubAxis, ...]]:
        """The digits of each dimension as (sub-)axes, for dimensions that have any."""
        return {i: self.axes(digits) for i, digits in enumerate(lists) if digits}

    def _axis(self, d: int) -> SubAxis:
        stride, size = self.strides[d], self.sizes[d]
        inner = 1
        for name, total in reversed(self.mesh.axes):
            if stride < inner * total:
                return self.mesh.resolve(SubAxis(name, inner * total // (stride * size), size))
            inner *= total
        raise AssertionError(f"digit {stride, size} lies outside mesh {self.mesh}")


def aligned(*layouts: Layout) -> bool:
    """Whether the layouts have a common refinement of their cuts (design: aligned)."""
    return align(layouts) is not None


@lru_cache(maxsize=4096)
def align(layouts: tuple[Layout, ...], primes: bool = False) -> Alignment | None:
    """Write layouts over the same devices in common digits of the first one's mesh, or None.

    None where their cuts have no common refinement, their device sets differ, or one mesh's device
    order is no permutation of digits of the other's. With `primes`, digits are split into primes,
    the larger factors major.
    """
    mesh = layouts[0].mesh
    written: list[tuple[list[list[Digit]], list[Digit]]] = []
    for layout in layouts:
        translate = _translator(mesh, layout)
        if translate is None:
            return None
        dims = [translate.get_list(dim.axes) for dim in layout.dims]
        written.append((dims, translate.get_list(layout.partial_axes)))
    cuts = {1, mesh.size}
    inner = 1
    for total in reversed(mesh.sizes):
        inner *= total
        cuts.add(inner)
    for dims, partial in written:
        for stride, size in (digit for digits in [*dims, partial] for digit in digits):
            cuts.update((stride, stride * size))
    chain = sorted(cuts)
    if any(upper % lower for lower, upper in itertools.pairwise(chain)):
        return None
    if primes:
        chain = _split_primes(chain)
    strides = tuple(reversed(chain[:-1]))
    sizes = tuple(upper // lower for lower, upper in itertools.pairwise(chain))[::-1]
    number = {stride: d for d, stride in enumerate(strides)}

    def numbered(digits: list[Digit]) -> tuple[int, ...]:
        found: list[int] = []
        for stride, size in digits:
            d, reached = number[stride], sizes[number[stride]]
            parts = [d]
            while reached < size:
                d -= 1
                reached *= sizes[d]
                parts.append(d)
            found.extend(reversed(parts))
        return tuple(found)

    forms = tuple(
        Form(tuple(numbered(dim) for dim in dims), tuple(sorted(numbered(partial)))) for dims, partial in written
    )
    return Alignment(mesh, strides, sizes, forms)


def prime_factors(number: int) -> list[int]:
    """Prime factors with multiplicity, ascending."""
    found: list[int] = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


def refine_axes(mesh: Mesh, axes: Sequence[SubAxis], cutters: Iterable[SubAxis]) -> tuple[SubAxis, ...] | None:
    """Split `axes` wherever one of `cutters` begins or ends: `{x}, {x:(2)2} --> {x:(1)2, x:(2)2}` on x=4.

    None where the cuts are not cuts of one factorisation.
    """
    cutting = list(cutters)
    refined: list[SubAxis] = []
    for axis in axes:
        pre, size = mesh.cut(axis)
        points = {pre, pre * size}
        for other in cutting:
            if other.axis == axis.axis:
                other_pre, other_size = mesh.cut(other)
                points.update(p for p in (other_pre, other_pre * other_size) if pre < p < pre * size)
        chain = sorted(points)
        if any(upper % lower for lower, upper in itertools.pairwise(chain)):
            return None
        if len(chain) == 1:
            refined.append(axis)
            continue
        refined.extend(
            mesh.resolve(SubAxis(axis.axis, lower, upper // lower)) for lower, upper in itertools.pairwise(chain)
        )
    return tuple(refined)


def _split_primes(chain: list[int]) -> list[int]:
    fine = [chain[0]]
    for lower, upper in itertools.pairwise(chain):
        for prime in prime_factors(upper // lower):
            fine.append(fine[-1] * prime)
    return fine


@dataclass(frozen=True, slots=True)
class _Translator:
    """Digits of one mesh as digits of the reference mesh.

    `pieces` is (stride here, size, stride there), minor to major; None where both orders agree.
    """

    mesh: Mesh
    pieces: tuple[tuple[int, int, int], ...] | None

    def get_list(self, axes: Iterable[SubAxis]) -> list[Digit]:
        digits = [digit for digit in map(self.mesh.digit, axes) if digit[1] > 1]
        if self.pieces is None:
            return digits
        return [part for digit in digits for part in self._moved(digit, self.pieces)]

    @staticmethod
    def _moved(digit: Digit, pieces: tuple[tuple[int, int, int], ...]) -> list[Digit]:
        stride, size = digit
        parts: list[Digit] = []
        for here, extent, there in pieces:
            lower, upper = max(stride, here), min(stride * size, here * extent)
            if lower < upper:
                parts.append((there * (lower // here), upper // lower))
        return parts[::-1]


def _translator(reference: Mesh, layout: Layout) -> _Translator | None:
    mesh = layout.mesh
    if mesh.size != reference.size:
        return None
    if mesh.has_default_ids == reference.has_default_ids and (
        mesh.has_default_ids or np.array_equal(mesh.id_array(), reference.id_array())
    ):
        return _Translator(mesh, None)
    pieces = _digit_permutation(reference, mesh)
    if pieces is None:
        return None
    # A digit of the layout must be cut where the pieces are, and the other way round.
    points = {p for here, extent, _ in pieces for p in (here, here * extent)}
    used = [*layout.partial_axes, *(axis for dim in layout.dims for axis in dim.axes)]
    for stride, size in map(mesh.digit, used):
        points.update((stride, stride * size))
    chain = sorted(points)
    if any(upper % lower for lower, upper in itertools.pairwise(chain)):
        return None
    return _Translator(mesh, pieces)


@lru_cache(maxsize=256)
def _digit_permutation(reference: Mesh, mesh: Mesh) -> tuple[tuple[int, int, int], ...] | None:
    """How positions of `mesh` map to positions of `reference` by device id, if digit by digit.

    Returns (stride in mesh, size, stride in reference) from minor to major, or None.
    """
    there = reference.positions_of(mesh.id_array())
    if there[0] != 0 or (there < 0).any():
        return None
    pieces: list[tuple[int, int, int]] = []
    stride, rebuilt = 1, np.zeros(1, dtype=np.int64)
    while stride < mesh.size:
        step = int(there[stride])
        along = there[::stride]
        run = np.flatnonzero(along != np.arange(len(along)) * step)
        size = int(run[0]) if len(run) else len(along)
        if step < 1 or (mesh.size // stride) % size:
            return None
        pieces.append((stride, size, step))
        rebuilt = (np.arange(size)[:, None] * step + rebuilt).ravel()
        stride *= size
    return tuple(pieces) if np.array_equal(rebuilt, there) else None

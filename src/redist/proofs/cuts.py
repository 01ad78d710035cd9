"""Block rules as linear formulas: where a block starts, what is inside it, and how blocks split and join.

`b` is the longest block. With ceil blocks (even ones among them) block n starts at n*b as long as it has
elements, so that nothing else is needed; balanced blocks start at n*s + min(n, longer); explicit offsets
are a table of cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from redist.proofs.positions import Digits, UnsupportedError, index, out_of_range
from redist.proofs.terms import Formula, Sheet, Term, both, constant, either, eq, le, lt, negation
from redist.types.blocks import Balanced, BlockRule, Ceil, Offsets
from redist.types.layout import Layout

__all__ = ["Cut", "cuts_of", "join", "split"]

LARGEST_TABLE = 64
"""Explicit offsets of more blocks are enumerated instead: a table of cases grows with them."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A dimension of `size` elements in `count` blocks."""

    size: int
    count: int
    rule: BlockRule

    @property
    def longest(self) -> int:
        """ceil(size / count)."""
        return -(-self.size // self.count)

    @property
    def even(self) -> bool:
        """Whether every block has the same length by arithmetic alone."""
        return self.count == 1 or (not isinstance(self.rule, Offsets) and self.size % self.count == 0)

    @property
    def simple(self) -> bool:
        """Whether block n starts at n * longest: ceil blocks, and whatever equals them."""
        return self.even or isinstance(self.rule, Ceil)

    def start(self, sheet: Sheet, block: Term) -> Term:
        """Where a block starts (for ceil blocks, one that has elements); any block from 0 to count."""
        if self.simple:
            return block * self.longest
        match self.rule:
            case Balanced():
                short, longer = divmod(self.size, self.count)
                least = sheet.fresh("least")
                sheet.facts.append(eq_case(least, [(le(block, longer), block)], constant(longer)))
                return block * short + least
            case Offsets(starts):
                if len(starts) > LARGEST_TABLE:
                    raise UnsupportedError(f"explicit offsets of {len(starts)} blocks")
                at = sheet.fresh("start")
                cases = [(eq(block, constant(n)), constant(start)) for n, start in enumerate(starts)]
                sheet.facts.append(eq_case(at, cases, constant(self.size)))
                return at
            case Ceil():
                raise AssertionError("ceil blocks are simple")
            case _:
                assert_never(self.rule)

    def inside(self, sheet: Sheet, block: Term, local: Term) -> Formula:
        """Whether a block has an element of this local index."""
        if self.even:
            return both([le(0, local), lt(local, self.longest)])
        if self.simple:
            return both([le(0, local), lt(local, self.longest), lt(block * self.longest + local, self.size)])
        length = self.start(sheet, block + 1) - self.start(sheet, block)
        return both([le(0, local), lt(local, length)])

    def locate(self, sheet: Sheet, at: Term, sizes: list[int], flaws: list[Formula], stem: str) -> tuple[Digits, Term]:
        """(digits of the block that holds a global index, local index in it).

        For ceil blocks a definition that always has a solution (the top digit is unbounded); for others it
        is asked for only where the index lies in the dimension, and one that does not is a flaw.
        """
        if not sizes:
            flaws.append(negation(both([le(0, at), lt(at, self.size)])))
            return (), at
        local = sheet.fresh(f"{stem}.r")
        parts = [sheet.fresh(stem) for _ in sizes]
        digits = tuple(zip(parts, sizes, strict=True))
        block = index(digits)
        lower = [both([le(0, term), lt(term, size)]) for term, size in digits[1:]]
        if self.simple:
            sheet.facts += [eq(block * self.longest + local, at), le(0, local), lt(local, self.longest), *lower]
            flaws.append(out_of_range(*digits[0]))
            if not self.even:
                flaws.append(negation(self.inside(sheet, block, local)))
            return digits, local
        exists = both([le(0, at), lt(at, self.size)])
        start, stop = self.start(sheet, block), self.start(sheet, block + 1)
        top = both([le(0, parts[0]), lt(parts[0], sizes[0])])
        found = both([top, *lower, le(start, at), lt(at, stop), eq(local, at - start)])
        sheet.facts.append(f"(=> {exists} {found})")
        flaws.append(negation(exists))
        return digits, local


def eq_case(term: Term, cases: list[tuple[Formula, Term]], otherwise: Term) -> Formula:
    """`term` is the value of the first case that holds."""
    value = str(otherwise)
    for condition, case in reversed(cases):
        match condition:
            case "true":
                value = str(case)
            case "false":
                pass
            case _:
                value = f"(ite {condition} {case} {value})"
    return f"(= {term} {value})"


def cuts_of(layout: Layout) -> tuple[Cut, ...]:
    """How each dimension of a layout is cut."""
    counts = layout.block_counts()
    return tuple(Cut(dim.size, count, dim.rule) for dim, count in zip(layout.dims, counts, strict=True))


def split(sheet: Sheet, coarse: Cut, fine: Cut, block: Term, part: Term, local: Term, flaws: list[Formula]) -> Term:
    """Local index in a coarse block of an element of its part `part`, whose local index is `local`."""
    added = fine.count // coarse.count
    if fine.simple:
        whole = part * fine.longest + local
    else:
        finer = block * added + part
        whole = local + fine.start(sheet, finer) - fine.start(sheet, block * added)
    if not (fine.even and coarse.even):
        flaws.append(negation(coarse.inside(sheet, block, whole)))
    elif coarse.longest != added * fine.longest:
        flaws.append("true")
    return whole


def join(
    sheet: Sheet,
    coarse: Cut,
    fine: Cut,
    block: Term,
    sizes: list[int],
    local: Term,
    flaws: list[Formula],
    stem: str,
) -> tuple[Digits, Term]:
    """(which of its parts holds an element of a coarse block that is the parts one after another, as
    digits of these sizes; local index there)."""
    parts = fine.count // coarse.count
    if not sizes:
        return (), local
    if fine.simple:
        rest = sheet.fresh(f"{stem}.r")
        terms = [sheet.fresh(stem) for _ in sizes]
        digits = tuple(zip(terms, sizes, strict=True))
        sheet.facts += [eq(index(digits) * fine.longest + rest, local), le(0, rest), lt(rest, fine.longest)]
        sheet.facts += [both([le(0, term), lt(term, size)]) for term, size in digits[1:]]
        flaws.append(out_of_range(*digits[0]))
        if not fine.even:
            flaws.append(negation(fine.inside(sheet, block * parts + index(digits), rest)))
        return digits, rest
    base = fine.start(sheet, block * parts)
    (above, *within), rest = fine.locate(sheet, base + local, [coarse.count, *sizes], flaws, stem)
    flaws.append(negation(eq(above[0], block)))
    return tuple(within), rest


def same_length(sheet: Sheet, one: Cut, block: Term, other: Cut, place: Term, local: Term) -> Formula:
    """Whether a local index is inside both blocks or neither."""
    inside, there = one.inside(sheet, block, local), other.inside(sheet, place, local)
    if inside == there:
        return "true"
    return either([both([inside, there]), both([negation(inside), negation(there)])])

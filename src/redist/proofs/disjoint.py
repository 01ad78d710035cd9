"""N2: in every step a device receives nothing that it holds, and nothing twice.

The claim per step, for any receiver and element: it comes from another device if and only if the receiver's
block before the step does not have it. Where that is so, what a device receives in the step is its block
after less the overlap with its block before, which is what N3 counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redist.collectives.steps import Slice
from redist.proofs.cuts import cuts_of
from redist.proofs.positions import differs, index, receiver
from redist.proofs.terms import Query, Sheet, both, either, eq, negation
from redist.proofs.trace import Leaf, Place, Trace, back, chains, start, symbolic
from redist.types.layout import Layout
from redist.types.mesh import Mesh

__all__ = ["Movement", "movements"]


@dataclass(frozen=True, slots=True)
class Movement:
    """The claim of the steps that are written in digits, and the steps that are not."""

    query: Query | None
    tables: tuple[Leaf, ...]
    symbolic: tuple[Leaf, ...]


def movements(leaves: Sequence[Leaf]) -> Movement:
    """One query for all steps: a violation in any of them."""
    sheet = Sheet()
    violations: list[str] = []
    tables: list[Leaf] = []
    shown: list[Leaf] = []
    common = chains(leaves)
    for leaf in leaves:
        if isinstance(leaf.step, Slice):
            continue
        found = _violation(sheet, leaf, common) if symbolic(leaf) and _has_elements(leaf.before) else None
        if found is None:
            tables.append(leaf)
        else:
            violations.append(found)
            shown.append(leaf)
    if not shown:
        return Movement(None, tuple(tables), ())
    labels = ", ".join(leaf.label for leaf in shown)
    query = sheet.query(f"received if and only if not held, in steps {labels}", either(violations))
    return Movement(query, tuple(tables), tuple(shown))


def _has_elements(layout: Layout) -> bool:
    return 0 not in layout.shape


def _violation(sheet: Sheet, leaf: Leaf, common: Mapping[Mesh, tuple[int, ...]]) -> str | None:
    trace = Trace(sheet, common)
    layout, before = leaf.following, leaf.before
    here = receiver(sheet, f"d{leaf.label}", trace.cuts(leaf, "following"))
    place = Place(here, tuple(sheet.natural(f"i{leaf.label}") for _ in layout.dims))
    inside = [
        cut.inside(sheet, index(here.over(layout.mesh, dim.axes)), local)
        for cut, dim, local in zip(cuts_of(layout), layout.dims, place.local, strict=True)
    ]
    sender = back(trace, leaf, place)
    own = trace.own
    if own is None:
        return None
    wanted = start(sheet, layout, place)
    ours, theirs = (index(place.over(before.mesh, before.partial_axes)) for place in (own, sender.position))
    held = [eq(ours, theirs)]
    for cut, dim, at in zip(cuts_of(before), before.dims, wanted, strict=True):
        block = index(own.over(before.mesh, dim.axes))
        held.append(cut.inside(sheet, block, at - cut.start(sheet, block)))
    moved, has = differs(sender.position, own), both(held)
    unlike = either([both([moved, has]), both([negation(moved), negation(has)])])
    return both([*inside, unlike])

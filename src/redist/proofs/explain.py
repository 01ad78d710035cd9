"""Counterexamples as text for people: who wants what, gets what, and who carried it after each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from redist.collectives.explain import describe
from redist.proofs.certificate import Counterexample

if TYPE_CHECKING:
    from redist.collectives.steps import Step
    from redist.proofs.refine import Claim
    from redist.proofs.replay import Wrong
    from redist.proofs.terms import Term
    from redist.types.layout import Layout
    from redist.types.mesh import Mesh

__all__ = ["at_device", "moved", "of_wrong", "plain", "twice"]


def plain(title: str, text: str) -> Counterexample:
    """What fails without an element to show."""
    return Counterexample(f"REFUTED {title}: {text}")


def at_device(mesh: Mesh, position: int) -> str:
    """`device 3 (x=1, y=1)`."""
    return mesh.describe_device(mesh.device_ids[position])


def moved(claim: Claim, model: Mapping[str, int], steps: Mapping[str, Step], last: Layout) -> Counterexample:
    """A receiver whose element is another one."""
    mesh = claim.goal.mesh
    position = claim.receiver.position.number().value(model)
    local = _values(claim.receiver.local, model)
    device = mesh.device_ids[position]
    shape, there = _shape(claim.goal, device), _shape(last, device)
    wants = _inside(local, shape)
    gets = there is not None and _inside(local, there)
    wanted = _values(claim.wanted, model) if wants else None
    got = _values(claim.got, model) if gets else None
    origin = claim.levels[-1]
    sender_at = origin.place.position.number().value(model)
    known = gets and 0 <= sender_at < origin.mesh.size
    sender = origin.mesh.device_ids[sender_at] if known else None
    lines = [
        f"REFUTED refinement: {mesh.describe_device(device)}, local index {local}: "
        f"wants {_global(wanted, shape)}, gets {_global(got, there)}"
        + (f" from {at_device(origin.mesh, sender_at)}" if known else "")
    ]
    if gets:
        lines += _trail(claim, model, steps)
    return Counterexample("\n".join(lines), device, mesh.coordinates(device), local, wanted, got, sender)


def twice(claim: Claim, model: Mapping[str, int], steps: Mapping[str, Step]) -> Counterexample:
    """A contribution that is counted twice."""
    mesh, origin = claim.goal.mesh, claim.levels[-1]
    device = mesh.device_ids[claim.receiver.position.number().value(model)]
    sender_at = origin.place.position.number().value(model)
    local, wanted = _values(claim.receiver.local, model), _values(claim.wanted, model)
    text = (
        f"REFUTED refinement: {mesh.describe_device(device)}, local index {local}: the contribution of "
        f"{at_device(origin.mesh, sender_at)} to {_global(wanted, None)} is counted twice"
    )
    lines = [text, *_trail(claim, model, steps)]
    return Counterexample(
        "\n".join(lines), device, mesh.coordinates(device), local, wanted, wanted, origin.mesh.device_ids[sender_at]
    )


def of_wrong(layout: Layout, wrong: Wrong, confirmed: bool | None) -> Counterexample:
    """What the NumPy reference found."""
    known = wrong.device in layout.mesh.device_ids
    who = layout.mesh.describe_device(wrong.device) if known else f"device {wrong.device}"
    text = (
        f"REFUTED refinement: {who}, local index {wrong.local}: wants {_global(wrong.wanted, None)}, "
        f"gets {_global(wrong.got, None)}; {wrong.reason}"
    )
    coordinates = layout.mesh.coordinates(wrong.device) if known else {}
    return Counterexample(text, wrong.device, coordinates, wrong.local, wrong.wanted, wrong.got, None, confirmed)


def _values(terms: Sequence[Term], model: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(term.value(model) for term in terms)


def _global(index: tuple[int, ...] | None, shape: tuple[int, ...] | None) -> str:
    if index is not None:
        return f"global {index}"
    return "nothing" if shape is None else f"nothing (block of shape {shape})"


def _shape(layout: Layout, device: int) -> tuple[int, ...] | None:
    if device not in layout.mesh.device_ids:
        return None
    return tuple(s.stop - s.start for s in layout.box(device))


def _inside(local: Sequence[int], shape: Sequence[int] | None) -> bool:
    return shape is not None and all(0 <= n < extent for n, extent in zip(local, shape, strict=True))


def _trail(claim: Claim, model: Mapping[str, int], steps: Mapping[str, Step]) -> list[str]:
    """Where the element is before the first step and after each, in the order of the steps."""
    rows: list[tuple[str, str]] = []
    labels = [level.label for level in reversed(claim.levels)]  # before each step; "" after the last
    first = "at the start" if labels[0] in ("", next(iter(steps), "")) else f"before step {labels[0]}"
    for n, level in enumerate(reversed(claim.levels)):
        when = f"after step {labels[n - 1]}, {describe(steps[labels[n - 1]])}" if n else first
        position = level.place.position.number().value(model)
        who = at_device(level.mesh, position) if 0 <= position < level.mesh.size else f"no device ({position})"
        rows.append((when, f"{who}, local index {_values(level.place.local, model)}"))
    width = max(len(when) for when, _ in rows)
    return [f"  {when.ljust(width)}  {where}" for when, where in rows]

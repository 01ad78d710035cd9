"""Definitions alone have a solution for every receiver: none is left out of a proof unseen.

Asserting that a sender with the right offset exists would silently delete the receivers that have none; a
permute `[{x},_] -> [_,{x}]` of equal block counts but other blocks would then be "proved".
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from redist.collectives import Plan
from redist.collectives.steps import AllGather, Free, Permute
from redist.proofs import Refuted, verify
from redist.proofs.counts import exceptions
from redist.proofs.disjoint import movements
from redist.proofs.positions import UnsupportedError
from redist.proofs.refine import Claim, contributions, refinement
from redist.proofs.solver import Deadline, decide, undefined
from redist.proofs.trace import Leaf, flatten, symbolic
from redist.types import Layout, Mesh


def _receivers(claim: Claim) -> list[dict[str, int]]:
    """Values of the receiver's variables, for every device and every local index of its block."""
    goal = claim.goal
    place = claim.receiver
    digits = [(next(iter(t.coefs)), size) for t, size in place.position.all() if t.coefs]
    locals_ = [next(iter(t.coefs)) for t in place.local]
    found: list[dict[str, int]] = []
    for values in itertools.product(*(range(size) for _, size in digits)):
        model = {name: value for (name, _), value in zip(digits, values, strict=True)}
        device = goal.mesh.device_ids[place.position.number().value(model)]
        extents = [range(s.stop - s.start) for s in goal.box(device)]
        found += [model | dict(zip(locals_, index, strict=True)) for index in itertools.product(*extents)]
    return found


def _check(rng: Random, leaves: Sequence[Leaf], plan: Plan, most: int) -> int:
    last = leaves[-1].following if leaves else plan.source
    if 0 in plan.source.shape or not all(map(symbolic, leaves)):
        return 0
    claims = [refinement(leaves, last, last, "right element")]
    if plan.source.mesh.count(plan.source.partial_axes) > 1:
        claims.append(contributions(leaves, last, last, "no contribution twice"))
    checked = 0
    for claim in claims:
        receivers = _receivers(claim)
        chosen = rng.sample(receivers, min(most, len(receivers)))
        lost = undefined(claim.query, chosen, Deadline.after(60))
        assert lost is None, f"{lost} has no trace in {claim.query.name}: {plan.to_json()}"
        checked += len(chosen)
    return checked


def test_every_receiver_has_a_trace(plans: Any) -> None:
    """Random plans of every kind, 12 receivers each."""
    rng = Random(0)
    checked = 0
    for _ in range(80):
        plan = plans.planned(rng) if rng.randint(0, 1) else plans.assembled(rng)
        checked += _check(rng, list(flatten(plan.steps, plan.layouts)), plan, 12)
    assert checked > 400


@pytest.mark.heavy
def test_all_receivers(plans: Any) -> None:
    """400 random plans, up to 200 receivers each."""
    rng = Random(1)
    for _ in range(400):
        plan = plans.planned(rng) if rng.randint(0, 1) else plans.assembled(rng)
        _check(rng, list(flatten(plan.steps, plan.layouts)), plan, 200)


def test_wrong_plans_keep_their_receivers(plans: Any) -> None:
    """Where plans are wrong, too."""
    rng = Random(2)
    checked = 0
    for _ in range(60):
        plan = plans.planned(rng)
        for _, mutant in plans.mutants(rng, plan, 4):
            if plans.typed(mutant) and mutant.steps:
                checked += _check(rng, list(flatten(mutant.steps, mutant.layouts)), mutant, 5)
    assert checked > 100


def test_bogus_permutes() -> None:
    """Blocks of other counts have no encoding and are refused; of other lengths, the trace ends elsewhere."""
    mesh = Mesh.parse("x=2")
    before, following = Layout.parse("[4{x}, 4]", mesh), Layout.parse("[4, 4{x}]", mesh)
    with pytest.raises(UnsupportedError):
        refinement([Leaf("1", Permute(following), before, following)], following, following, "bogus")
    certificate = verify(Plan(before, following, (Permute(following),)))
    assert certificate.status == "refuted"
    assert isinstance(certificate.obligation("T").verdict, Refuted)
    before, following = Layout.parse("[5{x}]", mesh), Layout.parse("[5{x}@[0,2]]", mesh)
    claim = refinement([Leaf("1", Permute(following), before, following)], following, following, "bogus")
    assert undefined(claim.query, _receivers(claim), Deadline.after(10)) is None
    assert decide(claim.query, Deadline.after(10)).status == "sat"


def test_gather_that_does_not_nest() -> None:
    """5 over {x,y} is 2,2,1,0, over {x} 3,2: device (0, 1) lacks a row, and no definition hides it."""
    mesh = Mesh.parse("x=2,y=2")
    before, following = Layout.parse("[5{x,y}]", mesh), Layout.parse("[5{x}]", mesh)
    leaf = Leaf("1", AllGather({0: ["y"]}), before, following)
    claim = refinement([leaf], following, following, "short")
    assert undefined(claim.query, _receivers(claim), Deadline.after(10)) is None
    assert decide(claim.query, Deadline.after(10)).status == "sat"


def test_movements_are_not_vacuous() -> None:
    """N2's definitions have a solution; its claim fails where a device gets what it has."""
    mesh = Mesh.parse("x=2,y=2")
    layout = Layout.parse("[4{x}]", mesh)
    kept = Leaf("1", Permute(layout, Free.of((["y"], ["y"]))), layout, layout)
    claim = movements([kept])
    assert claim.query is not None
    assert undefined(claim.query, [{}], Deadline.after(10)) is None
    assert decide(claim.query, Deadline.after(10)).status == "unsat"
    swapped = Mesh.parse("x=2,y=2,z=2")
    layout = Layout.parse("[4{x}]", swapped)
    idle = Leaf("1", Permute(layout, Free.of((["y"], ["z"]), (["z"], ["y"]))), layout, layout)
    claim = movements([idle])
    assert claim.query is not None
    assert decide(claim.query, Deadline.after(10)).status == "sat"
    assert exceptions(idle) == 4 * 2  # of 8 devices, those with y != z get their replica's block

"""What N2 and N3 count, against sets of elements kept per device."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest

from redist.collectives import Plan
from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Free,
    Owner,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Transfer,
)
from redist.proofs import verify
from redist.proofs.counts import exceptions
from redist.proofs.trace import Leaf, flatten
from redist.types import Layout, Mesh, lower_bound
from redist.types.bounds import missing_by_device

Element = tuple[int, ...]


def _elements(ranges: Iterable[tuple[int, int]]) -> set[Element]:
    return set(itertools.product(*(range(a, b) for a, b in ranges)))


def _blocks(layout: Layout) -> dict[int, set[Element]]:
    """{device: its elements, the contribution last}."""
    which = layout.mesh.index(layout.partial_axes).tolist()
    return {
        device: {(*e, which[p]) for e in _elements((s.start, s.stop) for s in layout.box(device))}
        for p, device in enumerate(layout.mesh.device_ids)
    }


def _received(leaf: Leaf) -> dict[int, list[Element]]:
    """{device: elements that come from other devices, as often as they come}, by the meaning of each step."""
    held, wanted = _blocks(leaf.before), _blocks(leaf.following)
    match leaf.step:
        case Slice():
            return {device: [] for device in wanted}
        case AllGather() | AllToAll() | Exchange(_, Owner()):
            return {device: sorted(block - held.get(device, set())) for device, block in wanted.items()}
        case Permute(_, source):
            senders = _senders(leaf, source)
            return {d: [] if senders[d] == d else sorted(block) for d, block in wanted.items()}
        case Exchange(_, transfers):
            assert not isinstance(transfers, Owner)
            found: dict[int, list[Element]] = {device: [] for device in wanted}
            for t in transfers:
                if t.sender != t.receiver:
                    which = next(iter(wanted[t.receiver]))[-1]
                    found[t.receiver] += [(*e, which) for e in _elements(zip(t.starts, t.stops, strict=True))]
            return found
        case _:
            raise AssertionError(leaf.step)


def _senders(leaf: Leaf, source: Any) -> dict[int, int]:
    """{receiver: sender}; of a free bijection by trying out which device fits."""
    before, following = leaf.before.mesh, leaf.following.mesh
    if isinstance(source, Pairs):
        return {receiver: sender for sender, receiver in source.pairs}
    assert isinstance(source, Free)
    lists = [
        (leaf.before.partial_axes, leaf.following.partial_axes),
        *((a.axes, b.axes) for a, b in zip(leaf.before.dims, leaf.following.dims, strict=True)),
        *((tuple(map(before.resolve, a)), tuple(map(following.resolve, b))) for a, b in source.groups),
    ]
    ours = list(zip(*(before.index(a).tolist() for a, _ in lists), strict=True))
    theirs = list(zip(*(following.index(b).tolist() for _, b in lists), strict=True))
    return {d: before.device_ids[ours.index(theirs[p])] for p, d in enumerate(following.device_ids)}


def _plain(leaf: Leaf) -> bool:
    return not isinstance(leaf.step, ReduceScatter | AllReduce)


def _check(plan: Plan, leaves: Sequence[Leaf]) -> None:
    certificate = verify(plan)
    text = f"{plan.to_json()}\n{certificate}"
    second, third = certificate.obligation("N2"), certificate.obligation("N3")
    twice = 0
    total: dict[int, int] = {}
    for leaf in leaves:
        held = _blocks(leaf.before)
        for device, elements in _received(leaf).items():
            total[device] = total.get(device, 0) + len(elements)
            own = held.get(device, set())
            twice += sum(e in own for e in elements) + len(elements) - len(set(elements)) if elements else 0
    assert second.figures["elements"] == twice, text
    assert second.holds == (twice == 0), text
    if plan.source.mesh.count(plan.source.partial_axes) != plan.target.mesh.count(plan.target.partial_axes):
        return
    missing = missing_by_device(plan.source, plan.target)
    got = {device: total.get(device, 0) for device in {*total, *missing, *plan.source.mesh.device_ids}}
    need = {device: missing.get(device, 0) for device in got}
    assert third.figures["received"] == max(got.values()), text
    assert third.figures["missing"] == max(need.values()), text
    assert third.holds == (got == need), text
    if third.holds:
        return
    ratios = [got[d] / need[d] for d in got if need[d]]
    assert third.figures.get("worst device's ratio") == (pytest.approx(max(ratios)) if ratios else None), text
    idle = third.figures["devices that received though nothing was missing"]
    assert idle == sum(got[d] > 0 and not need[d] for d in got), text
    assert third.figures["elements beyond need"] == sum(got.values()) - sum(need.values()), text
    if "elements received and dropped" in third.figures:
        final = _blocks(plan.target)
        gone = sum(e not in final[d] for leaf in leaves for d, elements in _received(leaf).items() for e in elements)
        assert third.figures["elements received and dropped"] == gone, text


def test_counts(plans: Any) -> None:
    """Random plans without reductions, planned and put together."""
    rng = Random(0)
    checked = 0
    while checked < 150:
        plan = plans.planned(rng) if rng.randint(0, 1) else plans.assembled(rng)
        leaves = list(flatten(plan.steps, plan.layouts))
        if all(map(_plain, leaves)):
            _check(plan, leaves)
            checked += 1


@pytest.mark.heavy
def test_many_counts(plans: Any) -> None:
    """The same for 2,000."""
    rng = Random(1)
    checked = 0
    while checked < 2000:
        plan = plans.planned(rng) if rng.randint(0, 1) else plans.assembled(rng)
        leaves = list(flatten(plan.steps, plan.layouts))
        if all(map(_plain, leaves)):
            _check(plan, leaves)
            checked += 1


def test_received_bytes_agree(plans: Any) -> None:
    """N3's busiest device is the plan's own projection, reductions included."""
    rng = Random(2)
    for _ in range(150):
        plan = plans.planned(rng) if rng.randint(0, 1) else plans.assembled(rng)
        figures = verify(plan).obligation("N3").figures
        assert figures["received"] * plan.source.itemsize == plan.received_bytes, plan.to_json()
        if "lower bound" in figures:
            assert figures["lower bound"] == lower_bound(plan.source, plan.target)


def test_transfers_that_repeat() -> None:
    """An element that comes twice, and one that the receiver has."""
    source, target = (Layout.parse(text, Mesh.parse("x=2,y=2")) for text in ("[4{x}]", "[4]"))
    boxes = [Transfer(s, r, (2 * (s // 2),), (2 * (s // 2) + 2,)) for s, r in itertools.product((0, 2), range(4))]
    right = Leaf("1", Exchange(target, tuple(boxes)), source, target)
    assert exceptions(right) == 2 * 2  # devices 1 and 3 get their own block from their replicas
    again = (*boxes, Transfer(1, 2, (0,), (1,)))
    assert exceptions(Leaf("1", Exchange(target, again), source, target)) == 2 * 2 + 1


def test_unfused_exchanges_drop() -> None:
    """`[{x,y},_] -> [_,{y,x}]` by two all-to-alls on 2x2 drops 4 elements; the order of steps does not tell."""
    mesh = Mesh.parse("x=2,y=2")
    source, target = Layout.parse("[4{x,y}, 4]", mesh), Layout.parse("[4, 4{y,x}]", mesh)
    two = Plan(source, target, (AllToAll([(["y"], 0, 1)]), AllToAll([(["x"], 0, 1)])))
    fused = Plan(source, target, (AllToAll([(["y", "x"], 0, 1)]),))
    certificate = verify(two)
    assert certificate.status == "proved"
    assert certificate.obligation("N1").holds
    assert certificate.obligation("N3").figures["elements received and dropped"] == 4
    assert verify(fused).obligation("N3").holds


def test_devices_that_are_not_in_the_target() -> None:
    """What a device outside the target receives on the way counts as beyond need."""
    small, large = Mesh.parse("x=2"), Mesh.parse("x=4")
    layout = Layout.parse("[4]", small)
    middle, target = Layout.parse("[4]", large), Layout.parse("[4]", small)
    certificate = verify(Plan(layout, target, (Exchange(middle), Exchange(target))))
    assert certificate.status == "proved"
    figures = certificate.obligation("N3").figures
    assert figures["devices that received though nothing was missing"] == 2
    assert figures["elements beyond need"] == 8

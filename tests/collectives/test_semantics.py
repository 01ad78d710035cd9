"""What steps do to data: every block ends where the typing rule says, by whichever engine runs it."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.collectives.backends.numpy import owned_transfers, reduce_blocks, run_step, run_steps, stacked
from redist.collectives.bijection import senders
from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Free,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Transfer,
)
from redist.collectives.typing import after
from redist.errors import TypingError
from redist.testing import layouts, problems, random_layout, random_mesh, random_steps, valid_steps
from redist.types import BALANCED, Layout, Mesh, Offsets

Sequence = tuple[Layout, tuple[Step, ...]]


def check(brute: Any, source: Layout, steps: tuple[Step, ...]) -> None:
    """Run step by step: the blocks after each are those of the layout after it."""
    shares = brute.shares(source)
    blocks: Any = stacked(brute.held(source, shares), source)
    for step in steps:
        following = after(step, source)
        shares = brute.reduced(step, source, following, shares)
        blocks = run_step(blocks, step, source)
        expected = brute.held(following, shares)
        assert isinstance(blocks, np.ndarray) == following.is_even()
        assert len(blocks) == len(expected)
        for position, (block, want) in enumerate(zip(blocks, expected, strict=True)):
            assert block.shape == want.shape, (step, source, position)
            np.testing.assert_array_equal(block, want, err_msg=f"{step} on {source!r}, position {position}")
        source = following


@settings(max_examples=300)
@given(valid_steps(layouts(max_elements=120), max_steps=5))
def test_typing_and_semantics_agree(brute: Any, sequence: Sequence) -> None:
    """After every step of a valid sequence each device holds its box of its contribution, element by element."""
    check(brute, *sequence)


@settings(max_examples=150)
@given(valid_steps(layouts(uneven=False, max_elements=200), max_steps=6, same_mesh=True))
def test_even_layouts_agree_too(brute: Any, sequence: Sequence) -> None:
    """The same where most layouts are even, the case of the stacked engine."""
    check(brute, *sequence)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(4))
def test_many_sequences(brute: Any, seed: int) -> None:
    """Thousands of seeded sequences, of larger arrays and longer."""
    rng = Random(seed)
    for _ in range(1500):
        source = random_layout(rng, random_mesh(rng, max_devices=30))
        check(brute, source, random_steps(rng, source, max_steps=8))


@given(valid_steps(layouts(uneven=False, max_elements=120), max_steps=4))
def test_engines_agree(brute: Any, sequence: Sequence) -> None:
    """Even blocks held stacked and held as a list give the same, step by step."""
    source, steps = sequence
    blocks = brute.held(source, brute.shares(source))
    for step in steps:
        following = after(step, source)
        listed = list(run_step(list(blocks), step, source))
        if source.is_even():
            for one, other in zip(run_step(np.stack(blocks), step, source), listed, strict=True):
                np.testing.assert_array_equal(one, other)
        blocks, source = listed, following


@given(valid_steps(layouts(max_elements=150), max_steps=3, kinds=("chunk", "all_gather", "reduce_scatter")))
def test_a_chunk_does_what_its_steps_do(brute: Any, sequence: Sequence) -> None:
    """In parts, of which some may be empty, or at once."""
    source, steps = sequence
    shares = brute.shares(source)
    blocks: Any = stacked(brute.held(source, shares), source)
    for step in steps:
        inner = step.steps if isinstance(step, Chunk) else (step,)
        at_once, following = run_steps(blocks, inner, source)
        blocks = run_step(blocks, step, source)
        assert following == after(step, source)
        for one, other in zip(blocks, at_once, strict=True):
            np.testing.assert_array_equal(one, other)
        source = following


@settings(max_examples=200)
@given(problems(kinds=("same",), max_elements=60, max_devices=12), st.randoms(use_true_random=False))
def test_steps_of_another_layout_are_refused_or_right(brute: Any, problem: Any, rng: Random) -> None:
    """Steps that are valid for one layout, tried on another: a TypingError, or blocks where they belong."""
    source, target = problem
    for step in random_steps(rng, target, max_steps=3):
        try:
            after(step, source)
        except TypingError:
            continue
        if isinstance(step, Exchange) and isinstance(step.transfers, tuple):
            continue  # its transfers are right for the layout that it was made for
        check(brute, source, (step,))


@given(valid_steps(layouts(max_elements=100), max_steps=2, kinds=("permute",)))
def test_senders_of_a_permute(brute: Any, sequence: Sequence) -> None:
    """The one device whose block, contribution and free coordinates fit; together a bijection."""
    source, steps = sequence
    for step in steps:
        assert isinstance(step, Permute)
        found = senders(step, source).tolist()
        assert found == brute.senders(step, source)
        assert sorted(found) == list(range(source.mesh.size))
        source = step.layout


def check_owners(brute: Any, source: Layout, target: Layout) -> None:
    """Every element of every block comes once, from the device that the owner rule names."""
    got: dict[tuple[int, tuple[int, ...]], int] = {}

    def emit(sender: int, receiver: int, starts: Any, stops: Any) -> None:
        for element in itertools.product(*(range(a, b) for a, b in zip(starts, stops, strict=True))):
            assert (receiver, element) not in got
            got[receiver, element] = sender

    owned_transfers(source, target, source.boxes(), target.boxes(), emit)
    expected: dict[tuple[int, tuple[int, ...]], int] = {}
    at = {device: p for p, device in enumerate(source.mesh.device_ids)}
    replicas: dict[tuple[int, ...], list[int]] = {}
    places = brute.blocks_of(source)
    for p, place in enumerate(places):
        replicas.setdefault(place, []).append(p)
    boxes = brute.boxes(source)
    for r, (device, box, blocks) in enumerate(
        zip(target.mesh.device_ids, brute.boxes(target), brute.blocks_of(target), strict=True)
    ):
        number = replicas[places[at[device]]].index(at[device]) if device in at else r
        for element in itertools.product(*(range(a, b) for a, b in box)):
            for place, several in replicas.items():
                inside = all(a <= n < b for n, (a, b) in zip(element, boxes[several[0]], strict=True))
                if inside and place[-1] == blocks[-1]:
                    expected[r, element] = several[number % len(several)]
    assert got == expected


@given(valid_steps(layouts(max_elements=80), max_steps=2, kinds=("exchange",)))
def test_the_owner_rule(brute: Any, sequence: Sequence) -> None:
    """The owner is the receiver itself where it holds the element; else the holder with its own replica
    coordinates; for a receiver outside, the holder whose number among the replicas is the receiver's
    position modulo their count."""
    source, steps = sequence
    for step in steps:
        assert isinstance(step, Exchange)
        check_owners(brute, source, step.layout)
        source = step.layout


@pytest.mark.parametrize("source", ["[4]", "[4{x}]", "[4{y}]", "[4] sum{y}", "[4{y:(1)2}] max{x}", "[4{y:(2)3}]"])
@pytest.mark.parametrize("ids", [range(20, 24), (3, 20, 0, 21)], ids=["outside", "both"])
def test_owners_of_receivers_outside(brute: Any, source: str, ids: Any) -> None:
    """Receivers outside the source mesh take turns at the replicas, whatever their axes."""
    before = Layout.parse(source, Mesh({"x": 2, "y": 6}))
    unreduced = before.mesh.count(before.partial_axes)
    mesh = Mesh({"r": unreduced, "a": 2, "b": 2}, (*ids, *range(30, 26 + 4 * unreduced)))
    partial = f" {before.partial.reduction}{{r}}" if before.partial else ""
    for blocks in ("[4]", "[4{b}]", "[4{b,a}]"):
        check_owners(brute, before, Layout.parse(blocks + partial, mesh))


# -- by hand -------------------------------------------------------------------------------------------

MESH = Mesh({"x": 2, "y": 2, "z": 2})
NINE = Mesh({"x": 9, "y": 4})
TWO = Mesh({"x": 2, "y": 2})


@pytest.mark.parametrize(
    ("mesh", "source", "steps"),
    [
        # one all-to-all of three axes from two dimensions to two others, taken and appended out of order
        (MESH, "[8{x,y}, 8{z}, 8, 8]", [AllToAll([(["y"], 0, 3), (["z"], 1, 2), (["x"], 0, 3)])]),
        (MESH, "[8{x,y,z}, 8]", [AllToAll([(["x", "z", "y"], 0, 1)])]),
        # parts of an axis move out of the middle of a factorisation
        (NINE, "[36{y,x}, 9]", [AllToAll([(["x:(3)3"], 0, 1)]), AllToAll([(["x:(1)3"], 0, 1)])]),
        (
            NINE,
            "[36{y:(2)2}, 36]",
            [Slice({0: ["y:(1)2"], 1: ["x:(3)3", "x:(1)3"]}), AllGather({1: ["x:(3)3", "x:(1)3"]})],
        ),
        # more blocks than elements, no elements, one element
        (NINE, "[2{x}, 5{y}]", [AllGather({0: ["x"], 1: ["y"]})]),
        (NINE, "[0, 5]", [Slice({0: ["x"], 1: ["y"]}), AllGather({1: ["y"]})]),
        (NINE, "[1]", [Slice({0: ["x", "y"]}), AllGather({0: ["y", "x"]})]),
        (NINE, "[5]", [Slice({0: ["x"]}, {0: Offsets((0, 0, 0, 1, 1, 4, 5, 5, 5))}), AllGather({0: ["x:(3)3"]})]),
        (NINE, "[7{y}:balanced, 3]", [AllToAll([(["y"], 0, 1)], {1: BALANCED})]),
        # reductions: of parts of an axis, uneven, in all dimensions at once
        (
            NINE,
            "[7] sum{x,y}",
            [AllReduce(["x:(3)3"]), ReduceScatter({0: ["y:(2)2", "x:(1)3"]}), AllReduce(["y:(1)2"])],
        ),
        (NINE, "[7, 5] max{x,y}", [ReduceScatter({0: ["x"], 1: ["y"]})]),
        (NINE, "[7, 5{y}] min{x}", [ReduceScatter({0: ["x:(1)3"]}, {0: BALANCED}), AllReduce(["x:(3)3"])]),
        (NINE, "[3, 7{y}] prod{x}", [ReduceScatter({0: ["x:(3)3"]}), AllReduce(["x:(1)3"])]),
        (NINE, "[8{y:(1)2}] sum{y:(2)2}", [ReduceScatter({0: ["y:(2)2"]})]),
        # scalars
        (TWO, "[] sum{x}", [AllReduce(["x"])]),
        (TWO, "[] max{x,y}", [AllReduce(["y"]), AllReduce(["x"])]),
        (TWO, "[]", [Exchange(Layout.parse("[]", Mesh({"a": 3}, [3, 9, 1])))]),
        (TWO, "[]", [Permute(Layout.parse("[]", Mesh({"a": 4}, [4, 5, 6, 7])), Free.of((["y", "x"], ["a"])))]),
        # a mesh without axes, and one with axes of size 1 only
        (Mesh({}), "[4, 3]", [Exchange(Layout.parse("[4{a}, 3]", Mesh({"a": 2}, [5, 0])))]),
        (
            Mesh({"e": 1}),
            "[4{e}]",
            [AllGather({0: ["e"]}), Slice({0: ["e"]}), Permute(Layout.parse("[4]", Mesh({}, [3])), Free())],
        ),
        # exchanges of contributions: to other axes, to another mesh, to disjoint devices
        (TWO, "[4{x}] sum{y}", [Exchange(Layout.parse("[4{y}] sum{x}", TWO))]),
        (
            TWO,
            "[4{x}] sum{y}",
            [Exchange(Layout.parse("[4] sum{a}", Mesh({"a": 2, "b": 3}, range(10, 16)))), AllReduce(["a"])],
        ),
        (
            TWO,
            "[5{x}] sum{y}",
            [Exchange(Layout.parse("[5{b}:balanced] sum{a}", Mesh({"a": 2, "b": 3}, [3, 10, 0, 11, 1, 2])))],
        ),
        # permutes of contributions and of uneven blocks
        (TWO, "[5{x}] max{y}", [Permute(Layout.parse("[5{y}] max{x}", TWO), Free())]),
        (
            TWO,
            "[5{x}] max{y}",
            [
                Permute(
                    Layout.parse("[5{x}] max{y}", Mesh({"x": 2, "y": 2}, [8, 9, 6, 7])),
                    Pairs(((0, 8), (3, 7), (2, 6), (1, 9))),
                )
            ],
        ),
        # chunks: parts that do not divide, uneven blocks, nested, around an exchange
        (TWO, "[5, 4{x}]", [Chunk(0, 3, [AllGather({1: ["x"]}), Slice({1: ["y"]})])]),
        (TWO, "[5{y}, 4{x}]", [Chunk(0, 2, [AllGather({1: ["x"]})])]),
        (TWO, "[5{y}, 4{x}, 6]", [Chunk(0, 2, [Chunk(2, 4, [AllGather({1: ["x"]})])])]),
        (TWO, "[5{y}, 5{x}]", [Chunk(0, 3, [Exchange(Layout.parse("[5{y}, 5{x}:balanced]", TWO))])]),
        (TWO, "[1, 4] sum{x}", [Chunk(0, 2, [ReduceScatter({1: ["x"]})])]),
        (TWO, "[0, 4] sum{x}", [Chunk(0, 2, [ReduceScatter({1: ["x"]})])]),
        (
            TWO,
            "[4, 5{x}]",
            [Chunk(0, 2, [Exchange(Layout.parse("[4, 5{y,x}]", TWO)), Exchange(Layout.parse("[4, 5]", TWO))])],
        ),
    ],
)
def test_corner_cases(brute: Any, mesh: Mesh, source: str, steps: list[Step]) -> None:
    """One by one what random sequences may miss."""
    check(brute, Layout.parse(source, mesh), tuple(steps))


def test_stated_transfers(brute: Any) -> None:
    """Each moves its box, a device's own included; what no transfer names stays zero."""
    source, target = Layout.parse("[6{x}]", TWO), Layout.parse("[6]", Mesh({"a": 2}, [3, 7]))
    transfers = (
        Transfer(3, 3, (3,), (6,)),
        Transfer(0, 3, (0,), (2,)),
        Transfer(1, 7, (1,), (1,)),
        Transfer(2, 7, (4,), (6,)),
    )
    blocks = np.stack(brute.held(source, brute.shares(source)))
    made = run_step(blocks, Exchange(target, transfers), source)
    assert made.tolist() == [[1, 2, 0, 4, 5, 6], [0, 0, 0, 0, 5, 6]]


def test_blocks_given_are_not_written_to(brute: Any) -> None:
    """A step leaves its input as it was, and its output is no view of it where it is written to next."""
    source = Layout.parse("[4{x}, 4]", TWO)
    blocks = np.stack(brute.held(source, brute.shares(source)))
    kept = blocks.copy()
    steps = (Chunk(0, 2, [Slice({1: ["y"]})]), AllGather({0: ["x"]}), Exchange(Layout.parse("[4{y}, 4{x}]", TWO)))
    run_steps(blocks, steps, source)
    np.testing.assert_array_equal(blocks, kept)


@pytest.mark.parametrize(("reduction", "expected"), [("sum", 9), ("max", 5), ("min", 1), ("prod", 15)])
def test_reductions(reduction: Any, expected: int) -> None:
    """Elementwise, over any number of blocks."""
    assert reduce_blocks(reduction, [np.asarray([n]) for n in (3, 1, 5)]).tolist() == [expected]


def test_ill_typed_steps_do_not_run(brute: Any) -> None:
    """The typing rule is checked before any data moves."""
    source = Layout.parse("[5{x}]", TWO)
    blocks = brute.held(source, brute.shares(source))
    with pytest.raises(TypingError, match="do not nest"):
        run_step(blocks, Slice({0: ["y"]}), source)

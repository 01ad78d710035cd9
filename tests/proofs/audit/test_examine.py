"""One foreign plan examined: every verdict, and what is counted, on plans written out here."""

from __future__ import annotations

import pytest

from redist.collectives import AllGather, AllToAll, Permute, Slice
from redist.collectives.steps import Pairs
from redist.errors import BackendError, LayoutError, ProofError
from redist.proofs.audit.examine import Finding, examine, examine_pair
from redist.proofs.audit.foreign import ForeignOp, ForeignPlan, WrongBlockError
from redist.proofs.audit.summary import summarise
from redist.proofs.certificate import Counterexample
from redist.types import Layout, Mesh

MESH = Mesh.parse("x=2,y=2")


def layout(text: str) -> Layout:
    return Layout.parse(text, MESH)


def foreign(source: str, target: str, *steps: object, **fields: object) -> ForeignPlan:
    ops = tuple(ForeignOp(type(step).__name__, "") for step in steps)
    return ForeignPlan("test", layout(source), layout(target), ops, steps, **fields)  # type: ignore[arg-type]


def test_right() -> None:
    """Half of 8 elements arrive in one all-to-all."""
    found = examine(foreign("[4{x}, 4]", "[4, 4{x}]", AllToAll([(["x"], 0, 1)])))
    assert (found.verdict, found.clean, found.steps) == ("right", True, ("all-to-all x: 0 -> 1",))
    assert (found.received, found.needed, found.largest) == (4, 4, 8)


def test_wrong_by_its_end() -> None:
    """Sliced by x where y is wanted."""
    found = examine(foreign("[4, 4]", "[4{y}, 4]", Slice({0: ["x"]})))
    assert found.verdict == "wrong" and not found.clean
    assert found.counterexample is not None and found.counterexample.confirmed
    assert found.reason == found.counterexample.text


def test_wrong_by_its_types() -> None:
    found = examine(foreign("[4{x,y}, 4]", "[4{y}, 4]", AllGather({0: ["x"]})))
    assert found.verdict == "wrong" and found.reason.startswith("REFUTED typing: ")


def test_wrong_by_what_it_states() -> None:
    """The target is reached, but not by way of what is stated."""
    steps = (Slice({0: ["x"]}), AllGather({0: ["x"]}))
    stated = (layout("[4{y}, 4]"), layout("[4, 4]"))
    found = examine(foreign("[4, 4]", "[4, 4]", *steps, stated=stated))
    assert (found.verdict, found.reason) == (
        "wrong",
        "after step 1 the planner states f32[4{y}, 4], but its step leads to f32[4{x}, 4]",
    )


def test_failed_and_unread() -> None:
    gave_up = ForeignPlan("test", layout("[4]"), layout("[4{x}]"), (), note="an assertion failed")
    assert (examine(gave_up).verdict, examine(gave_up).reason) == ("failed", "an assertion failed")
    unread = ForeignPlan("test", layout("[4]"), layout("[4{x}]"), (ForeignOp("mystery", ""),), note="no typed step")
    assert (examine(unread).verdict, examine(unread).reason) == ("undecided", "no typed step")


def test_a_program_that_was_run() -> None:
    """Right by its run; what it receives and holds is counted from its operations."""
    ops = (ForeignOp("a", "", (3, 5, 0, 0)), ForeignOp("b", "", (2, 1, 0, 0)))
    plan = ForeignPlan(
        "test", layout("[4{x}, 4]"), layout("[4{y}, 4]"), ops, measures={"largest_elements": 16}, checked=True
    )
    found = examine(plan)
    assert (found.verdict, found.received, found.needed, found.gathers_all) == ("right", 6, 8, True)
    assert found.over == "a device holds a value of 16 elements, more than the larger of source and target, 8"


@pytest.mark.parametrize(
    ("source", "steps", "target", "whole"),
    [
        ("[4{x}, 4]", (AllGather({0: ["x"]}), Slice({0: ["y"]})), "[4{y}, 4]", True),
        ("[8{x,y}, 4]", (AllGather({0: ["y"]}), Slice({1: ["y"]})), "[8{x}, 4{y}]", False),
    ],
)
def test_over_the_bound(source: str, steps: tuple[object, ...], target: str, whole: bool) -> None:
    found = examine(foreign(source, target, *steps))
    assert (found.verdict, found.gathers_all, found.clean) == ("right", whole, False)
    assert found.over.startswith("REFUTED memory: after step 1 a device holds a block of 64 bytes")


def test_the_live_peak_is_bounded_too() -> None:
    """No block is larger than the source's 32 bytes, but three are alive where 32 + 16 + 32 may be."""
    swap = Permute(layout("[4{y}, 4]"), Pairs(((0, 0), (2, 1), (1, 2), (3, 3))))
    found = examine(foreign("[4{x}, 4]", "[4{x}, 4{y}]", swap, AllToAll([(["y"], 0, 1)]), Slice({0: ["x"]})))
    assert (found.verdict, found.largest, found.gathers_all) == ("right", 8, False)
    assert found.over == (
        "REFUTED memory: in step 2 a device keeps 96 bytes alive, more than source + target + the larger of them + "
        "staging, 80"
    )


def test_refusals_and_wrong_results() -> None:
    def refuse(*_: Layout) -> ForeignPlan:
        raise LayoutError("no such blocks")

    def absent(*_: Layout) -> ForeignPlan:
        raise BackendError("does not compile")

    def unknown(*_: Layout) -> ForeignPlan:
        raise ProofError("HLO instruction 'sort' is not known here")

    def wrong(*_: Layout) -> ForeignPlan:
        raise WrongBlockError(Counterexample("REFUTED refinement: device 1", 1))

    pair = layout("[4]"), layout("[4{x}]")
    assert examine_pair(refuse, *pair).verdict == examine_pair(absent, *pair).verdict == "refused"
    assert examine_pair(unknown, *pair).verdict == "undecided"
    found = examine_pair(wrong, *pair)
    assert (found.verdict, found.reason, found.steps) == ("wrong", "REFUTED refinement: device 1", ())
    assert found.counterexample is not None and found.counterexample.device == 1


def test_an_undecided_obligation_is_not_right(monkeypatch: pytest.MonkeyPatch) -> None:
    from redist.proofs.solver import Answer

    monkeypatch.setattr("redist.proofs.refinement.decide", lambda *_: Answer("unknown", reason="timeout"))
    plan = foreign("[4{x}, 4]", "[4, 4{x}]", AllToAll([(["x"], 0, 1)]))
    assert examine(plan).verdict == "undecided"


def test_a_summary() -> None:
    pair = layout("[4{x}, 4]"), layout("[4, 4{x}]")
    least, longer = Finding(*pair, "right", received=4, needed=4), Finding(*pair, "right", received=10, needed=4)
    needless = Finding(*pair, "right", received=3, needed=0)
    wrong = Finding(*pair, "wrong", "off by one", steps=("a", "b"))
    shorter = Finding(*pair, "wrong", "off by two\nthere", steps=("a",))
    over = Finding(*pair, "right", received=8, needed=4, largest=16, over="too large")
    refused = Finding(*pair, "refused", "no such blocks")
    found = summarise("test", "f32[4, 4] on x=2,y=2", [least, longer, needless, wrong, shorter, over, refused], 9, 3)
    assert found.counts == {"right": 4, "wrong": 2, "failed": 0, "refused": 1, "undecided": 0}
    assert (found.asked, found.over, found.gathers_all, found.needless, found.clean) == (7, 1, 1, 1, False)
    assert (found.mean, found.largest, found.dearest) == ((1 + 2.5 + 2) / 3, 2.5, longer)
    assert found.objections == (wrong, shorter, over)
    assert found.simplest("wrong") == shorter and found.simplest(None) == over and found.simplest("failed") is None
    assert str(found) == (
        "test: f32[4, 4] on x=2,y=2, 7 of 9 ordered pairs\n"
        "  right           4  every device ends with its block\n"
        "  wrong           2  some device ends with something else\n"
        "  failed          0  the planner gave up\n"
        "  refused         1  the planner does not take such layouts\n"
        "  undecided       0  neither shown right nor wrong\n"
        "  over the bound  1  a block larger than source and target, or too much alive at once\n"
        "  gathers all     1  a device holds the whole array, on the way only\n"
        "  received / lower bound of the right ones: mean 1.83, max 2.50; 1 receive though nothing is missing\n"
        "  dearest: f32[4{x}, 4] -> f32[4, 4{x}]: \n"
        "\n"
        "simplest wrong: f32[4{x}, 4] -> f32[4, 4{x}]\n"
        "  a\n"
        "  off by two\n"
        "  there\n"
        "\n"
        "simplest over the bound: f32[4{x}, 4] -> f32[4, 4{x}]\n"
        "  too large"
    )
    assert summarise("test", "", [least, refused], 2).clean

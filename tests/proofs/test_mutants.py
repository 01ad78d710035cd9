"""Plans that went wrong in one place: every one that the NumPy reference finds wrong is refuted, none proved."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from redist.collectives import Plan
from redist.proofs import Proved, Refuted, verify


def _judge(plans: Any, kind: str, plan: Plan, score: Counter[tuple[str, str]]) -> None:
    certificate = verify(plan)
    text = f"{kind}: {plan.to_json()}\n{certificate}"
    if not plans.typed(plan):
        score[kind, "ill-typed"] += 1
        assert certificate.status == "refuted", text
        assert isinstance(certificate.obligation("T").verdict, Refuted), text
        return
    right = plans.right(plan)
    refined = certificate.obligation("R").verdict
    score[kind, "right" if right else "wrong"] += 1
    assert isinstance(refined, Proved if right else Refuted), text
    assert certificate.obligation("T").holds, text
    assert certificate.status != "unknown", text
    if isinstance(refined, Refuted):
        assert certificate.status == "refuted", text
        assert refined.counterexample.confirmed in (True, None), text
    if kind == "limit":
        assert plan.options.memory_limit is not None
        exceeded = plan.peak_bytes > plan.options.memory_limit
        memory = certificate.obligation("M")
        assert isinstance(memory.verdict, Refuted) or not exceeded, text
        assert memory.holds or exceeded or memory.figures["largest block"] > memory.figures["of"], text
        score[kind, "exceeded" if exceeded else "kept"] += 1


def _run(plans: Any, seed: int, count: int) -> Counter[tuple[str, str]]:
    rng = Random(seed)
    score: Counter[tuple[str, str]] = Counter()
    made = 0
    even = {"uneven": False, "partial": False}
    makers = [
        lambda: plans.planned(rng),
        lambda: plans.planned(rng, **even),
        lambda: plans.assembled(rng),
        lambda: plans.assembled(rng, **even),
    ]
    while made < count:
        plan = rng.choice(makers)()
        for kind, mutant in plans.mutants(rng, plan, 6):
            _judge(plans, kind, mutant, score)
            made += 1
    return score


def _by_outcome(score: Counter[tuple[str, str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, outcome), count in score.items():
        found[outcome] += count
    return found


def test_mutants(plans: Any) -> None:
    """200 mutants: the wrong ones refuted, the equivalent ones proved, nothing unknown."""
    found = _by_outcome(_run(plans, 0, 200))
    assert found["wrong"] >= 40
    assert found["right"] >= 20
    assert found["ill-typed"] >= 20


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_mutants(plans: Any, seed: int) -> None:
    """4 x 750 mutants; every kind has wrong ones, or ones that typing stops."""
    score = _run(plans, seed, 750)
    print(sorted(score.items()))
    kinds = {kind for kind, _ in score}
    caught = {kind for kind, outcome in score if outcome in ("wrong", "ill-typed", "exceeded")}
    assert kinds == caught

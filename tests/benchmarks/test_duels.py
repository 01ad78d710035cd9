"""Duels count pairs that both planned right, by what is received and then by steps."""

from __future__ import annotations

from typing import Any

from benchmarks.duels import Duel, duels


def record(who: str, problem: str, received: int, steps: int, verdict: str = "ok") -> dict[str, Any]:
    """As much of one as counts."""
    return {"who": who, "problem": problem, "received": received, "steps": steps, "verdict": verdict}


def test_a_duel() -> None:
    """Less, equal with fewer, as many and more steps, more; wrong ones and those asked of one only are left out."""
    records = [
        *(
            record("a", str(n), received, steps)
            for n, (received, steps) in enumerate([(1, 1), (2, 1), (2, 2), (2, 3), (5, 1)])
        ),
        *(record("b", str(n), received, 2) for n, received in enumerate([2, 2, 2, 2, 4])),
        record("a", "x", 1, 1, "wrong"),
        record("b", "x", 1, 1),
        record("b", "only b", 1, 1),
        record("c", "0", 1, 1, "failed"),
    ]
    assert duels(records, "a", ["a", "b", "c"]) == [Duel("a", "b", 1, 3, 1, 1, 1, 1)]
    assert str(duels(records, "a", ["b"])[0]) == (
        "a against b, 5 pairs that both plan right: receives less on 1, as much on 3, more on 1; of those with as "
        "much, fewer steps on 1, as many on 1, more on 1"
    )

"""redist against each other planner, problem by problem: who receives less, and where equal, who takes fewer steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Duel", "duels"]


@dataclass(frozen=True, slots=True)
class Duel:
    """On the problems that both planned right: how often the first receives less, as much or more, and of those
    with as much, how often it takes fewer, as many or more steps."""

    who: str
    other: str
    less: int
    same: int
    more: int
    fewer_steps: int
    same_steps: int
    more_steps: int

    def __str__(self) -> str:
        pairs = self.less + self.same + self.more
        return (
            f"{self.who} against {self.other}, {pairs} pairs that both plan right: receives "
            f"less on {self.less}, as much on {self.same}, more on {self.more}; of those with as much, fewer steps on "
            f"{self.fewer_steps}, as many on {self.same_steps}, more on {self.more_steps}"
        )


def duels(records: Iterable[dict[str, Any]], who: str, others: Iterable[str]) -> list[Duel]:
    """One per other planner that has records; records are those of one family."""
    right: dict[str, dict[str, dict[str, Any]]] = {}
    for record in records:
        if record["verdict"] == "ok":
            right.setdefault(record["who"], {})[record["problem"]] = record
    found: list[Duel] = []
    for other in others:
        pairs = [(a, right[other][key]) for key, a in right.get(who, {}).items() if key in right.get(other, {})]
        equal = [(a["steps"], b["steps"]) for a, b in pairs if a["received"] == b["received"]]
        if pairs and other != who:
            found.append(
                Duel(
                    who,
                    other,
                    sum(a["received"] < b["received"] for a, b in pairs),
                    len(equal),
                    sum(a["received"] > b["received"] for a, b in pairs),
                    sum(a < b for a, b in equal),
                    sum(a == b for a, b in equal),
                    sum(a > b for a, b in equal),
                )
            )
    return found

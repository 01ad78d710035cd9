"""What an audit of many pairs found: counts, cost, and the simplest example of what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from redist.proofs.audit.examine import VERDICTS, Finding, Verdict

__all__ = ["Summary", "summarise"]


@dataclass(frozen=True, slots=True)
class Summary:
    """Of `planner`, asked for `asked` of the `pairs` that there are.

    `ratios` are received over lower bound of right plans where the bound is above 0, in the order of the pairs;
    `needless` counts those that receive though nothing is missing. `objections` are the findings that are wrong,
    failed, undecided or over the memory bound, `over` and `gathers_all` count plans over the bound, and plans in
    which a device holds the whole array on the way only.
    """

    planner: str
    about: str
    pairs: int
    seed: int | None
    counts: dict[Verdict, int]
    over: int
    gathers_all: int
    ratios: tuple[float, ...]
    dearest: Finding | None
    needless: int
    objections: tuple[Finding, ...]

    @property
    def asked(self) -> int:
        """How many pairs were asked for."""
        return sum(self.counts.values())

    @property
    def clean(self) -> bool:
        """Whether no plan is wrong, failed, undecided or over the bound."""
        return not self.objections

    @property
    def mean(self) -> float | None:
        """Mean of the ratios; None where there are none."""
        return sum(self.ratios) / len(self.ratios) if self.ratios else None

    @property
    def largest(self) -> float | None:
        """The largest ratio; None where there are none."""
        return max(self.ratios, default=None)

    def simplest(self, verdict: Verdict | None) -> Finding | None:
        """The simplest finding of a verdict, for None of those over the bound."""
        found = [f for f in self.objections if (f.over if verdict is None else f.verdict == verdict)]
        return min(found, key=lambda f: f.simplicity, default=None)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "planner": self.planner,
            "about": self.about,
            "pairs": self.pairs,
            "asked": self.asked,
            "seed": self.seed,
            "counts": dict(self.counts),
            "over_the_bound": self.over,
            "gathers_all": self.gathers_all,
            "excess": {"mean": self.mean, "max": self.largest, "plans": len(self.ratios)},
            "needless": self.needless,
            "objections": [_plain(finding) for finding in self.objections],
        }

    def __str__(self) -> str:
        sampled = "all" if self.seed is None else f"{self.asked:,} of"
        lines = [f"{self.planner}: {self.about}, {sampled} {self.pairs:,} ordered pairs"]
        rows = [(str(name), self.counts[name], about) for name, about in VERDICTS.items()]
        rows.append(("over the bound", self.over, "a block larger than source and target, or too much alive at once"))
        rows.append(("gathers all", self.gathers_all, "a device holds the whole array, on the way only"))
        width = max(len(f"{count:,}") for _, count, _ in rows)
        lines += [f"  {name:<14}  {count:>{width},}  {about}" for name, count, about in rows]
        if self.ratios:
            lines.append(
                f"  received / lower bound of the right ones: mean {self.mean:.2f}, max {self.largest:.2f}"
                + (f"; {self.needless:,} receive though nothing is missing" if self.needless else "")
            )
        if self.dearest is not None and (self.largest or 0) > 1:
            lines.append(f"  dearest: {self.dearest.source} -> {self.dearest.target}: {'; '.join(self.dearest.steps)}")
        wrong: Verdict
        for wrong in ("wrong", "failed", "undecided"):
            lines += _example(f"simplest {wrong}", self.simplest(wrong), over=False)
        lines += _example("simplest over the bound", self.simplest(None), over=True)
        return "\n".join(lines)


def _example(title: str, finding: Finding | None, over: bool) -> list[str]:
    if finding is None:
        return []
    lines = ["", f"{title}: {finding.source} -> {finding.target}"]
    if finding.steps:
        lines.append(f"  {'; '.join(finding.steps)}")
    return [*lines, *(f"  {line}" for line in (finding.over if over else finding.reason).split("\n"))]


def _plain(finding: Finding) -> dict[str, Any]:
    found = finding.counterexample
    return {
        "source": str(finding.source),
        "target": str(finding.target),
        "verdict": finding.verdict,
        "reason": finding.reason,
        "steps": list(finding.steps),
        "received": finding.received,
        "needed": finding.needed,
        "largest_block": finding.largest,
        "over": finding.over,
        "counterexample": None if found is None else found.as_json(),
    }


def summarise(planner: str, about: str, findings: Iterable[Finding], pairs: int, seed: int | None = None) -> Summary:
    """Count findings one by one; only what there is to object to is kept. `seed` where they are a sample."""
    counts: Counter[Verdict] = Counter()
    over = whole = needless = 0
    ratios: list[float] = []
    dearest: tuple[float, Finding] | None = None
    objections: list[Finding] = []
    for finding in findings:
        counts[finding.verdict] += 1
        over += bool(finding.over)
        whole += finding.gathers_all
        if not finding.clean:
            objections.append(finding)
        if finding.verdict != "right" or finding.received is None or finding.needed is None:
            continue
        if finding.needed:
            ratio = finding.received / finding.needed
            ratios.append(ratio)
            if dearest is None or (-ratio, finding.simplicity) < (-dearest[0], dearest[1].simplicity):
                dearest = ratio, finding
        else:
            needless += finding.received > 0
    return Summary(
        planner,
        about,
        pairs,
        seed,
        {name: counts[name] for name in VERDICTS},
        over,
        whole,
        tuple(ratios),
        None if dearest is None else dearest[1],
        needless,
        tuple(objections),
    )

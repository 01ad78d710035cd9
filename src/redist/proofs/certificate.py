"""What `verify` returns: obligations with their verdicts, as a table, as JSON and as SMT-LIB."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, assert_never

from redist.proofs.solver import solver_version

if TYPE_CHECKING:
    from redist.collectives.plan import Plan
    from redist.proofs.terms import Query

__all__ = ["SCHEMA", "Certificate", "Counterexample", "Obligation", "Proved", "Refuted", "Status", "Unknown", "Verdict"]

SCHEMA = 1
Status = Literal["proved", "refuted", "unknown"]
Method = Literal["smt", "enumerated", "smt+enumerated", "syntactic"]


@dataclass(frozen=True, slots=True)
class Counterexample:
    """What goes wrong at one place, and how the element got there.

    `device` is an id, `local` an index in its block, `wanted` and `got` global indices (None where there is
    none), `sender` the device whose source block the element comes from. `confirmed` says whether the NumPy
    reference shows it too; None where there is nothing to run or the arrays are too large. `text` is for
    people.
    """

    text: str
    device: int | None = None
    coordinates: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    local: tuple[int, ...] | None = None
    wanted: tuple[int, ...] | None = None
    got: tuple[int, ...] | None = None
    sender: int | None = None
    confirmed: bool | None = None

    def __str__(self) -> str:
        return self.text

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "text": self.text,
            "device": self.device,
            "coordinates": dict(self.coordinates),
            "local": self.local,
            "wanted": self.wanted,
            "got": self.got,
            "sender": self.sender,
            "confirmed": self.confirmed,
        }


@dataclass(frozen=True, slots=True)
class Proved:
    """The obligation holds for every device, element and contribution."""


@dataclass(frozen=True, slots=True)
class Refuted:
    """The obligation does not hold, and here is where."""

    counterexample: Counterexample


@dataclass(frozen=True, slots=True)
class Unknown:
    """Neither: never counted as proved."""

    reason: str


Verdict = Proved | Refuted | Unknown


@dataclass(frozen=True, slots=True)
class Obligation:
    """One obligation of a plan: R, T, M, N1, N2 or N3.

    `seconds` is what deciding it took, `figures` what was counted on the way, `queries` what the solver was
    asked, with the answers.
    """

    name: str
    title: str
    verdict: Verdict
    method: Method
    seconds: float
    figures: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    queries: tuple[tuple[Query, str], ...] = field(default=(), repr=False)

    @property
    def holds(self) -> bool:
        """Whether it is proved."""
        return isinstance(self.verdict, Proved)

    def word(self) -> str:
        """The verdict in a word; what N2 and N3 find are exceptions, which a right plan may have."""
        match self.verdict:
            case Proved():
                return "proved"
            case Refuted():
                return "exceptions" if self.name in ("N2", "N3") else "REFUTED"
            case Unknown():
                return "unknown"
            case _:
                assert_never(self.verdict)

    def note(self) -> str:
        """One line: the figures, or why not."""
        match self.verdict:
            case Proved() | Refuted():
                return "; ".join(f"{name} {_figure(value)}" for name, value in self.figures.items())
            case Unknown(reason):
                return reason
            case _:
                assert_never(self.verdict)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        found: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "verdict": type(self.verdict).__name__.lower(),
            "method": self.method,
            "seconds": round(self.seconds, 6),
            "figures": dict(self.figures),
        }
        match self.verdict:
            case Refuted(counterexample):
                found["counterexample"] = counterexample.as_json()
            case Unknown(reason):
                found["reason"] = reason
            case Proved():
                pass
            case _:
                assert_never(self.verdict)
        return found


def _figure(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The obligations of one plan.

    Proved when R, T, M and N1 hold and N2 and N3 are decided; refuted when one of the first four is;
    unknown otherwise.
    """

    plan: Plan
    obligations: tuple[Obligation, ...]

    @property
    def status(self) -> Status:
        """`proved`, `refuted` or `unknown`."""
        needed = [o for o in self.obligations if o.name in ("R", "T", "M", "N1")]
        if any(isinstance(o.verdict, Refuted) for o in needed):
            return "refuted"
        decided = not any(isinstance(o.verdict, Unknown) for o in self.obligations)
        return "proved" if decided and all(o.holds for o in needed) else "unknown"

    @property
    def counterexample(self) -> Counterexample | None:
        """That of the first obligation among R, T, M and N1 which is refuted."""
        for o in self.obligations:
            if o.name in ("R", "T", "M", "N1") and isinstance(o.verdict, Refuted):
                return o.verdict.counterexample
        return None

    def obligation(self, name: str) -> Obligation:
        """The obligation of that name."""
        return next(o for o in self.obligations if o.name == name)

    @property
    def seconds(self) -> float:
        """What all obligations took together."""
        return sum(o.seconds for o in self.obligations)

    @property
    def plan_hash(self) -> str:
        """SHA-256 of the plan's JSON."""
        return hashlib.sha256(self.plan.to_json().encode()).hexdigest()

    def to_json(self, indent: int | None = None) -> str:
        """Plan hash, solver version, verdicts with their figures, and the counterexample if there is one."""
        found = self.counterexample
        return json.dumps(
            {
                "schema": SCHEMA,
                "plan": self.plan_hash,
                "source": str(self.plan.source),
                "target": str(self.plan.target),
                "status": self.status,
                "solver": solver_version(),
                "seconds": round(self.seconds, 6),
                "obligations": [o.as_json() for o in self.obligations],
                "counterexample": found.as_json() if found else None,
            },
            indent=indent,
        )

    def write_smt2(self, directory: str | Path) -> tuple[Path, ...]:
        """Write every query as a stand-alone SMT-LIB script with its expected status; returns the paths."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        for o in self.obligations:
            for n, (query, status) in enumerate(o.queries, 1):
                path = folder / f"{o.name}-{n}.smt2"
                about = f"{o.name} {o.title}: {query.name}\n{self.plan.source} -> {self.plan.target}"
                about += f"\nplan {self.plan_hash}"
                path.write_text(query.smt2(status, about), encoding="utf-8")
                written.append(path)
        return tuple(written)

    def __str__(self) -> str:
        rows = [("", "obligation", "verdict", "method", "time", "")]
        rows += [(o.name, o.title, o.word(), o.method, f"{o.seconds * 1e3:.1f} ms", o.note()) for o in self.obligations]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = [f"{self.status.upper()}  {self.plan.source} -> {self.plan.target}"]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row[:4], widths, strict=False)]
            cells.append(row[4].rjust(widths[4]))
            lines.append("  ".join([*cells, row[5]]).rstrip())
        found = self.counterexample
        return "\n".join([*lines, *(["", str(found)] if found else [])])

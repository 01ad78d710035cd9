"""Z3, behind text: the one module that touches it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from redist.errors import ProofError
from redist.proofs.terms import Query

__all__ = ["Answer", "Deadline", "decide", "smallest", "solver_version", "undefined"]


@cache
def _z3() -> Any:
    try:
        import z3
    except ModuleNotFoundError:
        raise ProofError("proofs need Z3; pip install 'redist[proofs]'") from None
    return z3


def solver_version() -> str:
    """`z3 5.4.1`. Raises ProofError where Z3 is not installed."""
    return f"z3 {_z3().get_version_string()}"


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time that all queries of one obligation share."""

    at: float

    @staticmethod
    def after(seconds: float) -> Deadline:
        """That many seconds from now."""
        return Deadline(time.monotonic() + seconds)

    def milliseconds(self) -> int:
        """What is left, at least 1."""
        return max(1, min(2**31 - 1, int((self.at - time.monotonic()) * 1000)))


@dataclass(frozen=True, slots=True)
class Answer:
    """`unsat`: the claim holds. `sat`: `model` violates it. `unknown`: `reason` says why."""

    status: Literal["sat", "unsat", "unknown"]
    model: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    reason: str = ""


def decide(query: Query, deadline: Deadline) -> Answer:
    """Look for a violation of a claim."""
    if query.violation == "false":
        return Answer("unsat")
    solver = _solver(query.body())
    return _answer(solver, deadline)


def undefined(query: Query, receivers: Iterable[Mapping[str, int]], deadline: Deadline) -> Mapping[str, int] | None:
    """The vacuity test: the first receiver, given by values, for which the definitions alone have no solution
    (or none is found); None where all have one."""
    z3 = _z3()
    solver = _solver(query.body(violated=False))
    for values in receivers:
        solver.push()
        for name, value in values.items():
            solver.add(z3.Int(name) == value)
        answer = _answer(solver, deadline)
        solver.pop()
        if answer.status != "sat":
            return values
    return None


def smallest(query: Query, order: Sequence[str], deadline: Deadline) -> Answer:
    """The violation whose variables, in this order, are smallest; as small as time allows."""
    z3 = _z3()
    solver = _solver(query.body())
    best = _answer(solver, deadline)
    for name in order:
        if best.status != "sat":
            break
        low, high = 0, best.model.get(name, 0)
        while low < high:
            middle = 0 if low == 0 and high > 1 else (low + high) // 2
            solver.push()
            solver.add(z3.Int(name) <= middle)
            found = _answer(solver, deadline)
            solver.pop()
            if found.status == "sat":
                best, high = found, min(middle, found.model.get(name, 0))
            else:
                low = middle + 1
        solver.add(z3.Int(name) == high)
    return best


def _solver(text: str) -> Any:
    solver = _z3().SimpleSolver()  # the default and the QF_LIA tactic take twice as long to set up
    solver.from_string(text)
    return solver


def _answer(solver: Any, deadline: Deadline) -> Answer:
    solver.set("timeout", deadline.milliseconds())
    status = str(solver.check())
    if status == "unsat":
        return Answer("unsat")
    if status == "sat":
        model = solver.model()
        return Answer("sat", {d.name(): model[d].as_long() for d in model.decls() if model[d] is not None})
    return Answer("unknown", reason=str(solver.reason_unknown()))

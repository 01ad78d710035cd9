"""Linear integer terms and formulas as SMT-LIB text.

Everything that is proved about a plan is linear: digits of device coordinates times constants. Terms are
kept as coefficients, so that what is equal for every device cancels before a solver sees it; formulas are
text, so that what is checked is what `write_smt2` writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["FALSE", "TRUE", "Query", "Sheet", "Term", "both", "constant", "either", "eq", "le", "lt", "negation"]

TRUE, FALSE = "true", "false"
Formula = str


@dataclass(frozen=True, slots=True)
class Term:
    """`const + sum of coefs[v] * v` over integer variables v; no coefficient is 0."""

    coefs: Mapping[str, int]
    const: int = 0

    def __add__(self, other: Term | int) -> Term:
        if isinstance(other, int):
            return Term(self.coefs, self.const + other)
        coefs = dict(self.coefs)
        for name, factor in other.coefs.items():
            total = coefs.get(name, 0) + factor
            if total:
                coefs[name] = total
            else:
                del coefs[name]
        return Term(coefs, self.const + other.const)

    def __mul__(self, factor: int) -> Term:
        if factor == 0:
            return constant(0)
        return Term({name: n * factor for name, n in self.coefs.items()}, self.const * factor)

    def __sub__(self, other: Term | int) -> Term:
        return self + (-other if isinstance(other, int) else other * -1)

    def value(self, model: Mapping[str, int]) -> int:
        """Its value where the variables have these values (0 by default)."""
        return self.const + sum(n * model.get(name, 0) for name, n in self.coefs.items())

    def __str__(self) -> str:
        return _sum(self.coefs.items(), self.const)


def constant(value: int) -> Term:
    """A term without variables."""
    return Term({}, value)


def _sum(parts: Iterable[tuple[str, int]], const: int) -> str:
    texts = [name if n == 1 else f"(* {_number(n)} {name})" for name, n in parts]
    if const or not texts:
        texts.append(_number(const))
    return texts[0] if len(texts) == 1 else f"(+ {' '.join(texts)})"  # (+ x) is not SMT-LIB


def _number(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"


def _compared(relation: str, difference: Term) -> Formula:
    """`difference relation 0`, positive terms on the left and negative ones on the right."""
    left = [(name, n) for name, n in difference.coefs.items() if n > 0]
    right = [(name, -n) for name, n in difference.coefs.items() if n < 0]
    const = difference.const
    return f"({relation} {_sum(left, max(const, 0))} {_sum(right, max(-const, 0))})"


def eq(one: Term, other: Term) -> Formula:
    """Equality; decided here where no variable remains or divisibility rules it out."""
    difference = one - other
    if not difference.coefs:
        return TRUE if difference.const == 0 else FALSE
    common = math.gcd(*difference.coefs.values())
    if difference.const % common:
        return FALSE
    if common > 1:
        difference = Term({name: n // common for name, n in difference.coefs.items()}, difference.const // common)
    return _compared("=", difference)


def le(one: Term | int, other: Term | int) -> Formula:
    """`one <= other`."""
    difference = (constant(one) if isinstance(one, int) else one) - other
    if not difference.coefs:
        return TRUE if difference.const <= 0 else FALSE
    return _compared("<=", difference)


def lt(one: Term | int, other: Term | int) -> Formula:
    """`one < other`."""
    return le(one + 1, other)


def both(formulas: Iterable[Formula]) -> Formula:
    """Conjunction."""
    kept = [f for f in dict.fromkeys(formulas) if f != TRUE]
    if FALSE in kept:
        return FALSE
    return TRUE if not kept else kept[0] if len(kept) == 1 else f"(and {' '.join(kept)})"


def either(formulas: Iterable[Formula]) -> Formula:
    """Disjunction."""
    kept = [f for f in dict.fromkeys(formulas) if f != FALSE]
    if TRUE in kept:
        return TRUE
    return FALSE if not kept else kept[0] if len(kept) == 1 else f"(or {' '.join(kept)})"


def negation(formula: Formula) -> Formula:
    """Negation."""
    match formula:
        case "true":
            return FALSE
        case "false":
            return TRUE
        case _:
            return f"(not {formula})"


@dataclass(slots=True)
class Sheet:
    """Variables and facts under construction.

    `domain` bounds the receivers that a query ranges over; `facts` are definitions, which must hold for
    some value of the other variables whatever the receiver is (else receivers would be left out of the
    proof unseen). What a definition cannot exclude goes to the `flaws` of a trace.
    """

    names: list[str] = field(default_factory=list[str])
    domain: list[Formula] = field(default_factory=list[Formula])
    facts: list[Formula] = field(default_factory=list[Formula])

    def fresh(self, stem: str) -> Term:
        """A new variable, any integer."""
        name = f"{stem}.{len(self.names)}"
        self.names.append(name)
        return Term({name: 1})

    def bounded(self, stem: str, size: int, *, domain: bool = False) -> Term:
        """A new variable in 0..size-1; 0 where that is all it can be."""
        if size == 1:
            return constant(0)
        term = self.fresh(stem)
        (self.domain if domain else self.facts).append(both([le(0, term), lt(term, size)]))
        return term

    def natural(self, stem: str) -> Term:
        """A new receiver's variable of at least 0."""
        term = self.fresh(stem)
        self.domain.append(le(0, term))
        return term

    def query(self, name: str, violation: Formula) -> Query:
        """`violation` under domain and facts, to be refuted."""
        return Query(name, tuple(self.names), tuple(self.domain), tuple(self.facts), violation)


@dataclass(frozen=True, slots=True)
class Query:
    """A claim holds when `violation` has no solution together with domain and facts."""

    name: str
    names: Sequence[str]
    domain: Sequence[Formula]
    facts: Sequence[Formula]
    violation: Formula

    def body(self, *, violated: bool = True) -> str:
        """Declarations and assertions; without the violation, only the definitions."""
        lines = [f"(declare-const {name} Int)" for name in self.names]
        lines += [f"(assert {f})" for f in [*self.domain, *self.facts, *([self.violation] if violated else [])]]
        return "\n".join(lines)

    def smt2(self, status: str, comment: str = "") -> str:
        """A stand-alone SMT-LIB script with its expected status (`unsat`, `sat` or `unknown`)."""
        head = [f"; {line}" for line in comment.splitlines()]
        return "\n".join(
            [*head, "(set-logic QF_LIA)", f"(set-info :status {status})", self.body(), "(check-sat)", "(exit)", ""]
        )

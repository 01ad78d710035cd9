"""Another solver reads what is written and agrees."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from redist.proofs import verify

cvc5 = pytest.importorskip("cvc5")


def _answer(path: Path) -> tuple[str, str]:
    """(status that the file expects, status that cvc5 finds)."""
    solver = cvc5.Solver(cvc5.TermManager())
    solver.setOption("tlimit-per", "20000")
    parser = cvc5.InputParser(solver)
    parser.setFileInput(cvc5.InputLanguage.SMT_LIB_2_6, str(path))
    symbols = parser.getSymbolManager()
    found = ""
    while not (command := parser.nextCommand()).isNull():
        found += command.invoke(solver, symbols)
    expected = next(line for line in path.read_text().splitlines() if line.startswith("(set-info :status"))
    return expected.split()[-1].rstrip(")"), found.strip()


def _agree(plans: Any, directory: Path, seed: int, count: int) -> dict[str, int]:
    rng = Random(seed)
    statuses: dict[str, int] = {}
    for n in range(count):
        plan = plans.planned(rng) if rng.randint(0, 1) else plans.assembled(rng)
        mutants = [mutant for _, mutant in plans.mutants(rng, plan, 2)]
        for m, each in enumerate([plan, *mutants]):
            for path in verify(each).write_smt2(directory / f"{n}-{m}"):
                text = path.read_text()
                assert "(set-logic QF_LIA)" in text
                assert "(+ d" not in text or ")" in text
                expected, found = _answer(path)
                assert expected == found, path
                statuses[found] = statuses.get(found, 0) + 1
    return statuses


def test_a_sample(plans: Any, tmp_path: Path) -> None:
    """Right plans and mutants of 20: sat and unsat both occur."""
    statuses = _agree(plans, tmp_path, 0, 20)
    assert statuses["unsat"] > 20
    assert statuses["sat"] > 3
    assert set(statuses) == {"sat", "unsat"}


@pytest.mark.heavy
def test_many(plans: Any, tmp_path: Path) -> None:
    """The same for 300."""
    statuses = _agree(plans, tmp_path, 1, 300)
    assert set(statuses) == {"sat", "unsat"}

"""Programs of third parties: those whose libraries are small enough to install everywhere. `python -m
benchmarks.partir_programs` runs the others too."""

from __future__ import annotations

import jax
import pytest

from benchmarks.partir_programs import run_case
from benchmarks.partir_third import PROGRAMS


@pytest.mark.parametrize("name", ["optax chain", "equinox GRU"])
def test_results_and_counts(name: str) -> None:
    case = PROGRAMS[name]()
    expected = jax.jit(case.fn)(*case.args)
    for schedule, tactics in case.schedules.items():
        outcome = run_case(name, case, schedule, tactics, expected)
        assert outcome.off <= 1, (schedule, outcome.off)
        assert outcome.reported == outcome.lowered, schedule
        assert not outcome.without_rule

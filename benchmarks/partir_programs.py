"""`python -m benchmarks.partir_programs`: programs partitioned, run, and compared with the run of the whole.

Every program runs on 8 virtual devices under each of its schedules. Its results are held against the unpartitioned
run's, the report's collectives against those of the StableHLO that XLA is given; beside them stands what XLA makes of
them (it combines all-reduces, shares gathers of the same value, and moves what a loop repeats out of it), and XLA's
memory analysis beside the estimated peak. Libraries that are not installed are named.

Exit status 1: a result differs, or a count.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.cli.on_jax import load_jax

if TYPE_CHECKING:
    from benchmarks.partir_third import Case
    from redist.partir_core import ManualPartition

__all__ = ["Outcome", "main", "memory_table", "run_case", "run_cases", "table"]

RELATIVE, ABSOLUTE = 2e-4, 2e-5
"""Tolerances: sums come in other orders."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One program under one schedule. `off` is the largest difference as a share of what is tolerated; `reported`,
    `lowered` and `compiled` collectives by kind; bytes per device. `shared_peak` is the estimate for the program with
    gathers shared, where XLA shares some, and so keeps what the program drops to gather it again."""

    program: str
    schedule: str
    off: float
    reported: Mapping[str, int]
    lowered: Mapping[str, int]
    compiled: Mapping[str, int]
    reported_bytes: int
    lowered_bytes: int
    compiled_bytes: int
    estimated_peak: int
    shared_peak: int | None
    compiled_peak: int
    without_rule: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether results and counts agree."""
        return self.off <= 1 and dict(self.reported) == dict(self.lowered)

    @property
    def peak_error(self) -> float:
        """Estimated over compiled peak, less 1."""
        return self.estimated_peak / self.compiled_peak - 1


def run_case(name: str, case: Case, schedule: str, tactics: Sequence[ManualPartition], expected: Any) -> Outcome:
    """Partition, run and compare; `expected` is the result of the unpartitioned run."""
    import jax

    from benchmarks.partir_cases import MESH
    from benchmarks.partir_hlo import of_compiled, of_stablehlo, peak_of
    from redist import partir_core as partir

    lowered = partir.jit(case.fn, MESH, tactics).lower(*case.args)
    compiled: Any = lowered.compile()
    pairs = zip(jax.tree.leaves(compiled(*case.args)), jax.tree.leaves(expected), strict=True)
    off = max((_off(got, wanted) for got, wanted in pairs), default=0.0)
    given = of_stablehlo(lowered.as_text("stablehlo"))
    made = of_compiled(compiled.executable.as_text())
    report, shared = lowered.report, None
    if made.number["all_gather"] < report.collectives["all_gather"]:
        shared = partir.jit(case.fn, MESH, tactics, share_gathers=True).lower(*case.args).report.peak_bytes
    return Outcome(
        name,
        schedule,
        off,
        dict(report.collectives),
        given.number,
        made.number,
        report.received_bytes,
        given.bytes,
        made.bytes,
        report.peak_bytes,
        shared,
        peak_of(compiled.executable),
        report.without_rule,
    )


def run_cases(programs: Mapping[str, Callable[[], Case]], say: Callable[[str], None]) -> Iterator[Outcome]:
    """All schedules of all programs; what is not installed is said."""
    import jax

    for name, make in programs.items():
        try:
            case = make()
        except ModuleNotFoundError as error:
            say(f"{name}: {error.name} is not installed")
            continue
        expected = jax.jit(case.fn)(*case.args)
        for schedule, tactics in case.schedules.items():
            yield run_case(name, case, schedule, tactics, expected)
            say(f"{name}, {schedule}")
        jax.clear_caches()


def _off(got: Any, wanted: Any) -> float:
    import jax

    if jax.numpy.issubdtype(got.dtype, jax.dtypes.prng_key):
        got, wanted = jax.random.key_data(got), jax.random.key_data(wanted)
    one, other = np.asarray(got), np.asarray(wanted)
    if one.dtype != other.dtype or one.shape != other.shape:
        return float("inf")
    if not np.issubdtype(one.dtype, np.inexact):
        return 0.0 if np.array_equal(one, other) else float("inf")
    apart = np.abs(one - other) / (ABSOLUTE + RELATIVE * np.abs(other))
    return (
        float(np.max(np.where(one == other, 0, apart), initial=0.0))
        if np.array_equal(np.isnan(one), np.isnan(other))
        else float("inf")
    )


def _short(counts: Mapping[str, int]) -> str:
    names = {"all_gather": "AG", "all_reduce": "AR", "reduce_scatter": "RS", "all_to_all": "A2A", "permute": "P"}
    return " ".join(f"{names.get(kind, kind)} {n}" for kind, n in counts.items() if n) or "-"


def table(outcomes: Sequence[Outcome]) -> str:
    """Aligned text."""
    lines = [
        f"{'program':<20} {'schedule':<12} {'off':>5} {'report = StableHLO':<24} {'compiled':<24} {'bytes':>9} "
        f"{'compiled':>9}"
    ]
    for o in outcomes:
        counts = _short(o.reported) if o.reported == o.lowered else f"{_short(o.reported)} != {_short(o.lowered)}"
        kept = f"kept whole: {', '.join(o.without_rule)}" if o.without_rule else ""
        lines.append(
            f"{o.program:<20} {o.schedule:<12} {o.off:>5.2f} {counts:<24} {_short(o.compiled):<24} "
            f"{o.reported_bytes:>9,} {o.compiled_bytes:>9,}  {kept}".rstrip()
        )
    return "\n".join(
        [
            *lines,
            f"off: largest difference over what is tolerated ({RELATIVE:g} relative and {ABSOLUTE:g}). Received bytes "
            "per device. AR all-reduce, AG all-gather, RS reduce-scatter, A2A all-to-all, P permute.",
        ]
    )


def memory_table(outcomes: Sequence[Outcome]) -> str:
    """Aligned text: estimated peaks against XLA's."""
    lines = [f"{'program':<20} {'schedule':<12} {'estimated':>12} {'XLA':>12} {'error':>8}"]
    for o in outcomes:
        line = f"{o.program:<20} {o.schedule:<12} {o.estimated_peak:>12,} {o.compiled_peak:>12,} {o.peak_error:>+8.0%}"
        if o.shared_peak not in (None, o.estimated_peak):
            line += f"  with gathers shared, as XLA does: {o.shared_peak:,}, {o.shared_peak / o.compiled_peak - 1:+.0%}"
        lines.append(line)
    errors = sorted(abs(o.peak_error) for o in outcomes)
    if errors:
        lines.append(f"absolute error: median {np.median(errors):.0%}, largest {errors[-1]:.0%}; bytes per device")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the programs, print the tables, write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partir_programs", description="Programs partitioned.")
    parser.add_argument("names", nargs="*", help="programs whose names contain one of these (default: all)")
    parser.add_argument("--json", type=Path, default=None, help="file to write the figures to")
    given = parser.parse_args(argv)
    load_jax(8)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    from benchmarks.partir_cases import models, third_party

    programs = {
        name: make
        for name, make in {**third_party(), **models()}.items()
        if not given.names or any(part.lower() in name.lower() for part in given.names)
    }
    outcomes = list(run_cases(programs, lambda line: print(line, file=sys.stderr, flush=True)))
    print(table(outcomes))
    print(f"\n{memory_table(outcomes)}")
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n", encoding="utf-8")
    return 0 if outcomes and all(o.good for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

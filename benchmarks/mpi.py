"""Timings on MPI as a study: launches per number of ranks, and what the intervals say.

Every problem is raced in two launches, in the other order in the second; and in a third where the two do not say that
redist and the faster one by hand are alike. Wins and losses are treated alike.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.executors.mpi import AGREEING, BY_HAND, CONTROL, FFT, GATHERING, OWN
from benchmarks.problems import Problem, timing_problems
from benchmarks.records import ROOT, Store
from benchmarks.repeats import found_in, merged, place, together
from benchmarks.stats import Interval, geometric_mean_interval, paired_speedup, verdict
from benchmarks.study import progress_bar
from benchmarks.suites import MpiPart
from redist.types import Layout, Mesh

__all__ = ["mpi_problems", "mpi_rows", "mpi_study", "mpi_tables", "mpi_trusted"]

_PENCILS = {2: "x=1,y=2", 3: "x=1,y=3", 4: "x=2,y=2", 6: "x=2,y=3", 8: "x=2,y=4"}
_CASES = (
    ("slab rows to columns", "[{a}{{x,y}}, {a}]", "[{a}, {a}{{x,y}}]", 2),
    ("slab planes", "[{a}{{x,y}}, {a}, {a}]", "[{a}, {a}{{x,y}}, {a}]", 3),
    ("pencil, minor pair", "[{a}{{x}}, {a}{{y}}, {a}]", "[{a}{{x}}, {a}, {a}{{y}}]", 3),
    ("pencil, major pair", "[{a}, {a}{{y}}, {a}{{x}}]", "[{a}{{y}}, {a}, {a}{{x}}]", 3),
)
"""What Fourier transforms of slabs and pencils need: (name, source, target, rank)."""


def mpi_problems(part: MpiPart, seed: int) -> list[Problem]:
    """The transpositions of a part in every size, and its general problems."""
    mesh = Mesh.parse(_PENCILS[part.ranks])
    made: list[Problem] = []
    for size in part.sizes:
        for name, source, target, rank in _CASES:
            side = max(1, round((size * 2**18) ** (1 / rank) / part.ranks)) * part.ranks
            layouts = (Layout.parse(f"f32{text.format(a=side)}", mesh) for text in (source, target))
            made.append(Problem(f"{part.ranks} ranks", f"{name}, {size} MiB", *layouts))
    general = timing_problems(part.ranks, part.general, seed, part.sizes) if part.general else []
    return made + [Problem(f"{part.ranks} ranks, general", p.key, p.source, p.target) for p in general]


def mpi_study(
    store: Store, parts: Iterable[MpiPart], seed: int, limit: int | None, console: Console
) -> list[dict[str, Any]]:
    """Race the contestants on every problem of the parts; returns the records."""
    groups = [(part, mpi_problems(part, seed)[:limit]) for part in parts]
    if not groups:
        return []
    if importlib.util.find_spec("mpi4py") is None:
        note = "mpi4py is not installed; pip install 'redist[mpi]'"
        store.add({"record": "missing", "family": "", "problem": "", "who": "redist on mpi", "note": note})
        return []
    wanted = [(p.family, p.key) for _, problems in groups for p in problems]
    with progress_bar(console) as progress:
        bar = progress.add_task("MPI", total=2 * len(wanted))
        step = partial(progress.advance, bar)
        for part, problems in groups:
            progress.update(bar, description=f"{part.ranks} ranks")
            _raced(store, part, problems, 1, seed, step)
            _raced(store, part, problems[::-1], 2, seed, step)
            open_ones = [p for p in problems if not _settled(store, p, seed)]
            progress.update(bar, total=(progress.tasks[bar].total or 0) + len(open_ones))
            _raced(store, part, open_ones, 3, seed, step)
    return [r for r in merged(store.select, "mpi") if (r["family"], r["problem"]) in set(wanted)]


def _raced(
    store: Store, part: MpiPart, problems: Sequence[Problem], launch: int, seed: int, step: Callable[[], None]
) -> None:
    """Race the problems that have not been raced in this launch, if any, in one."""
    kind, who = place("mpi", launch)
    todo = [p for p in problems if store.found(kind, p.family, p.key, who) is None]
    for _ in range(len(problems) - len(todo)):
        step()
    if todo:
        for record in _launched(part, todo, seed + launch - 1):
            store.add(record | {"record": kind, "who": who})
            step()


def _settled(store: Store, problem: Problem, seed: int) -> bool:
    """Whether two launches leave it a tie, where there is one by hand."""
    row = _row(together(found_in(store, "mpi", problem)), seed)
    return row["speedup"] is None or verdict(Interval(*row["speedup"])) == "tie"


def _launched(part: MpiPart, problems: Sequence[Problem], seed: int) -> Iterable[dict[str, Any]]:
    rows = [
        {"family": p.family, "key": p.key, "mesh": str(p.source.mesh), "source": str(p.source), "target": str(p.target)}
        for p in problems
    ]
    mpiexec = Path(sys.executable).with_name("mpiexec")
    with TemporaryDirectory() as folder:
        job = Path(folder) / "job.json"
        job.write_text(json.dumps({"problems": rows, "rounds": part.rounds, "seed": seed}))
        command = [str(mpiexec) if mpiexec.exists() else "mpiexec", "-n", str(part.ranks), sys.executable]
        command += ["-m", "benchmarks.executors.mpi", str(job)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as ranks:
            assert ranks.stdout is not None
            for line in ranks.stdout:
                yield json.loads(line)
        if ranks.returncode:
            raise RuntimeError(f"the launch on {part.ranks} ranks ended with status {ranks.returncode}")


def mpi_trusted(records: Iterable[dict[str, Any]]) -> bool:
    """Nothing of redist's is wrong, and every control is."""
    return all(not {OWN, AGREEING} & set(r["wrong"]) and CONTROL in r["wrong"] for r in records)


def mpi_rows(records: Iterable[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Figures per problem: redist against the faster one by hand, where there is one, and against gathering.

    Intervals are (point, low, high); memory is what gathering states over what redist does.
    """
    return [_row(record, seed) for record in records]


def _row(record: dict[str, Any], seed: int) -> dict[str, Any]:
    seconds = record["seconds"]
    by_hand = sorted((median(seconds[name]), name) for name in BY_HAND if name in seconds)
    row: dict[str, Any] = {"family": record["family"], "problem": record["problem"], "bytes": record["bytes"]}
    row["milliseconds"] = {name: 1000 * median(taken) for name, taken in seconds.items()}
    row["best_by_hand"] = by_hand[0][1] if by_hand else None
    for name, who in (("speedup", OWN), ("speedup_agreeing", AGREEING)):
        row[name] = _interval(record, row["best_by_hand"], who, seed)
    row["over_gathering"] = _interval(record, GATHERING, OWN, seed)
    row["over_fft"] = _interval(record, FFT if FFT in seconds else None, OWN, seed)
    row["memory_ratio"] = record["stated"][GATHERING] / record["stated"][OWN] if OWN in record["stated"] else None
    return row


def _interval(record: dict[str, Any], base: str | None, who: str, seed: int) -> tuple[float, ...] | None:
    seconds = record["seconds"]
    if base is None or who not in seconds:
        return None
    found = paired_speedup(seconds[base], seconds[who], seed, record.get("processes", {}).get(who))
    return found.point, found.low, found.high


def mpi_tables(records: Sequence[dict[str, Any]], seed: int) -> RenderableType:
    """Every transposition; a line for general problems; what gathering costs."""
    rows = mpi_rows(records, seed)
    table = Table(title="MPI: speedup over the faster one by hand", title_justify="left", title_style="bold")
    for heading in ("ranks", "case", "redist ms", "by hand ms", "", "speedup [95%]", "", "agreeing each time", ""):
        table.add_column(heading, justify="left" if heading in ("ranks", "case", "") else "right", no_wrap=True)
    for row in rows:
        if row["speedup"] is None:
            continue
        best = row["best_by_hand"]
        shown = [Interval(*row[name]) for name in ("speedup", "speedup_agreeing") if row[name] is not None]
        cells = [cell for interval in shown for cell in (str(interval), verdict(interval))]
        times = [f"{row['milliseconds'][name]:.2f}" for name in (OWN, best)]
        table.add_row(row["family"], row["problem"], *times, best, *cells)
    parts: list[RenderableType] = [table]
    for family in dict.fromkeys(row["family"] for row in rows):
        group = [row for row in rows if row["family"] == family]
        library = [row["over_fft"][0] for row in group if row["over_fft"] is not None]
        if library:
            mean = geometric_mean_interval(library, seed)
            parts.append(Text(f"{family}: {mean} times as fast as {FFT} on its {len(library)} transpositions"))
        gain = geometric_mean_interval([row["over_gathering"][0] for row in group], seed)
        less = geometric_mean_interval([row["memory_ratio"] for row in group], seed)
        slow = sum(row["over_gathering"][0] < 2 for row in group)
        parts.append(
            Text(
                f"{family}: {gain} times as fast as gathering everything and slicing ({slow} of {len(group)} problems "
                f"below 2), which takes {less} times the memory"
            )
        )
    for record in records:
        for who in (OWN, AGREEING):
            if who in record["wrong"]:
                parts.append(Text(f"wrong: {who} on {record['problem']}: {record['wrong'][who]}", style="red"))
    caught = sum(CONTROL in record["wrong"] for record in records)
    legend = (
        f"A round takes as long as its slowest rank. Control: what hands back its input is wrong on {caught} of "
        f"{len(records)}. All ranks are processes of one host; rounds are those of two or three launches."
    )
    return Group(*parts, Text(legend, style="dim"), Text())

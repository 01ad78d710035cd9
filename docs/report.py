"""Writes docs/benchmarks.md, and the table between `<!-- figures -->` lines of README.md, out of result files.

    python docs/report.py                                  out of those in docs/benchmarks/
    python docs/report.py benchmarks/results/jax-*.jsonl   these too: they are kept there, newer for older

A result file is what a suite of `python -m benchmarks` writes. Nothing on the page comes from elsewhere.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.cluster.plots import plot_cluster  # noqa: E402
from benchmarks.cluster.tables import cluster_rows  # noqa: E402
from benchmarks.executors.cluster import OWN as CLUSTER_OWN  # noqa: E402
from benchmarks.executors.jax import AGAIN, BASE, CONTROL, PUT  # noqa: E402
from benchmarks.mpi import mpi_rows  # noqa: E402
from benchmarks.planners import CONTROL as PLAN_CONTROL  # noqa: E402
from benchmarks.plots import plot_all  # noqa: E402
from benchmarks.records import read_records  # noqa: E402
from benchmarks.repeats import merged  # noqa: E402
from benchmarks.stats import Interval, geometric_mean_interval, verdict  # noqa: E402
from benchmarks.tables import POINTERS_BYTES, plan_rows  # noqa: E402
from benchmarks.timing import Summary, outcomes, summary  # noqa: E402

KEPT = ROOT / "docs/benchmarks"
PAGE = ROOT / "docs/benchmarks.md"
README = ROOT / "README.md"
FIGURES = re.compile(r"(<!-- figures -->\n).*?(<!-- /figures -->)", re.DOTALL)

Record = dict[str, Any]

INTRODUCTION = """# Benchmarks

What was measured, how, and on what. [docs/report.py](report.py) writes this page out of the result files in
[docs/benchmarks](benchmarks); the commands below make new ones. [What the harness does](../benchmarks/README.md).

All contestants of a problem get the same array, are checked against it element by element, and take turns, in orders
in which each is at every place, and behind every other one, equally often. A speedup is the median of the rounds'
ratios, with a 95% interval by bootstrap. An interval that crosses 1 is a tie, one wholly below 0.95 a loss, one below 1
but not that far *behind*. A geometric mean's interval comes from drawing problems anew. XLA against itself, compiled
twice, is the noise: what lies within it says nothing.
A contestant that hands back its input runs along, and is found wrong every time, or the table says so.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A result file: what identifies it, and its results."""

    header: Record
    records: tuple[Record, ...]

    @staticmethod
    def read(path: Path) -> Run:
        """Raises ValueError for a file without a header."""
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                records = [json.loads(line) for line in lines]
        else:
            records = list(read_records(path))
        header = next((r for r in records if r["record"] == "run"), None)
        if header is None:
            raise ValueError(
                f"{path} does not start with a run's header; give a file that `python -m benchmarks` wrote"
            )
        return Run(header, tuple(r for r in records if r["record"] != "run"))

    @property
    def name(self) -> str:
        """What the file is kept as: a later run of the same suite and network takes its place."""
        settings = self.header["settings"]
        network = (settings.get(what) for what in ("rate", "delay"))
        return "-".join([self.header["suite"], *(str(value) for value in network if value)])

    def select(self, kind: str) -> list[Record]:
        """Results of one kind; those of several processes are one."""
        return merged(self._of, kind) if kind in ("timing", "mpi") else self._of(kind)

    def _of(self, kind: str) -> list[Record]:
        return [r for r in self.records if r["record"] == kind]

    def about(self) -> str:
        """How, when, where and with what it ran."""
        header, machine = self.header, self.header["machine"]
        command = re.sub(r" --results[ =]\S+", "", " ".join(["python -m benchmarks", *header["command"]]))
        commit = (header["commit"] or "no commit")[:10] + ("" if header["changes"] is None else " with changes")
        versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
        size = f", {machine['memory_bytes'] / 2**30:.0f} GiB" if machine["memory_bytes"] else ""
        where = f"{machine['processor']}, {machine['usable_cores']} cores{size}, {machine['system']}"
        return f"`{command}` at {commit}, {header['started'][:10]}. {where}; {versions}."


def keep(path: Path) -> Path:
    """Put a result file where the page finds it; times with four digits, which is more than they are good for."""
    run = Run.read(path)
    KEPT.mkdir(exist_ok=True)
    made = KEPT / f"{run.name}.jsonl.gz"
    lines = [run.header, *run.records]
    text = "".join(json.dumps(_short(record), separators=(",", ":")) + "\n" for record in lines)
    made.write_bytes(gzip.compress(text.encode(), mtime=0))  # the same bytes for the same results
    return made


def _short(record: Record) -> Record:
    taken = record.get("seconds")
    if not isinstance(taken, dict):
        return record
    return record | {"seconds": {who: [float(f"{s:.4g}") for s in rounds] for who, rounds in taken.items()}}


# -- markdown ------------------------------------------------------------------------------------------


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; what starts with a digit or is no word stands on the right."""
    lines = ["| " + " | ".join(headings) + " |", "|---" + "|---:" * (len(headings) - 1) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


SPEEDUPS = ("", "problems", "wrong", "geometric mean [95%]", "smallest", "largest", "wins", "ties", "behind", "losses")


def speedup_cells(found: Summary) -> list[str]:
    """A summary under `SPEEDUPS`, its name aside."""
    counts = [str(found.verdicts[name]) for name in ("win", "tie", "behind", "loss")]
    extremes = [f"{found.smallest:.3f}", f"{found.largest:.3f}"]
    return [str(found.problems), str(found.wrong), str(found.mean), *extremes, *counts]


def lost(records: Sequence[Record], who: str, seed: int) -> str:
    """Every problem on which redist is slower than XLA, sure or beyond doubt."""
    slower = [o for o in outcomes(records, who, seed) if o.verdict in ("loss", "behind")]
    if not slower:
        return "redist is slower nowhere.\n"
    rows = [
        (
            f"`{o.problem}`" + ", same program" * o.same_program,
            o.family,
            o.verdict,
            str(o.speedup),
            f"{1e3 * o.base_seconds:.2f}",
            f"{1e3 * o.seconds:.2f}",
        )
        for o in slower
    ]
    return "Where redist is slower:\n\n" + table(("problem", "", "", "speedup", "XLA ms", "redist ms"), rows)


def caught(records: Sequence[Record], control: str) -> str:
    """Whether the control was found wrong."""
    count = sum(control in r["wrong"] for r in records)
    trust = "" if count == len(records) else " **Do not trust this table.**"
    return f"Control: found wrong on {count} of {len(records)} problems.{trust}\n"


def pictures(paths: Iterable[Path], alt: str) -> str:
    """The PNGs among the files drawn; the others are not kept."""
    shown: list[str] = []
    for path in paths:
        if path.suffix == ".png":
            shown.append(f"![{alt}: {path.stem.partition('-')[2]}]({KEPT.name}/{path.name})")
        else:
            path.unlink()
    return "\n\n".join(shown) + "\n"


# -- sections ------------------------------------------------------------------------------------------


def plans(run: Run, drawn: bool) -> str:
    """Plans against those of other planners."""
    records = run.select("plan")
    rows = plan_rows(records)
    parts = [
        "Received: elements that the busiest device receives, over the least that any plan must; 1 where both are 0. "
        "Live: the largest input and output of one operation together, over source and target together. Every plan is "
        "run on the numbers of the elements. Wrong: some device ends with something else.\n"
    ]
    headings = ("planner", "pairs", "wrong", "failed", "refused", "received: mean", "largest", "steps", "live", "ms")

    def cell(value: Any, form: str) -> str:
        return "-" if value is None else format(value, form)

    for family in dict.fromkeys(row["family"] for row in rows):
        mine = [row for row in rows if row["family"] == family and row["who"] != PLAN_CONTROL.name]
        forms = {"problems": "d", "wrong": "d", "failed": "d", "refused": "d", "ratio_mean": ".3f", "ratio_max": ".2f"}
        forms |= {"steps_mean": ".2f", "live_peak_max": ".2f", "milliseconds": ".2f"}
        cells = [[row["who"], *(cell(row[name], form) for name, form in forms.items())] for row in mine]
        parts.append(f"### {family}\n\n{table(headings, cells)}")
    control = [row for row in rows if row["who"] == PLAN_CONTROL.name]
    asked, wrong = (sum(row[name] for row in control) for name in ("problems", "wrong"))
    parts.append(f"Control: a planner that does nothing is found wrong on {wrong} of {asked} pairs.\n")
    if drawn:
        parts.append(pictures(plot_all(records, KEPT, f"{run.name}-plans", 0), "share of pairs"))
    return "\n".join(parts)


def one_host(run: Run, drawn: bool) -> str:
    """Timings on virtual devices of one host."""
    records, seed = run.select("timing"), run.header["seed"]
    rows: list[list[str]] = []
    for family in dict.fromkeys(r["family"] for r in records):
        group = [r for r in records if r["family"] == family]
        for who, called in ((AGAIN, "XLA against itself"), (PUT, "device_put over XLA"), ("redist", "redist over XLA")):
            found = summary(group, who, seed)
            if found is not None:
                rows.append([f"{family}: {called}", *speedup_cells(found)])
    parts = [
        "Devices are threads of one process that share its memory: here bytes are cheap, and plans are made under the "
        "topology `one-process`, which knows.\n",
        table(SPEEDUPS, rows),
        _memory(records),
        caught(records, CONTROL),
        lost(records, "redist", seed),
    ]
    if drawn:
        parts.append(pictures(plot_all(records, KEPT, f"{run.name}-jax", seed), "on one host"))
    return "\n".join(parts)


def _memory(records: Sequence[Record]) -> str:
    said: list[str] = []
    for who, called in ((BASE, "XLA's"), ("redist", "redist's")):
        ratios = [r["stated"][who]["measured_bytes"] / r["bound_bytes"] for r in records if r["stated"].get(who)]
        if ratios:
            over = sum(
                r["stated"][who]["measured_bytes"] > 2 * r["bound_bytes"] + POINTERS_BYTES
                for r in records
                if r["stated"].get(who)
            )
            said.append(f"{called} is above twice source and target on {over} of {len(ratios)} problems, at most "
                        f"{max(ratios):.2f} times source and target")  # fmt: skip
    return (
        f"Peak memory by the compiler's buffer assignment, less {POINTERS_BYTES} bytes for scalars and pointers: "
        f"{'; '.join(said)}.\n"
    )


def on_ranks(run: Run, drawn: bool) -> str:
    """Timings on MPI."""
    rows = mpi_rows(run.select("mpi"), run.header["seed"])
    cells: list[list[str]] = []
    slower: list[list[str]] = []
    for family in dict.fromkeys(row["family"] for row in rows):
        for name, against in (
            ("speedup", "the best by hand"),
            ("over_fft", "mpi4py-fft"),
            ("over_gathering", "gathering and slicing"),
        ):
            found = [Interval(*row[name]) for row in rows if row["family"] == family and row[name] is not None]
            if found:
                points, said = [f.point for f in found], [verdict(f) for f in found]
                mean = str(geometric_mean_interval(points, run.header["seed"]))
                counts = [str(said.count(what)) for what in ("win", "tie", "behind", "loss")]
                extremes = [f"{min(points):.3f}", f"{max(points):.3f}"]
                cells.append([f"{family}: over {against}", str(len(found)), "0", mean, *extremes, *counts])
    for row in rows:
        if row["speedup"] is not None and verdict(Interval(*row["speedup"])) in ("loss", "behind"):
            by_hand = row["milliseconds"][row["best_by_hand"]]
            times = [f"{by_hand:.2f}", f"{row['milliseconds']['redist']:.2f}"]
            slower.append([f"{row['family']}: {row['problem']}", str(Interval(*row["speedup"])), *times])
    wrong = sum(bool({"redist", "redist-agreeing"} & set(r["wrong"])) for r in run.select("mpi"))
    text = (
        "Against transpositions as applications write them: Alltoallw with subarray datatypes, and pack, Alltoall, "
        "unpack; mpi4py-fft among them, where it was installed; the fastest of them counts. All ranks are processes of "
        "one host; a round takes as long as its slowest rank. "
        f"redist is wrong on {wrong} problems.\n\n{table(SPEEDUPS, cells)}"
    )
    headings = ("problem", "speedup", "by hand ms", "redist ms")
    return text + (
        f"\nWhere redist is slower:\n\n{table(headings, slower)}" if slower else "\nredist is slower nowhere.\n"
    )


def several_hosts(records: Sequence[Record], drawn: bool) -> str:
    """Timings on several hosts, of all runs together."""
    rows = [
        [f"{family}: {called}", *speedup_cells(found), "" if less is None else str(less)]
        for family, called, found, less in cluster_rows(records, 0)
    ]
    parts = [
        "Hosts are network namespaces of one machine, joined by a switch; the kernel holds every link to its rate in "
        "each direction. A host runs one JAX process with virtual devices, and Gloo between them. Problems are random "
        "pairs of layouts between which some device has to receive something, on meshes whose axes lie between hosts "
        "or inside one. redist plans under the topology that it finds by itself: axes between processes are slow. "
        "*Calibrated*: under one measured there, with latencies. "
        "Shardy's plans are run by redist's JAX backend. A round takes as long as its slowest host. *Less traffic*: "
        "XLA's bytes into the busiest host over the contestant's, by the counters of the links.\n",
        table((*SPEEDUPS, "less traffic"), rows),
        room(records),
        caught(records, CONTROL),
        lost(records, CLUSTER_OWN, 0),
    ]
    if drawn:
        parts.append(pictures(plot_cluster(records, KEPT, "cluster", 0), "on several hosts"))
    return "\n".join(parts)


def room(records: Sequence[Record]) -> str:
    """What a slow network leaves to win: XLA's bytes against the least that any plan sends."""
    parts: list[str] = []
    for family in dict.fromkeys(r["family"] for r in records):
        group = [r for r in records if r["family"] == family and BASE in r["crossing_bytes"]]
        crossing = [r for r in group if r["least_crossing_bytes"]]
        ratios = [r["crossing_bytes"][BASE] / r["least_crossing_bytes"] for r in crossing]
        if not ratios:
            continue
        close = sum(ratio < 1.15 for ratio in ratios)
        parts.append(
            f"{family}: XLA brings {geometric_mean_interval(ratios, 0)} times the bytes into the busiest host that "
            f"any plan has to, and less than 1.15 times on {close} of {len(ratios)} problems where some have to."
        )
    return "\n*Room*, headers of packets counted. " + " ".join(parts) + "\n" if parts else ""


SECTIONS = (("plan", "Plans", plans), ("timing", "JAX on one host", one_host), ("mpi", "MPI", on_ranks))


def page(runs: Sequence[Run], drawn: bool = True) -> str:
    """The page's text; pictures are drawn beside the result files."""
    parts = [INTRODUCTION]
    for kind, title, section in SECTIONS:
        for run in runs:
            if run.select(kind):
                parts.append(f"## {title}: suite {run.name}\n\n{run.about()}\n\n{section(run, drawn)}")
    networks = fullest(runs, "cluster")
    if networks:
        about = "\n\n".join(dict.fromkeys(run.about() for run, _ in networks))
        records = [r for _, group in networks for r in group]
        parts.append(f"## Several hosts\n\n{about}\n\n{several_hosts(records, drawn)}")
    return "\n".join(parts)


def fullest(runs: Sequence[Run], kind: str) -> list[tuple[Run, list[Record]]]:
    """Per family, its results from the run that has most of them; of several such runs, the latest."""
    found: dict[str, tuple[Run, list[Record]]] = {}
    for run in sorted(runs, key=lambda run: run.header["started"]):
        records = run.select(kind)
        for family in dict.fromkeys(r["family"] for r in records):
            group = [r for r in records if r["family"] == family]
            if family not in found or len(group) >= len(found[family][1]):
                found[family] = run, group
    return list(found.values())


def figures(runs: Sequence[Run]) -> str:
    """The table for the README: redist over XLA, everywhere, with the noise beside it."""
    rows: list[list[str]] = []
    for kind in ("timing", "cluster"):
        for _, group in fullest(runs, kind):
            own, noise = (summary(group, who, 0) for who in ("redist", AGAIN))
            if own is not None and noise is not None:
                cells = [str(own.problems), str(own.mean), f"{own.largest:.1f}", str(own.verdicts["loss"])]
                rows.append([group[0]["family"], *cells, str(noise.mean)])
    headings = ("redist over XLA", "problems", "speedup, geometric mean [95%]", "largest", "losses", "XLA over itself")
    return table(headings, rows)


def main(arguments: Sequence[str]) -> None:
    """Keep the files given, then write page and table."""
    for name in arguments:
        keep(Path(name))
    runs = [Run.read(path) for path in sorted(KEPT.glob("*.jsonl.gz"))]
    PAGE.write_text(page(runs), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    README.write_text(FIGURES.sub(lambda m: f"{m[1]}{figures(runs)}{m[2]}", text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Results as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.duels import duels
from benchmarks.executors.jax import AGAIN, BASE, CONTESTANTS, CONTROL
from benchmarks.planners import PLANNERS
from benchmarks.stats import geometric_mean
from benchmarks.timing import Outcome, Summary, outcomes, summary

__all__ = ["POINTERS_BYTES", "PlanRow", "missing_lines", "plan_rows", "plan_tables", "timing_tables"]

PlanRow = dict[str, Any]


def plan_rows(records: Iterable[dict[str, Any]]) -> list[PlanRow]:
    """Figures per family and planner, in order of first appearance; None where there are none.

    Ratios, steps and peaks are over plans that are right; `useless` counts those that receive where nothing
    is missing, which have no ratio.
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["family"], record["who"]), []).append(record)
    return [_row(*key, group) for key, group in groups.items()]


def _row(family: str, who: str, group: Sequence[dict[str, Any]]) -> PlanRow:
    planned = [r for r in group if r["verdict"] == "ok"]

    def figures(name: str) -> list[float]:
        return [r[name] for r in planned if r.get(name) is not None]

    row: PlanRow = {"family": family, "who": who, "problems": len(group)}
    for name in ("wrong", "failed", "refused"):
        row[name] = sum(r["verdict"] == name for r in group)
    for name in ("ratio", "steps", "block_peak", "live_peak"):
        values = figures(name)
        row[f"{name}_mean"], row[f"{name}_max"] = (mean(values), max(values)) if values else (None, None)
    row["over"] = sum(r["live_peak"] > 1 + 1e-9 for r in planned if r.get("live_peak") is not None)
    row["useless"] = sum(r["ratio"] is None for r in planned)
    stated = figures("measured_peak") or figures("projected_peak")
    row["stated_peak_max"] = max(stated) if stated else None
    times = sorted(1000 * seconds for seconds in figures("seconds"))
    row["milliseconds"] = median(times) if times else None
    row["milliseconds_p99"] = times[math.ceil(0.99 * len(times)) - 1] if times else None
    row["rematerialised"] = sum(r.get("rematerialised", False) for r in planned)
    row["misstated"] = sum(r.get("claim_holds") is False for r in planned)
    row["examples"] = [
        (r["verdict"], r["problem"], r.get("note", "")) for r in group if r["verdict"] in ("wrong", "failed")
    ]
    row["beyond_names"] = [r["problem"] for r in planned if r.get("within") is False]
    row["idle"] = sum("idle_ratio" in r for r in planned)
    row["idle_ratio_mean"] = mean([r.get("idle_ratio") or r["ratio"] or 1.0 for r in planned]) if planned else None
    row["beyond"] = sum(r.get("within") is False for r in planned)
    return row


_FEW = 3
"""How many examples are listed."""

POINTERS_BYTES = 1024

_COLUMNS = (
    ("planner", "who", "s"),
    ("pairs", "problems", "d"),
    ("wrong", "wrong", "d"),
    ("failed", "failed", "d"),
    ("refused", "refused", "d"),
    ("recv/LB mean", "ratio_mean", ".3f"),
    ("max", "ratio_max", ".2f"),
    ("steps mean", "steps_mean", ".2f"),
    ("max", "steps_max", "d"),
    ("block peak", "block_peak_max", ".2f"),
    ("live peak", "live_peak_max", ".2f"),
    ("over", "over", "d"),
    ("stated peak", "stated_peak_max", ".2f"),
    ("plan ms", "milliseconds", ".2f"),
    ("p99", "milliseconds_p99", ".2f"),
)

_LEGEND = (
    "wrong: refuted by simulation; the figures are over the other plans. refused: beyond what the planner can express, "
    "or with blocks that do not divide, which it pads. recv/LB: elements received by the busiest "
    "device over the lower bound, 1 where both are 0. steps: operations in which a device receives. block peak: the "
    "largest block / max(source, target). live peak: largest input + output of one operation / (source + target); "
    "over: pairs where that exceeds 1. stated peak: projected by redist, measured by XLA's memory analysis, / (source "
    "+ target). plan ms: planning time, median and 99th percentile (for "
    "XLA, compiling)."
)


def plan_tables(records: Sequence[dict[str, Any]], control: str) -> RenderableType:
    """A table per family; the control is one line below, and what else stands out."""
    parts: list[RenderableType] = []
    rows = plan_rows(records)
    for family in dict.fromkeys(row["family"] for row in rows):
        table = Table(title=family, title_justify="left", title_style="bold")
        for heading, _, form in _COLUMNS:
            table.add_column(heading, justify="left" if form == "s" else "right", no_wrap=True)
        notes: list[str] = []
        order = {name: n for n, name in enumerate(PLANNERS)}
        mine = [row for row in rows if row["family"] == family]
        for row in sorted(mine, key=lambda row: order.get(row["who"], len(order))):
            if row["who"] == control:
                notes.append(_control_line(row))
                continue
            bad = row["wrong"] or row["failed"]
            table.add_row(*(_cell(row[name], form) for _, name, form in _COLUMNS), style="red" if bad else "")
            notes += _remarks(row)
        notes += map(str, duels([r for r in records if r["family"] == family], "redist", order))
        parts += [table, *(Text(f"  {note}") for note in notes), Text()]
    return Group(*parts, Text(_LEGEND, style="dim"), Text())


def _cell(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


def _control_line(row: PlanRow) -> str:
    caught = "caught" if row["wrong"] == row["problems"] else "NOT CAUGHT: do not trust this table"
    return f"control: a planner that does nothing is wrong on {row['wrong']} of {row['problems']} pairs ({caught})"


def _remarks(row: PlanRow) -> list[str]:
    texts = {
        "rematerialised": "rematerialise: a block of the full array on the way, and temporaries to match",
        "useless": "receive something where nothing is missing (no ratio)",
        "misstated": "receive other than the plan states",
        "beyond": "receive more than the figure reported for the case",
    }
    if row["idle"]:
        idle = f"permute to the layout they have (as moves of a block: mean {row['idle_ratio_mean']:.3f})"
        texts = {"idle": idle, **texts}
    lines = [f"{row['who']}: {row[name]} of {row['problems']} {text}" for name, text in texts.items() if row[name]]
    if 0 < len(row["beyond_names"]) <= _FEW:
        lines[-1] += f" ({', '.join(row['beyond_names'])})"
    some = row["examples"][:_FEW]
    return [*lines, *(f"{row['who']} {verdict}: {problem}: {note}" for verdict, problem, note in some)]


def missing_lines(records: Iterable[dict[str, Any]]) -> RenderableType:
    """Who was not there, and why."""
    return Group(*(Text(f"missing: {r['who']}: {r['note']}", style="yellow") for r in records))


# -- timings -------------------------------------------------------------------------------------------


def timing_tables(records: Sequence[dict[str, Any]], seed: int, list_ties: bool = False) -> RenderableType:
    """Per number of devices and in all: every contestant against XLA, XLA against itself beside it; losses."""
    parts: list[RenderableType] = []
    families = list(dict.fromkeys(record["family"] for record in records))
    table = Table(title="speedup over XLA", title_justify="left", title_style="bold")
    for heading in ("devices", "who", "problems", "wrong", "geometric mean [95%]", "smallest", "largest"):
        table.add_column(heading, justify="left" if heading in ("devices", "who") else "right", no_wrap=True)
    for heading in ("win", "tie", "behind", "loss"):
        table.add_column(heading, justify="right")
    groups = [(family, [r for r in records if r["family"] == family]) for family in families]
    for family, group in [*groups, *([("all", list(records))] if len(families) > 1 else [])]:
        for who in (name for name in CONTESTANTS if name not in (BASE, CONTROL)):
            found = summary(group, who, seed)
            if found is not None:
                table.add_row(family, _called(who), *_summary_cells(found), style="dim" if who == AGAIN else "")
    parts += [table, Text(_control(records)), Text()]
    for who in (name for name in CONTESTANTS if name not in (BASE, AGAIN, CONTROL)):
        found_all = outcomes(records, who, seed)
        if found_all:
            parts += [_losses(who, found_all, list_ties), Text(_alike(who, found_all))]
        parts.append(Text(_memory_line(who, records)))
        for record in records:
            if who in record["wrong"]:
                parts.append(Text(f"wrong: {who} on {record['problem']}: {record['wrong'][who]}", style="red"))
    legend = (
        "Medians of rounds run side by side, in balanced orders, in two or three processes; intervals by bootstrap of "
        "processes and rounds. tie: the interval crosses 1; loss: wholly below 0.95; behind: wholly below 1. 'xla "
        "against itself' is the noise of this machine."
    )
    return Group(*parts, Text(legend, style="dim"), Text())


def _called(who: str) -> str:
    return "xla against itself" if who == AGAIN else who


def _summary_cells(found: Summary) -> list[str]:
    counts = [str(found.verdicts[name]) for name in ("win", "tie", "behind", "loss")]
    tie = " tie" if found.tie else ""
    return [
        str(found.problems),
        str(found.wrong),
        f"{found.mean}{tie}",
        f"{found.smallest:.3f}",
        f"{found.largest:.3f}",
        *counts,
    ]


def _control(records: Sequence[dict[str, Any]]) -> str:
    caught = sum(CONTROL in record["wrong"] for record in records)
    good = "caught" if caught == len(records) else "NOT CAUGHT: do not trust this table"
    return f"control: an executor that hands back its input is wrong on {caught} of {len(records)} problems ({good})"


def _memory_line(who: str, records: Sequence[dict[str, Any]]) -> str:
    """Measured peaks against what was projected, and against XLA's.

    The memory analysis counts a few scalars and tables of pointers, which no projection does.
    """
    stated = [
        (r["stated"][who], r["stated"][BASE])
        for r in records
        if all("measured_bytes" in r["stated"].get(name, {}) for name in (who, BASE))
    ]
    if not stated:
        return ""
    ratios = [mine["measured_bytes"] / base["measured_bytes"] for mine, base in stated]
    excess = [mine["measured_bytes"] - mine["projected_bytes"] for mine, _ in stated if "projected_bytes" in mine]
    beyond = sum(more > POINTERS_BYTES for more in excess)
    return (
        f"{who}: measured peak beyond the projected one, and {POINTERS_BYTES} bytes for scalars and pointers, on "
        f"{beyond} of {len(excess)} problems; measured peak over XLA's: geometric mean {geometric_mean(ratios):.3f}, "
        f"smallest {min(ratios):.3f}, largest {max(ratios):.3f}"
    )


def _losses(who: str, found: Sequence[Outcome], list_ties: bool) -> RenderableType:
    lost = [o for o in found if o.verdict == "loss" or (list_ties and o.verdict != "win")]
    if not lost:
        return Text(f"{who}: no losses")
    table = Table(title=f"{who}: losses to XLA", title_justify="left", title_style="bold")
    for heading in ("speedup [95%]", "xla ms", f"{who} ms", "problem"):
        table.add_column(heading, justify="left" if heading == "problem" else "right", no_wrap=heading != "problem")
    for o in lost:
        table.add_row(str(o.speedup), f"{1000 * o.base_seconds:.2f}", f"{1000 * o.seconds:.2f}", _named(o))
    return table


def _named(outcome: Outcome) -> str:
    return f"{outcome.problem} (same program)" if outcome.same_program else outcome.problem


def _alike(who: str, found: Sequence[Outcome]) -> str:
    """How often the contestant's program is XLA's own, and how these did."""
    alike = [o for o in found if o.same_program]
    if not alike:
        return ""
    said = ", ".join(f"{sum(o.verdict == name for o in alike)} {name}" for name in ("win", "tie", "behind", "loss"))
    return f"{who}: XLA compiles the same program for both on {len(alike)} of {len(found)} problems ({said})"


def show(console: Console, *parts: RenderableType) -> None:
    """Print, as wide as the tables are where the output is no terminal."""
    if not console.is_terminal:
        console = Console(file=console.file, width=200)
    for part in parts:
        console.print(part)

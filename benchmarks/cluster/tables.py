"""What the timings on several hosts say: per network, and in the bytes that crossed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.executors.cluster import AGAIN, BASE, CALIBRATED, CONTROL, OWN, SHARDY
from benchmarks.stats import Interval, geometric_mean_interval
from benchmarks.timing import Summary, outcomes, summary

__all__ = ["CALLED", "OVER_SHARDY", "against_shardy", "cluster_rows", "cluster_tables", "crossing_ratios"]

CALLED = {
    AGAIN: "XLA against itself",
    OWN: "redist over XLA",
    CALIBRATED: "redist, calibrated, over XLA",
    SHARDY: "Shardy's plans over XLA",
}
OVER_SHARDY = "redist over Shardy's plans"


def against_shardy(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records with Shardy's plans in the place of XLA."""
    both = [r for r in records if {OWN, SHARDY} <= set(r["seconds"])]
    return [r | {"seconds": {BASE: r["seconds"][SHARDY], OWN: r["seconds"][OWN]}} for r in both]


def crossing_ratios(records: Sequence[dict[str, Any]], who: str) -> list[float]:
    """How much more than `who` XLA sends over the busiest link, where anything has to cross it."""
    return [
        r["crossing_bytes"][BASE] / r["crossing_bytes"][who]
        for r in records
        if r["least_crossing_bytes"] and {BASE, who} <= set(r["crossing_bytes"])
    ]


def cluster_rows(records: Sequence[dict[str, Any]], seed: int) -> list[tuple[str, str, Summary, Interval | None]]:
    """(network, comparison, speedups, how much less crosses the busiest link)."""
    rows: list[tuple[str, str, Summary, Interval | None]] = []
    for family in dict.fromkeys(r["family"] for r in records):
        group = [r for r in records if r["family"] == family]
        for who, called in CALLED.items():
            found = summary(group, who, seed)
            ratios = crossing_ratios(group, who)
            if found is not None:
                rows.append((family, called, found, geometric_mean_interval(ratios, seed) if ratios else None))
        found = summary(against_shardy(group), OWN, seed)
        if found is not None:
            rows.append((family, OVER_SHARDY, found, None))
    return rows


def cluster_tables(records: Sequence[dict[str, Any]], seed: int) -> RenderableType:
    """A line per network and comparison; losses; what was wrong."""
    table = Table(title="several hosts: speedup", title_justify="left", title_style="bold")
    for heading in ("network", "comparison", "problems", "wrong", "geometric mean [95%]", "smallest", "largest"):
        table.add_column(heading, justify="left" if heading in ("network", "comparison") else "right", no_wrap=True)
    for heading in ("win", "tie", "behind", "loss", "less over the busiest link"):
        table.add_column(heading, justify="right")
    for family, called, found, less in cluster_rows(records, seed):
        counts = [str(found.verdicts[name]) for name in ("win", "tie", "behind", "loss")]
        extremes = [f"{found.smallest:.3f}", f"{found.largest:.3f}"]
        cells = [str(found.problems), str(found.wrong), str(found.mean), *extremes, *counts, str(less or "")]
        table.add_row(family, called, *cells)
    parts: list[RenderableType] = [table]
    for family in dict.fromkeys(r["family"] for r in records):
        group = [r for r in records if r["family"] == family]
        for o in outcomes(group, OWN, seed):
            if o.verdict in ("loss", "behind"):
                times = f"{1000 * o.seconds:.1f} ms to XLA's {1000 * o.base_seconds:.1f} ms"
                parts.append(Text(f"{o.verdict}: {family}: {o.problem}: {o.speedup}, {times}"))
    for r in records:
        parts += [
            Text(f"wrong: {who} on {r['problem']}: {note}", style="red" if who == OWN else "dim")
            for who, note in r["wrong"].items()
            if who != CONTROL
        ]
    caught = sum(CONTROL in r["wrong"] for r in records)
    legend = (
        f"A round takes as long as its slowest host. Bytes are read off the links' counters. Control: what hands back "
        f"its input is wrong on {caught} of {len(records)}."
    )
    return Group(*parts, Text(legend, style="dim"), Text())

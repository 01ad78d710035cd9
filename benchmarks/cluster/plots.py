"""Pictures of the timings on several hosts: speedup against the links' rate, bytes over the slow axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cluster.network import Network
from benchmarks.cluster.tables import CALLED
from benchmarks.executors.cluster import AGAIN, BASE, CALIBRATED, OWN, SHARDY
from benchmarks.plots import GREY, STYLES, plain_ticks, save
from benchmarks.timing import summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["crossing", "plot_cluster", "rates"]

_OTHERS = {
    AGAIN: (GREY, ":", "s"),
    OWN: STYLES["redist"],
    CALIBRATED: ("#009E73", "--", "^"),
    SHARDY: STYLES["shardy"],
}


def plot_cluster(records: Sequence[dict[str, Any]], folder: Path, stem: str, seed: int) -> list[Path]:
    """Draw what the records hold; returns the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": stem, "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    return save(rates(records, seed), folder, f"{stem}-rate") + save(crossing(records), folder, f"{stem}-crossing")


def rates(records: Sequence[dict[str, Any]], seed: int) -> Figure:
    """Geometric means of the speedups over XLA, with their intervals, against the links' rate."""
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(6, 4))
    groups = {rate: [r for r in records if r["rate"] == rate] for rate in dict.fromkeys(r["rate"] for r in records)}
    for who, (colour, line, marker) in _OTHERS.items():
        found = sorted(
            (Network(1, rate).bytes_per_second * 8e-6, made.mean)
            for rate, group in groups.items()
            if (made := summary(group, who, seed)) is not None
        )
        if found:
            at, means = [rate for rate, _ in found], [mean for _, mean in found]
            points = [mean.point for mean in means]
            bars = [[m.point - m.low for m in means], [m.high - m.point for m in means]]
            style = {"color": colour, "ls": line, "marker": marker, "capsize": 3, "label": CALLED[who]}
            panel.errorbar(at, points, bars, **style)
    panel.axhline(1, color="#000000", lw=0.8)
    panel.set(xscale="log", xlabel="rate of every link, Mbit/s", ylabel="speedup, geometric mean", ylim=(0, None))
    panel.set_title("on several hosts")
    plain_ticks(panel)
    panel.legend()
    return figure


def crossing(records: Sequence[dict[str, Any]]) -> Figure:
    """Bytes into the busiest host per problem, by the links' counters, against the least that must go there."""
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(5.5, 5))
    top = 1.0
    for who in (BASE, SHARDY, OWN):
        colour, _, marker = STYLES[who]
        pairs = [
            (r["least_crossing_bytes"] / 2**20, r["crossing_bytes"][who] / 2**20)
            for r in records
            if r["least_crossing_bytes"] and who in r["crossing_bytes"]
        ]
        if pairs:
            panel.plot(*zip(*pairs, strict=True), marker, color=colour, ms=5, alpha=0.7, mfc="none", label=who)
            top = max(top, *(value for pair in pairs for value in pair))
    panel.plot([0.05, top], [0.05, top], color=GREY, lw=0.8, label="least possible")
    panel.set(xscale="log", yscale="log", title="over the slow axis")
    panel.set(xlabel="what the busiest host lacks, MiB", ylabel="measured on its link, MiB")
    plain_ticks(panel)
    panel.legend(loc="lower right")
    return figure

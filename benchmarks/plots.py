"""Results as plots, PNG and SVG, in colours that the colour-blind tell apart (Okabe and Ito), with markers beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.executors.jax import AGAIN, BASE, CONTESTANTS, CONTROL
from benchmarks.stats import LOSS
from benchmarks.timing import outcomes, summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["GREY", "STYLES", "plain_ticks", "plot_all", "save"]

STYLES = {
    "redist": ("#0072B2", "-", "o"),
    "redist-paper": ("#56B4E9", "--", "s"),
    "redist-exchange": ("#009E73", ":", "^"),
    "shardy": ("#D55E00", "-", "v"),
    "xla": ("#000000", "-.", "D"),
    "dtensor-greedy": ("#CC79A7", "--", "P"),
    "dtensor-dijkstra": ("#E69F00", ":", "X"),
}
GREY = "#999999"
_VERDICTS = {"win": ("#0072B2", "o"), "tie": (GREY, "s"), "behind": ("#E69F00", "^"), "loss": ("#D55E00", "v")}


def plot_all(records: Sequence[dict[str, Any]], folder: Path, stem: str, seed: int) -> list[Path]:
    """Draw what the records hold; returns the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": stem, "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    plans = [r for r in records if r["record"] == "plan" and r["who"] in STYLES]
    timings = [r for r in records if r["record"] == "timing"]
    made: list[Path] = []
    if plans:
        made += save(_distributions(plans, "ratio", "received / lower bound"), folder, f"{stem}-received")
        made += save(_distributions(plans, "live_peak", "peak / (source + target)"), folder, f"{stem}-peak")
    if any(r["seconds"] for r in timings):
        for who in (name for name in CONTESTANTS if name not in (BASE, AGAIN, CONTROL)):
            if outcomes(timings, who, seed):
                made += save(_speedups(timings, who, seed), folder, f"{stem}-speedup-{who}")
        if not outcomes(timings, "redist", seed):
            made += save(_speedups(timings, AGAIN, seed), folder, f"{stem}-noise")
        made += save(_memory(timings), folder, f"{stem}-memory")
    return made


def save(figure: Figure, folder: Path, stem: str) -> list[Path]:
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{stem}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=150, bbox_inches="tight", metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    return paths


def _distributions(records: Sequence[dict[str, Any]], name: str, label: str) -> Figure:
    """Share of pairs at or below a figure, per planner, a panel per family."""
    import matplotlib.pyplot as plt

    families = list(dict.fromkeys(r["family"] for r in records))
    columns = min(3, len(families))
    rows = -(-len(families) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4 * columns, 3 * rows), squeeze=False)
    for panel, family in zip(axes.flat, families, strict=False):
        for who, (colour, line, marker) in STYLES.items():
            values = _figures(records, family, who, name)
            if values:
                shares = [(n + 1) / len(values) for n in range(len(values))]
                every = max(1, len(values) // 8)
                panel.step(
                    values, shares, line, where="post", color=colour, marker=marker, markevery=every, ms=4, label=who
                )
        panel.axvline(1, color=GREY, lw=0.8)
        panel.set(title=family, xlabel=label, ylabel="share of pairs", xscale="log", ylim=(0, 1.02))
        panel.set_xlim(0.95, max(1.5, panel.get_xlim()[1]))
        plain_ticks(panel)
    for panel in list(axes.flat)[len(families) :]:
        panel.set_visible(False)
    handles = {h.get_label(): h for panel in axes.flat for h in panel.get_lines() if h.get_label()[0] != "_"}
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=4, bbox_to_anchor=(0.5, -0.12 / rows))
    figure.tight_layout()
    return figure


def _figures(records: Iterable[dict[str, Any]], family: str, who: str, name: str) -> list[float]:
    found: list[float] = []
    for r in records:
        if r["family"] == family and r["who"] == who and r["verdict"] == "ok":
            value = r.get(name)
            if name == "live_peak" and r.get("measured_peak") is not None:
                value = r["measured_peak"] if value is None else value
            if value is not None:
                found.append(value)
    return sorted(found)


def plain_ticks(panel: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (panel.xaxis, panel.yaxis):
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            subs = (0.8, 1, 1.2, 1.5, 2, 3, 4, 6) if high / low < 8 else (1, 2, 5)
            axis.set_major_locator(LogLocator(subs=subs))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())


def _speedups(records: Sequence[dict[str, Any]], who: str, seed: int) -> Figure:
    """Sorted speedups with their intervals; behind them, XLA against itself as a band and a line."""
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(8, 4))
    found = outcomes(records, who, seed)
    noise = outcomes(records, AGAIN, seed)
    if noise:
        spread = [o.speedup.point for o in noise]
        panel.axhspan(min(spread), max(spread), color=GREY, alpha=0.25, lw=0, label="xla against itself, range")
    panel.axhline(LOSS, color=GREY, lw=0.8, ls=":", label=f"loss below {LOSS}")
    panel.axhline(1, color="#000000", lw=0.8)
    for name, (colour, marker) in _VERDICTS.items():
        at = [n for n, o in enumerate(found) if o.verdict == name]
        if at:
            points = [found[n].speedup.point for n in at]
            bars = [
                [found[n].speedup.point - found[n].speedup.low for n in at],
                [found[n].speedup.high - found[n].speedup.point for n in at],
            ]
            style = {"color": colour, "fmt": marker, "ms": 4, "lw": 0.8}
            panel.errorbar(at, points, bars, label=f"{name} ({len(at)})", **style)
    whole = summary(records, who, seed)
    title = f"{who} against XLA: geometric mean {whole.mean}" if whole else who
    panel.grid(False, axis="x")
    panel.set(title=title, xlabel="problems, sorted", ylabel="speedup", yscale="log")
    plain_ticks(panel)
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure


def _memory(records: Sequence[dict[str, Any]]) -> Figure:
    """Measured peak per device against source + target, and against what redist projected."""
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(5, 5))
    top = 1.0
    for who in (BASE, "redist"):
        colour, _, marker = STYLES[who]
        pairs = [
            (r["bound_bytes"] / 2**20, r["stated"][who]["measured_bytes"] / 2**20)
            for r in records
            if "measured_bytes" in r["stated"].get(who, {})
        ]
        if pairs:
            panel.plot(*zip(*pairs, strict=True), marker, color=colour, ms=4, alpha=0.7, mfc="none", label=who)
            top = max(top, *(value for pair in pairs for value in pair))
    panel.plot([0.1, top], [0.1, top], color=GREY, lw=0.8, label="source + target")
    panel.plot([0.1, top], [0.2, 2 * top], color=GREY, lw=0.8, ls=":", label="twice that")
    panel.set(xlabel="source + target, MiB per device", ylabel="measured peak, MiB per device")
    panel.set(xscale="log", yscale="log", title="peak against bound")
    plain_ticks(panel)
    panel.legend(loc="upper left")
    return figure

"""Time from a function to its report, against the number of layers: T32 at 4 to 64 layers, from shapes only."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.plots import save

__all__ = ["GOAL_SECONDS", "LAYERS", "Point", "as_json", "draw", "growth", "linear", "table"]

LAYERS = (4, 8, 16, 32, 64)
GOAL_SECONDS = 8.0
"""For 32 layers."""
_PARTS: tuple[str, ...] = ("JAX's trace", "program and tactics", "lowering and report")


@dataclass(frozen=True, slots=True)
class Point:
    """CPU seconds of each part, wall-clock seconds of all; the fastest of `rounds`, and their median."""

    layers: int
    operations: int
    rounds: int
    parts: dict[str, float]
    total: float
    median: float
    wall: float
    wall_median: float


def growth(rounds: int = 3, step: Callable[[], None] = lambda: None) -> list[Point]:
    """All sizes in turn, `rounds` times over; nothing is kept between them. `step` is called after every one."""
    from benchmarks.models import gpt

    once(gpt.Config(layers=1))  # imports, and tables of rules
    found: dict[int, list[tuple[dict[str, float], float, int]]] = {n: [] for n in LAYERS}
    for _ in range(rounds):
        for layers in LAYERS:
            found[layers].append(once(gpt.Config(layers=layers)))
            step()
    return [_point(layers, runs) for layers, runs in found.items()]


def once(config: Any) -> tuple[dict[str, float], float, int]:
    """(CPU seconds by part, wall-clock seconds of all parts, operations) for BP+MP+Z3. JAX's tracing is timed once
    more, by itself, to tell it from the rest."""
    import jax

    from benchmarks.models import gpt
    from benchmarks.models.schedules import BP, GPT_MP, GPT_Z3
    from redist import Mesh
    from redist import partir_core as partir

    shapes = gpt.shapes(config)
    mesh = Mesh({"B": 16, "M": 2})
    jax.clear_caches()
    gc.collect()
    cpu = process_time()
    jax.jit(partial(gpt.training_step, config)).trace(*shapes)
    tracing = process_time() - cpu
    jax.clear_caches()
    gc.collect()
    started, cpu = perf_counter(), process_time()
    lowered = partir.jit(partial(gpt.training_step, config), mesh, [BP, GPT_MP, GPT_Z3]).lower(*shapes)
    analysed = process_time() - cpu
    report = lowered.report
    whole, wall = process_time() - cpu, perf_counter() - started
    layers, large = config.layers, 4 * config.layers + 1
    report.assert_collectives(all_gather=8 * layers + 3, all_reduce=13 * layers + 2 - large, reduce_scatter=large)
    tracing = min(tracing, analysed)
    parts = dict(zip(_PARTS, (tracing, analysed - tracing, whole - analysed), strict=True))
    return parts, wall, sum(1 for _ in lowered.program.block.walk())


def _point(layers: int, runs: Sequence[tuple[dict[str, float], float, int]]) -> Point:
    totals = [sum(parts.values()) for parts, _, _ in runs]
    walls = [wall for _, wall, _ in runs]
    best = runs[int(np.argmin(totals))]
    return Point(layers, best[2], len(runs), best[0], min(totals), median(totals), min(walls), median(walls))


def linear(points: Sequence[Point]) -> float:
    """Exponent of the growth of CPU time from the second point on: 1 is linear."""
    late = points[1:]
    logs = [(np.log(p.layers), np.log(p.total)) for p in late]
    return float(np.polyfit([x for x, _ in logs], [y for _, y in logs], 1)[0])


def table(points: Sequence[Point]) -> str:
    """Aligned text."""
    lines = [
        f"{'layers':>6}{'operations':>12}"
        + "".join(f"{name:>21}" for name in _PARTS)
        + f"{'CPU s':>8}{'median':>8}{'wall s':>8}{'median':>8}"
    ]
    for p in points:
        parts = "".join(f"{p.parts[name]:>21.2f}" for name in _PARTS)
        lines.append(
            f"{p.layers:>6}{p.operations:>12,}{parts}{p.total:>8.2f}{p.median:>8.2f}{p.wall:>8.2f}{p.wall_median:>8.2f}"
        )
    lines.append(f"fastest and median of {points[0].rounds} rounds; growth with layers^{linear(points):.2f}")
    return "\n".join(lines)


def draw(points: Sequence[Point], stem: Path, about: str) -> list[Path]:
    """Write `stem`.png and `stem`.svg; returns the paths."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": stem.name, "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(5.5, 3.6))
    layers = [p.layers for p in points]
    below = np.zeros(len(points))
    for name, colour in zip(_PARTS, ("#56B4E9", "#0072B2", "#009E73"), strict=True):
        above = below + np.array([p.parts[name] for p in points])
        panel.fill_between(layers, below, above, color=colour, alpha=0.6, lw=0, label=name)
        below = above
    panel.plot(layers, [p.total for p in points], "o-", color="black", ms=4, lw=1, label="all")
    panel.plot([32], [GOAL_SECONDS], "x", color="#E69F00", ms=8, mew=2, label="goal for 32 layers")
    panel.set(xlabel="layers of width 4096", ylabel="CPU seconds, one thread", xticks=layers, xlim=(0, 66))
    panel.set_ylim(bottom=0)
    panel.legend(loc="upper left", fontsize=8)
    panel.set_title(about, fontsize=9)
    figure.tight_layout()
    return save(figure, stem.parent, stem.name)


def as_json(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Plain values."""
    return [asdict(point) for point in points]

"""Time of all obligations against devices and against array size, as data and as a plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.plots import save
from benchmarks.proofs.timings import verified
from redist.errors import InfeasibleError
from redist.synth import synthesize
from redist.testing import all_layouts
from redist.types import Layout, Mesh

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["POINTS", "Point", "as_json", "draw", "growth", "table"]

DEVICES = tuple(2**n for n in range(3, 21))
SIZES = tuple(2**n for n in range(12, 41, 2))
ONE_BY_ONE = 2**16
"""Devices in arbitrary order, up to so many: such plans are checked device by device."""

POINTS = sum(3 if n <= ONE_BY_ONE else 2 for n in DEVICES) + 2 * len(SIZES)

_STYLES = {
    "even blocks": ("#0072B2", "o", "-"),
    "uneven blocks": ("#E69F00", "s", "--"),
    "devices in arbitrary order": ("#D55E00", "v", ":"),
}


@dataclass(frozen=True, slots=True)
class Point:
    """Milliseconds of CPU time for all obligations of each of `plans` plans, which other work on the machine disturbs
    least; beside it wall-clock time."""

    kind: str
    devices: int
    elements: int
    plans: int
    median: float
    p10: float
    p90: float
    largest: float
    wall_median: float
    proved: int


def growth(plans: int = 40, seed: int = 0, step: Callable[[], None] = lambda: None) -> dict[str, list[Point]]:
    """`devices`: 8 to 2^20 devices, arrays of 2^40 elements and more; `elements`: 2^12 to 2^40 on 64 devices.

    The same pairs of layouts of three axes, at every size. `step` is called after every point.
    """
    found: dict[str, list[Point]] = {"devices": [], "elements": []}
    for devices in DEVICES:
        mesh = _mesh(devices)
        side = 2**20 * 3
        found["devices"].append(_point("even blocks", mesh, (side, side), plans, seed))
        step()
        found["devices"].append(_point("uneven blocks", mesh, (side + 5, side - 7), plans, seed))
        step()
        if devices <= ONE_BY_ONE:
            found["devices"].append(_point("devices in arbitrary order", mesh, (side, side), plans, seed))
            step()
    mesh = _mesh(64)
    for elements in SIZES:
        side = round(elements**0.5)
        found["elements"].append(_point("even blocks", mesh, (side, side), plans, seed))
        step()
        found["elements"].append(_point("uneven blocks", mesh, (side + 5, side - 7), plans, seed))
        step()
    return found


def _mesh(devices: int) -> Mesh:
    """Three axes, of powers of two as equal as they go."""
    total = devices.bit_length() - 1
    return Mesh({name: 2 ** ((total + n) // 3) for n, name in enumerate("xyz")})


def _point(kind: str, mesh: Mesh, shape: tuple[int, int], plans: int, seed: int) -> Point:
    checks = [verified(synthesize(*pair)) for pair in _pairs(kind, mesh, shape, plans, seed)]
    times = [check.cpu for check in checks]
    return Point(
        kind=kind,
        devices=mesh.size,
        elements=shape[0] * shape[1],
        plans=len(checks),
        median=float(np.median(times)),
        p10=float(np.percentile(times, 10)),
        p90=float(np.percentile(times, 90)),
        largest=max(times),
        wall_median=float(np.median([check.wall for check in checks])),
        proved=sum(check.certificate.status == "proved" for check in checks),
    )


def _pairs(kind: str, mesh: Mesh, shape: tuple[int, int], plans: int, seed: int) -> Iterator[tuple[Layout, Layout]]:
    """The same pairs for every mesh and shape, as far as there is a plan."""
    rng = Random(seed)
    layouts = all_layouts(mesh, 2, shape=shape)
    found = 0
    while found < plans:
        source, target = rng.sample(layouts, 2)
        if kind == "devices in arbitrary order":
            ids = list(range(mesh.size))
            Random(seed).shuffle(ids)
            target = Layout(Mesh(mesh.axes, ids), target.shape, [dim.axes for dim in target.dims], target.dtype)
        try:
            synthesize(source, target)
        except InfeasibleError:
            continue
        found += 1
        yield source, target


def draw(found: dict[str, list[Point]], stem: Path, about: str) -> list[Path]:
    """Write `stem`.png and `stem`.svg; returns the paths."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": stem.name, "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    _lines(left, found["devices"], lambda point: point.devices)
    _lines(right, found["elements"], lambda point: point.elements)
    left.set(xlabel="devices", ylabel="all obligations, CPU ms per plan", yscale="log")
    right.set(xlabel="elements of the array, on 64 devices")
    left.legend(loc="upper left", fontsize=8)
    left.set_ylim(1, 10 ** math.ceil(math.log10(max(p.p90 for points in found.values() for p in points))))
    figure.suptitle(about, fontsize=9)
    figure.tight_layout()
    return save(figure, stem.parent, stem.name)


def _lines(panel: Axes, points: Sequence[Point], at: Callable[[Point], int]) -> None:
    """Median and the range from the 10th to the 90th percentile."""
    for kind, (colour, marker, line) in _STYLES.items():
        mine = [point for point in points if point.kind == kind]
        if mine:
            where = [at(point) for point in mine]
            medians = [point.median for point in mine]
            panel.plot(where, medians, line, color=colour, marker=marker, ms=4, label=kind)
            panel.fill_between(where, [p.p10 for p in mine], [p.p90 for p in mine], color=colour, alpha=0.15, lw=0)
    panel.set_xscale("log", base=2)


def table(found: dict[str, list[Point]]) -> str:
    """Aligned text."""
    lines = [
        f"{'kind':<28}{'devices':>9}{'elements':>16}{'plans':>7}{'median':>9}{'p90':>9}{'max':>9}{'wall':>9}{'proved':>8}"
    ]
    for points in found.values():
        for p in points:
            times = "".join(f"{value:>9.1f}" for value in (p.median, p.p90, p.largest, p.wall_median))
            lines.append(f"{p.kind:<28}{p.devices:>9}{p.elements:>16}{p.plans:>7}{times}{p.proved:>8}")
    return "\n".join([*lines, "CPU time in ms, all obligations together; wall: median of wall-clock time"])


def as_json(found: dict[str, list[Point]]) -> dict[str, Any]:
    """Plain values."""
    return {name: [asdict(point) for point in points] for name, points in found.items()}

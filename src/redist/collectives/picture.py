"""A layout drawn as text: the array cut into its blocks, in each the devices that hold it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redist.types.layout import Layout

__all__ = ["beside", "picture"]

_MOST_ROWS, _MOST_COLUMNS, _MOST_DEVICES = 16, 8, 4096
_WIDEST = 18


def picture(layout: Layout) -> list[str]:
    """Lines of a grid: dimension 0 down, the others across (of a vector, dimension 0 across); a cell names
    the devices that hold its block. Large grids are cut short, and say so."""
    if layout.mesh.size > _MOST_DEVICES:
        return [f"({layout.mesh.size} devices are too many to draw)"]
    counts = layout.block_counts()
    down = 0 if layout.rank > 1 and counts[0] > 1 else None
    across = [i for i, count in enumerate(counts) if count > 1 and i != down]
    rows = range(1 if down is None else counts[down])
    columns = list(itertools.product(*(range(counts[i]) for i in across)))
    held = _devices(layout, down, across)
    cells = [[_listed(held.get((row, column), [])) for column in columns[:_MOST_COLUMNS]] for row in rows[:_MOST_ROWS]]
    lines = _grid(cells)
    hidden = [
        f"{total - most} more {what}"
        for total, most, what in ((len(rows), _MOST_ROWS, "rows"), (len(columns), _MOST_COLUMNS, "columns"))
        if total > most
    ]
    named = [] if down is None else [f"dim {down} down"]
    named += [f"dim {' and '.join(map(str, across))} across"] if across else []
    if named:
        lines.append(", ".join(named) + (f" ({', '.join(hidden)})" if hidden else ""))
    return lines


def beside(left: Sequence[str], right: Sequence[str], gap: str = "   ->   ", width: int | None = None) -> list[str]:
    """Two pictures next to each other, or below each other where that is wider than `width` columns."""
    widest = max(map(len, left), default=0)
    if width is not None and widest + len(gap) + max(map(len, right), default=0) > width:
        return [*left, gap.strip(), *right]
    middle = max(len(left), len(right)) // 2
    return [
        f"{a:<{widest}}{gap if n == middle else ' ' * len(gap)}{b}".rstrip()
        for n, (a, b) in enumerate(itertools.zip_longest(left, right, fillvalue=""))
    ]


def _devices(layout: Layout, down: int | None, across: Sequence[int]) -> dict[tuple[int, tuple[int, ...]], list[int]]:
    """(row, column) -> ids of the devices that hold the block."""
    index = [layout.mesh.index(dim.axes).tolist() for dim in layout.dims]
    held: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for position, device in enumerate(layout.mesh.device_ids):
        row = 0 if down is None else index[down][position]
        held.setdefault((row, tuple(index[i][position] for i in across)), []).append(device)
    return held


def _listed(devices: Sequence[int]) -> str:
    """`0-3,8`: runs of ids, as many as there is room for."""
    runs: list[list[int]] = []
    for device in sorted(devices):
        if runs and runs[-1][-1] == device - 1:
            runs[-1].append(device)
        else:
            runs.append([device])
    text = ",".join(
        str(run[0]) if len(run) == 1 else f"{run[0]}{'-' if len(run) > 2 else ','}{run[-1]}" for run in runs
    )
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1].rpartition(',')[0]},…"


def _grid(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right

    lines = [rule("┌", "┬", "┐")]
    for n, row in enumerate(cells):
        lines += [rule("├", "┼", "┤")] if n else []
        lines.append("│" + "│".join(f" {cell.center(width)} " for cell, width in zip(row, widths, strict=True)) + "│")
    return [*lines, rule("└", "┴", "┘")]

"""A plan as text for people: an aligned table, and what it costs against its bounds."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, assert_never

from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    AxesByDim,
    Chunk,
    Exchange,
    Owner,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redist.collectives.plan import Plan
    from redist.types.layout import Layout
    from redist.types.mesh import SubAxis

__all__ = ["bytes_text", "describe", "explain", "seconds_text"]


def bytes_text(count: int) -> str:
    """`1536 --> 1.5 KiB`; three digits, whole bytes below 1 KiB."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            return f"{size:.3g} {unit}" if size < 999.5 else f"{size:.0f} {unit}"
    raise AssertionError("the last unit takes every size")


def seconds_text(seconds: float) -> str:
    """`1.5 ms`: three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def describe(step: Step) -> str:
    """One step in a few words: `all-to-all x: 0 -> 1`."""
    match step:
        case Slice(axes, _):
            return f"slice {_by_dim(axes)}"
        case AllGather(axes):
            return f"all-gather {_by_dim(axes)}"
        case AllToAll(moves, _):
            return "all-to-all " + "; ".join(f"{_axes(axes)}: {i} -> {j}" for axes, i, j in moves)
        case Permute():
            return "permute"
        case Exchange(_, transfers):
            return "exchange" if isinstance(transfers, Owner) else f"exchange ({len(transfers)} transfers)"
        case ReduceScatter(axes, _):
            return f"reduce-scatter {_by_dim(axes)}"
        case AllReduce(axes):
            return f"all-reduce {_axes(axes)}"
        case Chunk(dim, parts, steps):
            return f"in {parts} parts of dim {dim}: " + ", then ".join(map(describe, steps))
        case _:
            assert_never(step)


def _axes(axes: Iterable[SubAxis]) -> str:
    return ",".join(map(str, axes))


def _by_dim(axes: AxesByDim) -> str:
    return "; ".join(f"dim {i} by {_axes(dim_axes)}" for i, dim_axes in axes)


def explain(plan: Plan, width: int | None = None) -> str:
    """The plan as an aligned table (step, layout after, received, live, running peak), then the totals.

    With a `width`, what would be wider is folded: layouts go below their steps, sentences wrap.
    """
    layouts = plan.layouts
    rows = [("step", "layout after", "received", "live", "peak")]
    peak = plan.source.block_bytes()
    rows.append(("source", str(plan.source), "", "", bytes_text(peak)))
    for n, step in enumerate(plan.steps):
        peak = max(peak, plan.live_bytes[n])
        after = layouts[n + 1]
        shown = str(after) if after.mesh == layouts[n].mesh else f"{after} on {_mesh(after)}"
        rows.append(
            (
                f"{n + 1}. {describe(step)}",
                shown,
                bytes_text(plan.step_received_bytes[n]),
                bytes_text(plan.live_bytes[n]),
                bytes_text(peak),
            )
        )
    start, end = _ends(plan)
    headline = f"{start}  ->  {end}   (bytes are per device)"
    table, sentences = _aligned(rows), [*_totals(plan), *_reasons(plan), *plan.options.notes]
    if width is None:
        return "\n".join([headline, *table, *sentences])
    if len(headline) > width:
        headline = f"{start}\n  -> {end}   (bytes are per device)"
    if max(map(len, table)) > width:
        table = _stacked(rows)
    folded = [textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False) for line in sentences]
    return "\n".join([headline, *table, *folded])


def _ends(plan: Plan) -> tuple[str, str]:
    target = str(plan.target) if plan.target.mesh == plan.source.mesh else f"{plan.target} on {_mesh(plan.target)}"
    return f"{plan.source} on {_mesh(plan.source)}", target


def _mesh(layout: Layout) -> str:
    return str(layout.mesh) or "one device"


def _stacked(rows: list[tuple[str, ...]]) -> list[str]:
    """The table with every layout on a line of its own below its step."""
    narrow = _aligned([(step, "", *rest) for step, _, *rest in rows])
    lines = [narrow[0]]
    for line, row in zip(narrow[1:], rows[1:], strict=True):
        lines += [line, f"     {row[1]}"]
    return lines


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if n < 2 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
            if width
        ).rstrip()
        for row in rows
    ]


def _totals(plan: Plan) -> list[str]:
    received, bound = plan.received_bytes, plan.lower_bound_bytes
    if received == bound:
        against = "exactly what is missing"
    elif bound:
        against = f"{plan.excess:.3g}x the lower bound of {bytes_text(bound)}"
    else:
        against = "although nothing is missing"
    steps = plan.communication_steps
    lines = [f"received {bytes_text(received)} in {steps} communication step{'s' * (steps != 1)}: {against}"]
    largest, bound = plan.largest_block_bytes, plan.block_bound_bytes
    within = "within" if largest <= bound else "OVER"
    limit = plan.options.memory_limit
    stated = "" if limit is None else f" of a limit of {bytes_text(limit)}"
    lines.append(
        f"largest block {bytes_text(largest)}, {within} the bound of {bytes_text(bound)}; "
        f"live peak {bytes_text(plan.peak_bytes)}{stated}"
    )
    topology = plan.options.topology
    if not topology.bytes_only(plan.source.mesh):
        lines.append(f"projected {seconds_text(plan.seconds)} under topology {topology.name}")
    return lines


def _reasons(plan: Plan) -> list[str]:
    """Why a planner's plan: what is proven of its cost, and what the alternatives would cost."""
    rated = plan.options.optimal or plan.options.gap is not None
    if not plan.steps or not rated or plan.source.partial:
        return []
    whole = math.prod(plan.source.shape) * plan.source.itemsize
    lines: list[str] = []
    timed = not plan.options.topology.bytes_only(plan.source.mesh)
    if timed or plan.received_bytes > plan.lower_bound_bytes:
        if plan.options.optimal:
            what = "faster" if timed else "cheaper"
            lines.append(f"no plan of uniform steps in normal form is {what} (proven)")
        elif plan.options.gap is not None:
            lines.append(
                f"not proven cheapest: another plan of its steps could be up to {plan.options.gap:.3g}x cheaper"
            )
    if plan.received_bytes > plan.lower_bound_bytes:
        lines.append(f"an exchange of the missing elements alone would receive {bytes_text(plan.lower_bound_bytes)}")
    largest = max(plan.source.block_bytes(), plan.target.block_bytes())
    if plan.received_bytes and whole > largest:
        lines.append(
            f"replicating and slicing would receive {bytes_text(whole - plan.source.block_bytes())} and hold "
            f"{bytes_text(whole)}, {whole / largest:.3g}x the bound"
        )
    return lines

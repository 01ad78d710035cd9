"""A plan as one self-contained HTML page: devices with what they hold before and after every step.

Nothing is fetched. Without JavaScript all steps stand below each other; with it, one shows at a time, and the
arrow keys go through them.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from redist.collectives.explain import bytes_text, describe, explain
from redist.viz.grid import Cell, Grid, grid_of

if TYPE_CHECKING:
    from redist.collectives.plan import Plan
    from redist.types.layout import Layout

__all__ = ["plan_page"]

_WIDTH, _HEIGHT = 100.0, 70.0
_THIN = 4.0  # an edge would cover what is narrower
_MOST_ACROSS = 4
_GOLDEN_ANGLE = 137.508


def plan_page(plan: Plan) -> str:
    """The page's text. Bytes are per device.

    A device is drawn as the array with what it holds filled in; colours and numbers tell from which block of
    the source that came, and what a step brought has a thick edge. At most 64 devices are drawn, fewer where
    blocks are many. Raises TypingError for a step that does not apply.
    """
    style, script = (files("redist.viz").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    grid = grid_of(plan)
    layouts = plan.layouts
    titles = ["source", *(f"{n}. {describe(step)}" for n, step in enumerate(plan.steps, 1))]
    sections = [_section(0, titles[0], _facts(plan, None), [_panel(grid, None, layouts[0], "at the start")])]
    for n, title in enumerate(titles[1:], 1):
        before, after = layouts[n - 1], layouts[n]
        panels = [_panel(grid, None, before, "before"), _panel(grid, before, after, "after")]
        sections.append(_section(n, title, _facts(plan, n - 1), panels))
    named = f"{plan.source} on {plan.source.mesh or 'one device'} -> {plan.target}"
    if plan.target.mesh != plan.source.mesh:
        named += f" on {plan.target.mesh or 'one device'}"
    buttons = "".join(f"<button type=button>{'source' if n == 0 else n}</button>" for n in range(len(titles)))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(named)}</title>",
            f"<style>\n{style}</style></head><body>",
            f"<h1>{escape(named)}</h1>",
            _verdict(plan),
            f'<nav aria-label="steps; arrow keys, Home and End work too">{buttons}</nav>',
            f"<main>{''.join(sections)}</main>",
            f"<p>{_legend(plan, grid)}</p>",
            f"<pre>{escape(explain(plan))}</pre>",
            f"<script>\n{script}</script></body></html>",
            "",
        ]
    )


def _verdict(plan: Plan) -> str:
    if plan.layouts[-1].equivalent(plan.target):
        return ""
    return f'<p role="alert">These steps end at {escape(str(plan.layouts[-1]))}, which is not the target.</p>'


def _legend(plan: Plan, grid: Grid | None) -> str:
    if grid is None:
        return "The blocks of this plan are too many to draw."
    text = (
        "Each picture is the whole array, dimension 0 down (of a vector: across) and the others across; what a device "
        "holds is filled. Colours and numbers say in which block of the source it was; a thick edge says that the "
        "device did not hold it before the step."
    )
    most = max(layout.mesh.size for layout in plan.layouts)
    return text if most <= grid.devices else f"{text} The first {grid.devices} of {most} devices are drawn."


def _section(n: int, title: str, facts: str, panels: Sequence[str]) -> str:
    inside = f'<h2>{escape(title)}</h2>{facts}<div class="panels">{"".join(panels)}</div>'
    return f'<section class="step" id="step-{n}">{inside}</section>\n'


# -- bytes ---------------------------------------------------------------------------------------------


def _facts(plan: Plan, n: int | None) -> str:
    """Bars of step n (None: before the first): received so far, block, and what is alive, against their bounds."""
    after = plan.layouts[0 if n is None else n + 1]
    received = 0 if n is None else plan.step_received_bytes[n]
    live = plan.source.block_bytes() if n is None else plan.live_bytes[n]
    limit = plan.options.memory_limit
    held = plan.source.block_bytes() + plan.target.block_bytes()
    most_received = max(plan.lower_bound_bytes, *plan.step_received_bytes, 0)
    most_live = max(plan.peak_bytes, held, limit or 0)
    bound = "memory limit" if limit is not None else "source and target"
    rows = [
        ("received", received, plan.lower_bound_bytes, "all that is missing", most_received, False),
        ("block after", after.block_bytes(), plan.block_bound_bytes, "block bound", plan.block_bound_bytes, True),
        ("alive", live, held if limit is None else limit, bound, most_live, limit is not None),
    ]
    return "<table>" + "".join(_bar(*row) for row in rows) + "</table>"


def _bar(name: str, value: int, mark: int, marked: str, most: int, strict: bool) -> str:
    """One bar; where the mark is a bound that holds (`strict`), what exceeds it is drawn as such."""
    scale = 100 / max(most, value, 1)
    over = ' class="over"' if strict and value > mark else ""
    bar = f'<div class="bar"><i{over} style="width:{value * scale:.2f}%"></i><b style="left:{mark * scale:.2f}%"></b>'
    cells = f'<th>{name}</th><td class="number">{bytes_text(value)}</td><td>{bar}</div></td>'
    return f"<tr>{cells}<td>{marked}: {bytes_text(mark)}</td></tr>"


# -- pictures ------------------------------------------------------------------------------------------


def _panel(grid: Grid | None, before: Layout | None, layout: Layout, when: str) -> str:
    """All drawn devices under a layout; what they did not hold `before` has a thick edge."""
    mesh = f" on {layout.mesh}" if layout.mesh.names else ""
    head = f"<h3>{when}: {escape(str(layout) + mesh)}</h3>"
    if grid is None:
        return f'<div class="panel">{head}</div>'
    figures = "".join(_figure(grid, before, layout, device) for device in grid.shown(layout))
    return f'<div class="panel">{head}<div class="devices" style="--across:{_across(layout)}">{figures}</div></div>'


def _across(layout: Layout) -> int:
    """Devices side by side: the minor axes, as far as there is room; of a long axis a part that divides it."""
    across = 1
    for size in reversed(layout.mesh.sizes):
        if across * size > _MOST_ACROSS:
            return across if across > 1 else max(n for n in range(1, _MOST_ACROSS + 1) if size % n == 0)
        across *= size
    return across


def _figure(grid: Grid, before: Layout | None, layout: Layout, device: int) -> str:
    held = grid.cells(layout, device)
    had = set(held) if before is None else set(grid.cells(before, device))
    if before is not None and before.mesh.count(before.partial_axes) > layout.mesh.count(layout.partial_axes):
        had = set[Cell]()  # contributions of others have come in everywhere
    ordered = sorted(held, key=lambda cell: cell not in had)  # thick edges over thin ones
    shapes = "".join(_shape(grid, cell, cell not in had) for cell in ordered)
    where = ",".join(f"{name}={value}" for name, value in layout.mesh.coordinates(device).items())
    caption = f"{device} <small>{escape(where)}</small>"
    svg = f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none" role="img">{shapes}</svg>'
    return f'<figure data-device="{device}"><figcaption>{caption}</figcaption>{svg}</figure>'


def _shape(grid: Grid, cell: Cell, got: bool) -> str:
    left, top, width, height = _place(grid, cell)
    box = "; ".join(f"dim {i}: {a}-{b - 1}" for i, (a, b) in enumerate(zip(cell.starts, cell.stops, strict=True)))
    hue, light = cell.origin * _GOLDEN_ANGLE % 360, (62, 78, 70)[cell.origin % 3]
    size = f'x="{left:.2f}" y="{top:.2f}" width="{width:.2f}" height="{height:.2f}"'
    inside = f"<title>{box or 'the scalar'}, of source block {cell.origin}{', new here' * got}</title>"
    kind = "cell" + " got" * got + " thin" * (min(width, height) < _THIN)
    drawn = (
        f'<rect class="{kind}" {size} fill="hsl({hue:.0f} 65% {light}%)" data-origin="{cell.origin}" '
        f'data-starts="{",".join(map(str, cell.starts))}" data-stops="{",".join(map(str, cell.stops))}">{inside}</rect>'
    )
    if width >= 5 * len(str(cell.origin)) + 2 and height >= 8:
        drawn += f'<text x="{left + width / 2:.2f}" y="{top + height / 2:.2f}">{cell.origin}</text>'
    return drawn


def _place(grid: Grid, cell: Cell) -> tuple[float, float, float, float]:
    """(left, top, width, height) in the picture. Dimensions that go across nest: within a cell of one, all of
    the next is laid out."""
    sizes = grid.source.shape
    down = 0 if len(sizes) > 1 else None
    left, width, top, height = 0.0, _WIDTH, 0.0, _HEIGHT
    for i, (start, stop, size) in enumerate(zip(cell.starts, cell.stops, sizes, strict=True)):
        if i == down:
            top, height = _HEIGHT * start / size, _HEIGHT * (stop - start) / size
        else:
            left, width = left + width * start / size, width * (stop - start) / size
    return left, top, width, height

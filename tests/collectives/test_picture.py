"""Pictures: every cell names exactly the devices that hold its block."""

from __future__ import annotations

import itertools
import re

import pytest

from redist.collectives.picture import beside, picture
from redist.testing import all_layouts
from redist.types import Layout, Mesh


def ids(cell: str) -> set[int]:
    """`0-3,8` as a set."""
    found: set[int] = set()
    for run in cell.strip().split(","):
        first, _, last = run.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize("shape", [(8,), (8, 8), (8, 8, 8), (3, 8), ()], ids=str)
def test_cells_hold_the_devices_of_their_blocks(shape: tuple[int, ...]) -> None:
    """Grouped by the boxes that devices hold, in row-major order of the boxes."""
    for layout in all_layouts(Mesh({"x": 2, "y": 3}, [3, 1, 2, 0, 5, 4]), shape=shape):
        drawn = [row.strip("│").split("│") for row in picture(layout) if row.startswith("│")]
        cells = [ids(cell) if cell.strip() else set[int]() for row in drawn for cell in row]
        boxes: dict[tuple[int, ...], set[int]] = {}
        for device in layout.mesh.device_ids:
            coordinates = layout.mesh.coordinates(device)
            place = tuple(
                next(
                    n
                    for n, c in enumerate(itertools.product(*(range(dict(layout.mesh.axes)[a.axis]) for a in dim.axes)))
                    if c == tuple(coordinates[a.axis] for a in dim.axes)
                )
                for dim in layout.dims
            )
            boxes.setdefault(place, set()).add(device)
        assert cells == [boxes[place] for place in sorted(boxes)], layout


def test_a_picture() -> None:
    """As a person sees it."""
    mesh = Mesh({"x": 2, "y": 2})
    source, target = (picture(Layout.parse(text, mesh)) for text in ("[8{x}, 8{y}]", "[8, 8{x}]"))
    assert beside(source, target) == [
        "┌───┬───┐                       ┌─────┬─────┐",
        "│ 0 │ 1 │                       │ 0,1 │ 2,3 │",
        "├───┼───┤                       └─────┴─────┘",
        "│ 2 │ 3 │                  ->   dim 1 across",
        "└───┴───┘",
        "dim 0 down, dim 1 across",
    ]
    assert len(beside(source, target, width=20)) == len(source) + 1 + len(target)


def test_large_pictures_are_cut_short() -> None:
    """And say how much is missing."""
    assert picture(Layout.parse("[64{x}, 2]", Mesh({"x": 64})))[-1] == "dim 0 down (48 more rows)"
    wide = picture(Layout.parse("[64{x}, 64{y}]", Mesh({"x": 32, "y": 16})))
    assert wide[-1] == "dim 0 down, dim 1 across (16 more rows, 8 more columns)"
    replicated = picture(Layout.parse("[8{y}]", Mesh({"x": 40, "y": 2})))
    assert re.search(r"│ 0,2,4,6,8,10,12,… │", "\n".join(replicated))
    assert picture(Layout.parse("[8]", Mesh({"x": 5000}))) == ["(5000 devices are too many to draw)"]

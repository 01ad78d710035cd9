"""Pages of plans: every device's picture is its block, nothing is fetched, keys go through the steps in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import redist.cli
from redist.collectives import AllToAll, Plan
from redist.collectives.explain import bytes_text
from redist.collectives.steps import op_name
from redist.synth import synthesize
from redist.testing import random_problems
from redist.types import Layout, Mesh
from redist.viz import plan_page

BROWSER = next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome", "google-chrome-stable"))),
    "",
)
VOID = {"meta", "br", "hr", "img", "input", "link"}


@dataclass
class Picture:
    """One device in one panel: (starts, stops, origin, new) of its cells."""

    device: int
    cells: list[tuple[tuple[int, ...], tuple[int, ...], int, bool]] = field(default_factory=list)


class Reader(HTMLParser):
    """The panels of every step, the tags that do not close, and everything that could be fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.steps: list[list[list[Picture]]] = []
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.current: list[bool] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        kind = given.get("class", "").split()
        self.fetched += [f"{tag} {name}" for name in given if name in ("src", "href", "srcset", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)
        if "step" in kind:
            self.steps.append([])
            self.current.append("current" in kind)
        elif "panel" in kind:
            self.steps[-1].append([])
        elif tag == "figure":
            self.steps[-1][-1].append(Picture(int(given["data-device"])))
        elif tag == "rect":
            starts, stops = (
                tuple(int(n) for n in given[f"data-{name}"].split(",") if n) for name in ("starts", "stops")
            )
            self.steps[-1][-1][-1].cells.append((starts, stops, int(given["data-origin"]), "got" in kind))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def made(mesh: str, source: str, target: str) -> Plan:
    there = Mesh.parse(mesh)
    return synthesize(Layout.parse(source, there), Layout.parse(target, there))


def elements(layout: Layout, device: int) -> np.ndarray:
    """Which elements of the array a device holds."""
    held = np.zeros(layout.shape, dtype=bool)
    if device in layout.mesh.device_ids:
        held[layout.box(device)] = True
    return held


def check_panel(pictures: list[Picture], layout: Layout, before: Layout | None, source: Layout) -> None:
    """Cells tile exactly the device's box; their origins tell the source's blocks apart; new is what was not held."""
    assert [p.device for p in pictures] == list(layout.mesh.device_ids)
    origins = np.full(source.shape, -1)
    for device in source.mesh.device_ids:  # an element's block is known by the devices that hold it
        origins[source.box(device)] = device
    seen: dict[int, int] = {}
    for picture in pictures:
        drawn = np.zeros(layout.shape, dtype=int)
        new = np.zeros(layout.shape, dtype=bool)
        for starts, stops, origin, got in picture.cells:
            box = tuple(map(slice, starts, stops))
            drawn[box] += 1
            new[box] = got
            (holder,) = np.unique(origins[box])
            assert seen.setdefault(origin, int(holder)) == holder
        assert np.array_equal(drawn, elements(layout, picture.device))
        if before is None:
            assert not new.any()
        elif not before.partial_axes:
            assert np.array_equal(new, elements(layout, picture.device) & ~elements(before, picture.device))
    assert len(set(seen.values())) == len(seen)


def check(plan: Plan) -> Reader:
    page = Reader(plan_page(plan))
    assert page.open == [] and page.fetched == []
    assert len(page.steps) == len(plan.steps) + 1
    layouts = plan.layouts
    check_panel(page.steps[0][0], layouts[0], None, plan.source)
    for n, (before, after) in enumerate(page.steps[1:]):
        check_panel(before, layouts[n], None, plan.source)
        check_panel(after, layouts[n + 1], layouts[n], plan.source)
    return page


def test_pictures_are_the_blocks_of_random_problems() -> None:
    """Uneven blocks, other devices, contributions, scalars and empty arrays among them."""
    tried = 0
    kinds: set[str] = set()
    for problem in random_problems(seed=11, count=80, max_devices=12):
        if np.prod(problem.source.shape) <= 1 << 14:
            plan = synthesize(problem.source, problem.target)
            kinds |= {op_name(step) for step in plan.steps} | ({"uneven"} if not plan.source.is_even() else set())
            check(plan)
            tried += 1
    assert tried > 50 and {"uneven", "exchange", "all_to_all", "all_gather", "slice", "reduce_scatter"} <= kinds
    check(made("x=2,y=3", "f32[5{y}:balanced, 7{x}]", "f32[5, 7{y,x}]"))
    check(made("x=4", "f32[]", "f32[]"))
    check(made("x=4", "f32[0{x}, 3]", "f32[0, 3{x}]"))


def test_figures_are_the_plans() -> None:
    plan = made("x=2,y=2,z=2", "f32[64{x,y}, 64{z}]", "f32[64{y}, 64{z,x}]")
    text = plan_page(plan)
    rows = re.findall(r"<th>(\w[\w ]*)</th><td class=\"number\">([^<]*)</td>.*?<td>([^<]*)</td></tr>", text)
    per_step = [dict(zip(("received", "block after", "alive"), rows[n : n + 3], strict=True)) for n in range(0, 9, 3)]
    assert [step["received"][1] for step in per_step] == ["0 B", *map(bytes_text, plan.step_received_bytes)]
    assert [step["alive"][1] for step in per_step[1:]] == [*map(bytes_text, plan.live_bytes)]
    assert {step["received"][2] for step in per_step} == {f"all that is missing: {bytes_text(plan.lower_bound_bytes)}"}
    assert {step["block after"][2] for step in per_step} == {f"block bound: {bytes_text(plan.block_bound_bytes)}"}
    assert 'class="over"' not in text


def test_what_exceeds_its_bound_or_misses_the_target_is_said() -> None:
    mesh = Mesh({"x": 4})
    source, target = Layout.parse("f32[16{x}, 16]", mesh), Layout.parse("f32[16, 16{x}]", mesh)
    wrong = plan_page(Plan(source, Layout.parse("f32[16{x}, 16]", mesh), (AllToAll([(["x"], 0, 1)]),)))
    assert "These steps end at f32[16, 16{x}], which is not the target." in wrong
    assert "not the target" not in plan_page(synthesize(source, target))
    whole = synthesize(source, Layout.parse("f32[16, 16]", mesh))
    assert 'class="over"' in plan_page(Plan(source, target, whole.steps))


def test_large_plans_show_a_part_or_no_pictures() -> None:
    plan = made("x=1024", "f32[4096{x}, 4096]", "f32[4096, 4096{x}]")
    page = plan_page(plan)
    assert len(page) < 4_000_000
    shown = len(Reader(page).steps[0][0])
    assert 0 < shown < 1024 and f"The first {shown} of 1024 devices are drawn." in page
    many = plan_page(made("x=1024,y=1024", "f32[1048576{x,y}, 1048576]", "f32[1048576, 1048576{x,y}]"))
    assert "too many to draw" in many and "<figure" not in many


def test_the_command_writes_a_page_beside_its_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "plan.html"
    arguments = ["plan", "x=4", "f32[8{x}, 8]", "f32[8, 8{x}]"]
    assert redist.cli.main([*arguments, "--html", str(page), "--json"]) == 0
    plan = Plan.from_json(capsys.readouterr().out)
    assert page.read_text(encoding="utf-8") == plan_page(plan)
    assert redist.cli.main([*arguments, "--html", str(tmp_path / "none" / "plan.html")]) == 2
    assert "none/plan.html': No such file or directory" in capsys.readouterr().err


# -- in a browser --------------------------------------------------------------------------------------

DRIVER = """<script>
const seen = [];
window.addEventListener("error", (event) => seen.push({error: event.message}));
const look = (what) => {
  const shown = [...document.querySelectorAll(".step")].filter((s) => s.getBoundingClientRect().height > 0);
  const pictures = shown.flatMap((s) => [...s.querySelectorAll("svg")]).map((s) => s.getBoundingClientRect());
  const cells = shown.flatMap((s) => [...s.querySelectorAll("rect")]);
  seen.push({
    what, steps: shown.map((s) => s.id), hash: location.hash,
    marked: [...document.querySelectorAll("nav [aria-current]")].map((b) => b.textContent),
    pictures: pictures.length, smallest: Math.min(...pictures.map((r) => Math.min(r.width, r.height))),
    colours: new Set(cells.map((c) => getComputedStyle(c).fill)).size,
    wide: document.documentElement.scrollWidth > window.innerWidth,
    fetched: performance.getEntriesByType("resource").length,
  });
};
look("load");
for (const key of KEYS) {
  document.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
  look(key);
}
document.querySelectorAll("nav button")[1].click();
look("click");
const out = document.createElement("script");
out.type = "application/json"; out.id = "seen"; out.textContent = JSON.stringify(seen);
document.body.append(out);
</script>"""


@pytest.mark.skipif(not BROWSER, reason="no Chromium here (Debian: chromium-headless-shell)")
def test_keys_go_through_the_steps_in_a_browser(tmp_path: Path) -> None:
    plan = made("x=2,y=2,z=2", "f32[64{x,y}, 64{z}]", "f32[64{y}, 64{z,x}]")
    assert len(plan.steps) == 2
    keys = ["ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "Home", "End", "k", "j", "q"]
    page = tmp_path / "plan.html"
    driver = DRIVER.replace("KEYS", json.dumps(keys))
    page.write_text(plan_page(plan).replace("</body>", f"{driver}</body>"), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=800,900", f"--user-data-dir={tmp_path}/user"]
    done = subprocess.run(
        [BROWSER, *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r'<script type="application/json" id="seen">(.*?)</script>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    seen = json.loads(found[1])
    expected = [0, 1, 2, 2, 1, 0, 2, 1, 2, 2, 1]
    assert [look.get("what", look) for look in seen] == ["load", *keys, "click"]
    assert [look["steps"] for look in seen] == [[f"step-{n}"] for n in expected]
    assert [look["hash"] for look in seen] == [f"#{n}" for n in expected]
    assert [look["marked"] for look in seen] == [["source" if n == 0 else str(n)] for n in expected]
    assert [look["pictures"] for look in seen] == [8 if n == 0 else 16 for n in expected]
    assert all(look["smallest"] > 20 and not look["wide"] and look["fetched"] == 0 for look in seen)
    assert all(look["colours"] == 8 for look in seen)

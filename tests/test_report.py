"""The page of benchmarks: made out of result files alone, with every loss and every picture on it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOAD = [1.0, 1.4, 1.1, 3.0, 1.0, 1.2, 0.9, 1.05, 2.0]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """docs/report.py, which is no package."""
    spec = importlib.util.spec_from_file_location("report", ROOT / "docs/report.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["report"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def header(suite: str, **settings: Any) -> dict[str, Any]:
    return {
        "record": "run",
        "suite": suite,
        "seed": 0,
        "settings": {"planners": [], "limit": None, **settings},
        "started": "2026-01-02T03:04:05+00:00",
        "command": ["--suite", suite, "--results", "/some/where", "--fresh"],
        "commit": "0123456789abcdef",
        "changes": None,
        "versions": {"jax": "0.10.2"},
        "machine": {"system": "Linux 6", "processor": "CPU", "cores": 2, "usable_cores": 2, "memory_bytes": 2**33},
    }


def timing(problem: str, xla: float, redist: float) -> dict[str, Any]:
    seconds = {"xla": xla, "xla-again": xla, "redist": redist}
    return {
        "record": "timing",
        "family": "8 devices",
        "problem": problem,
        "who": "race",
        "bytes": 2**22,
        "bound_bytes": 100_000,
        "seconds": {who: [x * s / 1000 for x in LOAD] for who, s in seconds.items()},
        "wrong": {"control-nothing": "device 0 holds a wrong block"},
        "stated": {
            "xla": {"measured_bytes": 900_000},
            "redist": {"measured_bytes": 150_000, "projected_bytes": 150_000},
        },
    }


def cluster(rate: str, problem: str, xla: float, redist: float) -> dict[str, Any]:
    made = timing(problem, xla, redist)
    crossing = {"xla": 4000, "xla-again": 4000, "redist": 1000}
    more = {"rate": rate, "crossing_bytes": crossing, "least_crossing_bytes": 900, "stated": {}}
    return made | more | {"record": "cluster", "family": f"4 hosts x 2 devices, {rate}"}


def plan(who: str, verdict: str) -> dict[str, Any]:
    base = {"ratio": 1.5, "received": 4, "lower_bound": 4, "steps": 1, "block_peak": 1.0, "live_peak": 1.0}
    made = {"record": "plan", "family": "2x2", "problem": "p", "who": who, "verdict": verdict, "seconds": 0.002}
    return made | (base if verdict in ("ok", "wrong") else {})


def mpi(problem: str, by_hand: float) -> dict[str, Any]:
    ratios = {"redist": 1.0, "redist-agreeing": 1.0, "pack-alltoall": by_hand, "allgather-slice": 4.0}
    made = timing(problem, 1, 1) | {"record": "mpi", "family": "4 ranks"}
    made["seconds"] = {who: [x * ratio / 1000 for x in LOAD] for who, ratio in ratios.items()}
    return made | {"stated": {"redist": 100, "allgather-slice": 400}}


def write(path: Path, *records: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


@pytest.fixture
def made(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the script has run over results of every kind."""
    monkeypatch.setattr(script, "KEPT", tmp_path / "benchmarks")
    monkeypatch.setattr(script, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(script, "README", tmp_path / "README.md")
    (tmp_path / "README.md").write_text("above\n<!-- figures -->\nold\n<!-- /figures -->\nbelow\n", encoding="utf-8")
    files = [
        write(
            tmp_path / "a.jsonl",
            header("quick"),
            timing("fast", 8.0, 2.0),
            timing("slow", 1.0, 2.0),
            plan("redist", "ok"),
            plan("shardy", "wrong"),
            plan("control-nothing", "wrong"),
        ),
        write(tmp_path / "b.jsonl", header("cluster", rate="100mbit"), cluster("100mbit", "p", 4.0, 1.0)),
        write(tmp_path / "c.jsonl", header("cluster", rate="1gbit"), cluster("1gbit", "p", 2.0, 1.0)),
        write(tmp_path / "d.jsonl", header("mpi"), mpi("slab", 2.0), mpi("pencil", 0.5)),
    ]
    script.main(files)
    return tmp_path


def row(text: str, start: str) -> list[str]:
    """The cells of the one line of a table that starts so."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_says_what_the_results_say(made: Path) -> None:
    text = (made / "benchmarks.md").read_text(encoding="utf-8")
    assert row(text, "8 devices: redist over XLA")[1:] == [
        "2", "0", "1.414 [0.500, 4.000]", "0.500", "4.000", "1", "0", "0", "1"
    ]  # fmt: skip
    assert row(text, "8 devices: XLA against itself")[3] == "1.000 [1.000, 1.000]"
    assert row(text, "`slow`") == ["`slow`", "8 devices", "loss", "0.500 [0.500, 0.500]", "1.10", "2.20"]
    assert "`fast`" not in text
    assert row(text, "4 hosts x 2 devices, 100mbit: redist over XLA")[3] == "4.000 [0.000, inf]"
    assert row(text, "4 hosts x 2 devices, 1gbit: redist over XLA")[-1] == "4.000 [0.000, inf]"
    assert row(text, "shardy")[:5] == ["shardy", "1", "1", "0", "0"]
    assert row(text, "4 ranks: over the best by hand")[3] == "1.000 [0.500, 2.000]"
    assert row(text, "4 ranks: pencil") == ["4 ranks: pencil", "0.500 [0.500, 0.500]", "0.55", "1.10"]
    assert "found wrong on 1 of 1 pairs" in text and "Do not trust" not in text
    assert "XLA's is above twice source and target on 2 of 2" in text
    assert "`python -m benchmarks --suite quick --fresh` at 0123456789, 2026-01-02. CPU, 2 cores, 8 GiB" in text


def test_every_picture_on_the_page_is_there(made: Path) -> None:
    text = (made / "benchmarks.md").read_text(encoding="utf-8")
    named = {part.split(")")[0] for part in text.split("](")[1:] if part.split(")")[0].endswith(".png")}
    assert named == {f"benchmarks/{path.name}" for path in (made / "benchmarks").glob("*.png")}
    assert len(named) == 6 and not list((made / "benchmarks").glob("*.svg"))


def test_the_readme_has_the_table_and_nothing_else_changes(made: Path) -> None:
    text = (made / "README.md").read_text(encoding="utf-8")
    assert text.startswith("above\n<!-- figures -->\n| ") and text.endswith("\n<!-- /figures -->\nbelow\n")
    assert row(text, "8 devices") == ["8 devices", "2", "1.414 [0.500, 4.000]", "4.0", "1", "1.000 [1.000, 1.000]"]


def test_a_second_run_writes_the_same(script: ModuleType, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a newer result takes the place of the older one of its suite and network."""
    kept = {path.name: path.read_bytes() for path in (made / "benchmarks").iterdir()}
    page = (made / "benchmarks.md").read_text(encoding="utf-8")
    script.main([])
    assert {path.name: path.read_bytes() for path in (made / "benchmarks").iterdir()} == kept
    assert (made / "benchmarks.md").read_text(encoding="utf-8") == page
    fewer = header("jax") | {"started": "2026-02-02T03:04:05+00:00"}
    script.main([write(made / "f.jsonl", fewer, timing("fast", 9.0, 1.0))])  # the fuller run stands in the README
    text = (made / "README.md").read_text(encoding="utf-8")
    assert row(text, "8 devices") == ["8 devices", "2", "1.414 [0.500, 4.000]", "4.0", "1", "1.000 [1.000, 1.000]"]
    newer = write(made / "e.jsonl", header("cluster", rate="1gbit"), cluster("1gbit", "p", 3.0, 1.0))
    script.main([newer])
    text = (made / "benchmarks.md").read_text(encoding="utf-8")
    assert row(text, "4 hosts x 2 devices, 1gbit: redist over XLA")[3] == "3.000 [0.000, inf]"
    assert len([*(made / "benchmarks").glob("*.jsonl.gz")]) == 5


def test_what_is_no_result_file_is_refused(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"record": "plan"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"other\.jsonl does not start with a run's header; give a file that"):
        script.keep(path)

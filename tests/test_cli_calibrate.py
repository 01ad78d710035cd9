"""`redist calibrate`, and plans under a topology by name or from its file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import redist.cli
from redist.collectives import Plan, Topology
from redist.collectives.topology import PRESETS
from redist.types import Mesh

PLAIN = ("f32[64{x}, 64]", "f32[64, 64]")


def test_calibrate_saves_what_plan_reads(tmp_path: Path) -> None:
    """In a process with as many virtual devices as the mesh; all costs are positive somewhere."""
    saved = tmp_path / "here.json"
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-m", "redist", "calibrate", "x=2", "--rounds", "1", "--output", str(saved)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.splitlines()[0].split() == ["axis", "latency", "per", "peer", "bandwidth", "all-to-all"]
    assert f"redist plan ... --topology {saved}" in done.stdout
    topology = Topology.load(saved)
    assert topology.name == "calibrated-jax" and topology.link("x").kind == "memory"
    assert 1e7 < topology.link("x").bandwidth < 1e13
    facts = json.loads(saved.read_text())["facts"]
    assert facts["mesh"] == "x=2" and facts["experiments"] > 20 and facts["call_seconds"] >= 0
    planned = subprocess.run(
        [sys.executable, "-m", "redist", "plan", "x=2", *PLAIN, "--topology", str(saved), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert Plan.from_json(planned.stdout).options.topology == topology


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan is made, and says, under which topology."""
    assert redist.cli.main(["plan", "x=2,y=4", "f32[64{x}, 64{y}]", "f32[64, 64]", "--topology", name, "--json"]) == 0
    made = Plan.from_json(capsys.readouterr().out)
    assert made.options.topology == PRESETS[name](Mesh({"x": 2, "y": 4}))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["plan", "x=2", *PLAIN, "--topology", "fast"],
            "error: --topology 'fast' is neither a file nor one of uniform, one-host, nodes-of-8, torus, one-process; "
            "make a file with `redist calibrate x=2 --output FILE`\n",
        ),
        (["calibrate", "x=2", "--rounds", "0"], "error: --rounds is 0; give at least 1\n"),
        (
            ["calibrate", "x=two"],
            "error: MESH: expected the size of axis 'x', a non-negative integer\n  x=two\n    ^\n",
        ),
    ],
)
def test_bad_usage(argv: list[str], message: str, capsys: Any) -> None:
    """Status 2, and what to do."""
    assert redist.cli.main(argv) == 2
    assert capsys.readouterr().err == message

"""`redist verify`: what is printed, what is written, and the exit status."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import redist.cli
from redist.collectives import Plan
from redist.synth import synthesize
from redist.types import Layout, Mesh

MESH = Mesh.parse("x=4,y=2")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command here: (exit status, stdout, stderr)."""

    def run(*argv: str) -> tuple[int, str, str]:
        status = redist.cli.main(argv)
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def right(tmp_path: Path) -> Path:
    """A plan of ours."""
    path = tmp_path / "right.json"
    plan = synthesize(Layout.parse("[16{x}, 16]", MESH), Layout.parse("[16, 16{y,x}]", MESH))
    path.write_text(plan.to_json())
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """The same steps for another target."""
    path = tmp_path / "wrong.json"
    plan = synthesize(Layout.parse("[16{x}, 16]", MESH), Layout.parse("[16, 16{y,x}]", MESH))
    path.write_text(Plan(plan.source, Layout.parse("[16, 16{x,y}]", MESH), plan.steps).to_json())
    return path


def test_proved(call: Any, right: Path) -> None:
    """The table, status 0."""
    status, out, err = call("verify", str(right))
    assert (status, err) == (0, "")
    assert out.startswith("PROVED  f32[16{x}, 16] -> f32[16, 16{y,x}]\n")
    assert "REFUTED" not in out


def test_refuted(call: Any, wrong: Path) -> None:
    """The counterexample, status 1."""
    status, out, err = call("verify", str(wrong))
    assert (status, err) == (1, "")
    assert out.startswith("REFUTED  ")
    assert "wants global (0, 2), gets global (0, 8) from device 1 (x=0, y=1)" in out
    assert "after step 2, all-to-all x: 0 -> 1" in out


def test_unknown_is_a_failure(call: Any, right: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be decided is not proved."""
    from redist.proofs.solver import Answer

    monkeypatch.setattr("redist.proofs.refinement.decide", lambda *_: Answer("unknown", reason="timeout"))
    status, out, _ = call("verify", str(right))
    assert status == 1
    assert out.startswith("UNKNOWN  ")


def test_json(call: Any, right: Path, wrong: Path) -> None:
    """The certificate as an object."""
    status, out, _ = call("verify", str(right), "--json")
    assert status == 0
    assert json.loads(out)["status"] == "proved"
    status, out, _ = call("verify", "--json", str(wrong))
    assert status == 1
    assert json.loads(out)["counterexample"]["sender"] == 1


def test_smt2(call: Any, right: Path, tmp_path: Path) -> None:
    """Scripts that stand alone."""
    folder = tmp_path / "a" / "smt"
    status, _, _ = call("verify", str(right), "--smt2", str(folder))
    assert status == 0
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["N2-1.smt2", "R-1.smt2"]
    for name in files:
        lines = (folder / name).read_text().splitlines()
        assert "(set-logic QF_LIA)" in lines
        assert "(set-info :status unsat)" in lines
        assert "(check-sat)" in lines


def test_standard_input(call: Any, right: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe from `redist plan --json`."""
    monkeypatch.setattr("sys.stdin", io.StringIO(right.read_text()))
    status, out, _ = call("verify", "-")
    assert status == 0
    assert out.startswith("PROVED")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["verify"], "PLAN"),
        (["verify", "missing.json"], "cannot open 'missing.json'"),
        (["verify", "-", "--timeout", "0"], "give a number above 0"),
    ],
)
def test_bad_usage(call: Any, argv: list[str], words: str) -> None:
    """Status 2 and a remedy."""
    status, out, err = call(*argv)
    assert (status, out) == (2, "")
    assert words in err

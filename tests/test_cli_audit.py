"""`redist audit`: what is printed, as text and as JSON, exit statuses, and its refusals."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import Any

import pytest

import redist.cli
from redist.proofs.audit import dtensor, shardy, xla
from redist.proofs.audit.foreign import ForeignPlan
from redist.types import Layout

pass_here = pytest.mark.skipif(shardy.missing() is not None, reason=str(shardy.missing()))
jax_here = pytest.mark.skipif(xla.missing() is not None, reason=str(xla.missing()))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command here: (exit status, stdout, stderr)."""

    def run(*argv: str) -> tuple[int, str, str]:
        status = redist.cli.main(argv)
        return status, *capsys.readouterr()

    return run


CLEAN = """\
redist: f32[4] on x=2,y=2, all 20 ordered pairs
  right           20  every device ends with its block
  wrong            0  some device ends with something else
  failed           0  the planner gave up
  refused          0  the planner does not take such layouts
  undecided        0  neither shown right nor wrong
  over the bound   0  a block larger than source and target, or too much alive at once
  gathers all      0  a device holds the whole array, on the way only
  received / lower bound of the right ones: mean 1.00, max 1.00
"""


def test_our_own_plans(call: Any) -> None:
    """[4], [4{x}], [4{y}], [4{x,y}], [4{y,x}]: 20 pairs, each of which one collective of least cost serves."""
    status, out, err = call("audit", "--peer", "redist", "--mesh", "x=2,y=2", "--rank", "1")
    assert (status, out) == (0, CLEAN)
    assert err.startswith("auditing redist ... ")


@pass_here
def test_shardys_wrong_plans(call: Any) -> None:
    """3 of 150 pairs, where the layout that the pass itself states at the end is another one than the target."""
    arguments = ("audit", "--peer", "shardy", "--mesh", "x=2,y=3,z=5", "--sample", "150", "--seed", "5")
    status, out, _ = call(*arguments)
    lines = out.splitlines()
    assert status == 1
    assert lines[0] == "shardy: f32[30, 30] on x=2,y=3,z=5, 150 of 2,352 ordered pairs"
    counts = {line[:16].strip(): int(line[16:21].replace(",", "")) for line in lines[1:8]}
    assert counts["right"] + counts["wrong"] == 150 and counts["wrong"] == 3
    simplest = next(line for line in lines if line.startswith("simplest wrong: "))
    rest = lines[lines.index(simplest) :]
    assert rest[2].startswith("  REFUTED refinement: device ")
    assert "wants global" in rest[2] and "gets global" in rest[2]
    assert rest[-1].startswith("    NumPy shows the same: global ")

    status, out, _ = call(*arguments, "--json")
    found = json.loads(out)
    assert status == 1
    assert found["counts"] == {name: counts[name] for name in found["counts"]}
    assert (found["asked"], found["pairs"], found["seed"]) == (150, 2352, 5)
    wrong = [one for one in found["objections"] if one["verdict"] == "wrong"]
    assert len(wrong) == counts["wrong"]
    for one in wrong:
        example = one["counterexample"]
        assert example["confirmed"] is True and example["got"] != example["wanted"]
    assert simplest.removeprefix("simplest wrong: ") in {f"{one['source']} -> {one['target']}" for one in wrong}


@pass_here
def test_shardys_failures(call: Any) -> None:
    """On 2x3x4 its verifier stops 3 of 150 pairs."""
    status, out, _ = call("audit", "--peer", "shardy", "--mesh", "x=2,y=3,z=4", "--sample", "150", "--json")
    found = json.loads(out)
    assert (status, found["counts"]["failed"]) == (1, 3)
    failed = next(one for one in found["objections"] if one["verdict"] == "failed")
    assert failed["reason"].startswith("Shardy's pass failed: 'sdy.collective_permute' op")
    assert failed["steps"] == [] and failed["counterexample"] is None


@jax_here
def test_xla_gathers_everything() -> None:
    """In a process of its own, which gets as many devices as it takes. Mesh 2x4: (x,-) -> (-,y) is the smallest."""
    plain = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "TF_CPP_MIN_LOG_LEVEL")}
    command = [sys.executable, "-m", "redist", "audit", "--peer", "xla", "--mesh", "x=2,y=4", "--json"]
    command += ["--sample", "20", "--seed", "17"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=plain)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert "rematerialization" not in done.stderr
    assert found["counts"]["right"] == found["asked"] == 20
    assert found["over_the_bound"] >= found["gathers_all"] > 0
    pairs = {(one["source"], one["target"]): one for one in found["objections"]}
    smallest = pairs["f32[8{x}, 8]", "f32[8, 8{y}]"]
    assert smallest["largest_block"] == 64 and "more than the larger of source and target, 128" in smallest["over"]
    assert smallest["received"] == 32 and smallest["needed"] == 8  # half the array, where an eighth is missing


@jax_here
def test_xla_needs_devices() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-m", "redist", "audit", "--peer", "xla", "--mesh", "x=8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=os.environ | flags)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: auditing XLA on x=8 takes 8 devices and JAX has 4; leave XLA_FLAGS unset, or set "
        "--xla_force_host_platform_device_count=8 there\n"
    )


@pytest.mark.skipif(dtensor.missing() is None, reason="torch is installed")
def test_a_missing_torch_is_named(call: Any) -> None:
    status, out, err = call("audit", "--peer", "dtensor", "--mesh", "x=2")
    assert (status, out) == (1, "")
    assert "torch is not installed" in err and "pip install torch==2.13.0" in err


@pytest.mark.skipif(dtensor.missing() is not None, reason=str(dtensor.missing()))
@pytest.mark.parametrize("peer", ["dtensor", "dtensor-dijkstra"])
def test_dtensor(call: Any, peer: str) -> None:
    """`(-,x) -> (-,y)` is gathered and sliced, through the whole array."""
    status, out, _ = call("audit", "--peer", peer, "--mesh", "x=2,y=2", "--shape", "64,64", "--json")
    found = json.loads(out)
    assert (status, found["counts"]["right"]) == (1, found["pairs"])
    pairs = {(one["source"], one["target"]): one for one in found["objections"]}
    assert pairs["f32[64, 64{x}]", "f32[64, 64{y}]"]["largest_block"] == 64 * 64


def test_a_planner_that_does_nothing_is_caught(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: wrong wherever source and target differ."""
    import redist.cli.audit as command

    def nothing(source: Layout, target: Layout) -> ForeignPlan:
        return ForeignPlan("nothing", source, target, (), ())

    monkeypatch.setitem(command._PLANNERS, "redist", lambda _: nothing)  # type: ignore[arg-type]
    status, out, _ = call("audit", "--peer", "redist", "--mesh", "x=2,y=2", "--json")
    found = json.loads(out)
    assert status == 1
    assert found["counts"]["wrong"] == found["pairs"] == math.perm(len(_layouts()), 2)


def _layouts() -> set[tuple[tuple[str, ...], ...]]:
    """Two axes in any order on two dimensions, by trying."""
    lists = [(), ("x",), ("y",), ("x", "y"), ("y", "x")]
    return {(a, b) for a in lists for b in lists if not set(a) & set(b)}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        pytest.param(
            ("--mesh", "x=2"),
            'error: Command "audit" parameter --peer requires an argument. See `redist audit --help`.\n',
            id="no peer",
        ),
        pytest.param(
            ("--peer", "alpa", "--mesh", "x=2"),
            'error: Invalid value "alpa" for --peer. Choose from: "shardy", "xla", "dtensor", "dtensor-dijkstra", '
            '"redist". See `redist audit --help`.\n',
            id="unknown peer",
        ),
        pytest.param(
            ("--peer", "redist", "--mesh", "x=2,y"),
            "error: --mesh: expected '=' after axis name 'y'\n  x=2,y\n       ^\n",
            id="malformed mesh",
        ),
        pytest.param(
            ("--peer", "redist", "--mesh", "x=2", "--shape", "4,a"),
            "error: --shape: expected sizes by comma, such as 64,64\n  4,a\n    ^\n",
            id="malformed shape",
        ),
        pytest.param(
            ("--peer", "redist", "--mesh", "x=2,y=3", "--shape", "4,12,0"),
            "error: --shape 4,12,0: sizes have to be multiples of the 6 devices of x=2,y=3, for peers hold blocks of "
            "equal size only; dimension 0 has size 4, dimension 2 has size 0; 6,12,6 would do\n",
            id="uneven",
        ),
        pytest.param(
            ("--peer", "redist", "--mesh", "x=2", "--shape", "4,4", "--rank", "3"),
            "error: --shape 4,4 has 2 dimensions and --rank is 3; give one of them\n",
            id="rank",
        ),
        pytest.param(
            ("--peer", "redist", "--mesh", "x=2", "--rank", "0"),
            'error: Invalid value "0" for --rank. Must be >= 1. See `redist audit --help`.\n',
            id="no dimensions",
        ),
        pytest.param(
            ("--peer", "redist", "--mesh", "x=2", "--sample", "0"),
            'error: Invalid value "0" for --sample. Must be >= 1. See `redist audit --help`.\n',
            id="no pairs",
        ),
        pytest.param(
            ("--peer", "redist", "--mesh", "x=2", "--timeout", "0"),
            "error: --timeout is 0 seconds; give a number above 0\n",
            id="no time",
        ),
        pytest.param(
            ("--peer", "redist", "--mesh", "a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2"),
            "error: an array of rank 2 has 876,809 layouts over the 8 axes of a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2, more "
            "than 100,000; give fewer axes or a lower rank\n",
            id="too many layouts",
        ),
    ],
)
def test_bad_usage(call: Any, argv: tuple[str, ...], message: str) -> None:
    assert call("audit", *argv) == (2, "", message)


@pytest.mark.parametrize("count", [1, 7, 110, 1000])
def test_samples(call: Any, count: int) -> None:
    """So many different pairs of different layouts, the same for the same seed; all where there are not more."""
    import redist.cli.audit as command
    from redist.testing import all_layouts
    from redist.types import Mesh

    layouts = all_layouts(Mesh.parse("x=2,y=4"), 2)
    pairs = list(command._pairs(layouts, count, 3))
    assert len(set(pairs)) == len(pairs) == min(count, 110)
    assert all(a != b for a, b in pairs)
    assert pairs == list(command._pairs(layouts, count, 3))
    assert count != 7 or pairs != list(command._pairs(layouts, count, 4))

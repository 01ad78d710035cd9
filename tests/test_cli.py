"""The command line: what is printed, as text and as JSON, exit statuses, and every word of its refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redist.cli
from redist.cli.arguments import byte_size
from redist.cli.values import counted
from redist.collectives import Plan
from redist.errors import ParseError
from redist.testing import random_problems

MESH, SRC, DST = "x=4,y=2", "f32[16{y}, 16, 16{x}]", "f32[16, 16{x,y}, 16]"
EXPLAINED = """\
f32[16{y}, 16, 16{x}] on x=4,y=2  ->  f32[16, 16{x,y}, 16]   (bytes are per device)
step                                layout after           received   live   peak
source                              f32[16{y}, 16, 16{x}]                   2 KiB
1. all-to-all x: 2 -> 1; y: 0 -> 1  f32[16, 16{x,y}, 16]   1.75 KiB  4 KiB  4 KiB
received 1.75 KiB in 1 communication step: exactly what is missing
largest block 2 KiB, within the bound of 2 KiB; live peak 4 KiB
replicating and slicing would receive 14 KiB and hold 16 KiB, 8x the bound
"""


def shell(*argv: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, its output into pipes, without the device count of these tests."""
    plain = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return subprocess.run(
        [sys.executable, "-m", "redist", *argv],
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=plain | environment,
    )


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command here: (exit status, stdout, stderr)."""

    def run(*argv: str) -> tuple[int, str, str]:
        status = redist.cli.main(argv)
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def plan_file(call: Any, tmp_path: Path) -> Path:
    """A saved plan."""
    path = tmp_path / "plan.json"
    path.write_text(call("plan", MESH, SRC, DST, "--json")[1])
    return path


# -- plan ----------------------------------------------------------------------------------------------


def test_plan_prints_explain() -> None:
    done = shell("plan", MESH, SRC, DST)
    assert (done.returncode, done.stdout, done.stderr) == (0, EXPLAINED, "")


def test_plan_is_coloured_and_folded_on_a_terminal(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "60"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    status, out, _ = call("plan", MESH, SRC, DST)
    assert status == 0
    assert "\x1b[" in out
    from rich.text import Text

    plain = [Text.from_ansi(line).plain for line in out.splitlines()]
    assert max(map(len, plain)) <= 60
    assert plain[3:7] == [
        "source                                               2 KiB",
        "     f32[16{y}, 16, 16{x}]",
        "1. all-to-all x: 2 -> 1; y: 0 -> 1  1.75 KiB  4 KiB  4 KiB",
        "     f32[16, 16{x,y}, 16]",
    ]


def test_plan_as_json_is_the_plan(call: Any) -> None:
    status, out, _ = call("plan", MESH, SRC, DST, "--json", "--backend", "jax", "--donate", "--memory-limit", "1MiB")
    plan = Plan.from_json(out)
    assert status == 0
    assert (str(plan.source), str(plan.target), str(plan.target.mesh)) == (SRC, DST, MESH)
    assert (plan.options.backend, plan.options.donate, plan.options.memory_limit) == ("jax", True, 2**20)


def test_plan_to_another_mesh(call: Any) -> None:
    status, out, _ = call("plan", "x=4,y=2", "f32[8{x}, 8{y}]", "f32[8, 8{m}]", "--target-mesh", "m=8", "--json")
    assert status == 0
    assert Plan.from_json(out).target.mesh.axes == (("m", 8),)


def test_plan_with_only_some_steps(call: Any) -> None:
    arguments = ("plan", "x=2,y=2", "f32[8{x}, 8]", "f32[8, 8{x}]", "--steps", "slice, all_gather,all_to_all", "--json")
    status, out, _ = call(*arguments)
    assert status == 0
    assert {step["op"] for step in json.loads(out)["steps"]} <= {"slice", "all_gather", "all_to_all"}


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        pytest.param(
            ("plan", MESH, "f32[16{z}, 16]", "f32[16, 16]"),
            2,
            "error: SRC: unknown axis 'z': mesh x=4,y=2 has axes x, y\n  f32[16{z}, 16]\n         ^\n",
            id="unknown axis",
        ),
        pytest.param(
            ("plan", "x=4,y", SRC, DST),
            2,
            "error: MESH: expected '=' after axis name 'y'\n  x=4,y\n       ^\n",
            id="malformed mesh",
        ),
        pytest.param(
            ("plan", MESH, "f32[16{x}, 16]", "f32[16, 8]"),
            2,
            "error: source and target lay out different arrays: dimension 1 has size 16 in the source and 8 in the "
            "target. A redistribution keeps shape and dtype; reshape or cast before or after it\n",
            id="different shapes",
        ),
        pytest.param(
            ("plan", MESH, SRC, DST, "--backend", "nccl"),
            2,
            'error: Invalid value "nccl" for --backend. Choose from: "numpy", "jax", "mpi". See `redist plan '
            "--help`.\n",
            id="unknown backend",
        ),
        pytest.param(
            ("plan", MESH, SRC, DST, "--steps", "all_gather,broadcast"),
            2,
            "error: unknown steps ['broadcast']; use some of all_gather, all_reduce, all_to_all, chunk, exchange, "
            "permute, reduce_scatter, slice\n",
            id="unknown step",
        ),
        pytest.param(
            ("plan", MESH, SRC, DST, "--memory-limit", "12 parsecs"),
            2,
            "error: --memory-limit: unknown unit 'parsecs'; use B, KiB, MiB, GiB, TiB, or kB, MB, GB, TB\n"
            "  12 parsecs\n     ^\n",
            id="unknown unit",
        ),
        pytest.param(
            ("plan", MESH, SRC),
            2,
            'error: Command "plan" parameter DST requires an argument. See `redist plan --help`.\n',
            id="missing argument",
        ),
        pytest.param(
            ("plan", MESH, SRC, DST, "--verbose"),
            2,
            "error: Unknown option: --verbose. See `redist plan --help`.\n",
            id="unknown option",
        ),
        pytest.param(
            ("plna",),
            2,
            'error: Unknown command "plna". Did you mean "plan"? Available commands: plan, verify, run, audit, '
            "calibrate, demo, bench. See `redist --help`.\n",
            id="unknown command",
        ),
        pytest.param(
            ("plan", MESH, SRC, DST, "--memory-limit", "1KiB"),
            1,
            "error: no plan from f32[16{y}, 16, 16{x}] to f32[16, 16{x,y}, 16] keeps the live peak within 1024 bytes "
            "per device; the smallest feasible limit is 4096 bytes (donating the source may lower it)\n",
            id="memory limit",
        ),
        pytest.param(
            ("run", "nowhere.json"),
            2,
            "error: cannot open 'nowhere.json': No such file or directory\n",
            id="missing file",
        ),
    ],
)
def test_refusal(call: Any, argv: tuple[str, ...], status: int, message: str) -> None:
    assert call(*argv) == (status, "", message)


def test_refusal_in_json_is_json(call: Any) -> None:
    status, out, err = call("plan", MESH, "f32[16{z}, 16]", "f32[16, 16]", "--json")
    assert (status, out) == (2, "")
    assert json.loads(err) == {
        "error": {
            "type": "ParseError",
            "message": "SRC: unknown axis 'z': mesh x=4,y=2 has axes x, y",
            "text": "f32[16{z}, 16]",
            "column": 7,
        },
        "status": 2,
    }
    status, _, err = call("plan", MESH, SRC, DST, "--memory-limit", "1KiB", "--json")
    assert status == 1
    assert json.loads(err)["error"]["smallest_limit"] == 4096


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"schema": 1,\n "source" }',
            "error: malformed JSON, line 2: Expecting ':' delimiter\n   \"source\" }\n            ^\n",
        ),
        ('{"schema": 7}', "error: plan.schema: schema version 7 is not supported; this version reads schema 1\n"),
        ('{"schema": 1, "source": {"mesh": "x=4"}}', "error: plan.source: the field 'type' is missing\n"),
    ],
    ids=["syntax", "schema", "field"],
)
def test_malformed_plan(call: Any, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    status, out, err = call("run", str(path))
    assert (status, out) == (2, "")
    assert err.startswith(message)


def test_a_long_line_is_cut_around_the_caret(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"schema": 1, ' + '"filler": "' + "a" * 5000 + '", oops, "more": "' + "b" * 5000 + '"}')
    _, _, err = call("run", str(path))
    _, line, caret = err.splitlines()
    assert len(line) <= 80
    assert line[caret.index("^")] == "o"


# -- run -----------------------------------------------------------------------------------------------


def test_run_reads_a_pipe() -> None:
    planned = shell("plan", MESH, SRC, DST, "--json")
    done = shell("run", "-", given=planned.stdout)
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout == (
        "ran       f32[16{y}, 16, 16{x}] on x=4,y=2\n"
        "          -> f32[16, 16{x,y}, 16] on x=4,y=2\n"
        "          on numpy, 8 devices\n"
        "checked   every block of the target: 4,096 elements, all equal\n"
        "received  1.75 KiB per device, lower bound 1.75 KiB\n"
        "peak      4 KiB projected (per device)\n"
    )


def test_run_takes_and_makes_files(call: Any, plan_file: Path, tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((16, 16, 16), dtype=np.float32)
    np.save(tmp_path / "in.npy", array)
    arguments = ("--input", str(tmp_path / "in.npy"), "--output", str(tmp_path / "out.npy"))
    status, out, _ = call("run", str(plan_file), *arguments, "--json")
    assert status == 0
    assert np.array_equal(np.load(tmp_path / "out.npy"), array)
    facts = json.loads(out)
    assert facts["checked_elements"] == 4096
    assert facts["received_bytes"] == facts["lower_bound_bytes"] == 1792


def test_run_refuses_another_array(call: Any, plan_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.npy"
    np.save(path, np.zeros((4, 4)))
    message = (
        f"error: '{path}' holds f64[4, 4], and the plan starts from f32[16, 16, 16]; give the global array with that "
        "shape and dtype\n"
    )
    assert call("run", str(plan_file), "--input", str(path)) == (2, "", message)
    path.write_text("no array")
    assert call("run", str(plan_file), "--input", str(path)) == (
        2,
        "",
        f"error: '{path}' is not a NumPy file; write it with numpy.save(path, array)\n",
    )


def test_run_refutes_a_wrong_plan(call: Any, plan_file: Path) -> None:
    plan = json.loads(plan_file.read_text())
    plan["steps"][0]["moves"].reverse()  # the axes of the dimension that gains come in the wrong order
    plan_file.write_text(json.dumps(plan))
    status, out, err = call("run", str(plan_file))
    assert (status, out) == (1, "")
    assert err.startswith(
        "error: the plan from f32[16{y}, 16, 16{x}] to f32[16, 16{x,y}, 16] is wrong: device 1 (x=0, y=1), local "
        "index (0, 0, 0), wants "
    )


def test_run_names_the_premise_that_fails(call: Any, plan_file: Path) -> None:
    plan_file.write_text(plan_file.read_text().replace('["x"], 2, 1', '["y"], 2, 1').replace('["y"], 0', '["x"], 0'))
    message = (
        "error: all_to_all on f32[16{y}, 16, 16{x}]: axes {y} are not the minor suffix of dimension 2 (16{x}); only "
        "the last axes of a dimension can leave it\n"
    )
    assert call("run", str(plan_file)) == (1, "", message)


def test_run_on_jax(plan_file: Path, tmp_path: Path) -> None:
    done = shell("run", str(plan_file), "--backend", "jax", "--output", str(tmp_path / "out.npy"), "--json")
    assert done.stderr == ""
    assert done.returncode == 0
    facts = json.loads(done.stdout)
    assert facts["checked_elements"] == 4096
    assert 0 < facts["measured_peak_bytes"] <= facts["projected_peak_bytes"]
    assert np.array_equal(np.load(tmp_path / "out.npy"), counted((16, 16, 16), "f32"))


@pytest.mark.parametrize(
    ("mesh", "source", "target", "other"),
    [
        ("x=4,y=2", "bf16[16{y}, 16] sum{x}", "bf16[16, 16{x,y}]", "x=4,y=2"),
        ("x=4", "f64[16{x}, 3]", "f64[16{x}, 3]", "x=4@[4,5,2,7]"),
        ("x=4", "i64[8{x}, 8]", "i64[8, 8{x:(2)2}]", "x=4"),
    ],
    ids=["partial", "other devices", "sub-axes"],
)
def test_run_on_jax_what_no_sharding_holds(mesh: str, source: str, target: str, other: str, call: Any) -> None:
    plan = call("plan", mesh, source, target, "--target-mesh", other, "--json")[1]
    done = shell("run", "-", "--backend", "jax", given=plan)
    assert (done.returncode, done.stderr) == (0, "")
    assert "every block of the target" in done.stdout


def test_run_on_jax_refuses_other_dtypes(call: Any) -> None:
    plan = call("plan", "x=4", "'S3'[8{x}, 8]", "'S3'[8, 8{x}]", "--json")[1]
    done = shell("run", "-", "--backend", "jax", given=plan)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: JAX has no dtype |S3; use the numpy backend\n"


def test_run_on_jax_keeps_the_users_device_count(plan_file: Path) -> None:
    done = shell("run", str(plan_file), "--backend", "jax", XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: mesh x=4,y=2 holds devices that JAX does not have: 2..7; jax.devices() has 0..1. Use those ids, or "
        "start JAX with more devices (on CPU, XLA_FLAGS=--xla_force_host_platform_device_count=8)\n"
    )


def test_run_on_jax_refuses_uneven_blocks(call: Any, plan_file: Path) -> None:
    plan_file.write_text(call("plan", "x=4", "f32[13{x}, 16]", "f32[13, 16{x}]", "--json")[1])
    done = shell("run", str(plan_file), "--backend", "jax")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: JAX holds blocks of equal size only: dimension 0 (13{x}) has 4 blocks, which do not divide 13 (pad it "
        "to 16). Redistribute to such a layout, pad, or shard over axes whose sizes divide the dimension\n"
    )


# -- the rest ------------------------------------------------------------------------------------------


def test_help_and_version(call: Any) -> None:
    status, out, _ = call("--help")
    assert status == 0
    assert all(word in out for word in ("plan", "run", "demo", "Exit status"))
    status, out, _ = call("plan", "--help")
    assert status == 0
    assert "--memory-limit" in out
    assert call("--version")[0] == 0


def test_help_is_light() -> None:
    """Neither the planner nor JAX is imported to print help."""
    code = (
        "import sys, redist.cli; redist.cli.main(['--help']); "
        "print([m for m in ('jax', 'redist.synth') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_leaves_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m redist plan {MESH} '{SRC}' '{DST}' | true",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64MiB", 2**26),
        ("1.5 GiB", 3 * 2**29),
        ("64MB", 64_000_000),
        ("2kb", 2000),
        ("7B", 7),
    ],
)
def test_byte_sizes(text: str, size: int) -> None:
    assert byte_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1e9", "0x10", "1 2"])
def test_malformed_byte_sizes(text: str) -> None:
    with pytest.raises(ParseError):
        byte_size(text)


@pytest.mark.parametrize("dtype", ["bool", "i8", "u32", "f16", "bf16", "f32", "f64", "c64", "f8e4m3fn", "i4", "S3"])
def test_counted_values_differ(dtype: str) -> None:
    """Neighbours along both dimensions differ somewhere, so blocks in each other's places are seen."""
    array = counted((16, 8), dtype)
    assert array.shape == (16, 8)
    assert (array[1:] != array[:-1]).any()
    assert (array[:, 1:] != array[:, :-1]).any()
    assert np.array_equal(array, counted((16, 8), dtype))


def test_any_plan_runs(call: Any, tmp_path: Path) -> None:
    """Random problems of all kinds (uneven, partial, other meshes and dtypes): planned, saved, loaded, run."""
    for n, problem in enumerate(random_problems(3, 25)):
        source, target = problem.source, problem.target
        other = () if source.mesh == target.mesh else ("--target-mesh", str(target.mesh))
        status, out, err = call("plan", str(source.mesh), str(source), str(target), *other, "--json")
        assert (status, err) == (0, "")
        path = tmp_path / f"{n}.json"
        path.write_text(out)
        status, out, err = call("run", str(path), "--json")
        assert (status, err) == (0, ""), f"{source} -> {target}"
        assert json.loads(out)["devices"] == target.mesh.size

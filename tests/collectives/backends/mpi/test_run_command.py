"""`mpiexec -n N redist run PLAN --backend mpi`: files, reports, refusals."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import struct
import termios
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from redist.collectives.plan import Plan
from redist.collectives.steps import Exchange
from redist.synth import synthesize
from redist.types import Layout, Mesh


def saved(folder: Path, mesh: str, source: str, target: str, target_mesh: str | None = None) -> Path:
    axes, others = Mesh.parse(mesh), Mesh.parse(target_mesh or mesh)
    plan = synthesize(Layout.parse(source, axes), Layout.parse(target, others), backend="mpi")
    path = folder / "plan.json"
    path.write_text(plan.to_json())
    return path


@pytest.mark.parametrize(
    ("mesh", "source", "target", "target_mesh"),
    [
        ("x=2,y=2", "f32[8{x}, 12{y}]", "f32[8, 12{y,x}]", None),
        ("x=4", "bf16[13{x}:balanced, 5]", "bf16[13, 5{x}]", None),
        ("x=2@[3,1]", "i64[7{x}]", "i64[7{y}]", "y=3@[0,1,2]"),
        ("x=4", "'>f8'[6, 4{x}]", "'>f8'[6{x}, 4]", None),
    ],
)
def test_files_in_and_out(
    launch: Any, tmp_path: Path, mesh: str, source: str, target: str, target_mesh: str | None
) -> None:
    path = saved(tmp_path, mesh, source, target, target_mesh)
    plan = Plan.from_json(path.read_text())
    dtype = {"bf16": ml_dtypes.bfloat16}.get(
        plan.source.dtype, plan.source.dtype.replace("i64", "i8").replace("f32", "f4")
    )
    value = (np.random.default_rng(0).random(plan.source.shape) * 100).astype(dtype)
    np.save(tmp_path / "in.npy", value)
    done = launch(
        4, "redist", "run", str(path), "--backend", "mpi", "--input", str(tmp_path / "in.npy"),
        "--output", str(tmp_path / "out.npy"), "--json",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert (tmp_path / "out.npy").read_bytes()[-value.nbytes :] == value.tobytes()
    assert np.load(tmp_path / "out.npy").shape == value.shape
    report = json.loads(done.out)
    starts, stops = plan.target.boxes()
    assert report["checked_elements"] == int(np.prod(stops - starts, axis=1).sum())
    assert report["backend"] == "mpi" and report["received_bytes"] == plan.received_bytes
    assert report["projected_peak_bytes"] == plan.peak_bytes and report["exact"]


def test_what_it_prints(launch: Any, tmp_path: Path) -> None:
    path = saved(tmp_path, "x=2,y=2", "f32[16{x}, 16{y}]", "f32[16, 16{y,x}]")
    done = launch(4, "redist", "run", str(path), "--backend", "mpi")
    assert done.out == (
        "ran       f32[16{x}, 16{y}] on x=2,y=2\n"
        "          -> f32[16, 16{y,x}] on x=2,y=2\n"
        "          on mpi, 4 devices\n"
        "checked   every block of the target: 256 elements, all equal\n"
        "received  128 B per device, lower bound 128 B\n"
        "peak      1 KiB projected (per device)\n"
    )
    assert (done.status, done.err) == (0, "")  # no bar where stderr is no terminal


def all_of(terminal: int) -> str:
    """What is written to a terminal until nobody has it open."""
    found = b""
    with contextlib.suppress(OSError):  # how Linux says so
        while more := os.read(terminal, 4096):
            found += more
    return found.decode()


def test_a_bar_on_the_terminal(launch: Any, tmp_path: Path) -> None:
    """Rank 0 draws it, up to the last of three steps, on the terminal that the ranks are started from."""
    axes = Mesh.parse("x=4")
    rows, columns = (Layout.parse(text, axes) for text in ("f32[16{x}, 16]", "f32[16, 16{x}]"))
    plan = Plan(rows, columns, (Exchange(columns), Exchange(rows), Exchange(columns)))
    (tmp_path / "plan.json").write_text(plan.to_json())
    seen, inner = os.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    with ThreadPoolExecutor(1) as reader:
        drawn = reader.submit(all_of, seen)
        try:
            done = launch(4, "redist", "run", str(tmp_path / "plan.json"), "--backend", "mpi", stderr=inner)
        finally:
            os.close(inner)
    os.close(seen)
    assert done.status == 0 and done.out.startswith("ran ")
    frames = [
        frame for frame in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.result())) if frame.strip()
    ]
    assert all(re.fullmatch(r"moving +[━╸╺ ]{28} [0-3]/3 0:00:\d\d *", frame) for frame in frames), frames
    assert re.fullmatch(r"moving +━{28} 3/3 0:00:\d\d *", frames[-1]), frames


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("f32[8, 12{y}] sum{x}", "f32[8{x}, 12{y}]"),
        ("bf16[8, 12] sum{x,y}", "bf16[8, 12]"),
        ("i32[8, 12] max{x,y}", "i32[8{y}, 12] max{x}"),
    ],
)
def test_contributions(launch: Any, tmp_path: Path, source: str, target: str) -> None:
    path = saved(tmp_path, "x=2,y=2", source, target)
    plan = Plan.from_json(path.read_text())
    dtype: Any = {"bf16": ml_dtypes.bfloat16, "f32": np.float32, "i32": np.int32}[plan.source.dtype]
    value = np.arange(96).astype(dtype).reshape(8, 12)
    np.save(tmp_path / "in.npy", value)
    done = launch(
        4, "redist", "run", str(path), "--backend", "mpi", "--input", str(tmp_path / "in.npy"),
        "--output", str(tmp_path / "out.npy"),
    )  # fmt: skip
    assert done.status == 0, done.err
    assert np.array_equal(np.load(tmp_path / "out.npy").view(dtype), value)


def test_a_wrong_result_is_found(launch: Any, tmp_path: Path) -> None:
    """The control: a plan whose exchange leaves something out."""
    path = saved(tmp_path, "x=4", "f32[8{x}]", "f32[8{x}@[0,1,2,3]]")
    plan = json.loads(path.read_text())
    transfers = [[0, 0, [0], [1]], [0, 1, [1], [2]], [1, 2, [2], [3]], [1, 3, [3], [4]], [2, 3, [4], [6]]]
    assert plan["steps"][0]["op"] == "exchange"
    plan["steps"][0]["transfers"] = transfers
    path.write_text(json.dumps(plan))
    done = launch(4, "redist", "run", str(path), "--backend", "mpi")
    assert done.status != 0
    assert done.err.count("error: rank 3: the plan from") == 1 and "2 elements of its block differ" in done.err


def test_refusals(launch: Any, tmp_path: Path) -> None:
    path = saved(tmp_path, "x=4", "f32[8{x}]", "f32[8]")
    done = launch(2, "redist", "run", str(path), "--backend", "mpi")
    assert (done.status, done.err.count("error:")) == (1, 1)
    assert "start at least 4 (mpiexec -n 4)" in " ".join(done.err.split())
    done = launch(4, "redist", "run", str(tmp_path / "none.json"), "--backend", "mpi")
    assert (done.status, done.err.count("error:")) == (2, 1)
    np.save(tmp_path / "in.npy", np.zeros(9, np.float32))
    done = launch(4, "redist", "run", str(path), "--backend", "mpi", "--input", str(tmp_path / "in.npy"))
    assert (done.status, done.err.count("error:")) == (2, 1)
    assert "in.npy' holds f32[9], and the plan starts from f32[8]" in done.err

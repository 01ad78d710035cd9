"""What cannot run, and what fails, is raised on all ranks in the same words; nothing waits forever."""

from __future__ import annotations

import re
from typing import Any

import pytest

SAME = "; pass arguments of the same shapes and layouts, static arguments, mesh and schedule on all ranks"
DONATED = "DistributedArray(f32[16, 8{M}] on B=2,M=2) was donated to a partitioned function, which has used its memory"


@pytest.fixture(scope="module")
def refused(on_ranks: Any) -> Any:
    """The errors of every case, from one launch."""
    names = (
        "shapes blocks layouts compiled_shapes other_mesh other_schedules sizes arguments transformations converting "
        "failures tracing"
    )
    return on_ranks(4, "refusals.py", *names.split())


def everywhere(text: str) -> list[str]:
    return [text] * 4


def other_program(rank: int, there: str, here: str) -> list[str]:
    return everywhere(
        f"BackendError: ranks [{rank}] call another program than rank 0, and dense has not been run: rank {rank} has "
        f"{there}, rank 0 {here}{SAME}"
    )


def test_ranks_that_differ(refused: Any) -> None:
    assert refused["shapes"] == other_program(2, "x: f32[8, 8{B}]", "x: f32[16, 8{B}]")
    assert refused["layouts"] == other_program(3, "f32[16, 8{M}]", "f32[16{M}, 8]")
    assert refused["other_schedules"] == other_program(1, "w: f32[8{B}, 8]", "w: f32[8{B}, 8{M}]")


def test_wrong_blocks(refused: Any) -> None:
    wrong = (
        "x: the block is {}, and f32[16{{B}}, 8] on B=2,M=2 gives device {} f32[8, 8]; pass that block, or the layout "
    )
    wrong += "of this one"
    assert refused["blocks"] == everywhere(
        f"BackendError: dense has not been run. rank 1: {wrong.format('f32[4, 8]', 1)}; rank 2: "
        f"{wrong.format('object[]', 2)}"
    )


def test_wrong_shapes(refused: Any) -> None:
    *shapes, structure = refused["compiled_shapes"]
    assert shapes == everywhere(
        "LayoutError: compiled for other shapes: x is float32[8,8], not f32[16,8]; w is int32[8,8], not f32[8,8]; "
        "lower for these instead"
    )
    assert re.fullmatch(r"LayoutError: compiled for arguments .*, called with .*; lower for these instead", structure)
    texts, shapes_of_jax = refused["arguments"]
    assert texts == everywhere(
        "BackendError: dense has not been run. rank 0: w is 'w': arguments are arrays and pytrees of arrays; name "
        "others in static_argnames"
    )
    assert shapes_of_jax.startswith("BackendError: dense has not been run. ranks 0, 1, 2, 3: TypeError: dot_general")


def test_other_meshes(refused: Any) -> None:
    text = "LayoutError: tactic data(x: 0): unknown axis 'data': mesh B=2,M=2 has axes B, M"
    assert refused["other_mesh"] == everywhere(text)
    larger, elsewhere, number, null, unused = refused["sizes"]
    assert larger == everywhere(
        "BackendError: the mesh B=4,M=2 has 8 devices, and the communicator 4 ranks; start 8 (mpiexec -n 8), or pass "
        "comm=, a communicator of as many, to partir.jit"
    )
    assert elsewhere == everywhere(
        "BackendError: the mesh B=2,M=2@[4,5,6,7] has devices 4, 5, 6, 7, and device d is rank d: number them from 0 "
        "to 3, in any order"
    )
    assert number == "BackendError: 3 is not an intracommunicator; pass one of mpi4py, such as MPI.COMM_WORLD"
    assert null.endswith("is not an intracommunicator; pass one of mpi4py, such as MPI.COMM_WORLD")
    assert unused == "BackendError: comm is for backend='mpi', and the backend is 'jax'; leave one of them out"


def test_transformations(refused: Any) -> None:
    grad, jit, text = refused["transformations"]
    outside = everywhere(
        "TracingError: dense is partitioned for MPI, which runs outside of JAX's transformations; put jit, grad and "
        "vmap inside the function instead"
    )
    assert grad == outside and jit == outside
    assert text == everywhere(
        "TracingError: on MPI there is no one StableHLO text: segments are compiled one by one between "
        "redistributions; use as_text('spmd'), or lower for backend='jax'"
    )


def test_conversions(refused: Any) -> None:
    cut, again, gathered = refused["converting"]
    assert cut == (
        "BackendError: rank 1 holds a block of f32[16, 8{M}] on B=2,M=2, not the whole array; use .gather() on all "
        "ranks, or .block"
    )
    assert again == everywhere(f"BackendError: {DONATED}") and gathered == f"BackendError: {DONATED}"


def test_a_rank_that_fails(refused: Any) -> None:
    """In a computation before, between and after redistributions, in a loop's body and in its condition."""
    for name, texts in zip(("between", "last", "scanned", "looped"), refused["failures"], strict=True):
        assert len(set(texts)) == 1
        start = f"BackendError: {name} has failed, and what it made is discarded. rank 1: JaxRuntimeError: "
        assert texts[0].startswith(start) and texts[0].endswith("ZeroDivisionError: the disk is full")
    assert refused["tracing"] == [
        "wrong has not been run. ranks 0, 1, 2, 3: ZeroDivisionError: the disk is full",
        "ZeroDivisionError",
    ]


@pytest.mark.parametrize("case", ["killed", "interrupted"])
def test_a_rank_that_ends_ends_all(launch: Any, case: str) -> None:
    done = launch(4, "refusals.py", case, timeout=120.0)
    assert done.status != 0 and "went on" not in done.out
    if case == "interrupted":
        assert "redist: rank 3 failed while running lambda: KeyboardInterrupt: ; aborting all ranks" in done.err
    failed = max(float(text) for text in re.findall(r"failing at (\d+\.\d+)", done.err))
    assert done.ended - failed < 20

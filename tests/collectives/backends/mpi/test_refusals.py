"""What cannot run is refused on all ranks in the same words; what fails midway ends all of them, soon."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

AS_THEY_WERE = "BackendError: nothing has been redistributed, and all inputs are as they were. "
OF_ROWS = "and f32[8{{x}}, 8] on x=4 gives device {} a block f32[2, 8]; pass a NumPy array of that shape and dtype"


@pytest.fixture(scope="module")
def refused(launch: Any) -> Any:
    """The errors of every scenario, from one launch."""
    names = (
        "shapes absent outputs too_few no_communicator other_plans ill_typed elsewhere irreducible limits allocation "
        "misuse"
    )
    done = launch(4, "refusals.py", *names.split())
    assert done.status == 0, done.err
    return json.loads(done.out)


def everywhere(text: str) -> list[str]:
    return [text] * 4


def test_wrong_blocks(refused: Any) -> None:
    text = (
        f"{AS_THEY_WERE}rank 1: input is f32[3, 8], {OF_ROWS.format(1)}; rank 2: input is f64[2, 8], "
        f"{OF_ROWS.format(2)}; rank 3: input is a list, {OF_ROWS.format(3)}"
    )
    assert (
        refused["shapes"] == [everywhere(text)] * 6
    )  # redistribute; calling and binding, agreeing along, before, and never


def test_absent_blocks(refused: Any) -> None:
    none = "f32[8{{x}}, 8] on x=2 has no block on device {}; pass None"
    assert refused["absent"] == everywhere(
        f"{AS_THEY_WERE}rank 1: input is None, and f32[8{{x}}, 8] on x=2 gives device 1 a block f32[4, 8]; pass a "
        f"NumPy array of that shape and dtype; rank 2: input is f32[4, 8], and {none.format(2)}; rank 3: input is "
        f"f32[4, 8], and {none.format(3)}"
    )


def test_wrong_outputs(refused: Any) -> None:
    text = (
        f"{AS_THEY_WERE}rank 0: out is read-only; pass an array that can be written; rank 1: out overlaps the input, "
        "which is read while out is written; pass memory of its own; rank 2: out is f32[2, 8], and f32[8, 8{x}] on "
        "x=4 gives device 2 a block f32[8, 2]; pass a NumPy array of that shape and dtype"
    )
    assert refused["outputs"] == [everywhere(text)] * 2  # redistribute, and binding


def test_communicators(refused: Any) -> None:
    assert refused["too_few"] == everywhere(
        "BackendError: the plan is for devices up to 5, and device d is rank d: the communicator has 4 ranks, so "
        "devices 4, 5 have none; start at least 6 (mpiexec -n 6)"
    )
    text = "BackendError: {} is not an intracommunicator; pass one of mpi4py, such as MPI.COMM_WORLD"
    assert refused["no_communicator"][0] == text.format("None")
    assert refused["no_communicator"][2] == text.format("3")
    assert re.fullmatch(re.escape(text).replace(r"\{\}", "<.*Comm object at .*>"), refused["no_communicator"][1])


def test_plans(refused: Any) -> None:
    assert refused["other_plans"] == everywhere(
        "BackendError: ranks [2] have another plan or other options than rank 0; give all ranks the same plan, for "
        "instance by broadcasting plan.to_json()"
    )
    assert refused["ill_typed"] == everywhere(
        "TypingError: slice on f32[8{x}, 8]: dimensions [2] do not exist in an array of rank 2"
    )
    assert refused["elsewhere"] == everywhere(
        "ProofError: the plan ends at f32[8{x}, 8] on x=4, and its target is f32[8, 8{x}] on x=4; run `redist verify` "
        "on it"
    )
    assert refused["irreducible"] == everywhere(
        "BackendError: values of dtype <M8[s] have no sum; reduce them in a dtype that does"
    )


def test_limits(refused: Any) -> None:
    *texts, works = refused["limits"]
    assert texts == everywhere(
        "InfeasibleError: on MPI the plan from f32[8{x}, 8] to f32[8, 8{x}] needs 128 bytes per device, and its "
        "memory limit is 127; plan with backend='mpi' and that limit, or with a limit of 128 bytes"
    )
    assert works == ["datatypes"]


def test_allocations_that_fail(refused: Any) -> None:
    *blocks, arenas = refused["allocation"]
    text = (
        f"{AS_THEY_WERE}rank 2: MemoryError: Unable to allocate 64.0 MiB for an array with shape (8192, 2048) and "
        "data type float32"
    )
    assert blocks == [everywhere(text)] * 2  # calling, and binding
    assert len(set(arenas)) == 1
    pattern = (
        r"rank 2: \d+ bytes of working memory cannot be reserved \(\[Errno 12\] Cannot allocate memory\); lower "
        "memory_limit when planning"
    )
    assert re.fullmatch(re.escape(AS_THEY_WERE) + pattern, arenas[0])


def test_misuse(refused: Any) -> None:
    nothing = everywhere("BackendError: nothing is under way; start() the transfer first")
    busy = everywhere("BackendError: the transfer is under way already; wait() for it, or build another one")
    closed = everywhere("BackendError: the transfer is closed; build another one")
    assert refused["misuse"] == [nothing, busy, busy, nothing, closed, closed, closed]


@pytest.mark.parametrize(
    ("scenario", "rank", "text"),
    [
        ("broken", 1, "moving f32[8{x}, 8] on x=4 to f32[8{x}, 8] on x=4: RuntimeError: the wire is cut"),
        ("interrupted", 3, "moving f32[8{x}, 8] on x=4 to f32[8{x}, 8] on x=4: KeyboardInterrupt: "),
        ("unchecked", 1, "starting f32[8{x}, 8] on x=4 to f32[8, 8{x}] on x=4: BackendError: input is f32[1, 8], "),
    ],
)
def test_a_failure_midway_ends_all_ranks(launch: Any, scenario: str, rank: int, text: str) -> None:
    done = launch(4, "refusals.py", scenario, timeout=60.0)
    assert done.status != 0 and "went on" not in done.out
    assert f"redist: rank {rank} failed while {text}" in done.err and "; aborting all ranks" in done.err
    assert seconds_since_failing(done) < 5


def test_a_rank_that_is_killed_ends_all_ranks(launch: Any) -> None:
    done = launch(4, "refusals.py", "killed", timeout=60.0)
    assert done.status != 0 and "went on" not in done.out
    assert "Killed" in done.out + done.err
    assert seconds_since_failing(done) < 5


def seconds_since_failing(done: Any) -> float:
    return done.ended - max(float(text) for text in re.findall(r"failing at (\d+\.\d+)", done.err))

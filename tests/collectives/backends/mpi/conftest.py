"""Launching ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
MPIEXEC = Path(sys.executable).with_name("mpiexec")

if importlib.util.find_spec("mpi4py") is None:
    collect_ignore_glob = ["test_*.py"]


class Launched:
    """How a launch ended."""

    def __init__(self, ranks: int, file: str, *arguments: str, timeout: float, stderr: int) -> None:
        # Large blocks of memory go back to the system at once, so that what is resident is what is in use.
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1048576"}
        command = [str(MPIEXEC if MPIEXEC.exists() else "mpiexec"), "-n", str(ranks), sys.executable]
        done = subprocess.run(
            [*command, *([str(HERE / file)] if file.endswith(".py") else ["-m", file]), *arguments],
            check=False,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=timeout,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        self.ended = time.time()
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="session")
def launch() -> Callable[..., Launched]:
    """Runs a file or module on so many ranks: `launch(4, "refusals.py", "broken")`."""
    return lambda ranks, file, *arguments, timeout=300.0, stderr=subprocess.PIPE: Launched(
        ranks, file, *arguments, timeout=timeout, stderr=stderr
    )


@pytest.fixture(scope="session")
def on_ranks(launch: Any) -> Callable[..., Any]:
    """What a scenario returns: `on_ranks(4, "ranks.py", "problems", seed=0)`."""

    def run(count: int, file: str, scenario: str, /, **arguments: Any) -> Any:
        done = launch(count, file, scenario, json.dumps(arguments))
        assert done.status == 0, done.err
        return json.loads(done.out.strip().splitlines()[-1])

    return run

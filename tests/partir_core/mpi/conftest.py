"""Launching ranks, each with one JAX device on the CPU."""

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
XLA_FLAGS = (  # compiling is what takes time here
    "--xla_force_host_platform_device_count=1 --xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true"
)
MPIEXEC = Path(sys.executable).with_name("mpiexec")

if importlib.util.find_spec("mpi4py") is None:
    collect_ignore_glob = ["test_*.py"]


class Launched:
    """How a launch ended."""

    def __init__(self, ranks: int, file: str, *arguments: str, timeout: float) -> None:
        done = subprocess.run(
            [
                str(MPIEXEC if MPIEXEC.exists() else "mpiexec"),
                "-n",
                str(ranks),
                sys.executable,
                HERE / file,
                *arguments,
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": XLA_FLAGS},
            stdin=subprocess.DEVNULL,
        )
        self.ended = time.time()
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="session")
def launch() -> Callable[..., Launched]:
    """Runs a file on so many ranks: `launch(4, "refusals.py", "broken")`."""
    return lambda ranks, file, *arguments, timeout=600.0: Launched(ranks, file, *arguments, timeout=timeout)


@pytest.fixture(scope="session")
def on_ranks(launch: Any) -> Callable[..., Any]:
    """What cases return, by name, from one launch: `on_ranks(4, "programs.py", "dtypes", "scans")`."""

    def run(count: int, file: str, /, *cases: str) -> Any:
        done = launch(count, file, *cases)
        assert done.status == 0, done.out + done.err
        return json.loads(done.out.strip().splitlines()[-1])

    return run

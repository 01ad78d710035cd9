"""How the files that run on every rank are called: `mpiexec -n N python FILE.py SCENARIO JSON`."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

from mpi4py import MPI


def main(scenarios: dict[str, Callable[..., Any]]) -> None:
    """Run one scenario; rank 0 prints what it returns as JSON. What one rank raises ends all."""
    try:
        found = scenarios[sys.argv[1]](**json.loads(sys.argv[2]))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(3)
        raise
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(found))

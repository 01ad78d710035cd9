"""How the files that run on every rank are called: `mpiexec -n 4 python FILE.py CASE...`."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from mpi4py import MPI

from redist import Mesh
from redist import partir_core as partir
from redist.partir_core import DistributedArray

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # for the benchmarks' models

WORLD = MPI.COMM_WORLD
RANK = WORLD.rank
MESH = Mesh({"B": 2, "M": 2})


def main(cases: dict[str, Callable[..., Any]]) -> None:
    """Run cases; rank 0 prints what they return as JSON. What one rank raises ends all."""
    try:
        found = {name: cases[name]() for name in sys.argv[1:]}
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        WORLD.Abort(3)
        raise
    if RANK == 0:
        print(json.dumps(found))


def same(got: Any, wanted: Any, rtol: float = 2e-4, atol: float = 2e-5) -> None:
    """This rank holds its blocks of the results of the unpartitioned function, and no more than them."""
    assert jax.tree.structure(got) == jax.tree.structure(wanted), (got, wanted)
    for y, expected in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert isinstance(y, DistributedArray)
        assert y.shape == expected.shape and y.dtype == expected.dtype
        block, whole = y.block, expected
        if jax.numpy.issubdtype(y.dtype, jax.dtypes.prng_key):
            block, whole = jax.random.key_data(block), jax.random.key_data(expected)
        wanted_here = np.asarray(whole)[y.layout.box(RANK)]
        assert block.shape == wanted_here.shape
        both = [np.asarray(x).astype(complex) for x in (block, wanted_here)]
        np.testing.assert_allclose(*both, rtol=rtol, atol=atol)


def check(fn: Any, args: Any, schedule: Any, mesh: Any = MESH, **options: Any) -> Any:
    """Run a function partitioned and as it is, twice; results are equal, and laid out as the report says."""
    partitioned = partir.jit(fn, mesh, schedule, backend="mpi", **options)
    for _ in range(2):
        got = partitioned(*args)
        same(got, jax.jit(fn)(*args))
    report = partitioned.lower(*args).report
    for layout, y in zip(report.outputs.values(), jax.tree.leaves(got), strict=True):
        assert layout is None or layout.equivalent(y.layout)
    return report

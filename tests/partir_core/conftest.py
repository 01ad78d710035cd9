"""What the tests of partitioning share: a mesh, and comparison with the unpartitioned run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from redist import Layout, Mesh
from redist import partir_core as partir

ROOT = str(Path(__file__).resolve().parents[2])  # the benchmarks' models are not on the path of an installed redist
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

MESH = Mesh({"B": 4, "M": 2})


@pytest.fixture
def mesh() -> Mesh:
    """B=4, M=2."""
    return MESH


@pytest.fixture
def check() -> Callable[..., partir.Report]:
    """Run a function partitioned and as it is; results are equal, and laid out as the report says."""

    def run(
        fn: Callable[..., Any], args: Sequence[Any], schedule: Sequence[Any], mesh: Mesh = MESH, **options: Any
    ) -> partir.Report:
        partitioned = partir.jit(fn, mesh, schedule, **options)
        report = partitioned.lower(*args).report
        got, expected = partitioned(*args), jax.jit(fn)(*args)
        assert jax.tree.structure(got) == jax.tree.structure(expected)
        for y, wanted in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            assert y.dtype == wanted.dtype
            np.testing.assert_allclose(np.asarray(y), np.asarray(wanted), rtol=2e-4, atol=2e-5)
        for layout, y in zip(report.outputs.values(), jax.tree.leaves(got), strict=True):
            assert layout is None or layout.equivalent(Layout.from_jax(y.shape, y.dtype, y.sharding))
        return report

    return run

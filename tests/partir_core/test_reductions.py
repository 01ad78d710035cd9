"""Contributions are combined by one collective each, of every kind and dtype, and give what NumPy does."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.partir_hlo import of_stablehlo
from redist import Mesh
from redist import partir_core as partir
from redist.partir_core import ManualPartition
from tests.partir_core.reductions import DTYPES, KINDS, SCHEDULE, arguments, exactly, expected, function


@pytest.mark.parametrize("dtype", DTYPES)
def test_kinds(mesh: Mesh, dtype: str) -> None:
    """What is whole afterwards is all-reduced, what is needed in parts reduce-scattered, in the program as in the
    report: in numbers and in bytes of 8 elements over 4 devices."""
    x, z = arguments(dtype)
    lowered = partir.jit(function(dtype), mesh, SCHEDULE).lower(x, z)
    report, kinds = lowered.report, len(DTYPES[dtype])
    report.assert_collectives(all_reduce=kinds, reduce_scatter=kinds)
    size = 8 * x.dtype.itemsize * 3 // 4
    assert (report.bytes["all_reduce"], report.bytes["reduce_scatter"]) == (2 * kinds * size, kinds * size)
    made = of_stablehlo(lowered.as_text("stablehlo"))
    assert made.number == dict(report.collectives)
    assert made.received == dict(report.bytes)
    got = lowered.compile()(x, z)
    for y, wanted in zip(jax.tree.leaves(got), jax.tree.leaves(expected(x, z)), strict=True):
        exactly(y, wanted)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_over_two_axes(mesh: Mesh, kind: str) -> None:
    """Along both axes of the mesh at once: whole, in parts along one of them, and in parts along both."""
    reduce, ufunc = KINDS[kind]

    def f(x: Any, y: Any, z: Any) -> Any:
        made = [reduce(x, (0, 1)) for _ in range(3)]
        return made[0], made[1] - y, made[2] - z

    x = np.random.default_rng(1).choice([-2.0, -1.0, 1.0, 2.0], (8, 2, 16)).astype(np.float32)
    y = np.arange(16, dtype=np.float32)
    schedule = [ManualPartition({"x": 0, "y": 0, "z": 0}, "B"), ManualPartition({"x": 1, "z": 0}, "M")]
    lowered = partir.jit(f, mesh, schedule).lower(x, y, y)
    assert lowered.report.collectives["reduce_scatter"] >= 2
    made = of_stablehlo(lowered.as_text("stablehlo"))
    assert made.number == dict(lowered.report.collectives)
    assert made.received == dict(lowered.report.bytes)
    total = ufunc.reduce(x, axis=(0, 1))
    for got, wanted in zip(lowered.compile()(x, y, y), (total, total - y, total - y), strict=True):
        exactly(got, wanted)


@pytest.mark.parametrize(
    "other, axis",
    [(Mesh({"B": 4, "M": 2}, [7, 3, 1, 5, 0, 2, 6, 4]), "B"), (Mesh({"A": 8}), "A:(1)2"), (Mesh({"A": 8}), "A:(2)4")],
    ids=str,
)
def test_groups(other: Mesh, axis: str) -> None:
    """Devices in another order, and groups along a part of an axis."""
    x, z = arguments("float32")
    fn = partir.jit(function("float32"), other, [ManualPartition({"x": 0, "z": 0}, axis)])
    assert fn.lower(x, z).report.collectives["reduce_scatter"] == 4
    for y, wanted in zip(jax.tree.leaves(fn(x, z)), jax.tree.leaves(expected(x, z)), strict=True):
        exactly(y, wanted)


def test_complex_maxima_are_of_the_whole(mesh: Mesh, check: Any) -> None:
    """No collective makes them: rows are gathered."""

    def f(x: Any) -> Any:
        return jnp.max(x, 0), jnp.min(x, 0), jnp.zeros(3, x.dtype).at[jnp.arange(16) % 3].max(x[:, 0])

    rng = np.random.default_rng(0)
    x = (rng.standard_normal((16, 8)) + 1j * rng.standard_normal((16, 8))).astype(np.complex64)
    schedule = [ManualPartition({"x": 0}, "B")]
    report = check(f, [x], schedule)
    assert report.collectives["all_gather"] and not report.collectives["all_reduce"]
    made = of_stablehlo(partir.jit(f, mesh, schedule).lower(x).as_text("stablehlo"))
    assert made.number == dict(report.collectives) and made.received == dict(report.bytes)


def test_batches(mesh: Mesh) -> None:
    """`vmap` over a partitioned function, whichever dimension it adds."""
    x, z = arguments("float32")
    fn = partir.jit(function("float32"), mesh, SCHEDULE)
    stacked = jnp.stack([x, 2 * x])
    for dim in range(3):
        made = jax.vmap(fn, (dim, None))(jnp.moveaxis(stacked, 0, dim), z)
        for n in range(2):
            for y, wanted in zip(jax.tree.leaves(made), jax.tree.leaves(expected(stacked[n], z)), strict=True):
                exactly(y[n], wanted)

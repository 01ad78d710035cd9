"""Whole models on every rank, against the unpartitioned run: `mpiexec -n 4 python models.py CASE...`."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ranks import MESH, RANK, WORLD, main, same

from benchmarks.models import decode, gpt, graphnet, unet
from benchmarks.models.schedules import BP, EDGES, GPT_MP, GRAPH_MP, UNET_MP
from benchmarks.partir_third import PROGRAMS
from redist import Mesh
from redist import partir_core as partir
from redist.partir_core import ManualPartition
from tests.partir_core.reductions import DTYPES, SCHEDULE, arguments, exactly, expected, function


def unpartitioned(fn: Any, args: Any) -> Any:
    """Results of the whole, from rank 0: compiling is what takes time here, and all would make the same."""
    leaves = [np.asarray(y) for y in jax.tree.leaves(jax.jit(fn)(*args))] if RANK == 0 else None
    return jax.tree.unflatten(jax.tree.structure(jax.eval_shape(fn, *args)), WORLD.bcast(leaves))


def check(fn: Any, args: Any, schedules: Any) -> dict[str, Any]:
    """Results under every schedule are those of the whole; what the reports count, by schedule."""
    expected = unpartitioned(fn, args)
    counts: dict[str, Any] = {}
    for name, schedule in schedules.items():
        partitioned = partir.jit(fn, MESH, schedule, backend="mpi")
        got = partitioned(*args)
        same(got, expected)
        report = partitioned.lower(*args).report
        for layout, y in zip(report.outputs.values(), jax.tree.leaves(got), strict=True):
            assert layout is None or layout.equivalent(y.layout)
        counts[name] = dict(report.collectives)
    return counts


def unet_block() -> Any:
    config, key = unet.Config(size=4, channels=4, groups=2, heads=2, batch=4), jax.random.key(0)
    args = [*unet.state_of(config, key), unet.batch_of(config, key)]
    return check(partial(unet.training_step, config), args, {"BP": [BP], "BP+MP": [BP, UNET_MP]})


def graph_network() -> Any:
    config, key = graphnet.SMALL, jax.random.key(0)
    args = [*graphnet.state_of(config, key), graphnet.graph_of(config, key)]
    return check(graphnet.training_step, args, {"edges": [EDGES], "edges+MP": [EDGES, GRAPH_MP]})


def decoding() -> Any:
    """Tokens are the very same ones, from a cache that each rank holds its part of."""
    config = gpt.Config(layers=1, width=16, heads=4, vocabulary=32, batch=8, length=8)
    params = jax.tree.map(lambda x: 20 * x, gpt.init(config, jax.random.key(0)))
    batch = ManualPartition({"tokens": 0}, "B")
    args = [params, jnp.arange(8) * 3 % config.vocabulary]
    return check(partial(decode.decode, config), args, {"BP": [batch], "BP+MP": [batch, GPT_MP]})


def third_party(name: str) -> Any:
    case = PROGRAMS[name]()
    return check(case.fn, case.args, case.schedules)


def equinox_gru() -> Any:
    return third_party("equinox GRU")


def optax_chain() -> Any:
    return third_party("optax chain")


def optax_lbfgs() -> Any:
    return third_party("optax L-BFGS")


def reductions() -> Any:
    """Of every kind and dtype, whole and in parts, to the last bit."""
    mesh = Mesh({"B": 4})
    counts: dict[str, Any] = {}
    for dtype in DTYPES:
        x, z = arguments(dtype)
        fn = partir.jit(function(dtype), mesh, SCHEDULE, backend="mpi")
        for y, wanted in zip(jax.tree.leaves(fn(x, z)), jax.tree.leaves(expected(x, z)), strict=True):
            exactly(np.asarray(y.block), wanted[y.layout.box(RANK)])
        counts[dtype] = dict(fn.lower(x, z).report.collectives)
    return counts


if __name__ == "__main__":
    main(globals())

"""Unreduced values on Explicit meshes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redist.resharding import explain, reshard

jax: Any = pytest.importorskip("jax")
P: Any = jax.sharding.PartitionSpec
NamedSharding: Any = jax.sharding.NamedSharding


@pytest.mark.parametrize("spec", [P("x"), P(None, "x"), P("y", "x"), P()], ids=str)
def test_reduced_into_the_target(spec: Any, explicit_plane: Any, placed: Any) -> None:
    mesh = explicit_plane
    with jax.set_mesh(mesh):
        a = jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), NamedSharding(mesh, P(None, "x")))
        b = jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), NamedSharding(mesh, P("x")))
        expected = np.asarray(a) @ np.asarray(b)

        def product(a: Any, b: Any) -> Any:
            return jax.numpy.einsum("ij,jk->ik", a, b, out_sharding=P(None, None, unreduced={"x"}))

        def loss(a: Any, b: Any) -> Any:
            return (reshard(product(a, b), spec) * 2).sum()

        wanted = NamedSharding(mesh, spec)
        placed(reshard(product(a, b), spec), expected, wanted)
        placed(jax.jit(lambda a, b: reshard(product(a, b), spec))(a, b), expected, wanted)
        gradient = 2 * np.ones((8, 8), np.float32) @ np.asarray(b).T
        placed(jax.grad(loss)(a, b), gradient, a.sharding)
        placed(jax.jit(jax.grad(loss))(a, b), gradient, a.sharding)
        assert ("reduce-scatter" if "x" in str(spec) else "all-reduce") in explain(product(a, b), wanted)

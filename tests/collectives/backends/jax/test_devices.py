"""Targets on other devices: blocks are sent, outside jit."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from redist.resharding import reshard

jax: Any = pytest.importorskip("jax")
P: Any = jax.sharding.PartitionSpec
NamedSharding: Any = jax.sharding.NamedSharding

CASES = {
    "grow": ({"a": 2, "b": 2}, range(4), {"x": 2, "y": 4}, range(8)),
    "shrink": ({"x": 2, "y": 4}, range(8), {"a": 2, "b": 2}, range(2, 6)),
    "disjoint": ({"x": 2, "y": 4}, range(8), {"a": 4, "b": 2}, range(8, 16)),
    "overlapping": ({"a": 3, "b": 2}, range(6), {"x": 2, "y": 2}, (5, 9, 0, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_other_devices(name: str, mesh_of: Any, placed: Any, spec_of: Any) -> None:
    axes, ids, other_axes, other_ids = CASES[name]
    first, second = mesh_of(axes, ids=ids), mesh_of(other_axes, ids=other_ids)
    value = np.arange(24 * 24, dtype=np.float32).reshape(24, 24)
    rng = Random(name)
    for _ in range(8):
        x = jax.device_put(value, NamedSharding(first, spec_of(rng, first, 2)))
        wanted = NamedSharding(second, spec_of(rng, second, 2))
        placed(reshard(x, wanted), value, wanted)
        placed(x, value, x.sharding)


def test_to_and_from_one_device(plane: Any, placed: Any) -> None:
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = jax.device_put(value, NamedSharding(plane, P("x", "y")))
    for device in (jax.devices()[3], jax.devices()[20]):
        alone = jax.sharding.SingleDeviceSharding(device)
        made = reshard(x, alone)
        assert made.sharding == alone
        assert np.array_equal(made, value)
        assert reshard(x, device).sharding == alone
        placed(reshard(made, x.sharding), value, x.sharding)
    assert reshard(made, made.sharding) is made


def test_another_mesh_may_be_set(plane: Any, mesh_of: Any, placed: Any) -> None:
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    small = NamedSharding(mesh_of({"q": 4}, ids=(2, 9, 4, 7)), P("q"))
    x = jax.device_put(value, NamedSharding(plane, P(None, "y")))
    with jax.set_mesh(mesh_of({"far": 4}, ids=range(20, 24))):
        made = reshard(x, small)
        back = reshard(made, NamedSharding(plane, P("y")))
        across = reshard(x, NamedSharding(plane, P("y", "x")))
    placed(made, value, small)
    placed(back, value, NamedSharding(plane, P("y")))
    placed(across, value, NamedSharding(plane, P("y", "x")))


def test_nothing_is_read_back_to_the_host(plane: Any, mesh_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = jax.device_put(value, NamedSharding(plane, P("x", "y")))
    wanted = NamedSharding(mesh_of({"q": 4}, ids=(2, 9, 4, 7)), P(None, "q"))
    reshard(x, wanted)
    with jax.transfer_guard_device_to_host("disallow"):
        read: list[Any] = []
        kind = type(x)
        monkeypatch.setattr(kind, "__array__", lambda self, *_, **__: read.append(self))
        jax.block_until_ready(reshard(x, wanted))
    assert read == []

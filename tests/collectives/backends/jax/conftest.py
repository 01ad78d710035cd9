"""Meshes of virtual devices, random shardings, and the NumPy reference: what every device should hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")
P: Any = jax.sharding.PartitionSpec
AUTO, EXPLICIT = jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit


def build_mesh(axes: dict[str, int], kind: Any = AUTO, ids: Sequence[int] | None = None) -> Any:
    """A mesh of the first devices, or of these."""
    devices = np.asarray(jax.devices())[list(ids if ids is not None else range(math.prod(axes.values())))]
    return jax.sharding.Mesh(devices.reshape([*axes.values()]), tuple(axes), axis_types=(kind,) * len(axes))


def check_placed(made: Any, value: Any, sharding: Any) -> None:
    """The array has this sharding, and on every device NumPy's slice of the value, bit by bit."""
    assert made.sharding.is_equivalent_to(sharding, made.ndim), made.sharding
    assert (made.shape, made.dtype) == (value.shape, value.dtype)
    where = sharding.devices_indices_map(value.shape)
    assert {shard.device for shard in made.addressable_shards} == set(where)
    for shard in made.addressable_shards:
        assert np.asarray(shard.data).tobytes() == np.ascontiguousarray(value[where[shard.device]]).tobytes()


def random_spec(rng: Random, mesh: Any, rank: int) -> Any:
    """Any axes in any order on any dimension."""
    parts: list[list[str]] = [[] for _ in range(rank)]
    names = list(mesh.axis_names)
    for name in rng.sample(names, len(names)):
        place = rng.randint(0, rank)
        if place < rank:
            parts[place].append(name)
    return P(*(tuple(part) if len(part) > 1 else part[0] if part else None for part in parts))


@pytest.fixture
def mesh_of() -> Callable[..., Any]:
    """Builds meshes: `mesh_of({"x": 2, "y": 4})`."""
    return build_mesh


@pytest.fixture
def placed() -> Callable[..., None]:
    """Asserts where an array lies: `placed(made, value, sharding)`."""
    return check_placed


@pytest.fixture
def spec_of() -> Callable[..., Any]:
    """Random PartitionSpecs."""
    return random_spec


@pytest.fixture
def plane() -> Any:
    """x=2, y=4 with Auto axes."""
    return build_mesh({"x": 2, "y": 4})


@pytest.fixture
def explicit_plane() -> Any:
    """x=2, y=4 with Explicit axes."""
    return build_mesh({"x": 2, "y": 4}, EXPLICIT)

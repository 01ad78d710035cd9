"""The JAX mesh that a program runs on: the user's, its axes split where a schedule uses parts of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from redist.collectives.backends.jax.modules import jax, lax
from redist.errors import BackendError, LayoutError
from redist.partir_core.loops import Axes
from redist.types.mesh import Mesh, SubAxis

__all__ = ["Devices", "constraint", "devices_of"]


@dataclass(frozen=True, slots=True)
class Devices:
    """A JAX mesh, the mesh it stands for, and the names that each (sub-)axis goes by in it."""

    mesh: Any
    layout_mesh: Mesh
    parts: dict[str, tuple[tuple[str, int, int], ...]]
    """Per axis of the layout's mesh: (name, pre, size) of its parts, major to minor."""

    @property
    def names(self) -> tuple[str, ...]:
        """All axis names of the JAX mesh."""
        return tuple(self.mesh.axis_names)

    @property
    def ids(self) -> tuple[int, ...]:
        """Device ids in row-major order."""
        return tuple(self.layout_mesh.device_ids)

    @property
    def explicit(self) -> bool:
        """Whether types carry shardings along some axis."""
        return jax.sharding.AxisType.Explicit in self.mesh.axis_types

    def names_of(self, axes: Iterable[SubAxis]) -> tuple[str, ...]:
        """The JAX axes that these (sub-)axes are."""
        names: list[str] = []
        for axis in axes:
            pre, size = self.layout_mesh.cut(axis)
            names += [name for name, p, s in self.parts[axis.axis] if pre <= p and p * s <= pre * size]
        return tuple(names)

    def spec(self, axes: Axes) -> Any:
        """The PartitionSpec of a value."""
        return jax.sharding.PartitionSpec(*(self.names_of(names) or None for names in axes))

    def sharding(self, axes: Axes) -> Any:
        """The NamedSharding of a value."""
        return jax.sharding.NamedSharding(self.mesh, self.spec(axes))

    def coordinate(self, axes: Sequence[SubAxis]) -> Any:
        """This device's index over the axes, major to minor, inside a `shard_map`."""
        return lax.axis_index(self.names_of(axes))


def devices_of(mesh: Mesh, base: Any, axes: Iterable[SubAxis]) -> Devices:
    """The JAX mesh for a program that uses these (sub-)axes of `mesh`, which is `base` in JAX.

    Raises BackendError where sub-axes of one axis are not cuts of one factorisation.
    """
    parts: dict[str, tuple[tuple[str, int, int], ...]] = {}
    used = list(axes)
    for name, total in mesh.axes:
        edges = sorted({1, total, *(e for a in used if a.axis == name for e in _edges(mesh, a))})
        if any(high % low for low, high in pairwise(edges)):
            listed = ", ".join(sorted({str(a) for a in used if a.axis == name and a.size is not None}))
            raise BackendError(
                f"the schedule uses {listed}, which are not cuts of one factorisation of {name}={total}; JAX needs "
                "one: choose sub-axes whose edges divide one another"
            )
        if len(edges) <= 2:
            parts[name] = ((name, 1, total),)
        else:
            parts[name] = tuple((f"{name}:({low}){high // low}", low, high // low) for low, high in pairwise(edges))
    if all(len(cut) == 1 for cut in parts.values()):
        return Devices(base, mesh, parts)
    cuts = [part for name in mesh.names for part in parts[name]]
    types = [kind for name, kind in zip(mesh.names, base.axis_types, strict=True) for _ in parts[name]]
    devices = np.asarray(base.devices).reshape([size for _, _, size in cuts])
    return Devices(jax.sharding.Mesh(devices, tuple(name for name, _, _ in cuts), axis_types=tuple(types)), mesh, parts)


def constraint(name: str, axes: Sequence[Axes]) -> Any:
    """The PartitionSpec of a tag whose values are laid out over these axes. Raises LayoutError."""
    ranks = sorted({len(one) for one in axes})
    if len(ranks) > 1:
        listed = ", ".join(map(str, ranks))
        raise LayoutError(f"tag {name} names values of {listed} dimensions; give them names of their own")
    parts = sorted({str(axis) for one in axes for names in one for axis in names if axis.size is not None})
    if parts:
        raise LayoutError(
            f"tag {name} is sharded along {', '.join(parts)}, and a PartitionSpec names whole axes only; use a mesh in "
            "which these parts are axes"
        )
    free = jax.sharding.PartitionSpec.UNCONSTRAINED
    dims = [
        (tuple(axis.axis for axis in found[0]) or None) if all(one == found[0] for one in found) else free
        for found in zip(*axes, strict=True)
    ]
    return jax.sharding.PartitionSpec(*dims)


def _edges(mesh: Mesh, axis: SubAxis) -> tuple[int, int]:
    pre, size = mesh.cut(axis)
    return pre, pre * size

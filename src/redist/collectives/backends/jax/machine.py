"""What is known of the machine that JAX runs on."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from redist.collectives.backends.jax.modules import jax
from redist.collectives.topology import HOST, NETWORK, PRESETS, UNIFORM, Topology
from redist.types.mesh import Mesh

__all__ = ["default_topology"]


def default_topology(mesh: Mesh) -> Topology:
    """One process that emulates its devices on CPU copies between them; where some axes of the mesh stay
    within a process and others do not, those are a slow network; elsewhere bytes are what counts."""
    if jax.process_count() == 1:
        return PRESETS["one-process"](mesh) if jax.default_backend() == "cpu" else UNIFORM
    return _between_processes(mesh)


@lru_cache(maxsize=256)
def _between_processes(mesh: Mesh) -> Topology:
    process = {device.id: device.process_index for device in jax.devices()}
    if not all(i in process for i in mesh.device_ids):
        return UNIFORM
    owners = np.asarray([process[i] for i in mesh.device_ids]).reshape(mesh.sizes)
    links = {
        name: NETWORK if (owners != owners.take([0], axis=n)).any() else HOST
        for n, (name, size) in enumerate(mesh.axes)
        if size > 1
    }
    return Topology("processes", links) if len({*links.values()}) > 1 else UNIFORM

"""What is known of the machine that JAX runs on."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from redist.collectives.backends.jax.modules import jax
from redist.collectives.topology import HOST, NETWORK, PRESETS, UNIFORM, Link, Topology
from redist.types.mesh import Mesh

__all__ = ["default_topology"]


def default_topology(mesh: Mesh) -> Topology:
    """One process that emulates its devices on CPU copies between them; where some axes of the mesh stay
    within a process and others do not, those are a slow network; elsewhere bytes are what counts."""
    if jax.process_count() == 1:
        return PRESETS["one-process"](mesh) if jax.default_backend() == "cpu" else UNIFORM
    return _between_processes(mesh)


_GLOO_NETWORK = Link(2e-3, 1.25e8, peer_latency=2e-4)
_GLOO_HOST = Link(5e-4, 2e9, peer_latency=1e-4)
"""Processes on CPU talk through Gloo, whose steps take milliseconds before a byte has moved: round figures, for a
network of about 1 Gbit/s. `redist calibrate` has better ones for a machine."""


@lru_cache(maxsize=256)
def _between_processes(mesh: Mesh) -> Topology:
    process = {device.id: device.process_index for device in jax.devices()}
    if not all(i in process for i in mesh.device_ids):
        return UNIFORM
    owners = np.asarray([process[i] for i in mesh.device_ids]).reshape(mesh.sizes)
    network, host = (_GLOO_NETWORK, _GLOO_HOST) if jax.default_backend() == "cpu" else (NETWORK, HOST)
    links = {
        name: network if (owners != owners.take([0], axis=n)).any() else host
        for n, (name, size) in enumerate(mesh.axes)
        if size > 1
    }
    return Topology("processes", links) if len({*links.values()}) > 1 else UNIFORM

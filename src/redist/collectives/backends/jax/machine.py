"""What is known of the machine that JAX runs on."""

from __future__ import annotations

from redist.collectives.backends.jax.modules import jax
from redist.collectives.topology import PRESETS, UNIFORM, Topology
from redist.types.mesh import Mesh

__all__ = ["default_topology"]


def default_topology(mesh: Mesh) -> Topology:
    """One process that emulates its devices on CPU copies between them; elsewhere bytes are what counts."""
    if jax.default_backend() == "cpu" and jax.process_count() == 1:
        return PRESETS["one-process"](mesh)
    return UNIFORM

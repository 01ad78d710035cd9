"""What JAX allocates for a reshard against what its plan projects, for users' own tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redist.resharding import planned

if TYPE_CHECKING:
    from redist.collectives import Plan

__all__ = ["ReshardMemory", "reshard_memory"]


@dataclass(frozen=True, slots=True)
class ReshardMemory:
    """Bytes per device: what the plan projects at its peak, and what the compiler reports that the program
    uses (arguments, results that are not aliases of them, and temporaries)."""

    plan: Plan
    projected_bytes: int
    measured_bytes: int

    @property
    def within(self) -> bool:
        """Whether the program uses no more than projected, beside 256 bytes of scalars."""
        return self.measured_bytes <= self.projected_bytes + 256


def reshard_memory(
    x: Any,
    sharding: Any,
    source: Any = None,
    memory_limit: int | None = None,
    donate: bool = False,
    topology: Any = None,
) -> ReshardMemory:
    """Compile `redist.reshard` of one array, or the shape and dtype of one, and ask what it allocates.

        memory = reshard_memory(jax.ShapeDtypeStruct((4096, 4096), "float32", sharding=here), there)
        assert memory.within and memory.measured_bytes < 2**27

    Raises BackendError where the move is several programs (other devices, another order of them), and
    whatever `reshard` would.
    """
    import numpy as np

    from redist.collectives.backends.jax.memory import program_bytes

    plan = planned(x, sharding, source, memory_limit, donate, topology)
    return ReshardMemory(plan, plan.peak_bytes, program_bytes(plan, np.dtype(x.dtype), donate))

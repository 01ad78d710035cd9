"""What a backend needs beside its inputs and outputs: staging memory per step, and which steps it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from redist.errors import BackendError

__all__ = ["JAX", "MPI", "NUMPY", "PROFILES", "BackendProfile", "Staging", "profile_of"]


@dataclass(frozen=True, slots=True)
class Staging:
    """Temporary bytes of a step, in multiples of its input and output blocks (bytes per device)."""

    of_input: float = 0.0
    of_output: float = 0.0


_NONE = Staging()


@dataclass(frozen=True, slots=True)
class BackendProfile:
    """Name, staging per step (by JSON op name; absent means none), and whether blocks may be uneven.

    `native_exchange`: an exchange is one library call (MPI's Alltoallv) rather than partial permutes.
    """

    name: str
    staging: Mapping[str, Staging] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    uneven: bool = True
    native_exchange: bool = True

    def __reduce__(self) -> tuple[Any, ...]:
        return BackendProfile, (self.name, dict(self.staging), self.uneven, self.native_exchange)

    def staging_bytes(self, op: str, input_bytes: int, output_bytes: int) -> int:
        """Temporary bytes per device of one step, rounded up."""
        staging = self.staging.get(op, _NONE)
        exact = staging.of_input * input_bytes + staging.of_output * output_bytes
        return int(-(-exact // 1))


NUMPY = BackendProfile("numpy")
"""The reference: every step writes its output from its input, with nothing between."""

JAX = BackendProfile(
    "jax",
    MappingProxyType(
        {
            "all_gather": Staging(of_input=1.0, of_output=1.0),
            "all_to_all": Staging(of_input=1.0, of_output=1.0),
            "exchange": Staging(of_input=1.0, of_output=2.0),
            "reduce_scatter": Staging(of_input=2.0),
            "all_reduce": Staging(of_input=2.0),
        }
    ),
    uneven=False,
    native_exchange=False,
)
"""XLA on CPU, by what its compiler reports for random plans (`tests/collectives/backends/jax`)."""

MPI = BackendProfile(
    "mpi",
    MappingProxyType(
        {
            "all_gather": Staging(of_output=1.0),
            "all_to_all": Staging(of_input=1.0, of_output=1.0),
            "exchange": Staging(of_input=1.0, of_output=1.0),
            "reduce_scatter": Staging(of_input=1.0, of_output=1.0),
            "all_reduce": Staging(of_output=1.0),
        }
    ),
)
"""Boxes that are not contiguous are packed; MPICH's reductions allocate a result of their own. Held against
what ranks have resident (`tests/collectives/backends/mpi`)."""

PROFILES: Mapping[str, BackendProfile] = MappingProxyType({p.name: p for p in (NUMPY, JAX, MPI)})


def profile_of(backend: str) -> BackendProfile:
    """The profile of a backend by name. Raises BackendError for an unknown one."""
    try:
        return PROFILES[backend]
    except KeyError:
        raise BackendError(f"unknown backend '{backend}'; use one of {', '.join(PROFILES)}") from None

"""mpi4py, imported when it is first needed: importing it initialises MPI."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from redist.errors import BackendError

__all__ = ["mpi"]


@lru_cache(maxsize=1)
def mpi() -> Any:
    """The module `mpi4py.MPI`. Raises BackendError where it is not installed or finds no MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise BackendError(f"mpi4py cannot be used ({error}); pip install 'redist[mpi]'") from None
    return MPI

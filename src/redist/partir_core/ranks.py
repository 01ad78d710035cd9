"""The ranks that run a program: do they fit its mesh, and do all of them mean the same?"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from redist.collectives.backends.mpi.agreement import Agreement, RefusalError
from redist.collectives.backends.mpi.groups import Communicators, communicators
from redist.collectives.backends.mpi.prepare import intracommunicator
from redist.collectives.backends.mpi.runtime import mpi
from redist.errors import BackendError
from redist.types.mesh import Mesh

__all__ = ["Signature", "agreed", "digest_of", "raised", "ranks_of"]

Signature = Sequence[str]
"""What ranks compare: inputs and what they do together, one entry each."""


def ranks_of(comm: Any, mesh: Mesh) -> Communicators:
    """What is kept with the communicator (`MPI.COMM_WORLD` for None); device d of the mesh is rank d.

    Raises BackendError, on all ranks of it, for a communicator that is not made of the mesh's devices.
    """
    comm = intracommunicator(mpi().COMM_WORLD if comm is None else comm)
    ids = sorted(mesh.device_ids)
    if ids != list(range(mesh.size)):
        raise BackendError(
            f"the mesh {mesh} has devices {_listed(ids)}, and device d is rank d: number them from 0 to "
            f"{mesh.size - 1}, in any order"
        )
    if mesh.size != comm.size:
        raise BackendError(
            f"the mesh {str(mesh) or 'of one device'} has {mesh.size} devices, and the communicator {comm.size} ranks; "
            f"start {mesh.size} (mpiexec -n {mesh.size}), or pass comm=, a communicator of as many, to partir.jit"
        )
    return communicators(comm)


def _listed(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:8]))
    return shown if len(ids) <= 8 else f"{shown} and {len(ids) - 8} more"


def agreed(base: Any, name: str, signature: Signature, digest: int, error: Exception | None) -> None:
    """Return where no rank has an error and all have the same `digest`; else raise the same on every rank."""
    ends = np.asarray([digest, -digest, error is not None], dtype=np.int64)
    base.Allreduce(mpi().IN_PLACE, ends, op=mpi().MAX)
    if ends[2]:
        try:
            Agreement(base, error).settle(f"{name} has not been run. ")
        except RefusalError as refused:
            raised(refused, error)
    if ends[0] == -ends[1]:
        return
    digests = base.allgather(digest)
    first = base.bcast(list(signature))
    mine = next((n for n, (one, other) in enumerate(zip(first, signature, strict=False)) if one != other), None)
    if mine is None and len(first) != len(signature):
        mine = min(len(first), len(signature))
    theirs = base.allgather(None if mine is None else (mine, *signature[mine : mine + 1]))
    rank, (place, *other) = next((rank, found) for rank, found in enumerate(theirs) if found is not None)
    differ = [rank for rank, one in enumerate(digests) if one != digests[0]]
    here, there = [*first[place : place + 1], "nothing more"][0], [*other, "nothing more"][0]
    raise BackendError(
        f"ranks {differ} call another program than rank 0, and {name} has not been run: rank {rank} has {there}, "
        f"rank 0 {here}; pass arguments of the same shapes and layouts, static arguments, mesh and schedule on "
        "all ranks"
    )


def raised(refused: RefusalError, error: Exception | None) -> NoReturn:
    """Raise what ranks agreed on; a rank's own error is its cause."""
    if error is None or refused.error is error:
        raise refused.error
    raise refused.error from error


def digest_of(signature: Signature) -> int:
    """A number that tells signatures apart."""
    return int.from_bytes(hashlib.sha256("\n".join(signature).encode()).digest()[:7])

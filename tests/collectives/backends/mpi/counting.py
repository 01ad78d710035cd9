"""A communicator that counts the bytes of others that this rank's MPI calls receive."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np


class Counting:
    """Stands in for an mpi4py communicator; so do the communicators made from it, into one tally.

    Counted is what the definition of a call makes a rank receive from others: what is addressed to itself
    is not, a reduce-scatter of pieces of n bytes among k counts (k - 1) n, an all-reduce 2 (k - 1) n / k,
    which may be a fraction.
    """

    def __init__(self, comm: Any, tally: list[Fraction] | None = None) -> None:
        self._comm = comm
        self.tally = [Fraction(0)] if tally is None else tally

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def _wrapped(self, comm: Any) -> Any:
        from mpi4py import MPI

        return comm if comm == MPI.COMM_NULL else Counting(comm, self.tally)

    def Dup(self) -> Any:
        return self._wrapped(self._comm.Dup())

    def Split(self, color: int, key: int) -> Any:
        return self._wrapped(self._comm.Split(color, key))

    def _others(self, counts: Any, sizes: Any) -> None:
        self.tally[0] += sum(
            count * size
            for peer, (count, size) in enumerate(zip(counts, sizes, strict=True))
            if peer != self._comm.rank
        )

    def Ialltoallv(self, sent: Any, received: Any) -> Any:
        self._others(received[1], [1] * self._comm.size)
        return self._comm.Ialltoallv(sent, received)

    def Ialltoallw(self, sent: Any, received: Any) -> Any:
        self._others(received[1], [kind.Get_size() for kind in received[3]])
        return self._comm.Ialltoallw(sent, received)

    def Iallgatherv(self, sent: Any, received: Any) -> Any:
        self._others(received[1], [1] * self._comm.size)
        return self._comm.Iallgatherv(sent, received)

    def Alltoallv(self, sent: Any, received: Any) -> None:
        self.Ialltoallv(sent, received).Wait()

    def Alltoallw(self, sent: Any, received: Any) -> None:
        self.Ialltoallw(sent, received).Wait()

    def Reduce_scatter(self, sent: Any, received: Any, counts: Any, op: Any) -> None:
        self.Ireduce_scatter(sent, received, counts, op).Wait()

    def Allreduce(self, sent: Any, received: Any, op: Any) -> None:
        self.Iallreduce(sent, received, op).Wait()

    def Irecv(self, what: Any, source: int, tag: int) -> Any:
        assert source != self._comm.rank
        self.tally[0] += what[1] * what[2].Get_size()
        return self._comm.Irecv(what, source, tag)

    def Ireduce_scatter(self, sent: Any, received: Any, counts: Any, op: Any) -> Any:
        self.tally[0] += (self._comm.size - 1) * received[1] * received[2].Get_size()
        return self._comm.Ireduce_scatter(sent, received, counts, op=op)

    def Iallreduce(self, sent: Any, received: Any, op: Any) -> Any:
        if not isinstance(received, np.ndarray):  # what ranks agree on is no data
            k = self._comm.size
            self.tally[0] += Fraction(2 * (k - 1) * received[1] * received[2].Get_size(), k)
        return self._comm.Iallreduce(sent, received, op=op)

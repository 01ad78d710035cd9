"""Communicators of groups of ranks, made once per communicator and grouping, and freed with it.

All traffic goes over a duplicate of the caller's communicator, so that it never meets the caller's own
messages. Making and freeing are collective over the caller's communicator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.mpi.geometry import Grouping
from redist.collectives.backends.mpi.runtime import mpi

if TYPE_CHECKING:
    from redist.collectives.backends.mpi.pending import Pending

__all__ = ["Communicators", "communicators", "release"]

_MOST = 64
"""Groupings that stay cached though no open transfer uses them."""


@dataclass(slots=True)
class Communicators:
    """The duplicate of a communicator, and those of its groupings: the rank's own group, None where it
    is in none. `users` counts open transfers per grouping on this rank. `transfers` are those kept by plan,
    for programs that run them again and again; `under_way` are executions that have begun."""

    base: Any
    groups: dict[Grouping, Any] = field(default_factory=dict[Grouping, Any])
    users: dict[Grouping, int] = field(default_factory=dict[Grouping, int])
    transfers: dict[Any, Any] = field(default_factory=dict[Any, Any])
    under_way: list[Pending] = field(default_factory=list["Pending"])

    def begins(self, pending: Pending) -> None:
        """An execution has begun."""
        self.under_way.append(pending)

    def ends(self, pending: Pending) -> None:
        """An execution is over, or all its communication has begun."""
        if pending in self.under_way:
            self.under_way.remove(pending)

    def in_order(self) -> None:
        """Wait until all communication of what is under way has begun. MPI matches what ranks do over a
        communicator by order, and how far `test` has come differs between ranks."""
        while self.under_way:
            self.under_way[0].post_all()
            self.under_way.pop(0)

    def acquire(self, groupings: tuple[Grouping, ...]) -> dict[Grouping, Any]:
        """The rank's communicator per grouping; collective, with the same groupings on all ranks."""
        for grouping in groupings:
            self.users[grouping] = self.users.get(grouping, 0) + 1
            made = self.groups.pop(grouping, _ABSENT)
            self.groups[grouping] = self._make(grouping) if made is _ABSENT else made  # the latest is last
        self._evict()
        return {grouping: self.groups[grouping] for grouping in groupings}

    def give_back(self, groupings: tuple[Grouping, ...]) -> None:
        """They are used no more by one transfer. Not collective: frees nothing."""
        for grouping in groupings:
            self.users[grouping] -= 1

    def _make(self, grouping: Grouping) -> Any:
        if grouping == (tuple(range(self.base.size)),):
            return self.base
        rank = self.base.rank
        mine = [(color, group.index(rank)) for color, group in enumerate(grouping) if rank in group]
        color, key = mine[0] if mine else (mpi().UNDEFINED, 0)
        made = self.base.Split(color, key)
        return made if mine else None

    def _evict(self) -> None:
        surplus = len(self.groups) - _MOST
        if surplus <= 0:
            return
        order = list(self.groups)
        idle = np.asarray([not self.users.get(grouping) for grouping in order], dtype=np.uint8)
        self.base.Allreduce(mpi().IN_PLACE, idle, op=mpi().BAND)  # collections of garbage differ between ranks
        for grouping in [g for g, unused in zip(order, idle, strict=True) if unused][:surplus]:
            self._free(self.groups.pop(grouping))

    def _free(self, group: Any) -> None:
        if group is not None and group is not self.base:
            group.Free()

    def free(self) -> None:
        """Free all of them; collective."""
        for transfer in self.transfers.values():
            transfer.close()
        self.transfers.clear()
        for group in self.groups.values():
            self._free(group)
        self.groups.clear()
        self.base.Free()


_ABSENT = object()


@lru_cache(maxsize=1)
def _key() -> int:
    def freed(_: Any, __: int, cached: Communicators) -> None:
        if not mpi().Is_finalized():
            cached.free()

    return mpi().Comm.Create_keyval(delete_fn=freed)


def communicators(comm: Any) -> Communicators:
    """Those kept with a communicator, whose ranks are about to use them: collective. They are made when they are
    first asked for, and freed when it is."""
    found = comm.Get_attr(_key())
    if found is None:
        found = Communicators(comm.Dup())
        comm.Set_attr(_key(), found)
    found.in_order()
    return found


def release(comm: Any) -> None:
    """Free what redist keeps with a communicator: its duplicate, and those of groups. Collective; no
    transfer over it may be open but those of partitioned programs. What is released is made anew when it is
    needed again."""
    if comm.Get_attr(_key()) is not None:
        comm.Delete_attr(_key())

"""One memory limit for many arrays: in which order they move, and what each move may take.

While one array moves, those that have moved are there as results (and as sources, unless donated), and
those still to move as sources. Donated, an array that shrinks makes room: those come first, the ones with
the smallest hump before the others; then those that grow, the largest hump above the result first. This
order has the least peak (R. Sethi, complete register allocation problems; Abdel-Wahab and Kameda 1978).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redist.errors import InfeasibleError

__all__ = ["Need", "allotted"]


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes per device: of the source, of the result, and at the peak of the smallest plan between them
    (the source among it)."""

    source: int
    target: int
    smallest: int


def allotted(needs: Sequence[Need], limit: int, donate: bool, beside: int = 0) -> list[tuple[int, int]]:
    """(which array, bytes that its move may take) in the order of moving; `beside` bytes are there throughout.

    Raises InfeasibleError with the smallest feasible limit, by this order, where a move fits in no way.
    """
    order = sorted(range(len(needs)), key=lambda n: _place(needs[n], donate))
    waiting = sum(need.source for need in needs)
    done = beside
    found: list[tuple[int, int]] = []
    smallest = 0
    for n in order:
        need = needs[n]
        waiting -= need.source
        found.append((n, limit - waiting - done))
        smallest = max(smallest, waiting + done + need.smallest)
        done += need.target + (0 if donate else need.source)
    if smallest > limit:
        raise InfeasibleError(
            f"{len(needs)} arrays do not move within {limit} bytes per device; the smallest feasible limit is "
            f"{smallest} bytes" + ("" if donate else " (donating the sources may lower it)"),
            smallest,
        )
    return found


def _place(need: Need, donate: bool) -> tuple[bool, int]:
    """Where in the order, by what the move adds at its peak and what it leaves behind."""
    hump = need.smallest - need.source
    left = need.target - (need.source if donate else 0)
    return (left > 0, hump if left <= 0 else left - hump)

"""A lower bound in seconds on what a route still has to do from given digit lists.

What must still be received comes over the fastest link; of it what no device at the same place on the
slowest axis holds comes over the slowest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from redist.collectives.topology import Link, exchange_rate
from redist.synth.prices import Prices
from redist.synth.problem import Lists, Problem
from redist.synth.search import still_to_move

__all__ = ["Remaining"]


@dataclass(frozen=True, slots=True)
class Remaining:
    """Paces are seconds per element; `slow` digits lie along the slowest links, `beside` devices have the same place
    along them."""

    problem: Problem
    target_block: int
    slow: frozenset[int]
    beside: int
    slow_pace: float
    fast_pace: float
    exchange_pace: float
    latency: float
    shared: bool

    @staticmethod
    def of(problem: Problem, prices: Prices) -> Remaining:
        """The bound for this problem at these prices."""
        used = [d for d in range(len(prices.links)) if d not in problem.held]
        links = [prices.links[d] for d in used] or [Link()]
        item = prices.itemsize
        paces = [item * _pace(link) for link in prices.links]
        slowest, fastest = max((paces[d] for d in used), default=0.0), min((paces[d] for d in used), default=0.0)
        slow = frozenset(d for d, pace in enumerate(paces) if pace == slowest > fastest)
        per_item = (
            item * exchange_rate(((replace(prices.links[d], latency=0.0, peer_latency=0.0), problem.sizes[d]),))[1]
            for d in used
        )
        # Of the two dimensions between which an all-to-all moves, one is not the first, and is packed or unpacked.
        copied = (
            item / prices.copies.bandwidth if problem.shape and problem.shape[0] > math.prod(problem.sizes) else 0.0
        )
        return Remaining(
            problem,
            problem.block(problem.target),
            slow,
            problem.count(d for d in range(len(prices.links)) if d not in slow),
            slowest,
            fastest,
            min(per_item, default=0.0) + copied,
            min(link.latency + link.peer_latency for link in links),
            all(link.kind == "memory" for link in links),
        )

    def seconds(self, lists: Lists) -> float:
        """What moves and gathers from these lists take at least."""
        problem = self.problem
        if lists == problem.target:
            return 0.0
        block = problem.block(lists)
        moves = still_to_move(problem, lists, block)
        gathered = max(0, self.target_block - block)
        slow = min(max(0, moves + gathered), self._from_outside(lists)) if self.slow else 0
        seconds = slow * self.slow_pace + max(0, moves + gathered - slow) * self.fast_pace
        if any(problem.count(a) % problem.count(b) for a, b in zip(lists, problem.target, strict=True)):
            # Neither a permute nor a gather changes which dimensions are cut: an all-to-all has to.
            seconds = max(seconds, block * self.exchange_pace + gathered * self.fast_pace)
        if gathered and self.shared:
            seconds += block * self.fast_pace
        return seconds + self.latency * max(1, (moves > 0) + (gathered > 0))

    def after_a_move(self, block: int) -> float:
        """What is left at least when a move has left blocks of so many elements, whatever their lists."""
        return self._receiving(max(0, self.target_block - block))

    def in_all(self, elements: int) -> float:
        """What any route takes at least by which a device has to receive so many elements."""
        slow = min(elements, self._from_outside(self.problem.source)) if self.slow else 0
        return slow * (self.slow_pace - self.fast_pace) + self._receiving(elements)

    def _receiving(self, elements: int) -> float:
        return elements * self.fast_pace + self.latency if elements else 0.0

    def of_a_permute(self, block: int) -> float:
        """What a permute of blocks of so many elements takes at least."""
        return self._receiving(block)

    def _from_outside(self, lists: Lists) -> int:
        """Elements that enter the devices at one place on the slow axes, per device: of what these devices
        need together, a slow digit that shards elsewhere in the target (or no more) leaves them 1/size."""
        ours, theirs = self._slow_places(lists), self._slow_places(self.problem.target)
        needed = math.prod(self.problem.shape) // self.problem.count(theirs)
        share = 1
        for d, (i, before) in ours.items():
            if d not in theirs or theirs[d][0] != i:
                share *= self.problem.sizes[d]
            elif theirs[d][1] != before and before % theirs[d][1] and theirs[d][1] % before:
                return 0  # digits of one dimension that do not nest may depend on each other
            elif theirs[d][1] != before:
                share *= self.problem.sizes[d]
        missing = needed - -(-needed // share)
        return missing // self.beside

    def _slow_places(self, lists: Lists) -> dict[int, tuple[int, int]]:
        """(dimension, blocks before it) of every slow digit that shards."""
        places: dict[int, tuple[int, int]] = {}
        for i, digits in enumerate(lists):
            before = 1
            for d in digits:
                if d in self.slow:
                    places[d] = (i, before)
                before *= self.problem.sizes[d]
        return places


def _pace(link: Link) -> float:
    """Seconds per byte over a link, in the collective that uses it best."""
    return min(1.0, link.exchange_slowdown) / link.bandwidth

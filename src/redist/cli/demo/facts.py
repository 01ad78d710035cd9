"""What the demo finds out, as plain data: what its text says, and what `--json` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import comb
from statistics import median, quantiles

__all__ = ["Case", "Facts", "Memory", "Spread", "spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of repeated measurements.

    `sure_low` and `sure_high` hold the true median between them with 99% confidence, whatever the
    distribution (by order statistics); None for fewer than 8 rounds, which cannot say that.
    """

    median: float
    low: float
    high: float
    rounds: int
    sure_low: float | None = None
    sure_high: float | None = None


def spread(values: list[float]) -> Spread:
    """Summary of at least one measurement."""
    if len(values) < 2:
        return Spread(values[0], values[0], values[0], len(values))
    low, _, high = quantiles(values, n=4, method="inclusive")
    ordered, rank = sorted(values), _sure_rank(len(values))
    sure = (None, None) if rank is None else (ordered[rank], ordered[-1 - rank])
    return Spread(median(values), low, high, len(values), *sure)


def _sure_rank(count: int) -> int | None:
    """The largest r such that fewer than 0.5% of samples have more than count - 1 - r values on one side of
    the median."""
    tail, rank = 0.0, None
    for r in range(count):
        tail += comb(count, r) / 2**count
        if tail > 0.005:
            break
        rank = r
    return rank


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per device of one compiled program, as the compiler states them."""

    argument_bytes: int
    output_bytes: int
    temporary_bytes: int

    @property
    def peak_bytes(self) -> int:
        """All three together."""
        return self.argument_bytes + self.output_bytes + self.temporary_bytes


@dataclass(frozen=True, slots=True)
class Case:
    """Arrays of one shape with one source and one target; bytes are per device and array.

    `ratio` is XLA's time over redist's, round by round.
    """

    names: tuple[str, ...]
    source: str
    target: str
    steps: tuple[str, ...]
    received_bytes: int
    lower_bound_bytes: int
    projected_peak_bytes: int
    memory: Memory
    seconds: Spread
    xla_steps: tuple[str, ...]
    xla_received_bytes: int | None
    xla_memory: Memory
    xla_seconds: Spread
    ratio: Spread


@dataclass(frozen=True, slots=True)
class Facts:
    """The whole move; bytes are of the busiest device, over all arrays."""

    model: str
    arrays: int
    parameters: int
    total_bytes: int
    source_mesh: str
    target_mesh: str
    devices: int
    cores: int
    jax: str
    checked_elements: int
    wrong_elements: int
    received_bytes: int
    lower_bound_bytes: int
    xla_received_bytes: int | None
    seconds: Spread
    xla_seconds: Spread
    ratio: Spread
    cases: tuple[Case, ...] = field(default=())
    wall_seconds: float = 0.0

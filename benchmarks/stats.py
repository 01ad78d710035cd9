"""Statistics for noisy machines: paired rounds, medians, bootstrap intervals, and what counts as a loss.

A ratio is a speedup: how many times faster than the base. No claim rests on a single ratio: an interval
that crosses 1 is a tie, and a loss is an interval wholly below 0.95.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LOSS",
    "Interval",
    "Verdict",
    "bootstrap",
    "geometric_mean",
    "geometric_mean_interval",
    "paired_speedup",
    "verdict",
]

LOSS = 0.95
"""An interval wholly below this is a loss."""

Verdict = Literal["win", "tie", "behind", "loss"]
"""`behind`: wholly below 1, but not below `LOSS`."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the interval around it, 95% unless said otherwise."""

    point: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.point:.3f} [{self.low:.3f}, {self.high:.3f}]"


def geometric_mean(ratios: Sequence[float]) -> float:
    """exp of the mean logarithm; 1 for none. Raises ValueError for a ratio that is not positive."""
    if any(ratio <= 0 for ratio in ratios):
        raise ValueError(f"ratios are positive, not {min(ratios)}")
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0


def bootstrap(
    values: Sequence[float],
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    seed: int,
    confidence: float = 0.95,
    samples: int = 2000,
) -> Interval:
    """Percentile interval of a statistic, by drawing as many values anew with replacement.

    `statistic` maps an array (samples, values) to one number per sample. One value has no spread to
    draw from: its interval is (0, inf). Raises ValueError for none.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.size == 0:
        raise ValueError("there is nothing to draw from")
    point = float(statistic(given[None, :])[0])
    if given.size == 1:
        return Interval(point, 0.0, math.inf)
    drawn = np.random.default_rng(seed).integers(0, given.size, size=(samples, given.size))
    spread = statistic(given[drawn])
    tail = (1 - confidence) / 2
    low, high = np.quantile(spread, [tail, 1 - tail])
    return Interval(point, float(low), float(high))


def paired_speedup(base: Sequence[float], other: Sequence[float], seed: int) -> Interval:
    """How many times faster `other` is than `base`: the median of the ratios of rounds run side by side.

    Round n of both must have been run next to each other, so that what slows the machine slows both.
    Raises ValueError for a different number of rounds.
    """
    ratios = [b / o for b, o in zip(base, other, strict=True)]
    return bootstrap(ratios, lambda rounds: np.median(rounds, axis=1), seed)


def geometric_mean_interval(ratios: Sequence[float], seed: int) -> Interval:
    """Geometric mean over problems, and its interval from drawing problems anew."""
    geometric_mean(ratios)  # refuses what has no logarithm
    return bootstrap(ratios, lambda drawn: np.exp(np.log(drawn).mean(axis=1)), seed)


def verdict(interval: Interval) -> Verdict:
    """What a speedup's interval lets one say."""
    if interval.low > 1:
        return "win"
    if interval.high >= 1:
        return "tie"
    return "loss" if interval.high < LOSS else "behind"

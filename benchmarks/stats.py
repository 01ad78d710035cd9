"""Statistics for noisy machines: paired rounds, medians, bootstrap intervals, and what counts as a loss.

A ratio is a speedup: how many times faster than the base. No claim rests on a single ratio: an interval
that crosses 1 is a tie, and a loss is an interval wholly below 0.95.

Rounds within one process share what that process happened to be given: where its arrays lie in memory, how its
threads were placed. They agree with one another and may all be wrong together. So a ratio is measured in several
processes, and its interval is drawn from processes first and from their rounds second.
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
    "between_processes",
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


def paired_speedup(
    base: Sequence[float], other: Sequence[float], seed: int, processes: Sequence[int] | None = None
) -> Interval:
    """How many times faster `other` is than `base`, from ratios of rounds run side by side.

    Round n of both must have been run next to each other, so that what slows the machine slows both.
    `processes` says how many of the rounds each process ran, one process after another; None for one process.
    Raises ValueError for a different number of rounds.
    """
    ratios = [b / o for b, o in zip(base, other, strict=True)]
    sizes = list(processes or [len(ratios)])
    if sum(sizes) != len(ratios):
        raise ValueError(f"{len(ratios)} rounds are not those of processes with {sizes} rounds")
    ends = np.cumsum(sizes)
    groups = [ratios[end - size : end] for size, end in zip(sizes, ends.tolist(), strict=True)]
    return between_processes(groups, seed) if len(groups) > 1 else _within(groups[0], seed)


def _within(ratios: Sequence[float], seed: int) -> Interval:
    return bootstrap(ratios, lambda rounds: np.median(rounds, axis=1), seed)


def between_processes(
    groups: Sequence[Sequence[float]], seed: int, confidence: float = 0.95, samples: int = 2000
) -> Interval:
    """Geometric mean of the processes' median ratios, and its percentile interval by drawing processes with
    replacement and then, from each that was drawn, its rounds (A. C. Davison and D. V. Hinkley, Bootstrap methods and
    their application, 1997, section 3.8).

    With two or three processes each is drawn alone in more samples than a tail holds: the interval reaches what every
    single process says, and lies below (or above) a value only if all of them do. Raises ValueError for a process
    without rounds, and for ratios that are not positive.
    """
    if not groups or not all(groups):
        raise ValueError("there is nothing to draw from")
    for group in groups:
        geometric_mean(group)  # refuses what has no logarithm
    count, rng = len(groups), np.random.default_rng(seed)
    drawn = rng.integers(0, count, size=(samples, count))
    medians = np.empty((samples, count))
    for n, group in enumerate(groups):
        values = np.asarray(group, dtype=np.float64)
        at = np.argwhere(drawn == n)
        rounds = values[rng.integers(0, values.size, size=(len(at), values.size))]
        medians[at[:, 0], at[:, 1]] = np.median(rounds, axis=1)
    spread = np.exp(np.log(medians).mean(axis=1))
    tail = (1 - confidence) / 2
    low, high = np.quantile(spread, [tail, 1 - tail])
    return Interval(geometric_mean([float(np.median(group)) for group in groups]), float(low), float(high))


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

"""Statistics against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.stats import (
    LOSS,
    Interval,
    between_processes,
    bootstrap,
    geometric_mean,
    geometric_mean_interval,
    paired_speedup,
    verdict,
)


def test_geometric_mean() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([2.0, 2.0, 16.0]) == pytest.approx(4.0)  # 64 ** (1 / 3)
    assert geometric_mean([]) == 1.0
    with pytest.raises(ValueError, match="ratios are positive, not -1"):
        geometric_mean([1.0, -1.0])


def test_paired_speedup_is_the_median_of_the_rounds_ratios() -> None:
    found = paired_speedup([2.0, 4.0, 9.0], [1.0, 4.0, 3.0], seed=0)  # ratios 2, 1, 3
    assert found.point == 2.0
    assert 1.0 <= found.low <= 2.0 <= found.high <= 3.0


def test_pairing_cancels_what_slows_both() -> None:
    load = [1.0, 10.0, 3.0, 7.0, 100.0, 2.0]
    found = paired_speedup([2 * x for x in load], load, seed=0)
    assert (found.point, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_rounds_must_pair() -> None:
    with pytest.raises(ValueError):
        paired_speedup([1.0, 2.0], [1.0], seed=0)


def test_bootstrap_of_equal_values_has_no_width() -> None:
    found = geometric_mean_interval([1.25] * 8, seed=3)
    assert (found.point, found.low, found.high) == pytest.approx((1.25, 1.25, 1.25))


def test_bootstrap_of_two_values() -> None:
    """Both drawn twice come up with probability 1/4 each, beyond either 2.5% tail: the interval is the range."""
    found = geometric_mean_interval([1.0, 4.0], seed=1)
    assert (found.low, found.point, found.high) == pytest.approx((1.0, 2.0, 4.0))


def test_bootstrap_mean_against_the_binomial() -> None:
    """Of 16 values 0 or 1, half each, the mean drawn anew is binomial: 4/16 has a lower tail of 0.0384 and 3/16
    one of 0.0106, so that the 2.5% quantile is 4/16, and by symmetry the upper one 12/16."""
    found = bootstrap([0.0, 1.0] * 8, lambda drawn: drawn.mean(axis=1), seed=5, samples=20000)
    assert (found.low, found.point, found.high) == pytest.approx((4 / 16, 0.5, 12 / 16))


def test_bootstrap_is_reproducible_and_follows_its_confidence() -> None:
    values = [1.0, 1.1, 0.9, 1.3, 0.8, 1.05]
    first, again = (geometric_mean_interval(values, seed=7) for _ in range(2))
    assert first == again
    wide = bootstrap(values, lambda d: d.mean(axis=1), seed=7, confidence=0.99)
    narrow = bootstrap(values, lambda d: d.mean(axis=1), seed=7, confidence=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_one_value_says_nothing_about_its_spread() -> None:
    assert bootstrap([2.0], lambda d: d.mean(axis=1), seed=0) == Interval(2.0, 0.0, math.inf)
    with pytest.raises(ValueError, match="nothing to draw from"):
        bootstrap([], lambda d: d.mean(axis=1), seed=0)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (1.01, 1.5, "win"),
        (1.0, 1.5, "tie"),
        (0.5, 1.5, "tie"),
        (0.9, 1.0, "tie"),
        (0.9, 0.99, "behind"),
        (0.8, LOSS, "behind"),
        (0.8, 0.949, "loss"),
    ],
)
def test_verdicts(low: float, high: float, says: str) -> None:
    assert verdict(Interval((low + high) / 2, low, high)) == says


def test_intervals_of_a_tie_rarely_claim_a_loss() -> None:
    """The same noise on both sides, 300 problems of 15 rounds: hardly any loss may be claimed."""
    rng = np.random.default_rng(11)
    times = rng.lognormal(sigma=0.08, size=(300, 2, 15))
    says = [verdict(paired_speedup(base.tolist(), other.tolist(), seed=n)) for n, (base, other) in enumerate(times)]
    assert says.count("loss") <= 9  # 3%
    assert says.count("tie") >= 255  # 85%


def test_processes_are_averaged_by_their_medians() -> None:
    """Medians 2, 8 and 4; each process is drawn three times in a row with probability 1/27, beyond either tail."""
    found = between_processes([[2.0, 2.0, 1.0], [8.0], [4.0, 4.0, 4.0, 9.0]], seed=0)
    assert found.point == pytest.approx(4.0)
    assert found.low <= 2.0 and found.high == pytest.approx(8.0)


def test_two_processes_that_disagree_are_a_tie() -> None:
    """Each is certain by itself; drawn twice with probability 1/4, it is within the interval."""
    slow, fast = [0.8] * 8, [1.25] * 8
    assert [verdict(paired_speedup(rounds, [1.0] * 8, seed=0)) for rounds in (slow, fast)] == ["loss", "win"]
    both = paired_speedup(slow + fast, [1.0] * 16, seed=0, processes=[8, 8])
    assert (both.low, both.point, both.high) == pytest.approx((0.8, 1.0, 1.25))


def test_rounds_are_those_of_the_processes() -> None:
    rounds = [2.0, 4.0, 9.0, 1.0]
    assert paired_speedup(rounds, [1.0] * 4, seed=3, processes=[4]) == paired_speedup(rounds, [1.0] * 4, seed=3)
    with pytest.raises(ValueError, match=r"4 rounds are not those of processes with \[2, 3\] rounds"):
        paired_speedup(rounds, [1.0] * 4, seed=0, processes=[2, 3])
    with pytest.raises(ValueError, match="nothing to draw from"):
        between_processes([[1.0], []], seed=0)
    with pytest.raises(ValueError, match="ratios are positive"):
        between_processes([[1.0], [-1.0]], seed=0)


def claims(truth: float, counts: list[int], problems: int = 400) -> dict[str, float]:
    """Shares of verdicts where a process shifts all its ratios by about 5%, and a round by another 5%."""
    rng = np.random.default_rng(5)
    said: list[str] = []
    for n in range(problems):
        shifts = rng.lognormal(sigma=0.05, size=len(counts))
        ratios = [x for k, s in zip(counts, shifts, strict=True) for x in truth * s * rng.lognormal(sigma=0.05, size=k)]
        said.append(verdict(paired_speedup(ratios, [1.0] * len(ratios), seed=n, processes=counts)))
    return {name: said.count(name) / problems for name in ("win", "tie", "behind", "loss")}


def test_what_processes_do_to_ties_losses_and_wins_whose_truth_is_known() -> None:
    """Equal programs: 24 rounds of one process claim losses that eight rounds of each of three do not, nor wins,
    one as seldom as the other; true losses and wins are found all the same."""
    alone, three = claims(1.0, [24]), claims(1.0, [8, 8, 8])
    assert alone["loss"] > 0.05 and alone["win"] > 0.2
    assert three["loss"] <= 0.01 and three["win"] <= 0.15
    assert abs(three["win"] - three["behind"] - three["loss"]) <= 0.06
    assert claims(0.75, [8, 8, 8])["loss"] >= 0.95
    assert claims(1 / 0.75, [8, 8, 8])["win"] >= 0.95

"""Every rule: computing on tiles, and putting the results together by the factors' kinds, gives the whole."""

from __future__ import annotations

import zlib
from random import Random
from typing import Any

import pytest

jax: Any = pytest.importorskip("jax")

from opcases.check import check, check_cut, rule_for  # noqa: E402
from opcases.examples import EXAMPLES, Draw  # noqa: E402
from opcases.operations import Operation, operations_of  # noqa: E402

from redist.partir_core.rules import Factor, FactorKind, Rule, Tile, families  # noqa: E402
from redist.partir_core.rules.local import Local  # noqa: E402

NAMES = [f"{sum(other == names for other, _ in EXAMPLES[:n])}-{names}" for n, (names, _) in enumerate(EXAMPLES)]


def operations(n: int, seed: int) -> list[Operation]:
    """What the example performs, of the primitives that it is for.

    Shapes are drawn again where JAX performs nothing, such as for a transposition that changes no order.
    """
    names, maker = EXAMPLES[n]
    wanted = names.split()
    for attempt in range(20):
        function, args = maker(Draw(Random(zlib.crc32(NAMES[n].encode()) + 100 * seed + attempt)))
        found = [operation for operation in operations_of(function, *args) if operation.name in wanted]
        if {operation.name for operation in found} == set(wanted):
            return found
    raise AssertionError(f"{names} did not come up")


@pytest.mark.parametrize("n", range(len(EXAMPLES)), ids=NAMES)
def test_tiles_make_the_whole(n: int) -> None:
    """Random shapes, each factor and pairs of factors, with traced and with plain indices."""
    for operation in operations(n, 0):
        most = {"elementwise": 1, "linear algebra": 3, "random": 2}.get(families()[operation.name].family, 6)
        check(operation, Random(n), pairs=1, all_divisors=False, most_cuts=most)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("n", range(len(EXAMPLES)), ids=NAMES)
def test_tiles_make_the_whole_for_many_shapes(n: int, seed: int) -> None:
    """The same, all divisors, more pairs, more shapes; what is elementwise has few kinds of cut."""
    for operation in operations(n, seed):
        most = 6 if families()[operation.name].family == "elementwise" else 100
        check(operation, Random(seed), pairs=4, most_cuts=most)


def test_every_primitive_with_a_rule_has_an_example() -> None:
    """No rule goes untested."""
    shown = {name for names, _ in EXAMPLES for name in names.split()}
    assert set(families()) - shown == set()


def test_where_a_tile_starts() -> None:
    """A dimension of two factors: the second of three blocks of 4, and in it the second half."""
    factors = (Factor(3, FactorKind.PARALLEL), Factor(4, FactorKind.PARALLEL))
    rule = Rule(factors, (((0, 1),),), (((0, 1),),))
    local = Local(None, {}, rule, {0: Tile(3, 1), 1: Tile(2, 1)}, ())
    assert (local.start((0, 1)), local.size((0, 1))) == (6, 2)


def test_iota_counts_before_it_rounds() -> None:
    """603 is no bfloat16, and the sum of two rounded numbers is not the rounded sum."""
    (operation,) = operations_of(lambda: jax.lax.iota("bfloat16", 1206))
    check_cut(operation, rule_for(operation), operation.run(), {0: 2}, Random(0))

"""Lemmas of the calculus, for all sizes. Each docstring is the statement; a wrong variant of it is refuted beside.

Digits: a device has coordinate x on an axis of size n; a dimension over axes A, then x (major to minor) with
blocks of b elements starts at (A*n + x)*b, where A is the mixed-radix index over the axes before. Sizes are
variables unless a test says "bounded". Sources: arXiv 2112.01075 section 4; normal form by rewriting.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

z3 = pytest.importorskip("z3")
And, Implies, Not, Or = z3.And, z3.Implies, z3.Not, z3.Or


def ints(names: str) -> list[Any]:
    """Integer variables."""
    return [z3.Int(name) for name in names.split()]


def verdict(assumptions: Any, claim: Any) -> str:
    """`proved` where no values of the variables satisfy the assumptions and not the claim."""
    for tactic in (z3.Solver, lambda: z3.Tactic("qfnia").solver()):
        solver = tactic()
        solver.set("timeout", 20000)
        solver.add(*assumptions, Not(claim))
        found = str(solver.check())
        if found != "unknown":
            return {"unsat": "proved", "sat": "refuted"}[found]
    return "unknown"


def lemma(assumptions: list[Any], claim: Any) -> None:
    """Prove it, and see that the assumptions can hold."""
    solver = z3.Solver()
    solver.set("timeout", 20000)
    solver.add(*assumptions)
    assert str(solver.check()) == "sat", "the lemma is vacuous"
    assert verdict(assumptions, claim) == "proved"


def control(assumptions: list[Any], claim: Any) -> None:
    """A statement that looks like it and is wrong."""
    assert verdict(assumptions, claim) == "refuted"


def digit(x: Any, n: Any) -> Any:
    """x is a coordinate on an axis of size n."""
    return And(x >= 0, x < n)


# -- digits and blocks -----------------------------------------------------------------------------------


def test_mixed_radix_ranges() -> None:
    """Induction over a list of axes, base: the empty list has the one value 0. Step: with d < k and
    rest < S, 0 <= d*S + rest < k*S."""
    d, k, rest, stride = ints("d k rest stride")
    lemma([digit(z3.IntVal(0), z3.IntVal(1))], z3.BoolVal(True))
    given = [digit(d, k), digit(rest, stride)]
    lemma(given, digit(d * stride + rest, k * stride))
    control([digit(d, k), And(rest >= 0, rest <= stride), stride > 0], digit(d * stride + rest, k * stride))


def test_mixed_radix_is_injective() -> None:
    """Induction step: digits with the same index are the same."""
    d, e, r, s, stride = ints("d e r s stride")
    given = [digit(r, stride), digit(s, stride), d * stride + r == e * stride + s]
    lemma(given, And(d == e, r == s))
    control([r >= 0, s >= 0, stride > 0, d * stride + r == e * stride + s], And(d == e, r == s))


def test_even_blocks_partition() -> None:
    """Every index of a dimension of k blocks of b is in exactly one block."""
    g, k, b, block, other, at, place = ints("g k b block other at place")
    inside = [g == k * b, b > 0, k > 0, digit(at, b), digit(place, b)]
    lemma([*inside, block * b + at == other * b + place], And(block == other, at == place))
    lemma([g == k * b, b > 0, k > 0, digit(at, b), block * b + at >= 0, block * b + at < g], digit(block, k))
    control([b > 0, k > 0, digit(at, b), block * b + at >= 0, block * b + at <= k * b], digit(block, k))


def test_ceil_blocks_have_an_owner() -> None:
    """With b = ceil(g/k), every index below g is in a block below k, and blocks do not overlap."""
    g, k, b, block, at = ints("g k b block at")
    ceil = [k > 0, g >= 0, (b - 1) * k < g, g <= b * k, digit(at, b), block * b + at >= 0, block * b + at < g]
    lemma(ceil, digit(block, k))
    floor = [k > 0, g >= k, b * k <= g, g < (b + 1) * k, digit(at, b), block * b + at >= 0, block * b + at < g]
    control(floor, digit(block, k))


def test_balanced_blocks_partition() -> None:
    """Of size k*s + l, 0 <= l < k: block n starts at n*s + min(n, l); the first starts at 0, the last one
    ends at the size, and a block has s or s + 1 elements."""
    n, k, s, longer = ints("n k s longer")

    def start(block: Any) -> Any:
        return block * s + z3.If(block <= longer, block, longer)

    given = [k > 0, s >= 0, digit(longer, k), digit(n, k)]
    lemma(given, And(start(z3.IntVal(0)) == 0, start(k) == k * s + longer))
    lemma(given, Or(start(n + 1) - start(n) == s, start(n + 1) - start(n) == s + 1))
    control(given, start(n + 1) - start(n) == s)


def test_uneven_blocks_that_nest_split_locally() -> None:
    """Ceil blocks of b and of c with b = a*c: part q of block n of b is block n*a + q of c, cut off at g alike."""
    g, a, b, c, n, q, at = ints("g a b c n q at")
    given = [a > 0, c > 0, b == a * c, n >= 0, digit(q, a), digit(at, c), (n * a + q) * c + at < g]
    lemma(given, And(digit(q * c + at, b), n * b + q * c + at == (n * a + q) * c + at, n * b + q * c + at < g))
    loose = [a > 0, c > 0, b <= a * c, n >= 0, digit(q, a), digit(at, c), (n * a + q) * c + at < g]
    control(loose, n * b + q * c + at == (n * a + q) * c + at)


# -- typing rules ----------------------------------------------------------------------------------------


def test_slice_is_sound() -> None:
    """`A -> A·x`: the element at `at` of block A*n + x is at x*b + at of block A, in range, on the device itself."""
    a, n, x, b, at = ints("A n x b at")
    given = [a >= 0, digit(x, n), b > 0, digit(at, b)]
    lemma(given, And(digit(x * b + at, n * b), a * (n * b) + x * b + at == (a * n + x) * b + at))
    control(given, And(digit(x * b + at, n * b), a * (n * b) + x * b + at == (x * n + a) * b + at))


def test_all_gather_is_sound() -> None:
    """`A·x -> A`: the element at q*b + r of block A is at r of block A*n + q, and q is a coordinate."""
    a, n, q, b, r = ints("A n q b r")
    given = [a >= 0, n > 0, b > 0, digit(r, b), digit(q * b + r, n * b)]
    lemma(given, And(digit(q, n), a * (n * b) + q * b + r == (a * n + q) * b + r))
    control([a >= 0, n > 0, b > 0, digit(r, b), And(q * b + r >= 0, q * b + r <= n * b)], digit(q, n))


def test_all_to_all_is_sound() -> None:
    """Dimension i loses x and j gains it: the element at (q*b + r, at) comes from the device whose x is q, at
    (r, x*c + at); both in range, same global index."""
    i, j, n, x, q, b, c, r, at = ints("I J n x q b c r at")
    given = [i >= 0, j >= 0, digit(x, n), b > 0, c > 0, digit(r, b), digit(q * b + r, n * b), digit(at, c)]
    lemma(given, And(digit(q, n), digit(x * c + at, n * c)))
    lemma(given, (i * n + q) * b + r == i * (n * b) + q * b + r)
    lemma(given, j * (n * c) + x * c + at == (j * n + x) * c + at)
    control(given, (i * n + x) * b + r == i * (n * b) + q * b + r)  # had the receiver its own part only


def test_all_to_all_in_any_order() -> None:
    """Two axes lost as `x,y` and gained as `y,x`: the part is y*m + x of n*m, the sender's (x, y) are the digits
    of the part of i."""
    i, j, n, m, x, y, p, q, b, c, r, at = ints("I J n m x y p q b c r at")
    given = [
        i >= 0,
        j >= 0,
        digit(x, n),
        digit(y, m),
        digit(p, n),
        digit(q, m),
        b > 0,
        c > 0,
        digit(r, b),
        digit(at, c),
    ]
    lemma(given, ((i * n + p) * m + q) * b + r == i * (n * m * b) + (p * m + q) * b + r)
    lemma(given, j * (n * m * c) + (y * n + x) * c + at == ((j * m + y) * n + x) * c + at)
    control(given, j * (n * m * c) + (y * n + x) * c + at == ((j * n + x) * m + y) * c + at)


@pytest.mark.parametrize("generator", ["two dimensions", "replicated", "within"])
def test_permute_generators_are_sound(generator: str) -> None:
    """The three that span permutes on prime axes: swap equal minor axes of two dimensions; swap a minor axis
    for an equal replicated one; swap within a dimension. The sender has the receiver's coordinates swapped;
    its block is the one that the receiver should hold."""
    i, j, n, m, x, y, b, c = ints("I J n m x y b c")
    p, q = ints("p q")  # the sender's coordinates
    given = [i >= 0, j >= 0, n > 0, m > 0, digit(x, n), digit(p, n), b > 0, c > 0]
    match generator:
        case "two dimensions":  # [A·x, B·y] -> [A·y, B·x]
            given += [digit(y, n), digit(q, n)]
            swapped = And(p == y, q == x)
            sent, want = ((i * n + p) * b, (j * n + q) * c), ((i * n + y) * b, (j * n + x) * c)
        case "replicated":  # [A·x] -> [A·y]
            given += [digit(y, n), digit(q, n)]
            swapped = And(p == y, q == x)
            sent, want = ((i * n + p) * b,), ((i * n + y) * b,)
        case _:  # [A·x·y] -> [A·y·x]: the sender's index over (x, y) is the receiver's over (y, x)
            given += [digit(y, m), digit(q, m)]
            swapped = p * m + q == y * n + x
            sent, want = (((i * n + p) * m + q) * b,), (((i * m + y) * n + x) * b,)
    right = And(*(s == w for s, w in zip(sent, want, strict=True)))
    lemma([*given, swapped], right)
    control([*given, p == x, q == y], right)  # had nobody swapped anything


def test_owner_is_sound() -> None:
    """Exchange: the owner's block contains the index, and an index that the receiver holds has itself as owner."""
    block, own, b, at, place = ints("block own b at place")
    given = [b > 0, digit(at, b), digit(place, b), own * b + place == block * b + at]
    lemma(given, And(block == own, at == place))
    control([b > 0, digit(at, b), place >= 0, own * b + place == block * b + at], block == own)


def test_reductions_count_every_contribution_once() -> None:
    """A value unreduced over x and y, reduced over y in one step and over x in another: contributions
    (x, y) and their index x*m + y are in bijection with what the two sums range over."""
    n, m, x, y, p, q = ints("n m x y p q")
    given = [digit(x, n), digit(y, m), digit(p, n), digit(q, m)]
    lemma([*given, x * m + y == p * m + q], And(x == p, y == q))  # no contribution twice
    lemma(given, digit(x * m + y, n * m))  # n*m sums of one contribution each, of n*m contributions
    control([*given, y == q], x == p)  # reduced over y only, what x says is still to be added


# -- rewrites --------------------------------------------------------------------------------------------


def test_gather_then_slice_of_one_axis_is_nothing() -> None:
    """Gather x, then slice x again: every element is where it was."""
    a, n, x, b, at, q, r = ints("A n x b at q r")
    given = [a >= 0, digit(x, n), b > 0, digit(at, b), q * b + r == x * b + at, digit(r, b)]
    lemma(given, And(q == x, r == at))
    control([a >= 0, n > 0, b > 0, digit(at, b), q * b + r == x * b + at], And(q == x, r == at))


def test_gather_x_then_slice_y_of_equal_size_is_a_swap() -> None:
    """`A·x -> A -> A·y` with |x| = |y|: the block that a device ends with is that of the device whose x is y."""
    a, n, x, y, b, at = ints("A n x y b at")
    given = [a >= 0, digit(x, n), digit(y, n), b > 0, digit(at, b)]
    lemma(given, a * (n * b) + y * b + at == (a * n + y) * b + at)
    control(given, a * (n * b) + y * b + at == (a * n + x) * b + at)


def test_gather_x_then_slice_y_otherwise() -> None:
    """`A·x -> A -> A·y`, sizes n and m, becomes slice y, swap within, gather x: `A·x·y -> A·y·x -> A·y`. The
    element of block A*m + y at q*c + r is at r of the block of (y, q), which is that of (x', y') with
    x'*m + y' = y*n + q: same global index."""
    a, n, m, y, q, c, r, p, s = ints("A n m y q c r p s")
    given = [a >= 0, digit(y, m), digit(q, n), c > 0, digit(r, c), digit(p, n), digit(s, m), p * m + s == y * n + q]
    lemma(given, ((a * n + p) * m + s) * c + r == (a * m + y) * (n * c) + q * c + r)
    control(given, ((a * n + q) * m + y) * c + r == (a * m + y) * (n * c) + q * c + r)


def test_gather_then_slice_elsewhere_is_an_all_to_all() -> None:
    """Gather x from i, then slice x on j: an all-to-all ends with the same elements, from the same devices."""
    i, j, n, x, q, b, c, r, at = ints("I J n x q b c r at")
    given = [i >= 0, j >= 0, digit(x, n), digit(q, n), b > 0, c > 0, digit(r, b), digit(at, c)]
    gathered = (i * (n * b) + q * b + r, j * (n * c) + x * c + at)
    exchanged = ((i * n + q) * b + r, j * (n * c) + x * c + at)
    lemma(given, And(gathered[0] == exchanged[0], gathered[1] == exchanged[1]))
    control(given, And((i * n + x) * b + r == gathered[0], exchanged[1] == gathered[1]))


def test_slice_commutes_with_gather_and_all_to_all_elsewhere() -> None:
    """slice y on k before or after an all-to-all of x from i to j, k not among them: traced back, an element
    comes from the same device and place either way."""
    n, m, x, y, b, c, d, q, r, at, row, place = ints("n m x y b c d q r at row place")
    given = [digit(x, n), digit(y, m), digit(q, n), b > 0, c > 0, d > 0, digit(r, b), digit(at, c), digit(place, d)]
    given.append(row == q * b + r)

    def sliced(state: tuple[Any, ...]) -> tuple[Any, ...]:
        """(x, y, index in i, in j, in k) before the slice, from that after it."""
        return (*state[:4], state[1] * d + state[4])

    def exchanged(state: tuple[Any, ...]) -> tuple[Any, ...]:
        """The same for the all-to-all: row is q*b + r, whatever the device."""
        return (q, state[1], r, state[0] * c + state[3], state[4])

    def slices_by(state: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*state[:4], state[0] * d + state[4])

    start = (x, y, row, at, place)
    lemma(given, And(*(e == f for e, f in zip(sliced(exchanged(start)), exchanged(sliced(start)), strict=True))))
    # by x itself, which the all-to-all moves, it does not commute
    control(
        given, And(*(e == f for e, f in zip(slices_by(exchanged(start)), exchanged(slices_by(start)), strict=True)))
    )


def test_slice_of_the_gaining_dimension_does_not_commute() -> None:
    """slice y on j before, or after, the all-to-all of x to j: `B·y·x` or `B·x·y`. Refuted; the permute whose
    sender's (y, x) index is the receiver's (x, y) index repairs it."""
    j, n, m, x, y, c, p, q = ints("J n m x y c p q")
    given = [j >= 0, digit(x, n), digit(y, m), c > 0]
    control(given, ((j * m + y) * n + x) * c == ((j * n + x) * m + y) * c)
    repaired = [*given, digit(p, m), digit(q, n), p * n + q == x * m + y]
    lemma(repaired, ((j * m + p) * n + q) * c == ((j * n + x) * m + y) * c)


def test_rewrites_do_not_raise_the_peak() -> None:
    """Blocks before, between and after: gather x then slice y holds m*c, n*m*c, n*c; slice, swap, gather holds
    m*c, c, c, n*c, and its peak is that of its ends."""
    n, m, c = ints("n m c")
    given = [n >= 1, m >= 1, c >= 1]

    def peak(blocks: list[Any]) -> Any:
        largest = blocks[0]
        for block in blocks[1:]:
            largest = z3.If(block > largest, block, largest)
        return largest

    ends = peak([m * c, n * c])
    lemma(given, peak([m * c, c, c, n * c]) <= peak([m * c, n * m * c, n * c]))
    lemma(given, peak([m * c, c, c, n * c]) == ends)
    lemma(given, peak([c, c]) <= peak([c, n * c, c]))  # swaps, all-to-alls, nothing at all
    control(given, peak([m * c, n * m * c, n * c]) == ends)


def test_prime_axes_need_no_more() -> None:
    """Coprime sizes p (gathered) and q (sliced): q divides p*b, so q divides b, and the slice can go first.
    Bezout's u, v with u*p + v*q = 1 are the witness: b = q*(u*t + v*b) where p*b = q*t."""
    p, q, b, t, u, v = ints("p q b t u v")
    given = [p > 1, q > 1, b > 0, p * b == q * t, u * p + v * q == 1]
    assert verdict([*given, u * p * b + v * q * b == b], b == q * (u * t + v * b)) == "proved"
    control([p == 2, q == 2, b == 1, p * b == q * t], z3.Exists([v], b == q * v))


# -- normal form -----------------------------------------------------------------------------------------


def test_normal_form_peaks_at_its_ends() -> None:
    """Induction: while slices run, the largest block so far is the source's; moves keep the block; while
    gathers run, the largest is the source's or the one just reached. So the peak is max(source, target)."""
    source, largest, block, after, f = ints("source largest block after f")
    sliced = [f >= 1, after * f == block, after >= 1, block <= source, largest == source]
    lemma(sliced, And(after <= source, z3.If(after > largest, after, largest) == source))
    gathered = [f >= 1, after == block * f, block >= 1, Or(largest == source, largest == block), largest >= source,
                largest >= block]  # fmt: skip
    grown = z3.If(after > largest, after, largest)
    lemma(gathered, And(Or(grown == source, grown == after), grown >= source, grown >= after))
    # a gather followed by a slice: the largest block is neither end's
    control([*gathered, f >= 2], And(Or(grown == source, grown == block)))


def test_order_from_the_shape() -> None:
    """Phases slice 0, reduce 1, move 2, gather 3 that never fall: after a communication (phase above 0) no
    slice, after a gather only gathers. Neighbours suffice, by induction."""
    i, j, k = ints("i j k")
    phases = [And(p >= 0, p <= 3) for p in (i, j, k)]
    lemma([*phases, i <= j, j <= k], i <= k)
    lemma([*phases, i <= j], And(Implies(i > 0, j > 0), Implies(i == 3, j == 3)))
    control(phases, And(Implies(i > 0, j > 0), Implies(i == 3, j == 3)))


def test_received_is_the_block_less_the_overlap() -> None:
    """What a device takes from others is what its block before lacks; blocks that share all but the moved
    digits overlap in the part whose digits agree: a box. Bounded: two dimensions, one moved axis."""
    i, j, n, x, q, b, c, r, at = ints("I J n x q b c r at")
    given = [i >= 0, j >= 0, digit(x, n), digit(q, n), b > 0, c > 0, digit(r, b), digit(at, c)]
    row, column = i * (n * b) + q * b + r, (j * n + x) * c + at
    held = And((i * n + x) * b <= row, row < (i * n + x + 1) * b, j * (n * c) <= column, column < (j + 1) * (n * c))
    lemma(given, held == (q == x))
    control(given, held == (q >= x))


def test_ceil_nests_where_divisible_bounded() -> None:
    """Bounded (sizes to 40, up to 6 blocks in up to 4 parts): ceil blocks nest as typing asks exactly where
    every block is the union of its parts; where the long block is a multiple, it always is."""
    for g, k, a in itertools.product(range(41), range(1, 7), range(1, 5)):
        b, c = -(-g // k), -(-g // (k * a))
        coarse = [min(n * b, g) for n in range(k + 1)]
        fine = [min(n * c, g) for n in range(k * a + 1)]
        nest = coarse == fine[::a]
        assert nest or b != a * c
        union = all(
            [e for q in range(a) for e in range(fine[n * a + q], fine[n * a + q + 1])]
            == list(range(*coarse[n : n + 2]))
            for n in range(k)
        )
        assert nest == union

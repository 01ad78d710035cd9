"""Meshes, layouts and problems drawn from a `random.Random`, and all layouts of a small mesh."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Literal, NamedTuple, get_args

from redist.types.blocks import BALANCED, CEIL, BlockRule, Offsets
from redist.types.digits import prime_factors
from redist.types.layout import Layout, Reduction
from redist.types.mesh import Mesh, SubAxis

__all__ = [
    "DTYPES",
    "REDUCTIONS",
    "Kind",
    "Problem",
    "all_layouts",
    "cut_axis",
    "free_parts",
    "other_ids",
    "partitioned",
    "prime_parts",
    "random_layout",
    "random_mesh",
    "random_problem",
    "random_problems",
    "random_rule",
    "random_shape",
    "with_counts",
]

DTYPES = ("f32", "bf16", "i8", "bool", "i64", "c64", "u16", ">f8")
"""Dtypes that are drawn by default: of every kind, of 1 to 8 bytes, the last one quoted in text."""

REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)

Kind = Literal["same", "transposed", "reshaped", "permuted", "other"]
"""How a target's mesh relates to the source's: the same; its axes in another order (every device keeps
its coordinates); other axes over the same device ids in order; the ids in another order; other devices."""

KINDS: tuple[Kind, ...] = get_args(Kind)
AXIS_SIZES = (2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 10, 12)


class Problem(NamedTuple):
    """A redistribution: two layouts of one array."""

    source: Layout
    target: Layout


# -- meshes --------------------------------------------------------------------------------------------


def random_mesh(
    rng: Random, *, max_devices: int = 24, max_axes: int = 6, unit_axes: bool = True, any_ids: bool = True
) -> Mesh:
    """A mesh of prime and composite axes, now and then of size 1. A mesh without axes is possible.

    With `any_ids`, some meshes have permuted ids, and some ids with gaps.
    """
    sizes: list[int] = []
    for left in reversed(range(rng.randint(0, max_axes))):
        room = max_devices // math.prod(sizes)
        fitting = [size for size in AXIS_SIZES if size <= (room if room < 2 ** (left + 1) else room // 2**left)]
        if unit_axes and rng.randint(0, 9) == 9:
            sizes.append(1)
        elif fitting:
            sizes.append(rng.choice(fitting))
    axes = [("xyzuvw"[n] if n < 6 else f"a{n}", size) for n, size in enumerate(sizes)]
    count = math.prod(sizes)
    match rng.randint(0, 3) if any_ids else 0:
        case 2:
            return Mesh(axes, rng.sample(range(count), count))
        case 3:
            return Mesh(axes, rng.sample(range(count + count // 2 + 1), count))
        case _:
            return Mesh(axes)


def cut_axis(rng: Random, name: str, total: int) -> list[SubAxis]:
    """An axis cut into parts by a random factorisation, major to minor."""
    factors = prime_factors(total)
    rng.shuffle(factors)
    sizes: list[int] = []
    for factor in factors:
        if sizes and rng.randint(0, 1):
            sizes[-1] *= factor
        else:
            sizes.append(factor)
    return _parts(name, total, sizes)


def prime_parts(rng: Random, mesh: Mesh) -> list[SubAxis]:
    """All axes of a mesh cut into primes, in a random factorisation of each axis."""
    parts: list[SubAxis] = []
    for name, total in mesh.axes:
        factors = prime_factors(total)
        rng.shuffle(factors)
        parts += _parts(name, total, factors)
    return parts


def _parts(name: str, total: int, sizes: Sequence[int]) -> list[SubAxis]:
    if len(sizes) < 2:
        return [SubAxis(name)]
    pres = itertools.accumulate(sizes[:-1], lambda a, b: a * b, initial=1)
    assert math.prod(sizes) == total
    return [SubAxis(name, pre, size) for pre, size in zip(pres, sizes, strict=True)]


def free_parts(layout: Layout) -> list[SubAxis]:
    """The (sub-)axes of the mesh that neither a dimension nor the partial axes use; sizes above 1."""
    mesh = layout.mesh
    used = [*layout.partial_axes, *(axis for dim in layout.dims for axis in dim.axes)]
    free: list[SubAxis] = []
    for name, total in mesh.axes:
        reached = 1
        cuts = sorted(mesh.cut(axis) for axis in used if axis.axis == name)
        for pre, size in [*cuts, (total, 1)]:
            if pre > reached:
                free.append(mesh.resolve(SubAxis(name, reached, pre // reached)))
            reached = pre * size
    return free


def partitioned(rng: Random, parts: Sequence[SubAxis], bins: int) -> list[list[SubAxis]]:
    """Parts dealt in random order into `bins` lists and a rest that is left out."""
    dealt: list[list[SubAxis]] = [[] for _ in range(bins + 1)]
    for part in rng.sample(list(parts), len(parts)):
        dealt[rng.randint(0, bins)].append(part)
    return dealt[1:]


# -- layouts -------------------------------------------------------------------------------------------


def random_shape(
    rng: Random, mesh: Mesh, *, rank: int | None = None, max_rank: int = 3, max_elements: int = 600, uneven: bool = True
) -> tuple[int, ...]:
    """A global shape of the given rank whose sizes share factors with the mesh.

    With `uneven`, any size may come up, 0 and 1 among them.
    """
    rank = min(max_rank, rng.choice((0, 1, 1, 2, 2, 2, 3, 3))) if rank is None else rank
    primes = [prime for size in mesh.sizes for prime in prime_factors(size)]
    sizes: list[int] = []
    for _ in range(rank):
        room = max(1, max_elements // max(1, math.prod(sizes)))
        if uneven and rng.randint(0, 2) == 0:
            sizes.append(rng.randint(0, min(room, 2 * mesh.size + 2)))
            continue
        size = rng.choice((1, 1, 1, 2, 3))
        for prime in rng.sample(primes, rng.randint(0, len(primes))):
            size = size * prime if size * prime <= room else size
        sizes.append(min(size, room))
    return tuple(sizes)


def random_rule(rng: Random, size: int, count: int) -> BlockRule:
    """Ceil, balanced, or offsets."""
    match rng.randint(0, 3):
        case 0 | 1:
            return CEIL
        case 2:
            return BALANCED
        case _:
            return Offsets((0, *sorted(rng.randint(0, size) for _ in range(count - 1))))


def random_layout(
    rng: Random,
    mesh: Mesh,
    shape: Sequence[int] | None = None,
    *,
    max_rank: int = 3,
    max_elements: int = 600,
    sub_axes: bool = True,
    uneven: bool = True,
    rules: bool = True,
    partial: bool = True,
    dtypes: Sequence[str] = DTYPES,
    keep_partial: Sequence[SubAxis] = (),
    reduction: Reduction | None = None,
) -> Layout:
    """A layout over a mesh: any axes, or parts of axes, in any order on any dimension.

    Without `uneven`, every block has the same shape; without `rules`, uneven blocks are XLA's. The
    partial axes are at least `keep_partial`, and others only with `partial`.
    """
    shape = (
        random_shape(rng, mesh, max_rank=max_rank, max_elements=max_elements, uneven=uneven) if shape is None else shape
    )
    reserved = Layout(mesh, (), (), partial=keep_partial)
    parts: list[SubAxis] = []
    for part in free_parts(reserved):
        pre, size = mesh.cut(part)
        cuts = cut_axis(rng, part.axis, size) if sub_axes else [SubAxis(part.axis)]
        parts += [_inside(mesh, cut, pre, size) for cut in cuts]
    kept = {axis.axis for axis in keep_partial}
    parts += [SubAxis(name) for name, size in mesh.axes if size == 1 and name not in kept]
    unreduced, *per_dim = partitioned(rng, parts, len(shape) + 1)
    if not partial:
        unreduced = []
    if not uneven:
        per_dim = [_dividing(mesh, size, axes) for size, axes in zip(shape, per_dim, strict=True)]
    made = [
        random_rule(rng, size, mesh.count(axes)) if rules and uneven else CEIL
        for size, axes in zip(shape, per_dim, strict=True)
    ]
    return Layout(
        mesh,
        shape,
        per_dim,
        rng.choice(list(dtypes)),
        rules=made,
        partial=[*keep_partial, *unreduced],
        reduction=reduction or rng.choice(REDUCTIONS),
    )


def _inside(mesh: Mesh, cut: SubAxis, pre: int, size: int) -> SubAxis:
    """A cut of a part (pre, size) as a cut of the axis."""
    return mesh.resolve(SubAxis(cut.axis, pre * cut.pre, cut.size or size))


def _dividing(mesh: Mesh, size: int, axes: Sequence[SubAxis]) -> list[SubAxis]:
    """The axes, less those that would make blocks uneven."""
    kept: list[SubAxis] = []
    for axis in axes:
        if size % mesh.count([*kept, axis]) == 0:
            kept.append(axis)
    return kept


def with_counts(rng: Random, layout: Layout, mesh: Mesh) -> Layout:
    """The same blocks dealt to other axes, of another mesh of as many devices: per dimension and for the
    partial axes, the same counts."""
    pool = prime_parts(rng, mesh)
    rng.shuffle(pool)

    def taken(count: int) -> list[SubAxis]:
        found: list[SubAxis] = []
        primes = prime_factors(count)
        rng.shuffle(primes)
        for prime in primes:
            found.append(next(part for part in pool if mesh.count([part]) == prime))
            pool.remove(found[-1])
        return found

    return Layout(
        mesh,
        layout.shape,
        [taken(count) for count in layout.block_counts()],
        layout.dtype,
        rules=[dim.rule for dim in layout.dims],
        partial=taken(layout.mesh.count(layout.partial_axes)),
        reduction=layout.partial.reduction if layout.partial else "sum",
    )


def all_layouts(
    mesh: Mesh, rank: int = 2, *, shape: Sequence[int] | None = None, dtype: str = "f32"
) -> tuple[Layout, ...]:
    """Every layout of whole axes in every order: 49 for 2x2x2 at rank 2, 106 at rank 3.

    Without a shape, every dimension has one element per device, so that all blocks are even.
    """
    shape = [mesh.size] * rank if shape is None else list(shape)
    if not shape:
        return (Layout(mesh, (), (), dtype),)
    found: list[Layout] = []
    for count in range(len(mesh.names) + 1):
        for axes in itertools.permutations(mesh.names, count):
            for ends in itertools.combinations_with_replacement(range(count + 1), len(shape) - 1):
                per_dim = [axes[a:b] for a, b in itertools.pairwise((0, *ends, count))]
                found.append(Layout(mesh, shape, per_dim, dtype))
    return tuple(found)


# -- problems ------------------------------------------------------------------------------------------


def random_problem(
    rng: Random,
    *,
    kinds: Sequence[Kind] = KINDS,
    mesh: Mesh | None = None,
    max_devices: int = 24,
    max_axes: int = 6,
    **options: Any,
) -> Problem:
    """Source and target of one array; the target is unreduced at most where the source is.

    `kinds` says how their meshes relate, `options` are those of `random_layout`.
    """
    mesh = random_mesh(rng, max_devices=max_devices, max_axes=max_axes) if mesh is None else mesh
    source = random_layout(rng, mesh, **options)
    kind = rng.choice(list(kinds))
    other = _related(rng, mesh, kind, max_devices, max_axes)
    kept: list[SubAxis] = []
    if kind in ("same", "transposed"):
        kept = [axis for axis in source.partial_axes if rng.randint(0, 2) == 0]
    fixed: dict[str, Any] = {
        "partial": False,
        "dtypes": [source.dtype],
        "keep_partial": kept,
        "reduction": source.partial.reduction if source.partial else None,
    }
    return Problem(source, random_layout(rng, other, source.shape, **options | fixed))


def _related(rng: Random, mesh: Mesh, kind: Kind, max_devices: int, max_axes: int) -> Mesh:
    ids = list(mesh.device_ids)
    match kind:
        case "same":
            return mesh
        case "transposed":
            order = rng.sample(range(len(mesh.names)), len(mesh.names))
            axes = [mesh.axes[n] for n in order]
            strides = [mesh.digit(SubAxis(mesh.names[n]))[0] for n in order]
            places = itertools.product(*(range(size) for _, size in axes))
            return Mesh(axes, [ids[sum(c * s for c, s in zip(place, strides, strict=True))] for place in places])
        case "reshaped":
            return Mesh(_factorised(rng, mesh.size), ids)
        case "permuted":
            return Mesh(_factorised(rng, mesh.size), rng.sample(ids, len(ids)))
        case "other":
            other = random_mesh(rng, max_devices=max_devices, max_axes=max_axes, any_ids=False)
            return Mesh(other.axes, other_ids(rng, ids, other.size))


def other_ids(rng: Random, ids: Sequence[int], count: int) -> list[int]:
    """So many device ids in any order, some of them among `ids` or none."""
    last = max(ids)
    disjoint = rng.randint(0, 2) == 0
    return rng.sample(range(last + 1 if disjoint else 0, last + 1 + count), count)


def _factorised(rng: Random, count: int) -> list[tuple[str, int]]:
    primes = prime_factors(count)
    rng.shuffle(primes)
    sizes: list[int] = []
    for prime in primes:
        if sizes and rng.randint(0, 2) == 0:
            sizes[-1] *= prime
        else:
            sizes.append(prime)
    return [(f"m{n}", size) for n, size in enumerate(sizes)]


def random_problems(seed: int, count: int, **options: Any) -> Iterator[Problem]:
    """`count` problems, the same ones for the same seed and options (those of `random_problem`)."""
    rng = Random(seed)
    for _ in range(count):
        yield random_problem(rng, **options)

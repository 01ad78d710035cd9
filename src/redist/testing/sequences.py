"""Random sequences of steps that apply: each is drawn from what the layout before it allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from redist.collectives.steps import (
    OWNER,
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Free,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Transfer,
)
from redist.collectives.typing import after
from redist.errors import TypingError
from redist.testing.generators import (
    cut_axis,
    free_parts,
    other_ids,
    partitioned,
    prime_parts,
    random_mesh,
    random_rule,
    with_counts,
)
from redist.types.blocks import BlockRule
from redist.types.digits import prime_factors
from redist.types.layout import Layout
from redist.types.mesh import Mesh, SubAxis

__all__ = ["STEP_KINDS", "random_step", "random_steps"]


def random_steps(
    rng: Random,
    source: Layout,
    *,
    max_steps: int = 5,
    kinds: Sequence[str] | None = None,
    same_mesh: bool = False,
    max_devices: int = 24,
) -> tuple[Step, ...]:
    """Up to `max_steps` steps that apply one after another to `source`.

    `kinds` are op names (`"all_to_all"`), by default all; with `same_mesh` no step leaves the mesh.
    """
    steps: list[Step] = []
    for _ in range(rng.randint(0, max_steps)):
        step = random_step(rng, source, kinds=kinds, same_mesh=same_mesh, max_devices=max_devices)
        if step is None:
            break
        steps.append(step)
        source = after(step, source)
    return tuple(steps)


def random_step(
    rng: Random,
    before: Layout,
    *,
    kinds: Sequence[str] | None = None,
    same_mesh: bool = False,
    max_devices: int = 24,
    attempts: int = 8,
) -> Step | None:
    """One step that applies to a layout, of a kind drawn from `kinds`; None where no attempt finds one."""
    for _ in range(attempts):
        kind = rng.choice(kinds or _DEFAULT_KINDS)
        step = STEP_KINDS[kind](rng, before, 0 if same_mesh else max_devices)
        if step is None:
            continue
        try:
            after(step, before)
        except TypingError:  # blocks that do not nest
            continue
        return step
    return None


# -- steps on axes -------------------------------------------------------------------------------------


def _some(rng: Random, mesh: Mesh, parts: Sequence[SubAxis]) -> list[SubAxis]:
    """Some of the parts of these axes, cut further at random, in random order; at least one if there is any."""
    finer: list[SubAxis] = []
    for part in parts:
        pre, size = mesh.cut(part)
        for cut in cut_axis(rng, part.axis, size):
            finer.append(mesh.resolve(SubAxis(part.axis, pre * cut.pre, cut.size or size)) if size > 1 else part)
    return rng.sample(finer, rng.randint(min(1, len(finer)), len(finer)))


def _suffix(rng: Random, mesh: Mesh, axes: Sequence[SubAxis]) -> list[SubAxis]:
    """A minor suffix of a dimension's axes, the last of them maybe a part of one, in random order."""
    finer = [part for axis in axes for part in _cut(rng, mesh, axis)]
    suffix = finer[rng.randint(0, len(finer) - 1) :]
    return rng.sample(suffix, len(suffix))


def _cut(rng: Random, mesh: Mesh, axis: SubAxis) -> list[SubAxis]:
    pre, size = mesh.cut(axis)
    if size == 1:
        return [axis]
    return [mesh.resolve(SubAxis(axis.axis, pre * cut.pre, cut.size or size)) for cut in cut_axis(rng, axis.axis, size)]


def _rules_for(rng: Random, before: Layout, axes: dict[int, list[SubAxis]]) -> dict[int, BlockRule]:
    """Block rules for some of the dimensions that are not sharded yet."""
    counts = before.block_counts()
    return {
        i: random_rule(rng, before.dims[i].size, before.mesh.count(dim_axes))
        for i, dim_axes in axes.items()
        if counts[i] == 1 and rng.randint(0, 1)
    }


def _on_dims(rng: Random, before: Layout, parts: Sequence[SubAxis]) -> dict[int, list[SubAxis]]:
    """Parts dealt to dimensions, all of them to some dimension."""
    dealt: dict[int, list[SubAxis]] = {}
    for part in parts:
        dealt.setdefault(rng.randrange(before.rank), []).append(part)
    return dealt


def _slice(rng: Random, before: Layout, _: int) -> Step | None:
    parts = _some(rng, before.mesh, free_parts(before))
    if not parts or not before.rank:
        return None
    axes = _on_dims(rng, before, parts)
    return Slice(axes, _rules_for(rng, before, axes))


def _sharded(before: Layout) -> list[int]:
    return [i for i, dim in enumerate(before.dims) if dim.axes]


def _all_gather(rng: Random, before: Layout, _: int) -> Step | None:
    dims = _sharded(before)
    if not dims:
        return None
    chosen = rng.sample(dims, rng.randint(1, len(dims)))
    return AllGather({i: _suffix(rng, before.mesh, before.dims[i].axes) for i in chosen})


def _all_to_all(rng: Random, before: Layout, _: int) -> Step | None:
    dims = _sharded(before)
    if not dims or before.rank < 2:
        return None
    losing = rng.sample(dims, rng.randint(1, min(len(dims), before.rank - 1)))
    others = [i for i in range(before.rank) if i not in losing]
    moves: list[tuple[list[SubAxis], int, int]] = []
    gained: dict[int, list[SubAxis]] = {}
    for i in losing:
        for part in _suffix(rng, before.mesh, before.dims[i].axes):
            j = rng.choice(others)
            gained.setdefault(j, []).append(part)
            if moves and moves[-1][1:] == (i, j) and rng.randint(0, 1):
                moves[-1][0].append(part)
            else:
                moves.append(([part], i, j))
    rng.shuffle(moves)
    return AllToAll(moves, _rules_for(rng, before, gained))


def _reduce_scatter(rng: Random, before: Layout, _: int) -> Step | None:
    parts = _some(rng, before.mesh, before.partial_axes)
    if not parts or not before.rank:
        return None
    axes = _on_dims(rng, before, parts)
    return ReduceScatter(axes, _rules_for(rng, before, axes))


def _all_reduce(rng: Random, before: Layout, _: int) -> Step | None:
    parts = _some(rng, before.mesh, before.partial_axes)
    return AllReduce(parts) if parts else None


# -- permute and exchange ------------------------------------------------------------------------------


def _another_mesh(rng: Random, mesh: Mesh, max_devices: int, count: int | None) -> Mesh:
    """This mesh, or one of `count` devices (any multiple of it with None) and other ids."""
    if max_devices == 0 or rng.randint(0, 1):
        return mesh
    if count is None:
        other = random_mesh(rng, max_devices=max_devices, any_ids=False)
        return Mesh(other.axes, other_ids(rng, mesh.device_ids, other.size))
    axes = [(f"p{n}", prime) for n, prime in enumerate(prime_factors(count))]
    return Mesh(axes, other_ids(rng, mesh.device_ids, count))


def _permute(rng: Random, before: Layout, max_devices: int) -> Step | None:
    target = with_counts(rng, before, _another_mesh(rng, before.mesh, max_devices, before.mesh.size))
    return Permute(target, _free(rng, before, target) if rng.randint(0, 1) else _pairs(rng, before, target))


def _free(rng: Random, before: Layout, target: Layout) -> Free:
    ours, theirs = (
        [part for axis in free_parts(layout) for part in _cut(rng, layout.mesh, axis)] for layout in (before, target)
    )
    rng.shuffle(ours)
    rng.shuffle(theirs)
    groups: list[tuple[list[SubAxis], list[SubAxis]]] = []
    for part in ours:  # parts of equal size by themselves, the others together
        size = before.mesh.count([part])
        match = next((other for other in theirs if target.mesh.count([other]) == size), None)
        if match is not None and rng.randint(0, 2):
            theirs.remove(match)
            groups.append(([part], [match]))
    rest = [part for part in ours if all(part not in sender for sender, _ in groups)]
    if rest:
        groups.insert(rng.randint(0, len(groups)), (rest, theirs))
    return Free.of(*groups)


def _places(layout: Layout) -> dict[tuple[int, ...], list[int]]:
    """Device ids by what they hold: block index per dimension, then partial index."""
    axes = [*(dim.axes for dim in layout.dims), layout.partial_axes]
    places: dict[tuple[int, ...], list[int]] = {}
    indices = [layout.mesh.index(dim_axes).tolist() for dim_axes in axes]
    for device, *index in zip(layout.mesh.device_ids, *indices, strict=True):
        places.setdefault(tuple(index), []).append(device)
    return places


def _pairs(rng: Random, before: Layout, target: Layout) -> Pairs:
    senders, receivers = _places(before), _places(target)
    pairs: list[tuple[int, int]] = []
    for place, ids in senders.items():
        pairs += zip(rng.sample(ids, len(ids)), receivers[place], strict=True)
    return Pairs(tuple(rng.sample(pairs, len(pairs))))


def _exchange(rng: Random, before: Layout, max_devices: int) -> Step | None:
    mesh = _another_mesh(rng, before.mesh, max_devices, None)
    pool = prime_parts(rng, mesh)
    rng.shuffle(pool)
    partial: list[SubAxis] = []
    for prime in prime_factors(before.mesh.count(before.partial_axes)):
        found = next((part for part in pool if mesh.count([part]) == prime), None)
        if found is None:
            return None
        pool.remove(found)
        partial.append(found)
    per_dim = partitioned(rng, pool, before.rank)
    target = Layout(
        mesh,
        before.shape,
        per_dim,
        before.dtype,
        rules=[random_rule(rng, n, mesh.count(axes)) for n, axes in zip(before.shape, per_dim, strict=True)],
        partial=partial,
        reduction=before.partial.reduction if before.partial else "sum",
    )
    return Exchange(target, OWNER if rng.randint(0, 1) else _transfers(rng, before, target))


def _transfers(rng: Random, before: Layout, target: Layout) -> tuple[Transfer, ...]:
    """Every element of every target block once, from any device that holds it; some boxes cut in two."""
    senders = _places(before)
    transfers: list[Transfer] = []
    for (*index, contribution), receivers in _places(target).items():
        wanted = [_bounds(target, i, b) for i, b in enumerate(index)]
        for receiver in receivers:
            for (*held, sent), ids in senders.items():
                box = [_meet(want, _bounds(before, i, b)) for i, (want, b) in enumerate(zip(wanted, held, strict=True))]
                if sent == contribution and all(a < b for a, b in box):
                    for piece in _split(rng, box):
                        sender = receiver if receiver in ids and rng.randint(0, 1) else rng.choice(ids)
                        starts, stops = tuple(a for a, _ in piece), tuple(b for _, b in piece)
                        transfers.append(Transfer(sender, receiver, starts, stops))
    return tuple(rng.sample(transfers, len(transfers)))


def _bounds(layout: Layout, i: int, block: int) -> tuple[int, int]:
    starts, stops = layout.dim_bounds(i)
    return int(starts[block]), int(stops[block])


def _meet(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


def _split(rng: Random, box: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    long = [i for i, (a, b) in enumerate(box) if b - a > 1]
    if not long or rng.randint(0, 2):
        return [box]
    i = rng.choice(long)
    at = rng.randint(box[i][0] + 1, box[i][1] - 1)
    return [[*box[:i], part, *box[i + 1 :]] for part in ((box[i][0], at), (at, box[i][1]))]


# -- chunk ---------------------------------------------------------------------------------------------


def _chunk(rng: Random, before: Layout, _: int) -> Step | None:
    if not before.rank:
        return None
    dim = rng.randrange(before.rank)
    inner: list[Step] = []
    layout = before
    for _attempt in range(rng.randint(2, 6)):
        step = random_step(rng, layout, same_mesh=True, attempts=2)
        if step is None:
            continue
        try:
            after(Chunk(dim, 2, [step]), layout)
        except TypingError:  # the step touches the dimension
            continue
        inner.append(step)
        layout = after(step, layout)
    return Chunk(dim, rng.randint(2, max(2, before.block_shape()[dim])), inner) if inner else None


STEP_KINDS: dict[str, Callable[[Random, Layout, int], Step | None]] = {
    "slice": _slice,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "reduce_scatter": _reduce_scatter,
    "all_reduce": _all_reduce,
    "permute": _permute,
    "exchange": _exchange,
    "chunk": _chunk,
}
"""How a step of each op is drawn: (rng, layout before, devices of another mesh or 0) to a step, maybe ill-typed."""

_DEFAULT_KINDS = (*STEP_KINDS, "slice", "all_to_all", "all_to_all", "reduce_scatter")  # the ones that apply least often

"""Plans to prove, and plans that went wrong on the way: what the tests of proofs share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from redist.collectives import Plan, simulate
from redist.collectives.plan import Options
from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Free,
    Owner,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Transfer,
)
from redist.collectives.typing import layouts_of
from redist.errors import BackendError, InfeasibleError, LayoutError, ProofError, RedistError
from redist.synth import synthesize
from redist.testing import random_layout, random_mesh, random_problem, random_steps
from redist.types import Layout, Offsets, SubAxis


class Plans:
    """Right plans, planned or put together at random, and mutants of them."""

    OPTIONS: dict[str, Any] = {"dtypes": ["i64"], "max_elements": 300}  # noqa: RUF012

    def planned(self, rng: Random, **options: Any) -> Plan:
        """A plan of ours for a random problem; unreduced values are sums."""
        while True:
            problem = random_problem(rng, reduction="sum", max_devices=16, **{**self.OPTIONS, **options})
            try:
                return synthesize(*problem)
            except InfeasibleError:
                continue

    def assembled(self, rng: Random, **options: Any) -> Plan:
        """Random steps that apply, and what they end at."""
        mesh = random_mesh(rng, max_devices=16)
        source = random_layout(rng, mesh, reduction="sum", **{**self.OPTIONS, **options})
        steps = random_steps(rng, source, max_devices=16)
        return Plan(source, layouts_of(steps, source)[-1], steps)

    def right(self, plan: Plan) -> bool:
        """What the NumPy reference says of a well-typed plan."""
        array = np.random.default_rng(0).integers(-(2**40), 2**40, size=plan.source.shape)
        try:
            simulate(plan, array, check=True)
        except (ProofError, BackendError):
            return False
        return True

    # -- mutants ---------------------------------------------------------------------------------------

    def mutants(self, rng: Random, plan: Plan, count: int) -> Iterator[tuple[str, Plan]]:
        """Up to `count` plans that differ from a right one in one place, each in another way, and which."""
        kinds = [name for name in dir(self) if name.startswith("mutate_")]
        for kind in rng.sample(kinds, len(kinds)):
            made = self._mutant(rng, plan, kind)
            if made is not None:
                yield kind.removeprefix("mutate_"), made
                count -= 1
            if count == 0:
                return

    def _mutant(self, rng: Random, plan: Plan, kind: str) -> Plan | None:
        """A mutant of one kind, of several tries the first that is well-typed: the others are stopped by typing."""
        found: Plan | None = None
        for _ in range(8):
            try:
                made = getattr(self, kind)(rng, plan)
            except LayoutError:
                continue
            if made is None or made == plan:
                continue
            found = made
            if self.typed(made):
                break
        return found

    def typed(self, plan: Plan) -> bool:
        """Whether a plan is well-typed, as `redist.collectives.typing` sees it."""
        try:
            return bool(plan.layouts)
        except RedistError:
            return False

    def _at(self, rng: Random, plan: Plan, kinds: tuple[type, ...]) -> tuple[int, ...] | None:
        found = [n for n, step in enumerate(plan.steps) if isinstance(step, kinds)]
        return (rng.choice(found),) if found else None

    def _with(self, plan: Plan, n: int, *steps: Step) -> Plan:
        return replace(plan, steps=(*plan.steps[:n], *steps, *plan.steps[n + 1 :]))

    def _change(self, rng: Random, plan: Plan, change: Any, kinds: tuple[type, ...]) -> Plan | None:
        """`change(step)` on a step of these kinds, inside a chunk if need be."""
        places = [n for n, step in enumerate(plan.steps) if isinstance(step, (*kinds, Chunk))]
        if not places:
            return None
        n = rng.choice(places)
        step = plan.steps[n]
        if isinstance(step, Chunk) and Chunk not in kinds:
            inner = [m for m, other in enumerate(step.steps) if isinstance(other, kinds)]
            if not inner:
                return None
            m = rng.choice(inner)
            changed = change(step.steps[m])
            made = (
                None
                if changed is None
                else Chunk(step.dim, step.parts, (*step.steps[:m], changed, *step.steps[m + 1 :]))
            )
        else:
            made = change(step)
        return None if made is None else self._with(plan, n, made)

    def _other_axis(self, rng: Random, plan: Plan) -> SubAxis:
        mesh = plan.source.mesh
        name, size = rng.choice(mesh.axes)
        parts = [SubAxis(name)]
        for pre in range(1, size):
            if size % pre == 0:
                parts += [SubAxis(name, pre, n) for n in range(2, size + 1) if size % (pre * n) == 0]
        return mesh.resolve(rng.choice(parts))

    def mutate_axis(self, rng: Random, plan: Plan) -> Plan | None:
        """Another (sub-)axis."""
        if not plan.source.mesh.axes:
            return None
        other = self._other_axis(rng, plan)

        def changed(axes: Sequence[SubAxis]) -> tuple[SubAxis, ...]:
            k = rng.randrange(len(axes))
            return (*axes[:k], other, *axes[k + 1 :])

        def change(step: Any) -> Step:
            match step:
                case AllToAll(moves, rules):
                    k = rng.randrange(len(moves))
                    axes, i, j = moves[k]
                    return AllToAll([*moves[:k], (changed(axes), i, j), *moves[k + 1 :]], rules)
                case AllReduce(axes):
                    return AllReduce(changed(axes))
                case _:
                    k = rng.randrange(len(step.axes))
                    i, axes = step.axes[k]
                    return type(step)(
                        [*step.axes[:k], (i, changed(axes)), *step.axes[k + 1 :]],
                        *([step.rules] if hasattr(step, "rules") else []),
                    )

        return self._change(rng, plan, change, (Slice, AllGather, AllToAll, ReduceScatter, AllReduce))

    def mutate_dimension(self, rng: Random, plan: Plan) -> Plan | None:
        """Another dimension."""
        rank = plan.source.rank
        if rank < 2:
            return None

        def change(step: Any) -> Step:
            if isinstance(step, AllToAll):
                k = rng.randrange(len(step.moves))
                axes, i, j = step.moves[k]
                move = (axes, rng.randrange(rank), j) if rng.randint(0, 1) else (axes, i, rng.randrange(rank))
                return AllToAll([*step.moves[:k], move, *step.moves[k + 1 :]])
            if isinstance(step, Chunk):
                return Chunk(rng.randrange(rank), step.parts, step.steps)
            k = rng.randrange(len(step.axes))
            moved = [*step.axes[:k], (rng.randrange(rank), step.axes[k][1]), *step.axes[k + 1 :]]
            return type(step)(moved)

        return self._change(rng, plan, change, (Slice, AllGather, AllToAll, ReduceScatter, Chunk))

    def mutate_order_of_axes(self, rng: Random, plan: Plan) -> Plan | None:
        """Axes or moves in another order."""

        def change(step: Any) -> Step:
            if isinstance(step, AllToAll):
                moves = [(rng.sample(axes, len(axes)), i, j) for axes, i, j in step.moves]
                return AllToAll(rng.sample(moves, len(moves)), step.rules)
            shuffled = [(i, rng.sample(axes, len(axes))) for i, axes in step.axes]
            return type(step)(shuffled, *([step.rules] if hasattr(step, "rules") else []))

        return self._change(rng, plan, change, (Slice, AllToAll, ReduceScatter, AllGather))

    def mutate_order_of_steps(self, rng: Random, plan: Plan) -> Plan | None:
        """Two neighbours swapped."""
        if len(plan.steps) < 2:
            return None
        n = rng.randrange(len(plan.steps) - 1)
        a, b = plan.steps[n : n + 2]
        return replace(plan, steps=(*plan.steps[:n], b, a, *plan.steps[n + 2 :]))

    def mutate_dropped(self, rng: Random, plan: Plan) -> Plan | None:
        """A step less."""
        return self._with(plan, rng.randrange(len(plan.steps))) if plan.steps else None

    def mutate_doubled(self, rng: Random, plan: Plan) -> Plan | None:
        """A step twice."""
        if not plan.steps:
            return None
        n = rng.randrange(len(plan.steps))
        return self._with(plan, n, plan.steps[n], plan.steps[n])

    def mutate_permute(self, rng: Random, plan: Plan) -> Plan | None:
        """A wrong pair, a wrong free group, or another layout."""

        def change(step: Permute) -> Step | None:
            layout, source = step.layout, step.source
            if rng.randint(0, 2) == 0:
                return Permute(self._shuffled(rng, layout), source)
            if isinstance(source, Pairs):
                pairs = list(source.pairs)
                if len(pairs) < 2:
                    return None
                a, b = rng.sample(range(len(pairs)), 2)
                pairs[a], pairs[b] = (pairs[a][0], pairs[b][1]), (pairs[b][0], pairs[a][1])
                if rng.randint(0, 3) == 0:
                    pairs[a] = (pairs[b][0], pairs[a][1])
                return Permute(layout, Pairs(tuple(pairs)))
            groups = [(ours, tuple(rng.sample(theirs, len(theirs)))) for ours, theirs in source.groups]
            if len(groups) > 1 and rng.randint(0, 1):
                receivers = rng.sample([theirs for _, theirs in groups], len(groups))
                groups = [(ours, theirs) for (ours, _), theirs in zip(groups, receivers, strict=True)]
            return Permute(layout, Free(tuple(groups)))

        return self._change(rng, plan, change, (Permute,))

    def _shuffled(self, rng: Random, layout: Layout) -> Layout:
        """The axes of a layout in other places."""
        axes = [list(dim.axes) for dim in layout.dims]
        used = [dim for dim in axes if dim]
        if not used:
            return layout
        if len(axes) > 1 and rng.randint(0, 1):
            i, j = rng.sample(range(len(axes)), 2)
            axes[i], axes[j] = axes[j], axes[i]
        else:
            rng.shuffle(rng.choice(used))
        return Layout(
            layout.mesh, layout.shape, axes, layout.dtype,
            rules=[dim.rule for dim in layout.dims],
            partial=layout.partial_axes,
        )  # fmt: skip

    def mutate_transfers(self, rng: Random, plan: Plan) -> Plan | None:
        """A box off by one, dropped, doubled, or from another device."""

        def change(step: Exchange) -> Step | None:
            if isinstance(step.transfers, Owner):
                return Exchange(self._shuffled(rng, step.layout))
            transfers = list(step.transfers)
            if not transfers:
                return None
            k = rng.randrange(len(transfers))
            t = transfers[k]
            match rng.randint(0, 4):
                case 0:
                    del transfers[k]
                case 1:
                    transfers.append(t)
                case 2:
                    transfers[k] = replace(t, sender=rng.choice(transfers).sender)
                case 3:
                    transfers[k] = replace(t, receiver=rng.choice(transfers).receiver)
                case _:
                    if not t.starts:
                        return None
                    i, by = rng.randrange(len(t.starts)), rng.choice((-1, 1))
                    field = rng.choice(("starts", "stops"))
                    values = list(getattr(t, field))
                    values[i] += by
                    transfers[k] = replace(t, **{field: tuple(values)})
            return Exchange(step.layout, tuple(transfers))

        return self._change(rng, plan, change, (Exchange,))

    def mutate_listed_exchange(self, rng: Random, plan: Plan) -> Plan | None:
        """The owner rule as a list of transfers, one of them wrong or none."""
        found = self._at(rng, plan, (Exchange,))
        if found is None:
            return None
        n = found[0]
        step, before = plan.steps[n], plan.layouts[n]
        assert isinstance(step, Exchange)
        if not isinstance(step.transfers, Owner) or before.mesh.size * step.layout.mesh.size > 100:
            return None
        transfers = self._transfers(rng, before, step.layout)
        if transfers and rng.randint(0, 3):
            made = self._with(plan, n, Exchange(step.layout, tuple(transfers)))
            return self.mutate_transfers(rng, made)
        return self._with(plan, n, Exchange(step.layout, tuple(transfers)))

    def _transfers(self, rng: Random, before: Layout, target: Layout) -> list[Transfer]:
        held, wanted = before.boxes(), target.boxes()
        ours, theirs = before.mesh.index(before.partial_axes), target.mesh.index(target.partial_axes)
        made: list[Transfer] = []
        for r, receiver in enumerate(target.mesh.device_ids):
            seen: set[tuple[int, ...]] = set()
            for s in rng.sample(range(before.mesh.size), before.mesh.size):
                starts = np.maximum(held[0][s], wanted[0][r])
                stops = np.minimum(held[1][s], wanted[1][r])
                if (starts < stops).all() and ours[s] == theirs[r] and tuple(starts.tolist()) not in seen:
                    seen.add(tuple(starts.tolist()))
                    sender = before.mesh.device_ids[s]
                    made.append(Transfer(sender, receiver, tuple(starts.tolist()), tuple(stops.tolist())))
        return made

    def mutate_offsets(self, rng: Random, plan: Plan) -> Plan | None:
        """A block of the target that starts one element off."""
        dims = [i for i, n in enumerate(plan.target.block_counts()) if n > 1 and plan.target.dims[i].size]
        if not dims:
            return None
        i = rng.choice(dims)
        starts = plan.target.dim_bounds(i)[0].tolist()
        k = rng.randrange(1, len(starts))
        starts[k] += rng.choice((-1, 1))
        target = [
            dim if n != i else replace(dim, rule=Offsets(tuple(starts))) for n, dim in enumerate(plan.target.dims)
        ]
        return replace(plan, target=plan.target.with_dims(target))

    def mutate_target(self, rng: Random, plan: Plan) -> Plan | None:
        """Another target: axes in other places, or not all of them."""
        if rng.randint(0, 1):
            return replace(plan, target=self._shuffled(rng, plan.target))
        dims = [replace(dim, axes=dim.axes[:-1]) if rng.randint(0, 1) else dim for dim in plan.target.dims]
        return replace(plan, target=plan.target.with_dims(dims))

    def mutate_unreduced(self, rng: Random, plan: Plan) -> Plan | None:
        """A reduction of some of the axes only, a value that stays unreduced, or one reduced in two halves."""

        def change(step: Any) -> Step | None:
            if isinstance(step, AllReduce):
                return AllReduce(step.axes[:-1]) if len(step.axes) > 1 else None
            return type(step)([(i, axes[:-1]) for i, axes in step.axes if len(axes) > 1] or step.axes)

        return self._change(rng, plan, change, (AllReduce, ReduceScatter))

    def mutate_limit(self, rng: Random, plan: Plan) -> Plan | None:
        """A memory limit that the plan exceeds by a byte, or keeps exactly."""
        limit = plan.peak_bytes - rng.randint(0, 1)
        return replace(plan, options=Options(memory_limit=limit))


@pytest.fixture(scope="session")
def plans() -> Plans:
    """Right plans and mutants."""
    return Plans()

"""What the tests run on every rank: `mpiexec -n N python ranks.py SCENARIO JSON`. Rank 0 prints a JSON line.

Problems come from a seed, so that all ranks have them without communicating. What a rank should hold in the
end is NumPy's slice of the global array.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from counting import Counting
from mpi4py import MPI
from scenario import main

import redist
from redist.collectives.cost import received_by_device
from redist.collectives.plan import Options, Plan
from redist.collectives.simulate import scatter, simulate
from redist.collectives.steps import Chunk
from redist.synth import synthesize
from redist.testing import (
    all_layouts,
    random_layout,
    random_mesh,
    random_problem,
    random_problems,
    random_steps,
)
from redist.types.dtypes import numpy_dtype

WORLD = MPI.COMM_WORLD


def content(rng: Random, shape: tuple[int, ...], dtype: str) -> Any:
    """Small numbers, so that sums are exact in every dtype that can hold them."""
    draw = np.random.default_rng(rng.getrandbits(32))
    kind = numpy_dtype(dtype)
    if kind.kind in "SUmM":
        return draw.integers(0, 9, size=shape).astype("i8").astype(kind)
    return draw.integers(0, 7, size=shape).astype(kind)


def strided(rng: Random, block: Any) -> Any:
    """The same block, in C order, in Fortran order, or as every other element of something larger."""
    block = np.asarray(block)
    match rng.randint(0, 3):
        case 0 if block.ndim:
            return np.asfortranarray(block)
        case 1 if block.ndim:
            wide = np.zeros([2 * length for length in block.shape], block.dtype)
            view = wide[tuple(slice(None, None, 2) for _ in block.shape)]
            view[...] = block
            return view
        case 2 if block.ndim:
            return np.ascontiguousarray(block[::-1])[::-1]
        case _:
            return block


def same(got: Any, want: Any, reduced: bool) -> bool:
    """Bit by bit; where contributions are reduced, zeros of either sign are the same."""
    alike = got.shape == want.shape and got.dtype == want.dtype
    return alike and (got.tobytes() == want.tobytes() or (reduced and bool((got == want).all())))


def run_one(plan: Plan, rng: Random, **options: Any) -> dict[str, Any]:
    """Run a plan; says on rank 0 what is wrong on which ranks, and whether bytes are as stated."""
    value = content(rng, plan.source.shape, plan.source.dtype)
    blocks = {d: np.asarray(block, value.dtype) for d, block in scatter(plan.source, value).items()}
    wanted = simulate(plan, blocks, check=False)  # partial targets: what is left to reduce
    if plan.target.partial is None and plan.source.partial is None:
        wanted = {d: value[plan.target.box(d)] for d in plan.target.mesh.device_ids}
    given = blocks.get(WORLD.rank)
    bound = bool(rng.randint(0, 1))
    rng = Random(rng.getrandbits(32) + WORLD.rank)  # ranks differ in what they pass
    given = None if given is None else strided(rng, given)
    before = None if given is None else given.copy()
    expected = wanted.get(WORLD.rank)
    if expected is not None:
        expected = np.asarray(expected, value.dtype)
    out = None
    if expected is not None and rng.randint(0, 1):
        out = strided(rng, np.ones(expected.shape, numpy_dtype(plan.source.dtype)))
    counting = Counting(WORLD)
    with redist.mpi.Transfer(plan, counting, **options) as transfer:
        made = run_bound(transfer, given, out, counting) if bound else transfer(given, out)
        methods = transfer.methods
    problem = None
    if (made is None) != (expected is None):
        problem = f"got {made}, wants {expected}"
    elif made is not None and not same(made, expected, plan.source.partial is not None):
        problem = f"got {made.tolist()}, wants {expected.tolist()}"
    elif out is not None and made is not out:
        problem = "out was not used"
    elif given is not None and given.tobytes() != before.tobytes():
        problem = "the input was changed"
    stated = 0
    for step, before_step, after_step in zip(plan.steps, plan.layouts, plan.layouts[1:], strict=False):
        ids = list(after_step.mesh.device_ids)
        if WORLD.rank in ids:
            stated += int(received_by_device(step, before_step)[ids.index(WORLD.rank)]) * plan.source.itemsize
    redist.mpi.release(counting)
    counted = WORLD.gather((float(counting.tally[0]), stated, problem))
    if WORLD.rank:
        return {}
    assert counted is not None
    return {
        "plan": plan.to_json(),
        "wrong": {rank: text for rank, (_, _, text) in enumerate(counted) if text},
        "itemsize": plan.source.itemsize,
        "bound": plan.lower_bound_bytes,
        "received": [r for r, _, _ in counted],
        "stated": [s for _, s, _ in counted],
        "methods": methods,
    }


def run_bound(transfer: redist.mpi.Transfer, given: Any, out: Any, counting: Counting) -> Any:
    """The second run of blocks that are bound, after one with other content."""
    bound = transfer.bind(given, out)
    kept = None if given is None else given.copy()
    if given is not None:
        given[...] = np.zeros((), given.dtype)
    bound()
    if given is not None:
        given[...] = kept
    counting.tally[0] *= 0
    made = bound()
    assert made is bound.out
    return made


def random_plans(seed: int, count: int, ranks: int, **options: Any) -> list[Plan]:
    """Plans over at most so many devices, whose ids are ranks."""
    rng, found = Random(seed), []
    while len(found) < count:
        source, target = random_problem(rng, max_devices=ranks, **options)
        if max(*source.mesh.device_ids, *target.mesh.device_ids) >= ranks:
            continue
        try:
            found.append(synthesize(source, target, backend="mpi"))
        except redist.InfeasibleError:
            continue
    return found


def problems(seed: int, count: int, ranks: int, methods: list[str]) -> list[dict[str, Any]]:
    rng, found = Random(seed), []
    dtypes = ["f32", "bf16", "i8", "bool", "i64", "c64", "u16", ">f8", "f8e4m3", "i4", "S3", "V5", "c128", "M8[s]"]
    plans = [
        *random_plans(seed, count // 2, ranks, dtypes=dtypes, partial=False),
        *random_plans(seed + 1, count - count // 2, ranks),
    ]
    for plan in plans:
        loaded = redist.Plan.from_json(plan.to_json())
        agree = rng.choice(["along", "before", "never"])
        found.append(run_one(loaded, rng, method=rng.choice(methods), agree=agree))
    return found


def sequences(seed: int, count: int, ranks: int) -> list[dict[str, Any]]:
    """Valid steps of every kind in any order, chunks among them, by both methods, overlapped or not."""
    rng, found = Random(seed), []
    while len(found) < count:
        source = random_layout(rng, random_mesh(rng, max_devices=ranks))
        if source.dtype in ("bf16",) or max(source.mesh.device_ids) >= ranks:
            continue
        steps = random_steps(rng, source, max_steps=4)
        layouts = redist.Plan(source, source, steps).layouts
        if not steps or any(max(layout.mesh.device_ids) >= ranks for layout in layouts):
            continue
        plan = Plan(source, layouts[-1], steps, Options(backend="mpi"))
        found.append(run_one(plan, rng, method=rng.choice(["packed", "datatypes"]), overlapped=bool(rng.randint(0, 1))))
    return found


def pairs(mesh: str, shape: list[int], seed: int, count: int, steps: list[str] | None) -> list[dict[str, Any]]:
    """Sampled ordered pairs of all layouts of a mesh."""
    rng, layouts = Random(seed), all_layouts(redist.Mesh.parse(mesh), len(shape), shape=shape)
    return [run_one(redist.synthesize(*rng.sample(layouts, 2), backend="mpi", steps=steps), rng) for _ in range(count)]


def limited(seed: int, count: int, ranks: int) -> list[dict[str, Any]]:
    """Plans under the smallest memory limit that is feasible, or somewhat more; both kinds of planning."""
    rng, found = Random(seed), []
    for source, target in random_problems(seed, 100_000, max_devices=ranks, partial=False):
        if len(found) == count:
            break
        if max(*source.mesh.device_ids, *target.mesh.device_ids) >= ranks or source.equivalent(target):
            continue
        backend = rng.choice(["mpi", "numpy"])
        try:
            smallest = redist.synthesize(source, target, backend=backend, memory_limit=1).peak_bytes
        except redist.InfeasibleError as error:
            smallest = error.smallest_limit
        if not smallest:
            continue
        limit = int(smallest * rng.choice([1, 1, 1.5, 2]))
        plan = redist.synthesize(source, target, backend=backend, memory_limit=limit)
        if any(isinstance(step, Chunk) for step in plan.steps) or rng.randint(0, 30) == 0:
            found.append(run_one(plan, rng))
    return found


if __name__ == "__main__":
    main(globals())

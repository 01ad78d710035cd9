"""Transfers over time, in memory, and of size, on every rank; called as `scenario` says."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI
from scenario import main

import redist
from redist.collectives.backends.mpi.groups import communicators
from redist.collectives.plan import Plan
from redist.collectives.steps import Exchange
from redist.types.dtypes import numpy_dtype

WORLD = MPI.COMM_WORLD


def started(rounds: int) -> dict[str, Any]:
    """Two transfers under way at once, finished in either order; one is used again and again."""
    axes = redist.Mesh.parse(f"x={WORLD.size}")
    rows, columns = redist.Layout.parse("f32[24{x}, 24]", axes), redist.Layout.parse("f32[24, 24{x}]", axes)
    there, back = redist.synthesize(rows, columns), redist.synthesize(columns, rows)
    faults, seen = 0, []
    with (
        redist.mpi.Transfer(there, WORLD, progress=lambda *done: seen.append(done)) as first,
        redist.mpi.Transfer(back, WORLD) as second,
    ):
        for n in range(rounds):
            value = np.arange(576, dtype=np.float32).reshape(24, 24) + n
            given, other = value[rows.box(WORLD.rank)], value[columns.box(WORLD.rank)]
            first.start(given)
            second.start(other)
            while n % 3 == 0 and not (first.test() and second.test()):
                pass
            made = [second.wait(), first.wait()] if n % 2 else [first.wait(), second.wait()][::-1]
            faults += not np.array_equal(made[0], given) or not np.array_equal(made[1], other)
    return {"faults": WORLD.allreduce(faults), "seen": seen}


def entangled(rounds: int) -> int:
    """Transfers of several steps at once, while some ranks test often and others never; how many were wrong."""
    axes, faults = redist.Mesh.parse(f"x={WORLD.size}"), 0
    plans, values = [], []
    for side in (24, 48, 36):
        rows, columns = (redist.Layout.parse(f"f32[{text}]", axes) for text in (f"{side}{{x}}, 8", f"{side}, 8{{x}}"))
        plans.append(Plan(rows, columns, (Exchange(columns), Exchange(rows), Exchange(columns))))
        values.append(np.arange(side * 8, dtype=np.float32).reshape(side, 8))
    first, second = (redist.mpi.Transfer(plan, WORLD) for plan in plans[:2])
    blocks = [value[plan.source.box(WORLD.rank)] for plan, value in zip(plans, values, strict=True)]
    bound = second.bind(blocks[1])
    for n in range(rounds):
        impatient = (WORLD.rank + n) % WORLD.size
        first.start(blocks[0])
        for _ in range(500 * impatient):
            first.test()
        bound.start()
        for _ in range(500 * (WORLD.size - impatient)):
            bound.test()
        third = redist.mpi.redistribute(blocks[2], plans[2], WORLD)
        made = [first.wait(), bound.wait(), third]
        for plan, value, block in zip(plans, values, made, strict=True):
            faults += not np.array_equal(block, value[plan.target.box(WORLD.rank)])
    first.close()
    second.close()
    return int(WORLD.allreduce(faults))


def apart() -> list[bool]:
    """Blocks that are bound move inside each group, whatever the other one does meanwhile."""
    axes = redist.Mesh.parse("x=2,y=2")
    source, target = redist.Layout.parse("f32[8{x}, 8{y}]", axes), redist.Layout.parse("f32[8{x,y}, 8]", axes)
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    with redist.mpi.Transfer(redist.synthesize(source, target, backend="mpi"), WORLD) as transfer:
        bound = transfer.bind(np.ascontiguousarray(value[source.box(WORLD.rank)]))
        for group in (0, 1):
            if WORLD.rank // 2 == group:
                for _ in range(3):
                    bound()
            WORLD.Barrier()
        return WORLD.allgather(np.array_equal(bound.out, value[target.box(WORLD.rank)]))


def not_numbers() -> dict[str, list[bool]]:
    """Maxima and minima in which one rank has NaN, and sums that round to the dtype at every addition."""
    axes, found = redist.Mesh({"x": WORLD.size}), {}
    for name in ("f32", "f64", "f16", "bf16", "c64"):
        dtype = numpy_dtype(name)
        for kind in ("max", "min", "sum"):
            source = redist.Layout(axes, (8,), dtype=name, partial=["x"], reduction=kind)
            for target in (redist.Layout(axes, (8,), dtype=name), redist.Layout(axes, (8,), [["x"]], name)):
                given = np.full(8, WORLD.rank + 1).astype(dtype)
                if kind == "sum":
                    given = np.full(8, 256 if WORLD.rank == 0 else 1).astype(dtype)
                elif WORLD.rank == 1:
                    given[3] = np.nan
                made = redist.mpi.redistribute(given, redist.synthesize(source, target, backend="mpi"), WORLD)
                assert made is not None
                want = np.full(8, {"max": WORLD.size, "min": 1}.get(kind, 255 + WORLD.size)).astype(dtype)
                if kind != "sum":
                    want[3] = np.nan
                want = want[target.box(WORLD.rank)]
                close = 2 if name == "bf16" else 0  # of eight significant bits
                right = ((made == want) | (np.isnan(made) & np.isnan(want))).all()
                right = right or (kind == "sum" and (abs(made.astype("f4") - want.astype("f4")) <= close).all())
                found.setdefault(name, []).append(bool(WORLD.allreduce(bool(right), op=MPI.LAND)))
    return found


def cached(plans: int) -> dict[str, Any]:
    """Many groupings: communicators are made once each, kept up to a bound, and given back."""
    rng = Random(0)
    base = WORLD.Dup()
    kept = communicators(base)
    most = 0
    for n in range(plans):
        ids = rng.sample(range(WORLD.size), 4)
        axes = redist.Mesh({"x": 2, "y": 2}, ids)
        source, target = redist.Layout.parse("f32[8{x}, 8{y}]", axes), redist.Layout.parse("f32[8, 8{y}]", axes)
        given = np.full((4, 4), n, np.float32) if WORLD.rank in ids else None
        for _ in range(2):
            made = redist.mpi.redistribute(given, redist.synthesize(source, target), base)
            assert (made is None) == (given is None)
        most = max(most, len(kept.groups))
    again = kept.groups.copy()
    redist.mpi.redistribute(given, redist.synthesize(source, target), base)
    same = all(again[grouping] is comm for grouping, comm in kept.groups.items())
    users = sum(kept.users.values())
    redist.mpi.release(base)
    base.Free()
    return {"most": most, "same": same, "users": users}


def large(row: int) -> list[dict[str, Any]]:
    """One message of two rows of so many bytes from rank 0 to rank 1: as it lies, and rows in reverse order
    by packing and by datatypes, posted and, where blocks are bound, blocking."""
    one, other = redist.Mesh([], [0]), redist.Mesh([], [1])
    source, target = redist.Layout(one, (2, row), dtype="u8"), redist.Layout(other, (2, row), dtype="u8")
    found = []
    for step, method, bound in (
        ("permute", "packed", False),
        ("exchange", "packed", False),
        ("exchange", "datatypes", False),
        ("exchange", "packed", True),
        ("exchange", "datatypes", True),
    ):
        given = None
        if WORLD.rank == 0:
            given = np.full((2, row), 7, np.uint8)
            given[:, 0], given[:, -1] = [1, 2], [3, 4]
            given = given if step == "permute" else given[::-1]
        plan = redist.synthesize(source, target, steps=[step])
        if bound:
            with redist.mpi.Transfer(plan, WORLD, method=method) as transfer:
                made = transfer.bind(given)()
        else:
            made = redist.mpi.redistribute(given, plan, WORLD, method=method)
        right = (made is None) == (WORLD.rank == 0)
        if made is not None:
            ends = [made[:, 0].tolist(), made[:, -1].tolist()]
            right = ends == [[1, 2], [3, 4]] if step == "permute" else ends == [[2, 1], [4, 3]]
            right = right and made.min() == 1 and made.max() == 7 and int(np.count_nonzero(made == 7)) == 2 * row - 4
        del made, given
        found.append(
            {"step": step, "method": method, "bound": bound, "right": bool(WORLD.allreduce(right, op=MPI.LAND))}
        )
    return found


def calibrated() -> dict[str, Any]:
    """What calibration finds, and that a transfer does as it says."""
    found = redist.mpi.calibrate(WORLD, sizes=(2**8, 2**12), rounds=3)
    axes = redist.Mesh({"x": WORLD.size})
    side = 16 * WORLD.size
    plan = redist.synthesize(
        redist.Layout(axes, (side, side), [["x"], []]), redist.Layout(axes, (side, side), [[], ["x"]])
    )
    methods = []
    for calibration in (
        redist.mpi.Calibration(None),
        redist.mpi.Calibration(16 * 16 * 4),
        redist.mpi.Calibration(1025),
    ):
        with redist.mpi.Transfer(plan, WORLD, calibration=calibration) as transfer:
            methods.append(transfer.methods)
    return {"from": WORLD.allgather(found.datatypes_from), "methods": methods}


def _resident(field: str) -> int:
    """Bytes of this process that are in memory now (VmRSS) or were at most (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {field}")


def _pattern(layout: redist.Layout, rank: int) -> Any:
    """A rank's block of an array whose elements tell their first and last index."""
    box = layout.box(rank)
    first, last = (np.arange(part.start, part.stop, dtype=np.int16) for part in (box[0], box[-1]))
    made = (3 * first.reshape(-1, *[1] * (len(box) - 1)) + 5 * last) % 97
    return np.broadcast_to(made, [part.stop - part.start for part in box]).astype(numpy_dtype(layout.dtype))


def memory(plans: list[str], kept: bool, fortran: bool = False) -> list[dict[str, Any]]:
    """What each rank has resident at most while a plan runs, its input included, against what is projected;
    and whether the blocks are right. Contributions to be reduced are all the same."""
    found: list[dict[str, Any]] = []
    for text in plans:
        plan = Plan.from_json(text)
        given = _pattern(plan.source, WORLD.rank)
        given = np.asfortranarray(given) if fortran else given
        with redist.mpi.Transfer(plan, WORLD, keep=kept) as transfer:
            WORLD.Barrier()
            Path("/proc/self/clear_refs").write_text("5")
            before = _resident("VmRSS:") - given.nbytes
            made = transfer(given)
            if kept:
                made = transfer(given, made)
            peak = _resident("VmHWM:") - before
            stated = transfer.strided_peak_bytes if fortran else transfer.peak_bytes
        del given
        times = plan.source.mesh.count(plan.source.partial_axes)
        right = bool((made == _pattern(plan.target, WORLD.rank) * numpy_dtype(plan.source.dtype).type(times)).all())
        del made
        rows = WORLD.gather((peak, stated, right))
        if rows is not None:
            peaks, statements, rights = zip(*rows, strict=True)
            found.append({"plan": text, "peak": peaks, "stated": statements, "right": all(rights)})
    return found


if __name__ == "__main__":
    main(globals())

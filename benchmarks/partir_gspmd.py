"""Partitioned programs against XLA's own partitioner (GSPMD, by Shardy's propagation), both compiled: a training step
of the GPT on 8 devices, under every schedule.

The peer is `jax.jit` of the same function. `gspmd` is told the input shardings that the schedule led to and decides
all else, the results' shardings too; `gspmd-out` is told those as well, so that results lie where the next step wants
them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.stats import Interval, paired_speedup, verdict

__all__ = ["PEERS", "Row", "as_json", "compare", "losses", "table"]

PEERS = ("gspmd", "gspmd-out")
_OWN = "redist"


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant under one schedule: collectives by kind, arrays in them, received bytes, peak bytes, seconds of
    a step by round, by the clock and of all devices' CPU time; `speedup` of redist over it by the clock, `cpu_speedup`
    by CPU time, which other work on the machine disturbs less."""

    schedule: str
    who: str
    collectives: dict[str, int]
    parts: int
    received_bytes: int
    peak_bytes: int
    seconds: list[float]
    cpu_seconds: list[float]
    compile_seconds: float
    speedup: Interval | None = None
    cpu_speedup: Interval | None = None

    @property
    def median(self) -> float:
        """Median seconds of a step."""
        return float(np.median(self.seconds))


def compare(
    config: Any, schedules: Sequence[str], rounds: int = 24, seed: int = 0, say: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """Compile all contestants of a schedule, check their results against the unpartitioned step's, and let them take
    turns in balanced orders. Raises AssertionError for a wrong result."""
    import jax

    from benchmarks.executors.jax import balanced_orders
    from benchmarks.partir_cases import MESH, transformer
    from benchmarks.partir_hlo import of_compiled, peak_of
    from redist import partir_core as partir

    case = transformer(config)
    expected = jax.tree.map(np.asarray, jax.jit(case.fn)(*case.args))
    rows: list[Row] = []
    for name in schedules:
        lowered = partir.jit(case.fn, MESH, case.schedules[name]).lower(*case.args)
        ins, outs = lowered.in_shardings[0], lowered.out_shardings
        placed = jax.device_put(case.args, ins)
        built: dict[str, tuple[Any, Any, float]] = {}
        for who in (_OWN, *PEERS):
            started = perf_counter()
            if who == _OWN:
                call: Any = lowered.compile()
                executable = call.executable
            else:
                told = {"out_shardings": outs} if who == "gspmd-out" else {}
                jitted: Any = jax.jit(case.fn, in_shardings=ins, **told)
                executable = call = jitted.lower(*case.args).compile()
            built[who] = (call, executable, perf_counter() - started)
            _check(call(*placed), expected, f"{who} under {name}")
        seconds: dict[str, list[float]] = {who: [] for who in built}
        cpu: dict[str, list[float]] = {who: [] for who in built}
        orders: list[list[str]] = []
        rng = Random(f"{seed} {name}")
        for _ in range(rounds):
            orders = orders or balanced_orders(list(built), rng)
            for who in orders.pop():
                started, spent = perf_counter(), process_time()
                jax.block_until_ready(built[who][0](*placed))
                cpu[who].append(process_time() - spent)
                seconds[who].append(perf_counter() - started)
        for who, (_, executable, spent) in built.items():
            made = of_compiled(executable.as_text())
            row = Row(
                name, who, made.number, made.parts, made.bytes, peak_of(executable), seconds[who], cpu[who], spent
            )
            if who != _OWN:
                by_clock = paired_speedup(seconds[who], seconds[_OWN], seed)
                row = replace(row, speedup=by_clock, cpu_speedup=paired_speedup(cpu[who], cpu[_OWN], seed))
            rows.append(row)
        say(name)
        del built
        jax.clear_caches()
        gc.collect()
    return rows


def _check(got: Any, expected: Any, where: str) -> None:
    import jax

    for y, wanted in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(y), wanted, rtol=1e-3, atol=2e-4, err_msg=where)


def losses(rows: Sequence[Row]) -> list[str]:
    """Where a peer does better than redist: fewer bytes, a lower peak, or a step that is faster beyond doubt."""
    found: list[str] = []
    own = {row.schedule: row for row in rows if row.who == _OWN}
    for row in rows:
        mine = own[row.schedule]
        if row.who == _OWN:
            continue
        if mine.received_bytes > row.received_bytes:
            found.append(f"{row.schedule}: {mine.received_bytes:,} bytes received, {row.who} {row.received_bytes:,}")
        if mine.peak_bytes > row.peak_bytes:
            share = mine.peak_bytes / row.peak_bytes - 1
            found.append(f"{row.schedule}: peak {mine.peak_bytes:,} bytes, {row.who} {row.peak_bytes:,} ({share:+.1%})")
        if row.speedup and verdict(row.speedup) == "loss":
            found.append(f"{row.schedule}: {row.speedup} times as fast as {row.who}; by CPU time {row.cpu_speedup}")
    return found


def table(rows: Sequence[Row]) -> str:
    """Aligned text."""
    lines = [
        f"{'schedule':<10}{'who':<11}{'collectives':<28}{'arrays':>7}{'received':>12}{'peak':>12}{'step ms':>9}"
        f"{'CPU ms':>9}{'compile s':>11}  redist is so many times faster: by the clock, by CPU time"
    ]
    names = {"all_gather": "AG", "all_reduce": "AR", "reduce_scatter": "RS", "all_to_all": "A2A", "permute": "P"}
    for row in rows:
        counts = " ".join(f"{names[kind]} {n}" for kind, n in row.collectives.items() if n)
        pairs = [one for one in (row.speedup, row.cpu_speedup) if one is not None]
        faster = "".join(f"  {one} {verdict(one)}" for one in pairs)
        lines.append(
            f"{row.schedule:<10}{row.who:<11}{counts:<28}{row.parts:>7}{row.received_bytes:>12,}{row.peak_bytes:>12,}"
            f"{1e3 * row.median:>9.2f}{1e3 * float(np.median(row.cpu_seconds)):>9.2f}"
            f"{row.compile_seconds:>11.1f}{faster}"
        )
    worse = losses(rows)
    lines += ["", *(f"loss: {line}" for line in worse)] if worse else ["", "no losses"]
    return "\n".join(lines)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Plain values."""
    return [asdict(row) for row in rows]

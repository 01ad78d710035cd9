"""Timings on JAX, in a process with virtual devices: redist's executor and XLA's own resharding, side by side.

Everything here runs in that process. All contestants of a problem get the same source array, are checked
against it once, and then take turns in balanced orders. XLA runs twice, compiled apart: how
far these two lie apart is the noise of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.problems import Problem

__all__ = ["AGAIN", "BASE", "CONTESTANTS", "CONTROL", "OWN", "PUT", "Built", "balanced_orders", "missing", "race"]

BASE, AGAIN, OWN, PUT, CONTROL = "xla", "xla-again", "redist", "device_put", "control-nothing"

Built = tuple[Callable[[Any], Any], dict[str, int]]
"""A compiled call from source to target array, and what it states: bytes per device, and steps."""

_SAMPLE_SECONDS = 0.005
_BUDGET_SECONDS = 8.0


def _measured(compiled: Any) -> dict[str, int]:
    found = compiled.memory_analysis()
    names = ("argument", "output", "temp")
    sizes = {f"{name}_bytes": int(getattr(found, f"{name}_size_in_bytes")) for name in names}
    return {**sizes, "measured_bytes": sum(sizes.values())}


def _xla(problem: Problem) -> Built:
    from redist.proofs.audit.xla import compile_reshard

    compiled = compile_reshard(problem.source, problem.target)
    return compiled, _measured(compiled)


def _redist(problem: Problem) -> Built:
    import jax

    from redist.collectives.backends.jax.execute import compile_plan
    from redist.collectives.backends.jax.machine import default_topology
    from redist.synth import synthesize
    from redist.types.dtypes import numpy_dtype

    source, target = problem.source, problem.target
    plan = synthesize(source, target, topology=default_topology(source.mesh), backend="jax")
    given = jax.ShapeDtypeStruct(source.shape, numpy_dtype(source.dtype), sharding=source.to_jax())
    compiled = compile_plan(plan).lower(given).compile()
    projected = {"projected_bytes": plan.peak_bytes, "steps": plan.communication_steps}
    return compiled, {**_measured(compiled), **projected, "received_bytes": plan.received_bytes}


def _device_put(problem: Problem) -> Built:
    import jax

    wanted = problem.target.to_jax()
    return lambda array: jax.device_put(array, wanted), {}


def _nothing(_: Problem) -> Built:
    return lambda array: array, {}


CONTESTANTS: dict[str, Callable[[Problem], Built]] = {
    BASE: _xla,
    AGAIN: _xla,
    OWN: _redist,
    PUT: _device_put,
    CONTROL: _nothing,
}
"""`control-nothing` hands back its input; it must be found wrong."""


def missing(name: str) -> str | None:
    """Why a contestant cannot run; None where it can."""
    if name == CONTROL:
        return None
    try:
        import jax  # noqa: F401
    except ImportError as error:
        return f"jax is not installed ({error}); pip install jax"
    if name == OWN:
        try:
            from redist.collectives.backends.jax.execute import compile_plan  # noqa: F401
        except ImportError as error:
            return f"this checkout has no JAX executor ({error})"
    return None


def race(problem: Problem, names: Sequence[str], rounds: int, seed: int) -> dict[str, Any]:
    """One record: per contestant the seconds of each round, its memory, and what is wrong with its result.

    A contestant that is wrong or fails does not take part in the rounds. Short calls are repeated within a
    round; long ones get fewer rounds, at least 6.
    """
    import jax

    source, target = problem.source, problem.target
    content = _content(source.shape)
    array = jax.device_put(content, source.to_jax())
    calls: dict[str, Callable[[Any], Any]] = {}
    wrong: dict[str, str] = {}
    stated: dict[str, dict[str, int]] = {}
    build_seconds: dict[str, float] = {}
    for name in names:
        jax.clear_caches()  # or the second of two that are alike would be the first
        started = perf_counter()
        try:
            calls[name], stated[name] = CONTESTANTS[name](problem)
            build_seconds[name] = round(perf_counter() - started, 4)
            found = _difference(calls[name](array), content, target.to_jax())
        except Exception as error:  # whatever a contestant does is its own result
            found = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        if found is not None:
            wrong[name] = found
            calls.pop(name, None)
    seconds = _rounds(calls, array, rounds, Random(f"{seed}/{problem.key}"))
    alike = _alike(calls.get(BASE), calls.get(OWN))
    jax.clear_caches()
    return {
        "record": "timing",
        "family": problem.family,
        "problem": problem.key,
        "who": "race",
        "bytes": math.prod(source.shape) * source.itemsize,
        "bound_bytes": source.block_bytes() + target.block_bytes(),
        "seconds": seconds,
        "build_seconds": build_seconds,
        "wrong": wrong,
        "stated": stated,
        "same_program": alike,
    }


def _alike(base: Any, own: Any) -> bool:
    """Whether XLA made the same program of both; False where one has none."""
    from benchmarks.programs import same_program

    return base is not None and own is not None and same_program(base.as_text(), own.as_text())


def balanced_orders(names: list[str], rng: Random) -> list[list[str]]:
    """Orders in which everyone is at every place, and behind every other one, equally often (E. J. Williams,
    Experimental designs balanced for the estimation of residual effects of treatments, 1949)."""
    rng.shuffle(names)
    n = len(names)
    first = [(k // 2 if k % 2 == 0 else n - 1 - k // 2) for k in range(n)]  # 0, n-1, 1, n-2, ...
    rows = [[names[(place + shift) % n] for place in first] for shift in range(n)]
    if n % 2:
        rows += [row[::-1] for row in rows]
    rng.shuffle(rows)
    return rows


def _content(shape: tuple[int, ...]) -> Any:
    """f32 elements of which no two within 2^24 are the same."""
    return (np.arange(math.prod(shape), dtype=np.int64) % 2**24).astype(np.float32).reshape(shape)


def _difference(result: Any, content: Any, sharding: Any) -> str | None:
    """What is wrong with a result: its sharding, or a block that is not the target's."""
    if result.shape != content.shape or result.dtype != content.dtype:
        return f"the result is {result.dtype}{list(result.shape)}, not {content.dtype}{list(content.shape)}"
    if not result.sharding.is_equivalent_to(sharding, content.ndim):
        return f"the result is laid out as {result.sharding}, not {sharding}"
    for shard in result.addressable_shards:
        if not np.array_equal(np.asarray(shard.data), content[shard.index]):
            return f"device {shard.device.id} holds a wrong block"
    return None


def _rounds(calls: dict[str, Callable[[Any], Any]], array: Any, rounds: int, rng: Random) -> dict[str, list[float]]:
    """Seconds per call and round, in turns. The orders form Williams designs over contestants that are numbered
    at random: none runs first, or behind a certain other one, more often than the rest."""
    once: dict[str, float] = {}
    for name, call in calls.items():
        call(array).block_until_ready()
        started = perf_counter()
        call(array).block_until_ready()
        once[name] = perf_counter() - started
    slowest = max(once.values(), default=0.0)
    repeats = max(1, min(20, math.ceil(_SAMPLE_SECONDS / max(slowest, 1e-6))))
    per_round = sum(once.values()) * repeats
    count = max(6, min(rounds, int(_BUDGET_SECONDS / max(per_round, 1e-6))))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    orders: list[list[str]] = []
    for _ in range(count if calls else 0):
        orders = orders or balanced_orders(list(calls), rng)
        for name in orders.pop():
            started = perf_counter()
            for _ in range(repeats):
                calls[name](array).block_until_ready()
            seconds[name].append((perf_counter() - started) / repeats)
    return seconds

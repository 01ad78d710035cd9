"""Timings on several hosts: what the process of each host runs.

Run as `python -m benchmarks.executors.cluster JOB.json HOST ADDRESS`; host 0 prints one record per problem. All
processes compile and run the same programs in the same order. Contestants get the same array, are checked
against it, block by block on every host, and then take turns in balanced orders. Each call starts
after a barrier, and a round's time is that of the slowest process. What crossed the network is read off the
counters of the hosts' links.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.executors.jax import AGAIN, BASE, CONTROL, balanced_orders
from redist.types import Layout, Mesh

if TYPE_CHECKING:
    from redist.collectives import Plan, Topology

__all__ = ["CALIBRATED", "CONTESTANTS", "OWN", "SHARDY", "race"]

OWN, CALIBRATED, SHARDY = "redist", "redist-calibrated", "shardy"

Built = tuple[Callable[[Any], Any], dict[str, Any]]
"""A compiled call from source to target array, and what is stated of it."""

_SAMPLE_SECONDS = 0.02
_BUDGET_SECONDS = 60.0
_LARGEST_EXPERIMENT, _EXPERIMENT_ROUNDS = 1 << 21, 3


def _xla(source: Layout, target: Layout, _: _Hosts) -> Built:
    from redist.proofs.audit.xla import compile_reshard

    return compile_reshard(source, target), {}


def _compiled(plan: Plan) -> Built:
    import jax

    from redist.collectives.backends.jax.execute import compile_plan
    from redist.collectives.explain import describe
    from redist.types.dtypes import numpy_dtype

    source = plan.source
    given = jax.ShapeDtypeStruct(source.shape, numpy_dtype(source.dtype), sharding=source.to_jax())
    stated = {"steps": [describe(step) for step in plan.steps], "received_bytes": plan.received_bytes}
    return compile_plan(plan).lower(given).compile(), stated


def _redist(source: Layout, target: Layout, _: _Hosts) -> Built:
    from redist.collectives.backends.jax.machine import default_topology
    from redist.synth import synthesize

    return _compiled(synthesize(source, target, topology=default_topology(source.mesh), backend="jax"))


def _calibrated(source: Layout, target: Layout, hosts: _Hosts) -> Built:
    from redist.synth import synthesize

    return _compiled(synthesize(source, target, topology=hosts.topology(source.mesh), backend="jax"))


def _shardy(source: Layout, target: Layout, _: _Hosts) -> Built:
    from redist.collectives import Options, Plan
    from redist.proofs.audit.shardy import plan_of_shardy

    numbered = Mesh(source.mesh.axes)  # Shardy takes no ids but 0 to n-1
    found = plan_of_shardy(*(Layout.parse(str(layout), numbered) for layout in (source, target)))
    if found.steps is None:
        raise ValueError(found.note)
    steps = [_renumbered(step, source.mesh) for step in found.steps]
    return _compiled(Plan(source, target, tuple(steps), Options(backend="jax")))


def _renumbered(step: Any, mesh: Mesh) -> Any:
    """A step over devices 0 to n-1, over the mesh's devices at these positions. Only permutes name any."""
    from redist.collectives import Permute
    from redist.collectives.steps import Pairs

    if not isinstance(step, Permute):
        return step
    assert isinstance(step.source, Pairs)
    ids = mesh.device_ids
    pairs = tuple((ids[sender], ids[receiver]) for sender, receiver in step.source.pairs)
    return Permute(Layout.parse(str(step.layout), mesh), Pairs(pairs))


CONTESTANTS: dict[str, Callable[[Layout, Layout, _Hosts], Built]] = {
    BASE: _xla,
    AGAIN: _xla,
    OWN: _redist,
    CALIBRATED: _calibrated,
    SHARDY: _shardy,
    CONTROL: lambda *_: ((lambda array: array), {}),
}
"""`redist` plans under the topology that it finds by itself, `redist-calibrated` under one measured here; `shardy`
is the plan of Shardy's pass, run by redist's JAX backend; `control-nothing` must be found wrong."""


class _Hosts:
    """What the processes tell each other: a barrier, and numbers of all of them."""

    def __init__(self) -> None:
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("all",))
        self._given = NamedSharding(mesh, PartitionSpec("all"))
        whole = NamedSharding(mesh, PartitionSpec())
        self._gather = jax.jit(lambda x: x, out_shardings=whole)
        self._token = self._spread(np.zeros(1, np.float32))
        self._topologies: dict[Mesh, Topology] = {}

    def _spread(self, mine: Any) -> Any:
        import jax

        size = jax.device_count()
        return jax.make_array_from_callback((size, *mine.shape), self._given, lambda _: mine[None])

    def wait(self) -> None:
        """Return when all processes have come here."""
        self._gather(self._token).block_until_ready()

    def all(self, numbers: Sequence[float]) -> Any:
        """The numbers of every process, an array (devices, numbers). As 64 bits, in two halves."""
        halves = np.asarray(numbers, np.float64).view(np.uint32)
        return np.ascontiguousarray(np.asarray(self._gather(self._spread(halves)))).view(np.float64)

    def topology(self, mesh: Mesh) -> Topology:
        """What collectives cost over each axis, measured once; all processes find the same."""
        if mesh not in self._topologies:
            self._topologies[mesh] = _measured(mesh, self)
        return self._topologies[mesh]


def _measured(mesh: Mesh, hosts: _Hosts) -> Topology:
    import jax

    from redist.collectives.calibrate import experiments, fit, timed

    planned = [one for one in experiments(mesh) if one.plan.target.block_bytes() <= _LARGEST_EXPERIMENT]

    def prepared(plan: Plan) -> Callable[[], float]:
        call, _ = _compiled(plan)
        zeros = np.zeros(plan.source.shape, np.float32)
        array = jax.make_array_from_callback(zeros.shape, plan.source.to_jax(), lambda index: zeros[index])
        return lambda: float(hosts.all([_timed(call, array, hosts, 1)])[:, 0].max())

    seconds = timed([prepared(one.plan) for one in planned], _EXPERIMENT_ROUNDS)
    return fit(planned, seconds, dict.fromkeys(mesh.names, "switch"))[0]


def race(source: Layout, target: Layout, hosts: _Hosts, rounds: int, rng: Random) -> dict[str, Any]:
    """Per contestant the seconds of each round, what is wrong with its result, and what is stated of it."""
    import jax

    size = math.prod(source.shape)
    content = (np.arange(size, dtype=np.int64) % 2**24).astype(np.float32).reshape(source.shape)
    array = jax.make_array_from_callback(source.shape, source.to_jax(), lambda index: content[index])
    calls: dict[str, Callable[[Any], Any]] = {}
    wrong: dict[str, str] = {}
    stated: dict[str, dict[str, Any]] = {}
    for name, build in CONTESTANTS.items():
        found = ""
        try:
            calls[name], stated[name] = build(source, target, hosts)
            found = _difference(calls[name](array), content, target.to_jax())
        except Exception as error:  # whatever a contestant does is its own result
            found = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        faulty = np.flatnonzero(hosts.all([float(bool(found))])[:, 0])
        if faulty.size:
            wrong[name] = found or f"wrong on device {jax.devices()[faulty[0]].id}"
            calls.pop(name, None)
    arrived = [_arrived(call, array, hosts) for call in calls.values()]
    crossing = dict(zip(calls, map(int, hosts.all(arrived).max(axis=0)), strict=True)) if calls else {}
    seconds = _rounds(calls, array, hosts, rounds, rng)
    jax.clear_caches()
    made = {"bytes": size * source.itemsize, "seconds": seconds, "wrong": wrong, "stated": stated}
    return {**made, "crossing_bytes": crossing}


def _arrived(call: Callable[[Any], Any], array: Any, hosts: _Hosts) -> float:
    """Bytes per call that came in over this host's link, headers and all."""
    counter = Path("/sys/class/net/eth0/statistics/rx_bytes")
    calls = 3
    hosts.wait()
    before = int(counter.read_text(encoding="utf-8"))
    for _ in range(calls):
        call(array).block_until_ready()
    hosts.wait()
    return (int(counter.read_text(encoding="utf-8")) - before) / calls


def _difference(result: Any, content: Any, sharding: Any) -> str:
    if not result.sharding.is_equivalent_to(sharding, content.ndim):
        return f"the result is laid out as {result.sharding}, not {sharding}"
    for shard in result.addressable_shards:
        if not np.array_equal(np.asarray(shard.data), content[shard.index]):
            return f"device {shard.device.id} holds a wrong block"
    return ""


def _rounds(
    calls: dict[str, Callable[[Any], Any]], array: Any, hosts: _Hosts, rounds: int, rng: Random
) -> dict[str, list[float]]:
    """Seconds per call and round of the slowest process. Short calls are repeated within a round; long ones get
    fewer rounds, at least 6."""
    if not calls:
        return {}
    once = [min(_timed(call, array, hosts, 1) for _ in range(2)) for call in calls.values()]
    slowest = hosts.all(once).max(axis=0)
    repeats = max(1, min(20, math.ceil(_SAMPLE_SECONDS / max(float(slowest.max()), 1e-6))))
    count = max(6, min(rounds, int(_BUDGET_SECONDS / (float(slowest.sum()) * repeats))))
    mine: dict[str, list[float]] = {name: [] for name in calls}
    orders: list[list[str]] = []
    for _ in range(count):
        orders = orders or balanced_orders(list(calls), rng)
        for name in orders.pop():
            mine[name].append(_timed(calls[name], array, hosts, repeats))
    together = hosts.all([taken for name in calls for taken in mine[name]]).max(axis=0).reshape(len(calls), count)
    return {name: list(map(float, taken)) for name, taken in zip(calls, together, strict=True)}


def _timed(call: Callable[[Any], Any], array: Any, hosts: _Hosts, repeats: int) -> float:
    total = 0.0
    for _ in range(repeats):
        hosts.wait()
        started = perf_counter()
        call(array).block_until_ready()
        total += perf_counter() - started
    return total / repeats


def main() -> None:
    """What each host runs."""
    import jax

    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    number = int(sys.argv[2])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[3], job["hosts"], number)
    hosts = _Hosts()
    ids = [device.id for device in jax.devices()]
    for row in job["problems"]:
        mesh = Mesh(Mesh.parse(row["mesh"]).axes, ids)
        source, target = Layout.parse(row["source"], mesh), Layout.parse(row["target"], mesh)
        record = race(source, target, hosts, job["rounds"], Random(f"{job['seed']}/{row['key']}"))
        if number == 0:
            print(json.dumps({"family": row["family"], "problem": row["key"], **record}), flush=True)
    hosts.wait()
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()

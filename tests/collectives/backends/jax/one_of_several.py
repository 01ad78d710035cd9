"""One of several JAX processes that reshard together (started by `test_processes`): prints what it found as JSON.

Arguments: its number, how many there are, devices in each, the coordinator's address.
"""

from __future__ import annotations

import itertools
import json
import sys
from random import Random

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import redist

NUMBER, COUNT, EACH, ADDRESS = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
FULL = np.arange(48 * 24, dtype=np.float32).reshape(48, 24)


def right(array: jax.Array, sharding: NamedSharding) -> bool:
    """Whether this process holds its blocks of FULL, under the sharding asked for."""
    return array.sharding == sharding and all(
        np.array_equal(np.asarray(shard.data), FULL[shard.index]) for shard in array.addressable_shards
    )


def placed(sharding: NamedSharding) -> jax.Array:
    """FULL, each process making its own blocks."""
    return jax.make_array_from_callback(FULL.shape, sharding, lambda index: FULL[index])


def specs(names: tuple[str, ...]) -> list[PartitionSpec]:
    """Every way to shard two dimensions over some of the axes."""
    found: list[PartitionSpec] = []
    for count in range(len(names) + 1):
        for order in itertools.permutations(names, count):
            found += [PartitionSpec(order[:cut], order[cut:]) for cut in range(count + 1)]
    return found


def main() -> None:
    """Reshard on every kind of mesh."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(ADDRESS, COUNT, NUMBER)
    rng = Random(7)  # the same problems in every process
    wrong: list[str] = []
    tried = 0
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((COUNT, EACH), ("host", "device"), axis_types=(kind, kind))
        for source, target in [
            (rng.choice(specs(mesh.axis_names)), rng.choice(specs(mesh.axis_names))) for _ in range(8)
        ]:
            given, wanted = NamedSharding(mesh, source), NamedSharding(mesh, target)
            tried += 1
            if not right(redist.reshard(placed(given), wanted), wanted):
                wrong.append(f"{kind} {source} -> {target}")
    mesh = jax.make_mesh((COUNT, EACH), ("host", "device"), axis_types=(AxisType.Auto,) * 2)
    given = NamedSharding(mesh, PartitionSpec("host", "device"))
    turned = Mesh(np.array(jax.devices()).reshape(EACH, COUNT)[::-1, :], ("a", "b"))
    wanted = NamedSharding(turned, PartitionSpec("b", "a"))
    tried += 1
    if not right(redist.reshard(placed(given), wanted), wanted):
        wrong.append("another order of the devices")
    inside = jax.jit(lambda x: redist.reshard(x, NamedSharding(mesh, PartitionSpec(None, "host")), source=given) * 2)
    tried += 1
    doubled = inside(placed(given))
    if not all(np.array_equal(np.asarray(s.data), 2 * FULL[s.index]) for s in doubled.addressable_shards):
        wrong.append("inside jit")
    tree = {"a": placed(given), "b": placed(NamedSharding(mesh, PartitionSpec("device")))}
    moved = redist.reshard(tree, NamedSharding(mesh, PartitionSpec(("device", "host"))))
    tried += 1
    if not all(right(leaf, NamedSharding(mesh, PartitionSpec(("device", "host")))) for leaf in moved.values()):
        wrong.append("a tree")
    few = Mesh(np.array(jax.devices())[:EACH], ("a",))
    try:
        redist.reshard(placed(given), NamedSharding(few, PartitionSpec("a")))
        refusal = "none"
    except redist.BackendError as error:
        refusal = str(error)
    shown = redist.explain(placed(given), NamedSharding(mesh, PartitionSpec(None, ("device", "host"))))
    print(json.dumps({"wrong": wrong, "tried": tried, "refusal": refusal, "explained": shown}), flush=True)
    jax.distributed.shutdown()


main()

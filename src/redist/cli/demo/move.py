"""Moves the tree with redist and with XLA, checks every value, and measures both in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.cli.demo.facts import Case, Memory, Spread, spread
from redist.cli.demo.gpt2 import Leaf, expected_bits
from redist.cli.demo.xla import collectives
from redist.cli.on_jax import compiled_plan, load_jax
from redist.collectives import Plan
from redist.collectives.backends.jax.machine import default_topology
from redist.collectives.cost import received_by_device
from redist.collectives.explain import describe
from redist.errors import ProofError
from redist.synth import synthesize
from redist.types import missing_by_device

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Mover", "busiest_device", "compare", "in_turns", "movers", "source_array", "wrong_elements"]

Run = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Mover:
    """The arrays of one shape, source and target, and two compiled programs that move one of them."""

    leaves: tuple[Leaf, ...]
    plan: Plan
    ours: Any
    xla: Any

    def case(self, ours: Spread, xla: Spread, ratio: Spread) -> Case:
        """What is known of it, with the times that were measured."""
        kinds, xla_received = collectives(self.xla.as_text())
        return Case(
            names=tuple(leaf.name for leaf in self.leaves),
            source=str(self.plan.source),
            target=str(self.plan.target),
            steps=tuple(map(describe, self.plan.steps)),
            received_bytes=self.plan.received_bytes,
            lower_bound_bytes=self.plan.lower_bound_bytes,
            projected_peak_bytes=self.plan.peak_bytes,
            memory=_memory(self.ours),
            seconds=ours,
            xla_steps=tuple(kinds),
            xla_received_bytes=xla_received,
            xla_memory=_memory(self.xla),
            xla_seconds=xla,
            ratio=ratio,
        )


def movers(leaves: Iterable[Leaf]) -> Iterator[Mover]:
    """One per distinct (shape, source, target), the largest arrays first."""

    def key(leaf: Leaf) -> tuple[int, str, str]:
        return -leaf.elements, str(leaf.source), str(leaf.target)

    for _, group in groupby(sorted(leaves, key=key), key=key):
        same = tuple(group)
        plan = synthesize(same[0].source, same[0].target, topology=default_topology(same[0].source.mesh), backend="jax")
        yield Mover(same, plan, compiled_plan(plan), _compiled_by_xla(same[0]))


def _compiled_by_xla(leaf: Leaf) -> Any:
    """The identity, told where its argument is and where its result goes: XLA does the rest."""
    jax = load_jax()

    def unchanged(x: Any) -> Any:
        return x

    argument = jax.ShapeDtypeStruct(leaf.source.shape, np.float32, sharding=leaf.source.to_jax())
    return jax.jit(unchanged, out_shardings=leaf.target.to_jax()).lower(argument).compile()


def _memory(compiled: Any) -> Memory:
    facts = compiled.memory_analysis()
    return Memory(facts.argument_size_in_bytes, facts.output_size_in_bytes, facts.temp_size_in_bytes)


def source_array(leaf: Leaf) -> Any:
    """The parameter in the training layout, every device's block made on its own."""

    def block(index: tuple[slice, ...]) -> Any:
        return expected_bits(leaf, index).view(np.float32)

    return load_jax().make_array_from_callback(leaf.source.shape, leaf.source.to_jax(), block)


def wrong_elements(leaf: Leaf, moved: Any) -> tuple[int, int]:
    """(elements compared, elements that differ) over the blocks of all devices, bit by bit."""
    wanted = leaf.target.to_jax()
    if not moved.sharding.is_equivalent_to(wanted, len(leaf.source.shape)):
        raise ProofError(f"{leaf.name} ends in sharding {moved.sharding}, not in {wanted}")
    return compare(leaf, ((shard.index, np.asarray(shard.data)) for shard in moved.addressable_shards))


def compare(leaf: Leaf, blocks: Iterable[tuple[tuple[slice, ...], NDArray[np.float32]]]) -> tuple[int, int]:
    """(elements compared, elements that differ) of blocks with the place where they belong."""
    compared, differing = 0, 0
    expected: dict[str, NDArray[np.uint32]] = {}
    for index, block in blocks:
        wanted = expected.get(str(index))  # replicas are compared with the same block
        if wanted is None:
            wanted = expected[str(index)] = expected_bits(leaf, index)
        if block.shape != wanted.shape:
            raise ProofError(f"a block of {leaf.name} has shape {block.shape}, not {wanted.shape}")
        compared += block.size
        differing += int(np.count_nonzero(block.view(np.uint32) != wanted))
    return compared, differing


def busiest_device(movers: Iterable[Mover]) -> tuple[int, int]:
    """(received, missing) bytes of the device with most of each, over all arrays together."""
    received: dict[int, int] = {}
    missing: dict[int, int] = {}
    for mover in movers:
        plan, count = mover.plan, len(mover.leaves) * mover.plan.source.itemsize
        for step, before, after in zip(plan.steps, plan.layouts, plan.layouts[1:], strict=False):
            for device, elements in zip(after.mesh.device_ids, received_by_device(step, before).tolist(), strict=True):
                received[device] = received.get(device, 0) + elements * count
        for device, elements in missing_by_device(plan.source, plan.target).items():
            missing[device] = missing.get(device, 0) + elements * count
    return max(received.values(), default=0), max(missing.values(), default=0)


def in_turns(ours: Run, xla: Run, argument: Any, seconds: float, least: int) -> tuple[Spread, Spread, Spread]:
    """(ours, XLA's, XLA's over ours): both run once per round, taking turns at being first, for about
    this many seconds and at least so many rounds."""
    times: tuple[list[float], list[float]] = ([], [])
    for run in (ours, xla):
        _timed(run, argument)
    end = time.perf_counter() + seconds
    while len(times[0]) < least or (time.perf_counter() < end and len(times[0]) < 200):
        order = ((0, ours), (1, xla)) if len(times[0]) % 2 == 0 else ((1, xla), (0, ours))
        for which, run in order:
            times[which].append(_timed(run, argument))
    return spread(times[0]), spread(times[1]), spread([b / a for a, b in zip(*times, strict=True)])


def _timed(run: Run, argument: Any) -> float:
    jax = load_jax()
    start = time.perf_counter()
    result = jax.block_until_ready(run(argument))
    elapsed = time.perf_counter() - start
    for array in jax.tree.leaves(result):
        array.delete()
    return elapsed

"""Plans as executables: runs of steps over one set of devices are compiled, what goes to others is sent."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redist.collectives.backends.jax.check import require_even, require_one_process, require_same_order
from redist.collectives.backends.jax.modules import jax, jnp
from redist.collectives.backends.jax.program import flat_sharding, mesh_ids, spmd, stacked_shape, under
from redist.collectives.backends.jax.transfer import crosses, transfer
from redist.collectives.typing import after

if TYPE_CHECKING:
    from redist.collectives.plan import Plan
    from redist.collectives.steps import Step
    from redist.types.layout import Layout

__all__ = ["Executor", "compile_plan", "prepare", "run_blocks", "stacked_jit", "traceable"]


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive steps on one set of devices, or one step that goes to another."""

    steps: tuple[Step, ...]
    source: Layout
    target: Layout
    crossing: bool = False


def _runs(plan: Plan) -> tuple[_Run, ...]:
    found: list[_Run] = []
    for step, before, following in zip(plan.steps, plan.layouts, plan.layouts[1:], strict=False):
        if crosses(step) and not before.mesh.same_devices(following.mesh):
            found.append(_Run((step,), before, following, crossing=True))
        elif found and not found[-1].crossing:
            found[-1] = _Run((*found[-1].steps, step), found[-1].source, following)
        else:
            found.append(_Run((step,), before, following))
    return tuple(found)


def traceable(plan: Plan, given: Any, wanted: Any) -> Callable[[Any], Any]:
    """The plan as a function that can be traced into a program, from sharding `given` to `wanted`.

    Raises BackendError for uneven blocks, and where both are over different devices or device orders.
    """
    require_even(plan)
    require_same_order(mesh_ids(given.mesh), mesh_ids(wanted.mesh))
    if not plan.steps and given == wanted:
        return lambda x: x
    return spmd(plan.steps, plan.source, given, wanted, plan.target)


class Executor:
    """A plan compiled for one pair of shardings: called with the array, it returns the redistributed one."""

    def __init__(self, plan: Plan, given: Any, wanted: Any) -> None:
        self.plan = plan
        self.given = given
        self.wanted = wanted
        self.runs = _split(_runs(plan), plan)
        if any(run.crossing for run in self.runs):
            require_one_process(plan)
        self.jitted = self._single()
        """One `jax.jit` function that is the whole plan, or None where it takes several or data is sent."""

    def __call__(self, x: Any) -> Any:
        """The array under the target sharding."""
        if self.jitted is not None and x.sharding == self.given:
            with under(self.given.mesh):
                return _donating(self.jitted, x) if self.plan.options.donate else self.jitted(x)
        return self._staged(x)

    def _single(self) -> Any:
        if len(self.runs) != 1 or self.runs[0].crossing or mesh_ids(self.given.mesh) != mesh_ids(self.wanted.mesh):
            return None
        if self.given.mesh.size == 1:
            return None
        run = self.runs[0]
        function = spmd(run.steps, run.source, self.given, self.wanted, self.plan.target)
        donated = (0,) if self.plan.options.donate else ()
        return jax.jit(function, out_shardings=self.wanted, donate_argnums=donated)

    def _staged(self, x: Any) -> Any:
        if isinstance(jnp.zeros(()), jax.core.Tracer):  # a constant of a function that is being traced
            with ThreadPoolExecutor(1) as pool:  # traces belong to threads: in another one, this runs now
                return pool.submit(self._run, x).result()
        return self._run(x)

    def _run(self, x: Any) -> Any:
        plan = self.plan
        blocks = {shard.device.id: shard.data for shard in x.addressable_shards}
        made = _over_runs(self.runs, blocks, plan.options.donate)
        if plan.options.donate and self.runs and not self.runs[0].crossing and not x.is_deleted():
            x.delete()
        ordered = [made[i] for i in mesh_ids(self.wanted.mesh) if i in made]
        return jax.make_array_from_single_device_arrays(plan.target.shape, _plain(self.wanted), ordered)


def _plain(sharding: Any) -> Any:
    """The sharding, or the one device that stands behind a mesh made for it (see `arguments.named`)."""
    ids = mesh_ids(sharding.mesh)
    if len(ids) == 1 and sharding.mesh == flat_sharding(ids).mesh:
        return jax.sharding.SingleDeviceSharding(next(iter(sharding.device_set)))
    return sharding


def _over_runs(runs: tuple[_Run, ...], blocks: dict[int, Any], donate: bool) -> dict[int, Any]:
    """The blocks of this process's devices after all runs; what is made between them is given up as soon as
    it is used."""
    for run in runs:
        if run.crossing:
            blocks = transfer(run.steps[0], run.source, blocks)
        elif run.source.mesh.size > 1:
            blocks = _run_stacked(run, blocks, donate)
        donate = donate or not run.crossing  # what a crossing leaves in place is still the caller's
    return blocks


def _split(runs: tuple[_Run, ...], plan: Plan) -> tuple[_Run, ...]:
    """Step by step where the source is donated, so that every block is freed once the next is made."""
    if not plan.options.donate:
        return runs
    split: list[_Run] = []
    for run in runs:
        before = run.source
        for step in run.steps:
            following = after(step, before)
            split.append(_Run((step,), before, following, run.crossing))
            before = following
    return tuple(split)


def _run_stacked(run: _Run, blocks: dict[int, Any], donate: bool) -> dict[int, Any]:
    source, target = run.source, run.target
    shape = stacked_shape(source)
    sharding = flat_sharding(source.mesh.device_ids)
    ordered = [_ranked(blocks.pop(i), source.rank) for i in source.mesh.device_ids if i in blocks]
    array = jax.make_array_from_single_device_arrays(shape, sharding, ordered)
    del ordered
    function = stacked_jit(run.steps, source, target, donate)
    with under(sharding.mesh):
        made = _donating(function, array) if donate else function(array)
    return {shard.device.id: _scalar(shard.data, target.rank) for shard in made.addressable_shards}


def _donating(function: Any, x: Any) -> Any:
    """Call a function that takes its operand's memory, and free what it could not use (its output is of
    another size, of which JAX warns)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        made = function(x)
    if not x.is_deleted():
        x.delete()
    return made


def _ranked(block: Any, rank: int) -> Any:
    """Of rank 1 where it has none, to be stacked."""
    if rank:
        return block
    with under(flat_sharding([block.device.id]).mesh):
        return block.reshape((1,))


def _scalar(block: Any, rank: int) -> Any:
    if rank:
        return block
    with under(flat_sharding([block.device.id]).mesh):
        return block.reshape(())


@lru_cache(maxsize=1024)
def stacked_jit(steps: tuple[Step, ...], source: Layout, target: Layout, donate: bool) -> Any:
    """One `jax.jit` function: the steps on blocks stacked along dimension 0, in the order of the source's devices."""
    sharding = flat_sharding(source.mesh.device_ids)
    function = spmd(steps, source, None, None, target)
    return jax.jit(function, out_shardings=sharding, donate_argnums=(0,) if donate else ())


@lru_cache(maxsize=1024)
def prepare(plan: Plan, given: Any, wanted: Any) -> Executor:
    """The executor of a plan between two shardings, made once. Raises BackendError for uneven blocks."""
    require_even(plan)
    return Executor(plan, given, wanted)


def compile_plan(plan: Plan, mesh: Any = None) -> Any:
    """A callable that takes an array laid out as the plan's source to one laid out as its target.

    A `jax.jit` function (with `lower`) where the plan stays on one list of devices, else an Executor.
    `mesh` is the `jax.sharding.Mesh` that both layouts speak of (default: one of Auto axes over
    `jax.devices()`); a layout with sub-axes takes and gives its refined sharding, `layout.to_jax()`.
    """
    given, wanted = (_sharding(layout, mesh) for layout in (plan.source, plan.target))
    executor = prepare(plan, given, wanted)
    if executor.jitted is None and not plan.steps and mesh_ids(given.mesh) == mesh_ids(wanted.mesh):
        return jax.jit(spmd((), plan.source, given, wanted, plan.target), out_shardings=wanted)
    return executor if executor.jitted is None else executor.jitted


def _sharding(layout: Layout, mesh: Any) -> Any:
    from redist.types.mesh import Mesh

    if mesh is None or Mesh.from_jax(mesh) != layout.mesh:
        return layout.to_jax()
    whole = all(axis.size is None for dim in layout.dims for axis in dim.axes)
    if not whole or layout.partial:
        return layout.to_jax(mesh.axis_types)
    parts = [tuple(axis.axis for axis in dim.axes) or None for dim in layout.dims]
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*parts))


def run_blocks(plan: Plan, blocks: Mapping[int, Any]) -> dict[int, Any]:
    """Run a plan on {device id: block} (NumPy arrays, or JAX arrays on their devices); returns the blocks
    of the target's mesh, on their devices. Any plan of equal blocks, partial sources included."""
    require_even(plan)
    devices = {device.id: device for device in jax.devices()}
    placed = {i: jax.device_put(blocks[i], devices[i]) for i in plan.source.mesh.device_ids}
    return _over_runs(_runs(plan), placed, donate=False)

"""A function partitioned for given shapes: reports, texts, and the way to run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from redist.errors import LayoutError, ProofError, TracingError
from redist.partir_core.graph import Graph, graph_of
from redist.partir_core.loops import Axes
from redist.partir_core.lower import lower
from redist.partir_core.program import Literal, Program
from redist.partir_core.report import Report, report_of
from redist.partir_core.schedule import Stage, run_schedule
from redist.partir_core.spmd import SpmdProgram
from redist.partir_core.tactics import ManualPartition
from redist.partir_core.text import core_text
from redist.types.mesh import Mesh, SubAxis

if TYPE_CHECKING:
    from redist.collectives.topology import Topology
    from redist.partir_core.run_mpi import RankCompiled

__all__ = ["Compiled", "Lowered", "Terms"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What `partir.jit` was given, beside the function. `given` is the user's JAX mesh, if it was one."""

    mesh: Mesh
    given: Any
    schedule: tuple[ManualPartition, ...]
    share_gathers: bool = False
    any_reduction: bool = False
    topology: Topology | None = None
    flops_per_second: float | None = None
    verify: bool = False
    backend: str = "jax"
    comm: Any = None
    """The mpi4py communicator of the backend "mpi"; None for all ranks."""


class Lowered:
    """A partitioned program. Nothing is compiled, no device is needed."""

    def __init__(self, program: Program, terms: Terms, tree: Any, out_info: Any, donated: tuple[int, ...]) -> None:
        self.program = program
        self.out_info = out_info
        """Shapes and dtypes of the results, as the function's pytree."""
        self._terms = terms
        self._tree = tree
        self._donated = donated
        self._graph: Graph = graph_of(program)
        self._stages: tuple[Stage, ...] = run_schedule(self._graph, terms.mesh, terms.schedule)
        self._programs: dict[int, SpmdProgram] = {}
        self._reports: dict[int, Report] = {}
        if terms.verify:
            self.verify()

    @property
    def mesh(self) -> Mesh:
        """The mesh."""
        return self._terms.mesh

    @property
    def spmd(self) -> SpmdProgram:
        """The program of one device."""
        return self._program(len(self._stages) - 1)

    @property
    def report(self) -> Report:
        """What the program costs after the whole schedule."""
        return self._report(len(self._stages) - 1)

    @property
    def stages(self) -> tuple[Report, ...]:
        """A report per tactic, each of the program as that tactic leaves it."""
        return tuple(self._report(n) for n in range(1, len(self._stages)))

    def as_text(self, kind: str = "spmd", stage: int = -1) -> str:
        """The program as text: "core" (loops around operations), "spmd" (one device, explicit collectives)
        or "stablehlo" (what XLA is given, before bundles are made for CPUs; needs the devices). `stage` n is after
        n tactics, -1 after all.

        Raises TracingError for another kind or stage.
        """
        count = len(self._stages)
        if not -count <= stage < count:
            raise TracingError(f"there is no stage {stage}: the schedule has {count - 1} tactics; use 0..{count - 1}")
        stage %= count
        match kind:
            case "core":
                return core_text(self._stages[stage].state)
            case "spmd":
                return self._program(stage).as_text()
            case "stablehlo":
                return self._runner(stage).as_text()
            case _:
                raise TracingError(f"unknown kind of text {kind!r}; use 'core', 'spmd' or 'stablehlo'")

    @property
    def in_shardings(self) -> Any:
        """NamedShardings of (positional arguments, keyword arguments), static ones left out: for `jax.jit`."""
        from redist.collectives.backends.jax.modules import jax

        spmd = self.spmd
        return jax.tree.unflatten(self._tree, [self._sharding(x) for x in spmd.block.inputs])

    @property
    def out_shardings(self) -> Any:
        """NamedShardings of the results, as the function's pytree: for `jax.jit`."""
        from redist.collectives.backends.jax.modules import jax

        structure = jax.tree.structure(self.out_info)
        return jax.tree.unflatten(structure, [self._sharding(x) for x in self.spmd.block.outputs])

    @property
    def constraints(self) -> dict[str, Any]:
        """PartitionSpecs of tagged values by tag: for `jax.lax.with_sharding_constraint`, at the place of the
        tag, on this mesh. Where one tag names several values, dimensions that they shard differently are left
        to the compiler (`UNCONSTRAINED`).

        Raises LayoutError for values that have no common rank, and for a tag that is sharded along a part of
        an axis, which a PartitionSpec cannot say.
        """
        from redist.partir_core.mesh_jax import constraint

        state = self._stages[-1].state
        return {
            name: constraint(name, [state.axes(value) for value in values])
            for name, values in self.program.tags.items()
        }

    def _sharding(self, x: int | Literal) -> Any:
        from redist.partir_core.mesh_jax import devices_of

        given = self.mesh.to_jax() if self._terms.given is None else self._terms.given
        axes: Axes = () if isinstance(x, Literal) else self.spmd.values[x].axes
        return devices_of(self.mesh, given, (axis for names in axes for axis in names)).sharding(axes)

    def verify(self) -> int:
        """Prove every distinct redistribution; returns how many there are. Raises ProofError."""
        from redist.proofs import verify

        plans = list(self.spmd.plans())
        for plan in plans:
            certificate = verify(plan)
            if certificate.status != "proved":
                raise ProofError(f"a redistribution is {certificate.status}:\n{plan.explain()}")
        return len(plans)

    def compile(self) -> Compiled | RankCompiled:
        """Compile for the mesh's devices. On MPI, collective."""
        made = self.runner()
        made.compile()
        return made

    def runner(self) -> Compiled | RankCompiled:
        """To be compiled when it is first called."""
        return self._runner(len(self._stages) - 1)

    @cached_property
    def captures_tracers(self) -> bool:
        """Whether the function closes over values of an outer trace, so that it belongs to that trace."""
        from redist.collectives.backends.jax.modules import jax

        return any(isinstance(x, jax.core.Tracer) for x in self.program.constants.values())

    def _runner(self, stage: int) -> Compiled | RankCompiled:
        if self._terms.backend == "mpi":
            from redist.partir_core.run_mpi import RankCompiled

            return RankCompiled(self._program(stage), self._terms, self._tree, self.out_info, self._donated)
        return Compiled(self._program(stage), self._terms, self._tree, self.out_info, self._donated)

    def _program(self, stage: int) -> SpmdProgram:
        if stage not in self._programs:
            terms = self._terms
            self._programs[stage] = lower(
                self._stages[stage].state,
                share_gathers=terms.share_gathers,
                any_reduction=terms.any_reduction,
                topology=terms.topology,
                backend=terms.backend,
            )
        return self._programs[stage]

    def _report(self, stage: int) -> Report:
        if stage not in self._reports:
            so_far = self._stages[: stage + 1]
            self._reports[stage] = report_of(
                self._program(stage),
                tactic=so_far[-1].tactic,
                conflicts=tuple(x for made in so_far for x in made.conflicts),
                blocked=tuple(x for made in so_far for x in made.blocked),
                without_rule=self._graph.without_rule(),
                donated=self._donated,
                flops_per_second=self._terms.flops_per_second,
            )
        return self._reports[stage]


class Compiled:
    """A program on its devices. Called like the function, without its static arguments."""

    def __init__(self, spmd: SpmdProgram, terms: Terms, tree: Any, out_info: Any, donated: tuple[int, ...]) -> None:
        from redist.collectives.backends.jax.modules import jax
        from redist.partir_core.mesh_jax import devices_of
        from redist.partir_core.run_jax import spmd_function

        self._spmd = spmd
        self._tree = tree
        self._out_tree = jax.tree.structure(out_info)
        given = spmd.mesh.to_jax() if terms.given is None else terms.given
        self._user = devices_of(spmd.mesh, given, ())
        self._devices = devices_of(spmd.mesh, given, _axes_used(spmd))
        block = spmd.block
        self._in = [self._sharding(spmd.values[x].axes) for x in block.inputs]
        self._out = [self._sharding(() if isinstance(x, Literal) else spmd.values[x].axes) for x in block.outputs]
        self._donated = donated
        on_cpu = self._devices.mesh.devices.flat[0].platform == "cpu"  # elsewhere XLA bundles itself
        function: Any = spmd_function(spmd, self._devices, self._user, bundles=on_cpu)
        self._jitted = self._jit(function)
        self._traceable: Any = jax.jit(function)  # states no shardings, which would bind cotangents too
        self._compiled: Any = None

    def _sharding(self, axes: Axes) -> Any:
        """Over the user's mesh wherever it has the axes."""
        whole = all(axis.size is None for names in axes for axis in names)
        return (self._user if whole else self._devices).sharding(axes)

    def _jit(self, function: Any) -> Any:
        from redist.collectives.backends.jax.modules import jax

        return jax.jit(function, out_shardings=self._out, donate_argnums=self._donated, keep_unused=True)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run. Raises LayoutError for arguments of another structure, shape or dtype."""
        from redist.collectives.backends.jax.modules import jax

        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self._tree:
            raise LayoutError(f"compiled for arguments {self._tree}, called with {tree}; lower for these instead")
        types = [self._spmd.values[x].type for x in self._spmd.block.inputs]
        names = self._spmd.program.input_names
        wrong = [
            f"{name} is {jax.typeof(leaf).str_short()}, not {kind}"
            for name, kind, leaf in zip(names, types, leaves, strict=True)
            if tuple(jax.typeof(leaf).shape) != kind.shape or jax.typeof(leaf).dtype != kind.dtype
        ]
        if wrong:
            raise LayoutError(f"compiled for other shapes: {'; '.join(wrong)}; lower for these instead")
        return self.unflatten(self.run(leaves))

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Leaves of the results as the function's pytree."""
        from redist.collectives.backends.jax.modules import jax

        return jax.tree.unflatten(self._out_tree, leaves)

    def run(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves of the results for the leaves of the arguments."""
        from redist.collectives.backends.jax.program import under

        with under(self._devices.mesh):
            placed = [self._placed(leaf, sharding) for leaf, sharding in zip(leaves, self._in, strict=True)]
            if any(map(_traced, placed)):
                return self._traceable(*placed)
            return (self._compiled or self._jitted)(*placed)

    def _placed(self, leaf: Any, sharding: Any) -> Any:
        from redist.collectives.backends.jax.modules import jax

        if _traced(leaf) or getattr(leaf, "sharding", None) == sharding:
            return leaf
        return jax.device_put(leaf, sharding)

    def compile(self) -> None:
        """Compile now."""
        self._compiled = self._lowered(self._jitted).compile()

    def as_text(self) -> str:
        """StableHLO before XLA's passes, and before the bundles that are made for CPUs."""
        from redist.partir_core.run_jax import spmd_function

        return self._lowered(self._jit(spmd_function(self._spmd, self._devices, self._user))).as_text()

    @property
    def executable(self) -> Any:
        """JAX's compiled object, with its `memory_analysis` and `cost_analysis`."""
        if self._compiled is None:
            self.compile()
        return self._compiled

    def _lowered(self, jitted: Any) -> Any:
        from redist.collectives.backends.jax.modules import jax
        from redist.collectives.backends.jax.program import under

        types = [self._spmd.values[x].type for x in self._spmd.block.inputs]
        with under(self._devices.mesh):
            structs = [
                jax.ShapeDtypeStruct(kind.shape, kind.dtype, sharding=sharding)
                for kind, sharding in zip(types, self._in, strict=True)
            ]
            return jitted.lower(*structs)


def _traced(leaf: Any) -> bool:
    from redist.collectives.backends.jax.modules import jax

    return isinstance(leaf, jax.core.Tracer)


def _axes_used(spmd: SpmdProgram) -> frozenset[SubAxis]:
    """Every (sub-)axis that some value is sharded or partial along."""
    sharded = {axis for value in spmd.values for names in value.axes for axis in names}
    return frozenset(sharded | {axis for value in spmd.values for axis, _ in value.partial})

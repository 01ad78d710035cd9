"""SPMD programs on the ranks of an mpi4py communicator: each rank holds its blocks and runs its part."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.jax.modules import jax, jnp
from redist.collectives.backends.mpi.agreement import RefusalError, abort
from redist.collectives.backends.mpi.groups import Communicators
from redist.collectives.backends.mpi.runtime import mpi
from redist.collectives.backends.mpi.transfer import Transfer
from redist.collectives.explain import describe
from redist.collectives.plan import Plan
from redist.errors import BackendError, LayoutError, TracingError
from redist.partir_core.calls import abstract_of
from redist.partir_core.distributed import DistributedArray
from redist.partir_core.given import Given, given
from redist.partir_core.machine import Env, Machine
from redist.partir_core.program import Literal
from redist.partir_core.ranks import agreed, digest_of, raised, ranks_of
from redist.partir_core.segments import Segment, communicates, steps_of
from redist.partir_core.spmd import Redistribute, SpmdBlock, SpmdProgram
from redist.partir_core.walk import Walk
from redist.types.dtypes import dtype_name
from redist.types.layout import Layout
from redist.types.mesh import SubAxis

if TYPE_CHECKING:
    from redist.partir_core.lowered import Terms

__all__ = ["RankCompiled", "call_together"]

Prepared = Callable[[], "tuple[RankCompiled, Sequence[Any]]"]


def call_together(terms: Terms, name: str, prepared: Prepared) -> Any:
    """Call the program on the leaves of its arguments, which are what `prepared` returns; collective. What
    that raises on some rank is raised on all, before anything has run."""
    kept = ranks_of(terms.comm, terms.mesh)
    error: Exception | None = None
    compiled: RankCompiled | None = None
    arguments: list[Given] = []
    signature: Sequence[str] = ()
    digest = 0
    try:
        with on_the_rank() as device:
            compiled, leaves = prepared()
            arguments = compiled.arguments(leaves, kept.base, device)
        signature, digest = compiled.signature, compiled.digest
        moves = [str(one.plan.source) for one in arguments if one.plan is not None]
        if moves:
            signature = [*signature, *moves]
            digest = digest_of(signature)
    except Exception as failed:  # whatever it is, the other ranks are to know
        error = failed
    agreed(kept.base, name, signature, digest, error)
    assert compiled is not None
    return compiled.run(kept, arguments)


@contextmanager
def on_the_rank() -> Generator[Any]:
    """What is computed inside is computed on this rank's CPU device, whatever mesh the caller has set."""
    try:
        device = jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise BackendError(f"JAX has no CPU device here ({error}); let JAX_PLATFORMS list cpu") from None
    with ExitStack() as stack:
        stack.enter_context(jax.default_device(device))
        stack.enter_context(jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())))
        yield device


class RankCompiled:
    """A program on the ranks of a communicator. Called like the function, without its static arguments, by
    all ranks together."""

    def __init__(self, spmd: SpmdProgram, terms: Terms, tree: Any, out_info: Any, donated: tuple[int, ...]) -> None:
        self._spmd = spmd
        self._terms = terms
        self._tree = tree
        self._out_tree: Any = jax.tree.structure(out_info)
        self._weak = [bool(getattr(info, "weak_type", False)) for info in jax.tree.leaves(out_info)]
        self._donated = frozenset(donated)
        self._steps = steps_of(spmd, donated)
        self._layouts = [spmd.values[x].layout(spmd.mesh) for x in spmd.block.inputs]
        self._functions: dict[Segment, Any] = {}
        self._constants: Env = {}
        self._kept: Communicators | None = None
        self._position = 0
        names = spmd.program.input_names
        inputs = [f"{name}: {layout}" for name, layout in zip(names, self._layouts, strict=True)]
        self.signature: Sequence[str] = [f"the mesh {spmd.mesh}", *inputs, *_together(spmd.block)]
        """What all ranks must have in common, in words."""
        self.digest = digest_of(self.signature)
        """The same as a number."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run; collective. Raises LayoutError, on all ranks, for arguments of another structure, shape or
        dtype."""

        def prepared() -> tuple[RankCompiled, Sequence[Any]]:
            leaves, tree = jax.tree.flatten((args, kwargs))
            if tree != self._tree:
                raise LayoutError(f"compiled for arguments {self._tree}, called with {tree}; lower for these instead")
            self._require_shapes(leaves)
            return self, leaves

        return call_together(self._terms, self._spmd.program.name, prepared)

    def _require_shapes(self, leaves: Sequence[Any]) -> None:
        wrong: list[str] = []
        types = [self._spmd.values[x].type for x in self._spmd.block.inputs]
        for name, kind, leaf in zip(self._spmd.program.input_names, types, leaves, strict=True):
            struct = abstract_of(leaf)
            shape, dtype = struct.shape, struct.dtype
            if tuple(shape) != kind.shape or dtype != kind.dtype:
                wrong.append(f"{name} is {dtype}[{','.join(map(str, shape))}], not {kind}")
        if wrong:
            raise LayoutError(f"compiled for other shapes: {'; '.join(wrong)}; lower for these instead")

    def arguments(self, leaves: Sequence[Any], comm: Any, device: Any) -> list[Given]:
        """This rank's blocks of the arguments. Raises as `given` does."""
        topology, names = self._terms.topology, self._spmd.program.input_names
        return [
            given(name, leaf, layout, comm, device=device, donated=n in self._donated, topology=topology)
            for n, (name, leaf, layout) in enumerate(zip(names, leaves, self._layouts, strict=True))
        ]

    def run(self, kept: Communicators, arguments: list[Given]) -> Any:
        """The function's results, as DistributedArrays; collective. `arguments` are used up."""
        plans = [one.plan for one in arguments if one.plan is not None]
        self._ready(kept, plans)
        walk: Walk | None = None
        try:
            with on_the_rank() as device:
                walk = self._walk(kept, device)
                return self._unflatten(self._ran(walk, arguments))
        except RefusalError as refused:
            raised(refused, walk.error if walk else None)
        except BaseException:
            abort(kept.base, f"running {self._spmd.program.name}")

    def _ran(self, walk: Walk, arguments: list[Given]) -> list[Any]:
        env: Env = {}
        others: set[int] = set()
        for x, one in zip(self._spmd.block.inputs, arguments, strict=True):
            block = walk.attempt(one.take)
            env[x] = block if one.plan is None else walk.moved(one.plan, block)
            if not one.fresh:
                others.add(id(block))
            del block
        arguments.clear()
        made = walk.apart(walk.run(self._steps, env), others)
        walk.attempt(lambda: jax.block_until_ready(made))
        walk.meet()
        return made

    def _unflatten(self, leaves: Sequence[Any]) -> Any:
        outputs = self._spmd.block.outputs
        arrays = [
            DistributedArray(block, self._layout(x), self._terms.comm, weak_type=weak)
            for block, x, weak in zip(leaves, outputs, self._weak, strict=True)
        ]
        return jax.tree.unflatten(self._out_tree, arrays)

    def _layout(self, x: int | Literal) -> Layout:
        if isinstance(x, Literal):
            return Layout(self._spmd.mesh, (), (), dtype_name(x.type.dtype))
        return self._spmd.values[x].layout(self._spmd.mesh)

    # -- what is made once -------------------------------------------------------------------------------

    def compile(self) -> None:
        """Build transfers and compile segments now; collective. Raises, on all ranks, what one of them
        raises."""
        kept = ranks_of(self._terms.comm, self._spmd.mesh)
        agreed(kept.base, self._spmd.program.name, self.signature, self.digest, None)
        self._ready(kept, ())
        error: Exception | None = None
        try:
            with on_the_rank():
                for step in self._steps.walk():
                    if isinstance(step, Segment):
                        structs = [self._struct(x) for x in step.block.inputs]
                        self._functions[step] = self._jitted(step).lower(*structs).compile()
        except Exception as failed:
            error = failed
        agreed(kept.base, self._spmd.program.name, self.signature, self.digest, error)

    def as_text(self) -> str:
        """Raises TracingError: every segment is a program of its own."""
        raise TracingError(
            "on MPI there is no one StableHLO text: segments are compiled one by one between redistributions; use "
            "as_text('spmd'), or lower for backend='jax'"
        )

    def _struct(self, x: int) -> Any:
        value = self._spmd.values[x]
        return jax.ShapeDtypeStruct(value.local_shape(self._spmd.mesh), value.type.dtype)

    def _ready(self, kept: Communicators, more: Sequence[Plan]) -> None:
        """Build what transfers are missing, in the same order on all ranks."""
        if self._kept is not kept:
            more = [*(plan for plan in self._spmd.plans() if communicates(plan)), *more]
        comm = mpi().COMM_WORLD if self._terms.comm is None else self._terms.comm
        for plan in more:
            if plan not in kept.transfers:
                kept.transfers[plan] = Transfer(plan, comm, agree="never", keep=False)
        if self._kept is not kept:
            self._kept = kept
            self._position = list(self._spmd.mesh.device_ids).index(kept.base.rank)
            self._functions.clear()

    def _walk(self, kept: Communicators, device: Any) -> Walk:
        if not self._constants:
            constants = self._spmd.constants.items()
            self._constants = {n: jax.device_put(jnp.array(x, copy=True), device) for n, x in constants}
        return Walk(
            self._spmd,
            self._spmd.program.name,
            kept.base,
            device,
            self._function,
            kept.transfers.__getitem__,
            self._constants,
        )

    def _function(self, segment: Segment) -> Any:
        if segment not in self._functions:
            self._functions[segment] = self._jitted(segment)
        return self._functions[segment]

    def _jitted(self, segment: Segment) -> Any:
        inputs = segment.block.inputs

        def local(*blocks: Any) -> list[Any]:
            env: Env = dict(zip(inputs, blocks, strict=True))
            constants = {n: env[n] for n in self._spmd.constants if n in env}
            return Machine(self._spmd, constants, self._coordinate, self._cut).run(segment.block, env)

        return jax.jit(local, donate_argnums=segment.donated)

    def _coordinate(self, axes: Sequence[SubAxis]) -> Any:
        return jnp.int32(self._spmd.mesh.index(axes, np.asarray([self._position]))[0])

    def _cut(self, ops: Sequence[Redistribute], arrays: Sequence[Any]) -> list[Any]:
        """Redistributions that only slice."""
        rank = self._spmd.mesh.device_ids[self._position]
        parts: list[Any] = []
        for op, x in zip(ops, arrays, strict=True):
            source, target = op.plan.source.box(rank), op.plan.target.box(rank)
            box = [slice(t.start - s.start, t.stop - s.start) for s, t in zip(source, target, strict=True)]
            parts.append(x[tuple(box[: x.ndim])])
        return parts


def _together(block: SpmdBlock) -> Iterator[str]:
    """What ranks do together, in order."""
    for op in block.ops:
        if isinstance(op, Redistribute):
            if communicates(op.plan):
                yield f"[{'; '.join(map(describe, op.plan.steps))}] of {op.plan.source}"
            continue
        inside = [list(_together(inner)) for inner in op.blocks]
        if any(inside):
            yield f"{op.op.name} with {op.op.trips} runs of {[len(texts) for texts in inside]} redistributions"
            for texts in inside:
                yield from texts

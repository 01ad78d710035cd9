"""`partir.jit`: a function, a mesh and a schedule become a partitioned function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from redist.errors import BackendError, TracingError
from redist.partir_core.calls import Call, Marks
from redist.partir_core.differentiate import differentiable, jvp_of
from redist.partir_core.lowered import Compiled, Lowered, Terms
from redist.partir_core.names import argument_names, output_names, path_names
from redist.partir_core.tactics import ManualPartition
from redist.partir_core.trace import program_of
from redist.types.mesh import Mesh

if TYPE_CHECKING:
    from redist.collectives.topology import Topology

__all__ = ["Partitioned", "jit"]

_TRACING: ContextVar[bool] = ContextVar("_TRACING", default=False)
"""Whether a function is being traced to be partitioned."""


def jit(
    fn: Callable[..., Any],
    mesh: Any,
    schedule: Sequence[ManualPartition] = (),
    backend: str = "jax",
    *,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    share_gathers: bool = False,
    any_reduction: bool = False,
    topology: Topology | None = None,
    flops_per_second: float | None = None,
    verify: bool = False,
    comm: Any = None,
) -> Partitioned:
    """`fn` partitioned over `mesh` by the schedule's tactics, in order. Behaves like `jax.jit`.

    `mesh` is a `redist.Mesh` or a `jax.sharding.Mesh`. Called with global arrays, the result traces once per
    shapes, runs the SPMD program in a `shard_map`, and returns global arrays laid out as the report says;
    `.lower(*args)` only analyses, for which shapes do. Static and donated arguments are as for `jax.jit`.
    `share_gathers` lets uses share what one of them gathered; `any_reduction` allows other plans for a
    reduction than one all-reduce or reduce-scatter; `topology` is what plans and times are made for,
    `flops_per_second` the compute rate of a device, for the report's seconds. `verify=True` proves every
    distinct redistribution, and raises ProofError for one that is not proved.

    On `backend="mpi"`, device d of the mesh is rank d of `comm` (an mpi4py communicator of as many ranks,
    `MPI.COMM_WORLD` by default), and all ranks call and compile together. A rank passes global arrays, of
    which only its block is read, or `DistributedArray`s, of which it holds its block, and gets
    `DistributedArray`s, to pass on or to gather. What is traced on one rank is to be traced on all: arguments
    of the same shapes, static arguments and schedule. What fails on one rank is raised on all, and a donated
    `DistributedArray` is used up. Derivatives, `vmap` and `jit` go inside the function.

    Raises TracingError for arguments of the wrong kind, BackendError for an unknown backend. Calling or
    lowering raises TracingError and LayoutError for tactics that do not fit the function (see
    `ManualPartition`) and LayoutError for devices that are not there; on MPI, BackendError for a communicator
    of another size than the mesh, for ranks that differ, and for what fails while running.
    """
    if not callable(fn):
        raise TracingError(f"{fn!r} is not a function; partir.jit takes a function of arrays and pytrees")
    if backend not in ("jax", "mpi"):
        raise BackendError(f"unknown backend {backend!r}; partitioned programs run on 'jax' and 'mpi'")
    if comm is not None and backend != "mpi":
        raise BackendError(f"comm is for backend='mpi', and the backend is {backend!r}; leave one of them out")
    wrong = [tactic for tactic in schedule if not isinstance(tactic, ManualPartition)]  # pyright: ignore[reportUnnecessaryIsInstance]
    if wrong:
        raise TracingError(f"a schedule is a list of tactics, got {', '.join(map(repr, wrong))}")
    own = isinstance(mesh, Mesh)
    terms = Terms(
        mesh if own else Mesh.from_jax(mesh),
        None if own else mesh,
        tuple(schedule),
        share_gathers,
        any_reduction,
        topology,
        flops_per_second,
        verify,
        backend,
        comm,
    )
    marks = Marks.of(fn, static_argnums, static_argnames, donate_argnums, donate_argnames)
    return Partitioned(fn, terms, marks)


class Partitioned:
    """A partitioned function: call it, or `lower` it to see what it will do."""

    def __init__(self, fn: Callable[..., Any], terms: Terms, marks: Marks, names: Sequence[str] | None = None) -> None:
        """`names` of all leaves of the arguments, where they are not to be taken from the signature."""
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._terms = terms
        self._marks = marks
        self._names = names
        self._made: dict[Any, Any] = {}

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace, partition and report, for arguments of these shapes (arrays or `ShapeDtypeStruct`s)."""
        return self._lowered(Call.of(self._fn, self._marks, args, kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on global arrays. Inside another partitioned function this is the plain function: one schedule
        decides, the outermost."""
        if _TRACING.get():
            return self._fn(*args, **kwargs)
        if self._terms.backend == "mpi":
            return self._called_together(args, kwargs)
        call = Call.of(self._fn, self._marks, args, kwargs)
        compiled: Compiled | None = self._made.get(call.key)
        if compiled is None:
            lowered = self._lowered(call)
            compiled = cast("Compiled", lowered.runner())
            if not lowered.captures_tracers:
                self._made[call.key] = compiled
        if call.traced:
            return compiled.unflatten(differentiable(compiled.run, call, self._tangents)(*call.leaves))
        return compiled.unflatten(compiled.run(call.leaves))

    def _called_together(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from redist.partir_core.run_mpi import RankCompiled, call_together

        def prepared() -> tuple[RankCompiled, Sequence[Any]]:
            call = Call.of(self._fn, self._marks, args, kwargs)
            compiled: RankCompiled | None = self._made.get(call.key)
            if compiled is None:
                lowered = self._lowered(call)
                if call.traced or lowered.captures_tracers:
                    raise TracingError(
                        f"{self._name} is partitioned for MPI, which runs outside of JAX's transformations; put jit, "
                        "grad and vmap inside the function instead"
                    )
                compiled = self._made[call.key] = cast("RankCompiled", lowered.runner())
            return compiled, call.leaves

        return call_together(self._terms, self._name, prepared)

    @property
    def _name(self) -> str:
        return getattr(self._fn, "__name__", "function").strip("<>")

    def _tangents(self, call: Call, inexact: Sequence[int]) -> Partitioned:
        """The derivative, partitioned by the same schedule: tangents go by the names of their inputs."""
        names = self._input_names(call)
        doubled = [*names, *(names[n] for n in inexact)]
        return Partitioned(jvp_of(self._fn, call, inexact), self._terms, Marks(), doubled)

    def _input_names(self, call: Call) -> Sequence[str]:
        if self._names is not None:
            return self._names
        static = [n for n in self._marks.static if n < len(call.args)]
        return path_names(argument_names(self._fn, len(call.args), static), call.dynamic_args, call.dynamic_kwargs)

    def _lowered(self, call: Call) -> Lowered:
        from redist.collectives.backends.jax.modules import jax

        marks = self._marks
        plain: Any = jax.jit(self._fn, static_argnums=marks.static, static_argnames=marks.static_names)
        token = _TRACING.set(True)
        try:
            with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):  # types free of shardings
                traced = plain.trace(*call.args, **call.kwargs)
        finally:
            _TRACING.reset(token)
        captured = list(getattr(traced, "_consts", ()))
        program = program_of(traced.jaxpr, self._name, self._input_names(call), output_names(traced.out_info), captured)
        return Lowered(program, self._terms, call.tree, traced.out_info, call.donated(marks))

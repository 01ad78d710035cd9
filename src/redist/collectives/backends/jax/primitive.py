"""Resharding as one JAX primitive, so that its derivative and its batching are reshardings as well.

It is linear: its tangent is the same move, its transpose the move back, and `vmap` adds a dimension that
keeps its sharding. Collectives themselves are never differentiated or batched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from redist.collectives.backends.jax.arguments import named
from redist.collectives.backends.jax.check import require_same_order
from redist.collectives.backends.jax.execute import traceable
from redist.collectives.backends.jax.late import late
from redist.collectives.backends.jax.modules import core, jax
from redist.collectives.backends.jax.program import mesh_ids
from redist.errors import BackendError
from redist.types.layout import Layout

if TYPE_CHECKING:
    from redist.collectives.plan import Plan

__all__ = ["Move", "apply", "concrete", "on_one_mesh", "require_one_program", "sharding_of", "staged"]


@dataclass(frozen=True, slots=True)
class Move:
    """What the primitive does: from sharding `given` (None: the operand's, found out later) to `wanted`.

    `planner(source, target, memory_limit)` makes plans; `run(x, move)` moves a concrete array.
    """

    given: Any
    wanted: Any
    memory_limit: int | None
    planner: Callable[[Layout, Layout, int | None], Plan]
    run: Callable[[Any, Move], Any]

    def plan(self, source: Layout, target: Layout) -> Plan:
        """The plan under this move's limit."""
        return self.planner(source, target, self.memory_limit)

    def between(self, given: Any, wanted: Any) -> Move:
        """A move between other shardings under the same terms."""
        return Move(given, wanted, self.memory_limit, self.planner, self.run)


def apply(x: Any, move: Move) -> Any:
    """The array under the move's target sharding."""
    given = move.given if move.given is not None else sharding_of(x)
    move = move.between(*on_one_mesh(given, move.wanted))
    # The partitioner's callback needs the devices, which jit provides where it sees the call inside.
    program = _late_program(jax.typeof(x), move, jax.sharding.get_abstract_mesh()) if move.given is None else None
    made = _primitive().bind(x, move=move, program=program)
    if isinstance(made, jax.core.Tracer) and not _explicit(move.wanted.mesh):
        return jax.lax.with_sharding_constraint(made, move.wanted)  # tells jit which devices it is about
    return made


def on_one_mesh(given: Any, wanted: Any) -> tuple[Any, Any]:
    """Both over the concrete mesh where only one is, and the other over its axes."""
    if given is None or not isinstance(given.mesh, jax.sharding.AbstractMesh) or given.mesh == wanted.mesh:
        return given, wanted
    if not isinstance(wanted.mesh, jax.sharding.AbstractMesh) and wanted.mesh.abstract_mesh == given.mesh:
        return given.update(mesh=wanted.mesh), wanted
    return given, wanted


def concrete(sharding: Any, x: Any) -> Any:
    """Over devices: an abstract mesh is that of the operand or the one that is set."""
    if not isinstance(sharding.mesh, jax.sharding.AbstractMesh):
        return sharding
    own = named(x.sharding)
    if own is not None and own.mesh.abstract_mesh == sharding.mesh:
        return sharding.update(mesh=own.mesh)
    return sharding.update(mesh=jax.sharding.get_mesh())


def require_one_program(given: Any, wanted: Any) -> None:
    """Raise BackendError where one traced program cannot hold both shardings."""
    require_same_order(mesh_ids(given.mesh), mesh_ids(wanted.mesh))
    ours, theirs = (sharding.mesh.axis_names for sharding in (given, wanted))
    if _explicit(given.mesh) and (ours, given.mesh.axis_sizes) != (theirs, wanted.mesh.axis_sizes):
        raise BackendError(
            f"inside jit the array's type is over the Explicit axes {', '.join(ours)}, and the target names the axes "
            f"{', '.join(theirs)} of another mesh; call reshard outside jit, or name the axes of the mesh that is set"
        )


@lru_cache(maxsize=1024)
def _late_program(aval: Any, move: Move, _context: Any) -> Any:
    return jax.make_jaxpr(late(move.wanted, move.plan, len(aval.shape)))(aval)


def _explicit(mesh: Any) -> bool:
    kinds = mesh.axis_types
    return bool(kinds) and all(kind == jax.sharding.AxisType.Explicit for kind in kinds)


def _below(x: Any) -> tuple[Any, int | None] | None:
    """What a derivative or a batch traces: the operand, and the dimension that batching hides."""
    primal = getattr(x, "primal", None)
    if isinstance(primal, jax.Array):
        return primal, None
    whole, at = getattr(x, "val", None), getattr(x, "batch_dim", None)
    return (whole, at) if isinstance(whole, jax.Array) and isinstance(at, int) else None


def staged(x: Any) -> bool:
    """Whether a traced operand becomes part of a program, rather than running now under a transformation."""
    while isinstance(x, jax.core.Tracer):
        below = _below(x)
        if below is None:
            return True
        x = below[0]
    return False


def sharding_of(x: Any) -> Any:
    """The sharding of a concrete array, of an operand of explicit type, or of what a transformation traces
    in these; None where it is unknown."""
    if not isinstance(x, jax.core.Tracer):
        return named(x.sharding)
    typed = jax.typeof(x).sharding
    if _explicit(typed.mesh):
        return typed
    below = _below(x)
    if below is None:
        return None
    operand, hidden = below
    found = sharding_of(operand)
    return found if found is None or hidden is None else _without(found, hidden, operand.ndim)


def _padded(sharding: Any, rank: int) -> list[Any]:
    parts = list(sharding.spec.partitions)
    return parts + [None] * (rank - len(parts))


def _with_parts(sharding: Any, parts: Sequence[Any]) -> Any:
    spec = sharding.spec
    return sharding.update(spec=spec.update(partitions=tuple(parts)))


def _without(sharding: Any, dim: int, rank: int) -> Any:
    parts = _padded(sharding, rank)
    return _with_parts(sharding, parts[:dim] + parts[dim + 1 :])


def _with(sharding: Any, dim: int, rank: int, entry: Any) -> Any:
    """A dimension added to a sharding of this rank; its axes give way to those already used."""
    parts = _padded(sharding, rank)
    if isinstance(entry, (str, tuple)):
        used = {name for part in parts for name in ([part] if isinstance(part, str) else part or ())}
        used |= {*sharding.spec.unreduced}
        names: list[str] = [entry] if isinstance(entry, str) else [*entry]  # pyright: ignore[reportUnknownArgumentType]
        entry = tuple(names) if used.isdisjoint(names) and set(names) <= set(sharding.mesh.axis_names) else None
    return _with_parts(sharding, [*parts[:dim], entry, *parts[dim:]])


# -- the primitive and its rules -----------------------------------------------------------------------


@lru_cache(maxsize=1)
def _primitive() -> Any:
    from jax.interpreters import ad, batching, mlir

    primitive: Any = core.Primitive("redistribute")
    untyped: tuple[Any, Any, Any] = (ad, batching, mlir)
    for_ad, for_batching, for_mlir = untyped
    primitive.def_impl(_impl)
    primitive.def_abstract_eval(_type)
    for_ad.primitive_jvps[primitive] = partial(_jvp, for_ad)
    for_ad.primitive_transposes[primitive] = partial(_transpose, for_ad)
    for_batching.fancy_primitive_batchers[primitive] = _batch
    for_mlir.register_lowering(primitive, for_mlir.lower_fun(_lowered, multiple_results=False))
    return primitive


def _impl(x: Any, *, move: Move, program: Any) -> Any:
    del program
    return move.run(x, move)


def _type(x: Any, *, move: Move, program: Any) -> Any:
    """Of the same shape; on Explicit meshes the sharding is part of the type."""
    del program
    if not _explicit(move.wanted.mesh):
        return x
    mesh = move.wanted.mesh
    abstract = mesh if isinstance(mesh, jax.sharding.AbstractMesh) else mesh.abstract_mesh
    spec = move.wanted.spec.update(partitions=tuple(_padded(move.wanted, x.ndim)))
    return x.update(sharding=jax.sharding.NamedSharding(abstract, spec))


def _lowered(x: Any, *, move: Move, program: Any) -> Any:
    """The move in a program. Between different devices there is none: it runs outside jit only."""
    if program is not None:
        return core.jaxpr_as_fun(program)(x)[0]
    require_one_program(move.given, move.wanted)
    source, target = (Layout.from_jax(x.shape, x.dtype, sharding) for sharding in (move.given, move.wanted))
    return traceable(move.plan(source, target), move.given, move.wanted)(x)


def _jvp(ad: Any, primals: Any, tangents: Any, *, move: Move, program: Any) -> tuple[Any, Any]:
    del program
    (x,), (tangent,) = primals, tangents
    known = move if move.given is not None else move.between(sharding_of(x), move.wanted)
    made = apply(x, known)
    if isinstance(tangent, ad.Zero):
        return made, ad.Zero.from_primal_value(made)
    return made, apply(tangent, known)


def _transpose(ad: Any, cotangent: Any, x: Any, *, move: Move, program: Any) -> list[Any]:
    del program
    assert ad.is_undefined_primal(x)
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(x.aval)]
    if move.given is None:  # where the operand lay is known to the partitioner only
        return [cotangent]
    return [apply(cotangent, move.between(_dual(move.wanted), _dual(move.given)))]


def _dual(sharding: Any) -> Any:
    """Of cotangents: where a value is unreduced, its cotangent is a copy on every device, and marked so."""
    spec = sharding.spec
    if not spec.unreduced and not spec.reduced:
        return sharding
    return sharding.update(spec=spec.update(unreduced=spec.reduced, reduced=spec.unreduced))


def _batch(axis: Any, args: Any, dims: Any, *, move: Move, program: Any) -> tuple[Any, Any]:
    del program
    (x,), (dim,) = args, dims
    if dim is None:
        return apply(x, move), None
    rank = x.ndim - 1
    actual = sharding_of(x)
    entry: Any = None
    if axis.spmd_name is not None:
        entry = axis.spmd_name
    elif actual is not None:
        entry = _padded(actual, x.ndim)[dim]
    elif move.given is None:
        entry = jax.sharding.PartitionSpec.UNCONSTRAINED
    given = None if move.given is None else _with(move.given, dim, rank, entry)
    return apply(x, move.between(given, _with(move.wanted, dim, rank, entry))), dim

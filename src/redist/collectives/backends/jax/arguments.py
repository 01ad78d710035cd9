"""What `reshard` is given: shardings resolved against meshes and checked against arrays, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redist.collectives.backends.jax.modules import jax
from redist.collectives.backends.jax.program import flat_sharding
from redist.errors import BackendError, LayoutError, RedistError
from redist.types.layout import Layout

__all__ = [
    "check_source",
    "check_target",
    "every",
    "is_leaf",
    "named",
    "paired",
    "require_outside_shard_map",
    "resolved",
    "traced",
]


def traced(x: Any) -> bool:
    """Whether an array is being traced, so that its value and place are not at hand."""
    return isinstance(x, jax.core.Tracer)


def is_leaf(node: Any) -> bool:
    """Nodes of a sharding tree that JAX would open or skip."""
    return node is None or isinstance(node, (jax.sharding.PartitionSpec, jax.sharding.Sharding))


def paired(prefix: Any, tree: Any, name: str) -> list[Any]:
    """One entry of `prefix` per leaf of `tree`. Raises LayoutError where it is no prefix."""
    try:
        return jax.tree.structure(tree).flatten_up_to(jax.tree.broadcast(prefix, tree, is_leaf=is_leaf))
    except ValueError as error:
        raise LayoutError(
            f"{name} is not a prefix of the arrays' tree: {str(error).splitlines()[0]}; give one sharding for all, or "
            f"a tree that stops at or above the leaves of {jax.tree.structure(tree)}"
        ) from None


def resolved(sharding: Any, name: str, mesh: Any = None) -> Any:
    """As a NamedSharding: a PartitionSpec over `mesh` or the mesh that is set, one device as a mesh of it."""
    sharding_types = jax.sharding
    if isinstance(sharding, sharding_types.NamedSharding):
        kinds = {None, "device", _default_memory(sharding)}
        if sharding.memory_kind not in kinds:
            raise BackendError(
                f"{name} asks for memory kind {sharding.memory_kind!r}; redist moves arrays within device memory: use "
                "jax.device_put to change the memory kind"
            )
        return sharding
    if isinstance(sharding, jax.Device):
        sharding = sharding_types.SingleDeviceSharding(sharding)
    if isinstance(sharding, sharding_types.SingleDeviceSharding):
        return named(sharding)
    if isinstance(sharding, sharding_types.PartitionSpec):
        return sharding_types.NamedSharding(mesh if mesh is not None else _ambient(sharding, name), sharding)
    raise LayoutError(
        f"{name} {sharding!r} is not a sharding; pass a jax.sharding.NamedSharding, a PartitionSpec under "
        "jax.set_mesh, or a SingleDeviceSharding"
    )


def named(sharding: Any) -> Any:
    """A NamedSharding that puts an array where this one does, or None for a kind that needs its shape."""
    if isinstance(sharding, jax.sharding.NamedSharding):
        return sharding
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        (device,) = sharding.device_set
        return jax.sharding.NamedSharding(flat_sharding([device.id]).mesh, jax.sharding.PartitionSpec())
    return None


def _default_memory(sharding: Any) -> Any:
    if isinstance(sharding.mesh, jax.sharding.AbstractMesh):
        return None
    return next(iter(sharding.mesh.devices.flat)).default_memory().kind


def _ambient(spec: Any, name: str) -> Any:
    abstract = jax.sharding.get_abstract_mesh()
    if abstract.empty:
        raise LayoutError(
            f"{name} {spec} is a PartitionSpec, but no mesh is set; call within jax.set_mesh(mesh), or pass "
            "NamedSharding(mesh, spec)"
        )
    try:
        concrete = jax.sharding.get_mesh()
    except ValueError:  # inside jit
        return abstract
    return abstract if concrete.empty else concrete


def check_target(shape: Sequence[int], sharding: Any, name: str) -> None:
    """Raise where an array of this shape cannot have this sharding, naming every offending dimension."""
    spec = sharding.spec
    parts = list(spec.partitions)
    if len(parts) > len(shape):
        raise LayoutError(
            f"{name} {spec} names {len(parts)} dimensions, but the array has {len(shape)} (shape {list(shape)}); drop "
            f"the last {len(parts) - len(shape)}"
        )
    free = [i for i, part in enumerate(parts) if part is spec.UNCONSTRAINED]
    if free:
        raise LayoutError(
            f"{name} {spec} leaves dimensions {free} UNCONSTRAINED, which names no layout; name axes, or None to "
            "replicate"
        )
    sizes = dict(zip(sharding.mesh.axis_names, sharding.mesh.axis_sizes, strict=True))
    problems: list[str] = []
    for i, part in enumerate(parts):
        names: list[str] = [part] if isinstance(part, str) else list(part or ())
        count = 1
        for axis in names:
            count *= sizes[axis]
        if shape[i] % count:
            product = "*".join(f"{axis}={sizes[axis]}" for axis in names)
            product = f"{product} = {count}" if len(names) > 1 else product
            padded = -(-shape[i] // count) * count
            problems.append(f"dimension {i} has {shape[i]} elements over {product} (pad it to {padded})")
    if problems:
        raise BackendError(
            f"{name} {spec} does not divide shape {list(shape)}, and JAX holds blocks of equal size only: "
            f"{'; '.join(problems)}. Or shard over axes whose product divides the dimension"
        )


def require_outside_shard_map() -> None:
    """Raise where a traced array is one device's own."""
    mesh = jax.sharding.get_abstract_mesh()
    manual = [
        name
        for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
        if kind == jax.sharding.AxisType.Manual
    ]
    if manual:
        raise BackendError(
            f"reshard is called inside shard_map, where an array is one device's block along {', '.join(manual)} and "
            "has no layout to change; call it on the array outside"
        )


def check_source(x: Any, given: Any, stated: Any) -> Any:
    """The source sharding of an array, from what is known of it (`given`) and what the caller says."""
    if given is None or stated is None:
        return given if given is not None else stated
    if not Layout.from_jax(x.shape, x.dtype, given).equivalent(Layout.from_jax(x.shape, x.dtype, stated)):
        raise LayoutError(
            f"source {stated.spec} over mesh {_axes(stated.mesh)} is not where the array is, {given.spec} over mesh "
            f"{_axes(given.mesh)}; leave source out: it is known here"
        )
    return given


def _axes(mesh: Any) -> str:
    return ",".join(f"{name}={size}" for name, size in zip(mesh.axis_names, mesh.axis_sizes, strict=True))


def every(problems: Iterable[tuple[str, RedistError]]) -> None:
    """Raise one error for all offending leaves, of the type of the first."""
    found = list(problems)
    if not found:
        return
    first = found[0][1]
    if len(found) == 1 and not found[0][0]:
        raise first
    raise type(first)("\n".join(f"{path or 'array'}: {error}" for path, error in found))

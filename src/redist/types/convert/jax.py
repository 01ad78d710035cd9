"""JAX's shardings: `jax.sharding.Mesh` and `NamedSharding`, both ways.

A layout with sub-axes becomes a sharding over a refined mesh: an axis `x` of size 8 of which the
layout uses `x:(2)2` is split into consecutive axes named `x:(1)2`, `x:(2)2`, `x:(4)2`, the names that
the sub-axes have here. JAX accepts them; no axis of a `Mesh` can have such a name, so they clash with
nothing; and reading a refined mesh joins them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from redist.errors import LayoutError
from redist.types.blocks import even
from redist.types.convert.xla import layout_from_xla
from redist.types.digits import refine_axes
from redist.types.layout import Layout
from redist.types.mesh import Mesh, SubAxis

__all__ = ["layout_from_jax", "layout_to_jax", "mesh_from_jax", "mesh_to_jax"]

_REFINED = re.compile(r"(.+):\((\d+)\)(\d+)\Z")


def _jax() -> Any:
    """The jax module, imported when it is first needed."""
    import jax

    return jax


def mesh_from_jax(mesh: Any) -> Mesh:
    """The mesh of a `jax.sharding.Mesh`, whatever its device order, or `AbstractMesh` (ids 0..n-1).

    Axes of a refined mesh (`x:(1)2`, `x:(2)2`) become the axis they were split from. Axis types are
    not kept. Raises LayoutError for other objects, a mesh without devices, and axis names that are
    not strings of the form that `Mesh` takes.
    """
    jax = _jax()

    if not isinstance(mesh, (jax.sharding.Mesh, jax.sharding.AbstractMesh)):
        raise LayoutError(f"{mesh!r} is not a mesh; pass a jax.sharding.Mesh or jax.sharding.AbstractMesh")
    names: tuple[Any, ...] = mesh.axis_names
    alien = [name for name in names if not isinstance(name, str)]
    if alien:
        raise LayoutError(
            f"mesh axes {', '.join(map(repr, alien))} are not named by strings; name every axis by a string"
        )
    if mesh.empty:
        raise LayoutError("the mesh is empty: it holds no devices; pass a mesh of at least one device")
    concrete = isinstance(mesh, jax.sharding.Mesh)
    ids = [device.id for device in mesh.devices.flat] if concrete else None
    return Mesh(_joined(list(zip(names, mesh.axis_sizes, strict=True))), ids)


def _joined(axes: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """`x:(1)2 = 2, x:(2)2 = 2, y = 3 --> x = 4, y = 3`; parts that do not make up an axis stay as they are."""
    joined: list[tuple[str, int]] = []
    at = 0
    while at < len(axes):
        name, total, end = "", 1, at
        while end < len(axes):
            part = _REFINED.match(axes[end][0])
            if part is None or (name and part[1] != name) or (int(part[2]), int(part[3])) != (total, axes[end][1]):
                break
            name, total, end = part[1], total * axes[end][1], end + 1
        if end - at > 1:
            joined.append((name, total))
            at = end
        else:
            joined.append(axes[at])
            at += 1
    return joined


def mesh_to_jax(mesh: Mesh, axis_types: Any = None) -> Any:
    """A `jax.sharding.Mesh` of the devices that `jax.devices()` lists under the mesh's ids.

    `axis_types` is one `jax.sharding.AxisType` for all axes, or one per axis; None is Auto for all.
    Raises LayoutError naming the ids that JAX does not have.
    """
    jax = _jax()

    return _build_mesh(mesh, mesh.axes, _axis_types(mesh, axis_types, jax.sharding.AxisType.Auto))


def _build_mesh(mesh: Mesh, axes: Sequence[tuple[str, int]], types: Sequence[Any]) -> Any:
    """The devices of `mesh` under these axes, whose product is its size."""
    jax = _jax()

    by_id = {device.id: device for device in jax.devices()}
    missing = [i for i in mesh.device_ids if i not in by_id]
    if missing:
        raise LayoutError(
            f"mesh {mesh.axes_text()} holds devices that JAX does not have: {_ranges(missing)}; jax.devices() has "
            f"{_ranges(by_id)}. Use those ids, or start JAX with more devices (on CPU, "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={max(mesh.device_ids) + 1})"
        )
    devices = np.empty(mesh.size, dtype=object)
    devices[:] = [by_id[i] for i in mesh.device_ids]
    names = tuple(name for name, _ in axes)
    return jax.sharding.Mesh(devices.reshape([size for _, size in axes]), names, axis_types=tuple(types))


def _axis_types(mesh: Mesh, axis_types: Any, default: Any) -> list[Any]:
    """One axis type per axis of `mesh`."""
    jax = _jax()

    chosen = default if axis_types is None else axis_types
    if isinstance(chosen, jax.sharding.AxisType):
        return [chosen] * len(mesh.names)
    types = list(chosen)
    if len(types) != len(mesh.names):
        raise LayoutError(
            f"{len(types)} axis types for mesh {mesh.axes_text()} of {len(mesh.names)} axes; give one per axis, or "
            "one for all"
        )
    return types


def _ranges(ids: Iterable[int]) -> str:
    """`0, 1, 2, 3, 7 --> 0..3, 7`."""
    runs: list[list[int]] = []
    for i in sorted(ids):
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in runs)


# -- from JAX ------------------------------------------------------------------------------------------


def layout_from_jax(shape: Sequence[int], dtype: Any, sharding: Any) -> Layout:
    """The layout of an array of this global shape and dtype under a JAX sharding.

    NamedSharding over a concrete or abstract mesh: `unreduced=` axes become a partial sum; `reduced=`
    axes hold copies (the mark matters to differentiation only) and are dropped. SingleDeviceSharding is
    a mesh of one device. Other shardings are read through their XLA text. Memory kinds are not kept.

    Raises LayoutError for specs longer than the rank, UNCONSTRAINED dimensions, Manual axes, and
    shardings without XLA text.
    """
    jax = _jax()

    if isinstance(sharding, jax.sharding.NamedSharding):
        return _from_named(shape, dtype, sharding)
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        (device,) = sharding.device_set
        return Layout(Mesh({}, [device.id]), shape, None, dtype)
    if isinstance(sharding, jax.sharding.Sharding):
        return _from_text(shape, dtype, sharding)
    raise LayoutError(
        f"{sharding!r} is not a sharding; pass jax.sharding.NamedSharding(mesh, spec), or the array's .sharding"
    )


def _from_named(shape: Sequence[int], dtype: Any, sharding: Any) -> Layout:
    spec: Any = sharding.spec
    mesh = mesh_from_jax(sharding.mesh)
    _refuse_manual(sharding.mesh)
    parts: tuple[Any, ...] = spec.partitions
    if len(parts) > len(shape):
        raise LayoutError(
            f"{spec} names {len(parts)} dimensions, but the array has {len(shape)} (shape {list(shape)}); drop the "
            f"last {len(parts) - len(shape)}"
        )
    free = [i for i, part in enumerate(parts) if part is spec.UNCONSTRAINED]
    if free:
        raise LayoutError(
            f"dimensions {free} of {spec} are UNCONSTRAINED: XLA chooses their layout, so there is none to convert; "
            "name axes, or None to replicate"
        )
    axes: list[list[str]] = [[] for _ in shape]
    for i, part in enumerate(parts):
        names: Any = [part] if part is None or isinstance(part, str) else part
        axes[i] = [name for name in names if name is not None]
    return Layout(mesh, shape, axes, dtype, partial=spec.unreduced)


def _refuse_manual(mesh: Any) -> None:
    jax = _jax()

    types = zip(mesh.axis_names, mesh.axis_types, strict=True)
    manual = [str(name) for name, kind in types if kind == jax.sharding.AxisType.Manual]
    if manual:
        raise LayoutError(
            f"mesh axes {', '.join(manual)} are Manual: inside shard_map every device has an array of its own along "
            "them, and the sharding does not say how these make up one; convert the sharding outside shard_map"
        )


def _from_text(shape: Sequence[int], dtype: Any, sharding: Any) -> Layout:
    """Through XLA's text, whose numbers are places in the sharding's device list."""
    try:
        text = str(sharding._to_xla_hlo_sharding(len(shape)))
        ids = [device.id for device in sharding._device_assignment]
    except (AttributeError, NotImplementedError):
        raise LayoutError(
            f"{type(sharding).__name__} has no XLA text to read; put the array into a NamedSharding first, with "
            "jax.device_put"
        ) from None
    numbered = layout_from_xla(text, shape, dtype, devices=len(ids))
    mesh = Mesh(numbered.mesh.axes, [ids[i] for i in numbered.mesh.device_ids])
    return Layout(mesh, shape, [dim.axes for dim in numbered.dims], dtype, partial=numbered.partial_axes)


# -- to JAX --------------------------------------------------------------------------------------------


def layout_to_jax(layout: Layout, axis_types: Any = None) -> Any:
    """A NamedSharding of the layout: over the layout's own mesh, refined where the layout has sub-axes.

    `axis_types` as in `mesh_to_jax`, parts of an axis having the type of the axis; None is Auto for
    all, or, for a layout with a partial sum, Explicit for all, where alone JAX has unreduced values.

    Raises LayoutError naming every dimension whose blocks are not equal, a reduction other than sum,
    partial axes that are not Explicit, and devices that JAX does not have.
    """
    jax = _jax()

    kinds: Any = jax.sharding.AxisType
    _refuse_uneven(layout)
    if layout.partial and layout.partial.reduction != "sum":
        raise LayoutError(
            f"partial {layout.partial}: JAX's unreduced values are sums; reduce it before handing it to JAX"
        )
    mesh = layout.mesh
    types = _axis_types(mesh, axis_types, kinds.Explicit if layout.partial else kinds.Auto)
    typed = dict(zip(mesh.names, types, strict=True))
    used = [*layout.partial_axes, *(axis for dim in layout.dims for axis in dim.axes)]
    implicit = sorted({axis.axis for axis in layout.partial_axes if typed[axis.axis] != kinds.Explicit})
    if implicit:
        raise LayoutError(
            f"partial {layout.partial}: axes {', '.join(implicit)} are not Explicit, and JAX has unreduced values over "
            "Explicit axes only; pass axis_types=jax.sharding.AxisType.Explicit, or reduce before"
        )
    pieces = [piece for name in mesh.names for piece in _refined(mesh, [SubAxis(name)], used)]
    axes = [(str(piece), mesh.count([piece])) for piece in pieces]
    refined = _build_mesh(mesh, axes, [typed[piece.axis] for piece in pieces])
    parts = [tuple(map(str, _refined(mesh, dim.axes, used))) or None for dim in layout.dims]
    while parts and parts[-1] is None:
        parts.pop()
    unreduced = set(map(str, _refined(mesh, layout.partial_axes, used)))
    return jax.sharding.NamedSharding(refined, jax.sharding.PartitionSpec(*parts, unreduced=unreduced))


def _refined(mesh: Mesh, axes: Sequence[SubAxis], used: Sequence[SubAxis]) -> tuple[SubAxis, ...]:
    found = refine_axes(mesh, axes, used)
    assert found is not None, "the sub-axes of a layout are cuts of one factorisation"
    return found


def _refuse_uneven(layout: Layout) -> None:
    found: list[str] = []
    for i, (dim, count) in enumerate(zip(layout.dims, layout.block_counts(), strict=True)):
        if dim.size % count:
            padded = -(-dim.size // count) * count
            found.append(
                f"dimension {i} ({dim}) has {count} blocks, which do not divide {dim.size} (pad it to {padded})"
            )
        elif not even(dim.size, count, dim.rule):
            found.append(f"dimension {i} ({dim}) has blocks of unequal size by its offsets (use ceil blocks)")
    if found:
        raise LayoutError(
            f"JAX holds blocks of equal size only: {'; '.join(found)}. Redistribute to such a layout, pad, or shard "
            "over axes whose sizes divide the dimension"
        )

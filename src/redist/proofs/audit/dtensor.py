"""DTensor's plans: the transform infos of torch's planner, one mesh axis each, as typed steps.

A step of DTensor changes the placement of one mesh axis: `S(i) -> R` gathers it, `R -> S(i)` slices,
`S(i) -> S(j)` is an all-to-all, `P -> R` an all-reduce, `P -> S(i)` a reduce-scatter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from redist.collectives.steps import AllGather, AllReduce, AllToAll, ReduceScatter, Slice, Step
from redist.collectives.typing import after
from redist.errors import LayoutError, TypingError
from redist.proofs.audit import _dtensor_torch
from redist.proofs.audit.foreign import ForeignOp, ForeignPlan
from redist.types.bounds import require_same_array
from redist.types.layout import Layout
from redist.types.mesh import SubAxis

__all__ = ["expressible", "left_to_right", "missing", "plan_of_dtensor", "read_infos"]

missing = _dtensor_torch.missing
"""Why DTensor's planner is not here; None where it is."""

_SHARD = re.compile(r"S\((\d+)\)")


def plan_of_dtensor(
    source: Layout, target: Layout, shortest_path: bool = False, cost_shape: Sequence[int] | None = None
) -> ForeignPlan:
    """The plan that DTensor makes: by default as torch chooses, with `shortest_path` by its Dijkstra planner.

    Its costs depend on the size of the tensor; `cost_shape` is the shape to plan for, where it is not the
    layouts'. Raises LayoutError for layouts that DTensor cannot hold (see `expressible`), BackendError
    where torch or its planner is missing.
    """
    require_same_array(source, target)
    problem = expressible(source, target)
    if problem is not None:
        raise LayoutError(problem)
    infos = _dtensor_torch.transform_infos(
        source.mesh.sizes,
        source.shape if cost_shape is None else cost_shape,
        _mesh_dims(source),
        _mesh_dims(target),
        source.partial.reduction if source.partial else "sum",
        shortest_path,
    )
    return read_infos(infos, source, target, "dtensor-dijkstra" if shortest_path else "dtensor")


def expressible(source: Layout, target: Layout) -> str | None:
    """Why DTensor cannot plan this: one mesh, whole axes and blocks of equal size are what it is asked for
    here (its chunks of uneven dimensions are not ceil blocks). None where it can."""
    if source.mesh != target.mesh:
        return f"DTensor does not redistribute between meshes, {source.mesh} and {target.mesh}; use one mesh"
    for layout in (source, target):
        used = [*layout.partial_axes, *(axis for dim in layout.dims for axis in dim.axes)]
        parts = [str(axis) for axis in used if axis.size is not None]
        if parts:
            return f"DTensor places whole mesh axes, not {', '.join(parts)} of {layout}; give the parts own axes"
        if not layout.is_even():
            return f"{layout} has uneven blocks, which DTensor cuts in another way; use sizes that divide"
    return None


def left_to_right(layout: Layout) -> bool:
    """Whether every dimension's axes stand in mesh order, DTensor's default."""
    return all(list(dims) == sorted(dims) for dims in _mesh_dims(layout)[0])


def _mesh_dims(layout: Layout) -> tuple[list[list[int]], list[int]]:
    number = {name: n for n, name in enumerate(layout.mesh.names)}
    dims = [[number[axis.axis] for axis in dim.axes] for dim in layout.dims]
    return dims, [number[axis.axis] for axis in layout.partial_axes]


def read_infos(
    infos: Sequence[_dtensor_torch.Info], source: Layout, target: Layout, planner: str = "dtensor"
) -> ForeignPlan:
    """Transform infos as typed steps. The layout after each is what its data would be: a slice adds its
    axis as the minor-most, whatever order DTensor has in mind."""
    ops = tuple(ForeignOp(f"{a} -> {b}", f"mesh dim {m}: {a} -> {b}") for m, a, b in infos)
    plan = ForeignPlan(planner, source, target, ops)
    steps: list[Step] = []
    stated: list[Layout] = []
    for m, before, following in infos:
        step = _step(SubAxis(source.mesh.names[m]), before, following)
        if step is None:
            return replace(plan, note=f"no typed step for {before} -> {following} on mesh dimension {m}")
        steps.append(step)
        try:
            stated.append(after(step, stated[-1] if stated else source))
        except TypingError as error:
            return replace(plan, note=f"{before} -> {following} on mesh dimension {m} does not type: {error}")
    return replace(plan, steps=tuple(steps), stated=tuple(stated))


def _step(axis: SubAxis, before: str, following: str) -> Step | None:
    ours, theirs = _SHARD.fullmatch(before), _SHARD.fullmatch(following)
    if ours and theirs:
        return AllToAll([((axis,), int(ours[1]), int(theirs[1]))])
    if ours and following == "R":
        return AllGather({int(ours[1]): (axis,)})
    if theirs and before == "R":
        return Slice({int(theirs[1]): (axis,)})
    if before.startswith("P("):
        if following == "R":
            return AllReduce((axis,))
        if theirs:
            return ReduceScatter({int(theirs[1]): (axis,)})
    return None

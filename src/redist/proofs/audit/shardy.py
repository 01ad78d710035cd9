"""Shardy's plans: `sdy.reshard` turned into collectives by `sdy-reshard-to-collectives`, read from its text.

Every operation there names its axes and the sharding after it, so that all of them are typed steps. Which
device sends its block in a collective-permute is not stated; devices that can keep theirs do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from redist.collectives.steps import AllGather, AllReduce, AllToAll, Move, Permute, ReduceScatter, Slice, Step
from redist.errors import LayoutError, ProofError
from redist.proofs.audit import _shardy_pass
from redist.proofs.audit.foreign import ForeignOp, ForeignPlan, whole_blocks
from redist.types.bounds import require_same_array
from redist.types.convert.shardy import layout_from_shardy, layout_to_shardy
from redist.types.layout import Layout
from redist.types.mesh import Mesh, SubAxis

__all__ = ["missing", "module_text", "plan_of_shardy", "read_module"]

missing = _shardy_pass.missing
"""Why Shardy's pass is not here; None where it is."""

_OP = re.compile(
    r"%\w+ = sdy\.(?P<name>\w+)\s*(?P<axes>\[.*\]|\{.*\})?\s*%\w+\s*"
    r"(?:out_sharding=)?<(?:@(?P<mesh>\w+)), (?P<sharding>\[.*\].*)> : (?:\(?tensor)"
)
_TOKEN = re.compile(r'"(?P<name>[^"]+)"(?::\((?P<pre>\d+)\)(?P<size>\d+))?')
_BRACES = re.compile(r"\{[^{}]*\}")
_MOVE = re.compile(r"(\{[^{}]*\}): (\d+)->(\d+)")


def plan_of_shardy(source: Layout, target: Layout) -> ForeignPlan:
    """The plan that Shardy's pass makes. Where the pass fails, `steps` is None and `note` says how.

    Raises LayoutError for layouts that Shardy cannot express or that differ in more than their sharding (the
    pass takes unreduced axes to be the same on both sides), BackendError where jaxlib has no such pass.
    """
    require_same_array(source, target)
    if source.mesh.count(source.partial_axes) != target.mesh.count(target.partial_axes):
        raise LayoutError(
            f"{source} and {target} are unreduced over other axes, which Shardy's pass leaves as they are without a "
            "word; reduce in a step of its own"
        )
    text, meshes = module_text(source, target)
    try:
        printed = _shardy_pass.run_pass(text)
    except ProofError as error:
        return ForeignPlan("shardy", source, target, (), note=str(error))
    return read_module(printed, source, target, meshes)


def module_text(source: Layout, target: Layout) -> tuple[str, dict[str, Mesh]]:
    """An MLIR module with one `sdy.reshard` from source to target, and its meshes by name."""
    meshes = {"source": source.mesh}
    where = "source"
    if target.mesh != source.mesh:
        meshes["target"] = target.mesh
        where = "target"
    tensor = f"tensor<{'x'.join([*map(str, source.shape), _element(source)])}>"
    lines = [f"sdy.mesh @{name} = <{_mesh(mesh)}>" for name, mesh in meshes.items()]
    given, wanted = layout_to_shardy(source), layout_to_shardy(target)
    lines += [
        f"func.func @reshard(%arg0: {tensor} {{sdy.sharding = #sdy.sharding<@source, {given}>}}) -> {tensor} {{",
        f"  %0 = sdy.reshard %arg0 <@{where}, {wanted}> : {tensor}",
        f"  return %0 : {tensor}",
        "}",
    ]
    return "\n".join(["module {", *(f"  {line}" for line in lines), "}"]), meshes


def _mesh(mesh: Mesh) -> str:
    axes = "[" + ", ".join(f'"{name}"={size}' for name, size in mesh.axes) + "]"
    return axes if mesh.has_default_ids else f"{axes}, device_ids=[{', '.join(map(str, mesh.device_ids))}]"


def _element(layout: Layout) -> str:
    """MLIR's element type; what only moves is an integer of the same width where MLIR has no such name."""
    name = layout.dtype
    if name in ("bf16", "f16", "f32", "f64"):
        return name
    return "i1" if name == "bool" else f"i{8 * layout.itemsize}"


def read_module(text: str, source: Layout, target: Layout, meshes: Mapping[str, Mesh]) -> ForeignPlan:
    """Read the printed module after the pass: its operations in order, as typed steps.

    An operation that has no typed step leaves `steps` None, and `note` quotes it.
    """
    ops: list[ForeignOp] = []
    steps: list[Step] = []
    stated: list[Layout] = []
    note = ""
    before = source
    for line in text.splitlines():
        if " = sdy." not in line:
            continue
        found = _OP.search(line)
        name = line.split(" = sdy.", 1)[1].split()[0]
        ops.append(ForeignOp(name, line.strip()))
        if found is None or name not in _READERS:
            note = note or f"no typed step for: {line.strip()}"
            continue
        following = layout_from_shardy(found["sharding"], meshes[found["mesh"]], source.shape, source.dtype)
        step = _READERS[name](found["axes"] or "", before, following)
        if step is None:
            note = note or f"blocks before and after differ in: {line.strip()}"
            continue
        steps.append(step)
        stated.append(following)
        before = following
    plan = ForeignPlan("shardy", source, target, tuple(ops), note=note)
    return plan if note else replace(plan, steps=tuple(steps), stated=tuple(stated))


def _axes(text: str) -> tuple[SubAxis, ...]:
    return tuple(
        SubAxis(t["name"], int(t["pre"] or 1), int(t["size"]) if t["size"] else None) for t in _TOKEN.finditer(text)
    )


def _by_dim(text: str) -> dict[int, tuple[SubAxis, ...]]:
    """`[{"x"}, {}, {"y", "z"}]` as {0: x, 2: yz}."""
    per_dim = [_axes(braces) for braces in _BRACES.findall(text)]
    return {i: axes for i, axes in enumerate(per_dim) if axes}


def _moves(text: str) -> list[Move]:
    return [(_axes(axes), int(i), int(j)) for axes, i, j in _MOVE.findall(text)]


def _permute(_: str, before: Layout, following: Layout) -> Step | None:
    pairs = whole_blocks(before, following)
    return None if pairs is None else Permute(following, pairs)


_READERS: Mapping[str, Callable[[str, Layout, Layout], Step | None]] = {
    "all_slice": lambda text, _, __: Slice(_by_dim(text)),
    "all_gather": lambda text, _, __: AllGather(_by_dim(text)),
    "all_to_all": lambda text, _, __: AllToAll(_moves(text)),
    "collective_permute": _permute,
    "reduce_scatter": lambda text, _, __: ReduceScatter(_by_dim(text)),
    "all_reduce": lambda text, _, __: AllReduce(_axes(text)),
}

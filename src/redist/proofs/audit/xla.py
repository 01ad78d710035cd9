"""XLA's plans: a resharding compiled by JAX for its SPMD partitioner, read from the compiled HLO.

HLO states who exchanges what with whom, not layouts. Run on numbers that name the elements of the array
(`hlo_run`), it shows which box every device holds before and after each collective; where these boxes
are layouts and the collective turns one into the other by a typed step, the program is a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Move,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)
from redist.collectives.typing import after
from redist.errors import BackendError, LayoutError, ProofError, TypingError
from redist.proofs.audit._xla_text import hlo_text
from redist.proofs.audit.foreign import ForeignOp, ForeignPlan, WrongBlockError
from redist.proofs.audit.hlo import Instruction, Module, parse_module, permute_pairs, replica_groups
from redist.proofs.audit.hlo_run import received_by_partition, run_module
from redist.proofs.certificate import Counterexample
from redist.types.bounds import require_same_array
from redist.types.digits import align
from redist.types.layout import Layout
from redist.types.mesh import SubAxis

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["compile_reshard", "layout_of_boxes", "missing", "plan_of_xla", "read_compiled", "read_hlo"]


_MOST_SHARES = 12
"""Contributions to a sum that fit into the digits of an int64 beside the number of an element."""


def missing() -> str | None:
    """Why JAX is not here; None where it is."""
    return None if find_spec("jax") is not None else "jax is not installed; pip install jax"


def plan_of_xla(source: Layout, target: Layout) -> ForeignPlan:
    """The plan that XLA makes for `jax.jit(lambda a: a, out_shardings=target)` on an array laid out as source.

    Raises LayoutError for layouts that JAX cannot hold and devices it does not have, BackendError where
    JAX does not compile it, ProofError where the result of the program is not the target.
    """
    require_same_array(source, target)
    return read_compiled(compile_reshard(source, target), source, target)


def compile_reshard(source: Layout, target: Layout) -> Any:
    """The compiled identity from one layout to another (a `jax.stages.Compiled`).

    Raises LayoutError and BackendError as `plan_of_xla` does.
    """
    import jax

    from redist.types.dtypes import numpy_dtype

    jit: Any = jax.jit  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    given = jax.ShapeDtypeStruct(source.shape, numpy_dtype(source.dtype), sharding=source.to_jax())
    try:
        return jit(_same, out_shardings=target.to_jax()).lower(given).compile()
    except ValueError as error:
        raise BackendError(f"JAX does not compile {source} -> {target}: {str(error).splitlines()[0]}") from None


def _same(array: Any) -> Any:
    return array


def read_compiled(compiled: Any, source: Layout, target: Layout) -> ForeignPlan:
    """Read a compiled resharding (a `jax.stages.Compiled` of one argument and one result).

    Adds what XLA's memory analysis states to the measures, `argument_bytes`, `output_bytes` and
    `temp_bytes` per device. Raises as `read_hlo` does, and BackendError where JAX does not print it.
    """
    return read_hlo(hlo_text(compiled), source, target, _memory(compiled))


def _memory(compiled: Any) -> dict[str, int]:
    """What XLA's memory analysis states, in bytes per device."""
    found = compiled.memory_analysis()
    names = ("argument", "output", "temp")
    return {f"{name}_bytes": int(getattr(found, f"{name}_size_in_bytes")) for name in names}


def read_hlo(text: str, source: Layout, target: Layout, measures: dict[str, int] | None = None) -> ForeignPlan:
    """Read a compiled resharding: its collectives in order, and typed steps where it has them.

    Adds to `measures` the elements of the largest value in the program, `largest_elements`.
    Raises WrongBlockError where the program leaves a device with something else than its block of the target,
    ProofError where it holds an instruction that is not known here, and LayoutError for an unreduced target.
    """
    module = parse_module(text)
    if module.partitions != source.mesh.size:
        raise ProofError(f"the program is for {module.partitions} devices, {source} for {source.mesh.size}")
    seen: list[_Seen] = []

    def observe(i: Instruction, operands: list[NDArray[np.int64]], results: list[NDArray[np.int64]]) -> None:
        seen.append(_Seen(i, _flat(operands), _flat(results)))

    if target.partial is not None:
        raise LayoutError(f"{target} is unreduced; what its devices hold is not read off HLO, reduce it in the target")
    if source.mesh.count(source.partial_axes) > _MOST_SHARES:
        raise LayoutError(f"{source} has more than {_MOST_SHARES} contributions, which are not told apart here")
    result = run_module(module, _shares(source), observe)
    wanted = _contents(target) * sum(4**c for c in range(source.mesh.count(source.partial_axes)))
    wrong = np.argwhere(result != wanted)
    if len(wrong):
        raise WrongBlockError(_misplaced(source, target, result, tuple(map(int, wrong[0]))))
    ops = tuple(ForeignOp(i.opcode, i.text, tuple(received_by_partition(module, i))) for i in module.collectives())
    largest = max(shape.elements for i in module.computations[module.entry] for shape in i.shapes)
    stated = {**(measures or {}), "largest_elements": largest}
    plan = ForeignPlan("xla", source, target, ops, measures=stated, checked=True)
    try:
        steps, layouts = _typed(module, seen, source, target)
    except (LayoutError, TypingError) as error:
        return replace(plan, note=str(error))
    return replace(plan, steps=tuple(steps), stated=tuple(layouts))


def _misplaced(source: Layout, target: Layout, result: NDArray[np.int64], place: tuple[int, ...]) -> Counterexample:
    """What is wrong at (position, local index); which element is there is told where nothing is added up."""
    position, *local = place
    device = target.mesh.device_ids[position]
    who = target.mesh.describe_device(device)
    starts, _ = target.boxes()
    wanted = tuple(int(a) + n for a, n in zip(starts[position], local, strict=True))
    got = None
    if source.partial is None and 1 <= result[place] <= np.prod(target.shape):
        got = tuple(int(n) for n in np.unravel_index(int(result[place]) - 1, target.shape))
    text = (
        f"REFUTED refinement: XLA's program from {source} to {target} leaves {who} with a wrong block: local index "
        f"{tuple(local)} wants global {wanted}, gets {'something else' if got is None else f'global {got}'}"
    )
    return Counterexample(text, device, target.mesh.coordinates(device), tuple(local), wanted, got, confirmed=True)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A collective, and the elements each device has in its operands and results: (devices, count)."""

    instruction: Instruction
    before: NDArray[np.int64]
    following: NDArray[np.int64]


def _flat(values: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([value.reshape(len(value), -1) for value in values], axis=1)


def _contents(layout: Layout) -> NDArray[np.int64]:
    """The block of each device, element n of the global array holding n + 1."""
    starts, stops = layout.boxes()
    array = np.arange(1, int(np.prod(layout.shape, dtype=np.int64)) + 1).reshape(layout.shape)
    boxes = zip(starts.tolist(), stops.tolist(), strict=True)
    return np.stack([array[tuple(map(slice, lower, upper))] for lower, upper in boxes])


def _shares(source: Layout) -> NDArray[np.int64]:
    """The contents of a source; where it is partial, contribution c holds 4^c times the elements, so that a sum
    tells which contributions it holds."""
    which = source.mesh.index(source.partial_axes).reshape(-1, *[1] * source.rank)
    return _contents(source) * 4**which


# -- typed steps ---------------------------------------------------------------------------------------


def _typed(module: Module, seen: list[_Seen], source: Layout, target: Layout) -> tuple[list[Step], list[Layout]]:
    """The steps and the layout after each. Raises LayoutError or TypingError saying what is not a step."""
    steps: list[Step] = []
    layouts: list[Layout] = []
    layout = source
    weight = 4 ** source.mesh.index(source.partial_axes)  # what a device's numbers are multiplied by

    def take(step: Step, following: Layout) -> None:
        nonlocal layout
        if not after(step, layout).equivalent(following):
            raise LayoutError(f"{step} does not turn {layout} into {following}")
        steps.append(step)
        layouts.append(following)
        layout = following

    for one in seen:
        held = _layout(layout, one.before // weight[:, None])
        if not held.equivalent(layout):
            take(_slice(layout, held), held)
        reduced: tuple[SubAxis, ...] = ()
        kept = layout
        if one.instruction.opcode in ("all-reduce", "reduce-scatter"):
            groups = replica_groups(one.instruction, module.partitions)
            reduced = _reduced(layout, groups)
            kept = after(AllReduce(reduced), layout)
            for group in groups:
                weight[group] = weight[group].sum()
        following = _layout(kept, one.following // weight[:, None])
        take(_step(one.instruction, layout, following, reduced), following)
    if not layout.equivalent(target):
        ended = target if target.mesh == source.mesh else _layout(layout, _flat([_contents(target)]))
        take(_slice(layout, ended), ended)
    return steps, layouts


def _reduced(layout: Layout, groups: list[list[int]]) -> tuple[SubAxis, ...]:
    """The partial axes along which the groups reach. Raises LayoutError where these are not all of a group."""
    alignment = align((layout,), primes=True)
    assert alignment is not None, "the sub-axes of a layout are cuts of one factorisation"
    found: list[SubAxis] = []
    for d in alignment.forms[0].partial:
        digits = np.asarray(groups[0]) // alignment.strides[d] % alignment.sizes[d]
        if (digits != digits[0]).any():
            found += alignment.axes([d])
    if layout.mesh.count(found) != len(groups[0]):
        raise LayoutError(f"groups of {len(groups[0])} devices reduce over other axes than {layout} is partial over")
    return tuple(found)


def _step(i: Instruction, before: Layout, following: Layout, reduced: tuple[SubAxis, ...]) -> Step:
    match i.opcode:
        case "all-reduce":
            return AllReduce(reduced)
        case "reduce-scatter":
            return ReduceScatter(_suffixes(following, before))
        case "all-gather":
            return AllGather(_suffixes(before, following))
        case "all-to-all":
            return AllToAll(_moves(before, following))
        case "collective-permute":
            ids = before.mesh.device_ids
            return Permute(following, Pairs(tuple((ids[s], ids[t]) for s, t in permute_pairs(i))))
        case _:
            raise LayoutError(f"{i.opcode} is no typed step here")


def _slice(before: Layout, following: Layout) -> Step:
    gained = _suffixes(following, before)
    if not gained:
        raise LayoutError(f"the program goes from {before} to {following} without communication, not by a slice")
    return Slice(gained)


def _suffixes(longer: Layout, shorter: Layout) -> dict[int, tuple[SubAxis, ...]]:
    """Per dimension, the axes of `longer` after those of `shorter`."""
    digits = _digits(longer), _digits(shorter)
    found = {i: tuple(a[len(b) :]) for i, (a, b) in enumerate(zip(*digits, strict=True))}
    return {i: axes for i, axes in found.items() if axes}


def _moves(before: Layout, following: Layout) -> list[Move]:
    lost, gained = _suffixes(before, following), _suffixes(following, before)
    origin = {axis: i for i, axes in lost.items() for axis in axes}
    moves: list[Move] = []
    for j, axes in gained.items():
        for axis in axes:
            if axis not in origin:
                raise LayoutError(f"dimension {j} gains {axis}, which no dimension loses, from {before} to {following}")
            moves.append(((axis,), origin[axis], j))
    return moves


def _digits(layout: Layout) -> list[list[SubAxis]]:
    """Per dimension, its axes cut into primes, so that lists of two layouts can be compared."""
    alignment = align((layout,), primes=True)
    assert alignment is not None, "the sub-axes of a layout are cuts of one factorisation"
    return [[axis for d in dim for axis in alignment.axes([d])] for dim in alignment.forms[0].dims]


def _layout(like: Layout, contents: NDArray[np.int64]) -> Layout:
    """The layout of `like`'s array, partial as that is, in which every device holds these elements.

    Raises LayoutError where there is none.
    """
    starts = np.empty((len(contents), like.rank), dtype=np.int64)
    stops = np.empty_like(starts)
    for p, row in enumerate(contents):
        elements = np.unique(row[row > 0]) - 1
        places = np.unravel_index(elements, like.shape)
        for i, place in enumerate(places):
            starts[p, i], stops[p, i] = (int(place.min()), int(place.max()) + 1) if len(place) else (0, 0)
        if int((stops[p] - starts[p]).prod()) != len(elements) or len(elements) != len(row):
            raise LayoutError(f"device {like.mesh.device_ids[p]} holds no box of the array during the program")
    return layout_of_boxes(like, starts, stops)


def layout_of_boxes(like: Layout, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Layout:
    """The layout of `like`'s array over its mesh, partial as it is, with this box for the device at each position.

    Raises LayoutError where there is none with blocks of equal size.
    """
    axes = [_axes_of(like, i, starts[:, i], int((stops - starts)[0, i])) for i in range(like.rank)]
    found = Layout(like.mesh, like.shape, axes, like.dtype, partial=like.partial_axes)
    if not all(np.array_equal(a, b) for a, b in zip(found.boxes(), (starts, stops), strict=True)):
        raise LayoutError("the devices' boxes are not the blocks of a layout over the axes of the mesh")
    return found


def _axes_of(like: Layout, i: int, starts: NDArray[np.int64], length: int) -> list[SubAxis]:
    """The axes that shard dimension i, by how block indices grow along each axis of the mesh."""
    index = starts // max(length, 1)
    found: list[tuple[int, SubAxis]] = []
    inner = like.mesh.size
    for name, total in like.mesh.axes:
        inner //= total
        along = index[: inner * total : inner]
        stride = 1
        while stride < total:
            rest = along[::stride]
            growth = int(rest[1])
            bend = np.flatnonzero(rest != np.arange(len(rest)) * growth)
            size = int(bend[0]) if len(bend) else len(rest)
            if size == 0 or total % (stride * size):
                raise LayoutError(f"blocks of dimension {i} follow no cut of axis {name}={total}")
            if growth:
                found.append((growth, SubAxis(name, total // (stride * size), size)))
            stride *= size
    return [axis for _, axis in sorted(found, key=lambda pair: -pair[0])]

"""Run HLO on integers, all partitions at once, in NumPy: what a compiled redistribution does to its data.

Only what XLA makes of data movement is known: copies, reshapes, slices, collectives and the index
arithmetic around them. Anything else is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from redist.errors import ProofError
from redist.proofs.audit.hlo import COLLECTIVES, Instruction, Module, Shape, permute_pairs, replica_groups

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Observer", "received_by_partition", "run_module"]

Value = Any
"""An array (partitions, *dims) of integers, or a list of these for a tuple."""

Observer = Callable[[Instruction, "list[NDArray[np.int64]]", "list[NDArray[np.int64]]"], None]
"""Called with every collective of the entry, its operands and its results."""


class _Context(NamedTuple):
    """What a local instruction needs beside its operands: the number of partitions, its first operand's shape."""

    partitions: int
    given: Shape | None


def run_module(module: Module, argument: NDArray[np.int64], observe: Observer | None = None) -> NDArray[np.int64]:
    """The result of the entry computation on one argument, both (partitions, *local dims).

    Raises ProofError naming an instruction that is not known here.
    """
    return _run(module, module.entry, [argument], observe)


def _run(module: Module, name: str, arguments: Sequence[Value], observe: Observer | None) -> Value:
    values: dict[str, Value] = {}
    shapes: dict[str, Shape] = {}
    for instruction in module.computations[name]:
        operands: list[Value] = [values[operand] for operand in instruction.operands]
        given = shapes[instruction.operands[0]] if operands else None
        value = _value(module, instruction, operands, arguments, given)
        if observe and instruction.opcode in COLLECTIVES:
            observe(instruction, operands, _parts(value))
        values[instruction.name] = value
        if instruction.shapes:
            shapes[instruction.name] = instruction.shape
        if instruction.is_root:
            return value
    raise ProofError(f"computation {name} has no root")


def _parts(value: Value) -> list[NDArray[np.int64]]:
    """The arrays of a tuple, or one array by itself."""
    return [value] if isinstance(value, np.ndarray) else value


def _value(
    module: Module, i: Instruction, operands: list[Value], arguments: Sequence[Value], given: Shape | None
) -> Value:
    if i.opcode == "parameter":
        return arguments[int(i.inside)]
    if i.opcode in ("fusion", "call"):
        called = i.attributes.get("calls") or i.attributes["to_apply"]
        return _run(module, called.lstrip("%"), operands, None)
    if i.opcode in COLLECTIVES:
        return _collective(module, i, operands)
    known = _LOCAL.get(i.opcode)
    if known is not None:
        return known(_Context(module.partitions, given), i, *operands)
    if i.opcode in _ELEMENTWISE:
        return _ELEMENTWISE[i.opcode](*operands)
    raise ProofError(f"HLO instruction '{i.opcode}' is not known here: {i.text[:200]}")


# -- local ---------------------------------------------------------------------------------------------


def _constant(context: _Context, i: Instruction) -> NDArray[np.int64]:
    if "..." in i.inside:
        raise ProofError(f"a constant is left out of the text; print the module with large constants: {i.text[:200]}")
    numbers = [_number(word) for word in re.findall(r"true|false|-?[\d.]+(?:e[+-]?\d+)?|-?inf|nan", i.inside)]
    table = np.asarray(numbers, dtype=np.int64).reshape(i.shape.dims)
    return np.broadcast_to(table, (context.partitions, *i.shape.dims))


def _number(word: str) -> int:
    return {"true": 1, "false": 0}[word] if word in ("true", "false") else int(float(word))


def _partition_id(context: _Context, _: Instruction) -> NDArray[np.int64]:
    return np.arange(context.partitions)


def _iota(context: _Context, i: Instruction) -> NDArray[np.int64]:
    dim, shape = int(i.attributes["iota_dimension"]), i.shape.dims
    along = np.arange(shape[dim]).reshape([-1 if n == dim else 1 for n in range(len(shape))])
    return np.broadcast_to(along, (context.partitions, *shape))


def _transpose(_: _Context, i: Instruction, x: NDArray[np.int64]) -> NDArray[np.int64]:
    return x.transpose([0, *(d + 1 for d in _ints(i.attributes["dimensions"]))])


def _reshape(_: _Context, i: Instruction, x: NDArray[np.int64]) -> NDArray[np.int64]:
    return x.reshape((len(x), *i.shape.dims))


def _bitcast(context: _Context, i: Instruction, x: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same memory under another shape: through the order in which elements lie there."""
    given = context.given
    assert given is not None
    flat = x.transpose([0, *(d + 1 for d in reversed(given.minor_to_major))]).reshape(len(x), -1)
    order = list(reversed(i.shape.minor_to_major))
    laid = flat.reshape(len(x), *(i.shape.dims[d] for d in order))
    return laid.transpose([0, *(order.index(d) + 1 for d in range(len(order)))])


def _slice(_: _Context, i: Instruction, x: NDArray[np.int64]) -> NDArray[np.int64]:
    bounds = [_ints(part) for part in re.findall(r"\[([\d:]+)\]", i.attributes["slice"])]
    return x[(slice(None), *(slice(*part) for part in bounds))]


def _dynamic_slice(_: _Context, i: Instruction, x: NDArray[np.int64], *starts: NDArray[np.int64]) -> NDArray[np.int64]:
    sizes = _ints(i.attributes["dynamic_slice_sizes"])
    return np.stack([x[p][_window(x.shape[1:], sizes, starts, p)] for p in range(len(x))])


def _dynamic_update_slice(
    _: _Context, __: Instruction, x: NDArray[np.int64], update: NDArray[np.int64], *starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    made = x.copy()
    for p in range(len(x)):
        made[p][_window(x.shape[1:], update.shape[1:], starts, p)] = update[p]
    return made


def _window(
    shape: Sequence[int], sizes: Sequence[int], starts: Sequence[NDArray[np.int64]], p: int
) -> tuple[slice, ...]:
    first = [min(max(int(s[p]), 0), whole - size) for s, whole, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(a, a + size) for a, size in zip(first, sizes, strict=True))


def _concatenate(_: _Context, i: Instruction, *parts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate(parts, axis=_ints(i.attributes["dimensions"])[0] + 1)


def _broadcast(_: _Context, i: Instruction, x: NDArray[np.int64]) -> NDArray[np.int64]:
    kept = _ints(i.attributes["dimensions"])
    shape = [i.shape.dims[d] if d in kept else 1 for d in range(len(i.shape.dims))]
    return np.broadcast_to(x.reshape(len(x), *shape), (len(x), *i.shape.dims))


def _pad(_: _Context, i: Instruction, x: NDArray[np.int64], value: NDArray[np.int64]) -> NDArray[np.int64]:
    pads = [_ints(part.replace("_", ",")) for part in i.attributes["padding"].split("x")]
    if any(min(p) < 0 or (len(p) > 2 and p[2]) for p in pads):
        raise ProofError(f"negative and interior padding is not known here: {i.text[:200]}")
    made = np.broadcast_to(value.reshape(len(x), *[1] * (x.ndim - 1)), (len(x), *i.shape.dims)).copy()
    made[(slice(None), *(slice(p[0], p[0] + n) for p, n in zip(pads, x.shape[1:], strict=True)))] = x
    return made


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"-?\d+", text))


def _same(_: _Context, __: Instruction, x: NDArray[np.int64]) -> NDArray[np.int64]:
    return x


def _tuple(_: _Context, __: Instruction, *values: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return list(values)


def _element(_: _Context, i: Instruction, values: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return values[int(i.attributes["index"])]


def _select(which: NDArray[np.int64], a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(which != 0, a, b)


def _clamp(low: NDArray[np.int64], x: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.minimum(np.maximum(x, low), high)


_LOCAL: dict[str, Callable[..., Value]] = {
    "constant": _constant,
    "partition-id": _partition_id,
    "iota": _iota,
    "copy": _same,
    "convert": _same,
    "transpose": _transpose,
    "reshape": _reshape,
    "bitcast": _bitcast,
    "slice": _slice,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "concatenate": _concatenate,
    "broadcast": _broadcast,
    "pad": _pad,
    "tuple": _tuple,
    "get-tuple-element": _element,
}

_ELEMENTWISE: dict[str, Callable[..., Value]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.floor_divide,
    "remainder": np.fmod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "select": _select,
    "clamp": _clamp,
}


# -- collectives ---------------------------------------------------------------------------------------


def _collective(module: Module, i: Instruction, operands: list[NDArray[np.int64]]) -> Value:
    if i.opcode == "collective-permute":
        made = np.zeros_like(operands[0])
        for source, target in permute_pairs(i):
            made[target] = operands[0][source]
        return made
    groups = replica_groups(i, module.partitions)
    match i.opcode:
        case "all-gather":
            dim = _ints(i.attributes["dimensions"])[0]
            results = [_grouped(groups, x, lambda parts: [np.concatenate(parts, dim)] * len(parts)) for x in operands]
        case "all-reduce":
            results = [_grouped(groups, x, lambda parts: [sum(parts)] * len(parts)) for x in operands]
        case "reduce-scatter":
            dim = _ints(i.attributes["dimensions"])[0]
            results = [_grouped(groups, x, lambda parts: np.split(sum(parts), len(parts), axis=dim)) for x in operands]
        case _:
            return _all_to_all(i, groups, operands)
    return results if len(i.shapes) > 1 else results[0]


def _grouped(
    groups: list[list[int]], x: NDArray[np.int64], act: Callable[[list[NDArray[np.int64]]], Sequence[Any]]
) -> NDArray[np.int64]:
    made: list[Any] = [None] * len(x)
    for group in groups:
        for member, part in zip(group, act([x[p] for p in group]), strict=True):
            made[member] = part
    return np.stack(made)


def _all_to_all(i: Instruction, groups: list[list[int]], operands: list[NDArray[np.int64]]) -> Value:
    """With as many operands as members, operand n goes to member n; with one, its parts along a dimension."""
    if len(operands) == 1 and len(groups[0]) > 1:
        dim = _ints(i.attributes["dimensions"])[0] + 1
        pieces = np.split(operands[0], len(groups[0]), axis=dim)
        return np.concatenate(_swapped(groups, pieces), axis=dim)
    return _swapped(groups, operands)


def _swapped(groups: list[list[int]], pieces: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    made = [np.empty_like(piece) for piece in pieces]
    for group in groups:
        for n, sender in enumerate(group):
            for m, receiver in enumerate(group):
                made[n][receiver] = pieces[m][sender]
    return made


def received_by_partition(module: Module, i: Instruction) -> list[int]:
    """Elements that each partition receives from others in a collective (an all-reduce counted as a
    reduce-scatter and an all-gather)."""
    received = [0] * module.partitions
    total = sum(shape.elements for shape in i.shapes)
    if i.opcode == "collective-permute":
        for source, target in permute_pairs(i):
            received[target] = total if source != target else 0
        return received
    for group in replica_groups(i, module.partitions):
        k = len(group)
        count = {
            "all-reduce": -(-2 * total * (k - 1) // k),
            "reduce-scatter": total * (k - 1),
        }.get(i.opcode, total - total // k)
        for member in group:
            received[member] = count
    return received

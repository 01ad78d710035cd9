"""Whether two compiled programs are the same: instruction by instruction, whatever things are called.

Compared is what is done to the data: the instructions that depend on the program's argument, in their order. How a
device works out its place (its number, tables by device, index arithmetic) is left out, and so are bitcasts,
which do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redist.proofs.audit.hlo import COLLECTIVES, Instruction, Module, parse_module, permute_pairs, replica_groups

__all__ = ["same_program"]

_DOES = ("dimensions", "dynamic_slice_sizes", "slice", "padding", "direction", "index", "kind")
"""Attributes that say what an instruction does; the others are names, places in the source, and hints."""


def same_program(first: str, second: str) -> bool:
    """Whether two HLO texts of one argument do the same. Raises ParseError for what is not HLO text."""
    one, other = parse_module(first), parse_module(second)
    return one.partitions == other.partitions and _entry(one) == _entry(other)


def _entry(module: Module) -> list[Any]:
    return _done(module, module.entry, {0: -1})


def _done(module: Module, name: str, data: Mapping[int, int]) -> list[Any]:
    """What a computation does; `data` says which of its parameters hold data, and what stands for each.

    Instructions are numbered in their order; a bitcast is what it is made of.
    """
    numbers: dict[str, int] = {}
    found: list[Any] = []
    for i in module.computations[name]:
        if i.opcode == "parameter":
            if int(i.inside) in data:
                numbers[i.name] = data[int(i.inside)]
            continue
        used = [numbers[operand] for operand in i.operands if operand in numbers]
        if not used:
            continue
        if i.opcode == "bitcast":
            numbers[i.name] = used[0]
            continue
        shapes = [(shape.dtype, shape.dims, shape.minor_to_major) for shape in i.shapes]
        numbers[i.name] = len(found)
        found.append((i.opcode, shapes, used, _how(module, i, numbers)))
    return found


def _how(module: Module, i: Instruction, numbers: Mapping[str, int]) -> Any:
    if "calls" in i.attributes:
        taken = [n for n, operand in enumerate(i.operands) if operand in numbers]
        inner = {n: -1 - at for at, n in enumerate(taken)}
        return _done(module, i.attributes["calls"].lstrip("%"), inner)
    if i.opcode == "collective-permute":
        return sorted(permute_pairs(i))
    groups = replica_groups(i, module.partitions) if i.opcode in COLLECTIVES else []
    return [(name, i.attributes[name]) for name in _DOES if name in i.attributes], groups

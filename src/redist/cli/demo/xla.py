"""What XLA's own resharding does, read from its compiled program."""

from __future__ import annotations

import math
import re

from redist.types.dtypes import itemsize

__all__ = ["collectives"]

_INSTRUCTION = re.compile(r"\s*(?:ROOT )?(%[\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\(([^)]*)\)")
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_KINDS = ("all-gather", "all-to-all", "collective-permute", "all-reduce", "reduce-scatter")


def collectives(program: str) -> tuple[list[str], int | None]:
    """(kinds in order, bytes that the busiest device receives in them); None for forms not read here."""
    sizes: dict[str, list[int]] = {}
    kinds: list[str] = []
    total: int | None = 0
    for line in program.split("\n"):
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        name, shapes, op, operands = match.groups()
        sizes[name] = [_bytes(dtype, dims) for dtype, dims in _SHAPE.findall(shapes)]
        if op.removesuffix("-start") not in _KINDS:
            continue
        kinds.append(op.removesuffix("-start"))
        received = _received(op, shapes, sizes[name], sizes.get(operands.split(",")[0].strip()))
        total = None if total is None or received is None else total + received
    return kinds, total


def _bytes(dtype: str, dims: str) -> int:
    return math.prod(int(size) for size in dims.split(",") if size) * itemsize(_name(dtype))


def _name(dtype: str) -> str:
    return {"pred": "bool"}.get(dtype, dtype.replace("s", "i", 1) if re.fullmatch(r"s\d+", dtype) else dtype)


def _received(op: str, shapes: str, result: list[int], operand: list[int] | None) -> int | None:
    match op:
        case "all-gather" if len(result) == 1 and operand is not None and len(operand) == 1:
            return result[0] - operand[0]
        case "all-to-all" if shapes.startswith("("):
            return sum(result) - result[0]
        case "collective-permute" if len(result) == 1:
            return result[0]
        case _:
            return None

"""SPMD programs as text: local shapes, and every step of every redistribution."""

from __future__ import annotations

from typing import assert_never

from redist.collectives.explain import describe
from redist.partir_core.program import Literal
from redist.partir_core.spmd import Compute, Redistribute, SpmdBlock, SpmdProgram
from redist.partir_core.text import Names, params_text, typed

__all__ = ["spmd_text"]


def spmd_text(program: SpmdProgram) -> str:
    """One operation a line, with the local shape of its results; inputs and outputs with their layouts."""
    source = program.program
    named = dict(zip(program.block.inputs, source.input_names, strict=True))
    named.update({value: f"const{n}" for n, value in enumerate(program.constants)})
    names = Names(named)
    inputs = ", ".join(_global(program, names, x) for x in (*program.block.inputs, *program.constants))
    lines = [f"spmd {source.name}({inputs}) on {program.mesh or 'one device'} {{"]
    lines += _block(program, program.block, names, "  ")
    outputs = ", ".join(_global(program, names, x) for x in program.block.outputs)
    return "\n".join([*lines, f"  return {outputs}", "}"])


def _global(program: SpmdProgram, names: Names, operand: int | Literal) -> str:
    if isinstance(operand, Literal):
        return str(operand)
    value = program.values[operand]
    return f"{names(operand)}: {typed(value.type, value.axes, value.partial)}"


def _local(program: SpmdProgram, operand: int) -> str:
    value = program.values[operand]
    text = value.type.with_shape(value.local_shape(program.mesh))
    return text + (f" {_partial(value.partial)}" if value.partial else "")


def _partial(partial: tuple[tuple[object, object], ...]) -> str:
    by_kind: dict[str, list[str]] = {}
    for axis, kind in partial:
        by_kind.setdefault(str(kind), []).append(str(axis))
    return " ".join(f"{kind}{{{','.join(axes)}}}" for kind, axes in by_kind.items())


def _types(program: SpmdProgram, values: tuple[int, ...]) -> str:
    return ", ".join(_local(program, x) for x in values)


def _block(program: SpmdProgram, block: SpmdBlock, names: Names, indent: str) -> list[str]:
    lines: list[str] = []
    for op in block.ops:
        match op:
            case Redistribute(operand, result, plan, _):
                steps = "; ".join(map(describe, plan.steps)) or "same layout"
                given = names(operand)
                lines.append(f"{indent}{names(result)} = [{steps}] {given} : {_local(program, result)}")
            case Compute(source, operands, results, _, _, blocks):
                given = names.all(operands)
                params = params_text(source)
                lines.append(
                    f"{indent}{names.all(results)} = {source.name} {given}{params} : {_types(program, results)}"
                )
                for inner in blocks:
                    inputs = ", ".join(f"{names(x)}: {_local(program, x)}" for x in inner.inputs)
                    lines.append(f"{indent}({inputs}) {{")
                    lines += _block(program, inner, names, indent + "  ")
                    lines.append(f"{indent}  yield {names.all(inner.outputs)}")
                    lines.append(f"{indent}}}")
            case _:
                assert_never(op)
    return lines

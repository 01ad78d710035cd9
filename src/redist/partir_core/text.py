"""Programs as text: before tactics, and with the loops that tactics make (PartIR:Core)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from redist.partir_core.graph import BARRIER, Node, graph_of
from redist.partir_core.loops import Axes, State
from redist.partir_core.program import Block, Literal, Op, Operand, Program, ValueType
from redist.partir_core.rules import FactorKind
from redist.types.mesh import Mesh

__all__ = ["Names", "core_text", "named_inputs", "params_text", "program_text", "typed"]


class Names:
    """Names of values: inputs by their names, others numbered in the order in which they are printed."""

    def __init__(self, named: Mapping[int, str]) -> None:
        self._named = dict(named)
        self._next = 0

    def __call__(self, operand: Operand) -> str:
        if isinstance(operand, Literal):
            return str(operand)
        if operand not in self._named:
            self._named[operand] = str(self._next)
            self._next += 1
        return f"%{self._named[operand]}"

    def all(self, operands: Iterable[Operand]) -> str:
        """Several, separated by commas."""
        return ", ".join(map(self, operands))


def typed(kind: ValueType, axes: Axes, partial: Sequence[tuple[Any, FactorKind]] = ()) -> str:
    """`f32[256{B}, 8]`, with `sum{M}` behind where it is partial."""
    dims = ", ".join(
        f"{size}{{{','.join(map(str, names))}}}" if names else str(size)
        for size, names in zip(kind.shape, axes, strict=True)
    )
    text = f"{kind.with_shape(()).split('[', maxsplit=1)[0]}[{dims}]"
    kinds = dict.fromkeys(kind for _, kind in partial)
    return " ".join([text, *(f"{k}{{{','.join(str(axis) for axis, other in partial if other is k)}}}" for k in kinds)])


def params_text(op: Op) -> str:
    """` {key=value, ...}`, functions left out, long values cut off."""
    shown = [(key, value) for key, value in sorted(op.params.items()) if value is not None and not callable(value)]
    parts = [f"{key}={_param(value)}" for key, value in shown]
    return f" {{{', '.join(parts)}}}" if parts else ""


def _param(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def named_inputs(program: Program) -> dict[int, str]:
    """Names of inputs and constants."""
    named = dict(zip(program.block.inputs, program.input_names, strict=True))
    named.update({value: f"const{n}" for n, value in enumerate(program.constants)})
    return named


def program_text(program: Program) -> str:
    """Before any tactic, one operation a line."""
    return core_text(State.of(graph_of(program), Mesh({})))


def core_text(state: State) -> str:
    """With the loops that tactics have made: PartIR:Core in a notation of our own.

    An operation's loops stand around it, major first. A loop tiles result dimension d (`#tile<d>`) or sums
    what its iterations yield (`#sum`); `slice d %x[%i]` is what iteration i takes of an operand.
    """
    graph = state.graph
    program = graph.program
    names = Names(named_inputs(program))
    inputs = [
        f"{names(value)}: {typed(program.types[value], state.axes(value))}{_atomic(state, value)}"
        for value in (*program.block.inputs, *program.constants)
    ]
    lines = [f"func {program.name}({', '.join(inputs)}) {{"]
    lines += _core_block(state, program.block, names, "  ")
    return "\n".join([*lines, f"  return {names.all(program.block.outputs)}", "}"])


def _atomic(state: State, value: int) -> str:
    axes = state.atomic.get(value, {})
    return f" whole{{{','.join(map(str, axes))}}}" if axes else ""


def _core_block(state: State, block: Block, names: Names, indent: str) -> list[str]:
    lines: list[str] = []
    graph = state.graph
    for op in block.ops:
        nodes = [graph.nodes[n] for n in graph.of_op[id(op)]]
        if op.blocks or op.name == BARRIER:
            operands = [_value(state, names, x) for x in op.operands]
            results = [_value(state, names, x) for x in op.results]
            lines.append(f"{indent}{', '.join(results)} = {op.name} {', '.join(operands)}{params_text(op)}")
            for inner in op.blocks:
                inputs = ", ".join(_value(state, names, x) for x in inner.inputs)
                lines.append(f"{indent}({inputs}) {{")
                lines += _core_block(state, inner, names, indent + "  ")
                lines.append(f"{indent}  yield {names.all(inner.outputs)}")
                lines.append(f"{indent}}}")
        else:
            lines += _core_op(state, nodes[0], names, indent)
    return lines


def _value(state: State, names: Names, operand: Operand) -> str:
    if isinstance(operand, Literal):
        return str(operand)
    return f"{names(operand)}: {typed(state.graph.program.types[operand], state.axes(operand))}"


def _core_op(state: State, node: Node, names: Names, indent: str) -> list[str]:
    op, rule, program = node.op, node.rule, state.graph.program
    nest = state.nests[node.index]
    types = ", ".join(str(program.types[x]) for x in op.results)
    given = [names(x) for x in op.operands]
    made = names.all(op.results)
    note = "" if rule is not None else "  // no rule: whole"
    if not nest or rule is None:
        return [f"{indent}{made} = {op.name} {', '.join(given)}{params_text(op)} : {types}{note}"]
    head = f"{indent}{made} : {types} = "
    closing: list[str] = []
    lines: list[str] = []
    for axis, f in nest:
        what = _action(rule.results, f, rule.factors[f].kind)
        lines.append(f'{head}loop "{axis}" [{what}] (%{axis}: range<{state.mesh.count([axis])}>) {{')
        closing.insert(0, f"{indent}}}")
        indent += "  "
        head = f"{indent}"
    for k, dims in enumerate(rule.operands):
        cuts = [
            f"{d}[{','.join(f'%{axis}' for axis in axes)}]"
            for d, axes in enumerate(state.needed(node, k) if isinstance(op.operands[k], int) else ((),) * len(dims))
            if axes
        ]
        if cuts:
            given[k] = f"(slice {' '.join(cuts)} {given[k]})"
    return [*lines, f"{indent}yield {op.name} {', '.join(given)}{params_text(op)}", *closing]


def _action(results: tuple[tuple[tuple[int, ...], ...], ...], factor: int, kind: FactorKind) -> str:
    dims = [next((d for d, factors in enumerate(dims) if factor in factors), None) for dims in results]
    if kind is not FactorKind.PARALLEL and all(d is None for d in dims):
        return f"#{kind}"
    told = {("#any" if d is None else f"#tile<{d}>") for d in dims}
    return ", ".join(sorted(told)) if len(told) > 1 else next(iter(told))

"""Lowering: the SPMD program of a state, every redistribution a plan made by `synth`.

A use that needs another layout than the value has gets a redistribution of its own (gathers are not shared:
a parameter gathered in the forward pass is gathered again in the backward pass, so that it need not be kept).
A contribution is reduced once, where it is made: scattered along an axis when all uses need the same slice
and it is not an output, everywhere otherwise. Loops reduce and gather inside, in every iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redist.errors import InfeasibleError
from redist.partir_core.deferred import deferred
from redist.partir_core.graph import Node, inner_port
from redist.partir_core.loops import Axes, Nest, State, axes_of, partial_of
from redist.partir_core.program import Block, Literal, Op, Operand
from redist.partir_core.rules import FactorKind
from redist.partir_core.spmd import Compute, Redistribute, SpmdBlock, SpmdOp, SpmdProgram, SpmdValue
from redist.synth.planner import synthesize
from redist.types.layout import Layout
from redist.types.mesh import SubAxis

if TYPE_CHECKING:
    from redist.collectives.plan import Plan
    from redist.collectives.topology import Topology

__all__ = ["lower"]

Owner = tuple[Op, tuple[Axes, ...]]
_REDUCTIONS = frozenset({"all_reduce", "reduce_scatter"})


def lower(
    state: State,
    *,
    share_gathers: bool = False,
    any_reduction: bool = False,
    topology: Topology | None = None,
    backend: str = "jax",
) -> SpmdProgram:
    """The SPMD program of a state.

    `share_gathers` lets later uses in the same block reuse what an earlier one gathered. A reduction is one
    all-reduce or reduce-scatter; `any_reduction` allows every plan, so that devices which hold the same
    contribution may share the work (slice, reduce-scatter, all-gather). `topology` and `backend` are what
    plans are made for.
    """
    made = _Lowering(state, share_gathers, any_reduction, topology, backend, deferred(state))
    block = made.block(state.graph.program.block, made.constants())
    constants = {n: state.graph.program.constants[v] for v, n in made.constant_numbers.items()}
    return SpmdProgram(state.graph.program, state.mesh, tuple(made.values), block, constants)


@dataclass(slots=True, eq=False)
class _Scope:
    """Where the traced program's values are, in one block."""

    current: dict[int, int]
    shared: dict[tuple[int, Axes], int] = field(default_factory=dict[tuple[int, Axes], int])


@dataclass(slots=True, eq=False)
class _Lowering:
    state: State
    share_gathers: bool
    any_reduction: bool
    topology: Topology | None
    backend: str
    kept: dict[int, tuple[Nest, frozenset[SubAxis]]]
    values: list[SpmdValue] = field(default_factory=list[SpmdValue])
    constant_numbers: dict[int, int] = field(default_factory=dict[int, int])
    layouts: dict[Any, Layout] = field(default_factory=dict[Any, Layout])
    known: dict[tuple[Layout, Layout], Plan] = field(default_factory=dict[tuple[Layout, Layout], "Plan"])

    def constants(self) -> dict[int, int]:
        for value in self.state.graph.program.constants:
            kind = self.state.graph.program.types[value]
            self.constant_numbers[value] = self.value(SpmdValue(kind, ((),) * len(kind.shape)))
        return self.constant_numbers

    def value(self, value: SpmdValue) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def block(self, block: Block, constants: dict[int, int], owner: Owner | None = None) -> SpmdBlock:
        """`owner` is the operation that has the block, with the axes that it needs outputs to have."""
        types = self.state.graph.program.types
        inputs = {x: self.value(SpmdValue(types[x], self.state.axes(x))) for x in block.inputs}
        scope = _Scope({**constants, **inputs})
        ops: list[SpmdOp] = []
        for op in block.ops:
            self.op(op, scope, constants, ops)
        outputs = [
            self.plain(x, scope) if owner is None else self.use(x, owner[1][n], scope, ops, {}, owner[0])
            for n, x in enumerate(block.outputs)
        ]
        return SpmdBlock(tuple(inputs.values()), tuple(ops), tuple(outputs))

    def plain(self, x: Operand, scope: _Scope) -> int | Literal:
        return scope.current[x] if isinstance(x, int) else x

    def op(self, op: Op, scope: _Scope, constants: dict[int, int], ops: list[SpmdOp]) -> None:
        graph = self.state.graph
        nodes = [graph.nodes[n] for n in graph.of_op[id(op)]]
        if nodes[0].port is None:
            self.plain_op(op, nodes[0], scope, ops)
            return
        taken: dict[tuple[int, Axes], int] = {}
        operands = tuple(
            self.use(x, self.state.needed(nodes[k], 0), scope, ops, taken, op) if isinstance(x, int) else x
            for k, x in enumerate(op.operands)
        )
        blocks: list[SpmdBlock] = []
        for b, inner in enumerate(op.blocks):
            ports = [inner_port(op, b, c) for c in range(len(inner.outputs))]
            needed = tuple(self.state.needed(nodes[port], k) for port, k in ports)
            blocks.append(self.block(inner, constants, (op, needed)))
        results: list[int] = []
        for x in op.results:
            results.append(self.value(SpmdValue(graph.program.types[x], self.state.axes(x))))
            scope.current[x] = results[-1]
        ops.append(Compute(op, operands, tuple(results), None, (), tuple(blocks)))

    def plain_op(self, op: Op, node: Node, scope: _Scope, ops: list[SpmdOp]) -> None:
        taken: dict[tuple[int, Axes], int] = {}
        nest = self.nest(node)
        operands = tuple(
            self.use(x, self.needed(node, k), scope, ops, taken, op) if isinstance(x, int) else x
            for k, x in enumerate(op.operands)
        )
        results: list[int] = []
        unreduced: list[int] = []
        for r, x in enumerate(op.results):
            kind = self.state.graph.program.types[x]
            axes = axes_of(nest, node.rule.results[r]) if node.rule else ((),) * len(kind.shape)
            partial = partial_of(node, nest, r)
            if node.index in self.kept:
                partial = tuple((axis, FactorKind.SUM) for axis in self.ordered(self.kept[node.index][1]))
            made = self.value(SpmdValue(kind, axes, partial))
            results.append(made)
            scope.current[x] = made
            if partial:
                unreduced.append(x)
        ops.append(Compute(op, operands, tuple(results), node.rule, nest))
        for x in unreduced:
            self.reduce(x, op, scope, ops)

    def ordered(self, axes: frozenset[SubAxis]) -> list[SubAxis]:
        names = self.state.mesh.names
        return sorted(axes, key=lambda axis: (names.index(axis.axis), axis.pre))

    def nest(self, node: Node) -> Nest:
        return self.kept[node.index][0] if node.index in self.kept else self.state.nests[node.index]

    def needed(self, node: Node, operand: int) -> Axes:
        if node.index in self.kept and node.rule is not None:
            return axes_of(self.kept[node.index][0], node.rule.operands[operand])
        return self.state.needed(node, operand)

    def use(
        self,
        x: Operand,
        axes: Axes,
        scope: _Scope,
        ops: list[SpmdOp],
        taken: dict[tuple[int, Axes], int],
        op: Op,
    ) -> int | Literal:
        """The value as a use needs it, redistributed where it is laid out otherwise."""
        if isinstance(x, Literal):
            return x
        number = scope.current[x]
        held = self.values[number]
        if held.axes == axes:
            return number
        memo = scope.shared if self.share_gathers else taken
        if (x, axes) not in memo:
            memo[x, axes] = self.moved(number, SpmdValue(held.type, axes, held.partial), op, ops)
        return memo[x, axes]

    def moved(self, number: int, wanted: SpmdValue, op: Op, ops: list[SpmdOp]) -> int:
        made = self.value(wanted)
        plan = self.plan(self.layout(self.values[number]), self.layout(wanted))
        ops.append(Redistribute(number, made, plan, op))
        return made

    def layout(self, value: SpmdValue) -> Layout:
        key = (value.type.stored, value.axes, value.partial)
        if key not in self.layouts:
            self.layouts[key] = value.layout(self.state.mesh)
        return self.layouts[key]

    def plan(self, source: Layout, target: Layout) -> Plan:
        if (source, target) not in self.known:
            direct = source.partial is not None and not self.any_reduction
            self.known[source, target] = self.made(source, target, _REDUCTIONS if direct else None)
        return self.known[source, target]

    def made(self, source: Layout, target: Layout, steps: frozenset[str] | None) -> Plan:
        try:
            return synthesize(source, target, topology=self.topology, steps=steps, backend=self.backend)
        except InfeasibleError:
            if steps is None:
                raise
            return self.made(source, target, None)

    def reduce(self, x: int, op: Op, scope: _Scope, ops: list[SpmdOp]) -> None:
        """Reduce a contribution, unless its one use is an addition that takes it as it is."""
        graph = self.state.graph
        uses = graph.uses.get(x, ())
        if not uses and x not in graph.outputs:
            return
        if len(uses) == 1 and uses[0][0] in self.kept and x not in graph.outputs:
            return
        number = scope.current[x]
        held = self.values[number]
        wanted = held.axes
        if x not in graph.outputs:
            demands = [self.needed(graph.nodes[n], k) for n, k in uses]
            wanted = _scattered(held.axes, [axis for axis, _ in held.partial], demands)
        scope.current[x] = self.moved(number, SpmdValue(held.type, wanted), op, ops)


def _scattered(held: Axes, partial: Sequence[SubAxis], demands: Sequence[Axes]) -> Axes:
    """The axes of a reduced value: those axes join that all uses need in the same dimension."""
    wanted = [list(axes) for axes in held]
    for axis in partial:
        dims = {next((d for d, axes in enumerate(need) if axis in axes), None) for need in demands}
        if len(dims) == 1 and None not in dims:
            (d,) = dims
            assert d is not None
            wanted[d].append(axis)
    result = tuple(map(tuple, wanted))
    common = demands[0] if all(need == demands[0] for need in demands) else None
    if common is not None:
        return tuple(theirs if set(theirs) == set(ours) else ours for ours, theirs in zip(result, common, strict=True))
    return result

"""A program as a flat graph for propagation: nodes with rules, nested blocks tied in by identity nodes.

A loop or conditional is one node per value that passes through it. A scan's carry, for one, is an identity
with operands (initial value, what the body returns) and results (what the body is given, final value):
whatever shards one of them shards all four. The scanned dimension is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from redist.partir_core.program import TAG, Block, Op, Operand, Program
from redist.partir_core.rules import Factor, FactorKind, Rule, rule_of

__all__ = ["BARRIER", "Graph", "Node", "Port", "graph_of", "inner_port", "ports_of"]

BARRIER = "optimization_barrier"
LITERAL = -1


@dataclass(frozen=True, slots=True)
class Port:
    """One value that passes into or out of control flow, or through a barrier.

    `operands` and `results` are values (LITERAL for a literal operand). `scanned` tells for each of them
    whether it has the scanned dimension in front. `whole`: only whole values pass (a condition).
    """

    operands: tuple[Operand, ...]
    results: tuple[int, ...]
    scanned: tuple[bool, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An operation, or one port of one. `operands` has LITERAL for literals; `rule` None means kept whole."""

    index: int
    op: Op
    port: int | None
    rule: Rule | None
    operands: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Graph:
    """Nodes in program order. `producer[v]` is (node, result) of a value, None for inputs and constants;
    `uses[v]` are (node, operand); `of_op` the nodes of an operation by its identity."""

    program: Program
    nodes: list[Node] = field(default_factory=list[Node])
    producer: dict[int, tuple[int, int]] = field(default_factory=dict[int, "tuple[int, int]"])
    uses: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, "list[tuple[int, int]]"])
    of_op: dict[int, list[int]] = field(default_factory=dict[int, "list[int]"])
    outputs: frozenset[int] = frozenset()

    def without_rule(self) -> tuple[str, ...]:
        """Names of primitives without a rule, sorted."""
        return tuple(sorted({node.op.name for node in self.nodes if node.rule is None}))


def graph_of(program: Program) -> Graph:
    """The graph of a program."""
    graph = Graph(program, outputs=frozenset(x for x in program.block.outputs if isinstance(x, int)))
    _add_block(graph, program.block, {})
    for node in graph.nodes:
        for r, value in enumerate(node.results):
            graph.producer[value] = (node.index, r)
        for k, value in enumerate(node.operands):
            if value != LITERAL:
                graph.uses.setdefault(value, []).append((node.index, k))
    return graph


def _add_block(graph: Graph, block: Block, memo: dict[Any, Rule | None]) -> None:
    for op in block.ops:
        ports = ports_of(op)
        if ports is None:
            _add(graph, op, None, _rule(graph.program, op, memo), op.operands, op.results)
            continue
        graph.of_op[id(op)] = []
        for n, port in enumerate(ports):
            _add(graph, op, n, _port_rule(graph.program, port), port.operands, port.results)
        for inner in op.blocks:
            _add_block(graph, inner, memo)


def _add(
    graph: Graph, op: Op, port: int | None, rule: Rule | None, operands: Sequence[Operand], results: Sequence[int]
) -> None:
    index = len(graph.nodes)
    numbered = tuple(x if isinstance(x, int) else LITERAL for x in operands)
    graph.nodes.append(Node(index, op, port, rule, numbered, tuple(results)))
    graph.of_op.setdefault(id(op), []).append(index)


def _rule(program: Program, op: Op, memo: dict[Any, Rule | None]) -> Rule | None:
    if op.name == TAG:
        return _identity(program.types[op.results[0]].shape, 1, 1)
    ins = [program.type_of(x) for x in op.operands]
    outs = [program.types[x] for x in op.results]
    types = tuple((t.shape, t.dtype) for t in (*ins, *outs))
    key = (op.name, len(ins), types, tuple(op.params.items()))
    try:
        hash(key)
    except TypeError:  # a parameter that cannot be hashed
        return rule_of(op.name, op.params, ins, outs)
    if key not in memo:
        memo[key] = rule_of(op.name, op.params, ins, outs)
    return memo[key]


def _identity(shape: Sequence[int], operands: int, results: int) -> Rule:
    factors = tuple(Factor(size, FactorKind.PARALLEL if size else FactorKind.WHOLE) for size in shape if size != 1)
    dims: list[tuple[int, ...]] = []
    n = 0
    for size in shape:
        dims.append((n,) if size != 1 else ())
        n += size != 1
    return Rule(factors, (tuple(dims),) * operands, (tuple(dims),) * results)


def _port_rule(program: Program, port: Port) -> Rule:
    """The identity, with the scanned dimension whole where it is there."""
    values = [*port.operands, *port.results]
    inner = next(
        program.type_of(x).shape[1:] if scanned else program.type_of(x).shape
        for x, scanned in zip(values, port.scanned, strict=True)
    )
    if port.whole:
        whole = tuple(Factor(size, FactorKind.WHOLE) for size in inner)
        return Rule(whole, (tuple((d,) for d in range(len(inner))),) * len(port.operands), ())
    plain = _identity(inner, 1, 0)
    length = max((program.type_of(x).shape[0] for x, s in zip(values, port.scanned, strict=True) if s), default=1)
    if length == 1:
        front: tuple[int, ...] = ()
        factors = plain.factors
    else:
        front = (len(plain.factors),)
        factors = (*plain.factors, Factor(length, FactorKind.WHOLE))
    dims = [((front, *plain.operands[0]) if scanned else plain.operands[0]) for scanned in port.scanned]
    return Rule(factors, tuple(dims[: len(port.operands)]), tuple(dims[len(port.operands) :]))


def ports_of(op: Op) -> tuple[Port, ...] | None:
    """The ports of control flow and barriers, None for other operations. Those of a block's inputs come
    first, in order."""
    match op.name:
        case "scan":
            return tuple(_scan_ports(op))
        case "while":
            return tuple(_while_ports(op))
        case "cond":
            return tuple(_cond_ports(op))
        case "optimization_barrier":
            return tuple(Port((x,), (y,), (False, False)) for x, y in zip(op.operands, op.results, strict=True))
        case _:
            return None


def _scan_ports(op: Op) -> Iterator[Port]:
    (body,) = op.blocks
    consts, carries = int(op.params["num_consts"]), int(op.params["num_carry"])
    for k, inner in enumerate(body.inputs):
        outer = op.operands[k]
        if k < consts:
            yield Port((outer,), (inner,), (False, False))
        elif k < consts + carries:
            c = k - consts
            yield Port((outer, body.outputs[c]), (inner, op.results[c]), (False,) * 4)
        else:
            yield Port((outer,), (inner,), (True, False))
    for c in range(carries, len(body.outputs)):
        yield Port((body.outputs[c],), (op.results[c],), (False, True))


def _while_ports(op: Op) -> Iterator[Port]:
    condition, body = op.blocks
    first, second = int(op.params["cond_nconsts"]), int(op.params["body_nconsts"])
    for k in range(first):
        yield Port((op.operands[k],), (condition.inputs[k],), (False, False))
    for k in range(second):
        yield Port((op.operands[first + k],), (body.inputs[k],), (False, False))
    for c, result in enumerate(op.results):
        yield Port(
            (op.operands[first + second + c], body.outputs[c]),
            (condition.inputs[first + c], body.inputs[second + c], result),
            (False,) * 5,
        )
    yield Port((condition.outputs[0],), (), (False,), whole=True)


def _cond_ports(op: Op) -> Iterator[Port]:
    yield Port((op.operands[0],), (), (False,), whole=True)
    for k, outer in enumerate(op.operands[1:]):
        yield Port((outer,), tuple(branch.inputs[k] for branch in op.blocks), (False,) * (1 + len(op.blocks)))
    for r, result in enumerate(op.results):
        yield Port(tuple(branch.outputs[r] for branch in op.blocks), (result,), (False,) * (1 + len(op.blocks)))


def inner_port(op: Op, block: int, output: int) -> tuple[int, int]:
    """(port, operand) that an output of one of the blocks goes to. Operand k of the operation itself is
    operand 0 of port k."""
    match op.name:
        case "scan":
            consts, carries = int(op.params["num_consts"]), int(op.params["num_carry"])
            if output < carries:
                return consts + output, 1
            return len(op.operands) + output - carries, 0
        case "while":
            consts = int(op.params["cond_nconsts"]) + int(op.params["body_nconsts"])
            return (consts + len(op.results), 0) if block == 0 else (consts + output, 1)
        case _:
            return len(op.operands) + output, block

"""Plans as JSON. Loading checks the form, never whether the plan is right."""

from __future__ import annotations

import json
import operator
from typing import assert_never

from redist.collectives.json_node import Json, Node, read_root
from redist.collectives.plan import Options, Plan
from redist.collectives.steps import (
    OWNER,
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Free,
    Owner,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Transfer,
    op_name,
)
from redist.collectives.topology import Topology
from redist.collectives.topology_json import dump_topology, load_topology
from redist.types.blocks import BALANCED, CEIL, Balanced, BlockRule, Ceil, Offsets
from redist.types.layout import Layout
from redist.types.mesh import Mesh, SubAxis

__all__ = ["SCHEMA", "dump_layout", "dump_plan", "dump_step", "load_plan"]

SCHEMA = 1


# -- writing -------------------------------------------------------------------------------------------


def dump_plan(plan: Plan, indent: int | None = None) -> str:
    """The text of a plan: `{"schema": 1, "source": ..., "target": ..., "steps": [...], "options": {...}}`."""
    return json.dumps(
        {
            "schema": SCHEMA,
            "source": dump_layout(plan.source),
            "target": dump_layout(plan.target),
            "steps": [dump_step(step) for step in plan.steps],
            "options": _dump_options(plan.options),
        },
        indent=indent,
        default=operator.index,  # NumPy's integers
    )


def dump_layout(layout: Layout) -> Json:
    """`{"mesh": "x=4,y=2", "type": "f32[1024{x}, 512]"}`."""
    return {"mesh": str(layout.mesh), "type": str(layout)}


def dump_step(step: Step) -> Json:
    """`{"op": "all_gather", ...}`."""
    op: dict[str, Json] = {"op": op_name(step)}
    match step:
        case Slice(axes, rules) | ReduceScatter(axes, rules):
            return op | {"axes": _dump_by_dim(axes)} | _dump_rules(rules)
        case AllGather(axes):
            return op | {"axes": _dump_by_dim(axes)}
        case AllToAll(moves, rules):
            return op | {"moves": [[_dump_axes(axes), i, j] for axes, i, j in moves]} | _dump_rules(rules)
        case AllReduce(axes):
            return op | {"axes": _dump_axes(axes)}
        case Permute(layout, source):
            match source:
                case Free(groups):
                    how = {"free": [[_dump_axes(ours), _dump_axes(theirs)] for ours, theirs in groups]}
                case Pairs(pairs):
                    how = {"pairs": [list(pair) for pair in pairs]}
                case _:
                    assert_never(source)
            return op | {"layout": dump_layout(layout)} | how
        case Exchange(layout, transfers):
            listed: Json = (
                "owner"
                if isinstance(transfers, Owner)
                else [[t.sender, t.receiver, list(t.starts), list(t.stops)] for t in transfers]
            )
            return op | {"layout": dump_layout(layout), "transfers": listed}
        case Chunk(dim, parts, steps):
            return op | {"dim": dim, "parts": parts, "steps": [dump_step(inner) for inner in steps]}
        case _:
            assert_never(step)


def _dump_axes(axes: tuple[SubAxis, ...]) -> Json:
    return [str(axis) for axis in axes]


def _dump_by_dim(axes: tuple[tuple[int, tuple[SubAxis, ...]], ...]) -> Json:
    return {str(i): _dump_axes(dim_axes) for i, dim_axes in axes}


def _dump_rules(rules: tuple[tuple[int, BlockRule], ...]) -> dict[str, Json]:
    return {"rules": {str(i): _dump_rule(rule) for i, rule in rules}} if rules else {}


def _dump_rule(rule: BlockRule) -> Json:
    match rule:
        case Ceil():
            return "ceil"
        case Balanced():
            return "balanced"
        case Offsets(starts):
            return list(starts)
        case _:
            assert_never(rule)


def _dump_options(options: Options) -> Json:
    return {
        "backend": options.backend,
        "donate": options.donate,
        "memory_limit": options.memory_limit,
        "topology": dump_topology(options.topology),
        "optimal": options.optimal,
        "gap": options.gap,
        "notes": list(options.notes),
    }


# -- reading -------------------------------------------------------------------------------------------


def load_plan(text: str) -> Plan:
    """Read a plan. Raises ParseError with the place: for malformed JSON the line and column."""
    root = read_root(text, "plan", SCHEMA)
    options = root.optional("options")
    return Plan(
        _load_layout(root.field("source")),
        _load_layout(root.field("target")),
        tuple(_load_step(step) for step in root.field("steps").items()),
        _load_options(options) if options else Options(),
    )


def _load_layout(node: Node) -> Layout:
    mesh = node.field("mesh").parsed(Mesh.parse)
    return node.field("type").parsed(lambda text: Layout.parse(text, mesh))


_OPS = "slice, all_gather, all_to_all, permute, exchange, reduce_scatter, all_reduce, chunk"


def _load_step(node: Node) -> Step:
    op = node.field("op")
    match op.text():
        case "slice":
            return Slice(_load_by_dim(node.field("axes")), _load_rules(node))
        case "all_gather":
            return AllGather(_load_by_dim(node.field("axes")))
        case "reduce_scatter":
            return ReduceScatter(_load_by_dim(node.field("axes")), _load_rules(node))
        case "all_to_all":
            return AllToAll([_load_move(move) for move in node.field("moves").items()], _load_rules(node))
        case "all_reduce":
            return AllReduce(_load_axes(node.field("axes")))
        case "permute":
            return Permute(_load_layout(node.field("layout")), _load_source(node))
        case "exchange":
            return Exchange(_load_layout(node.field("layout")), _load_transfers(node.field("transfers")))
        case "chunk":
            steps = [_load_step(step) for step in node.field("steps").items()]
            return Chunk(node.field("dim").integer(), node.field("parts").integer(), steps)
        case name:
            raise op.fail(f"unknown op '{name}'; use one of {_OPS}")


def _load_axes(node: Node) -> tuple[SubAxis, ...]:
    return tuple(item.parsed(SubAxis.parse) for item in node.items())


def _load_by_dim(node: Node) -> list[tuple[int, tuple[SubAxis, ...]]]:
    return [(_dim(key, item), _load_axes(item)) for key, item in node.entries()]


def _dim(key: str, node: Node) -> int:
    if not key.isdecimal():
        raise node.fail(f"'{key}' is no dimension; use a non-negative integer")
    return int(key)


def _load_rules(node: Node) -> list[tuple[int, BlockRule]]:
    rules = node.optional("rules")
    return [(_dim(key, item), _load_rule(item)) for key, item in rules.entries()] if rules else []


def _load_rule(node: Node) -> BlockRule:
    if node.value == "ceil":
        return CEIL
    if node.value == "balanced":
        return BALANCED
    if isinstance(node.value, list):
        return Offsets(node.integers())
    raise node.fail('unknown block rule; use "ceil", "balanced" or a list of offsets')


def _load_move(node: Node) -> tuple[tuple[SubAxis, ...], int, int]:
    items = node.items()
    if len(items) != 3:
        raise node.fail("a move is [axes, from dimension, to dimension]")
    return _load_axes(items[0]), items[1].integer(), items[2].integer()


def _load_source(node: Node) -> Free | Pairs:
    pairs = node.optional("pairs")
    if pairs is not None:
        return Pairs(tuple(_two(item) for item in pairs.items()))
    groups: list[tuple[tuple[SubAxis, ...], tuple[SubAxis, ...]]] = []
    for group in node.field("free").items():
        sides = group.items()
        if len(sides) != 2:
            raise group.fail("a group is [sender axes, receiver axes]")
        groups.append((_load_axes(sides[0]), _load_axes(sides[1])))
    return Free(tuple(groups))


def _two(node: Node) -> tuple[int, int]:
    values = node.integers()
    if len(values) != 2:
        raise node.fail("a pair is [sender, receiver]")
    return values[0], values[1]


def _load_transfers(node: Node) -> Owner | tuple[Transfer, ...]:
    if node.value == "owner":
        return OWNER
    transfers: list[Transfer] = []
    for item in node.items():
        parts = item.items()
        if len(parts) != 4:
            raise item.fail("a transfer is [sender, receiver, starts, stops]")
        transfers.append(Transfer(parts[0].integer(), parts[1].integer(), parts[2].integers(), parts[3].integers()))
    return tuple(transfers)


def _load_options(node: Node) -> Options:
    limit, gap, topology = node.optional("memory_limit"), node.optional("gap"), node.optional("topology")
    backend, donate = node.optional("backend"), node.optional("donate")
    optimal, notes = node.optional("optimal"), node.optional("notes")
    return Options(
        backend=backend.text() if backend else "numpy",
        donate=donate.of(bool, "true or false") if donate else False,
        memory_limit=None if limit is None or limit.value is None else limit.integer(),
        topology=load_topology(topology) if topology else Topology(),
        optimal=optimal.of(bool, "true or false") if optimal else False,
        gap=None if gap is None or gap.value is None else gap.number(),
        notes=tuple(note.text() for note in notes.items()) if notes else (),
    )

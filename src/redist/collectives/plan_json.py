"""Plans as JSON. Loading checks the form, never whether the plan is right."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from typing import Any, TypeVar, assert_never, cast

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
from redist.collectives.topology import Link, Topology
from redist.errors import ParseError, RedistError
from redist.types.blocks import BALANCED, CEIL, Balanced, BlockRule, Ceil, Offsets
from redist.types.layout import Layout
from redist.types.mesh import Mesh, SubAxis

__all__ = ["SCHEMA", "dump_layout", "dump_plan", "dump_step", "load_plan"]

SCHEMA = 1
_T = TypeVar("_T")
Json = Any


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
        "topology": {
            "name": options.topology.name,
            "links": {axis: _dump_link(link) for axis, link in options.topology.links},
            "default": _dump_link(options.topology.default),
        },
        "optimal": options.optimal,
        "gap": options.gap,
        "notes": list(options.notes),
    }


def _dump_link(link: Link) -> Json:
    return {
        "latency": link.latency,
        "bandwidth": link.bandwidth,
        "kind": link.kind,
        "peer_latency": link.peer_latency,
    }


# -- reading -------------------------------------------------------------------------------------------


class _Node:
    """A JSON value with the path to it; every failure is a ParseError that states both."""

    def __init__(self, value: Json, path: str) -> None:
        self.value = value
        self.path = path

    def fail(self, message: str) -> ParseError:
        shown = json.dumps(self.value)
        return ParseError(f"{self.path}: {message}", shown if len(shown) <= 200 else f"{shown[:197]}...", 0)

    def field(self, key: str) -> _Node:
        members = self._members()
        if key not in members:
            raise self.fail(f"the field '{key}' is missing")
        return _Node(members[key], f"{self.path}.{key}")

    def optional(self, key: str) -> _Node | None:
        return self.field(key) if key in self._members() else None

    def items(self) -> list[_Node]:
        found = cast("list[Json]", self.of(list, "a list"))
        return [_Node(item, f"{self.path}[{n}]") for n, item in enumerate(found)]

    def entries(self) -> list[tuple[str, _Node]]:
        return [(key, _Node(item, f"{self.path}.{key}")) for key, item in self._members().items()]

    def _members(self) -> dict[str, Json]:
        return cast("dict[str, Json]", self.of(dict, "an object"))

    def of(self, kind: type[_T], what: str) -> _T:
        value: Any = self.value
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.fail(f"expected {what}")
        return value

    def integer(self) -> int:
        return self.of(int, "an integer")

    def text(self) -> str:
        return self.of(str, "a string")

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise self.fail("expected a number")
        return float(self.value)

    def integers(self) -> tuple[int, ...]:
        return tuple(item.integer() for item in self.items())

    def parsed(self, read: Callable[[str], _T]) -> _T:
        text = self.text()
        try:
            return read(text)
        except RedistError as error:
            raise ParseError(
                f"{self.path}: {getattr(error, 'message', error)}", str(self.value), getattr(error, "column", 0)
            ) from None


def load_plan(text: str) -> Plan:
    """Read a plan. Raises ParseError with the place: for malformed JSON the line and column."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1]
        raise ParseError(f"malformed JSON, line {error.lineno}: {error.msg}", line, error.colno - 1) from None
    root = _Node(value, "plan")
    schema = root.field("schema")
    if schema.value is True or schema.value != SCHEMA:
        raise schema.fail(f"schema version {schema.value!r} is not supported; this version reads schema {SCHEMA}")
    options = root.optional("options")
    return Plan(
        _load_layout(root.field("source")),
        _load_layout(root.field("target")),
        tuple(_load_step(step) for step in root.field("steps").items()),
        _load_options(options) if options else Options(),
    )


def _load_layout(node: _Node) -> Layout:
    mesh = node.field("mesh").parsed(Mesh.parse)
    return node.field("type").parsed(lambda text: Layout.parse(text, mesh))


_OPS = "slice, all_gather, all_to_all, permute, exchange, reduce_scatter, all_reduce, chunk"


def _load_step(node: _Node) -> Step:
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


def _load_axes(node: _Node) -> tuple[SubAxis, ...]:
    return tuple(item.parsed(SubAxis.parse) for item in node.items())


def _load_by_dim(node: _Node) -> list[tuple[int, tuple[SubAxis, ...]]]:
    return [(_dim(key, item), _load_axes(item)) for key, item in node.entries()]


def _dim(key: str, node: _Node) -> int:
    if not key.isdecimal():
        raise node.fail(f"'{key}' is no dimension; use a non-negative integer")
    return int(key)


def _load_rules(node: _Node) -> list[tuple[int, BlockRule]]:
    rules = node.optional("rules")
    return [(_dim(key, item), _load_rule(item)) for key, item in rules.entries()] if rules else []


def _load_rule(node: _Node) -> BlockRule:
    if node.value == "ceil":
        return CEIL
    if node.value == "balanced":
        return BALANCED
    if isinstance(node.value, list):
        return Offsets(node.integers())
    raise node.fail('unknown block rule; use "ceil", "balanced" or a list of offsets')


def _load_move(node: _Node) -> tuple[tuple[SubAxis, ...], int, int]:
    items = node.items()
    if len(items) != 3:
        raise node.fail("a move is [axes, from dimension, to dimension]")
    return _load_axes(items[0]), items[1].integer(), items[2].integer()


def _load_source(node: _Node) -> Free | Pairs:
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


def _two(node: _Node) -> tuple[int, int]:
    values = node.integers()
    if len(values) != 2:
        raise node.fail("a pair is [sender, receiver]")
    return values[0], values[1]


def _load_transfers(node: _Node) -> Owner | tuple[Transfer, ...]:
    if node.value == "owner":
        return OWNER
    transfers: list[Transfer] = []
    for item in node.items():
        parts = item.items()
        if len(parts) != 4:
            raise item.fail("a transfer is [sender, receiver, starts, stops]")
        transfers.append(Transfer(parts[0].integer(), parts[1].integer(), parts[2].integers(), parts[3].integers()))
    return tuple(transfers)


def _load_options(node: _Node) -> Options:
    limit, gap, topology = node.optional("memory_limit"), node.optional("gap"), node.optional("topology")
    backend, donate = node.optional("backend"), node.optional("donate")
    optimal, notes = node.optional("optimal"), node.optional("notes")
    return Options(
        backend=backend.text() if backend else "numpy",
        donate=donate.of(bool, "true or false") if donate else False,
        memory_limit=None if limit is None or limit.value is None else limit.integer(),
        topology=_load_topology(topology) if topology else Topology(),
        optimal=optimal.of(bool, "true or false") if optimal else False,
        gap=None if gap is None or gap.value is None else gap.number(),
        notes=tuple(note.text() for note in notes.items()) if notes else (),
    )


def _load_topology(node: _Node) -> Topology:
    return Topology(
        node.field("name").text(),
        {axis: _load_link(link) for axis, link in node.field("links").entries()},
        _load_link(node.field("default")),
    )


def _load_link(node: _Node) -> Link:
    kind = node.field("kind")
    if kind.value not in ("local", "switch", "ring", "torus"):
        raise kind.fail("unknown kind of link; use local, switch, ring or torus")
    peers = node.optional("peer_latency")
    return Link(
        node.field("latency").number(), node.field("bandwidth").number(), kind.value, peers.number() if peers else 0.0
    )

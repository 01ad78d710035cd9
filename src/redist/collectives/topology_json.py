"""Topologies as JSON, alone in a file or inside a plan."""

from __future__ import annotations

import json
import math
from typing import Any

from redist.collectives.copies import Copies
from redist.collectives.json_node import Json, Node, read_root
from redist.collectives.topology import KINDS, Link, Topology
from redist.errors import LayoutError

__all__ = ["SCHEMA", "dump_topology", "load_topology", "read_topology", "write_topology"]

SCHEMA = 1


def write_topology(topology: Topology, **facts: Any) -> str:
    """The text of a topology file; `facts` (how and where it was measured) are kept for people."""
    return json.dumps({"schema": SCHEMA, **dump_topology(topology), "facts": facts}, indent=2) + "\n"


def read_topology(text: str) -> Topology:
    """Read what `write_topology` wrote. Raises ParseError with the place."""
    return load_topology(read_root(text, "topology", SCHEMA))


def dump_topology(topology: Topology) -> Json:
    """`{"name": ..., "links": {axis: link}, "default": link, "copies": ...}`; bytes and seconds."""
    made: dict[str, Json] = {
        "name": topology.name,
        "links": {axis: _dump_link(link) for axis, link in topology.links},
        "default": _dump_link(topology.default),
    }
    copies = topology.copies
    if not copies.free:
        bandwidth = None if math.isinf(copies.bandwidth) else copies.bandwidth
        made["copies"] = {"bandwidth": bandwidth, "run_latency": copies.run_latency}
    return made


def load_topology(node: Node) -> Topology:
    """The topology in a JSON object. Raises ParseError with the place."""
    copies = node.optional("copies")
    return Topology(
        node.field("name").text(),
        {axis: _load_link(link) for axis, link in node.field("links").entries()},
        _load_link(node.field("default")),
        Copies() if copies is None else _load_copies(copies),
    )


def _dump_link(link: Link) -> Json:
    made: dict[str, Json] = {
        "latency": link.latency,
        "bandwidth": link.bandwidth,
        "kind": link.kind,
        "peer_latency": link.peer_latency,
    }
    return made if link.exchange_slowdown == 1 else made | {"exchange_slowdown": link.exchange_slowdown}


def _load_link(node: Node) -> Link:
    kind = node.field("kind")
    if kind.value not in KINDS:
        raise kind.fail(f"unknown kind of link; use one of {', '.join(KINDS)}")
    peers, slowdown = node.optional("peer_latency"), node.optional("exchange_slowdown")
    try:
        return Link(
            node.field("latency").number(),
            node.field("bandwidth").number(),
            kind.value,
            peers.number() if peers else 0.0,
            slowdown.number() if slowdown else 1.0,
        )
    except LayoutError as error:
        raise node.fail(str(error)) from None


def _load_copies(node: Node) -> Copies:
    bandwidth = node.field("bandwidth")
    try:
        return Copies(math.inf if bandwidth.value is None else bandwidth.number(), node.field("run_latency").number())
    except LayoutError as error:
        raise node.fail(str(error)) from None

"""What moving bytes costs in time: latency and bandwidth per mesh axis.

In a group that spans axes of sizes k1, k2, .. (slowest first), an exchange of blocks of b bytes sends each byte
over the slowest axis on which sender and receiver differ: b (1 - 1/k1) over the first, b/k1 (1 - 1/k2) over the
second, and so on. A gather of blocks of b bytes, in a ring or stage by stage, brings each byte over a slow axis once
for all devices side by side along the faster ones: per device b (1 - 1/kn) over the fastest axis, b/kn (1 - 1/k(n-1))
over the next, and so on. A reduce-scatter is a gather backwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, assert_never, get_args

import numpy as np

from redist.collectives.bijection import senders
from redist.collectives.copies import FREE, Copies, copy_seconds
from redist.collectives.cost import received
from redist.collectives.exchange_cost import MOST_DEVICES, exchange_step_seconds
from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)
from redist.collectives.typing import after
from redist.errors import LayoutError
from redist.types.pairs import pairs_of

if TYPE_CHECKING:
    from redist.types.layout import Layout
    from redist.types.mesh import Mesh, SubAxis

__all__ = [
    "HOST",
    "KINDS",
    "NETWORK",
    "PRESETS",
    "UNIFORM",
    "Group",
    "Link",
    "Rate",
    "Topology",
    "exchange_rate",
    "gather_rate",
    "move_rate",
    "step_seconds",
]

Kind = Literal["local", "switch", "ring", "torus", "memory"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Link:
    """How devices along an axis are joined.

    `latency` is seconds per step, `peer_latency` seconds per step and other participant, `bandwidth`
    bytes per second and device. On a ring or torus an all-to-all in a group of k crosses k/4 links on
    average, in both directions (arXiv 2112.01075 and the literature on ring collectives). Devices that
    share one memory copy what they keep as well as what they receive. `exchange_slowdown` is how many times
    longer bytes take in an all-to-all than in other collectives.
    """

    latency: float = 0.0
    bandwidth: float = 1e10
    kind: Kind = "switch"
    peer_latency: float = 0.0
    exchange_slowdown: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LayoutError(f"unknown kind of link {self.kind!r}; use one of {', '.join(KINDS)}")
        if not self.bandwidth > 0 or self.latency < 0 or self.peer_latency < 0 or not self.exchange_slowdown > 0:
            raise LayoutError(
                "a link has a positive bandwidth and exchange slowdown and latencies of at least 0, got "
                f"bandwidth={self.bandwidth}, latency={self.latency}, peer_latency={self.peer_latency}, "
                f"exchange_slowdown={self.exchange_slowdown}"
            )

    def exchange_factor(self, count: int) -> float:
        """How much longer an all-to-all of `count` devices takes than its bytes over the bandwidth."""
        if self.kind in ("ring", "torus") and count > 1:
            return max(1.0, count / 4 / (1 - 1 / count)) * self.exchange_slowdown
        return self.exchange_slowdown


@dataclass(frozen=True, slots=True, init=False)
class Topology:
    """A link per mesh axis, `default` for axes that are not named, and what copies on a device cost.

    The default topology is uniform without latency: plans are compared by bytes, then by steps.
    """

    name: str
    links: tuple[tuple[str, Link], ...]
    default: Link
    copies: Copies

    def __init__(
        self,
        name: str = "uniform",
        links: Mapping[str, Link] | Iterable[tuple[str, Link]] = (),
        default: Link = Link(),
        copies: Copies = FREE,
    ) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "links", tuple(pairs_of(links)))
        object.__setattr__(self, "default", default)
        object.__setattr__(self, "copies", copies)

    @staticmethod
    def load(path: str | PathLike[str]) -> Topology:
        """Read a file that `redist calibrate` made. Raises OSError, ParseError."""
        from redist.collectives.topology_json import read_topology

        return read_topology(Path(path).read_text(encoding="utf-8"))

    def save(self, path: str | PathLike[str]) -> None:
        """Write a file that `load` reads. Raises OSError."""
        from redist.collectives.topology_json import write_topology

        Path(path).write_text(write_topology(self), encoding="utf-8")

    def link(self, axis: str) -> Link:
        """The link along a mesh axis."""
        return next((link for name, link in self.links if name == axis), self.default)

    def bytes_only(self, mesh: Mesh) -> bool:
        """Whether all axes of the mesh are alike and without latency, so that bytes alone count."""
        if not self.copies.free:
            return False
        links = {self.link(name) for name, size in mesh.axes if size > 1}
        return all(
            link.latency == link.peer_latency == 0 and link.kind in ("local", "switch") and link.exchange_slowdown == 1
            for link in links
        ) and (len({link.bandwidth for link in links}) <= 1)


UNIFORM = Topology()

NETWORK = Link(latency=2e-5, bandwidth=1.25e9, peer_latency=1e-6)
HOST = Link(latency=2e-6, bandwidth=5e10, kind="local")
_ICI = Link(latency=1e-6, bandwidth=4.5e10, kind="torus")


def _one_host(_: Mesh) -> Topology:
    return Topology("one-host", default=HOST)


def _nodes_of_8(mesh: Mesh) -> Topology:
    """Minor axes up to 8 devices inside a node, the others on a slow network."""
    inside, links = 1, dict[str, Link]()
    for name, size in reversed(mesh.axes):
        inside *= size
        links[name] = HOST if inside <= 8 else NETWORK
    return Topology("nodes-of-8", links)


def _torus(mesh: Mesh) -> Topology:
    return Topology(f"torus-{len(mesh.axes)}d", default=_ICI)


def _one_process(mesh: Mesh) -> Topology:
    """Devices that one process emulates, as JAX does on CPU: they share its memory and its cores, so that all
    costs grow with their number. Ratios as calibrated with JAX 0.10 on 4, 8 and 16 devices, but for copies, which
    go at the pace of the links: a slice then never takes longer than receiving what it keeps."""
    n = mesh.size
    link = Link(5e-6 * n, 2.4e10 / n, "memory", 1e-6 * n, exchange_slowdown=3.2)
    return Topology("one-process", default=link, copies=Copies(link.bandwidth, 4e-10 * n))


PRESETS: Mapping[str, Callable[[Mesh], Topology]] = {
    "uniform": lambda _: UNIFORM,
    "one-host": _one_host,
    "nodes-of-8": _nodes_of_8,
    "torus": _torus,
    "one-process": _one_process,
}
"""Topologies by name, made for a mesh: one host; nodes of 8 on a slow network; a TPU torus, an axis a ring;
devices that one process emulates."""

Group = tuple[tuple[Link, int], ...]
"""Link and number of participants along each axis that a collective's group spans."""


Rate = tuple[float, float]
"""Seconds at least, and seconds for each byte of the block."""


def gather_rate(group: Group) -> Rate:
    """Of an all-gather (or reduce-scatter), by the bytes of the gathered block."""
    return _rate(_slowest_first(group)[::-1], lambda link, count: 1.0)


def exchange_rate(group: Group) -> Rate:
    """Of an all-to-all, by the bytes of a device's block."""
    return _rate(_slowest_first(group), Link.exchange_factor)


def move_rate(group: Group) -> Rate:
    """Of a permute, by the bytes of a device's block, which moves to a device that differs along these axes."""
    link, count = _slowest_first(group)[0]
    hops = max(1.0, count / 4) if link.kind in ("ring", "torus") else 1.0
    return max(link.latency + link.peer_latency for link, _ in group), hops / link.bandwidth


def _rate(ordered: Sequence[tuple[Link, int]], factor: Callable[[Link, int], float]) -> Rate:
    """Each axis moves what those before it have left apart."""
    peers = math.prod(count for _, count in ordered) - 1
    latency = max(link.latency for link, _ in ordered) + peers * max(link.peer_latency for link, _ in ordered)
    per_byte, left = 0.0, 1.0
    for link, count in ordered:
        per_byte += left * (1 - 1 / count) * factor(link, count) / link.bandwidth
        left /= count
    fastest = max((link for link, _ in ordered), key=lambda link: link.bandwidth)
    if fastest.kind == "memory":  # what a device keeps of its own is copied too
        per_byte += left / fastest.bandwidth
    return latency, per_byte


def _slowest_first(group: Group) -> list[tuple[Link, int]]:
    return sorted(group, key=lambda pair: pair[0].bandwidth)


def _seconds(rate: Rate, size: float) -> float:
    latency, per_byte = rate
    return latency + per_byte * size


def step_seconds(step: Step, before: Layout, topology: Topology, native_exchange: bool = True) -> float:
    """Projected seconds of one step: latency, and the busiest device's bytes over the bandwidths.

    `native_exchange`: the backend has one call for the messages of an exchange.
    """
    return _link_seconds(step, before, topology, native_exchange) + copy_seconds(step, before, topology.copies)


def _link_seconds(step: Step, before: Layout, topology: Topology, native_exchange: bool) -> float:
    size = received(step, before) * before.itemsize
    if isinstance(step, Slice) or (size == 0 and not isinstance(step, Chunk)):
        return 0.0
    if topology.bytes_only(before.mesh) and not isinstance(step, Chunk):
        link = topology.link(before.mesh.names[0]) if before.mesh.names else topology.default
        return size / link.bandwidth
    match step:
        case AllGather(axes):
            return _seconds(gather_rate(_group(before, topology, _flat(axes))), after(step, before).block_bytes())
        case ReduceScatter(axes, _):
            return _seconds(gather_rate(_group(before, topology, _flat(axes))), before.block_bytes())
        case AllReduce(axes):
            return 2 * _seconds(gather_rate(_group(before, topology, axes)), before.block_bytes())
        case AllToAll(moves, _):
            group = _group(before, topology, [axis for axes, _, _ in moves for axis in axes])
            return _seconds(exchange_rate(group), before.block_bytes())
        case Permute():
            return _seconds(move_rate(_changed(step, before, topology)), size)
        case Exchange() if max(before.mesh.size, step.layout.mesh.size) <= MOST_DEVICES:
            return exchange_step_seconds(step, before, topology, native_exchange)
        case Exchange():
            used = [(topology.link(name), count) for name, count in before.mesh.axes if count > 1]
            slowest = _slowest_first(tuple(used))[0][0] if used else topology.default
            return slowest.latency + size / slowest.bandwidth
        case Chunk(_, parts, steps):
            total = 0.0
            for inner in steps:
                whole = step_seconds(inner, before, topology, native_exchange)
                fixed = _fixed_seconds(inner, before, topology)
                total += whole + (parts - 1) * fixed
                before = after(inner, before)
            return total
        case _:
            assert_never(step)


def _fixed_seconds(step: Step, before: Layout, topology: Topology) -> float:
    """The part of a step's time that does not shrink with the block."""
    if isinstance(step, (Slice, Chunk)):
        return 0.0
    links = [topology.link(name) for name, count in before.mesh.axes if count > 1]
    return max((link.latency for link in links), default=0.0)


def _flat(axes: Iterable[tuple[int, tuple[SubAxis, ...]]]) -> list[SubAxis]:
    return [axis for _, dim_axes in axes for axis in dim_axes]


def _group(before: Layout, topology: Topology, axes: Iterable[SubAxis]) -> Group:
    counts: dict[str, int] = {}
    for axis in axes:
        counts[axis.axis] = counts.get(axis.axis, 1) * before.mesh.count([before.mesh.resolve(axis)])
    return tuple((topology.link(name), count) for name, count in counts.items())


def _changed(step: Permute, before: Layout, topology: Topology) -> Group:
    """The axes of the mesh before along which some block moves."""
    source = before.mesh
    sent = senders(step, before)
    at = {device: p for p, device in enumerate(source.device_ids)}
    if source.device_ids == step.layout.mesh.device_ids:
        received_at = np.arange(source.size)
    else:
        received_at = np.asarray([at.get(device, -1) for device in step.layout.mesh.device_ids])
    inside = received_at >= 0
    moved: list[tuple[Link, int]] = []
    for name, count in source.axes:
        stride, size = source.digit(source.resolve(name))
        differs = sent[inside] // stride % size != received_at[inside] // stride % size
        if differs.any() or not inside.all():
            moved.append((topology.link(name), count))
    return tuple(moved) or ((topology.default, 1),)

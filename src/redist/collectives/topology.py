"""What moving bytes costs in time: latency and bandwidth per mesh axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from redist.collectives.cost import received
from redist.collectives.steps import Slice, Step

if TYPE_CHECKING:
    from redist.types.layout import Layout

__all__ = ["UNIFORM", "Link", "Topology", "step_seconds"]


@dataclass(frozen=True, slots=True)
class Link:
    """`latency` in seconds per step, `bandwidth` in bytes per second and device, and how devices along
    the axis are joined."""

    latency: float = 0.0
    bandwidth: float = 1e10
    kind: Literal["local", "switch", "ring", "torus"] = "switch"


@dataclass(frozen=True, slots=True)
class Topology:
    """A link per mesh axis, `default` for axes that are not named.

    The default topology is uniform without latency: plans are compared by bytes, then by steps.
    """

    name: str = "uniform"
    links: Mapping[str, Link] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    default: Link = Link()

    def link(self, axis: str) -> Link:
        """The link along a mesh axis."""
        return self.links.get(axis, self.default)


UNIFORM = Topology()


def step_seconds(step: Step, before: Layout, topology: Topology) -> float:
    """Projected seconds of one step: latency, and the busiest device's bytes over the bandwidth."""
    if isinstance(step, Slice):
        return 0.0
    return topology.default.latency + received(step, before) * before.itemsize / topology.default.bandwidth

"""What an exchange costs in time: each device's messages, over the links that they cross."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redist.collectives.backends.numpy import each_transfer

if TYPE_CHECKING:
    from redist.collectives.steps import Exchange
    from redist.collectives.topology import Link, Topology
    from redist.types.layout import Layout

__all__ = ["MOST_DEVICES", "exchange_step_seconds"]

MOST_DEVICES = 64
"""Meshes up to which an exchange's messages are looked at one by one."""


def exchange_step_seconds(step: Exchange, before: Layout, topology: Topology, native: bool) -> float:
    """Seconds of the slowest receiver: its bytes over the slowest axis that each message crosses, and the
    latency, once where the backend has a call for all messages (`native`), else once per sender."""
    source, following = before.mesh, step.layout
    here = source.positions_of(following.mesh.id_array()).tolist()
    axes = [(topology.link(name), *source.digit(source.resolve(name))) for name, count in source.axes if count > 1]
    slowest = min((link for link, _, _ in axes), key=lambda link: link.bandwidth, default=topology.default)
    seconds = [0.0] * following.mesh.size
    senders: list[dict[int, Link]] = [{} for _ in seconds]

    def count(sender: int, receiver: int, starts: Sequence[int], stops: Sequence[int]) -> None:
        place = here[receiver]
        if place == sender:
            return
        crossed = [link for link, stride, size in axes if place // stride % size != sender // stride % size]
        link = min(crossed, key=lambda link: link.bandwidth) if place >= 0 else slowest
        size = before.itemsize
        for a, b in zip(starts, stops, strict=True):
            size *= b - a
        seconds[receiver] += size / link.bandwidth
        senders[receiver][sender] = link

    each_transfer(step, before, before.boxes(), following.boxes(), count)
    return max(
        (moving + _latency(list(links.values()), native) for moving, links in zip(seconds, senders, strict=True)),
        default=0.0,
    )


def _latency(links: Sequence[Link], native: bool) -> float:
    if not links:
        return 0.0
    if not native:
        return sum(link.latency + link.peer_latency for link in links)
    return max(link.latency for link in links) + sum(link.peer_latency for link in links)

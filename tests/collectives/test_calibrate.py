"""Calibration: the fit finds the topology that made the times; files are read back, bad ones by name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from redist.collectives import Link, Plan, Topology
from redist.collectives.calibrate import calibrate, experiments, fit
from redist.collectives.copies import Copies
from redist.collectives.topology_json import read_topology, write_topology
from redist.errors import BackendError, LayoutError, ParseError
from redist.types import Mesh


def block(shape: tuple[int, int], cut: tuple[int, int]) -> tuple[int, int]:
    """Lengths of a piece of it."""
    return shape[0] // cut[0], shape[1] // cut[1]


def clocked(plan: Plan, group: int, link: Link, copies: Copies) -> float:
    """Seconds of an experiment by a count of its own: what is sent, what stays, and the rows of what is copied."""
    (step,), shape = plan.steps, plan.source.shape
    op, item = type(step).__name__, 4
    size = math.prod(shape) * item
    rows, pieces = shape[0], block((shape[0], shape[1]), (1, group))

    def copied(nbytes: float, run: float) -> float:
        return nbytes / copies.bandwidth + nbytes / run * copies.run_latency

    if op == "Permute":
        return link.latency + link.peer_latency + size / link.bandwidth
    if op == "Slice":
        return copied(size / group, pieces[1] * item)
    fixed = link.latency + (group - 1) * link.peer_latency
    along_rows = plan.source.dims[0].axes != ()  # dimension 0 loses the axis, and 1 may gain it
    if op == "AllGather":
        placed = 0.0 if along_rows or rows == 1 else copied(size, pieces[1] * item)
        return fixed + size / link.bandwidth + placed
    moved = size / group  # of the block, 1/group stays
    fixed += moved / group / link.bandwidth + (moved - moved / group) / link.bandwidth * link.exchange_slowdown
    if along_rows:  # columns are packed
        return fixed + (copied(moved, pieces[1] * item) if rows > group else 0.0)
    return fixed + (copied(moved, pieces[1] * item) if rows > group else 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_the_fit_finds_what_made_the_times(seed: int) -> None:
    """Links of every axis and what copies cost, from times that a count by hand gives."""
    rng = Random(seed)
    mesh = Mesh({"x": 4, "y": 6})
    links = {
        axis: Link(
            rng.uniform(1e-5, 1e-4), rng.uniform(1e9, 1e10), "memory", rng.uniform(1e-6, 1e-5), rng.uniform(1.5, 4)
        )
        for axis in mesh.names
    }
    copies = Copies(rng.uniform(1e9, 5e9), rng.uniform(1e-9, 5e-9))
    planned = list(experiments(mesh))
    call = 2e-4
    seconds = [call + clocked(one.plan, one.group, links[one.axis], copies) for one in planned]
    found, beside = fit(planned, seconds, dict.fromkeys(mesh.names, "memory"))
    assert beside == pytest.approx(call, rel=1e-6)
    assert found.copies.bandwidth == pytest.approx(copies.bandwidth, rel=1e-6)
    assert found.copies.run_latency == pytest.approx(copies.run_latency, rel=1e-6)
    for axis, link in links.items():
        for name in ("latency", "bandwidth", "peer_latency", "exchange_slowdown"):
            assert getattr(found.link(axis), name) == pytest.approx(getattr(link, name), rel=1e-6), (axis, name)


def test_every_experiment_runs_and_is_timed_in_turns() -> None:
    """Each is prepared once, warmed up once, and then run once a round."""
    ran: list[Plan] = []

    def prepare(plan: Plan) -> Any:
        def run() -> float:
            ran.append(plan)
            return 1e-4 + plan.received_bytes / 1e9

        return run

    measured = calibrate(Mesh({"x": 2}), prepare, {"x": "switch"}, "here", rounds=3)
    plans = [one.plan for one in measured.experiments]
    assert ran == plans * 4
    assert measured.topology.name == "here" and measured.topology.link("x").kind == "switch"
    assert all(plan.layouts[-1].equivalent(plan.target) for plan in plans)


def test_one_device_has_no_links() -> None:
    """Nothing to measure."""
    with pytest.raises(BackendError) as caught:
        calibrate(Mesh({"x": 1}), lambda plan: lambda: 1.0, {"x": "switch"}, "none")
    assert str(caught.value) == "mesh x=1 has one device, and no links to measure; name a mesh of several"


TOPOLOGIES = [
    Topology(),
    Topology("a", {"x": Link(1e-6, 1e9, "torus"), "y": Link(exchange_slowdown=2.5)}, Link(2e-6), Copies(1e9, 1e-9)),
    Topology("b", copies=Copies(run_latency=1e-9)),
    Topology("c", {"x": Link(kind="memory", peer_latency=1e-7)}),
]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda t: t.name)
def test_files_round_trip(topology: Topology, tmp_path: Path) -> None:
    """Alone in a file, with facts beside it, and inside a plan; the JSON is plain (no Infinity)."""
    topology.save(tmp_path / "t.json")
    assert Topology.load(tmp_path / "t.json") == topology
    text = write_topology(topology, machine="here")
    assert read_topology(text) == topology and json.loads(text)["facts"] == {"machine": "here"}
    assert "Infinity" not in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "topology.schema: schema version 2 is not supported; this version reads schema 1"),
        ({"links": []}, "topology.links: expected an object"),
        (
            {"default": {"latency": 0, "bandwidth": -1, "kind": "switch"}},
            "topology.default: a link has a positive bandwidth and exchange slowdown and latencies of at least 0, got "
            "bandwidth=-1.0, latency=0.0, peer_latency=0.0, exchange_slowdown=1.0",
        ),
        (
            {"default": {"latency": 0, "bandwidth": 1, "kind": "rope"}},
            "topology.default.kind: unknown kind of link; use one of local, switch, ring, torus, memory",
        ),
        (
            {"copies": {"bandwidth": 0, "run_latency": 0}},
            "topology.copies: copies have a positive bandwidth and a run latency of at least 0, got bandwidth=0.0, "
            "run_latency=0.0",
        ),
    ],
)
def test_malformed_files(change: dict[str, Any], message: str) -> None:
    """The message starts with the path to the value."""
    with pytest.raises(ParseError) as caught:
        read_topology(json.dumps(json.loads(write_topology(Topology())) | change))
    assert str(caught.value).split("\n")[0] == message


def test_impossible_links() -> None:
    """Kinds that are not known."""
    with pytest.raises(LayoutError) as caught:
        Link(kind="rope")  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == "unknown kind of link 'rope'; use one of local, switch, ring, torus, memory"

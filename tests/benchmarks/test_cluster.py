"""Several hosts: what is computed from records, plain refusals, and networks that leave nothing behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.cli import run_suite
from benchmarks.cluster import network
from benchmarks.cluster.network import Network
from benchmarks.cluster.plots import plot_cluster
from benchmarks.cluster.study import cluster_problems, cluster_trusted, least_crossing_bytes, shaped
from benchmarks.cluster.tables import CALLED, OVER_SHARDY, cluster_rows, cluster_tables
from benchmarks.executors.cluster import AGAIN, BASE, CALIBRATED, CONTESTANTS, CONTROL, OWN, SHARDY
from benchmarks.suites import SUITES
from redist.types import Layout, Mesh

ROOT = Path(__file__).resolve().parents[2]


def raced(rate: str = "400mbit", problem: str = "p", **ratios: float) -> dict[str, Any]:
    """A record in which every contestant takes `ratio` times a load that changes from round to round."""
    load = [1.0, 1.4, 1.1, 3.0, 1.0, 1.2, 0.9, 1.05, 2.0]
    return {
        "record": "cluster",
        "family": f"4 hosts x 2 devices, {rate}",
        "problem": problem,
        "who": "race",
        "rate": rate,
        "bytes": 2**22,
        "seconds": {name.replace("_", "-"): [x * ratio for x in load] for name, ratio in ratios.items()},
        "wrong": {CONTROL: "device 0 holds a wrong block"},
        "stated": {},
        "crossing_bytes": {name.replace("_", "-"): int(1000 * ratio) for name, ratio in ratios.items()},
        "least_crossing_bytes": 1000,
    }


def test_rows_against_hand_computed_figures() -> None:
    first = raced(xla=4.0, xla_again=4.0, redist=1.0, shardy=2.0)
    second = raced(problem="q", xla=2.0, xla_again=2.0, redist=2.0, shardy=1.0) | {"least_crossing_bytes": 0}
    rows = {what: (found, less) for _, what, found, less in cluster_rows([first, second], seed=0)}
    own, less = rows["redist over XLA"]
    assert (own.problems, own.wrong, own.smallest, own.largest) == (2, 0, 1.0, 4.0)
    assert own.mean.point == pytest.approx(2.0) and less is not None and less.point == pytest.approx(4.0)
    assert own.verdicts == {"win": 1, "tie": 1, "behind": 0, "loss": 0}
    assert rows["redist over Shardy's plans"][0].mean.point == pytest.approx(1.0)
    assert rows["redist over Shardy's plans"][0].verdicts["loss"] == 1
    assert rows["XLA against itself"][0].mean.point == 1.0
    out = io.StringIO()
    Console(file=out, width=240).print(cluster_tables([first, second], seed=0))
    assert "2.000 [1.000, 4.000]" in out.getvalue() and "wrong on 2 of 2" in out.getvalue()


def test_what_is_trusted() -> None:
    assert cluster_trusted([raced(redist=1.0)])
    assert not cluster_trusted([raced(redist=1.0) | {"wrong": {}}])
    assert not cluster_trusted([raced(redist=1.0) | {"wrong": {CONTROL: "", OWN: "device 1 holds a wrong block"}}])


def test_pictures_are_drawn(tmp_path: Path) -> None:
    records = [raced(rate, xla=2.0, xla_again=2.0, redist=1.0, shardy=1.5) for rate in ("100mbit", "1gbit")]
    made = plot_cluster(records, tmp_path, "stem", seed=0)
    assert {p.name for p in made} == {f"stem-{what}.{kind}" for what in ("rate", "crossing") for kind in ("png", "svg")}
    assert all(p.stat().st_size > 5000 for p in made)


@pytest.mark.parametrize(
    ("source", "target", "blocks"),
    [
        ("[8{x,y}, 8]", "[8{x}, 8{y}]", 0),  # inside hosts
        ("[8{x}, 8]", "[8, 8{x}]", 3),  # a host has 1/4 and wants another quarter of each other host's rows
        ("[8{x}, 8]", "[8, 8]", 12),
        ("[8, 8]", "[8{x,y}, 8]", 0),
        ("[8{y}, 8{x}]", "[8{x,y}, 8]", 3),
    ],
)
def test_what_has_to_cross(source: str, target: str, blocks: int) -> None:
    """In sixteenths of the array, counted by hand."""
    mesh = Mesh({"x": 4, "y": 2})
    found = least_crossing_bytes(Layout.parse(source, mesh), Layout.parse(target, mesh), each=2)
    assert found == blocks * 64 * 4 // 16


def test_the_suite_is_on_four_slow_hosts() -> None:
    rates = {part.rate: part for part in SUITES["cluster"].cluster}
    assert set(rates) == {"400mbit", "100mbit", "1gbit"} and rates["400mbit"].count >= 40
    for part in rates.values():
        problems = cluster_problems(part, 0)
        assert len(problems) == part.count and {p.source.mesh.size for p in problems} == {8}
        assert {str(p.source.mesh) for p in problems} == {"x=4,y=2", "x=2,y=2,z=2"}
    assert shaped(SUITES["cluster"].cluster, "50mbit", "1ms")[0].rate == "50mbit"
    assert [part.delay for part in shaped(SUITES["cluster"].cluster, None, "1ms")] == ["1ms"] * 3
    assert shaped((), "50mbit", None) == ()


def test_rates() -> None:
    assert Network(2, "400mbit").bytes_per_second == 50e6
    assert Network(2, "2.5gbit").bytes_per_second == 312.5e6
    assert Network(2).bytes_per_second == float("inf")
    assert len({Network(600).address(host) for host in range(600)}) == 600


def test_refusals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run_suite(suite="cluster", rate="fast", results=tmp_path) == 2
    assert capsys.readouterr().err == "'fast' is no rate; write it as 100mbit, 1gbit or 2.5gbit\n"
    assert run_suite(suite="cluster", rate="0mbit", results=tmp_path) == 2
    assert capsys.readouterr().err == "'0mbit' is no rate; write it as 100mbit, 1gbit or 2.5gbit\n"
    assert run_suite(suite="cluster", delay="long", results=tmp_path) == 2
    assert capsys.readouterr().err == "'long' is no delay; write it as 200us or 1.5ms\n"
    monkeypatch.setattr(network.shutil, "which", lambda name: None if name in ("ip", "tc") else name)
    assert run_suite(suite="cluster", results=tmp_path) == 1
    assert capsys.readouterr().err == "the cluster suite needs ip, tc; install iproute2\n"
    monkeypatch.setattr(network.shutil, "which", lambda name: name)
    monkeypatch.setattr(network.os, "geteuid", lambda: 1000)
    assert run_suite(suite="cluster", results=tmp_path) == 1
    assert capsys.readouterr().err == (
        "the cluster suite makes network namespaces and shapes their links, which needs root; run it as root\n"
    )


# -- with a network ------------------------------------------------------------------------------------

here = pytest.mark.skipif(network.missing() is not None, reason=str(network.missing()))


def outside() -> tuple[list[str], list[str]]:
    """What a network that was not taken away would show in."""
    names = sorted(path.name for path in Path("/run/netns").glob("*"))
    return names, sorted(path.name for path in Path("/sys/class/net").iterdir())


def marked(mark: str) -> Iterator[tuple[int, str]]:
    """(id, command line) of all processes that were started with a mark in their environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait for something to be."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.2)
    return found


def launched(mark: str, folder: Path) -> subprocess.Popen[str]:
    """The suite, from its command line, in a session of its own."""
    command = [sys.executable, "-m", "benchmarks", "--suite", "cluster", "--rate", "200mbit", "--limit", "1"]
    return subprocess.Popen(
        [*command, "--results", str(folder), "--json"],
        cwd=ROOT,
        env=os.environ | {"MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def on_hosts(mark: str) -> list[int]:
    """The processes of the hosts, host by host, once all are there."""
    found = [(line.split()[-2], process) for process, line in marked(mark) if "benchmarks.executors.cluster" in line]
    return [process for _, process in sorted(found) if found] if len({host for host, _ in found}) == 4 else []


@here
@pytest.mark.heavy
def test_a_run_measures_and_leaves_nothing(tmp_path: Path) -> None:
    before, mark = outside(), uuid.uuid4().hex
    run = launched(mark, tmp_path)
    out, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors
    rows = {row["comparison"]: row for row in json.loads(out)["cluster"]}
    assert set(rows) == {*CALLED.values(), OVER_SHARDY}
    (file,) = tmp_path.glob("*.jsonl")
    records = [r for r in map(json.loads, file.read_text().splitlines()) if r["record"] == "cluster"]
    assert len(records) == 1
    for record in records:
        assert set(record["seconds"]) >= {BASE, AGAIN, OWN, CALIBRATED} and set(record["wrong"]) <= {CONTROL, SHARDY}
        assert CONTROL in record["wrong"] and set(CONTESTANTS) >= set(record["seconds"])
        for who, taken in record["seconds"].items():
            crossed = record["crossing_bytes"][who]
            assert crossed >= record["least_crossing_bytes"]
            # nothing is faster than the link: what its buckets hold may pass at once
            assert min(taken) >= (crossed - 300_000) / Network(4, "200mbit").bytes_per_second
    assert list(marked(mark)) == [] and outside() == before


@here
@pytest.mark.heavy
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_nothing_is_left_however_a_run_ends(end: signal.Signals, tmp_path: Path) -> None:
    before, mark = outside(), uuid.uuid4().hex
    run = launched(mark, tmp_path)
    try:
        until(lambda: on_hosts(mark))
        run.send_signal(end)
        until(lambda: not list(marked(mark)))
        assert run.wait() != 0 and outside() == before
    finally:
        run.kill()
        run.communicate()


@here
@pytest.mark.heavy
def test_a_host_that_ends_ends_the_run(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    run = launched(mark, tmp_path)
    hosts = until(lambda: on_hosts(mark))
    os.kill(hosts[2], signal.SIGKILL)
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 1 and list(marked(mark)) == []
    assert "the launch at 200mbit ended with status 1: host 2 ended with status" in errors
    assert "Traceback" not in errors.splitlines()[-1]

"""A network of hosts that the kernel takes away with the process that uses it.

Everything is made inside namespaces of the launched process: network, mounts, processes. That process is the
first of its process namespace, and ends when the launcher does (its standard input closes); with it end all
others, and with the last of them go the hosts, links and mounts. Nothing has a name outside, so nothing can be
left over, however a run ends.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Network", "missing", "wrapped"]

_TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "mount": "mount"}
_RATE = re.compile(r"(\d+(?:\.\d+)?)(k|m|g)bit")
_DELAY = re.compile(r"\d+(?:\.\d+)?(?:us|ms)")
_LEAST_BURST, _BURST_SECONDS = 1 << 16, 0.001
"""What may pass at once above the rate: the largest segment that the kernel hands over, or as much as keeps the
link busy between two of its timers."""


@dataclass(frozen=True, slots=True)
class Network:
    """`hosts` hosts on one switch. Every link carries `rate` (as `tc` writes it: 400mbit) in each direction, and
    what crosses it takes `delay` (5ms) longer, in each direction; None for neither.

    Raises ValueError for what is not a rate or a delay.
    """

    hosts: int
    rate: str | None = None
    delay: str | None = None

    def __post_init__(self) -> None:
        if self.hosts < 1:
            raise ValueError(f"a network has at least 1 host, got {self.hosts}")
        if self.rate is not None and not (_RATE.fullmatch(self.rate) and self.bytes_per_second):
            raise ValueError(f"'{self.rate}' is no rate; write it as 100mbit, 1gbit or 2.5gbit")
        if self.delay is not None and not _DELAY.fullmatch(self.delay):
            raise ValueError(f"'{self.delay}' is no delay; write it as 200us or 1.5ms")

    @property
    def bytes_per_second(self) -> float:
        """What a link carries in one direction; infinity without a rate."""
        found = _RATE.fullmatch(self.rate or "")
        return float("inf") if found is None else float(found[1]) * 1000 ** (" kmg".index(found[2])) / 8

    def address(self, host: int) -> str:
        """The address of a host; all are in one subnet."""
        return f"10.77.{host // 250}.{host % 250 + 1}"

    def build(self) -> None:
        """Make the hosts. Run where `wrapped` put us. Raises RuntimeError with what a tool said."""
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")
        _run("ip", "link", "add", "switch", "type", "bridge")
        _run("ip", "link", "set", "switch", "up")
        for host in range(self.hosts):
            name, port = f"host{host}", f"port{host}"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", port, "master", "switch", "up")
            inside = ("ip", "-netns", name)
            _run(*inside, "address", "add", f"{self.address(host)}/16", "dev", "eth0")
            _run(*inside, "link", "set", "eth0", "up")
            _run(*inside, "link", "set", "lo", "up")
            self._shape(("tc", "-netns", name), "eth0")
            self._shape(("tc",), port)
            Path(f"/run/{name}.hosts").write_text(
                f"127.0.0.1 localhost\n{self.address(host)} {os.uname().nodename}\n", encoding="utf-8"
            )

    def _shape(self, tc: Sequence[str], device: str) -> None:
        add = (*tc, "qdisc", "add", "dev", device)
        where: tuple[str, ...] = ("root",)
        if self.rate is not None:
            burst = max(_LEAST_BURST, round(self.bytes_per_second * _BURST_SECONDS))
            _run(*add, "root", "handle", "1:", "tbf", "rate", self.rate, "burst", str(burst), "latency", "100ms")
            where = ("parent", "1:1")
        if self.delay is not None:
            try:
                _run(*add, *where, "netem", "delay", self.delay, "limit", "100000")
            except RuntimeError as error:
                if "qdisc kind is unknown" not in str(error):
                    raise
                raise RuntimeError(
                    f"this kernel cannot delay packets ({error}); load its module sch_netem, or give no delay"
                ) from None

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """A command as it is run on a host, where the machine's name stands for the host's own address."""
        script = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
        at = ("sh", "-c", script, "sh", f"/run/host{host}.hosts")
        return ["ip", "netns", "exec", f"host{host}", *at, *command]


def missing() -> str | None:
    """Why no network can be made here; None where one can."""
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        packages = dict.fromkeys(_TOOLS[tool] for tool in absent)
        return f"the cluster suite needs {', '.join(absent)}; install {', '.join(packages)}"
    if os.geteuid() != 0:
        return "the cluster suite makes network namespaces and shapes their links, which needs root; run it as root"
    done = subprocess.run(wrapped(["true"]), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return f"this system refuses new namespaces: {done.stderr.strip()}" if done.returncode else None


def wrapped(command: Sequence[str]) -> list[str]:
    """A command in namespaces of its own, so that `Network.build` can make hosts around it."""
    return ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *command]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()}")

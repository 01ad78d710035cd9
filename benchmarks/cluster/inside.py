"""First process of a cluster: makes the network, runs one process per host, hands on what host 0 prints.

Run as `python -m benchmarks.cluster.inside JOB.json` inside `network.wrapped`; ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.cluster.network import Network

__all__ = ["main"]

_PORT = 47123
_TAIL = 3000


def main() -> int:
    """Exit status 0 where every host's process ended well; otherwise 1, with the first failure on stderr."""
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    stated = json.loads(text)
    network = Network(stated["hosts"], stated["rate"], stated["delay"])
    try:
        network.build()
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    job = Path("/run/job.json")
    job.write_text(text, encoding="utf-8")
    threads = max(1, (os.cpu_count() or 1) // network.hosts)
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={stated['each']}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMP_NUM_THREADS": str(threads),
    }
    running: list[subprocess.Popen[bytes]] = []
    for host in range(network.hosts):
        program = [sys.executable, "-m", "benchmarks.executors.cluster", str(job), str(host)]
        command = network.command(host, [*program, f"{network.address(0)}:{_PORT}"])
        out = None if host == 0 else subprocess.DEVNULL
        with _said(host).open("wb") as said:
            running.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=said, env=environment)
            )
    while None in [process.poll() for process in running]:
        for host, process in enumerate(running):
            if process.returncode:
                said = _said(host).read_text(encoding="utf-8", errors="replace")[-_TAIL:]
                sys.stderr.write(f"host {host} ended with status {process.returncode}:\n{said}\n")
                return 1  # the others end with us
        time.sleep(0.1)
    return int(any(process.returncode for process in running))


def _said(host: int) -> Path:
    return Path(f"/run/host{host}.stderr")


def _end_with_launcher() -> None:
    while os.read(0, 1 << 10):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())

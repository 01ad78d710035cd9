"""Several JAX processes over Gloo: every process ends with its own blocks, and what cannot be is refused by all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("one_of_several.py")


def started(count: int, each: int) -> list[dict[str, Any]]:
    """What each of so many processes found."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    devices = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={each}", "JAX_PLATFORMS": "cpu"}
    running = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(number), str(count), str(each), address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | devices,
        )
        for number in range(count)
    ]
    try:
        ended = [process.communicate(timeout=300) for process in running]
    finally:
        for process in running:
            process.kill()
    for process, (_, errors) in zip(running, ended, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [json.loads(next(line for line in out.splitlines() if line.startswith("{"))) for out, _ in ended]


def check(count: int, each: int) -> None:
    """All found right, the same refusal everywhere, and the slow axis known."""
    found = started(count, each)
    for report in found:
        assert report["wrong"] == [] and report["tried"] == 19
        assert report["explained"] == found[0]["explained"] and "under topology processes" in report["explained"]
    ids = found[0]["refusal"].split("[")[1].split("]")[0]
    some = ids.split(", ")[:each]
    for number, report in enumerate(found):
        others = [n for n in range(count) if n != number]
        assert report["refusal"] == (
            f"the source is on devices [{ids}] and the target on devices [{', '.join(some)}], some of them of "
            f"processes {others}; data goes to other devices within one process only. Put source and target on the "
            "same set of devices, in any order"
        )


def test_two_processes() -> None:
    """Of three devices each: sizes of two primes."""
    check(2, 3)


@pytest.mark.heavy
def test_four_processes() -> None:
    """Of two devices each."""
    check(4, 2)

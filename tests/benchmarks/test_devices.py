"""What moves to other devices have resident at most, by the kernel's record of a process that makes one."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.devices import CASES, measured, supported
from redist.collectives.backends.jax.transfer import IN_FLIGHT_BYTES

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed"),
    pytest.mark.skipif(not supported(), reason="this kernel keeps no record that can be reset"),
]

PROGRAMS_BYTES = 48 * 2**20
"""What compiling a few small programs takes."""


@pytest.mark.parametrize("name", ["grow", "shrink", "disjoint", "to one"])
def test_a_move_takes_its_target_and_what_is_in_flight(name: str) -> None:
    """The array has 256 MiB: another copy of it, on the host or on a device, would not fit."""
    found = measured(name, "redist")
    target = CASES[name].target_bytes()
    assert found["right"]
    assert target <= found["grown_bytes"] <= target + IN_FLIGHT_BYTES + PROGRAMS_BYTES
    assert target > IN_FLIGHT_BYTES + PROGRAMS_BYTES


def test_the_measure_sees_a_copy_on_the_host() -> None:
    found = measured("grow", "control-host")
    assert found["right"] and found["grown_bytes"] > 1.9 * CASES["grow"].target_bytes()

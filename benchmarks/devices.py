"""Moves to other devices, beside `jax.device_put`: what a process has resident at most, and seconds.

    python -m benchmarks.devices

On CPU, devices and host are one memory, so that a copy of the array on the host shows as memory of the process. A move
is made once in a process of its own: the kernel's record of what was resident at most (`VmHWM`) is reset before it,
and its growth is what the move took beside its source. Freed memory goes back to the kernel at once there
(`MALLOC_MMAP_THRESHOLD_`), or the record would be of the allocator's habits. Linux only.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from redist.types import Layout, Mesh

__all__ = ["CASES", "WHO", "Case", "measured", "supported"]

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_DEVICES = 16
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """A move of a float32 array from one mesh to another, each (axes, type)."""

    source: tuple[str, str]
    target: tuple[str, str]

    def layouts(self) -> tuple[Layout, Layout]:
        """Source and target."""
        first, second = (Layout.parse(text, Mesh.parse(mesh)) for mesh, text in (self.source, self.target))
        return first, second

    def target_bytes(self) -> int:
        """Of all devices' blocks together."""
        _, target = self.layouts()
        return target.block_bytes() * target.mesh.size


CASES = {
    "grow": Case(("a=4", "f32[8192{a}, 8192]"), ("x=8", "f32[8192, 8192{x}]")),
    "grow, axes swapped": Case(("a=2,b=2", "f32[8192{a}, 8192{b}]"), ("x=2,y=4", "f32[8192{y}, 8192{x}]")),
    "shrink": Case(("x=8", "f32[8192{x}, 8192]"), ("a=2,b=2@[2,3,4,5]", "f32[8192{a}, 8192{b}]")),
    "disjoint": Case(
        ("x=2,y=4", "f32[8192{x}, 8192{y}]"), ("x=4,y=2@[8,9,10,11,12,13,14,15]", "f32[8192{y}, 8192{x}]")
    ),
    "to one": Case(("x=8", "f32[8192, 8192{x}]"), ("x=1@[9]", "f32[8192, 8192]")),
    "from one": Case(("x=1@[9]", "f32[8192, 8192]"), ("x=8", "f32[8192, 8192{x}]")),
}
"""Arrays of 256 MiB."""


def _reshard(x: Any, sharding: Any) -> Any:
    from redist.resharding import reshard

    return reshard(x, sharding)


def _device_put(x: Any, sharding: Any) -> Any:
    return import_module("jax").device_put(x, sharding)


def _by_host(x: Any, sharding: Any) -> Any:
    return import_module("jax").device_put(np.array(x), sharding)


WHO: dict[str, Callable[[Any, Any], Any]] = {"redist": _reshard, "device_put": _device_put, "control-host": _by_host}
"""`control-host` reads the whole array back and sends it out again: the measure has to see that."""


def supported() -> bool:
    """Whether the kernel keeps the record, and lets it be reset."""
    return _CLEAR.exists() and _STATUS.exists()


def measured(case: str, who: str, rounds: int = 0) -> dict[str, Any]:
    """`grown_bytes` of the first move in a fresh process, whether all blocks are `right`, and the median `seconds` of
    so many later moves, if any. Raises RuntimeError where the process fails."""
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={_DEVICES}",
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.devices", case, who, str(rounds)],
        env=environment,
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{case} by {who} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _resident(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def _move(case: str, who: str, rounds: int) -> dict[str, Any]:
    """Runs in the process of its own."""
    jax: Any = import_module("jax")
    jnp: Any = import_module("jax.numpy")
    source, target = CASES[case].layouts()
    rows, columns = source.shape
    sharding: Any = target.to_jax()
    make: Any = jax.jit(
        lambda: jnp.arange(rows, dtype=jnp.float32)[:, None] * columns + jnp.arange(columns, dtype=jnp.float32),
        out_shardings=source.to_jax(),
    )
    WHO[who](jax.device_put(np.zeros((16, 16), np.float32), source.to_jax()), sharding)  # modules are loaded by now
    x = jax.block_until_ready(make())
    gc.collect()
    _CLEAR.write_text("5")
    before = _resident("VmRSS:")
    y = jax.block_until_ready(WHO[who](x, sharding))
    grown = _resident("VmHWM:") - before
    value = np.arange(rows, dtype=np.float32)[:, None] * np.float32(columns) + np.arange(columns, dtype=np.float32)
    right = all(np.array_equal(np.asarray(shard.data), value[shard.index]) for shard in y.addressable_shards)
    del x, y
    seconds: list[float] = []
    for _ in range(rounds):
        x = jax.block_until_ready(make())  # another one: a source that was read to the host keeps the copy
        started = perf_counter()
        jax.block_until_ready(WHO[who](x, sharding))
        seconds.append(perf_counter() - started)
    return {"grown_bytes": grown, "right": right, "seconds": median(seconds) if seconds else None}


def main() -> int:
    """Print the table; with a case, a contestant and rounds, what `measured` reads."""
    if len(sys.argv) > 1:
        case, who, rounds = sys.argv[1:]
        print(json.dumps(_move(case, who, int(rounds))))
        return 0
    if not supported():
        sys.stderr.write("this kernel has no /proc/self/clear_refs, which resets the record of resident memory\n")
        return 1
    print(f"{'move':<20}{'target MiB':>12}" + "".join(f"{who + ' MiB':>18}{'ms':>8}" for who in WHO))
    wrong = 0
    for name, case in CASES.items():
        cells: list[str] = []
        for who in WHO:
            found = measured(name, who, _ROUNDS)
            wrong += not found["right"]
            cells.append(f"{found['grown_bytes'] / 2**20:>18.0f}{1000 * found['seconds']:>8.0f}")
        print(f"{name:<20}{case.target_bytes() / 2**20:>12.0f}" + "".join(cells), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

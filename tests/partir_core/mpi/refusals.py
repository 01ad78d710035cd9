"""What must not run, and what fails while it runs: `mpiexec -n 4 python refusals.py CASE...`.

Rank 0 prints, per case, the error that each rank raised.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from mpi4py import MPI
from ranks import MESH, RANK, WORLD, main, same

from redist import Layout, Mesh
from redist import partir_core as partir
from redist.errors import RedistError
from redist.partir_core import DistributedArray, ManualPartition

X = np.arange(128, dtype=np.float32).reshape(16, 8)
W = np.eye(8, dtype=np.float32)
SCHEDULE = [ManualPartition({"x": 1}, "B"), ManualPartition({"w": 1}, "M")]


def dense(x: Any, w: Any) -> Any:
    return x @ w


def partitioned(fn: Callable[..., Any] = dense, schedule: Any = SCHEDULE, mesh: Mesh = MESH, **options: Any) -> Any:
    return partir.jit(fn, mesh, schedule, backend="mpi", **options)


def raised(call: Callable[[], Any]) -> str:
    try:
        call()
    except RedistError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def everywhere(call: Callable[[], Any]) -> list[str]:
    return WORLD.allgather(raised(call))


def shapes() -> Any:
    """Another global shape on one rank; then all goes on."""
    fn = partitioned()
    found = everywhere(lambda: fn(X[:8] if RANK == 2 else X, W))
    same(fn(X, W), X @ W)
    return found


def blocks() -> Any:
    """A wrong block on one rank; None on another."""
    fn = partitioned()
    layout = Layout.parse("f32[16{B}, 8]", MESH)
    block = {1: np.zeros((4, 8), np.float32), 2: None}.get(RANK, np.zeros((8, 8), np.float32))
    found = everywhere(lambda: fn(DistributedArray(block, layout), W))
    same(fn(X, W), X @ W)
    return found


def layouts() -> Any:
    texts = {3: "f32[16, 8{M}]"}
    layout = Layout.parse(texts.get(RANK, "f32[16{M}, 8]"), MESH)
    fn = partitioned()
    return everywhere(lambda: fn(DistributedArray(X[layout.box(RANK)], layout), W))


def compiled_shapes() -> Any:
    ready = partitioned().lower(X, W).compile()
    return [*everywhere(lambda: ready(X[:8], W.astype(np.int32))), everywhere(lambda: ready(X))[0]]


def other_mesh() -> Any:
    fn = partitioned(schedule=[ManualPartition({"x": 0}, "data")])
    return everywhere(lambda: fn(X, W))


def other_schedules() -> Any:
    fn = partitioned(schedule=SCHEDULE[: 1 if RANK == 1 else 2])
    return everywhere(lambda: fn(X, W))


def sizes() -> Any:
    return [
        everywhere(lambda: partitioned(mesh=Mesh({"B": 4, "M": 2}))(X, W)),
        everywhere(lambda: partitioned(mesh=Mesh({"B": 2, "M": 2}, [4, 5, 6, 7])).lower(X, W).compile()),
        raised(lambda: partitioned(comm=3)(X, W)),
        raised(lambda: partitioned(comm=MPI.COMM_NULL)(X, W)),
        raised(lambda: partir.jit(dense, MESH, SCHEDULE, comm=WORLD)),
    ]


def arguments() -> Any:
    fn = partitioned()
    return [everywhere(lambda: fn(X, "w" if RANK == 0 else W)), everywhere(lambda: fn(X, W[:4]))[0]]


def transformations() -> Any:
    fn = partitioned()
    return [
        everywhere(lambda: jax.grad(lambda x: jnp.sum(fn(x, W)))(X)),
        everywhere(lambda: jax.jit(fn)(X, W)),
        everywhere(lambda: fn.lower(X, W).as_text("stablehlo")),
    ]


def converting() -> Any:
    y = partitioned()(X, W)
    found = everywhere(lambda: np.asarray(y))
    gone = partitioned(donate_argnames="x")
    gone(y, W)
    return [found[1], everywhere(lambda: gone(y, W)), raised(y.gather)]


def failing(x: Any, act: Callable[[], None]) -> Any:
    """`x`, and something else happens on rank 1."""

    def seen(x: Any) -> Any:
        if RANK == 1:
            act()
        return x

    return jax.pure_callback(seen, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def fail() -> None:
    raise ZeroDivisionError("the disk is full")


def failures() -> Any:
    """A computation that fails on one rank: before, between, after redistributions, and inside of loops."""

    def between(x: Any, w: Any) -> Any:
        return failing((x @ w) @ w, fail) @ w

    def last(x: Any, w: Any) -> Any:
        return failing(jnp.sum(x @ w), fail)

    def scanned(x: Any, w: Any) -> Any:
        def body(h: Any, n: Any) -> Any:
            return jax.lax.cond(n == 3, lambda h: failing(h @ w, fail) @ w, lambda h: h @ w, h), jnp.sum(h)

        return jax.lax.scan(body, x, jnp.arange(5))

    def looped(x: Any, w: Any) -> Any:
        def condition(state: Any) -> Any:
            return failing(jnp.asarray(state[1] < 4), fail)

        return jax.lax.while_loop(condition, lambda state: (state[0] @ w, state[1] + 1), (x, 0))

    found = []
    for fn in (between, last, scanned, looped):
        found.append(everywhere(lambda fn=fn: partitioned(fn)(X, W)))
        same(partitioned()(X, W), X @ W)
    return found


def tracing() -> Any:
    """What the function raises while it is traced."""

    def wrong(x: Any, w: Any) -> Any:
        return fail()

    try:
        partitioned(wrong)(X, W)
    except RedistError as error:
        return [str(error), type(error.__cause__).__name__]
    return "nothing"


def _ended(act: Callable[[], None]) -> Any:
    def stop() -> None:
        sys.stderr.write(f"failing at {time.time()}\n")
        sys.stderr.flush()
        act()

    def fn(x: Any, w: Any) -> Any:
        return failing(x @ w, stop) @ w

    partitioned(fn)(X, W).gather()
    return "went on"


def killed() -> Any:
    return _ended(lambda: os.kill(os.getpid(), signal.SIGKILL))


def interrupted() -> Any:
    """Ctrl-C on one rank while it waits for the others."""
    from redist.partir_core import walk

    meet, count = walk.Walk.moved, 0

    def moved(self: Any, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if RANK == 3 and count == 2:
            sys.stderr.write(f"failing at {time.time()}\n")
            sys.stderr.flush()
            raise KeyboardInterrupt
        return meet(self, *arguments)

    walk.Walk.moved = moved
    partitioned(lambda x, w: (x @ w) @ w)(X, W)
    return "went on"


if __name__ == "__main__":
    main(globals())

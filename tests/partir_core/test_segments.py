"""How programs are cut for MPI: what is compiled whole, what is walked, what memory is used again."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from redist import Mesh
from redist import partir_core as partir
from redist.partir_core import ManualPartition
from redist.partir_core.segments import Segment, Steps, Together, Walked, steps_of

X, W = np.ones((16, 8), np.float32), np.ones((8, 8), np.float32)
COLUMNS = [ManualPartition({"x": 1}, "B")]


def cut(fn: Any, args: Any, schedule: Any, donated: Any = ()) -> Steps:
    return steps_of(partir.jit(fn, Mesh({"B": 4}), schedule, backend="mpi").lower(*args).spmd, donated)


def kinds(steps: Steps) -> list[str]:
    return [type(step).__name__ for step in steps.steps]


def test_runs_between_redistributions() -> None:
    def f(x: Any, w: Any) -> Any:
        a = jnp.tanh(jnp.sin(x) @ w)  # a contribution, to be reduced
        return jnp.cos(a) * 2 + 1, jnp.sum(a)

    assert kinds(cut(f, (X, W), COLUMNS)) == ["Segment", "Together", "Segment"]


def test_what_is_local_is_one_segment() -> None:
    """Loops, conditionals, and slices of whole values too."""

    def f(x: Any, y: Any) -> Any:
        h, _ = jax.lax.scan(lambda h, n: (jnp.sin(h) * n + y, None), x, jnp.arange(3.0))
        return jax.lax.cond(y[0, 0] > 0, jnp.sin, jnp.cos, h)

    steps = cut(f, (X, X), COLUMNS)
    assert kinds(steps) == ["Segment"]
    (segment,) = steps.steps
    assert isinstance(segment, Segment) and {op.op.name for op in segment.block.ops} >= {"scan", "cond"}


def test_loops_that_communicate_are_walked() -> None:
    def f(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda h, n: (h @ w + n, jnp.sum(h)), x, jnp.arange(3.0))

    steps = cut(f, (X, W), COLUMNS)
    (walked,) = (step for step in steps.steps if isinstance(step, Walked))
    assert walked.op.op.name == "scan"
    assert "Together" in kinds(walked.blocks[0])
    assert sum(isinstance(step, Together) for step in steps.walk()) == 2


def test_memory_that_is_used_again() -> None:
    """What ends in a segment gives its memory to a result of the same size: intermediate values, donated
    arguments; never what the caller keeps, or what is needed later."""

    def f(x: Any, w: Any) -> Any:
        total = jnp.sum(x)  # makes two segments
        return x * total, w * total

    def donated(positions: Any) -> list[set[int]]:
        steps = cut(f, (X, W), COLUMNS, positions)
        segments = [step for step in steps.steps if isinstance(step, Segment)]
        assert len(segments) == 2
        return [{segment.block.inputs[n] for n in segment.donated} & set(steps.inputs) for segment in segments]

    x, w = cut(f, (X, W), COLUMNS).inputs
    assert donated(()) == [set(), set()]
    assert donated((0,)) == [set(), {x}]
    assert donated((0, 1)) == [set(), {x, w}]

"""Counting collectives in StableHLO and in compiled HLO, against programs with known ones."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

from benchmarks.partir_hlo import KINDS, of_compiled, of_stablehlo, peak_of

NONE = dict.fromkeys(KINDS, 0)
P = jax.sharding.PartitionSpec
WHOLE = P()


def lowered(f: Any, *shape: int, out: Any = WHOLE) -> Any:
    """`f` of blocks of f32 `shape`, on 4 devices x."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
    fn = jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=out, check_vma=False)
    return jax.jit(fn).lower(jax.ShapeDtypeStruct((4 * shape[0], *shape[1:]), np.float32))


@pytest.mark.parametrize(
    "kind, f, out, received",
    [
        ("all_reduce", lambda x: lax.psum(x, "x"), P(), 2 * 3 / 4),
        ("all_gather", lambda x: lax.all_gather(x, "x", tiled=True), P(), 3),
        ("reduce_scatter", lambda x: lax.psum_scatter(x, "x", tiled=True), P("x"), 3 / 4),
        ("all_to_all", lambda x: lax.all_to_all(x, "x", 0, 1, tiled=True), P("x"), 3 / 4),
        ("permute", lambda x: lax.ppermute(x, "x", [(n, (n + 1) % 4) for n in range(4)]), P("x"), 1),
    ],
)
def test_every_kind(kind: str, f: Any, out: Any, received: float) -> None:
    """Received bytes are a share of the block's."""
    program = lowered(f, 8, 4, out=out)
    for made in (of_stablehlo(program.as_text()), of_compiled(program.compile().as_text())):
        assert made.number == {**NONE, kind: 1}
        assert made.bytes == received * 8 * 4 * 4


def test_loops_branches_and_calls() -> None:
    def step(x: Any, _: Any) -> Any:
        return lax.psum(x, "x") * 0.1, None

    def f(x: Any) -> Any:
        x, _ = lax.scan(lambda x, _: lax.scan(step, x, None, length=3), x, None, length=5)
        x = lax.cond(x[0, 0] > 0, lambda x: lax.psum(lax.psum(x, "x"), "x"), lambda x: lax.pmax(x, "x"), x)
        halved = jax.jit(lambda x: lax.psum(x, "x") / 2)
        return halved(halved(x) + 1)

    program = lowered(f, 8, 4)
    made = of_stablehlo(program.as_text())
    assert made.number == {**NONE, "all_reduce": 15 + 2 + 2}
    compiled = of_compiled(program.compile().as_text())
    assert compiled.number == {**NONE, "all_reduce": 15 + 2 + 2}
    assert made.bytes == compiled.bytes == 19 * 2 * 3 / 4 * 8 * 4 * 4


def test_loops_of_unknown_length_count_once() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda x: x[0, 0] < 9, lambda x: lax.psum(x, "x") + 1, x)

    program = lowered(f, 8, 4)
    assert of_stablehlo(program.as_text()).number == {**NONE, "all_reduce": 1}
    assert of_compiled(program.compile().as_text()).number == {**NONE, "all_reduce": 1}


def test_peak() -> None:
    """An argument, a result, and nothing else."""
    compiled = lowered(lambda x: lax.psum(x, "x"), 64, 4).compile()
    assert 2 * 64 * 4 * 4 <= peak_of(compiled) <= 2 * 64 * 4 * 4 + 64

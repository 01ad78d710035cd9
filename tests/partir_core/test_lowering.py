"""The device program: where values are reduced and gathered, and that every redistribution is proved."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from redist import Mesh, Topology
from redist import partir_core as partir
from redist.collectives import Link
from redist.partir_core import FIRST_DIVISIBLE_DIM, ManualPartition


def shape(*sizes: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(sizes, dtype)


def report_of(fn: Any, args: Any, *tactics: tuple[dict[str, Any], str], mesh: Mesh, **options: Any) -> partir.Report:
    schedule = [ManualPartition(entries, axis) for entries, axis in tactics]
    return partir.jit(fn, mesh, schedule, **options).lower(*args).report


X, W = shape(16, 8), shape(8, 8)


def test_a_contribution_is_reduced_once_for_all_uses(mesh: Mesh) -> None:
    def f(x: Any) -> Any:
        total = jnp.sum(x, axis=0)
        return jnp.sin(total), jnp.cos(total)

    report_of(f, (X,), ({"x": 0}, "B"), mesh=mesh).assert_collectives(all_reduce=1)


def test_it_is_scattered_if_all_uses_slice_it_and_it_is_no_output(mesh: Mesh) -> None:
    def f(x: Any, state: Any) -> Any:
        total = jnp.sum(x, axis=0)
        return state + total, state * total

    def g(x: Any, state: Any) -> Any:
        total = jnp.sum(x, axis=0)
        return state + total, total

    args, tactics = (X, shape(8)), (({"x": 0}, "B"), ({"state": 0}, "B"))
    report_of(f, args, *tactics, mesh=mesh).assert_collectives(reduce_scatter=1)
    report_of(g, args, *tactics, mesh=mesh).assert_collectives(all_reduce=1)


def test_it_is_scattered_if_a_use_slices_it_and_others_would_follow(mesh: Mesh) -> None:
    """As a gradient that is added to sharded state, and whose norm is taken."""

    def f(x: Any, state: Any) -> Any:
        total = jnp.sum(x, axis=0)
        return state + total, jnp.sum(total * total)

    args, tactics = (X, shape(8)), (({"x": 0}, "B"), ({"state": 0}, "B"))
    report_of(f, args, *tactics, mesh=mesh).assert_collectives(reduce_scatter=1, all_reduce=1)


@pytest.mark.parametrize(
    "fn, reductions",
    [
        (lambda a, b: a + b, 1),
        (lambda a, b: a - b, 1),
        (lambda a, b: sum([a, b]), 1),  # Python's sum starts with a literal zero
        (lambda a, b: (2 * a).T + b.T, 1),  # transposed and scaled contributions are still contributions
        (lambda a, b: (a + b) + (a - b), 2),  # two uses each: reduced before
        (lambda a, b: jnp.sin(a) + b, 2),
        (lambda a, b: a * b, 2),
        (lambda a, b: a + 1 + b, 2),  # adding one on every device would add it several times
        (lambda a, b: (a, b), 2),
    ],
)
def test_sums_of_contributions_are_reduced_together(mesh: Mesh, check: Any, fn: Any, reductions: int) -> None:
    def f(x: Any, w: Any) -> Any:
        return fn(x.T @ x, w.T @ w)

    args = [np.random.default_rng(n).standard_normal((16, 8)).astype(np.float32) for n in range(2)]
    report = check(f, args, [ManualPartition({"x": 0, "w": 0}, "B")])
    report.assert_collectives(all_reduce=reductions)


def test_a_contribution_and_a_whole_value_are_not_added_before_reducing(mesh: Mesh, check: Any) -> None:
    def f(x: Any, w: Any) -> Any:
        return x.T @ x + w

    args = [np.ones((16, 8), np.float32), np.ones((8, 8), np.float32)]
    check(f, args, [ManualPartition({"x": 0}, "B")]).assert_collectives(all_reduce=1)


def test_the_sum_of_contributions_is_scattered_where_it_is_used_so(mesh: Mesh, check: Any) -> None:
    def f(x: Any, w: Any, state: Any) -> Any:
        return state + (x.T @ x + w.T @ w)

    args = [np.ones(s, np.float32) for s in ((16, 8), (16, 8), (8, 8))]
    schedule = [ManualPartition({"x": 0, "w": 0}, "B"), ManualPartition({"state": FIRST_DIVISIBLE_DIM}, "B")]
    check(f, args, schedule).assert_collectives(reduce_scatter=1)


@pytest.mark.parametrize("share, gathers", [(False, 2), (True, 1)])
def test_gathers_are_made_at_each_use_unless_shared(mesh: Mesh, share: bool, gathers: int) -> None:
    def f(x: Any, w: Any) -> Any:
        return jnp.sin(x @ w) @ w

    tactics = (({"x": 0}, "B"), ({"w": 0}, "B"))
    report = report_of(f, (X, W), *tactics, mesh=mesh, share_gathers=share)
    report.assert_collectives(all_gather=gathers)


def test_an_operation_that_uses_a_value_twice_gathers_it_once(mesh: Mesh) -> None:
    def f(x: Any) -> Any:
        return jax.lax.cumsum(x, axis=0) * 1, jnp.sort(x, axis=0)

    report_of(f, (X,), ({"x": 0}, "B"), mesh=mesh).assert_collectives(all_gather=2)
    report_of(lambda x: jnp.concatenate([x, x]), (X,), ({"x": 0}, "B"), mesh=mesh).assert_collectives(all_gather=1)


def test_slicing_a_whole_value_is_free(mesh: Mesh) -> None:
    def f(x: Any, y: Any) -> Any:
        return x + jnp.sort(y, axis=0)

    report = report_of(f, (X, X), ({"x": 0}, "B"), mesh=mesh)
    report.assert_collectives()
    assert "[slice dim 0 by B]" in partir.jit(f, mesh, [ManualPartition({"x": 0}, "B")]).lower(X, X).as_text()


def test_a_dimension_that_changes_is_exchanged_all_to_all(mesh: Mesh, check: Any) -> None:
    def f(x: Any) -> Any:
        return jnp.sort(partir.tag(jnp.sort(x, axis=1), "rows"), axis=0)

    x = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    g = lambda x, y: jnp.sort(x, axis=1) * 1 + y  # noqa: E731
    report = check(g, [x, x], [ManualPartition({"x": 0}, "B"), ManualPartition({"y": 1}, "M")])
    report.assert_collectives()
    both = check(f, [x], [ManualPartition({"x": 0}, "M")])
    both.assert_collectives(all_gather=1)


def test_reductions_by_maximum(mesh: Mesh, check: Any) -> None:
    x = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    report = check(jax.nn.softmax, [x], [ManualPartition({"x": 1}, "M")])
    report.assert_collectives(all_reduce=2)  # the maximum, then the sum
    check(lambda x: ((x > 0).any(1), (x > 2).all(1), x.min(1)), [x], [ManualPartition({"x": 1}, "M")])


def there_and_back(h: Any, w: Any) -> Any:
    """Columns, then rows of w: along w's columns, one reduction."""
    return jnp.tanh(h @ w) @ w.T


def test_loops_reduce_inside(mesh: Mesh) -> None:
    def f(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, h: there_and_back(h, w), x)

    report_of(f, (X, W), ({"w": 1}, "M"), mesh=mesh).assert_collectives(all_reduce=5)


def test_a_carry_that_is_sliced_in_the_body_is_scattered_there(mesh: Mesh) -> None:
    def f(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, h: jnp.tanh(h @ w), x)

    report = report_of(f, (X, W), ({"w": 0}, "M"), mesh=mesh)
    report.assert_collectives(reduce_scatter=5)
    assert [str(x) for x in report.outputs.values()] == ["f32[16, 8{M}]"]


def test_nested_loops_multiply(mesh: Mesh) -> None:
    def f(x: Any, w: Any) -> Any:
        def outer(_: Any, h: Any) -> Any:
            return there_and_back(jax.lax.fori_loop(0, 5, lambda _, h: there_and_back(h, w), h), w)

        return jax.lax.fori_loop(0, 3, outer, x)

    report_of(f, (X, W), ({"w": 1}, "M"), mesh=mesh).assert_collectives(all_reduce=3 * 5 + 3)


def test_a_branch_counts_as_the_one_that_receives_most(mesh: Mesh) -> None:
    def f(x: Any, w: Any, n: Any) -> Any:
        once = there_and_back(x, w)
        return jax.lax.cond(n > 0, lambda: there_and_back(once, w), lambda: once)

    args = (X, W, shape(dtype="int32"))
    report_of(f, args, ({"w": 1}, "M"), mesh=mesh).assert_collectives(all_reduce=2)


def test_any_reduction_lets_replicas_share_the_work(check: Any) -> None:
    """An all-reduce of b bytes over 4 devices receives 2 * 3/4 b. With two replicas of every contribution,
    each reduces half, and gathers what the other has: 3/4 b/2 + 7/8 b."""
    x = np.ones((64, 64), np.float32)
    schedule = [ManualPartition({"x": 0}, "B")]
    plain = check(lambda x: x.T @ x, [x], schedule)
    shared = check(lambda x: x.T @ x, [x], schedule, any_reduction=True)
    plain.assert_collectives(all_reduce=1)
    size = 4 * 64 * 64
    assert (plain.received_bytes, shared.received_bytes) == (size * 3 // 2, size * 3 // 8 + size * 7 // 8)


def test_seconds_follow_the_topology(mesh: Mesh) -> None:
    def f(x: Any) -> Any:
        return x.T @ x

    slow = Topology("slow", {"B": Link(latency=1.0, bandwidth=1.0)})
    report = report_of(f, (X,), ({"x": 0}, "B"), mesh=mesh, topology=slow)
    assert report.seconds == pytest.approx(2 * (1.0 + 256 * 3 / 4))
    rated = report_of(f, (X,), ({"x": 0}, "B"), mesh=mesh, topology=slow, flops_per_second=1.0)
    assert rated.seconds == pytest.approx(report.seconds + 2 * 4 * 8 * 8)


def test_every_redistribution_is_proved(mesh: Mesh) -> None:
    def f(x: Any, w: Any, state: Any) -> Any:
        y = jnp.tanh(x @ w)
        return state + y.T @ x, jnp.sort(y, axis=0), jnp.max(y, axis=1)

    schedule = [
        ManualPartition({"x": 0}, "B"),
        ManualPartition({"w": 1}, "M"),
        ManualPartition({"w": 0, "state": 1}, "B"),
    ]
    lowered = partir.jit(f, mesh, schedule, verify=True).lower(X, W, W)
    assert lowered.verify() >= 4

"""`reshard` on arrays and pytrees: concrete arrays run compiled plans, traced ones become a primitive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.jax.arguments import (
    check_source,
    check_target,
    every,
    named,
    paired,
    require_outside_shard_map,
    resolved,
    traced,
)
from redist.collectives.backends.jax.budget import Need, allotted
from redist.collectives.backends.jax.execute import Executor, prepare
from redist.collectives.backends.jax.modules import jax, jnp
from redist.collectives.backends.jax.primitive import (
    Move,
    apply,
    concrete,
    on_one_mesh,
    require_one_program,
    sharding_of,
    staged,
)
from redist.errors import BackendError, InfeasibleError, LayoutError, RedistError
from redist.types.layout import Layout

if TYPE_CHECKING:
    from redist.collectives.plan import Plan

__all__ = ["Terms", "plan_for", "reshard_tree"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call asks for beside its shardings. `planner(source, target, memory_limit, donate)`."""

    memory_limit: int | None
    donate: bool
    planner: Callable[[Layout, Layout, int | None, bool], Plan]


def reshard_tree(tree: Any, sharding: Any, source: Any, terms: Terms) -> Any:
    """Every leaf under its sharding. All leaves are checked before any is moved."""
    if source is None and isinstance(tree, jax.Array) and not traced(tree):
        move = _known(tree.shape, tree.dtype, tree.sharding, sharding, terms) if _plain(tree, sharding) else None
        if move is not None:
            return move(tree)
    leaves, structure = jax.tree.flatten_with_path(tree)
    targets = paired(sharding, tree, "sharding")
    sources = [None] * len(leaves) if source is None else paired(source, tree, "source")
    order = [(n, terms) for n in range(len(leaves))]
    if terms.memory_limit is not None and len(leaves) > 1 and not any(traced(leaf) for _, leaf in leaves):
        order = _ordered([leaf for _, leaf in leaves], targets, terms)
    ready: list[tuple[int, Callable[[], Any]]] = []
    problems: list[tuple[str, RedistError]] = []
    for n, allowed in order:
        path, leaf = leaves[n]
        try:
            ready.append((n, _ready(leaf, targets[n], sources[n], allowed)))
        except RedistError as error:
            problems.append((jax.tree_util.keystr(path), error))
    every(problems)
    made: list[Any] = [None] * len(leaves)
    for n, run in ready:
        made[n] = _finished(run(), terms) if len(ready) > 1 else run()
    return jax.tree.unflatten(structure, made)


def _ordered(leaves: list[Any], targets: list[Any], terms: Terms) -> list[tuple[int, Terms]]:
    """Which leaf moves when, and within which limit, so that all together keep the caller's. Leaves that are
    no arrays, or that cannot move, are left to what checks them."""
    assert terms.memory_limit is not None
    moving: list[int] = []
    needs: list[Need] = []
    beside = 0
    for n, (leaf, target) in enumerate(zip(leaves, targets, strict=True)):
        try:
            need = _need(leaf, resolved(target, "sharding"), terms)
        except (RedistError, TypeError, AttributeError):
            continue
        if need.smallest:
            moving.append(n)
            needs.append(need)
        beside += 0 if need.smallest else need.target
    found = allotted(needs, terms.memory_limit, terms.donate, beside)
    rest = [(n, terms) for n in range(len(leaves)) if n not in moving]
    return [*((moving[k], replace(terms, memory_limit=limit)) for k, limit in found), *rest]


def _need(x: Any, wanted: Any, terms: Terms) -> Need:
    """What moving an array takes; the smallest peak is 0 where it stays."""
    if not isinstance(x, jax.Array):
        size = Layout.from_jax(jnp.shape(x), jnp.result_type(x), wanted).block_bytes()
        return Need(0, size, size)
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    source, target = Layout.from_jax(x.shape, x.dtype, x.sharding), Layout.from_jax(x.shape, x.dtype, wanted)
    if named(x.sharding) == wanted:
        return Need(0, target.block_bytes(), 0)
    return Need(source.block_bytes(), target.block_bytes(), _smallest_peak(source, target, terms))


@lru_cache(maxsize=1024)
def _smallest_peak(source: Layout, target: Layout, terms: Terms) -> int:
    """Of all plans, in bytes per device; at least 1."""
    try:
        return max(1, terms.planner(source, target, 0, terms.donate).peak_bytes)
    except InfeasibleError as error:
        if error.smallest_limit is None:
            raise
        return max(1, error.smallest_limit)


def _finished(x: Any, terms: Terms) -> Any:
    """On CPU, programs in flight wait for one another's threads, and too many of them never end; under a memory
    limit, what a move takes is free again before the next one begins."""
    alone = jax.default_backend() == "cpu" or terms.memory_limit is not None
    return jax.block_until_ready(x) if alone and not traced(x) else x


def _plain(x: Any, sharding: Any) -> bool:
    return isinstance(sharding, jax.sharding.NamedSharding) and isinstance(x.dtype, np.dtype)


@lru_cache(maxsize=4096)
def _known(shape: tuple[int, ...], dtype: Any, given: Any, wanted: Any, terms: Terms) -> Callable[[Any], Any]:
    """The move of a concrete array of this type, checked once."""
    wanted = resolved(wanted, "sharding")
    check_target(shape, wanted, "sharding")
    return _same if named(given) == wanted else _executor(shape, dtype, given, wanted, terms)


def _same(x: Any) -> Any:
    return x


def _ready(x: Any, sharding: Any, source: Any, terms: Terms) -> Callable[[], Any]:
    """The checked move of one leaf, to be called."""
    wanted = resolved(sharding, "sharding")
    if not isinstance(x, jax.Array):
        if not hasattr(x, "shape") and not isinstance(x, (bool, int, float, complex)):
            raise LayoutError(f"{x!r} is not an array; reshard takes arrays and pytrees of arrays")
        check_target(jnp.shape(x), wanted, "sharding")
        return lambda: _placed(x, wanted)
    if traced(x):
        require_outside_shard_map()
    check_target(x.shape, wanted, "sharding")
    stated = None if source is None else resolved(source, "source", wanted.mesh)
    if stated is not None:
        check_target(x.shape, stated, "source")
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        moved = _array(jax.random.key_data(x), wanted, stated, terms)
        return lambda: jax.random.wrap_key_data(moved(), impl=jax.random.key_impl(x))
    return _array(x, wanted, stated, terms)


def _placed(x: Any, wanted: Any) -> Any:
    """Data on the host, which no device has to send."""
    made = jax.device_put(x, wanted)
    return jax.lax.with_sharding_constraint(made, wanted) if traced(made) else made


def _array(x: Any, wanted: Any, stated: Any, terms: Terms) -> Callable[[], Any]:
    if not traced(x):
        given = x.sharding
        if stated is not None:
            check_source(x, named(given) or given, stated)
        if named(given) == wanted:
            return lambda: x
        executor = _executor(x.shape, x.dtype, given, wanted, terms)
        return lambda: executor(x)
    known = sharding_of(x)
    if known is not None and stated is not None:
        known, stated = on_one_mesh(known, stated)
    given = check_source(x, known, stated)
    if given is None and x.ndim == 0:
        return lambda: jax.lax.with_sharding_constraint(x, wanted)
    if given is not None:
        given, wanted = on_one_mesh(given, wanted)
        if staged(x):
            require_one_program(given, wanted)
        _plan_between(x.shape, x.dtype, given, wanted, terms)  # raises here what would else be raised while tracing
    move = Move(given, wanted, terms.memory_limit, _Planner(terms.planner), _run_concrete)
    return lambda: apply(x, move)


@dataclass(frozen=True, slots=True)
class _Planner:
    """Plans for traced operands, which are never donated."""

    planner: Callable[[Layout, Layout, int | None, bool], Plan]

    def __call__(self, source: Layout, target: Layout, memory_limit: int | None) -> Plan:
        return self.planner(source, target, memory_limit, False)


def _run_concrete(x: Any, move: Move) -> Any:
    assert isinstance(move.planner, _Planner)
    terms = Terms(move.memory_limit, False, move.planner.planner)
    wanted = concrete(move.wanted, x)
    return x if x.sharding == wanted else _executor(x.shape, x.dtype, x.sharding, wanted, terms)(x)


def _plan_between(shape: tuple[int, ...], dtype: Any, given: Any, wanted: Any, terms: Terms) -> Plan:
    """The plan from one JAX sharding to another. Raises BackendError where the target is partial and the
    source is not."""
    source, target = Layout.from_jax(shape, dtype, given), Layout.from_jax(shape, dtype, wanted)
    if target.partial and not source.partial:
        axes = ", ".join(map(str, target.partial_axes))
        raise BackendError(
            f"sharding {wanted.spec} is unreduced over {axes}, but the array is not: "
            "a finished value does not become a partial one; leave unreduced out"
        )
    return terms.planner(source, target, terms.memory_limit, terms.donate)


def plan_for(x: Any, sharding: Any, source: Any, terms: Terms) -> Plan:
    """The plan of `reshard` for one array, or the shape and dtype of one."""
    wanted = resolved(sharding, "sharding")
    check_target(x.shape, wanted, "sharding")
    stated = None if source is None else resolved(source, "source", wanted.mesh)
    known = sharding_of(x) if isinstance(x, jax.Array) else named(x.sharding)
    given = check_source(x, known, stated)
    if given is None:
        raise LayoutError(f"the source of {x} is not known; pass source=, the sharding it has")
    return _plan_between(x.shape, x.dtype, given, wanted, terms)


@lru_cache(maxsize=1024)
def _executor(shape: tuple[int, ...], dtype: Any, given: Any, wanted: Any, terms: Terms) -> Executor:
    plan = _plan_between(shape, dtype, given, wanted, terms)
    return prepare(plan, named(given) or plan.source.to_jax(), wanted)

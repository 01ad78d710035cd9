"""Calls of a partitioned function: static and donated arguments, leaves, abstract values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redist.errors import TracingError
from redist.partir_core.distributed import DistributedArray, is_key
from redist.partir_core.names import argument_names, path_names

__all__ = ["Call", "Marks", "abstract_of"]


@dataclass(frozen=True, slots=True)
class Marks:
    """Which arguments are static or donated, by position and by name."""

    static: tuple[int, ...] = ()
    static_names: tuple[str, ...] = ()
    donated: frozenset[int] = frozenset()
    donated_names: frozenset[str] = frozenset()

    @staticmethod
    def of(fn: Callable[..., Any], static: Any, static_names: Any, donated: Any, donated_names: Any) -> Marks:
        """Positions and names completed from one another by the signature. Raises TracingError."""
        try:
            parameters = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        given: list[tuple[set[int], set[str]]] = []
        for numbers, names in ((static, static_names), (donated, donated_names)):
            positions = {n % len(named) if n < 0 and named else n for n in _tuple(numbers, int)}
            called = set(_tuple(names, str))
            every = any(p.kind is p.VAR_KEYWORD for p in parameters) or not parameters
            unknown = sorted(called - {p.name for p in parameters})
            if unknown and not every:
                there = ", ".join(p.name for p in parameters)
                raise TracingError(f"the function has no arguments {', '.join(unknown)}; it has {there}")
            positions |= {named.index(name) for name in called if name in named}
            called |= {named[n] for n in positions if n < len(named)}
            given.append((positions, called))
        both = given[0][0] & given[1][0]
        if both:
            raise TracingError(f"arguments {sorted(both)} are both static and donated; a static one holds no arrays")
        return Marks(
            tuple(sorted(given[0][0])), tuple(sorted(given[0][1])), frozenset(given[1][0]), frozenset(given[1][1])
        )


def _tuple(given: Any, kind: type) -> tuple[Any, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, kind) else tuple(given)


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of one call: leaves, and abstract ones to trace with. `key` tells calls apart that need
    another program."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_args: tuple[Any, ...]
    dynamic_kwargs: dict[str, Any]
    leaves: list[Any]
    tree: Any
    key: Any
    positions: tuple[int, ...]

    @staticmethod
    def of(fn: Callable[..., Any], marks: Marks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Raises TracingError for leaves that are not arrays, naming them, and static values without a hash."""
        from redist.collectives.backends.jax.modules import jax

        positions = tuple(n for n in range(len(args)) if n not in marks.static)
        dynamic = tuple(args[n] for n in positions)
        named = {name: value for name, value in kwargs.items() if name not in marks.static_names}
        leaves, tree = jax.tree.flatten((dynamic, named))
        wrong = [n for n, leaf in enumerate(leaves) if not _is_array(leaf)]
        if wrong:
            names = path_names(argument_names(fn, len(args), marks.static), dynamic, named)
            listed = ", ".join(f"{names[n]} is {leaves[n]!r}" for n in wrong[:5])
            raise TracingError(f"{listed}: arguments are arrays and pytrees of arrays; name others in static_argnames")
        shapes = [abstract_of(leaf) for leaf in leaves]
        abstract, abstract_named = jax.tree.unflatten(tree, shapes)
        full = list(args)
        for n, value in zip(positions, abstract, strict=True):
            full[n] = value
        static = tuple((n, args[n]) for n in range(len(args)) if n in marks.static)
        static += tuple(sorted((name, value) for name, value in kwargs.items() if name in marks.static_names))
        key = (tree, static, tuple((s.shape, s.dtype, s.weak_type) for s in shapes))
        try:
            hash(key)
        except TypeError:
            listed = ", ".join(f"{name}={value!r}" for name, value in static)
            raise TracingError(f"static arguments are to be hashable: {listed}") from None
        return Call(tuple(full), {**kwargs, **abstract_named}, abstract, abstract_named, leaves, tree, key, positions)

    @property
    def traced(self) -> bool:
        """Whether some argument is being traced."""
        from redist.collectives.backends.jax.modules import jax

        return any(isinstance(leaf, jax.core.Tracer) for leaf in self.leaves)

    def arguments(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments, static ones included, with these leaves."""
        from redist.collectives.backends.jax.modules import jax

        dynamic, named = jax.tree.unflatten(self.tree, leaves)
        full = list(self.args)
        for n, value in zip(self.positions, dynamic, strict=True):
            full[n] = value
        return tuple(full), {**self.kwargs, **named}

    def donated(self, marks: Marks) -> tuple[int, ...]:
        """Positions of donated leaves."""
        from redist.collectives.backends.jax.modules import jax

        flags: list[bool] = []
        for n, value in zip(self.positions, self.dynamic_args, strict=True):
            flags += [n in marks.donated] * len(jax.tree.leaves(value))
        for name in sorted(self.dynamic_kwargs):
            flags += [name in marks.donated_names] * len(jax.tree.leaves(self.dynamic_kwargs[name]))
        return tuple(n for n, flag in enumerate(flags) if flag)


def _is_array(leaf: Any) -> bool:
    return (hasattr(leaf, "shape") and hasattr(leaf, "dtype")) or isinstance(leaf, (bool, int, float, complex))


def abstract_of(leaf: Any) -> Any:
    """Shape and dtype alone: where an array is has no say in what is traced."""
    from redist.collectives.backends.jax.modules import jax

    if isinstance(leaf, jax.ShapeDtypeStruct):
        struct: Any = leaf
        return jax.ShapeDtypeStruct(struct.shape, struct.dtype, weak_type=struct.weak_type)
    if isinstance(leaf, DistributedArray):
        dtype = leaf.dtype if is_key(leaf) else jax.dtypes.canonicalize_dtype(leaf.dtype)
        return jax.ShapeDtypeStruct(leaf.shape, dtype, weak_type=leaf.weak_type)
    aval: Any = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)

"""Names of inputs and outputs (argument, then pytree path, joined by `/`), and the patterns that match them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

__all__ = ["argument_names", "leaf_paths", "near", "output_names", "path_names", "select"]


def argument_names(function: Callable[..., Any], count: int, static: Iterable[int] = ()) -> tuple[str, ...]:
    """Names of the first `count` positional arguments that are not static: `x`, or `args/0` of `*args`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}/{n}" for n in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    names += [f"arg{n}" for n in range(len(names), count)]
    skipped = set(static)
    return tuple(name for n, name in enumerate(names[:count]) if n not in skipped)


def path_names(arguments: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, ...]:
    """Name of every leaf of the arguments, in JAX's order."""
    from redist.collectives.backends.jax.modules import jax

    names: list[str] = []
    for path, _ in jax.tree.flatten_with_path((tuple(args), kwargs))[0]:
        first: str = arguments[int(_key(path[1]))] if _key(path[0]) == 0 else str(_key(path[1]))
        names.append("/".join([first, *(str(_key(part)) for part in path[2:])]))
    return tuple(names)


def output_names(tree: Any) -> tuple[str, ...]:
    """Name of every leaf of a result: its pytree path, `result` where it is the result itself."""
    from redist.collectives.backends.jax.modules import jax

    return tuple(
        "/".join(str(_key(part)) for part in path) or "result" for path, _ in jax.tree.flatten_with_path(tree)[0]
    )


def leaf_paths(tree: Any) -> list[tuple[tuple[str, ...], Any]]:
    """(path, leaf) of every leaf, None included."""
    from redist.collectives.backends.jax.modules import jax

    found = jax.tree.flatten_with_path(tree, is_leaf=_is_none)[0]
    return [(tuple(str(_key(part)) for part in path), leaf) for path, leaf in found]


def _is_none(node: Any) -> bool:
    return node is None


def _key(part: Any) -> Any:
    for attribute in ("key", "idx", "name"):
        if hasattr(part, attribute):
            return getattr(part, attribute)
    return part


def select(pattern: str, names: Sequence[str]) -> dict[int, int]:
    """{index of each matching name: number of its parts that the pattern covers}.

    A pattern covers a name or any of its ancestors: `params` covers `params/w`. `*`, `?` and `[..]` stand
    for characters inside a part, `**` for any number of parts.
    """
    wanted = pattern.split("/")
    found: dict[int, int] = {}
    for n, name in enumerate(names):
        covered = _covered(wanted, name.split("/"))
        if covered is not None:
            found[n] = covered
    return found


def _covered(wanted: Sequence[str], parts: Sequence[str]) -> int | None:
    """How many leading parts the pattern takes, or None."""
    if not wanted:
        return 0
    if wanted[0] == "**":
        for skipped in range(len(parts) + 1):
            rest = _covered(wanted[1:], parts[skipped:])
            if rest is not None and (wanted[1:] or skipped == len(parts)):
                return skipped + rest
        return None
    if not parts or not fnmatchcase(parts[0], wanted[0]):
        return None
    rest = _covered(wanted[1:], parts[1:])
    return None if rest is None else 1 + rest


def near(pattern: str, names: Sequence[str], count: int = 5) -> list[str]:
    """Names and ancestors of names that look like the pattern, the most alike first."""
    known: dict[str, None] = {}
    for name in names:
        parts = name.split("/")
        known.update(dict.fromkeys("/".join(parts[:n]) for n in range(1, len(parts) + 1)))
    close = difflib.get_close_matches(pattern, known, n=count, cutoff=0.5)
    last = pattern.rsplit("/", maxsplit=1)[-1]
    same_end = [name for name in known if name.split("/")[-1] == last]
    return list(dict.fromkeys([*close, *same_end]))[:count] or list(known)[:count]

"""Arguments that are a mapping, or its items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

__all__ = ["pairs_of"]

_K = TypeVar("_K")
_V = TypeVar("_V")


def pairs_of(given: Mapping[_K, _V] | Iterable[tuple[_K, _V]]) -> list[tuple[_K, _V]]:
    """The (key, value) pairs of a mapping, or the pairs themselves."""
    if isinstance(given, Mapping):
        return list(cast("Mapping[_K, _V]", given).items())
    return list(given)

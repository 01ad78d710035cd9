"""Random shapes and values, and the list of programs made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np

Program = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass
class Draw:
    """Random shapes and values."""

    rng: Random

    def __post_init__(self) -> None:
        self.numbers = np.random.default_rng(self.rng.randrange(2**32))

    def size(self) -> int:
        return self.rng.choice([1, 2, 3, 4, 4, 6])

    def shape(self, low: int = 1, high: int = 3) -> tuple[int, ...]:
        return tuple(self.size() for _ in range(self.rng.randint(low, high)))

    def floats(self, *shape: int, dtype: str = "float32") -> Any:
        return jnp.asarray(self.numbers.uniform(0.1, 0.9, shape), dtype)

    def mixed(self, *shape: int) -> Any:
        return jnp.asarray(self.numbers.normal(size=shape), "float32")

    def ints(self, *shape: int, low: int = 0, high: int = 9, dtype: str = "int32") -> Any:
        return jnp.asarray(self.numbers.integers(low, high, shape), dtype)

    def bools(self, *shape: int) -> Any:
        return jnp.asarray(self.numbers.random(shape) < 0.5)

    def any(self, *shape: int) -> Any:
        return self.rng.choice([self.mixed, self.ints, partial(self.floats, dtype="bfloat16")])(*shape)

    def positive(self, batch: tuple[int, ...], n: int) -> Any:
        data = self.mixed(*batch, n, n)
        return data @ jnp.swapaxes(data, -1, -2) + 3 * jnp.eye(n)

    def axis(self, shape: tuple[int, ...]) -> int:
        return self.rng.randrange(len(shape))


Maker = Callable[[Draw], Program]
EXAMPLES: list[tuple[str, Maker]] = []
"""Names of primitives, separated by spaces, and what makes a program that performs them."""


def example(names: str) -> Callable[[Maker], Maker]:
    def add(maker: Maker) -> Maker:
        EXAMPLES.append((names, maker))
        return maker

    return add

"""GPT-2 small as it is published: the names and shapes of its parameters, how training and serving lay
them out, and a value for every element that says where it belongs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from redist.types import Layout, Mesh

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LAYERS", "SERVING", "TRAINING", "Leaf", "expected_bits", "tree"]

LAYERS = 12
TRAINING = Mesh.parse("data=4,model=2")
SERVING = Mesh.parse("model=8")

_OUTSIDE = {
    # Rows of the vocabulary divide by nothing (50257 = 29 * 1733), so the embedding is cut along its features.
    "wte.weight": ("f32[50257, 768{model,data}]", "f32[50257, 768{model}]"),
    "wpe.weight": ("f32[1024{data}, 768{model}]", "f32[1024, 768]"),
}
_NORM = {
    "weight": ("f32[768{data}]", "f32[768]"),
    "bias": ("f32[768{data}]", "f32[768]"),
}
_LAYER = {
    **{f"ln_1.{name}": layouts for name, layouts in _NORM.items()},
    "attn.c_attn.weight": ("f32[768{data}, 2304{model}]", "f32[768, 2304{model}]"),
    "attn.c_attn.bias": ("f32[2304{model,data}]", "f32[2304{model}]"),
    "attn.c_proj.weight": ("f32[768{model}, 768{data}]", "f32[768{model}, 768]"),
    "attn.c_proj.bias": ("f32[768{data}]", "f32[768]"),
    **{f"ln_2.{name}": layouts for name, layouts in _NORM.items()},
    "mlp.c_fc.weight": ("f32[768{data}, 3072{model}]", "f32[768, 3072{model}]"),
    "mlp.c_fc.bias": ("f32[3072{model,data}]", "f32[3072{model}]"),
    "mlp.c_proj.weight": ("f32[3072{model}, 768{data}]", "f32[3072{model}, 768]"),
    "mlp.c_proj.bias": ("f32[768{data}]", "f32[768]"),
}
"""(training, serving): column-parallel c_attn and c_fc, row-parallel c_proj; training also cuts over `data`."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One parameter; `start` is the number of parameters before it in the tree."""

    name: str
    source: Layout
    target: Layout
    start: int

    @property
    def elements(self) -> int:
        """How many parameters it holds."""
        return math.prod(self.source.shape)


def tree(layers: int = LAYERS) -> list[Leaf]:
    """The parameters in the model's order."""
    texts = list(_OUTSIDE.items())
    texts += [(f"h.{n}.{name}", layouts) for n in range(layers) for name, layouts in _LAYER.items()]
    texts += [(f"ln_f.{name}", layouts) for name, layouts in _NORM.items()]
    leaves: list[Leaf] = []
    start = 0
    for name, (source, target) in texts:
        leaves.append(Leaf(name, Layout.parse(source, TRAINING), Layout.parse(target, SERVING), start))
        start += leaves[-1].elements
    return leaves


_BITS = 27
_ODD = np.uint32(0x5851F42D)
_SMALLEST = np.uint32(0x38000000)


def expected_bits(leaf: Leaf, index: tuple[slice, ...]) -> NDArray[np.uint32]:
    """The elements of a block as bits of f32, between 2**-15 and 2.

    Parameter number n of the tree has the n-th of 2**27 different values, in scrambled order: no two of
    its 124,439,808 parameters are equal, so one in the wrong place is seen.
    """
    number = np.full((1,) * len(index), leaf.start, dtype=np.uint32)
    for i, (piece, size) in enumerate(zip(index, leaf.source.shape, strict=True)):
        along = np.arange(*piece.indices(size), dtype=np.uint32)
        stride = math.prod(leaf.source.shape[i + 1 :])
        number = number + (along * np.uint32(stride)).reshape([-1 if n == i else 1 for n in range(len(index))])
    number *= _ODD
    number &= np.uint32(2**_BITS - 1)
    number += _SMALLEST
    return number

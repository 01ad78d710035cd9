"""Programs of random small shapes, by the primitives they are meant to perform."""

from opcases.draw import EXAMPLES, Draw
from opcases.examples import contract, elementwise, indices, linalg, random, reductions, shapes

__all__ = ["EXAMPLES", "Draw", "contract", "elementwise", "indices", "linalg", "random", "reductions", "shapes"]

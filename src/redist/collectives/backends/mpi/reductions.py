"""Reductions as MPI operations with the semantics of NumPy's.

Integers, and sums and products of the floating-point types that MPI knows, are MPI's own. Everything else
(bf16 and its kin, f16, other byte orders, maxima that must hand on NaN) is an operation of ours on the
elements' bytes, by NumPy. Each addition or multiplication rounds to the dtype, as the NumPy reference does;
in which order the ranks' contributions come is up to MPI.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.mpi.runtime import mpi
from redist.errors import BackendError
from redist.types.dtypes import numpy_dtype

if TYPE_CHECKING:
    from redist.types.layout import Reduction

__all__ = ["reduction", "require_reducible"]

_UFUNCS: dict[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
_DTYPES: dict[int, np.dtype[Any]] = {}
"""Element type by MPI datatype handle: what an operation is told is the datatype."""


def require_reducible(kind: Reduction, dtype: str) -> None:
    """Raises BackendError where NumPy has no such reduction of the dtype."""
    nothing = np.empty(0, dtype=numpy_dtype(dtype))
    try:
        _UFUNCS[kind](nothing, nothing, out=nothing, casting="unsafe")
    except TypeError:
        raise BackendError(f"values of dtype {dtype} have no {kind}; reduce them in a dtype that does") from None


def reduction(kind: Reduction, dtype: str) -> tuple[Any, Any]:
    """(MPI datatype of an element, MPI operation). Both live as long as the process."""
    element = numpy_dtype(dtype)
    native = _native(kind, element)
    return native if native is not None else (_bytes_of(element), _ours(kind))


def _native(kind: Reduction, element: np.dtype[Any]) -> tuple[Any, Any] | None:
    if not element.isnative:
        return None
    if element.kind == "b":  # as in NumPy, a sum is true where any is, a product where all are
        return mpi().UINT8_T, mpi().BOR if kind in ("sum", "max") else mpi().BAND
    exact = element.kind in "iu" and element.isbuiltin == 1
    if not exact and not (element.char in "fdFD" and kind in ("sum", "prod")):
        return None
    op = {"sum": mpi().SUM, "max": mpi().MAX, "min": mpi().MIN, "prod": mpi().PROD}[kind]
    names = {"i": "INT{}_T", "u": "UINT{}_T"}
    if exact:
        return getattr(mpi(), names[element.kind].format(8 * element.itemsize)), op
    floats = {"f": "FLOAT", "d": "DOUBLE", "F": "C_FLOAT_COMPLEX", "D": "C_DOUBLE_COMPLEX"}
    return getattr(mpi(), floats[element.char]), op


@lru_cache(maxsize=256)
def _bytes_of(element: np.dtype[Any]) -> Any:
    made = mpi().BYTE.Create_contiguous(element.itemsize).Commit()
    _DTYPES[made.handle] = element
    return made


@lru_cache(maxsize=4)
def _ours(kind: Reduction) -> Any:
    ufunc = _UFUNCS[kind]

    def combine(given: Any, kept: Any, datatype: Any) -> None:
        element = _DTYPES[datatype.handle]
        a = np.frombuffer(given, dtype=np.uint8).view(element)
        b = np.frombuffer(kept, dtype=np.uint8).view(element)
        with np.errstate(all="ignore"):
            ufunc(a, b, out=b, casting="unsafe")

    return mpi().Op.Create(combine, commute=True)

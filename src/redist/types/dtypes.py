"""Element types by name: short names as in JAX (`f32`, `bf16`, `i8`, `bool`), any other NumPy dtype in quotes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import LayoutError

__all__ = ["dtype_name", "itemsize", "numpy_dtype"]

_NUMPY_NAMES = {
    "bool": "bool",
    **{f"i{8 * n}": f"int{8 * n}" for n in (1, 2, 4, 8)},
    **{f"u{8 * n}": f"uint{8 * n}" for n in (1, 2, 4, 8)},
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
_ML_NAMES = {
    "bf16": "bfloat16",
    "i2": "int2",
    "i4": "int4",
    "u2": "uint2",
    "u4": "uint4",
    "f4e2m1fn": "float4_e2m1fn",
    "f6e2m3fn": "float6_e2m3fn",
    "f6e3m2fn": "float6_e3m2fn",
    "f8e3m4": "float8_e3m4",
    "f8e4m3": "float8_e4m3",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
}
_LONG_TO_SHORT = {long: short for short, long in (_NUMPY_NAMES | _ML_NAMES).items()}
_XLA_NAMES = {"pred": "bool", **{f"s{n}": f"i{n}" for n in (2, 4, 8, 16, 32, 64)}}


@lru_cache(maxsize=1024)
def dtype_name(dtype: Any) -> str:
    """Canonical name of a dtype given as a short or long name, an XLA name, or a NumPy dtype.

    Raises LayoutError for what is neither, and for dtypes that hold Python objects.
    """
    if isinstance(dtype, str):
        dtype = _XLA_NAMES.get(dtype, dtype)
        if dtype in _NUMPY_NAMES or dtype in _ML_NAMES:
            return dtype
        if dtype in _LONG_TO_SHORT:
            return _LONG_TO_SHORT[dtype]
    try:
        if dtype is None:
            raise TypeError("NumPy takes None for float64")
        resolved = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # NumPy parses comma-separated text as Python
        raise LayoutError(
            f"unknown dtype {str(dtype)!r}: use a short name ({', '.join(_NUMPY_NAMES)}, {', '.join(_ML_NAMES)}), "
            "or a NumPy dtype"
        ) from None
    if resolved.hasobject:
        raise LayoutError(f"dtype {resolved} holds Python objects, which have no bytes to move; use a plain dtype")
    if resolved.fields is not None or resolved.subdtype is not None:
        raise LayoutError(
            f"structured dtype {resolved} has no name in a layout; view the array as bytes, V{resolved.itemsize}"
        )
    native = resolved.newbyteorder("=") if resolved.byteorder == "|" else resolved
    return _LONG_TO_SHORT.get(native.name, native.str) if native.isnative else native.str


@lru_cache(maxsize=1024)
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a canonical name; ml_dtypes is imported where it is needed."""
    if name in _NUMPY_NAMES:
        return np.dtype(_NUMPY_NAMES[name])
    if name in _ML_NAMES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, _ML_NAMES[name]))
    return np.dtype(name)


def itemsize(name: str) -> int:
    """Bytes per element as NumPy holds it (sub-byte types take a byte each)."""
    return numpy_dtype(name).itemsize

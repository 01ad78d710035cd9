"""Deterministic arrays whose elements tell where they belong: a value depends on its global index alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.types.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["counted"]

_ODD = np.uint64(0x9E3779B97F4A7C15)


def counted(shape: tuple[int, ...], dtype: str, box: tuple[slice, ...] | None = None) -> NDArray[Any]:
    """Element n (row-major) is n times an odd number, in as many bits as the dtype holds exactly; of the
    whole array, or of a box of it.

    All elements differ where there are that many values (2**24 of f32); where there are not, they repeat
    without a period that blocks could share.
    """
    parts = [range(size) for size in shape] if box is None else [range(part.start, part.stop) for part in box]
    index = np.zeros([len(part) for part in parts], dtype=np.uint64)
    for i, (part, size) in enumerate(zip(parts, shape, strict=True)):
        index *= np.uint64(size)
        index += np.arange(part.start, part.stop, dtype=np.uint64).reshape([-1] + [1] * (len(shape) - i - 1))
    return _in_dtype(index.reshape(-1) * _ODD, numpy_dtype(dtype), math.prod(shape)).reshape(index.shape)


def _in_dtype(scrambled: NDArray[np.uint64], dtype: np.dtype[Any], total: int) -> NDArray[Any]:
    if dtype.kind == "c":
        half = np.dtype(f"f{dtype.itemsize // 2}")
        made = np.empty(scrambled.shape, dtype=dtype)
        made.real, made.imag = _in_dtype(scrambled, half, total), _in_dtype(~scrambled, half, total)
        return made
    bits = _exact_bits(dtype)
    if bits is not None:
        # The low bits are a bijection, but with a power of two as their period; the high ones have none.
        low = total <= 1 << bits
        kept = scrambled & np.uint64((1 << bits) - 1) if low else scrambled >> np.uint64(64 - bits)
        return kept.astype(np.int64).astype(dtype)
    width = dtype.itemsize  # dates, fixed-width text, raw bytes
    raw = np.zeros((len(scrambled), width), dtype=np.uint8)
    raw[:, : min(8, width)] = scrambled[:, None].view(np.uint8)[:, : min(8, width)]
    return raw.reshape(-1).view(dtype)


def _exact_bits(dtype: np.dtype[Any]) -> int | None:
    """b such that the dtype holds 0..2**b - 1 exactly; None where it is no number."""
    if dtype.kind == "b":
        return 1
    if dtype.kind in "iu":
        return min(62, 8 * dtype.itemsize - (dtype.kind == "i"))
    if dtype.kind == "f":
        return min(62, np.finfo(dtype).nmant + 1)
    if dtype.name.startswith(("float", "bfloat", "int", "uint")):
        import ml_dtypes

        if "float" in dtype.name:
            finfo: Any = ml_dtypes.finfo
            info = finfo(dtype)
            return max(1, min(int(info.nmant) + 1, int(math.log2(float(info.max)))))
        return int(ml_dtypes.iinfo(dtype).max).bit_length()
    return None

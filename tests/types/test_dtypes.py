"""Names of dtypes: every notation leads to one name, and the name back to the dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from redist.errors import LayoutError
from redist.types import Layout, Mesh
from redist.types.dtypes import dtype_name, itemsize, numpy_dtype

SHORT = ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "c64", "c128"]
SMALL = ["bf16", "i2", "i4", "u2", "u4", "f4e2m1fn", "f6e2m3fn", "f6e3m2fn", "f8e3m4", "f8e4m3", "f8e4m3b11fnuz"]
SMALL += ["f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu"]
QUOTED = [">f4", "<M8[ns]", "|S5", "<U3", "|V16", np.dtype(np.longdouble).str]


@pytest.mark.parametrize("name", [*SHORT, *SMALL, *QUOTED])
def test_names_and_dtypes_are_one_to_one(name: str) -> None:
    """name -> NumPy dtype -> name, also through its long name, and through a layout's text."""
    dtype = numpy_dtype(name)
    assert dtype_name(name) == dtype_name(dtype) == dtype_name(dtype.str if name in QUOTED else dtype.name) == name
    assert itemsize(name) == dtype.itemsize
    layout = Layout(Mesh({"x": 2}), [4], [["x"]], dtype)
    assert layout.dtype == name and layout.itemsize == dtype.itemsize
    assert str(layout) == (f"'{name}'[4{{x}}]" if name in QUOTED else f"{name}[4{{x}}]")
    assert Layout.parse(str(layout), layout.mesh) == layout


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("pred", "bool"),
        ("s32", "i32"),
        ("s4", "i4"),
        (np.float32, "f32"),
        (ml_dtypes.bfloat16, "bf16"),
        (int, "i64"),
        (bool, "bool"),
        (complex, "c128"),
        ("float8_e4m3fn", "f8e4m3fn"),
        ("complex64", "c64"),
        ("<f4", "f32"),
    ],
)
def test_other_notations(given: Any, name: str) -> None:
    """XLA's names, long names, scalar types of NumPy, of ml_dtypes and of Python."""
    assert dtype_name(given) == name


KNOWN = f"use a short name ({', '.join([*SHORT, *SMALL])}), or a NumPy dtype"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("f33", f"unknown dtype 'f33': {KNOWN}"),
        ("", f"unknown dtype '': {KNOWN}"),
        (None, f"unknown dtype 'None': {KNOWN}"),
        ("S3,(", f"unknown dtype 'S3,(': {KNOWN}"),
        ("(-1)f4", f"unknown dtype '(-1)f4': {KNOWN}"),
        (5, f"unknown dtype '5': {KNOWN}"),
        (object, "dtype object holds Python objects, which have no bytes to move; use a plain dtype"),
        ("O", "dtype object holds Python objects, which have no bytes to move; use a plain dtype"),
        (
            np.dtype([("a", "f4"), ("b", "i2")]),
            "structured dtype [('a', '<f4'), ('b', '<i2')] has no name in a layout; view the array as bytes, V6",
        ),
        ("(2,3)f4", "structured dtype ('<f4', (2, 3)) has no name in a layout; view the array as bytes, V24"),
    ],
)
def test_what_is_no_dtype(given: Any, message: str) -> None:
    """Unknown names, text that NumPy fails to read, objects and records."""
    with pytest.raises(LayoutError) as caught:
        dtype_name(given)
    assert str(caught.value) == message

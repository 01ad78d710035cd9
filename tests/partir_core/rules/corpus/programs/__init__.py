"""The corpus: small programs of widely used libraries, each a function and its arguments.

A module defines `programs() -> dict[str, tuple[Callable, tuple]]`; `collect.py` traces all of them, and their
gradients. The libraries are needed for collecting alone, not for the tests.
"""

"""Where the tests of rules find their operations and the independent reading of rules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)


@pytest.fixture(autouse=True)
def forget_compiled_programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Heavy tests compile thousands of small programs, of which none is used again."""
    yield
    if request.node.get_closest_marker("heavy") is not None:
        import jax

        jax.clear_caches()

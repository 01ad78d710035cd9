"""Audits of peers find what independent ways find: a simulation of their steps, XLA's own memory analysis."""

from __future__ import annotations

import pytest

from benchmarks.proofs.buffers import largest_buffer
from benchmarks.proofs.peers import Comparison, compare_dtensor, compare_shardy, compare_xla
from redist.proofs.audit import dtensor, shardy, xla
from redist.types import Layout, Mesh

pass_here = pytest.mark.skipif(shardy.missing() is not None, reason=str(shardy.missing()))
jax_here = pytest.mark.skipif(xla.missing() is not None, reason=str(xla.missing()))
torch_here = pytest.mark.skipif(dtensor.missing() is not None, reason=str(dtensor.missing()))


def _agreed(found: Comparison) -> Comparison:
    assert found.audit == found.other
    assert not found.undecided
    assert found.counted == found.right
    assert found.right + len(found.audit if found.peer != "xla" else ()) + len(found.failed) == found.asked
    return found


@jax_here
def test_the_largest_buffer() -> None:
    """64 x 64 of f32, of which half is given, half wanted, and all gathered in between."""
    mesh = Mesh.parse("x=2,y=2,z=2")
    ends = Layout.parse("[64, 64{x}]", mesh), Layout.parse("[64{x,y}, 64]", mesh)
    compiled = xla.compile_reshard(*ends)
    assert largest_buffer(compiled) == 64 * 64 * 4
    assert largest_buffer(xla.compile_reshard(ends[0], Layout.parse("[64{x}, 64]", mesh))) == 64 * 32 * 4


@jax_here
def test_xla_on_some_pairs() -> None:
    found = _agreed(compare_xla(sample=30))
    assert 0 < len(found.audit) < 15


@pass_here
def test_shardy_on_some_pairs() -> None:
    found = [_agreed(one) for one in compare_shardy(sample=60)]
    assert [one.pairs for one in found] == [2352, 2352, 2352, 67860]
    assert all(one.asked == 60 for one in found)


@pass_here
@pytest.mark.heavy
def test_shardy_on_all_pairs() -> None:
    """2x3x5, 3x4x5 and 2x3x4 exhaustively, 6,000 of 67,860 on 2x2x2x3."""
    found = {one.family: _agreed(one) for one in compare_shardy(sample=6000)}
    assert {name: (one.asked, len(one.audit), len(one.failed)) for name, one in found.items()} == {
        "2x3x5 rank 2": (2352, 18, 0),
        "3x4x5 rank 2": (2352, 18, 0),
        "2x3x4 rank 2": (2352, 6, 21),
        "2x2x2x3 rank 2": (6000, len(found["2x2x2x3 rank 2"].audit), len(found["2x2x2x3 rank 2"].failed)),
    }
    assert len(found["2x2x2x3 rank 2"].audit) > 0


@jax_here
@pytest.mark.heavy
def test_xla_on_all_pairs() -> None:
    """324 of 2,352 pairs hold the full array on the way."""
    found = _agreed(compare_xla())
    assert (found.asked, len(found.audit)) == (2352, 324)


@torch_here
@pytest.mark.heavy
@pytest.mark.parametrize("shortest_path", [False, True])
def test_dtensor_on_some_pairs(shortest_path: bool) -> None:
    for found in compare_dtensor(shortest_path, sample=300):
        _agreed(found)

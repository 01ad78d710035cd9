"""Partitioned functions on MPI ranks do what `jax.jit` does with the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def same_losses(found: Any) -> None:
    expected = found.pop("unpartitioned")
    assert len(expected) == 3
    for losses in found.values():
        np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_programs(on_ranks: Any) -> None:
    """Cases of `programs.py`, compared there on every rank."""
    found = on_ranks(4, "programs.py", "decoding", "scans", "control_flow", "random_numbers", "dtypes", "meshes")
    assert set(found.values()) == {None}


def test_calls(on_ranks: Any) -> None:
    found = on_ranks(4, "programs.py", "passing", "plain_calls", "donation", "compiled")
    assert found["donation"] == (
        "DistributedArray(f32[16{B}, 8] on B=2,M=2) was donated to a partitioned function, which has used its memory"
    )
    assert found["compiled"]["all_gather"] > 0


def test_training_steps(on_ranks: Any) -> None:
    found = on_ranks(4, "programs.py", "training")["training"]
    assert len(found) == 4
    same_losses(found)


@pytest.mark.heavy
def test_training_steps_of_larger_models(on_ranks: Any) -> None:
    cases = on_ranks(4, "programs.py", "training_two_layers", "training_clipped_and_checkpointed")
    assert set(cases["training_two_layers"]) == {"unpartitioned", "BP", "MP", "BP+MP", "BP+MP+Z2", "BP+MP+Z3"}
    for found in cases.values():
        same_losses(found)

"""Partitioned functions on MPI ranks do what `jax.jit` does with the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.partir_core.reductions import DTYPES


def same_losses(found: Any) -> None:
    expected = found.pop("unpartitioned")
    assert len(expected) == 3
    for losses in found.values():
        np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_programs(on_ranks: Any) -> None:
    """Cases of `programs.py`, compared there on every rank."""
    found = on_ranks(4, "programs.py", "scans", "control_flow", "random_numbers", "dtypes", "meshes")
    assert set(found.values()) == {None}


def test_models_and_reductions(on_ranks: Any) -> None:
    """Cases of `models.py`, compared there on every rank; each reduction is one collective, of what is whole an
    all-reduce, of what is needed in parts a reduce-scatter."""
    found = on_ranks(4, "models.py", "graph_network", "decoding", "optax_chain", "reductions")
    for dtype, counts in found.pop("reductions").items():
        kinds = len(DTYPES[dtype])
        assert _made(counts) == {"all_reduce": kinds, "reduce_scatter": kinds}
    rounds, layers, tokens = 2, 1, 8
    edges = 5 * rounds - 2  # see tests/partir_core/test_programs.py
    assert {name: [_made(counts) for counts in schedules.values()] for name, schedules in found.items()} == {
        "graph_network": [{"all_reduce": edges}, {"all_reduce": edges + 4 * rounds - 1}],
        "decoding": [{}, {"all_reduce": 2 * layers * tokens}],
        "optax_chain": [{"all_reduce": 4}, {"all_gather": 2, "all_reduce": 4, "reduce_scatter": 2}],
    }


@pytest.mark.heavy
def test_larger_models(on_ranks: Any) -> None:
    found = on_ranks(4, "models.py", "unet_block", "equinox_gru", "optax_lbfgs")
    assert [_made(counts) for counts in found["unet_block"].values()] == [{"all_reduce": 24}, {"all_reduce": 28}]
    steps, cell, head, loss = 5, 4, 2, 1  # of the cell's 4 arrays, one is needed on the way back too
    assert [_made(counts) for counts in found["equinox_gru"].values()] == [
        {"all_reduce": cell * steps + head + loss},
        {"all_gather": (cell + 1) * steps, "all_reduce": head + loss, "reduce_scatter": cell * steps},
    ]
    assert all(counts["all_reduce"] > 0 for counts in found["optax_lbfgs"].values())


def _made(counts: dict[str, int]) -> dict[str, int]:
    return {kind: n for kind, n in counts.items() if n}


def test_calls(on_ranks: Any) -> None:
    found = on_ranks(4, "programs.py", "passing", "plain_calls", "donation", "compiled")
    assert found["donation"] == (
        "DistributedArray(f32[16{B}, 8] on B=2,M=2) was donated to a partitioned function, which has used its memory"
    )
    assert found["compiled"]["all_gather"] > 0


def test_training_steps(on_ranks: Any) -> None:
    found = on_ranks(4, "programs.py", "training")["training"]
    assert len(found) == 3
    same_losses(found)


@pytest.mark.heavy
def test_training_steps_of_larger_models(on_ranks: Any) -> None:
    cases = on_ranks(4, "programs.py", "training_two_layers", "training_clipped_and_checkpointed")
    assert set(cases["training_two_layers"]) == {"unpartitioned", "BP", "MP", "BP+MP", "BP+MP+Z2", "BP+MP+Z3"}
    for found in cases.values():
        same_losses(found)

"""What partitioning is measured on: this repository's models with their schedules, on 8 devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.models import decode, gpt, graphnet, llama, unet
from benchmarks.models.schedules import (
    BP,
    EDGES,
    GPT_MP,
    GPT_Z2,
    GPT_Z3,
    GRAPH_MP,
    LLAMA_MP,
    LLAMA_Z2,
    LLAMA_Z3,
    UNET_MP,
)
from benchmarks.partir_third import PROGRAMS, Case
from redist import Mesh
from redist.partir_core import ManualPartition

__all__ = ["GPT_SCHEDULES", "MESH", "models", "third_party", "transformer"]

MESH = Mesh({"B": 4, "M": 2})

GPT_SCHEDULES: Mapping[str, Sequence[ManualPartition]] = {
    "BP": [BP],
    "BP+MP": [BP, GPT_MP],
    "BP+MP+Z2": [BP, GPT_MP, GPT_Z2],
    "BP+MP+Z3": [BP, GPT_MP, GPT_Z3],
    "MP": [GPT_MP],
}
_LLAMA_SCHEDULES = {
    "BP": [BP],
    "BP+MP": [BP, LLAMA_MP],
    "BP+MP+Z2": [BP, LLAMA_MP, LLAMA_Z2],
    "BP+MP+Z3": [BP, LLAMA_MP, LLAMA_Z3],
}


def transformer(config: gpt.Config) -> Case:
    """The GPT's training step, from random numbers."""
    key = jax.random.key(0)
    args = (*gpt.state_of(config, key), gpt.batch_of(config, key))
    return Case(partial(gpt.training_step, config), args, GPT_SCHEDULES)


def models() -> dict[str, Callable[[], Case]]:
    """This repository's models at a small size."""

    def llama_step() -> Case:
        config = llama.Config(layers=2, width=64, heads=8, groups=4, hidden=128, vocabulary=256, batch=8, length=32)
        args = (*llama.state_of(config, _key()), llama.batch_of(config, _key()))
        return Case(partial(llama.training_step, config), args, _LLAMA_SCHEDULES)

    def unet_step() -> Case:
        config = unet.Config(size=16, channels=16, groups=4, heads=4, batch=8)
        args = (*unet.state_of(config, _key()), unet.batch_of(config, _key()))
        return Case(partial(unet.training_step, config), args, {"BP": [BP], "BP+MP": [BP, UNET_MP]})

    def graph_step() -> Case:
        config = graphnet.Config(nodes=256, edges=2048, features=16, hidden=64, classes=4, rounds=3)
        args = (*graphnet.state_of(config, _key()), graphnet.graph_of(config, _key()))
        return Case(graphnet.training_step, args, {"edges": [EDGES], "edges+MP": [EDGES, GRAPH_MP]})

    def decoding() -> Case:
        config = gpt.Config(layers=2, width=64, heads=4, vocabulary=256, batch=8, length=32)
        params = jax.tree.map(lambda x: 4 * x, gpt.init(config, _key()))
        tokens = jnp.arange(8) * 31 % config.vocabulary
        batch = ManualPartition({"tokens": 0}, "B", label="BP")
        return Case(partial(decode.decode, config), (params, tokens), {"BP": [batch], "BP+MP": [batch, GPT_MP]})

    small = gpt.Config(layers=2, width=64, heads=4, vocabulary=256, batch=8, length=32)
    return {
        "GPT": lambda: transformer(small),
        "Llama": llama_step,
        "U-Net": unet_step,
        "graph network": graph_step,
        "decoding": decoding,
    }


def third_party() -> dict[str, Callable[[], Case]]:
    """Those programs of third parties whose libraries are installed."""
    return dict(PROGRAMS)


def _key() -> Any:
    return jax.random.key(1)

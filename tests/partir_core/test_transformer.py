"""Collectives of Transformer training steps at full size, from shapes, against counts derived by hand.

A layer of the GPT has 4 large parameter tensors and 5 small ones, and the embedding is tied: L layers have
9 L + 1 parameters, 4 L + 1 of them large (T32: 289 and 129). What the schedules must cost:

- BP reduces every gradient once and the loss once: 9 L + 2 all-reduces. The embedding's gradient has two
  contributions, of the lookup and of the logits, which are added before they are reduced.
- MP adds, per layer, the sums over heads and over the hidden dimension on the way forward, and over the same
  on the way backward at the inputs of `qkv` and `up`: 4 L all-reduces.
- Z2 scatters the gradients of large parameters instead, and gathers the parameters' updates: of BP's
  all-reduces, 4 L + 1 become reduce-scatters, with as many all-gathers.
- Z3 gathers a large parameter before each use: 4 L forward, 4 L backward, and the embedding for the lookup,
  for the logits, and for their gradient: 8 L + 3. The updates stay sharded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import pytest

from benchmarks.models import gpt, llama
from benchmarks.models.decode import decode
from benchmarks.models.schedules import BP, GPT_MP, GPT_Z2, GPT_Z3, LLAMA_MP, LLAMA_Z2, LLAMA_Z3
from redist import Mesh
from redist import partir_core as partir
from redist.partir_core import ManualPartition

MESH = Mesh({"B": 16, "M": 2})
SCHEDULES = {
    "BP": [BP],
    "BP+MP": [BP, GPT_MP],
    "BP+MP+Z2": [BP, GPT_MP, GPT_Z2],
    "BP+MP+Z3": [BP, GPT_MP, GPT_Z3],
    "MP": [GPT_MP],
}
LLAMA_SCHEDULES = {
    "BP": [BP],
    "BP+MP": [BP, LLAMA_MP],
    "BP+MP+Z2": [BP, LLAMA_MP, LLAMA_Z2],
    "BP+MP+Z3": [BP, LLAMA_MP, LLAMA_Z3],
    "MP": [LLAMA_MP],
}
NONE = {"all_gather": 0, "all_reduce": 0, "reduce_scatter": 0}


@lru_cache(maxsize=16)
def gpt_step(config: gpt.Config) -> Any:
    """One function per configuration, so that JAX traces it once for all schedules."""
    return partial(gpt.training_step, config)


def gpt_report(config: gpt.Config, schedule: Sequence[ManualPartition]) -> partir.Report:
    return partir.jit(gpt_step(config), MESH, schedule).lower(*gpt.shapes(config)).report


def llama_report(config: llama.Config, schedule: Sequence[ManualPartition]) -> partir.Report:
    return partir.jit(partial(llama.training_step, config), MESH, schedule).lower(*llama.shapes(config)).report


def expected(layers: int, name: str) -> dict[str, int]:
    """By the derivation above."""
    large = 4 * layers + 1
    bp, mp = 9 * layers + 2, 4 * layers
    return (
        NONE
        | {
            "BP": {"all_reduce": bp},
            "BP+MP": {"all_reduce": bp + mp},
            "BP+MP+Z2": {"all_gather": large, "all_reduce": bp - large + mp, "reduce_scatter": large},
            "BP+MP+Z3": {"all_gather": 8 * layers + 3, "all_reduce": bp - large + mp, "reduce_scatter": large},
            "MP": {"all_reduce": mp},
        }[name]
    )


PUBLISHED = {
    "BP": {"all_reduce": 290},
    "BP+MP": {"all_reduce": 418},
    "BP+MP+Z2": {"all_gather": 129, "all_reduce": 289, "reduce_scatter": 129},
    "BP+MP+Z3": {"all_gather": 259, "all_reduce": 289, "reduce_scatter": 129},
    "MP": {"all_reduce": 128},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_t32(name: str) -> None:
    report = gpt_report(gpt.T32, SCHEDULES[name])
    report.assert_collectives(**PUBLISHED[name])
    assert expected(32, name) == NONE | PUBLISHED[name]
    assert not report.conflicts and not report.without_rule
    blocked = {(b.op, b.reason.endswith("is REPLICATED along B")) for b in report.blocked}
    assert blocked == ({("sub", True)} if "Z2" in name else set())  # the updates of whole parameters


def test_t32_inputs() -> None:
    inputs = gpt_report(gpt.T32, SCHEDULES["BP+MP+Z3"]).inputs
    layer = {
        "qkv": "f32[4096{B}, 3, 32{M}, 128]",
        "out": "f32[32{M,B}, 128, 4096]",
        "up": "f32[4096{B}, 16384{M}]",
        "down": "f32[16384{M,B}, 4096]",
        "ln1_scale": "f32[4096]",
        "ln1_bias": "f32[4096]",
        "ln2_scale": "f32[4096]",
        "ln2_bias": "f32[4096]",
        "up_bias": "f32[16384{M}]",
    }
    wanted = {"batch/tokens": "i32[48{B}, 1024]", "batch/targets": "i32[48{B}, 1024]"}
    for tree in ("params", "state/m", "state/v"):
        wanted[f"{tree}/embed"] = "f32[32768{B}, 4096]"
        wanted |= {f"{tree}/layer_{n}/{name}": text for n in range(32) for name, text in layer.items()}
    assert {name: str(layout) for name, layout in inputs.items()} == wanted


def test_t32_outputs_are_laid_out_as_the_inputs() -> None:
    report = gpt_report(gpt.T32, SCHEDULES["BP+MP+Z2"])
    for name, layout in report.outputs.items():
        if name != "2":
            tree, _, rest = name.partition("/")
            assert layout == report.inputs[f"{('params', 'state')[int(tree)]}/{rest}"], name


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("layers", [1, 3])
def test_counts_grow_with_layers(layers: int, name: str) -> None:
    gpt_report(replace(gpt.T32, layers=layers), SCHEDULES[name]).assert_collectives(**expected(layers, name))


@pytest.mark.parametrize("name", SCHEDULES)
def test_gradient_clipping_keeps_reduce_scatters(name: str) -> None:
    """The squares of a sharded gradient are summed on each device, and the sums added across devices: one more
    all-reduce of a scalar for each parameter that MP shards (5 a layer, `up_bias` included) or Z2 and Z3
    (the embedding besides)."""
    layers = 3
    report = gpt_report(replace(gpt.T32, layers=layers, clip=True), SCHEDULES[name])
    counts = expected(layers, name)
    counts["all_reduce"] += 5 * layers if "MP" in name else 0
    counts["all_reduce"] += 1 if "Z" in name else 0
    report.assert_collectives(**counts)


@pytest.mark.parametrize("name", SCHEDULES)
def test_checkpointed_layers_do_their_forward_pass_again(name: str) -> None:
    """Once more, per layer, the sum over heads, and under Z3 the parameters `qkv`, `out` and `up`. What `down`
    makes is not needed again."""
    layers = 3
    report = gpt_report(replace(gpt.T32, layers=layers, checkpoint=True), SCHEDULES[name])
    counts = expected(layers, name)
    counts["all_reduce"] += layers if "MP" in name else 0
    counts["all_gather"] += 3 * layers if "Z3" in name else 0
    report.assert_collectives(**counts)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("name", LLAMA_SCHEDULES)
def test_llama(name: str, clip: bool) -> None:
    """9 L + 3 parameters, 7 L + 2 of them large. Query, key and value take one input and their gradients are
    added before they are reduced, as are those of gate and up: MP costs 4 L again. Z3 gathers 7 L forward and
    backward, the embedding once, the head for the logits and their gradient. Clipping adds an all-reduce for
    each of the 7 L norms of parameters that MP shards; those of the embedding and of the head are both along
    B, next to each other in the sum, and added before they are reduced."""
    layers = 4
    large = 7 * layers + 2
    bp, mp = 9 * layers + 3 + 1, 4 * layers
    counts = {
        "BP": {"all_reduce": bp},
        "BP+MP": {"all_reduce": bp + mp},
        "BP+MP+Z2": {"all_gather": large, "all_reduce": bp - large + mp, "reduce_scatter": large},
        "BP+MP+Z3": {"all_gather": 14 * layers + 3, "all_reduce": bp - large + mp, "reduce_scatter": large},
        "MP": {"all_reduce": mp},
    }[name]
    if clip:
        counts["all_reduce"] += 7 * layers if "MP" in name else 0
        counts["all_reduce"] += 1 if "Z" in name else 0
    report = llama_report(replace(llama.Config(), layers=layers, clip=clip), LLAMA_SCHEDULES[name])
    report.assert_collectives(**counts)
    assert not report.conflicts and not report.without_rule


def test_decoding() -> None:
    """32 layers, 1536 steps: batch parallelism is free, MP sums over heads and over the hidden dimension in
    every layer and step. The cache follows its batch and its heads."""
    config = replace(gpt.T32, length=1536, batch=32)
    params = gpt.shapes(config)[0]
    tokens: Any = jax.ShapeDtypeStruct((32,), "int32")
    batch = ManualPartition({"tokens": 0}, "B")
    decoded = partial(decode, config)
    partir.jit(decoded, MESH, [batch]).lower(params, tokens).report.assert_collectives()
    report = partir.jit(decoded, MESH, [batch, GPT_MP]).lower(params, tokens).report
    report.assert_collectives(all_reduce=2 * 32 * 1536)
    assert report.collectives["all_reduce"] == 98304
    assert str(report.outputs["result"]) == "i32[32{B}, 1536]"
    assert not report.uncounted and not report.conflicts


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_zero3_alone_conflicts(layers: int) -> None:
    """Without batch parallelism to say which factor a product is cut along, its operands' shards disagree: a
    report, the same one every time."""
    reports = [gpt_report(replace(gpt.T32, layers=layers), [GPT_Z3]) for _ in range(2)]
    assert reports[0].conflicts == reports[1].conflicts
    assert len(reports[0].conflicts) == 6 * layers
    assert {c.tactic for c in reports[0].conflicts} == {"Z3"}
    assert all("gpt.py:" in c.source or "optim.py:" in c.source for c in reports[0].conflicts)
    batch_first = gpt_report(replace(gpt.T32, layers=layers), [BP, GPT_Z3])
    assert not batch_first.conflicts

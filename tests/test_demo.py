"""The demo: its parameter tree, its reading of XLA's programs, and a quick run of all of it."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from redist.cli.demo.facts import Spread, spread
from redist.cli.demo.gpt2 import SERVING, TRAINING, expected_bits, tree
from redist.cli.demo.move import compare
from redist.cli.demo.report import verdict
from redist.cli.demo.xla import collectives
from redist.errors import ProofError

# -- the tree ------------------------------------------------------------------------------------------


def test_it_is_gpt2() -> None:
    """Names, shapes and the number of parameters are those of the published model."""
    leaves = tree()
    assert len(leaves) == 148
    assert sum(leaf.elements for leaf in leaves) == 124_439_808
    shapes = {leaf.name: leaf.source.shape for leaf in leaves}
    assert shapes["wte.weight"] == (50257, 768)
    assert shapes["h.11.attn.c_attn.weight"] == (768, 2304)
    assert shapes["h.0.mlp.c_proj.weight"] == (3072, 768)
    assert list(shapes)[-1] == "ln_f.bias"


def test_layouts_are_what_jax_can_hold() -> None:
    """Training cuts everything at least in four; serving replicates what is small, and cuts the rest in eight."""
    for leaf in tree():
        assert leaf.source.is_even()
        assert leaf.target.is_even()
        assert (leaf.source.mesh, leaf.target.mesh) == (TRAINING, SERVING)
        assert math.prod(leaf.source.block_counts()) >= 4
        assert math.prod(leaf.target.block_counts()) in (1, 8)


def test_every_parameter_has_a_value_of_its_own() -> None:
    leaves = tree()
    assert all(b.start == a.start + a.elements for a, b in pairwise(leaves))
    some = [expected_bits(leaf, (slice(None),) * len(leaf.source.shape)).ravel() for leaf in leaves[1:4]]
    together = np.concatenate(some)
    assert len(np.unique(together)) == len(together)
    values = together.view(np.float32)
    assert values.min() >= 2**-15
    assert values.max() < 2


def test_blocks_are_parts_of_the_whole() -> None:
    leaf = next(leaf for leaf in tree() if leaf.name == "h.3.attn.c_proj.weight")
    whole = expected_bits(leaf, (slice(None), slice(None)))
    part = (slice(96, 192, None), slice(384, 768, None))
    assert np.array_equal(expected_bits(leaf, part), whole[part])


def test_a_misplaced_element_is_seen() -> None:
    leaf = next(leaf for leaf in tree() if leaf.name == "h.3.attn.c_proj.weight")
    index = (slice(96, 192), slice(None))
    block = expected_bits(leaf, index).view(np.float32)
    assert compare(leaf, [(index, block), (index, block)]) == (2 * block.size, 0)
    block[0, :2] = block[0, 1::-1].copy()
    assert compare(leaf, [(index, block)]) == (block.size, 2)
    with pytest.raises(ProofError, match=re.escape("has shape (768, 96), not (96, 768)")):
        compare(leaf, [(index, block.T)])


# -- measurements --------------------------------------------------------------------------------------


def test_reading_xla_programs() -> None:
    program = """\
    ENTRY %main (param: f32[8,16,4]) -> f32[16,2,16] {
      %param = f32[8,16,4]{2,1,0} parameter(0)
      %copy = f32[8,16,4]{1,0,2} copy(%param)
      %all-gather = f32[8,16,16]{1,0,2} all-gather(%copy), channel_id=1, dimensions={2}
      %x = (f32[192,288]{1,0}, f32[192,288]{1,0}, f32[192,288]{1,0}, f32[192,288]{1,0}) all-to-all(%a, %b, %c, %d)
      ROOT %p = bf16[50257,96]{1,0} collective-permute(%q), source_target_pairs={{0,0},{2,1}}
    }"""
    assert collectives(program) == (
        ["all-gather", "all-to-all", "collective-permute"],
        4 * (2048 - 512) + 4 * 3 * 192 * 288 + 2 * 50257 * 96,
    )
    assert collectives("  %r = s32[4]{0} all-reduce(%x), to_apply=%add") == (["all-reduce"], None)
    assert collectives("  ROOT %c = f32[4]{0} copy(%x)") == ([], 0)


def test_spread() -> None:
    assert spread([2.0]) == Spread(2.0, 2.0, 2.0, 1)
    assert spread([3.0, 1.0, 2.0, 5.0, 4.0]) == Spread(3.0, 2.0, 4.0, 5)
    eight = spread([float(n) for n in range(8)])
    assert (eight.sure_low, eight.sure_high) == (0.0, 7.0)  # 2 / 2**8 < 1%
    many = spread([float(n) for n in range(101)])
    assert many.sure_low is not None
    assert many.sure_high is not None
    assert 35 < many.sure_low < many.low + 15 < 50 < many.sure_high < 65


def test_verdicts_need_certainty() -> None:
    assert verdict(spread([1.1] * 7)) == "neither"
    assert verdict(spread([1.1] * 8)) == "redist"
    assert verdict(spread([0.9] * 8)) == "XLA"
    assert verdict(spread([1.1] * 7 + [0.9])) == "neither"
    assert verdict(spread([1.1] * 30 + [0.5] * 5)) == "redist"


# -- all of it -----------------------------------------------------------------------------------------


def _quick(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "redist", "demo", "--quick", *arguments]
    plain = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=plain)


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """The facts of one quick run."""
    done = _quick("--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_value_is_checked(facts: dict[str, Any]) -> None:
    leaves = tree(1)
    on_all_devices = sum(leaf.target.block_elements() * SERVING.size for leaf in leaves)
    assert facts["wrong_elements"] == 0
    assert facts["checked_elements"] == on_all_devices == 52_021_248
    assert facts["parameters"] == sum(leaf.elements for leaf in leaves)
    assert sum(len(case["names"]) for case in facts["cases"]) == facts["arrays"] == 16


def test_bytes_against_the_bound(facts: dict[str, Any]) -> None:
    """One permute or gather receives exactly what is missing; a permute and an all-to-all, which are the fastest
    where devices share a memory, 1.75 times that at most."""
    for case in facts["cases"]:
        bound = case["lower_bound_bytes"]
        assert bound <= case["received_bytes"] <= bound * (1 if len(case["steps"]) == 1 else 1.75)
    assert facts["lower_bound_bytes"] < facts["received_bytes"] < 1.2 * facts["lower_bound_bytes"]


def test_measured_peaks_are_within_projected_ones(facts: dict[str, Any]) -> None:
    for case in facts["cases"]:
        memory = case["memory"]
        measured = memory["argument_bytes"] + memory["output_bytes"] + memory["temporary_bytes"]
        assert measured <= case["projected_peak_bytes"], case["names"]


def test_both_are_timed(facts: dict[str, Any]) -> None:
    for timed in (*facts["cases"], facts):
        assert timed["seconds"]["rounds"] == timed["xla_seconds"]["rounds"] >= 3
        for which in ("seconds", "xla_seconds", "ratio"):
            assert 0 < timed[which]["low"] <= timed[which]["median"] <= timed[which]["high"]


def test_as_text() -> None:
    """In 80 columns, progress apart, the outcome in sentences at the end."""
    done = _quick()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith(" ") or "\x1b" in line or "…" in line for line in lines)
    assert "planning and compiling ... " in done.stderr
    text = " ".join(lines)
    assert "All 46,473,216 values are in place, bit for bit" in text
    assert "that no plan can do without. XLA's programs receive" in text
    assert "Every measured peak is within the projected one." in text
    assert "times hold for this host alone" in text

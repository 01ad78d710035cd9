"""What README.md shows is what happens: its code, its commands, its figures, its links."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


refresh = _load(ROOT / "docs/refresh.py")
CODE: list[tuple[str, str]] = refresh.CODE.findall(README)
CONSOLE: list[str] = refresh.CONSOLE.findall(README)


def test_all_code_is_followed_by_its_output() -> None:
    assert len(CODE) == README.count("```python\n") >= 2
    assert len(CONSOLE) == README.count("```console\n") >= 2


@pytest.mark.parametrize(("code", "shown"), CODE, ids=range(len(CODE)))
def test_code_prints_what_is_shown(code: str, shown: str) -> None:
    assert refresh.run_code(code) == shown


@pytest.mark.parametrize("block", CONSOLE, ids=range(len(CONSOLE)))
def test_commands_print_what_is_shown(block: str) -> None:
    assert refresh.run_console(block) == block


def test_the_picture_of_full_replication() -> None:
    """XLA's program for the first example: elements on a device after every step, and received."""
    code = r"""
from redist.cli.on_jax import load_jax
jax = load_jax(8)
import numpy as np, re, redist
from redist.cli.demo.xla import collectives
mesh = redist.Mesh({"x": 4, "y": 2})
source, target = (redist.Layout.parse(t, mesh) for t in ("f32[16{y}, 16, 16{x}]", "f32[16, 16{x,y}, 16]"))
argument = jax.ShapeDtypeStruct((16, 16, 16), np.float32, sharding=source.to_jax())
text = jax.jit(lambda x: x, out_shardings=target.to_jax()).lower(argument).compile().as_text()
main = text[text.index("\nENTRY"):]
shapes = [*re.findall(r"= f32\[([\d,]+)\]\S* all-gather", main), re.search(r"ROOT .*? = f32\[([\d,]+)\]", main)[1]]
kinds, received = collectives(text)
plan = redist.synthesize(source, target)
print(source.block_elements(), *(np.prod([int(n) for n in shape.split(",")]) for shape in shapes))
print(*kinds, received // 4, plan.received_bytes // 4, plan.lower_bound_bytes // 4)
"""
    *warning, sizes, bytes_line = refresh.run_code(code).splitlines()
    assert "Involuntary full rematerialization" in " ".join(warning)
    assert sizes.split() == ["512", "2048", "4096", "512"]
    assert bytes_line.split() == ["all-gather", "all-gather", "3584", "448", "448"]
    picture = re.search(r"```text\n(redist .*?)```", README, re.DOTALL)
    assert picture is not None
    assert re.findall(r"[\d,]+", picture[1]) == ["512", "512", "448", "512", "2048", "4096", "512", "3,584"]


@pytest.mark.heavy
def test_the_demo_prints_what_is_shown() -> None:
    """Times and the machine apart."""

    def lasting(text: str) -> list[str]:
        above, below = text.split("ms (quartiles)")
        lines = [line for line in above.splitlines() if not line.startswith("on ")]
        sentences = " ".join(below[below.index("124,439,808 parameters") :].split())
        return [*lines, sentences[: sentences.index("Moving the whole tree")]]

    (shown,) = refresh.DEMO.findall(README)
    assert lasting(refresh.run_demo()) == lasting(shown)


@pytest.mark.parametrize("page", ["README.md", "docs/design.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        linked = (ROOT / page).parent / path
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]

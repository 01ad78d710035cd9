"""Runs what README.md shows, and writes down what it prints.

    python docs/refresh.py          code and commands
    python docs/refresh.py --demo   the demo too

`tests/test_readme.py` compares by the same functions.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CODE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEMO = re.compile(r"^```text\n(GPT-2 small.*?)^```$", re.MULTILINE | re.DOTALL)


def printed(command: list[str], folder: str | None = None) -> str:
    """Both streams of a command, started as by somebody who follows the README: redist is found, and the
    environment says nothing about devices."""
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    stated = {"PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu", "COLUMNS": "80"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=kept | stated, cwd=folder, check=False
    )
    return done.stdout


def run_code(code: str) -> str:
    """What a block of Python prints in a fresh interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        return printed([sys.executable, "-c", code], folder)


def run_console(block: str) -> str:
    """A console block again: its commands, run one after another in one folder, each with what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
        start = f'redist() {{ "{sys.executable}" -m redist "$@"; }}\n'
        return "".join(f"$ {line}\n{printed(['bash', '-c', start + line], folder)}" for line in lines)


def run_demo() -> str:
    """The demo's report, without its progress."""
    return printed(["bash", "-c", f'"{sys.executable}" -m redist demo 2>/dev/null'])


def refreshed(text: str, demo: bool) -> str:
    """The README with new outputs."""
    text = CODE.sub(lambda m: f"```python\n{m[1]}```\n\n```text\n{run_code(m[1])}```", text)
    text = CONSOLE.sub(lambda m: f"```console\n{run_console(m[1])}```", text)
    return DEMO.sub(lambda _: f"```text\n{run_demo()}```", text) if demo else text


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text(encoding="utf-8"), "--demo" in sys.argv[1:]), encoding="utf-8")

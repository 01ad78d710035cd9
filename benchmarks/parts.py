"""Command lines that run named parts, print their tables and write their figures as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Outcome", "Part", "run_parts"]

Outcome = tuple[str, Any, bool]
"""Table, plain values, and whether all is as it should be."""
Part = Callable[[argparse.Namespace, Callable[[str], None]], Outcome]
"""Given the arguments, and what tells of progress."""


def run_parts(given: argparse.Namespace, parts: Mapping[str, Part], version: Mapping[str, str]) -> int:
    """Run `given.parts`, each once; figures go to `given.json` too. Exit status 1 where one is not as it should be."""
    about = {
        **version,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "seed": given.seed,
    }
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    good = True
    figures: dict[str, Any] = {}
    for part in dict.fromkeys(given.parts):
        text, figures[part], fine = parts[part](given, lambda line: print(line, file=sys.stderr, flush=True))
        good &= fine
        print(f"\n{part}\n{text}", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(about | figures, indent=1) + "\n", encoding="utf-8")
    return 0 if good else 1

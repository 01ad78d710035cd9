"""Writes docs/rules.md, the table of all tile-mapping rules.

python docs/rules.py
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

from redist.partir_core.rules import CONTROL, WITHOUT_RULE, families

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/rules.md"
CORPUS = ROOT / "tests/partir_core/rules/corpus/operations.json"

INTRODUCTION = """# Rules

What the partitioner knows of JAX's primitives: along which of its loops (*factors*) an operation can be cut into
tiles. A **parallel** factor runs through dimensions of operands and results: tiles of the operands give tiles of the
results. A **sum** (max, min, product) factor runs through operands alone: tiles give contributions to the whole result,
to be reduced. A **whole** factor cannot be cut: what is tiled there is gathered before the operation. A factor "in the
result alone" needs no operand to be tiled. Dimensions of size 1 have no factor.

An operation without a rule is kept whole, and reported. The column *seen in* names programs of the corpus that perform
the operation: modules of Flax, Equinox and Haiku, optimisers of Optax, steps of Diffrax and NumPyro, `jax.nn`,
`jax.scipy`, and their gradients ({libraries}).

`docs/rules.py` writes this page out of the rules themselves.
"""


def cell(text: str) -> str:
    """Text that does not end a table's cell."""
    return text.replace("|", "\\|") or "-"


def page() -> str:
    """The page's text."""
    corpus = json.loads(CORPUS.read_text(encoding="utf-8"))
    seen: dict[str, list[str]] = corpus["programs"]
    versions = ", ".join(f"{name} {version}" for name, version in corpus["libraries"].items())

    def row(name: str, *cells: str) -> str:
        return "| " + " | ".join([f"`{name}`", *map(cell, [*cells, "; ".join(seen.get(name, [])[:2])])]) + " |"

    parts = [INTRODUCTION.format(libraries=versions)]
    entries = sorted(families().items(), key=lambda item: (item[1].family, item[0]))
    for family, members in groupby(entries, key=lambda item: item[1].family):
        parts.append(f"## {family[0].upper()}{family[1:]}\n\n| primitive | factors | missing | seen in |")
        parts[-1] += "\n|---|---|---|---|\n"
        parts[-1] += "\n".join(row(name, entry.factors, entry.missing) for name, entry in members) + "\n"
    for title, reasons in (("Without a rule: kept whole", WITHOUT_RULE), ("Calls and control flow", CONTROL)):
        parts.append(f"## {title}\n\n| primitive | why | seen in |\n|---|---|---|\n")
        parts[-1] += "\n".join(row(name, why) for name, why in sorted(reasons.items())) + "\n"
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

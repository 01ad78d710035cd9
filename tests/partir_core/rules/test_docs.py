"""docs/rules.md says what the rules say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from redist.partir_core.rules import families

SCRIPT = Path(__file__).parents[3] / "docs/rules.py"


def test_the_table_is_current() -> None:
    spec = importlib.util.spec_from_file_location("rules_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.PAGE.read_text(encoding="utf-8")
    assert text == module.page(), "run python docs/rules.py"
    for name, entry in families().items():
        assert f"| `{name}` | {entry.factors} |" in text

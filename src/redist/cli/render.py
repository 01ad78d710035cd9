"""What people see on a terminal: plans in colour, fitted to its width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.text import Text
from rich.theme import Theme

from redist.collectives import Plan
from redist.collectives.explain import explain

__all__ = ["THEME", "show_plan"]


class _PlanHighlighter(RegexHighlighter):
    base_style = "plan."
    highlights: ClassVar[Sequence[str]] = (
        r"^ *(?P<number>\d+\.) (?P<op>in \d+ parts|[a-z\-]+)",
        r"(?P<axes>\{[^}]*\})",
        r"(?P<good>exactly what is missing)",
        r"(?P<costly>\d[\d.e+]*x the lower bound|although nothing is missing)",
        r"(?P<bad>\bOVER\b)",
    )


THEME = Theme(
    {
        "plan.number": "dim",
        "plan.op": "bold cyan",
        "plan.axes": "magenta",
        "plan.good": "green",
        "plan.costly": "yellow",
        "plan.bad": "bold red",
    }
)


def show_plan(plan: Plan) -> None:
    """Print `plan.explain()`: plain text into a pipe, coloured and no wider than it is on a terminal."""
    console = Console(highlight=False, theme=THEME)
    if not console.is_terminal:
        print(plan.explain())
        return
    highlight = _PlanHighlighter()
    for n, line in enumerate(explain(plan, width=console.width).split("\n")):
        text = highlight(Text(line, "bold" if n == 0 else "dim" if line.startswith("step") else ""))
        console.print(text, soft_wrap=True)

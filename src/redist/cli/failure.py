"""What went wrong, as one readable block on stderr or as a JSON object there."""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import dataclass, field
from typing import Any

from cyclopts import CycloptsError

from redist.errors import InfeasibleError, LayoutError, ParseError, RedistError

__all__ = ["FAILED", "OK", "USAGE", "Failure", "UsageError", "of_redist", "of_system", "of_usage"]

OK, FAILED, USAGE = 0, 1, 2

_EXCERPT = 72


class UsageError(RedistError):
    """Arguments that do not fit together, or a file that is not what a command needs."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A message (its first line the rule and the remedy, an excerpt with a caret below it where there is
    one), the exit status, and what programs want to know beside the message."""

    kind: str
    message: str
    status: int
    excerpt: tuple[str, str] | None = None
    facts: dict[str, Any] = field(default_factory=dict[str, Any])

    def report(self, as_json: bool) -> None:
        """Write it to stderr."""
        if as_json:
            error = {"type": self.kind, "message": self.message} | self.facts
            sys.stderr.write(json.dumps({"error": error, "status": self.status}) + "\n")
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True, highlight=False)
        lines = self.message.split("\n")
        if console.is_terminal:
            lines = [part for line in lines for part in textwrap.wrap(line, max(20, console.width - 8)) or [""]]
        console.print(Text.assemble(("error: ", "bold red"), lines[0]), soft_wrap=True)
        for line in lines[1:]:
            console.print(Text(f"       {line}"), soft_wrap=True)
        if self.excerpt:
            shown, caret = self.excerpt
            console.print(Text(f"  {shown}"), soft_wrap=True)
            console.print(Text(f"  {caret}", "bold red"), soft_wrap=True)


def of_redist(error: RedistError) -> Failure:
    """An error that redist raised. What the caller wrote wrongly is bad usage; all else is a failure."""
    kind = type(error).__name__
    match error:
        case ParseError():
            facts = {"text": error.text, "column": error.column}
            return Failure(kind, error.message, USAGE, _excerpt(error.text, error.column), facts)
        case LayoutError() | UsageError():
            return Failure(kind, str(error), USAGE)
        case InfeasibleError():
            return Failure(kind, str(error), FAILED, facts={"smallest_limit": error.smallest_limit})
        case _:
            return Failure(kind, str(error), FAILED)


def of_usage(error: CycloptsError, command: str) -> Failure:
    """Arguments that the command line parser refused, of a command (`redist plan`) that has help."""
    if isinstance(error.__cause__, ParseError):
        return of_redist(error.__cause__)
    return Failure("UsageError", f"{_plain(str(error))} See `{command} --help`.", USAGE)


def of_system(error: OSError) -> Failure:
    """A file that cannot be read or written."""
    where = f" '{error.filename}'" if error.filename else ""
    return Failure("UsageError", f"cannot open{where}: {error.strerror or error}", USAGE)


def _plain(message: str) -> str:
    text = " ".join(message.split())
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _excerpt(text: str, column: int) -> tuple[str, str]:
    """The line around a column and a caret below it, cut to a width that fits a terminal."""
    start = text.rfind("\n", 0, column) + 1
    line, column = text[start:].split("\n", 1)[0].replace("\t", " "), column - start
    left = max(0, min(column - _EXCERPT // 2, len(line) - _EXCERPT))
    right = left + _EXCERPT
    head, tail = "..." if left else "", "..." if right < len(line) else ""
    return f"{head}{line[left:right]}{tail}", f"{' ' * (len(head) + column - left)}^"

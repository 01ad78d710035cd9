"""How far a long command is, on stderr: a bar on a terminal, a line per phase elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

__all__ = ["Progress"]


class Progress:
    """Phases of known length. `step(x)` counts one and hands x back."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)

    @contextmanager
    def phase(self, name: str, total: int) -> Generator[Callable[[Any], Any]]:
        """Show a phase while it runs."""
        if not self.console.is_terminal:
            start = time.perf_counter()
            self.console.print(f"{name} ...", end=" ", soft_wrap=True)
            yield lambda made: made
            self.console.print(f"{time.perf_counter() - start:.1f} s", soft_wrap=True)
            return
        columns = (TextColumn("{task.description:26}"), BarColumn(28), MofNCompleteColumn(), TimeElapsedColumn())
        with Bar(*columns, console=self.console) as bar:
            task = bar.add_task(name, total=total)

            def step(made: Any) -> Any:
                bar.advance(task)
                return made

            yield step

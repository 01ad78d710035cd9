"""One hierarchy of errors. Every message names the rule broken, the offending values and a remedy."""

from __future__ import annotations

__all__ = [
    "BackendError",
    "InfeasibleError",
    "LayoutError",
    "ParseError",
    "ProofError",
    "RedistError",
    "TracingError",
    "TypingError",
]


class RedistError(Exception):
    """Base of every error that redist raises on purpose."""


class LayoutError(RedistError):
    """A mesh, sub-axis or layout that cannot exist, or two that do not fit together.

    `place` is (dimension, index in its axis list) of the first offender, with dimension -1 for the
    partial axes and index -1 for the dimension as a whole; None where no single place is to blame.
    """

    def __init__(self, message: str, place: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.place = place


class ParseError(RedistError):
    """Malformed text. `text` is the input and `column` (0-based) is where reading stopped."""

    def __init__(self, message: str, text: str, column: int) -> None:
        start = text.rfind("\n", 0, column) + 1
        line = text[start:].split("\n", 1)[0]
        blank = "".join("\t" if c == "\t" else " " for c in text[start:column])
        super().__init__(f"{message}\n  {line}\n  {blank}^")
        self.message = message
        self.text = text
        self.column = column


class TypingError(RedistError):
    """A step that cannot be applied to the layout before it; the message names the premise that failed."""


class InfeasibleError(RedistError):
    """No plan satisfies the caller's constraints.

    `smallest_limit` is the smallest feasible `memory_limit` in bytes per device, None where the
    memory limit is not what rules plans out.
    """

    def __init__(self, message: str, smallest_limit: int | None = None) -> None:
        super().__init__(message)
        self.smallest_limit = smallest_limit


class ProofError(RedistError):
    """A plan that does not do what it claims, found by proof or by simulation."""


class BackendError(RedistError):
    """A plan or array that the chosen backend cannot run."""


class TracingError(RedistError):
    """A program that cannot be traced or partitioned."""

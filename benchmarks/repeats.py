"""Races that are run in several processes, or launches of several: where records lie, and one record of them all.

The first race of a kind is a record of that kind, and later ones are repeats of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.problems import Problem
from benchmarks.records import Store

__all__ = ["found_in", "merged", "place", "together"]

Record = dict[str, Any]


def place(kind: str, process: int) -> tuple[str, str]:
    """What the record of a race in the n-th process says of itself: (kind of record, who)."""
    return (kind, "race") if process == 1 else (f"{kind}-repeat", f"process {process}")


def found_in(store: Store, kind: str, problem: Problem) -> list[Record]:
    """The records of a problem's races so far, in order."""
    found: list[Record] = []
    while (one := _found(store, kind, problem, len(found) + 1)) is not None:
        found.append(one)
    return found


def _found(store: Store, kind: str, problem: Problem, process: int) -> Record | None:
    record, who = place(kind, process)
    return store.found(record, problem.family, problem.key, who)


def merged(select: Callable[[str], Iterable[Record]], kind: str) -> list[Record]:
    """One record per problem of this kind. `select` gives the records of a kind."""
    races: dict[tuple[str, str], list[Record]] = {}
    for record in select(kind):
        races[record["family"], record["problem"]] = [record]
    for record in select(place(kind, 2)[0]):
        races.get((record["family"], record["problem"]), []).append(record)
    return [together(records) for records in races.values()]


def together(records: Sequence[Record]) -> Record:
    """Races of one problem as one record: rounds of all processes in `seconds`, how many each ran in `processes`.

    Who was wrong in one process is wrong. Contestants of the first process only keep its rounds, and have no
    other entry in `processes`.
    """
    wrong = {name: note for one in reversed(records) for name, note in one["wrong"].items()}
    rounds: dict[str, list[list[float]]] = {}
    for one in records:
        for name, seconds in one["seconds"].items():
            if name not in wrong:
                rounds.setdefault(name, []).append(seconds)
    seconds = {name: [s for part in parts for s in part] for name, parts in rounds.items()}
    sizes = {name: [len(part) for part in parts] for name, parts in rounds.items()}
    return records[0] | {"seconds": seconds, "processes": sizes, "wrong": wrong}

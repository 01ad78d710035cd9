"""The demo's facts as text that fits a terminal of 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from redist.cli.demo.facts import Case, Facts, Spread
from redist.collectives.explain import bytes_text

__all__ = ["show", "summary", "verdict"]

_LAYER = re.compile(r"h\.\d+\.")


def show(facts: Facts) -> None:
    """Print everything: plans, bytes, times, and a summary."""
    console = Console(highlight=False)
    if console.is_terminal:
        _print(console, facts)
        return
    with console.capture() as captured:
        _print(console, facts)
    print("\n".join(line.rstrip() for line in captured.get().rstrip().split("\n")))


def _print(console: Console, facts: Facts) -> None:
    console.print(f"[bold]{facts.model}[/]: {_contents(facts)}")
    console.print(f"from  {facts.source_mesh:16} training: fully sharded, tensor parallel over model")
    console.print(f"to    {facts.target_mesh:16} serving: tensor parallel")
    console.print(f"on    {facts.devices} virtual CPU devices of one host with {facts.cores} cores, JAX {facts.jax}")
    for table in (_plans(facts.cases), _bytes(facts), _times(facts)):
        console.print()
        console.print(table)
    console.print()
    for sentence in summary(facts):
        console.print(sentence)


def _contents(facts: Facts) -> str:
    return f"{facts.arrays} arrays, {facts.parameters:,} parameters, {bytes_text(facts.total_bytes)}"


def _label(case: Case) -> str:
    kinds = list(dict.fromkeys(_LAYER.sub("", name) for name in case.names))
    return kinds[0] if len(kinds) == 1 else f"{kinds[0]}, ..."


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for n, column in enumerate(columns):
        table.add_column(column, justify="right" if n else "left", no_wrap=True)
    return table


def _plans(cases: Iterable[Case]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("arrays", no_wrap=True)
    table.add_column("from -> to, and the plan", no_wrap=True)
    for case in cases:
        table.add_row(f"{_label(case)} x{len(case.names)}", f"{case.source} -> {case.target}")
        for n, step in enumerate(case.steps, 1):
            table.add_row("", f"[cyan]  {n}. {step}[/]")
    return table


def _bytes(facts: Facts) -> Table:
    columns = ("received\nbound", "\nours", "\nXLA", "peak\nprojected", "\nours", "\nXLA")
    table = _table("\nbytes per device", *columns)
    for case in facts.cases:
        table.add_row(
            _label(case),
            bytes_text(case.lower_bound_bytes),
            *_compared(case.received_bytes, case.xla_received_bytes),
            bytes_text(case.projected_peak_bytes),
            *_compared(case.memory.peak_bytes, case.xla_memory.peak_bytes),
        )
    return table


def _compared(ours: int, xla: int | None) -> tuple[str, str]:
    mine, theirs = bytes_text(ours), "?" if xla is None else bytes_text(xla)
    if xla is None or mine == theirs:
        return mine, theirs
    return f"[{'green' if ours < xla else 'yellow'}]{mine}[/]", theirs


def _times(facts: Facts) -> Table:
    table = _table("ms (quartiles)", "ours", "XLA", "XLA/ours", "faster")
    for case in facts.cases:
        table.add_row(_label(case), *_timed(case.seconds, case.xla_seconds, case.ratio))
    table.add_row("[bold]the whole tree[/]", *_timed(facts.seconds, facts.xla_seconds, facts.ratio))
    return table


def _timed(ours: Spread, xla: Spread, ratio: Spread) -> tuple[str, ...]:
    faster = verdict(ratio)
    colour = {"redist": "green", "XLA": "yellow"}.get(faster, "default")
    return _milliseconds(ours), _milliseconds(xla), _ratio(ratio), f"[{colour}]{faster}[/]"


def _milliseconds(seconds: Spread) -> str:
    return f"{_three(seconds.median)} ({_three(seconds.low)}-{_three(seconds.high)})"


def _three(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"


def _ratio(ratio: Spread) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


def verdict(ratio: Spread) -> str:
    """Who is faster, where that is 99% sure."""
    if ratio.sure_low is not None and ratio.sure_low > 1:
        return "redist"
    return "XLA" if ratio.sure_high is not None and ratio.sure_high < 1 else "neither"


def summary(facts: Facts) -> list[str]:
    """The outcome in sentences, wins and losses alike."""
    xla = "" if facts.xla_received_bytes is None else f" XLA's programs receive {bytes_text(facts.xla_received_bytes)}."
    excess = facts.received_bytes / facts.lower_bound_bytes if facts.lower_bound_bytes else 1.0
    most = max(facts.cases, key=lambda case: case.memory.temporary_bytes)
    most_xla = max(facts.cases, key=lambda case: case.xla_memory.temporary_bytes)
    over = [_label(case) for case in facts.cases if case.memory.peak_bytes > case.projected_peak_bytes]
    wrong = (
        f"[bold green]All {facts.parameters:,} values are in place[/], bit for bit, on every device that holds them "
        f"({facts.checked_elements:,} compared)."
        if not facts.wrong_elements
        else f"[bold red]{facts.wrong_elements:,} of {facts.checked_elements:,} values are wrong.[/]"
    )
    moved = (
        f"{facts.parameters:,} parameters ({bytes_text(facts.total_bytes)}) moved from training on "
        f"{facts.source_mesh} to serving on {facts.target_mesh}."
    )
    received = (
        f"The busiest device received {bytes_text(facts.received_bytes)}, {excess:.3g}x the "
        f"{bytes_text(facts.lower_bound_bytes)} that no plan can do without.{xla}"
    )
    temporaries = (
        f"Largest temporary on a device: {bytes_text(most.memory.temporary_bytes)} ({_label(most)}); XLA's: "
        f"{bytes_text(most_xla.xla_memory.temporary_bytes)} ({_label(most_xla)})."
    )
    projected = (
        f"[bold red]Measured above projected: {', '.join(over)}.[/]"
        if over
        else "Every measured peak is within the projected one."
    )
    noise = (
        f"All devices are threads of one host, so times hold for this host alone. {facts.wall_seconds:.0f} s in all."
    )
    return [moved, wrong, received, temporaries, projected, _race(facts), noise]


def _race(facts: Facts) -> str:
    labels: dict[str, list[str]] = {"redist": [], "XLA": [], "neither": []}
    for case in facts.cases:
        labels[verdict(case.ratio)].append(_label(case))
    slower = f" ({', '.join(labels['XLA'])})" if labels["XLA"] else ""
    return (
        f"Moving the whole tree took {_three(facts.seconds.median)} ms, with XLA's programs "
        f"{_three(facts.xla_seconds.median)} ms: medians of {facts.seconds.rounds} rounds in turns. Of "
        f"{len(facts.cases)} kinds of array, redist is faster on {len(labels['redist'])}, XLA on "
        f"{len(labels['XLA'])}{slower}, and {len(labels['neither'])} show no difference that is 99% sure."
    )

"""`redist run`: run a saved plan on all devices and check every block against the target."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from redist.cli.arguments import AsJson, Backend, plan_text
from redist.cli.failure import FAILED, OK, UsageError
from redist.cli.values import counted
from redist.collectives import Plan, simulate
from redist.collectives.explain import bytes_text
from redist.collectives.simulate import assemble, check_blocks
from redist.types.dtypes import dtype_name, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Report", "read_input", "report_of", "run", "show"]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did; byte counts are per device. `measured_peak_bytes` is None where the backend does
    not say."""

    source: str
    target: str
    backend: str
    devices: int
    checked_elements: int
    exact: bool
    received_bytes: int
    lower_bound_bytes: int
    projected_peak_bytes: int
    measured_peak_bytes: int | None
    output: str | None


def run(
    plan: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    backend: Backend = "numpy",
    input_file: Annotated[Path | None, Parameter(name="--input", show_default=False)] = None,
    output_file: Annotated[Path | None, Parameter(name="--output", show_default=False)] = None,
    as_json: AsJson = False,
) -> int:
    """Run a saved plan on all devices and check every block of the result.

    Parameters
    ----------
    plan
        JSON file written by `redist plan --json`, or - for standard input.
    backend
        numpy: the reference, all devices in one process. jax: one JAX device per mesh device; virtual
        CPU devices unless JAX_PLATFORMS or XLA_FLAGS say otherwise. mpi: one rank per mesh device, started
        by `mpiexec -n N redist run ...`; each reads and writes its own blocks of the files only.
    input_file
        Global array to start from (.npy); by default, numbers that depend on their index alone.
    output_file
        Where to write the global array that the blocks make up (.npy).
    as_json
        Print the facts as JSON.
    """
    if backend == "mpi":
        from redist.cli.run_mpi import run_mpi

        return run_mpi(plan, input_file, output_file, as_json)
    loaded = Plan.from_json(plan_text(plan))
    array = counted(loaded.source.shape, loaded.source.dtype) if input_file is None else read_input(loaded, input_file)
    if backend == "numpy":
        blocks, measured = simulate(loaded, array, check=True), None
    else:
        from redist.cli.on_jax import run_blocks

        blocks, measured = run_blocks(loaded, array)
        check_blocks(loaded, array, blocks)
    if output_file is not None:
        with output_file.open("wb") as file:
            np.save(file, assemble(loaded.target, blocks))
    checked = sum(block.size for block in blocks.values())
    report = report_of(loaded, backend, len(blocks), checked, output_file, measured)
    show(report, as_json)
    return OK if measured is None or measured <= report.projected_peak_bytes else FAILED


def report_of(
    plan: Plan, backend: Backend, devices: int, checked: int, output: Path | None, measured: int | None = None
) -> Report:
    """The facts of a run on so many devices, which checked so many elements."""
    return Report(
        source=f"{plan.source} on {plan.source.mesh}",
        target=f"{plan.target} on {plan.target.mesh}",
        backend=backend,
        devices=devices,
        checked_elements=checked,
        exact=_exact(plan),
        received_bytes=plan.received_bytes,
        lower_bound_bytes=plan.lower_bound_bytes,
        projected_peak_bytes=replace(plan, options=replace(plan.options, backend=backend)).peak_bytes,
        measured_peak_bytes=measured,
        output=None if output is None else str(output),
    )


def show(report: Report, as_json: bool) -> None:
    """Print a report."""
    print(json.dumps(asdict(report)) if as_json else _text_of(report))


def _exact(plan: Plan) -> bool:
    """Whether blocks are compared exactly: nothing is added up or multiplied in floating point."""
    partial, kind = plan.source.partial, numpy_dtype(plan.source.dtype).kind
    return partial is None or partial.reduction in ("max", "min") or kind in "biu"


def read_input(plan: Plan, path: Path, mapped: bool = False) -> NDArray[Any]:
    """The global array that a plan starts from, in memory or mapped. Raises UsageError, OSError."""
    try:
        loaded: Any = np.load(path, mmap_mode="r" if mapped and math.prod(plan.source.shape) else None)
    except (ValueError, EOFError):
        raise UsageError(f"'{path}' is not a NumPy file; write it with numpy.save(path, array)") from None
    if isinstance(loaded, Mapping):
        raise UsageError(f"'{path}' holds several arrays; write one with numpy.save(path, array)")
    array: NDArray[Any] = loaded
    wanted = numpy_dtype(plan.source.dtype)
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)  # .npy files have no bfloat16
    if array.shape != plan.source.shape or array.dtype != wanted:
        raise UsageError(
            f"'{path}' holds {dtype_name(array.dtype)}{list(array.shape)}, and the plan starts from "
            f"{plan.source.dtype}{list(plan.source.shape)}; give the global array with that shape and dtype"
        )
    return array


def _text_of(report: Report) -> str:
    how = "all equal" if report.exact else "equal to rounding"
    peak = f"peak      {bytes_text(report.projected_peak_bytes)} projected"
    if report.measured_peak_bytes is not None:
        over = report.measured_peak_bytes > report.projected_peak_bytes
        peak += f", {bytes_text(report.measured_peak_bytes)} measured{', which is MORE' if over else ''}"
    lines = [
        f"ran       {report.source}",
        f"          -> {report.target}",
        f"          on {report.backend}, {report.devices} device{'s' * (report.devices != 1)}",
        f"checked   every block of the target: {report.checked_elements:,} elements, {how}",
        f"received  {bytes_text(report.received_bytes)} per device, lower bound {bytes_text(report.lower_bound_bytes)}",
        peak + " (per device)",
    ]
    if report.output is not None:
        lines.append(f"wrote     {report.output}")
    return "\n".join(lines)

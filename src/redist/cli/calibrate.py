"""`redist calibrate`: measure what collectives cost on this machine, for the planner."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter

from redist.cli.arguments import AsJson, reading
from redist.cli.failure import OK, UsageError
from redist.cli.on_jax import compiled_plan, load_jax
from redist.collectives.calibrate import Measured, calibrate, clock
from redist.collectives.topology import Kind
from redist.collectives.topology_json import write_topology
from redist.errors import BackendError
from redist.types import Mesh

__all__ = ["calibrate_machine"]


def calibrate_machine(
    mesh: str,
    /,
    *,
    backend: Literal["jax", "mpi"] = "jax",
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), show_default=False)] = None,
    rounds: int = 9,
    as_json: AsJson = False,
) -> int:
    """Time collectives over each axis of a mesh, and fit what they cost.

    The file is what `redist plan --topology FILE` and `Topology.load` read.

    Parameters
    ----------
    mesh
        Axes and sizes, major to minor: x=4,y=2.
    backend
        What runs the collectives: jax, on as many virtual CPU devices as the mesh has unless the environment
        says otherwise; or mpi, under mpiexec with a rank per device.
    output
        File to save the topology in.
    rounds
        How often each collective is timed, in turns; its median counts.
    as_json
        Print the topology as JSON.
    """
    if rounds < 1:
        raise UsageError(f"--rounds is {rounds}; give at least 1")
    here = reading("MESH", Mesh.parse, mesh)
    if backend == "jax":
        measured, first = _on_jax(here, rounds), True
    else:
        measured, first = _on_mpi(here, rounds)
    if first:
        text = write_topology(
            measured.topology,
            mesh=str(here),
            backend=backend,
            cpus=os.cpu_count(),
            call_seconds=measured.call_seconds,
            median_relative_error=measured.error,
            experiments=len(measured.seconds),
        )
        if output is not None:
            output.write_text(text, encoding="utf-8")
        print(text if as_json else _table(measured, output), end="" if as_json else "\n")
    return OK


def _on_jax(mesh: Mesh, rounds: int) -> Measured:
    jax = load_jax(1 + max(mesh.device_ids))
    shared = jax.default_backend() == "cpu" and jax.process_count() == 1
    kinds: dict[str, Kind] = dict.fromkeys(mesh.names, "memory" if shared else "switch")

    def prepare(plan: Any) -> Any:
        program = compiled_plan(plan)
        zeros = jax.device_put(np.zeros(plan.source.shape, dtype=np.float32), plan.source.to_jax())
        return clock(lambda: program(zeros).block_until_ready())

    return calibrate(mesh, prepare, kinds, "calibrated-jax", rounds)


def _on_mpi(mesh: Mesh, rounds: int) -> tuple[Measured, bool]:
    from mpi4py import MPI

    from redist.collectives.backends.mpi import Transfer

    comm = MPI.COMM_WORLD
    if comm.Get_size() < 1 + max(mesh.device_ids):
        raise BackendError(
            f"mesh {mesh} has devices up to {max(mesh.device_ids)}, the communicator {comm.Get_size()} ranks; run "
            f"mpiexec -n {1 + max(mesh.device_ids)} redist calibrate {mesh} --backend mpi"
        )
    holds = comm.Get_rank() in set(mesh.device_ids)

    def prepare(plan: Any) -> Any:
        transfer = Transfer(plan, comm, agree="never")
        block = np.zeros(plan.source.block_shape(), dtype=np.float32) if holds else None
        once = clock(lambda: transfer(block))

        def slowest() -> float:
            comm.Barrier()
            return float(comm.allreduce(once(), op=MPI.MAX))

        return slowest

    kinds: dict[str, Kind] = dict.fromkeys(mesh.names, "switch")
    return calibrate(mesh, prepare, kinds, "calibrated-mpi", rounds), comm.Get_rank() == 0


def _table(measured: Measured, output: Path | None) -> str:
    lines = [f"{'axis':<10}{'latency':>12}{'per peer':>12}{'bandwidth':>14}{'all-to-all':>12}"]
    for axis, link in measured.topology.links:
        lines.append(
            f"{axis:<10}{link.latency * 1e6:>9.1f} us{link.peer_latency * 1e6:>9.2f} us"
            f"{link.bandwidth / 1e9:>9.2f} GB/s{link.exchange_slowdown:>11.2f}x"
        )
    copies = measured.topology.copies
    lines.append(
        f"copies     {copies.bandwidth / 1e9:.2f} GB/s and {copies.run_latency * 1e9:.2f} ns per contiguous run; "
        f"a call {measured.call_seconds * 1e6:.0f} us"
    )
    lines.append(
        f"{len(measured.seconds)} experiments, projected within {measured.error:.0%} (median); "
        f"per device, on {os.cpu_count()} cores"
    )
    if output is not None:
        lines.append(f"saved in {output}: redist plan ... --topology {output}")
    return "\n".join(lines)

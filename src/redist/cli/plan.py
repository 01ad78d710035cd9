"""`redist plan`: the plan from one layout to another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from redist.cli.arguments import AsJson, Backend, Bytes, read_bytes, reading, topology_of
from redist.cli.failure import OK
from redist.cli.render import show_plan
from redist.synth import synthesize
from redist.types import Layout, Mesh

__all__ = ["plan"]


def plan(
    mesh: str,
    src: str,
    dst: str,
    /,
    *,
    target_mesh: Annotated[str | None, Parameter(show_default=False)] = None,
    memory_limit: Annotated[Bytes | None, Parameter(converter=read_bytes, show_default=False)] = None,
    steps: Annotated[str | None, Parameter(show_default=False)] = None,
    topology: Annotated[str | None, Parameter(show_default=False)] = None,
    backend: Backend = "numpy",
    donate: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    html: Annotated[Path | None, Parameter(show_default=False)] = None,
    as_json: AsJson = False,
) -> int:
    """Print the plan from one layout to another.

    Parameters
    ----------
    mesh
        Axes and sizes, major to minor: x=4,y=2, with device ids x=4,y=2@[0,4,1,5,2,6,3,7].
    src
        Layout to start from: "f32[1024{x,y}, 512]" shards dimension 0 over x, then y.
    dst
        Layout to reach.
    target_mesh
        Mesh of DST, if it is not MESH.
    memory_limit
        Bytes per device that the plan may keep alive: 4096, 64MiB, 1.5GB.
    steps
        Ops that the plan may use, by comma: slice, all_gather, all_to_all, permute, exchange,
        reduce_scatter, all_reduce, chunk.
    topology
        What bytes cost on which axis: uniform, one-host, nodes-of-8, torus or one-process, or a file that
        `redist calibrate` made. By default bytes alone count.
    backend
        What will run the plan; decides its staging memory.
    donate
        The source's memory may be reused.
    html
        Draw the plan as well: a page of its own, to be stepped through in a browser.
    as_json
        Print the plan as JSON, which `redist run` reads.
    """
    here = reading("MESH", Mesh.parse, mesh)
    there = here if target_mesh is None else reading("--target-mesh", Mesh.parse, target_mesh)
    made = synthesize(
        reading("SRC", _layout_on(here), src),
        reading("DST", _layout_on(there), dst),
        memory_limit=memory_limit,
        topology=None if topology is None else topology_of(topology, here),
        steps=None if steps is None else [name.strip() for name in steps.split(",")],
        backend=backend,
        donate=donate,
    )
    if html is not None:
        from redist.viz import plan_page

        html.write_text(plan_page(made), encoding="utf-8")
    if as_json:
        print(made.to_json())
    else:
        show_plan(made)
    return OK


def _layout_on(mesh: Mesh) -> Callable[[str], Layout]:
    def read(text: str) -> Layout:
        return Layout.parse(text, mesh)

    return read

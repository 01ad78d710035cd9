"""DTensor's planner as torch contains it. The only module that touches torch's private parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

from redist.errors import BackendError

__all__ = ["Info", "missing", "transform_infos"]

Info = tuple[int, str, str]
"""(mesh dimension, placement before, placement after), the placements as torch prints them short."""


def missing() -> str | None:
    """Why the planner is not here; None where it is."""
    try:
        _tools()
    except BackendError as error:
        return str(error)
    return None


@lru_cache(maxsize=1)
def _tools() -> tuple[Any, Any, Any, Any]:
    """(torch, its redistribution module, its spec module, its fake store). Raises BackendError."""
    try:
        torch: Any = import_module("torch")
        planner: Any = import_module("torch.distributed.tensor._redistribute")
        specs: Any = import_module("torch.distributed.tensor._dtensor_spec")
        store: Any = import_module("torch.testing._internal.distributed.fake_pg").FakeStore
        _ = planner._gen_transform_infos_non_cached  # so that it is missed here, not in the middle of a study
    except ImportError as error:
        raise BackendError(f"torch is not installed ({error}); pip install torch==2.13.0") from error
    except Exception as error:  # a private interface: it may be gone, or fail in ways of its own
        raise BackendError(
            f"DTensor's planner was not found in torch ({type(error).__name__}: {error}); install torch 2.13"
        ) from error
    return torch, planner, specs, store


@lru_cache(maxsize=256)
def _mesh(sizes: tuple[int, ...]) -> Any:
    """A device mesh of these sizes under a fake process group, whose rank 0 this process is."""
    torch, _, _, store = _tools()
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("fake", rank=0, world_size=4096, store=store())
    count = 1
    for size in sizes:
        count *= size
    names = tuple(f"m{n}" for n in range(len(sizes)))
    return torch.distributed.tensor.DeviceMesh("cpu", torch.arange(count).reshape(sizes), mesh_dim_names=names)


def _spec(
    mesh: Any, shape: Sequence[int], dims: Sequence[Sequence[int]], partial: Sequence[int], reduction: str
) -> Any:
    torch, _, specs, _ = _tools()
    kinds = torch.distributed.tensor
    placements: list[Any] = [kinds.Replicate()] * mesh.ndim
    for m in partial:
        placements[m] = kinds.Partial("product" if reduction == "prod" else reduction)
    for i, mesh_dims in enumerate(dims):
        for m in mesh_dims:
            placements[m] = kinds.Shard(i)
    order = tuple(specs.ShardOrderEntry(tensor_dim=i, mesh_dims=tuple(m)) for i, m in enumerate(dims) if m)
    strides = torch.empty(tuple(shape), device="meta").stride()
    meta = specs.TensorMeta(torch.Size(shape), strides, torch.float32)
    return specs.DTensorSpec(mesh, tuple(placements), tensor_meta=meta, shard_order=order)


def transform_infos(
    sizes: Sequence[int],
    shape: Sequence[int],
    source: tuple[Sequence[Sequence[int]], Sequence[int]],
    target: tuple[Sequence[Sequence[int]], Sequence[int]],
    reduction: str = "sum",
    shortest_path: bool = False,
) -> list[Info]:
    """What DTensor would do on a mesh of these sizes to an f32 tensor of this global shape.

    `source` and `target` are (per tensor dimension the mesh dimensions that shard it, major to minor;
    the mesh dimensions it is unreduced over). With `shortest_path` its Dijkstra planner runs, otherwise
    what torch chooses by default: greedy, and Dijkstra for shard orders that are not left to right.
    """
    mesh = _mesh(tuple(sizes))
    _, planner, _, _ = _tools()
    planner.clear_redistribute_planner_cache()
    specs = [_spec(mesh, shape, dims, partial, reduction) for dims, partial in (source, target)]
    infos = planner._gen_transform_infos_non_cached(*specs, shortest_path or None)
    return [(info.mesh_dim, _short(info.src_dst_placements[0]), _short(info.src_dst_placements[1])) for info in infos]


def _short(placement: Any) -> str:
    if placement.is_replicate():
        return "R"
    return f"S({placement.dim})" if placement.is_shard() else f"P({placement.reduce_op})"

"""Plans on JAX from the command line, where no JAX has been imported yet."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.simulate import scatter
from redist.errors import BackendError
from redist.types.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.collectives import Plan

__all__ = ["compiled_plan", "load_jax", "peak_bytes", "run_blocks"]

_COUNT = "--xla_force_host_platform_device_count"


def load_jax(devices: int | None = None) -> Any:
    """JAX; imported for the first time with so many virtual CPU devices, unless the environment says otherwise."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    flags = os.environ.get("XLA_FLAGS", "")
    if devices is not None and _COUNT not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_COUNT}={devices}".strip()
    try:
        return import_module("jax")
    except ModuleNotFoundError:
        raise BackendError("JAX is not installed; pip install 'redist[jax]'") from None


def compiled_plan(plan: Plan) -> Any:
    """The plan as one compiled program: called with an array laid out as the source, and asked for its
    `memory_analysis()`. Raises BackendError where the plan takes several programs."""
    function = _function(plan)
    if not hasattr(function, "lower"):
        raise BackendError(
            f"from {plan.source} on {plan.source.mesh} to {plan.target} on {plan.target.mesh}, data goes to other "
            "devices or another device order, which no single JAX program does"
        )
    return _compiled(plan, function)


def run_blocks(plan: Plan, array: NDArray[Any]) -> tuple[dict[int, NDArray[Any]], int | None]:
    """({device id: block} after the plan, measured peak in bytes per device where it is one program)."""
    jax = load_jax(1 + max(max(layout.mesh.device_ids) for layout in (plan.source, *plan.layouts, plan.target)))
    jax.config.update("jax_enable_x64", True)
    _require_dtype(array)
    blocks = scatter(plan.source, array)
    if plan.source.partial is None:
        function = _function(plan)
        if hasattr(function, "lower"):
            program = _compiled(plan, function)
            moved = program(jax.make_array_from_callback(plan.source.shape, plan.source.to_jax(), array.__getitem__))
            made = {shard.device.id: np.asarray(shard.data) for shard in moved.addressable_shards}
            return made, peak_bytes(program)
    from redist.collectives.backends.jax.execute import run_blocks as run

    return {device: np.asarray(block) for device, block in run(plan, blocks).items()}, None


def peak_bytes(program: Any) -> int:
    """What a compiled program keeps alive on one device: arguments, results and temporaries."""
    facts = program.memory_analysis()
    reused = facts.alias_size_in_bytes
    return facts.argument_size_in_bytes + facts.output_size_in_bytes + facts.temp_size_in_bytes - reused


def _function(plan: Plan) -> Any:
    from redist.collectives.backends.jax.execute import compile_plan

    return compile_plan(plan)


def _compiled(plan: Plan, function: Any) -> Any:
    dtype = numpy_dtype(plan.source.dtype)
    argument = load_jax().ShapeDtypeStruct(plan.source.shape, dtype, sharding=plan.source.to_jax())
    return function.lower(argument).compile()


def _require_dtype(array: NDArray[Any]) -> None:
    try:
        load_jax().device_put(array[(slice(0, 0),) * array.ndim])
    except TypeError:
        raise BackendError(f"JAX has no dtype {array.dtype}; use the numpy backend") from None

"""What XLA says that the program of a plan allocates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redist.collectives.backends.jax.execute import compile_plan
from redist.collectives.backends.jax.modules import jax
from redist.errors import BackendError

if TYPE_CHECKING:
    from redist.collectives.plan import Plan

__all__ = ["program_bytes"]


def program_bytes(plan: Plan, dtype: Any, donated: bool = False) -> int:
    """Bytes per device of arguments, results and temporaries. Raises BackendError where the plan is several
    programs."""
    function = compile_plan(plan)
    if not hasattr(function, "lower"):
        raise BackendError(
            f"from {plan.source} on {plan.source.mesh} to {plan.target} on {plan.target.mesh}, data goes to other "
            "devices or another device order, which no single JAX program does; measure each side by itself"
        )
    argument = jax.ShapeDtypeStruct(plan.source.shape, dtype, sharding=plan.source.to_jax())
    used = function.lower(argument).compile().memory_analysis()
    total = used.argument_size_in_bytes + used.output_size_in_bytes + used.temp_size_in_bytes
    return total - (used.alias_size_in_bytes if donated else 0)

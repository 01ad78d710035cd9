"""Shardy's pass as pip's jaxlib contains it. The only module that touches jax's private parts for it."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

from redist.errors import BackendError, ProofError

__all__ = ["missing", "run_pass"]

_PASS = "builtin.module(func.func(sdy-reshard-to-collectives))"


def missing() -> str | None:
    """Why the pass is not here; None where it is."""
    try:
        _tools()
    except BackendError as error:
        return str(error)
    return None


@lru_cache(maxsize=1)
def _tools() -> tuple[Any, Any, Any]:
    """(MLIR context with Shardy's dialect, `ir`, the pass). Raises BackendError where jaxlib lacks them."""
    try:
        mlir: Any = import_module("jax._src.interpreters.mlir")
        ir: Any = import_module("jaxlib.mlir.ir")
        passmanager: Any = import_module("jaxlib.mlir.passmanager")
        import_module("jaxlib.mlir.dialects.sdy")  # registers the dialect's Python classes
        context = mlir.make_ir_context()
        with context:
            return context, ir, passmanager.PassManager.parse(_PASS)
    except Exception as error:  # a private interface: it may be gone, or fail in ways of its own
        raise BackendError(
            f"Shardy's pass was not found in jaxlib ({type(error).__name__}: {error}); install jax 0.10"
        ) from error


def run_pass(module: str) -> str:
    """The module after the pass, printed. Raises ProofError where the pass or its verifier fails."""
    context, ir, pipeline = _tools()
    with context:
        parsed = ir.Module.parse(module)
        try:
            pipeline.run(parsed.operation)
        except ir.MLIRError as error:
            raise ProofError(f"Shardy's pass failed: {_first_line(error)}") from None
        return str(parsed)


def _first_line(error: Any) -> str:
    diagnostics = list(error.error_diagnostics)
    return diagnostics[0].message if diagnostics else str(error).splitlines()[0]

"""The text of a compiled program in full. The only module that touches jax's private parts for it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from redist.errors import BackendError

__all__ = ["hlo_text"]


def hlo_text(compiled: Any) -> str:
    """HLO text of a `jax.stages.Compiled` of one module, large constants written out.

    `compiled.as_text()` leaves those out, and tables by device are such constants. Raises BackendError.
    """
    try:
        options: Any = import_module("jax._src.lib").hlo.HloPrintOptions()
        options.print_large_constants = True
        options.print_metadata = False
        (module,) = compiled.runtime_executable().hlo_modules()
        return module.to_string(options)
    except Exception as error:  # a private interface: it may be gone, or fail in ways of its own
        raise BackendError(
            f"the compiled HLO cannot be printed in full ({type(error).__name__}: {error}); install jax 0.10"
        ) from error

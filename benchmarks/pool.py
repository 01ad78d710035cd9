"""A process with virtual devices. How many JAX has is settled when it starts, and a compiler may take it down."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Self, TypeVar

__all__ = ["DevicePool"]

_T = TypeVar("_T")


def _prepare(devices: int) -> None:
    """Runs in the new process, before JAX is imported."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # XLA warns of every rematerialisation
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # and of more that is not ours


class DevicePool:
    """Runs calls one after another in a process with this many virtual CPU devices.

    A call that takes the process down raises `BrokenProcessPool`; those after it get a new process.
    """

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, call: Callable[..., _T], *arguments: Any) -> Future[_T]:
        """Queue a call of a module-level function; arguments and result travel pickled."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, mp_context=get_context("spawn"), initializer=_prepare, initargs=(self.devices,)
            )
        try:
            return self._pool.submit(call, *arguments)
        except BrokenProcessPool:
            self.close()
            return self.submit(call, *arguments)

    def run(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """Queue a call and wait for it."""
        try:
            return self.submit(call, *arguments).result()
        except BrokenProcessPool:
            self.close()
            raise

    def close(self) -> None:
        """End the process once its calls are done."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Settings of every test: JAX on the CPU with 32 devices, and how many examples Hypothesis tries."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# JAX reads both once, when it is first imported.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=32")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# No deadlines and no complaint about slow generation: they depend on what else the machine is doing.
settings.register_profile("quick", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("reproducible", settings.get_profile("quick"), derandomize=True, print_blob=True)
settings.register_profile("heavy", settings.get_profile("quick"), max_examples=500)
settings.load_profile("reproducible" if "CI" in os.environ else "quick")

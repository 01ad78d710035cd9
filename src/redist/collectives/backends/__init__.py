"""Backends that run plans: NumPy (the reference, all devices in one process), JAX and MPI."""

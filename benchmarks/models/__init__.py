"""Models as plain JAX functions, free of sharding: what partitioning is measured on."""

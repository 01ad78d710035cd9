"""Plans on JAX: steps inside a `shard_map`, compiled plans, transfers between devices, and `reshard`'s primitive."""

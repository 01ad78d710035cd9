"""Plans on JAX."""

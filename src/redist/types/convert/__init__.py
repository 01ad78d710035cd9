"""Layouts in other notations: JAX shardings, XLA tile text, Shardy text, DTensor placements."""

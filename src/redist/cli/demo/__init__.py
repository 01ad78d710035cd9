"""`redist demo`: GPT-2's parameters move from a training layout to a serving layout, next to XLA's own resharding."""

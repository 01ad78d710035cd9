"""The usual schedules for `gpt` and `llama`, over a batch axis B and a model axis M."""

from __future__ import annotations

from redist.partir_core import FIRST_DIVISIBLE_DIM, REPLICATED, ManualPartition

GPT_LARGE = ("embed", "*/qkv", "*/out", "*/up", "*/down")
LLAMA_LARGE = ("embed", "head", *(f"*/{name}" for name in ["query", "key", "value", "out", "gate", "up", "down"]))

BP = ManualPartition({"batch": 0}, "B", label="BP")
"""Batch parallelism."""


def zero2(large: tuple[str, ...]) -> ManualPartition:
    """ZeRO-2: the optimizer state of large parameters is sharded, parameters stay whole."""
    kept = {f"params/{name}": REPLICATED for name in large}
    return ManualPartition({**kept, **{f"state/*/{name}": FIRST_DIVISIBLE_DIM for name in large}}, "B", label="Z2")


def zero3(large: tuple[str, ...]) -> ManualPartition:
    """ZeRO-3: large parameters and their optimizer state are sharded."""
    cut = {f"params/{name}": FIRST_DIVISIBLE_DIM for name in large}
    return ManualPartition({**cut, **{f"state/*/{name}": FIRST_DIVISIBLE_DIM for name in large}}, "B", label="Z3")


GPT_MP = ManualPartition({"params/*/qkv": 2, "params/*/out": 0, "params/*/up": 1, "params/*/down": 0}, "M", label="MP")
"""Megatron's model parallelism: heads, and the hidden dimension."""
GPT_Z2 = zero2(GPT_LARGE)
GPT_Z3 = zero3(GPT_LARGE)

_LLAMA_DIMS = {"query": 1, "key": 1, "value": 1, "out": 0, "gate": 1, "up": 1, "down": 0}
LLAMA_MP = ManualPartition({f"params/*/{name}": dim for name, dim in _LLAMA_DIMS.items()}, "M", label="MP")
"""The same with groups of heads."""
LLAMA_Z2 = zero2(LLAMA_LARGE)
LLAMA_Z3 = zero3(LLAMA_LARGE)

UNET_MP = ManualPartition(
    {"params/convs/widen": 3, "params/convs/narrow": 2, "params/qkv": 2, "params/out": 0}, "M", label="MP"
)
"""Channels between the two convolutions of the residual block, and heads."""

EDGES = ManualPartition({name: 0 for name in ("graph/edges", "graph/senders", "graph/receivers")}, "B", label="edges")
"""Edges apart, nodes whole: every device sums its edges' messages, and the sums are added."""
GRAPH_MP = ManualPartition(
    {f"params/rounds/*/{name}": dim for name, dim in {"edge": 1, "message": 0, "node": 1, "update": 0}.items()},
    "M",
    label="MP",
)
"""Hidden features of both networks of a round."""

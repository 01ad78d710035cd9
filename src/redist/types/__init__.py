"""What a distributed array is: meshes, sub-axes, layouts, and the bounds they imply."""

from redist.types.blocks import BALANCED, CEIL, Balanced, BlockRule, Ceil, Offsets
from redist.types.bounds import lower_bound, missing_by_device
from redist.types.digits import aligned
from redist.types.layout import Dim, Layout, Partial
from redist.types.mesh import Mesh, SubAxis

__all__ = [
    "BALANCED",
    "CEIL",
    "Balanced",
    "BlockRule",
    "Ceil",
    "Dim",
    "Layout",
    "Mesh",
    "Offsets",
    "Partial",
    "SubAxis",
    "aligned",
    "lower_bound",
    "missing_by_device",
]

"""Plans on NumPy blocks over the ranks of an mpi4py communicator: `redist.mpi`.

`redistribute` runs a plan once, `Transfer` many times; device d of the plan is rank d.
"""

from redist.collectives.backends.mpi.bound import Bound
from redist.collectives.backends.mpi.calibration import calibrate
from redist.collectives.backends.mpi.choice import Calibration
from redist.collectives.backends.mpi.groups import release
from redist.collectives.backends.mpi.transfer import Transfer, redistribute

__all__ = ["Bound", "Calibration", "Transfer", "calibrate", "redistribute", "release"]

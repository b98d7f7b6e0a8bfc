"""Where sums and values are computed: in memory, in Dask's blocks or by region, on the host or the GPU."""

from .broadcast import deferred as deferred
from .broadcast import evaluate as evaluate
from .device import Gpu as Gpu
from .device import check_device as check_device
from .device import has_gpu as has_gpu
from .device import present as present
from .device import resources as resources
from .device import to_device as to_device
from .faults import ClusterLostError as ClusterLostError
from .faults import WorkerMemoryError as WorkerMemoryError
from .planning import Plan as Plan
from .planning import plan as plan
from .reduce import compute as compute
from .reduce import lazy_sums as lazy_sums
from .reduce import persist as persist
from .reduce import sums as sums
from .source import Owners as Owners
from .source import Reader as Reader
from .source import Source as Source

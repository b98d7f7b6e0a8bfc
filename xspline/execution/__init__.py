"""Where sums and values are computed: in memory, in Dask's blocks or by region, on the host or the GPU."""

from xspline.execution.checkpoint import replacing as replacing
from xspline.execution.dask_api import ClusterLostError as ClusterLostError
from xspline.execution.dask_api import WorkerMemoryError as WorkerMemoryError
from xspline.execution.dask_api import stored_leaves as stored_leaves
from xspline.execution.dask_api import stored_reads as stored_reads
from xspline.execution.dask_api import type_of_blocks as type_of_blocks
from xspline.execution.device.gpu import Gpu as Gpu
from xspline.execution.device.gpu import check_device as check_device
from xspline.execution.device.gpu import has_gpu as has_gpu
from xspline.execution.device.gpu import present as present
from xspline.execution.device.gpu import resources as resources
from xspline.execution.device.gpu import to_device as to_device
from xspline.execution.identity import UnidentifiedError as UnidentifiedError
from xspline.execution.limits import LIMITS as LIMITS
from xspline.execution.limits import Limits as Limits
from xspline.execution.planning import Plan as Plan
from xspline.execution.planning import plan as plan
from xspline.execution.reduce import compute as compute
from xspline.execution.reduce import lazy_sums as lazy_sums
from xspline.execution.reduce import persist as persist
from xspline.execution.reduce import sums as sums
from xspline.execution.source import HolderCodes as HolderCodes
from xspline.execution.source import Reader as Reader
from xspline.execution.source import Source as Source
from xspline.execution.values import deferred as deferred
from xspline.execution.values import evaluate as evaluate

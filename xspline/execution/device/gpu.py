"""Where blocks are processed: on the device where they are, or moved to the GPU inside their own task."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import dask.base
import numpy as np
from dask.system import CPU_COUNT

from xspline.execution.dask_api import workers_of
from xspline.solve import Resources

DEVICES = (None, "cuda")


def check_device(device: str | None, *, here: bool = False) -> None:
    """Raise unless `device` is None or "cuda"; with `here`, also unless this process has a GPU.

    It raises ValueError for any other name; with `here` ImportError where CuPy is not installed, and RuntimeError where
    it sees no GPU.
    """
    if device not in DEVICES:
        raise ValueError(
            f"device={device!r} is not known; leave it out to compute where the data are, or pass 'cuda'"
        )
    if device == "cuda" and here:
        _cupy()


def to_device(array: Any, device: str | None) -> Any:
    """Return `array` itself for None, a CuPy array on the current GPU for "cuda"."""
    if device is None:
        return array
    return _cupy().asarray(array if hasattr(array, "__cuda_array_interface__") else _plain(array))


def _plain(array: Any) -> np.ndarray:
    """Return an array that a GPU can hold: in native byte order and C order."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


class Gpu:
    """The current GPU of this process, and its array namespace."""

    def __init__(self) -> None:
        self._cupy = _cupy()

    def __reduce__(self) -> Any:
        return type(self), ()  # a process that it is sent to has a GPU of its own

    @property
    def xp(self) -> Any:
        from array_api_compat import cupy

        return cupy

    def put(self, array: Any) -> Any:
        """Return a host array on the GPU."""
        return to_device(array, "cuda")

    def get(self, array: Any) -> Any:
        """Return an array of the GPU on the host."""
        return to_host(array)

    @property
    def memory(self) -> float:
        """Bytes of memory of the GPU, whoever uses them."""
        return float(self._cupy.cuda.Device().mem_info[1])

    def cholesky(self, matrix: Any) -> Any:
        """Return L with L Lᵀ the matrix; `numpy.linalg.LinAlgError` where there is none, which CuPy does not check."""
        import cupyx

        with cupyx.errstate(linalg="raise"):
            return self.xp.linalg.cholesky(matrix)

    def triangular(self, root: Any, rhs: Any, transposed: bool) -> Any:
        """Return L⁻¹ or L⁻ᵀ times [P, m], L the lower root."""
        from cupyx.scipy.linalg import solve_triangular

        # cuBLAS stores by columns, so Lᵀ, an upper triangle, is what it takes without a copy.
        return solve_triangular(root.T, rhs, trans=int(not transposed))


def resources(device: str | None) -> Resources:
    """Return what a solve may use here: cores and memory within the limits of a container, and the named GPU."""
    from distributed.system import MEMORY_LIMIT

    check_device(device)
    return Resources(CPU_COUNT, float(MEMORY_LIMIT), None if device is None else Gpu())


def on_gpu_workers(device: str | None, client: Any) -> AbstractContextManager[Any]:
    """Return a context in which graphs for a GPU go to workers that declare one, if there are any.

    A GPU is declared as Dask's resource "GPU" (``dask worker --resources GPU=1``), of which every task takes one.
    Where nobody declares any, as in a `LocalCUDACluster` with a GPU for each worker, all workers take part; so they do
    where each declares one for each of its threads, since Dask spreads tasks better that ask for nothing. Only what is
    computed within asks for it: Dask forgets annotations of lazy arrays when it fuses their tasks.
    """
    if device is None or client is None:
        return nullcontext()
    gpus = [(w.get("resources", {}).get("GPU", 0), w["nthreads"]) for w in workers_of(client)]
    if not any(n for n, _ in gpus) or all(n >= threads for n, threads in gpus):
        return nullcontext()
    return dask.base.annotate(resources={"GPU": 1})


def has_gpu() -> bool:
    """Return whether this process has CuPy and sees a GPU."""
    try:
        _cupy()
    except (ImportError, RuntimeError):
        return False
    return True


def present(device: str | None) -> str | None:
    """Return `device` where this process has it, else None: the host."""
    return device if device is not None and has_gpu() else None


def to_host(array: Any) -> Any:
    """Return a NumPy array: `array` itself, or the host copy of a CuPy array."""
    return array.get() if hasattr(array, "get") else array


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            "device='cuda' needs CuPy, which is not installed here: "
            'pip install "xarray-spline[gpu12]" for CUDA 12, "xarray-spline[gpu13]" for CUDA 13'
        ) from error
    try:
        gpus = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(
            f"device='cuda', but no GPU is visible to this process ({error}); {_HELP}"
        ) from error
    if gpus == 0:
        raise RuntimeError(f"device='cuda', but no GPU is visible to this process; {_HELP}")
    return cupy


_HELP = "check nvidia-smi and CUDA_VISIBLE_DEVICES, or leave device out"

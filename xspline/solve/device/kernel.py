"""The product of `device.DeviceOperator` by a kernel of our own, `multiply.cu`.

In the words of a namespace it takes two launches for each of (2p + 1)^d offsets, 686 for cubics of three coordinates:
with up to a million coefficients a GPU spends nearly all of the time between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

import numpy as np

from xspline.solve.device.gpu import Array, Gpu, Host, Kernel
from xspline.solve.multigrid.spaces import Line

THREADS = 128  # of a block
AT_ONCE = 4  # vectors that share what is read of the matrix


def compiled(gpu: Gpu, lines: Sequence[Line], at_once: int) -> Kernel:
    """The kernel for some axes, and so many vectors at once."""
    return gpu.kernel(source(), "multiply", (f"-DAT_ONCE={at_once}", f"-DLAST={lines[-1].offsets}"))


@lru_cache(maxsize=1)
def source() -> str:
    """The kernel in CUDA C++."""
    return files(__package__).joinpath("multiply.cu").read_text(encoding="utf-8")


class CudaOperator:
    """`operator.Operator` on a GPU.

    Parameters
    ----------
    pairs : array, [K.., O..]
        Over four axes, on the GPU.
    lines : sequence of Line
        The axes.
    gpu : Gpu
        One with kernels.
    """

    def __init__(self, pairs: Array, lines: Sequence[Line], gpu: Gpu) -> None:
        self.xp, self.gpu, self.lines = gpu.xp, gpu, tuple(lines)
        self.sizes = tuple(line.size for line in lines)
        self.bands = self.xp.reshape(self.xp.permute_dims(pairs, (4, 5, 6, 7, 0, 1, 2, 3)), (-1,))
        periodic = sum(1 << axis for axis, line in enumerate(lines) if line.periodic)
        self._numbers = (*self.sizes, *(line.offsets for line in lines[:-1]), periodic)

    @property
    def nbytes(self) -> int:
        """Bytes of the bands."""
        return 8 * int(self.bands.shape[0])

    def matvec(self, x: Array) -> Array:
        """A x, [m, K..]."""
        members, out = int(x.shape[0]), self.xp.empty(x.shape, dtype=self.xp.float64, device=x.device)
        at_once = 1 if members == 1 else AT_ONCE
        blocks = -(-math.prod(self.sizes) // THREADS), -(-members // at_once), 1
        numbers = map(np.int64, (*self._numbers, members))
        multiply = compiled(self.gpu, self.lines, at_once)
        # One axis: what is not contiguous is copied.
        multiply(blocks, (THREADS, 1, 1), (self.bands, self.xp.reshape(x, (-1,)), *numbers, out))
        return out

    def scale(self) -> Host:
        """Inverse square roots of the diagonal, [K..], on the host."""
        diagonal = self.gpu.get(self.bands[: math.prod(self.sizes)])
        return np.asarray(1.0 / np.sqrt(diagonal)).reshape(self.sizes)

"""The dense Cholesky factorisation in any array namespace: `cholesky.DenseCholesky` for devices.

The matrix is made on the device from its pairs, so that what goes there and comes back are pairs and vectors: a matrix
of 10 000 coefficients has 800 MB, its pairs over three cubic coordinates have 5 MB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xspline.solve.device.gpu import Gpu, taken
from xspline.solve.direct.band import Index, Ordering, gather_entries
from xspline.solve.direct.cholesky import Array, Cholesky, Which, unit_scale
from xspline.solve.multigrid.spaces import Line
from xspline.solve.multigrid.subdomains import places_of

if TYPE_CHECKING:
    from xspline.spaces import Frame

DeviceArray = Any  # of the namespace of the device
AT_ONCE = 1 << 24  # entries of the matrix that are made at a time, each with some temporary numbers


class DeviceCholesky(Cholesky):
    """Of the symmetric matrix of a pair array, with the scale, the pivots and the tolerance of the host.

    One that is not `determined` names no coefficient: a device does not say where it stopped, LAPACK does.

    Parameters
    ----------
    pairs : ndarray, [K.., O..]
        On the host.
    frame : Frame
    gpu : Gpu
    """

    def __init__(self, pairs: Array, frame: Frame, gpu: Gpu) -> None:
        self.gpu, self.frame = gpu, frame
        scale = unit_scale(pairs.reshape(math.prod(frame.sizes), -1)[:, 0])
        matrix = assembled(pairs, scale, frame, gpu)
        try:
            factor, info = gpu.cholesky(matrix), 0
        except np.linalg.LinAlgError:
            factor, info = matrix, 1
        diagonal = np.asarray(gpu.get(gpu.xp.linalg.diagonal(factor)))
        super().__init__(factor, scale, diagonal, info)

    def solve(self, rhs: Array, which: Which | None = None) -> Array:
        """A⁻¹ rhs, [P, m], from the host to the host."""
        x = self.gpu.triangular(self.factor, self.gpu.put(rhs / self.scale[:, None]), False)
        return self._back(self.gpu.triangular(self.factor, x, True))

    def apply_inverse_sqrt(self, z: Array, which: Which | None = None) -> Array:
        """S⁻¹ L⁻ᵀ z, [P, m]: x xᵀ is A⁻¹ on average when z zᵀ is the identity."""
        return self._back(self.gpu.triangular(self.factor, self.gpu.put(z), True))

    def inverse_pairs(self, ordering: Ordering) -> Array:
        """Pair form of A⁻¹, [K.., O.., 1], on the host; the inverse itself stays on the device, and is forgotten."""
        gpu, size = self.gpu, len(self.scale)
        flat = gpu.xp.reshape(self._inverse(), (-1,))

        def entries(rows: Index, columns: Index) -> Array:
            i, j = (np.ravel_multi_index(side, self.frame.sizes) for side in (rows, columns))
            found = gpu.get(gpu.xp.take(flat, gpu.put((i * size + j).reshape(-1))))
            return np.asarray(found.reshape(i.shape) / self.scale[i] / self.scale[j])

        return gather_entries(entries, self.frame)[..., None]

    def _back(self, x: DeviceArray) -> Array:
        return np.asarray(self.gpu.get(x) / self.scale[:, None])

    def _inverse(self) -> DeviceArray:
        """(L Lᵀ)⁻¹, [P, P]."""
        xp, size = self.gpu.xp, len(self.scale)
        identity = xp.eye(size, dtype=xp.float64, device=self.factor.device)
        root = self.gpu.triangular(self.factor, identity, False)
        del identity
        return xp.matmul(xp.matrix_transpose(root), root)


def assembled(pairs: Array, scale: Array, frame: Frame, gpu: Gpu) -> DeviceArray:
    """The matrix of a pair array with its rows and columns divided by a scale, [P, P] on the device."""
    xp, size = gpu.xp, len(scale)
    flat, columns = gpu.put(np.ascontiguousarray(pairs).reshape(-1)), gpu.put(scale)
    tables = _tables(pairs.shape, frame)
    out = xp.empty((size, size), dtype=xp.float64, device=flat.device)
    step = max(1, AT_ONCE // size)
    for low in range(0, size, step):
        rows = np.arange(low, min(low + step, size))
        places = [gpu.put(table) for table in _of_rows(tables, rows, frame)]
        block = xp.reshape(taken(flat, places, xp), (len(rows), size))
        out[low : low + len(rows), :] = block / columns / gpu.put(scale[rows, None])
    return out


def _tables(shape: Sequence[int], frame: Frame) -> list[NDArray[np.int64]]:
    """Of each axis where in a pair array the pair of two coefficients lies, −1 for none: [K, K]."""
    count = len(frame.sizes)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(2 * count)]
    lines = map(Line, frame.sizes, frame.offsets, frame.periodic)
    axes = zip(lines, strides[:count], strides[count:], strict=True)
    return [places_of(np.arange(line.size)[None], line, *steps)[0] for line, *steps in axes]


def _of_rows(
    tables: Sequence[NDArray[np.int64]], rows: NDArray[np.int64], frame: Frame
) -> list[NDArray[np.int64]]:
    """The rows of the tables that rows of the matrix read, each over its own axis of columns: [rows, 1.., K, 1..]."""
    count = len(tables)
    parts = zip(tables, np.unravel_index(rows, frame.sizes), strict=True)
    return [
        table[k].reshape(-1, *np.where(np.arange(count) == j, len(table), 1))
        for j, (table, k) in enumerate(parts)
    ]

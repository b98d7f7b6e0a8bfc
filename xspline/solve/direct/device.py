"""The dense Cholesky factorisation on a GPU, in array-API functions: `cholesky.DenseCholesky` there.

The matrix is assembled on the GPU from its pairs, so that what goes there and comes back are pairs and vectors: a
matrix of 10 000 coefficients has 800 MB, its pairs over three cubic coordinates have 5 MB.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.band import Ordering, gather_entries, pair_places
from xspline.solve.direct.cholesky import Cholesky, Which, unit_scale
from xspline.solve.parallel import DeviceArray, Gpu, Resources
from xspline.spaces import Frame
from xspline.sums.factor import Index

HostArray: TypeAlias = NDArray[np.float64]


class DeviceCholesky(Cholesky):
    """Of the symmetric matrix of a pair array, with the scale, the pivots and the tolerance of the host.

    One that is not `determined` names no coefficient: a GPU does not say where it stopped, LAPACK does.

    Parameters
    ----------
    pairs : ndarray, [K.., O..]
        On the host.
    frame : Frame
    gpu : Gpu
    """

    def __init__(self, pairs: HostArray, frame: Frame, gpu: Gpu) -> None:
        self.gpu, self.frame = gpu, frame
        scale = unit_scale(pairs.reshape(math.prod(frame.sizes), -1)[:, 0])
        matrix = assembled(pairs, scale, frame, gpu)
        try:
            factor, info = gpu.cholesky(matrix), 0
        except np.linalg.LinAlgError:
            factor, info = matrix, 1
        diagonal = np.asarray(gpu.get(gpu.xp.linalg.diagonal(factor)))
        super().__init__(factor, scale, diagonal, info)

    def solve(self, rhs: HostArray, which: Which | None = None) -> HostArray:
        """A⁻¹ rhs, [P, m], from the host to the host."""
        x = self.gpu.triangular(self.factor, self.gpu.put(rhs / self.scale[:, None]), False)
        return self._back(self.gpu.triangular(self.factor, x, True))

    def apply_inverse_sqrt(self, z: HostArray, which: Which | None = None) -> HostArray:
        """S⁻¹ L⁻ᵀ z, [P, m]: x xᵀ is A⁻¹ on average when z zᵀ is the identity."""
        return self._back(self.gpu.triangular(self.factor, self.gpu.put(z), True))

    def inverse_pairs(self, ordering: Ordering) -> HostArray:
        """Pair form of A⁻¹, [K.., O.., 1], on the host; the inverse itself stays on the GPU, and is forgotten."""
        gpu, xp, size = self.gpu, self.gpu.xp, len(self.scale)
        identity = xp.eye(size, dtype=xp.float64, device=self.factor.device)
        root = gpu.triangular(self.factor, identity, False)
        del identity  # a matrix of the GPU's memory
        flat = xp.reshape(xp.matmul(xp.matrix_transpose(root), root), (-1,))
        del root

        def entries(rows: Index, columns: Index) -> HostArray:
            i, j = (np.ravel_multi_index(side, self.frame.sizes) for side in (rows, columns))
            values = gpu.get(xp.take(flat, gpu.put((i * size + j).reshape(-1))))
            return np.asarray(values.reshape(i.shape) / self.scale[i] / self.scale[j])

        return gather_entries(entries, self.frame)[..., None]

    def _back(self, x: DeviceArray) -> HostArray:
        return np.asarray(self.gpu.get(x) / self.scale[:, None])


def gpu_room(resources: Resources, size: int) -> float:
    """Bytes of the GPU for the factorisations that one dense solver keeps; less than one of them where none fits."""
    costs = resources.costs
    if resources.gpu is None or size > costs.max_gpu_coefficients:
        return 0.0
    room = costs.gpu_memory_share * resources.gpu.memory - 8.0 * costs.dense_matrices * size**2
    return room / costs.searched_solvers


def assembled(
    pairs: HostArray, scale: HostArray, frame: Frame, gpu: Gpu, max_entries: int = 1 << 24
) -> DeviceArray:
    """The matrix of a pair array with its rows and columns divided by a scale, [P, P] on the GPU.

    Some rows at a time, of no more than `max_entries` entries: 128 MiB, and some temporary arrays as large.
    """
    xp, size, count = gpu.xp, len(scale), len(frame.sizes)
    flat, columns = gpu.put(np.ascontiguousarray(pairs).reshape(-1)), gpu.put(scale)
    strides = [math.prod(pairs.shape[axis + 1 :]) for axis in range(2 * count)]
    own = zip(frame.sizes, frame.offsets, frame.periodic, strides[:count], strides[count:], strict=True)
    tables = []
    for k, offsets, periodic, *steps in own:
        first, second = np.indices((k, k))
        tables.append(pair_places(first, second, k, offsets, periodic, (steps[0], steps[1]))[0])
    out = xp.empty((size, size), dtype=xp.float64, device=flat.device)
    step = max(1, max_entries // size)
    for low in range(0, size, step):
        rows = np.arange(low, min(low + step, size))
        # Each axis has its own columns: [rows, 1.., K, 1..].
        places = [
            gpu.put(table[k].reshape(-1, *np.where(np.arange(count) == j, len(table), 1)))
            for j, (table, k) in enumerate(zip(tables, np.unravel_index(rows, frame.sizes), strict=True))
        ]
        block = xp.reshape(_entries_at(flat, places, xp), (len(rows), size))
        out[low : low + len(rows), :] = block / columns / gpu.put(scale[rows, None])
    return out


def _entries_at(flat: DeviceArray, places: Sequence[DeviceArray], xp: Any) -> DeviceArray:
    """Entries of a flat array at sums of places, which broadcast; 0 where one of these is negative."""
    exists = xp.reshape(functools.reduce(xp.logical_and, [place >= 0 for place in places]), (-1,))
    at = xp.reshape(sum(places), (-1,))
    values = xp.take(flat, xp.where(exists, at, xp.zeros_like(at)))
    return xp.where(exists, values, xp.zeros_like(values))

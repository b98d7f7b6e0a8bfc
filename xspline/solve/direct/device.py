"""The Cholesky factorisation of a dense matrix on a GPU, in array-API functions."""

from __future__ import annotations

import numpy as np

from xspline.solve.costs import DeviceArray, Gpu, Resources
from xspline.solve.direct.band import Ordering, gather_entries
from xspline.solve.direct.cholesky import Array, Cholesky, Which, unit_scale


class DeviceCholesky(Cholesky):
    """The factorisation of a symmetric matrix [P, P] of the host, with the scale, pivots and tolerance of the host.

    One that is not `determined` names no coefficient: a GPU does not say where it stopped, LAPACK does.
    """

    def __init__(self, matrix: Array, gpu: Gpu) -> None:
        self.gpu = gpu
        scale = unit_scale(np.diagonal(matrix))
        scaled = gpu.put(matrix / scale / scale[:, None])
        try:
            factor, info = gpu.cholesky(scaled), 0
        except np.linalg.LinAlgError:
            factor, info = scaled, 1
        diagonal = np.asarray(gpu.get(gpu.xp.linalg.diagonal(factor)))
        super().__init__(factor, scale, diagonal, info)

    def solve(self, rhs: Array, which: Which | None = None) -> Array:
        """A⁻¹ rhs, [P, m], from the host to the host."""
        x = self.gpu.triangular(self.factor, self.gpu.put(rhs / self.scale[:, None]), False)
        return self._back(self.gpu.triangular(self.factor, x, True))

    def apply_inverse_sqrt(self, z: Array, which: Which | None = None) -> Array:
        return self._back(self.gpu.triangular(self.factor, self.gpu.put(z), True))

    def inverse_pairs(self, ordering: Ordering) -> Array:
        """Pair form of A⁻¹, [K.., O.., 1], on the host; the inverse itself is forgotten."""
        xp = self.gpu.xp
        identity = xp.eye(len(self.scale), dtype=xp.float64, device=self.factor.device)
        root = self.gpu.triangular(self.factor, identity, False)
        inverse = self._back(xp.matmul(xp.matrix_transpose(root), root)) / self.scale
        return gather_entries(inverse, ordering.frame)[..., None]

    def _back(self, x: DeviceArray) -> Array:
        return np.asarray(self.gpu.get(x) / self.scale[:, None])


def gpu_room(resources: Resources, size: int) -> float:
    """Bytes of the GPU for the factorisations that one dense solver keeps; less than one of them where none fits."""
    costs = resources.costs
    # The GPU counts the entries of a matrix by 32-bit integers.
    if resources.gpu is None or size**2 > np.iinfo(np.int32).max:
        return 0.0
    room = costs.gpu_memory_share * resources.gpu.memory - 8.0 * costs.dense_matrices * size**2
    return room / costs.searched_solvers

"""The V-cycle on a GPU: the product with the matrix, Schwarz smoothing and changes of level there.

The GPU path is the same algorithm (`xspline.solve.multigrid.vcycle`) with fewer, larger kernels: batches of subdomains
and dense changes of level, in array-API functions. Where compiled loops add subdomain after subdomain, each
coefficient here gathers what its subdomains give, in their order.

The product with the matrix is a kernel of our own, `multiply.cu`: one launch. Array-API functions take two for each of
(2p + 1)^d offsets, 686 for cubics of three coordinates: with up to a million coefficients a GPU would spend nearly all
of the time between them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xspline.solve.device.dense import entries_at, summed_places
from xspline.solve.multigrid.schwarz import FourArrays, subdomain_indices, subdomain_pairs
from xspline.solve.multigrid.spaces import AxisLevel, FourAxes
from xspline.solve.parallel import DeviceArray, Gpu
from xspline.sums import Gram

if TYPE_CHECKING:
    from xspline.solve.multigrid.vcycle import Solve
    from xspline.spaces import Frame

HostArray: TypeAlias = NDArray[np.float64]
RIDGE = 1e-10  # relative to the diagonal: added to subdomains, so that those without observations have a root
MIN_SPLIT = 32  # rows of triangles, up to which they are inverted as they are
SUBDOMAIN_ENTRIES = 1 << 26  # factorised or added at a time: 512 MiB, and temporary arrays as large
BLOCK_THREADS = 128  # of a block of the kernel
VECTORS_PER_THREAD = 4  # vectors that share what the kernel reads of the matrix


class DeviceBackend:
    """The `Backend` of a V-cycle on a GPU.

    Parameters
    ----------
    gpu : Gpu
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.xp = gpu, gpu.xp

    def put(self, array: HostArray) -> DeviceArray:
        """A host array on the GPU."""
        return self.gpu.put(array)

    def get(self, array: DeviceArray) -> HostArray:
        """An array of the GPU on the host."""
        return self.gpu.get(array)

    def pairs(self, data: Gram, penalty: Gram, frame: Frame, four: FourAxes) -> DeviceArray:
        """Pair array of G + Λ over four axes; a penalty of products of small factors is multiplied out on the GPU."""
        terms = four.terms(penalty, frame)
        total = data if terms else Gram((*data.terms, *penalty.with_batch_axes(1).terms), 1)
        pairs = self.put(four.pairs(total.one_factor(frame).pairs[..., 0]))
        for term in terms:
            factors = (self.put(_over_four_axes(factor, j)) for j, factor in enumerate(term))
            pairs = pairs + math.prod(factors, start=self.xp.ones_like(pairs[:1, :1, :1, :1, :1, :1, :1, :1]))
        return pairs

    def matrix(self, pairs: DeviceArray, axes: Sequence[AxisLevel]) -> DeviceOperator:
        """The matrix of a level."""
        return DeviceOperator(pairs, axes, self.gpu)

    def smoother(self, pairs: DeviceArray, axes: Sequence[AxisLevel]) -> DeviceSchwarz:
        """The smoother of a level."""
        return DeviceSchwarz(pairs, axes, self.gpu)

    def axis_map(self, matrix: sparse.csr_array, offsets: int, out_offsets: int) -> DeviceArray:
        """A dense matrix."""
        return self.put(matrix.toarray())

    def along(
        self, axis_map: DeviceArray, array: DeviceArray, axis: int, offset_axis: int | None = None
    ) -> DeviceArray:
        """A matrix times an axis of an array, or times an axis of coefficients and that of their offsets as one."""
        xp, own = self.xp, (axis,) if offset_axis is None else (axis, offset_axis)
        order = (*own, *(i for i in range(array.ndim) if i not in own))
        front = xp.permute_dims(array, order)
        product = xp.matmul(axis_map, xp.reshape(front, (axis_map.shape[1], -1)))
        product = xp.reshape(product, (-1, *front.shape[1:]))  # offsets of a local spline stay degree + 1
        return xp.permute_dims(product, tuple(int(i) for i in np.argsort(order)))

    def coarsest(self, solve: Solve, sizes: Sequence[int]) -> Solve:
        """The dense inverse of the coarsest level, [n, n], times vectors."""
        xp, n = self.xp, math.prod(sizes)
        inverse = self.put(solve(np.eye(n).reshape(n, *sizes)).reshape(n, n))
        return lambda r: xp.reshape(xp.matmul(xp.reshape(r, (int(r.shape[0]), -1)), inverse), r.shape)


class DeviceOperator:
    """The product with the matrix of a pair array, by the kernel `multiply.cu`.

    Parameters
    ----------
    pairs : array, [K.., O..]
        Over four axes, on the GPU.
    axes : sequence of AxisLevel
    gpu : Gpu
    """

    def __init__(self, pairs: DeviceArray, axes: Sequence[AxisLevel], gpu: Gpu) -> None:
        self.xp, self.gpu, self.last = gpu.xp, gpu, axes[-1].offsets
        self.sizes = tuple(axis.size for axis in axes)
        self.bands = self.xp.reshape(self.xp.permute_dims(pairs, (4, 5, 6, 7, 0, 1, 2, 3)), (-1,))
        periodic = sum(1 << j for j, axis in enumerate(axes) if axis.periodic)
        self._integers = (*self.sizes, *(axis.offsets for axis in axes[:-1]), periodic)

    @property
    def nbytes(self) -> int:
        """Bytes of the bands."""
        return 8 * int(self.bands.shape[0])

    def matvec(self, x: DeviceArray) -> DeviceArray:
        """A x, [m, K..]."""
        count, out = int(x.shape[0]), self.xp.empty(x.shape, dtype=self.xp.float64, device=x.device)
        together = 1 if count == 1 else VECTORS_PER_THREAD
        blocks = -(-math.prod(self.sizes) // BLOCK_THREADS), -(-count // together), 1
        multiply = self.gpu.kernel(_source(), "multiply", (f"-DVECTORS={together}", f"-DLAST={self.last}"))
        flat = self.xp.reshape(x, (-1,))  # one axis: what is not contiguous is copied
        integers = map(np.int64, (*self._integers, count))
        multiply(blocks, (BLOCK_THREADS, 1, 1), (self.bands, flat, *integers, out))
        return out

    def inverse_root_diagonal(self) -> HostArray:
        """Inverse square roots of the diagonal, [K..], on the host."""
        diagonal = self.gpu.get(self.bands[: math.prod(self.sizes)])
        return np.asarray(1.0 / np.sqrt(diagonal)).reshape(self.sizes)


@lru_cache(maxsize=1)
def _source() -> str:
    """The kernel in CUDA C++."""
    return files(__package__).joinpath("multiply.cu").read_text(encoding="utf-8")


class DeviceSchwarz:
    """`schwarz.Schwarz` on a GPU: whole inverse roots instead of triangles, in single precision.

    Parameters
    ----------
    pairs : array, [K.., O..]
        Over four axes, with a positive diagonal, on the GPU.
    axes : sequence of AxisLevel
    gpu : Gpu
    """

    def __init__(self, pairs: DeviceArray, axes: Sequence[AxisLevel], gpu: Gpu) -> None:
        xp, sizes, indices = gpu.xp, [axis.size for axis in axes], subdomain_indices(axes)
        self.xp = xp
        self.scale = 1.0 / xp.sqrt(xp.reshape(pairs[..., 0, 0, 0, 0], (-1,)))
        # Flat coefficients of every subdomain: [subdomains, n].
        own = enumerate(zip(indices, _strides(sizes), strict=True))
        tables = [gpu.put(_over_four_axes(i * stride, j)) for j, (i, stride) in own]
        self.index = xp.reshape(sum(tables), (math.prod(len(i) for i in indices), -1))
        self.cover = _cover(indices, sizes, gpu)
        places = subdomain_pairs(indices, axes, pairs.shape)
        self.roots = self._inverse_roots(xp.reshape(pairs, (-1,)), places, gpu)

    @property
    def nbytes(self) -> int:
        """Bytes of the inverse roots."""
        return 4 * int(math.prod(self.roots.shape))

    def apply(self, r: DeviceArray) -> DeviceArray:
        """B r, [m, K..]."""
        xp, count = self.xp, int(r.shape[0])
        scaled = xp.reshape(r, (count, -1)) * self.scale
        size = xp.max(xp.abs(scaled), axis=1, keepdims=True)  # single precision has a short range
        size = xp.where(size == 0, xp.ones_like(size), size)
        single = xp.astype(scaled / size, xp.float32)
        shape = (count, *self.index.shape)
        x = xp.reshape(xp.take(single, xp.reshape(self.index, (-1,)), axis=1), shape)
        x = xp.matmul(self.roots, xp.permute_dims(x, (1, 2, 0)))
        x = xp.matmul(
            xp.matrix_transpose(x), self.roots
        )  # the roots transposed would be a copy of all of them
        y = xp.reshape(xp.permute_dims(x, (1, 0, 2)), (count, -1))
        y = xp.concat([y, xp.zeros((count, 1), dtype=xp.float32, device=y.device)], axis=1)
        z, (times, length) = xp.zeros_like(scaled), (int(n) for n in self.cover.shape)
        step = max(1, SUBDOMAIN_ENTRIES // (count * length))
        for low in range(0, times, step):
            cover = self.cover[low : min(low + step, times), :]
            gathered = xp.take(y, xp.reshape(cover, (-1,)), axis=1)
            z += xp.sum(xp.astype(xp.reshape(gathered, (count, -1, length)), xp.float64), axis=1)
        return xp.reshape(z * self.scale * size, r.shape)

    def _inverse_roots(self, flat: DeviceArray, places: FourArrays, gpu: Gpu) -> DeviceArray:
        """L⁻¹ of all subdomains, A = L Lᵀ: [subdomains, n, n]."""
        xp, (count, n) = self.xp, (int(length) for length in self.index.shape)
        first, *others = (gpu.put(_over_four_axes(table, j)) for j, table in enumerate(places))
        behind = count // len(places[0])  # subdomains that share one of the first axis
        step, parts = max(1, SUBDOMAIN_ENTRIES // (behind * n * n)), []
        ridge = gpu.put(RIDGE * np.eye(n))
        for low in range(0, len(places[0]), step):
            high = min(low + step, len(places[0]))
            matrices = xp.reshape(entries_at(flat, [first[low:high, ...], *others], xp), (-1, n, n))
            index = xp.reshape(self.index[low * behind : high * behind, :], (-1,))
            s = xp.reshape(xp.take(self.scale, index), (-1, n))
            lower = xp.linalg.cholesky(matrices * s[:, :, None] * s[:, None, :] + ridge)
            parts.append(xp.astype(_inverse_triangles(lower, xp), xp.float32))
        return xp.concat(parts)


def _strides(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]


def _over_four_axes(array: NDArray[Any], axis: int) -> NDArray[Any]:
    """Each dimension of an array of one axis as four, of which the others have the length 1."""
    return array.reshape([n if j == axis else 1 for n in array.shape for j in range(4)])


def _cover(indices: FourArrays, sizes: Sequence[int], gpu: Gpu) -> DeviceArray:
    """Where in the results of all subdomains each coefficient lies, as often as in any: [times, P].

    One behind the last result where it lies in no more of them. A product over the axes.
    """
    xp, (counts, widths) = gpu.xp, zip(*(i.shape for i in indices), strict=True)
    steps = zip(_strides((*counts, *widths))[:4], _strides(widths), strict=True)
    tables = [_axis_cover(*axis) for axis in zip(indices, sizes, steps, strict=True)]
    out = []
    for numbers in itertools.product(*(range(len(table)) for table in tables)):
        own = enumerate(zip(tables, numbers, strict=True))
        at, exists = summed_places([gpu.put(_over_four_axes(table[i], j)) for j, (table, i) in own], xp)
        out.append(xp.reshape(xp.where(exists, at, xp.full_like(at, math.prod((*counts, *widths)))), (1, -1)))
    return xp.concat(out)


def _axis_cover(indices: NDArray[np.int64], size: int, steps: tuple[int, int]) -> NDArray[np.int64]:
    """The part of one axis in where each of its coefficients lies, −1 for nowhere: [times, K]."""
    order = np.argsort(indices.ravel(), kind="stable")
    coefficient = indices.ravel()[order]
    number = np.arange(order.size) - np.searchsorted(coefficient, np.arange(size))[coefficient]
    subdomain, place = np.unravel_index(order, indices.shape)
    out = np.full((int(number.max()) + 1, size), -1)
    out[number, coefficient] = subdomain * steps[0] + place * steps[1]
    return out


def _inverse_triangles(lower: DeviceArray, xp: Any) -> DeviceArray:
    """Inverses of lower triangles, [.., n, n], by halves: nearly all of it is products of matrices, a GPU's best."""
    n, middle = int(lower.shape[-1]), int(lower.shape[-1]) // 2
    if n <= MIN_SPLIT:
        return xp.linalg.inv(lower)
    first = _inverse_triangles(lower[..., :middle, :middle], xp)
    last = _inverse_triangles(lower[..., middle:, middle:], xp)
    between = -xp.matmul(xp.matmul(last, lower[..., middle:, :middle]), first)
    above = xp.zeros_like(xp.matrix_transpose(between))
    return xp.concat([xp.concat([first, above], axis=-1), xp.concat([between, last], axis=-1)], axis=-2)

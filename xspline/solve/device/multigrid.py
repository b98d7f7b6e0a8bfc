"""The V-cycle of `multigrid` in any array namespace: products of slices, batches of windows, dense changes of level.

Twins of `operator`, `schwarz` and `multigrid.Level` for devices. A device has no order of additions to protect: where
compiled loops add window after window, each coefficient here gathers what its windows give, in their order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.solve.device.gpu import Array, Gpu, Host, taken
from xspline.solve.device.kernel import CudaOperator
from xspline.solve.multigrid.schwarz import Four, windows
from xspline.solve.multigrid.spaces import COARSEST, Line, galerkin, prolongation
from xspline.solve.multigrid.subdomains import places_of
from xspline.solve.multigrid.vcycle import Level, Multigrid, Terms

RIDGE = 1e-10  # relative to the diagonal: added to windows, so that those without observations have a root
LEAST = 32  # rows of triangles that are inverted as they are
AT_ONCE = 1 << 26  # entries of windows that are factorised, or added, at a time


class DeviceOperator:
    """`operator.Operator` on a device.

    Parameters
    ----------
    pairs : array, [K.., O..]
        Over four axes.
    lines : sequence of Line
        The axes.
    gpu : Gpu
    """

    def __init__(self, pairs: Array, lines: Sequence[Line], gpu: Gpu) -> None:
        self.xp, self.gpu, self.lines = gpu.xp, gpu, tuple(lines)
        self.sizes = tuple(line.size for line in lines)
        for axis, line in enumerate(lines):
            pairs = self._padded(pairs * self._exists(axis, line), axis)
        bands = self.xp.permute_dims(pairs, (4, 5, 6, 7, 0, 1, 2, 3))
        # Copied, by way of one axis: each product reads one stretch.
        self.bands = self.xp.reshape(self.xp.reshape(bands, (-1,)), bands.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the bands."""
        return 8 * int(math.prod(self.bands.shape))

    def matvec(self, x: Array) -> Array:
        """A x, [m, K..]."""
        xp, out = self.xp, self.xp.zeros_like(x)
        for axis in range(4):
            x = self._padded(x, axis, lead=1, behind=True)
        steps = [range(1 - line.offsets, line.offsets) for line in self.lines]
        for step in itertools.product(*steps):
            offset = tuple(abs(s) for s in step)
            here = tuple(self._span(axis, min(s, 0)) for axis, s in enumerate(step))
            there = tuple(self._span(axis, s) for axis, s in enumerate(step))
            out += self.bands[(*offset, *here)] * x[(slice(None), *there)]
        return xp.asarray(out)

    def scale(self) -> Host:
        """Inverse square roots of the diagonal, [K..], on the host."""
        inside = tuple(self._span(axis, 0) for axis in range(4))
        return np.asarray(1.0 / np.sqrt(self.gpu.get(self.bands[(0, 0, 0, 0, *inside)])))

    def _span(self, axis: int, step: int) -> slice:
        first = self.lines[axis].offsets - 1 + step
        return slice(first, first + self.sizes[axis])

    def _exists(self, axis: int, line: Line) -> Array:
        k, o = np.indices((line.size, line.offsets))
        exists = (k + o < line.size) | line.periodic
        shape = [1] * 8
        shape[axis], shape[axis + 4] = exists.shape
        return self.gpu.put(exists.astype(np.float64).reshape(shape))

    def _padded(self, array: Array, axis: int, lead: int = 0, behind: bool = False) -> Array:
        """O − 1 entries more in front of an axis, and perhaps behind it: around the circle, else zeros."""
        line, at = self.lines[axis], axis + lead
        width, before = line.offsets - 1, (slice(None),) * at
        if not width:
            return array
        ends = [
            array[(*before, slice(line.size - width, line.size), ...)],
            array[(*before, slice(width), ...)],
        ]
        last, first = ends if line.periodic else [self.xp.zeros_like(end) for end in ends]
        return self.xp.concat([last, array, first] if behind else [last, array], axis=at)


def _operator(pairs: Array, lines: Sequence[Line], gpu: Gpu) -> DeviceOperator | CudaOperator:
    """The product with a matrix: in one kernel, or on a device that has none in words of its namespace."""
    made = CudaOperator if gpu.has_kernels else DeviceOperator
    return made(pairs, lines, gpu)


class DeviceSchwarz:
    """`schwarz.Schwarz` on a device: whole inverse roots instead of triangles, in single precision.

    Parameters
    ----------
    pairs : array, [K.., O..]
        Over four axes, with a positive diagonal.
    lines : sequence of Line
    gpu : Gpu
    """

    def __init__(self, pairs: Array, lines: Sequence[Line], gpu: Gpu) -> None:
        xp, sizes = gpu.xp, [line.size for line in lines]
        self.xp, self.members = gpu.xp, windows(lines)
        self.scale = 1.0 / xp.sqrt(xp.reshape(pairs[..., 0, 0, 0, 0], (-1,)))
        self.index, self.cover = _indices(self.members, sizes, gpu), _cover(self.members, sizes, gpu)
        self.roots = self._roots(xp.reshape(pairs, (-1,)), _places(self.members, lines, pairs.shape), gpu)

    @property
    def nbytes(self) -> int:
        """Bytes of the inverse roots."""
        return 4 * int(math.prod(self.roots.shape))

    def apply(self, r: Array) -> Array:
        """B r, [m, K..]."""
        xp, count = self.xp, int(r.shape[0])
        scaled = xp.reshape(r, (count, -1)) * self.scale
        size = xp.max(xp.abs(scaled), axis=1, keepdims=True)  # single precision has a short range
        size = xp.where(size == 0, xp.ones_like(size), size)
        single = xp.astype(scaled / size, xp.float32)
        shape = (count, *self.index.shape)
        x = xp.reshape(xp.take(single, xp.reshape(self.index, (-1,)), axis=1), shape)
        x = xp.matmul(self.roots, xp.permute_dims(x, (1, 2, 0)))
        x = xp.matmul(xp.matrix_transpose(x), self.roots)  # the roots turned would be a copy of all of them
        y = xp.reshape(xp.permute_dims(x, (1, 0, 2)), (count, -1))
        y = xp.concat([y, xp.zeros((count, 1), dtype=xp.float32, device=self._device(y))], axis=1)
        z, (times, length) = xp.zeros_like(scaled), (int(n) for n in self.cover.shape)
        step = max(1, AT_ONCE // (count * length))
        for low in range(0, times, step):
            cover = self.cover[low : min(low + step, times), :]
            found = xp.take(y, xp.reshape(cover, (-1,)), axis=1)
            z += xp.sum(xp.astype(xp.reshape(found, (count, -1, length)), xp.float64), axis=1)
        return xp.reshape(z * self.scale * size, r.shape)

    def _device(self, array: Array) -> Any:
        return array.device

    def _roots(self, flat: Array, places: Sequence[NDArray[np.int64]], gpu: Gpu) -> Array:
        """L⁻¹ of all windows, A = L Lᵀ: [windows, n, n]."""
        xp, (count, n) = self.xp, (int(length) for length in self.index.shape)
        first, *others = (gpu.put(_lifted(table, axis)) for axis, table in enumerate(places))
        behind = count // len(places[0])  # windows that share one of the first axis
        step, parts = max(1, AT_ONCE // (behind * n * n)), []
        ridge = gpu.put(RIDGE * np.eye(n))
        for low in range(0, len(places[0]), step):
            high = min(low + step, len(places[0]))
            matrices = xp.reshape(taken(flat, [first[low:high, ...], *others], xp), (-1, n, n))
            index = xp.reshape(self.index[low * behind : high * behind, :], (-1,))
            s = xp.reshape(xp.take(self.scale, index), (-1, n))
            lower = xp.linalg.cholesky(matrices * s[:, :, None] * s[:, None, :] + ridge)
            parts.append(xp.astype(_inverted(lower, xp), xp.float32))
        return xp.concat(parts)


def _indices(members: Four, sizes: Sequence[int], gpu: Gpu) -> Array:
    """Flat coefficients of every window: [windows, n]."""
    strides = _strides(sizes)
    tables = (
        gpu.put((m * stride).reshape(*_axis(m.shape[0], j), *_axis(m.shape[1], j)))
        for j, (m, stride) in enumerate(zip(members, strides, strict=True))
    )
    count = math.prod(m.shape[0] for m in members)
    return gpu.xp.reshape(sum(tables), (count, -1))


def _strides(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]


def _axis(length: int, axis: int) -> tuple[int, ...]:
    """A shape over four axes with this length along one."""
    return tuple(length if j == axis else 1 for j in range(4))


def _cover(members: Four, sizes: Sequence[int], gpu: Gpu) -> Array:
    """Where in the results of all windows each coefficient lies, as often as in any; one behind the last for none.

    A product over the axes: [times, P].
    """
    xp, (counts, widths) = gpu.xp, zip(*(m.shape for m in members), strict=True)
    steps = zip(_strides((*counts, *widths))[:4], _strides(widths), strict=True)
    axes = zip(members, sizes, steps, strict=True)
    tables = [_cover_of_axis(*axis) for axis in axes]
    out = []
    for numbers in itertools.product(*(range(len(table)) for table in tables)):
        rows = [
            gpu.put(t[i].reshape(_axis(t.shape[1], j)))
            for j, (t, i) in enumerate(zip(tables, numbers, strict=True))
        ]
        exists = xp.asarray(rows[0] >= 0)
        for row in rows[1:]:
            exists = xp.logical_and(exists, row >= 0)
        at = sum(rows)
        out.append(xp.reshape(xp.where(exists, at, xp.full_like(at, math.prod((*counts, *widths)))), (1, -1)))
    return xp.concat(out)


def _cover_of_axis(members: NDArray[np.int64], size: int, steps: tuple[int, int]) -> NDArray[np.int64]:
    """The part of one axis in where each of its coefficients lies, −1 for nowhere: [times, K]."""
    order = np.argsort(members.ravel(), kind="stable")
    coefficient = members.ravel()[order]
    number = np.arange(order.size) - np.searchsorted(coefficient, np.arange(size))[coefficient]
    window, place = np.unravel_index(order, members.shape)
    out = np.full((int(number.max()) + 1, size), -1)
    out[number, coefficient] = window * steps[0] + place * steps[1]
    return out


def _places(members: Four, lines: Sequence[Line], shape: Sequence[int]) -> list[NDArray[np.int64]]:
    """Where the pairs of the members of windows lie in the pair array, −1 for none: [windows, width, width] an axis."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(8)]
    axes = zip(members, lines, strides[:4], strides[4:], strict=True)
    return [places_of(*axis) for axis in axes]


def _lifted(table: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
    """[windows, width, width] over four axes of windows, of rows and of columns."""
    count, width, _ = table.shape
    return table.reshape(*_axis(count, axis), *_axis(width, axis), *_axis(width, axis))


class DeviceLevel(Level):
    """`multigrid.Level` on a device."""

    def __init__(self, pairs: Array, lines: Sequence[Line], coarse: Sequence[Line], gpu: Gpu) -> None:
        self.gpu, self.xp = gpu, gpu.xp
        self._changes = {
            axis: tuple(map(gpu.put, _matrices(fine, c)))
            for axis, (fine, c) in enumerate(zip(lines, coarse, strict=True))
            if c is not fine
        }
        super().__init__(pairs, lines, coarse)

    def _made(self, pairs: Array, lines: Sequence[Line]) -> tuple[Any, Any]:
        return _operator(pairs, lines, self.gpu), DeviceSchwarz(pairs, lines, self.gpu)

    def _start(self, vector: Host) -> Array:
        return self.gpu.put(vector)

    def galerkin(self, pairs: Array) -> Array:
        """Pairs of Pᵀ A P from those of A."""
        for axis, (_, matrix) in self._changes.items():
            pairs = _along_pairs(self.xp, matrix, pairs, axis)
        return pairs

    def restrict(self, r: Array) -> Array:
        """Pᵀ r, [m, K..]."""
        for axis, (matrix, _) in self._changes.items():
            r = _along(self.xp, self.xp.matrix_transpose(matrix), r, axis + 1)
        return r

    def prolong(self, x: Array) -> Array:
        """P x, [m, K..]."""
        for axis, (matrix, _) in self._changes.items():
            x = _along(self.xp, matrix, x, axis + 1)
        return x


def _matrices(fine: Line, coarse: Line) -> tuple[Host, Host]:
    """P [K, K_c], and M ↦ Pᵀ M P on pairs [K_c O_c, K O]."""
    matrix = prolongation(fine, coarse)
    return matrix.toarray(), galerkin(matrix, fine, coarse).toarray()


def _with_terms(pairs: Array, terms: Terms, gpu: Gpu) -> Array:
    """Pairs, and products [K.., O..] of factors [K, O] over the axes."""
    for term in terms:
        lifted = (_paired(gpu.put(factor), axis, gpu.xp) for axis, factor in enumerate(term))
        pairs = pairs + math.prod(lifted, start=gpu.xp.ones_like(pairs[:1, :1, :1, :1, :1, :1, :1, :1]))
    return pairs


def _paired(factor: Array, axis: int, xp: Any) -> Array:
    """[K, O] of one of four axes over all of them."""
    size, offsets = factor.shape
    return xp.reshape(factor, (*_axis(size, axis), *_axis(offsets, axis)))


def _inverted(lower: Array, xp: Any) -> Array:
    """L⁻¹ of lower triangles [.., n, n], by halves: nearly all of it is products of matrices, which devices do best."""
    n, half = int(lower.shape[-1]), int(lower.shape[-1]) // 2
    if n <= LEAST:
        return xp.linalg.inv(lower)
    first, last = _inverted(lower[..., :half, :half], xp), _inverted(lower[..., half:, half:], xp)
    between = -xp.matmul(xp.matmul(last, lower[..., half:, :half]), first)
    above = xp.zeros_like(xp.matrix_transpose(between))
    return xp.concat([xp.concat([first, above], axis=-1), xp.concat([between, last], axis=-1)], axis=-2)


def _along(xp: Any, matrix: Array, array: Array, axis: int) -> Array:
    """A matrix along one axis."""
    order = (axis, *(i for i in range(array.ndim) if i != axis))
    moved = xp.permute_dims(array, order)
    done = xp.reshape(
        xp.matmul(matrix, xp.reshape(moved, (moved.shape[0], -1))), (matrix.shape[0], *moved.shape[1:])
    )
    return xp.permute_dims(done, tuple(int(i) for i in np.argsort(order)))


def _along_pairs(xp: Any, matrix: Array, pairs: Array, axis: int) -> Array:
    """A matrix over an axis of first members and its offsets."""
    order = (axis, axis + 4, *(i for i in range(8) if i not in (axis, axis + 4)))
    moved = xp.permute_dims(pairs, order)
    size, offsets, *rest = moved.shape
    done = xp.matmul(matrix, xp.reshape(moved, (size * offsets, -1)))
    done = xp.reshape(done, (matrix.shape[0] // offsets, offsets, *rest))
    return xp.permute_dims(done, tuple(int(i) for i in np.argsort(order)))


class DeviceMultigrid(Multigrid):
    """`multigrid.Multigrid` on a device; the coarsest level is a dense inverse there.

    Parameters
    ----------
    pairs : ndarray, [K.., O..]
        On the host, without what `terms` say: these are products of small factors, multiplied out on the device.
    lines, terms, coarsest
        As of `Multigrid`.
    gpu : Gpu
    """

    def __init__(
        self, pairs: Host, lines: Sequence[Line], terms: Terms = (), coarsest: int = COARSEST, *, gpu: Gpu
    ) -> None:
        self.gpu = gpu
        super().__init__(_with_terms(gpu.put(pairs), terms, gpu), lines, terms, coarsest)
        self._inverse = gpu.put(self._dense()) if self.base.determined else None

    def _level(self, pairs: Array, lines: Sequence[Line], coarse: Sequence[Line]) -> Level:
        return DeviceLevel(pairs, lines, coarse, self.gpu)

    def _operator(self, pairs: Array, lines: Sequence[Line]) -> Any:
        return _operator(pairs, lines, self.gpu)

    def put(self, array: Host) -> Array:
        """A host array on the device."""
        return self.gpu.put(array)

    def get(self, array: Array) -> Host:
        """An array of the device on the host."""
        return self.gpu.get(array)

    def _dense(self) -> Host:
        """Inverse of the coarsest level, [n, n]."""
        size = math.prod(self.sizes[-1])
        return super()._direct(np.eye(size).reshape(size, *self.sizes[-1])).reshape(size, size)

    def _direct(self, r: Array) -> Array:
        xp, count = self.gpu.xp, int(r.shape[0])
        return xp.reshape(xp.matmul(xp.reshape(r, (count, -1)), self._inverse), r.shape)

"""Direct solver for one product with a factor over several axes and a ridge: a static mask on a grid.

The other factors are diagonalised, T_jᵀ F_j T_j = diag(μ_j); the largest, F, keeps its band. Then each
product of eigenvalues m = v Πμ_j leaves one banded system m F + λ I. Without a ridge they are all the same
but for m.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .band import band, narrowest
from .cholesky import Array, BandCholesky
from .eigen import eigen, outer, rotate, weakest
from .select import cache_bytes, main_factor
from .structure import Product, alone, subframe

if TYPE_CHECKING:
    from xspline.spaces import Frame


class Separable:
    """Eigenvalues of all factors but the largest, and a banded Cholesky factorisation for each.

    Parameters
    ----------
    product : Product
    ridge : float
        λ.
    frame : Frame
    """

    def __init__(self, product: Product, ridge: float, frame: Frame) -> None:
        self.frame, self.ridge, self.multiplicity = frame, ridge, product.multiplicity
        main = main_factor(product)
        others = [f for f in product.factors if f is not main]
        self.axes, self.other_axes = main.axes, [f.axes for f in others]
        own = subframe(frame, main.axes)
        self.ordering = narrowest(own)
        self.band = band([alone(main)], own, self.ordering, 1)[..., 0]
        matrices = (alone(f).to_dense(subframe(frame, f.axes)) for f in others)
        self.parts = [eigen(matrix, scaled=not ridge) for matrix in matrices]
        self.values = outer(self.parts)[0].ravel()
        self.distinct, index = np.unique(self.multiplicity, return_inverse=True)
        self.index = index.reshape(self.multiplicity.shape)
        self.systems: dict[float, BandCholesky] = {}
        self.nbytes = self.band.nbytes
        self.weakest = 0
        self.determined: NDArray[np.bool_] = self._verdict()[self.index]

    def _verdict(self) -> NDArray[np.bool_]:
        """Whether each distinct multiplicity is determined; a ridge has to rise above rounding."""
        deficit, place = weakest(self.parts)
        largest = float(self.band[:, 0].max(initial=0.0))
        fine = (self.distinct > 0) & (self.ridge > self.distinct * deficit * largest)
        lowest, worst = np.inf, 0
        for i in np.flatnonzero(self.distinct > 0):
            for m in self._multiples(float(self.distinct[i])):
                system = self._system(m)
                fine[i] &= system.determined
                if system.pivot < lowest:
                    lowest, worst = system.pivot, system.weakest
        self.weakest = self._original(worst, place)
        return np.asarray(fine)

    def _original(self, index: int, place: list[int]) -> int:
        """Flat index in the Space of a coefficient of the banded factor and one of each other factor."""
        at = np.zeros(len(self.frame.sizes), dtype=np.int64)
        found = zip([self.axes, *self.other_axes], [self.ordering.original(index), *place], strict=True)
        for axes, flat in found:
            at[list(axes)] = np.unravel_index(flat, tuple(self.frame.sizes[j] for j in axes))
        return int(np.ravel_multi_index(tuple(at), self.frame.sizes))

    def _multiples(self, v: float) -> Iterator[float]:
        """The multiples of the banded factor that need a factorisation of their own."""
        return iter((1.0,)) if not self.ridge else (float(v * value) for value in self.values)

    def _system(self, multiple: float) -> BandCholesky:
        """Factorise m F + λ I, kept if there is room."""
        found = self.systems.get(multiple)
        if found is None:
            matrix = self.band * multiple
            matrix[:, 0] += self.ridge
            found = BandCholesky(matrix)
            if self.nbytes + found.nbytes <= cache_bytes():
                self.systems[multiple] = found
                self.nbytes += found.nbytes
        return found

    def solve(self, rhs: Array) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..]; batch extents of 1 broadcast on both sides."""
        sizes = self.frame.sizes
        batch = np.broadcast_shapes(rhs.shape[len(sizes) :], self.multiplicity.shape)
        which = np.broadcast_to(self.index, batch).ravel()
        x, shape = self._into(np.broadcast_to(rhs, sizes + batch).reshape(*sizes, -1))
        x = self._solve_plain(x, which) if not self.ridge else self._solve_ridge(x, which)
        return self._out_of(x, shape).reshape(sizes + batch)

    def _solve_plain(self, x: Array, which: NDArray[np.int64]) -> Array:
        """Every system is a multiple of one."""
        flat = self._system(1.0).solve(x.reshape(len(x), -1)).reshape(x.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(flat / (self.distinct[which][:, None] * self.values))

    def _solve_ridge(self, x: Array, which: NDArray[np.int64]) -> Array:
        out = np.full_like(x, np.nan)
        for i in np.flatnonzero(self.distinct > 0):
            chosen = which == i
            for k, multiple in enumerate(self._multiples(float(self.distinct[i]))):
                out[:, chosen, k] = self._system(multiple).solve(x[:, chosen, k])
        return out

    def _into(self, rhs: Array) -> tuple[Array, tuple[int, ...]]:
        """[K.., B] to [coefficients of the banded factor, B, eigenvalues]."""
        count = rhs.ndim - 1
        lead = [axis for group in self.other_axes for axis in group]
        x = rhs.transpose(*lead, *self.axes, count)
        x = x.reshape(*(len(part.values) for part in self.parts), *self.ordering.sizes, rhs.shape[-1])
        x = self.ordering.flatten(rotate(self.parts, x, back=False))
        return x.reshape(*x.shape[:2], -1), x.shape[2:]

    def _out_of(self, x: Array, shape: tuple[int, ...]) -> Array:
        """Inverse of `_into`, with the rotations back."""
        x = self.ordering.unflatten(x.reshape(*x.shape[:2], *shape))
        last = tuple(range(len(self.axes) + 1, x.ndim))
        x = rotate(self.parts, x.transpose(*last, *range(len(self.axes) + 1)), back=True)
        lead = [axis for group in self.other_axes for axis in group]
        sizes = self.frame.sizes
        x = x.reshape(*(sizes[j] for j in self.axes), x.shape[len(self.axes)], *(sizes[j] for j in lead))
        source = {axis: i for i, axis in enumerate((*self.axes, -1, *lead))}
        return x.transpose(*(source[axis] for axis in range(len(sizes))), source[-1])

    def edf(self) -> Array:
        """tr((G + Λ)⁻¹ G), [b..]."""
        if not self.ridge:
            return np.full(self.index.shape, float(len(self.band) * len(self.values)))
        traces = np.full(len(self.distinct), np.nan)
        for i in np.flatnonzero(self.distinct > 0):
            multiples = self._multiples(float(self.distinct[i]))
            traces[i] = sum(self._system(m).trace(self.band * m) for m in multiples)
        return traces[self.index]

"""Holders that differ by an offset and by a noise level, from the sums of each of them alone.

Observations of holder h are y = Φc + o_h + ε, and the variance of ε is σ²v_h/w. Where functions add up to one, Φe = 1,
a holder's column of ones is in its sums, ΦᵀW1 = G e. With the sums of each holder divided by v_h, A = G + Λ of all, and
B_h = G_h e of those whose offset is not 0 by convention,

    X = A⁻¹B,    S = diag(Σw_h) − BᵀX,    o = S⁻¹(1ᵀWy − XᵀΦᵀWy),    Cov o = σ²S⁻¹,    Cov c = σ²(A⁻¹ + X S⁻¹Xᵀ),

so that A keeps its structure and its solver. The likeliest levels have σ²v_h = Σw e²/(n_h − edf_h) over each holder's
observations, edf_h being its share of the degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array
from xspline.solve.errors import SingularSystemError
from xspline.solve.families.determinant import products
from xspline.solve.system import Factorisation
from xspline.spaces import Frame
from xspline.sums import Gram, Sums
from xspline.sums.memory import scaled
from xspline.sums.window import whole


@dataclass(frozen=True, eq=False)
class Levels:
    """What holders differ by."""

    names: tuple[str, ...]  # of the holders, in ascending order
    reference: str  # the one whose offset is 0 and whose ratio is 1
    offset: Array  # [H, b..], what each holder's observations are larger by
    # [H, b..], variance of an observation of weight 1 over that of the reference; infinite where nothing counts
    ratio: Array
    offsets: bool  # whether these were estimated
    noise: bool  # whether ratios were estimated

    @property
    def free(self) -> list[int]:
        """Holders whose offset is estimated."""
        return [h for h, name in enumerate(self.names) if self.offsets and name != self.reference]

    @property
    def text(self) -> str:
        """What each of the others has against the reference, in short."""
        if self.offset.ndim > 1:
            return f"levels of {len(self.names)} holders against {self.reference!r}, for each fit its own"
        others = [h for h, name in enumerate(self.names) if name != self.reference]
        offsets = ", ".join(f"{self.names[h]} {self.offset[h]:+.3g}" for h in others)
        noise = ", ".join(f"{self.names[h]} {math.sqrt(self.ratio[h]):.3g}" for h in others)
        weighed = bool((self.ratio != 1).any())
        told = [f"offsets {offsets}"] * self.offsets + [f"noise {noise} times"] * weighed
        return f"{'; '.join(told) or 'no levels'} against {self.reference!r}"

    def described(self) -> dict[str, Any]:
        """Return all but the arrays, for JSON."""
        return {name: getattr(self, name) for name in ("names", "reference", "offsets", "noise")}

    def applied(self, parts: Sequence[Sums], of: Sequence[int], frame: Frame) -> list[Sums]:
        """Return sums of the observations less their offsets, weighed by their noise; `of` is the holder of each part.

        A number scales one factor of each term, along the axis that leaves the sum of all the smallest.
        """
        shifted = [
            replace(part, reference=part.reference - self.offset[h]) if np.any(self.offset[h]) else part
            for part, h in zip(parts, of, strict=True)
        ]

        def along(axis: int) -> list[Sums]:
            out = list(shifted)
            for i, h in enumerate(of):
                if np.any(self.ratio[h] != 1):
                    out[i] = scaled(out[i], 1 / self.ratio[h], axis, frame)
            return out

        if np.all(self.ratio == 1):
            return shifted
        axes = range(len(frame.sizes) if self.ratio[0].size == 1 else 1)
        return min(map(along, axes), key=lambda own: Gram.merge([part.gram for part in own], frame).nbytes)


@dataclass(frozen=True, eq=False)
class Border:
    """Rows and columns of offsets beside a factorised system.

    Attributes
    ----------
    levels, parts, of : what was applied to the sums of parts, these sums, and the holder of each.
    factorisation : of the sum of all of them.
    """

    levels: Levels
    parts: Sequence[Sums]
    of: Sequence[int]
    factorisation: Factorisation
    frame: Frame

    @cached_property
    def batch(self) -> tuple[int, ...]:
        """Extents of the batch axes."""
        return np.broadcast_shapes(*(part.batch for part in self.parts))

    def _by_holder(self, values: Sequence[Array]) -> Array:
        """Return the sum over the parts of each holder of arrays of one shape, [H, …]."""
        out = np.zeros((len(self.levels.names), *np.shape(values[0])))
        for h, value in zip(self.of, values, strict=True):
            out[h] += value
        return out

    def _flat(self, v: Array) -> Array:
        return v.reshape(math.prod(self.frame.sizes), *v.shape[len(self.frame.sizes) :])

    def _grams(self) -> list[Gram]:
        return [part.gram.with_batch_axes(len(self.batch)) for part in self.parts]

    @cached_property
    def weight(self) -> Array:
        """Σw of each holder, [H, b..]."""
        return self._by_holder([np.broadcast_to(part.weight, self.batch) for part in self.parts])

    @cached_property
    def count(self) -> Array:
        """Observations of each holder, [H, b..]."""
        return self._by_holder([np.broadcast_to(part.count, self.batch) for part in self.parts])

    @cached_property
    def rows(self) -> Array:
        """B, [K.., F, b..]."""
        sizes, frame = self.frame.sizes, self.frame
        images = [gram.image(frame.constant, whole(sizes), frame) for gram in self._grams()]
        own = self._by_holder([np.broadcast_to(image, (*sizes, *self.batch)) for image in images])
        return np.moveaxis(own[self.levels.free], 0, len(sizes))

    @cached_property
    def columns(self) -> Array:
        """X, [K.., F, b..]; zeros for members that are not determined."""
        return np.nan_to_num(self.factorisation.solve(self.rows)) if self.levels.free else self.rows

    @cached_property
    def held(self) -> NDArray[np.bool_]:
        """Whether each holder with an offset has observations, [F, b..]."""
        return self.weight[self.levels.free] > 0

    @cached_property
    def _scale(self) -> Array:
        """√Σw of the holders with an offset, [F, b..]; 1 without observations."""
        return np.sqrt(np.where(self.held, self.weight[self.levels.free], 1.0))

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues [b.., F] and eigenvectors of S over √Σw of rows and columns, of at most 1."""
        across = products(self._flat(self.rows), self._flat(self.columns))
        across = np.moveaxis(across / self._scale / self._scale[:, None], (0, 1), (-2, -1))
        matrix = np.eye(len(self.levels.free)) - across
        return np.linalg.eigh((matrix + matrix.swapaxes(-1, -2)) / 2)

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        """Whether the field and the data of several holders tell offsets apart, [b..].

        They do not where an error is ten thousand times that of a mean of the holder's observations, or where the
        reference has none.
        """
        reference = self.weight[self.levels.names.index(self.levels.reference)] > 0
        known = np.broadcast_to(self.factorisation.determined, self.batch)
        return np.asarray(reference & known & (self._spectrum[0] > 1e-8).all(axis=-1))

    @cached_property
    def inverse_root(self) -> Array:
        """R with R Rᵀ = S⁻¹, [F, F, b..]; zeros for holders without observations and where nothing is determined."""
        values, vectors = self._spectrum
        safe = np.where(self.determined[..., None], values, np.inf)
        root = np.moveaxis(vectors / np.sqrt(safe)[..., None, :], (-2, -1), (0, 1))
        return np.asarray(root * (self.held / self._scale)[:, None])

    @cached_property
    def inverse(self) -> Array:
        """S⁻¹, [F, F, b..]."""
        return np.asarray(np.einsum("ik...,jk...->ij...", self.inverse_root, self.inverse_root))

    @property
    def errors(self) -> Array:
        """Standard errors of the offsets in units of σ, [F, b..]."""
        return np.asarray(np.sqrt(np.einsum("ii...->i...", self.inverse)))

    @cached_property
    def roots(self) -> Array:
        """x_m, [K.., F, b..], with Σ x_m x_mᵀ = X S⁻¹Xᵀ: what offsets leave open of c, in units of σ."""
        own = np.einsum("pi...,ij...->pj...", self._flat(self.columns), self.inverse_root)
        return np.asarray(own.reshape(self.columns.shape))

    def with_offsets(self, x: Array) -> Array:
        """Return how c answers, [K.., T, b..], where it would answer by x if offsets were known: x + X S⁻¹Bᵀx."""
        pull = np.einsum("pi...,pt...->it...", self._flat(self.rows), self._flat(x))
        own = np.einsum("pi...,ij...,jt...->pt...", self._flat(self.columns), self.inverse, pull)
        return np.asarray(x + own.reshape(x.shape))

    @cached_property
    def _curved(self) -> Array:
        """XᵀGX of each holder, [H, F, F, b..]."""
        x = self.columns
        images = [gram.matvec(x, self.frame) for gram in self._grams()]
        return self._by_holder([products(self._flat(x), self._flat(image)) for image in images])

    @cached_property
    def edf(self) -> Array:
        """What offsets add to the degrees of freedom, [b..]: one each, less what the field had followed of them."""
        penalised = products(self._flat(self.rows), self._flat(self.columns)) - self._curved.sum(axis=0)
        return np.asarray(self.held.sum(axis=0) - np.einsum("ij...,ij...->...", self.inverse, penalised))

    @cached_property
    def edf_of(self) -> Array:
        """Degrees of freedom of each holder's observations, [H, b..]."""
        own = self._by_holder(list(self._traces()))
        if not self.levels.free:
            return own
        apart = self._curved.copy()  # of Φx − 1, over each holder's observations
        for i, h in enumerate(self.levels.free):
            across = np.einsum("pj...,p...->j...", self._flat(self.columns), self._flat(self.rows)[:, i])
            apart[h, i] -= across
            apart[h, :, i] -= across
            apart[h, i, i] += self.weight[h]
        return np.asarray(own + np.einsum("ij...,hij...->h...", self.inverse, apart))

    def _traces(self) -> Array:
        """Return tr(A⁻¹G) of each part, [parts, b..]; of a solver that iterates estimates by its probes."""
        axes, grams = tuple(range(len(self.frame.sizes))), self._grams()
        if not self.factorisation.knows_inverse:
            a, _, b = self.factorisation.probes()
            return np.stack([np.sum(a * gram.matvec(b, self.frame), axis=axes).mean(-1) for gram in grams])
        if not self.batch:
            return self.factorisation.traces(grams)
        inverse = np.nan_to_num(self.factorisation.inverse_pairs())
        both = tuple(range(2 * len(axes)))
        own = [np.sum(inverse * gram.one_factor(self.frame).pairs, axis=both) for gram in grams]
        return np.stack([np.broadcast_to(x, self.batch) for x in own])

    def improved(self, c: Array, *, noise: bool) -> tuple[Levels, float]:
        """Return levels nearer to the likeliest ones, and by how much they moved: in standard errors, or logarithms.

        Parameters
        ----------
        c : [K.., b..], the solution at the present levels.
        noise : whether ratios move too; offsets are those of the present ratios.
        """
        levels, frame = self.levels, self.frame
        c = np.where(np.isfinite(c), c, 0.0)
        step = np.einsum("ij...,j...->i...", self.inverse, self._slopes(c))
        c = c - np.einsum("pi...,i...->p...", self._flat(self.columns), step).reshape(c.shape)
        moved = np.zeros(levels.offset.shape)
        moved[levels.free] = step
        squares = np.zeros(levels.offset.shape)
        for part, h in zip(self.parts, self.of, strict=True):
            part = replace(part, reference=part.reference - moved[h])
            square = part.rss(part.centred(c, frame), frame)
            squares[h] += np.maximum(square, 4 * np.finfo(np.float64).eps * part.power)
        left = np.maximum(self.count.sum(axis=0) - self.factorisation.edf() - self.edf, 1.0)
        error = self.errors * np.sqrt(squares.sum(axis=0) / left)
        far = np.abs(step) / np.where(error > 0, error, np.inf)
        change = float(np.nanmax(far, initial=0.0))
        levels = replace(levels, offset=levels.offset + moved)
        if not noise or change > 1:
            return levels, change
        left = self.count - self.edf_of
        told = left > 0.5
        if not self.batch and (lost := (self.count > 0) & ~told).any():
            h = int(np.flatnonzero(lost)[0])
            raise SingularSystemError(
                f"the field goes through all {self.count[h]:.0f} observations of holder {levels.names[h]!r}, which so "
                "tell nothing of its noise; give the levels, noise={name: standard deviation, ...}, take fewer "
                "functions, or leave this holder out, .without(...)"
            )
        square = levels.ratio * np.where(told, squares / np.where(told, left, 1.0), np.nan)
        ratio = square / square[levels.names.index(levels.reference)]
        ratio = np.where(np.isfinite(ratio) & np.isfinite(levels.ratio), ratio, levels.ratio)
        with np.errstate(invalid="ignore"):
            far = np.abs(np.log(ratio / levels.ratio))
        return replace(levels, ratio=ratio), max(change, float(np.nanmax(far, initial=0.0)))

    def _slopes(self, c: Array) -> Array:
        """Return 1ᵀW(y − Φc) of the holders with an offset, [F, b..]."""
        frame, sums = self.frame, []
        for part, gram in zip(self.parts, self._grams(), strict=True):
            along = part.full_moment(frame) - gram.matvec(part.centred(c, frame), frame)
            for e in frame.constant:
                along = np.tensordot(e, along, axes=(0, 0))
            sums.append(np.broadcast_to(along, self.batch))
        return np.asarray(self._by_holder(sums)[self.levels.free])

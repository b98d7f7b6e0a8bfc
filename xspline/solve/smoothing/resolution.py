"""Checks of a choice of smoothing: whether the knots are fine enough, and whether gaps in the data are determined."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xspline.solve.direct.cholesky import Array
from xspline.solve.families.determinant import axis_spectrum
from xspline.solve.penalties.roughness import spline_degrees
from xspline.solve.smoothing.criteria import Score
from xspline.solve.smoothing.fit import SMALLEST, PenalisedFit
from xspline.spaces import Space
from xspline.spaces.bspline import LocalSpline
from xspline.spaces.features import pair_products
from xspline.sums import observed_cells

# Share of Σ w y²: residuals of that size are those of values that were rounded to float32.
TINY = (8 * float(np.finfo(np.float32).eps)) ** 2

# The knots, not the smoothing, decide how fine a field is if all of this is so, and there are two observations for each
# function. Measured on waves and random walks.
CROWDED = 0.8  # share of the functions that are in use
ABOVE_NOISE = 10.0  # power of the finest quarter of them, over noise; below 3 where more knots change nothing
# The share that somebody sees: what that quarter contributes to the variance of residuals, residuals beside the spread
# of the data, repeated records among all, a change of a constant beside its error. Chosen.
SEEN = 0.01


@dataclass(frozen=True)
class Resolution:
    """Whether a space is fine enough."""

    # how many of the K_j functions of each smoothed coordinate its own penalty leaves in use
    functions: dict[str, float]
    limited: tuple[str, ...]  # coordinates whose knots limit the fit
    visible: bool  # whether residuals are so large that anyone sees a difference by the smoothing


def resolution(fit: PenalisedFit, point: Score) -> Resolution:
    """Return the resolution of a fit at the chosen strengths, the mean over the batch members that counted.

    The penalty along j takes t_j = tr(A⁻¹λ_jS_j) of the coefficients (of mixed derivatives each coordinate its share),
    and all of them leave edf = P − Σt_j. Of what the others leave, edf + t_j, the share edf / (edf + t_j) passes j.

    In the basis T that diagonalises masses and roughness a function has noise of the variance σ²/Σw, were the
    observations spread evenly. A field that the space resolves leaves its finest functions to the noise; one that the
    space cuts off fills them. Roughness is that of the highest derivative: polynomials below it have none.
    """
    model = fit.model
    space = fit.model.space
    included = point.included
    degrees = spline_degrees(space)
    sums = model.sums
    taken = model.family.shares @ point.total(fit.traces) / max(int(included.sum()), 1)
    edf = max(space.size - float(taken.sum()), 0.0)
    n, rss, weight, spread, mean = (
        np.broadcast_to(v, included.shape)[included]
        for v in (sums.count, fit.rss, sums.weight, sums.power, sums.reference)
    )
    left = np.maximum(n - edf, 1.0)
    spectra = [axis_spectrum(space, j, degrees.get(name, 0)) for j, name in enumerate(space.names)]
    x: Array = np.broadcast_to(fit.c, (*space.shape, *included.shape))[..., included]
    for j, axis in enumerate(spectra):
        moved = np.moveaxis(x, j, 0)
        solved = np.linalg.solve(axis.vectors, moved.reshape(len(moved), -1))
        x = np.moveaxis(np.asarray(solved).reshape(moved.shape), 0, j)
    power = np.mean(x**2 * left * weight / rss, axis=-1)  # over that of noise, [K..]
    visible = bool(np.any(rss > SEEN**2 * spread + TINY * mean**2 * weight + 2 * SMALLEST))
    functions = {}
    limited = []
    for name, t in zip(model.family.names, taken.tolist(), strict=True):
        j = space.names.index(name)
        size = space.shape[j]
        functions[name] = size * edf / max(edf + t, 1e-300)
        finest = np.take(power, np.argsort(spectra[j].values)[-max(size // 4, 1) :], axis=j)
        is_seen = visible and finest.sum() > SEEN * left.mean() and n.mean() > 2 * space.size
        if is_seen and functions[name] > CROWDED * size and finest.mean() > ABOVE_NOISE:
            limited.append(name)
    return Resolution(functions, tuple(limited), visible)


class GapError(NamedTuple):
    """What is not known of a field in knot cells without data, the mean over the batch members that count."""

    gaps: float  # integral of the variance of the field over these cells, over the size of the domain
    share: float  # the part of the domain that they are
    spread: float  # variance of the data
    noise: float  # variance of the residuals

    @property
    def undetermined(self) -> bool:
        """Whether the mean of the data is the better field."""
        return self.gaps > self.spread

    @property
    def relative(self) -> float:
        """The standard error there over the standard deviation of the data."""
        return math.sqrt(self.gaps / self.share / self.spread)

    @property
    def expected(self) -> float:
        """The expected squared difference from observations in these cells, times their share."""
        return self.noise * self.share + self.gaps


def gap_error(fit: PenalisedFit, point: Score) -> GapError:
    """Return the error of a field where there are no data.

    Criteria that score predictions at observations say nothing of knot cells without any. There the expected squared
    error is the field's own variance σ̂²φᵀA⁻¹φ (Wahba 1983), which grows without bound as λ → 0.
    """
    sums = fit.model.sums
    space = fit.model.space
    included = point.included
    inside = [slice(1, None, 2) if isinstance(f, LocalSpline) else slice(None) for f in space.features]
    gap = ~observed_cells(sums.gram, space)[tuple(inside)]
    widths = [
        np.diff(f.edges) / np.ptp(f.edges) if isinstance(f, LocalSpline) else np.ones(1)
        for f in space.features
    ]
    width = functools.reduce(np.multiply.outer, widths)
    axes = tuple(range(width.ndim))
    gap = np.where(gap, width.reshape(width.shape + (1,) * (gap.ndim - width.ndim)), 0.0)
    variances = np.sum(gap * cell_variances(fit.factorisation.inverse_pairs(), space), axis=axes)
    edf = fit.size - fit.traces.sum(axis=0)
    noise = fit.rss / np.maximum(sums.count - edf, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = sums.power / sums.weight + TINY * sums.reference**2
        variance = noise * sums.count / sums.weight
    values = (
        np.broadcast_to(x, included.shape)[included]
        for x in (noise * variances, gap.sum(axis=axes), spread, variance)
    )
    return GapError(*(float(np.mean(x)) for x in values))


def cell_variances(pairs: Array, space: Space) -> Array:
    """φᵀZφ in the middle of each knot cell, of a matrix in pair form: [cells.., b..] from [K.., O.., b..].

    Of a global basis, which is one cell, the mean over its domain.
    """
    count = len(space.shape)
    pairs = space.at_points(pairs)
    for axis, f in enumerate(space.features):
        z = np.moveaxis(pairs, (axis, count), (0, 1))
        if isinstance(f, LocalSpline):
            functions, offsets = f.support.index(pairs=True)
            products = pair_products(f.features(*f.locate((f.edges[1:] + f.edges[:-1]) / 2)))
            value = sum(
                products[:, q].reshape(-1, *(1 for _ in z.shape[2:])) * z[(f.first + a) % f.size, o]
                for q, (a, o) in enumerate(zip(functions, offsets, strict=True))
            )
        else:
            value = np.tensordot(f.roughness(0), z, axes=2)[None]
        # Where the axis of offsets was there is none now: those of the next axis come first again.
        pairs = np.moveaxis(np.asarray(value), 0, axis)
    return pairs

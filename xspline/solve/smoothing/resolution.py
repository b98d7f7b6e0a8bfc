"""Whether a space is fine enough for what the data show, from the choice of its smoothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xspline.solve.direct.cholesky import Array
from xspline.solve.penalty import spline_degrees
from xspline.solve.smoothing.criteria import Score
from xspline.solve.smoothing.determinant import axis_spectrum
from xspline.solve.smoothing.fit import SMALLEST, PenalisedFit

NEGLIGIBLE = 1e-4  # share of the variance: residuals of a hundredth of the spread are too small to matter
TINY = 1e-12  # share of Σ w y²: residuals below a millionth of the values are rounding
# The knots, not the smoothing, decide how fine the field is, where more than this share of functions is in use, the
# finest quarter of them holds so many times the power of noise and such a share of the variance of residuals, and there
# are observations for more of them. Measured on waves and random walks: the power is below 3 where more knots change
# nothing. Of many observations all functions stand out from the noise; then the share tells what anyone would see.
CROWDED, FINEST, ABOVE_NOISE, SEEN, ROOM = 0.8, 4, 10.0, 0.01, 2.0


@dataclass(frozen=True)
class Resolution:
    """Whether a space is fine enough.

    Parameters
    ----------
    functions : dict of str to float
        Of the K_j functions of each smoothed coordinate, how many its own penalty leaves in use.
    limited : tuple of str
        Coordinates whose knots limit the fit.
    visible : bool
        Whether residuals are large enough for the smoothing to make a difference that anyone sees.
    """

    functions: dict[str, float]
    limited: tuple[str, ...]
    visible: bool


def resolution(fit: PenalisedFit, point: Score) -> Resolution:
    """Of a fit at the chosen strengths, the mean over the batch members that counted.

    The penalty along j takes t_j = tr(A⁻¹λ_jS_j) of the coefficients (of mixed derivatives each coordinate its share),
    and all of them leave edf = P − Σt_j. Of what the others leave, edf + t_j, the share edf / (edf + t_j) passes j.

    In the basis T that diagonalises masses and roughness a function has noise of the variance σ²/Σw, were the
    observations spread evenly. A field that the space resolves leaves its finest functions to the noise; one that the
    space cuts off fills them. Roughness is that of the highest derivative: polynomials below it have none.
    """
    model, space, included = fit.model, fit.model.space, point.included
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
    visible = bool(np.any(rss > NEGLIGIBLE * spread + TINY * mean**2 * weight + 2 * SMALLEST))
    functions, limited = {}, []
    for name, t in zip(model.names, taken.tolist(), strict=True):
        j = space.names.index(name)
        size = space.shape[j]
        functions[name] = size * edf / max(edf + t, 1e-300)
        finest = np.take(power, np.argsort(spectra[j].values)[-max(size // FINEST, 1) :], axis=j)
        signal = finest.mean() > ABOVE_NOISE and finest.sum() > SEEN * left.mean()
        if functions[name] > CROWDED * size and signal and visible and n.mean() > ROOM * space.size:
            limited.append(name)
    return Resolution(functions, tuple(limited), visible)

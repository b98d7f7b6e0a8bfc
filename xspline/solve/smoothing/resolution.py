"""Whether a space is fine enough for what the data show: functions in use, and how much is at the finest scales."""

from __future__ import annotations

import numpy as np

from xspline.solve.smoothing.criteria import Score
from xspline.solve.smoothing.determinant import axis_spectrum
from xspline.solve.smoothing.fit import PenalisedFit

FINEST = 4  # the finest 1/4 of the functions along a coordinate, by their roughness


def functions_in_use(fit: PenalisedFit, point: Score) -> tuple[float, dict[str, float]]:
    """Effective degrees of freedom, and the functions of each smoothed coordinate that its own penalty leaves in use.

    Penalty j takes t_j = tr(A⁻¹λ_jS_j) of the coefficients, and all of them leave edf = P − Σt_j. Of what the others
    leave, edf + t_j, the share edf / (edf + t_j) passes j.
    """
    space = fit.model.space
    taken = point.total(fit.traces) / max(int(point.included.sum()), 1)
    edf = max(space.size - float(taken.sum()), 0.0)
    sizes = dict(zip(space.names, space.shape, strict=True))
    shares = zip(fit.model.names, taken.tolist(), strict=True)
    return edf, {name: sizes[name] * edf / max(edf + t, 1e-300) for name, t in shares}


def finest_signal(fit: PenalisedFit, point: Score, edf: float) -> dict[str, float]:
    """Along each smoothed coordinate, the power of the finest functions over what noise alone would give them.

    In the basis T that diagonalises masses and roughness a function has noise of the variance σ²/Σw, were the
    observations spread evenly. A field that the space resolves leaves its finest functions to the noise, about 1; one
    that the space cuts off fills them. Means over the batch members that count.
    """
    model, space, included = fit.model, fit.model.space, point.included
    x = np.broadcast_to(fit.c, (*space.shape, *included.shape))[..., included]
    for j, name in enumerate(space.names):
        vectors = axis_spectrum(space, j, model.order if name in model.names else 0).vectors
        x = np.moveaxis(np.tensordot(np.linalg.inv(vectors), x, axes=(1, j)), 0, j)
    left = np.maximum(np.broadcast_to(model.sums.count, included.shape)[included] - edf, 1.0)
    rss, weight = (np.broadcast_to(v, included.shape)[included] for v in (fit.rss, model.sums.weight))
    power = np.mean(x**2 / (rss / left / weight), axis=-1)
    out = {}
    for j, axis in model.spectrum.axes.items():
        others = tuple(i for i in range(power.ndim) if i != j)
        finest = np.argsort(axis.values)[-max(len(axis.values) // FINEST, 1) :]
        out[space.names[j]] = float(np.mean(power.mean(axis=others)[finest]))
    return out

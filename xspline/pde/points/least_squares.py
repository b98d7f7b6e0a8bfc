"""Ordinary least squares of an equation over points, from sums that are computed block by block."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import stdtrit

from xspline.pde.results import LEVEL, Floats

#: Added to the diagonal of the normal equations (paper, section 3.3), but never more than this times the entry itself.
STABILISER = 1e-8


@dataclass(frozen=True, eq=False)
class Estimate:
    """Least-squares estimates of the powers of parameters, batch axes first; NaN where points do not determine them.

    Attributes
    ----------
    value : [b.., p].
    covariance : [b.., p, p].
    factor : [b..], half the width of the interval in standard errors.
    rms : [b..], of the residuals.
    relative_rms : [b..], the same relative to that of the response.
    condition : [b..], of the normal equations with terms scaled to one size.
    count : [b..], points at which response and terms are all finite.
    squares : [b.., p], sums of the squares of the terms.
    """

    value: Floats
    covariance: Floats
    factor: Floats
    rms: Floats
    relative_rms: Floats
    condition: Floats
    count: Floats
    squares: Floats

    @property
    def stderr(self) -> Floats:
        """Standard errors, [b.., p]."""
        return np.asarray(np.sqrt(np.diagonal(self.covariance, axis1=-2, axis2=-1)))


def least_squares(
    response: Any,
    terms: Sequence[Any],
    dims: Sequence[Hashable],
    batch: Sequence[Hashable],
    field: xr.DataArray,
) -> Estimate:
    """Sum products over `dims` in one compute; solve the stabilised normal equations, scaled to a unit diagonal.

    A point counts where response and terms are all finite. Scaled, so that units do not matter. `response` and `terms`
    are numbers or arrays without coordinates; `dims` are summed over, `batch` is kept, and `field` is an array that has
    all of these dimensions.
    """
    summands = [response, *terms]
    valid = np.isfinite(field)
    for array in summands:
        valid = valid & np.isfinite(array)
    y, *columns = (xr.where(valid, array, 0.0) for array in summands)
    products = {f"{i} {j}": a * b for i, a in enumerate(columns) for j, b in enumerate(columns[: i + 1])}
    products |= {f"{i}": a * y for i, a in enumerate(columns)}
    sums = xr.Dataset({k: a.sum(dims, skipna=False) for k, a in {**products, "y": y * y, "n": valid}.items()})
    loaded = {str(k): v.transpose(*batch).values.astype(float) for k, v in sums.compute().items()}
    size, indices = len(columns), range(len(columns))
    rows = [np.stack([loaded[f"{max(i, j)} {min(i, j)}"] for j in indices], axis=-1) for i in indices]
    matrix = np.stack(rows, axis=-2)
    moment = np.stack([loaded[f"{i}"] for i in indices], axis=-1)
    power, count = loaded["y"], loaded["n"]

    squares = np.diagonal(matrix, axis1=-2, axis2=-1)
    determined = (squares > 0).all(-1) & (count > size)
    matrix = np.where(determined[..., None, None], matrix, np.eye(size))
    diagonal = np.where(determined[..., None], squares, 1.0)
    # The paper's terms are of order one and summed over thousands of points; in SI units a squared Laplacian is of
    # order 1e-24, next to which 1e-8 would be everything.
    ridge = STABILISER * np.minimum(1.0, diagonal)
    scale = np.sqrt(diagonal + ridge)
    scaled = (matrix + ridge[..., None] * np.eye(size)) / (scale[..., :, None] * scale[..., None, :])
    inverse = np.linalg.inv(scaled) / (scale[..., :, None] * scale[..., None, :])
    value = np.einsum("...ij,...j->...i", inverse, moment)
    fitted = 2 * np.einsum("...i,...i", value, moment) - np.einsum("...i,...ij,...j", value, matrix, value)
    # The difference of two sums is exact to rounding of the sums: no residual is known to be smaller.
    rss = np.maximum(power - fitted, np.finfo(float).eps * power)
    with np.errstate(all="ignore"):
        variance = np.where(determined, rss / (count - size), np.nan)
        covariance = variance[..., None, None] * inverse
        value = np.where(determined[..., None], value, np.nan)
        rms, relative_rms = np.sqrt(rss / count), np.sqrt(rss / power)
    factor = np.asarray(stdtrit(np.maximum(count - size, 1.0), (1 + LEVEL) / 2))  # of Student's t, both tails
    # The ratio of the extreme eigenvalues, with a unit diagonal and no stabiliser; infinite if singular.
    length = np.sqrt(diagonal)
    eigenvalues = np.linalg.eigvalsh(matrix / (length[..., :, None] * length[..., None, :]))
    lowest, highest = eigenvalues[..., 0], eigenvalues[..., -1]
    singular = lowest <= highest * np.finfo(float).eps
    condition = np.where(singular, np.inf, highest / np.where(singular, 1.0, lowest))
    return Estimate(value, covariance, factor, rms, relative_rms, condition, count, squares)

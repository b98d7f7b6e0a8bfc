"""The covariance of a field at one scale or two: Matérn covariances, each with lengths of its own, and noise.

    Cov(u(x), u(x')) = Σ_q v_q M(ν_q, √(2 ν_q) |x − x'|_q)      |Δ|_q² = Σ_j Δ_j² / ℓ_qj²

M(ν, z) = 2^(1−ν)/Γ(ν) z^ν K_ν(z) is 1 at 0 (Matérn 1960; Rasmussen and Williams 2006, equation 4.14). Smoothness ν says
how rough the field is: 1/2 is an exponential covariance, 3/2 a field with slopes.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, kv

Array = NDArray[np.float64]

#: Between the nodes of a table, in √z. Values are right to 1e-12 for ν from 1.2 on, and to 1e-7 for ν of .5 to .9.
#: Nodes are dense near 0, where a rough covariance bends most: equally far apart in z, some matrices are indefinite.
STEP = 1 / 64


class ItemCovariance(NamedTuple):
    """The covariance between items, observations and means over cells of L levels, as compiled loops read it."""

    inverse: Array  # [Q, L, L, D], 1/ℓ² between items of two levels
    amplitude: Array  # [Q, L, L], variances between these
    smoothness: Array  # [Q]
    table: Array  # [Q, interval, 6], as `Model.table`, or 12 as `Model.slopes`
    step: float  # between the nodes of the table
    noise: float  # variance of an observation of weight 1


@dataclass(frozen=True, eq=False)
class Model:
    """A covariance, up to the scale that the data decide where they are."""

    lengths: Array  # [Q, D], correlation lengths of each scale along each axis of the places
    variances: Array  # [Q]
    smoothness: Array  # [Q]
    noise: float  # variance of an observation of weight 1 about the field

    @classmethod
    def of(cls, parameters: Array, scales: int, axes: int) -> Model:
        """Return the model of logarithms in the order of `parameters`."""
        lengths, variances, smoothness, noise = np.split(
            np.exp(parameters), np.cumsum([scales * axes, scales, scales])
        )
        return cls(lengths.reshape(scales, axes), variances, smoothness, float(noise[0]))

    @property
    def parameters(self) -> Array:
        """Logarithms of lengths [Q, D], variances, smoothness [Q] and noise, in one vector."""
        return np.log(np.concatenate([self.lengths.ravel(), self.variances, self.smoothness, [self.noise]]))

    @functools.cached_property
    def table(self) -> Array:
        """Polynomials of degree 5 in √z/STEP between every two nodes of M, [Q, interval, 6], the constant first."""
        return np.ascontiguousarray(np.stack([_table(nu) for nu in self.smoothness.tolist()]))

    @functools.cached_property
    def slopes(self) -> Array:
        """The coefficients of `table` and their derivatives by log ν, [Q, interval + 1, 12]; the last are 0."""
        both = [np.concatenate([_table(nu), _bend(nu)], axis=1) for nu in self.smoothness.tolist()]
        return np.pad(np.stack(both), ((0, 0), (0, 1), (0, 0)))

    def between(self, spread: Array) -> ItemCovariance:
        """Return the covariance between the means over cells of L levels.

        `spread` [L, D] is the variance of the places in a cell along each axis; zero for observations. The mean of a
        field over two cells is as if both were blurred: lengths grow, ℓ² + c (s + s'), and variances shrink so that
        the integral of the covariance stays. For a Gaussian covariance this is exact with c = 1; c = 1 + 1/ν fits
        means over boxes to 0.02 of the variance for ν ≥ 1, and 0.05 for ν = 1/2.
        """
        square = self.lengths[:, None, None, :] ** 2
        blur = (1 + 1 / self.smoothness)[:, None, None, None] * (spread[:, None] + spread[None])
        inverse = 1 / (square + blur)
        shrunk = self.variances[:, None, None] * np.sqrt(np.prod(square * inverse, axis=-1))
        both = np.ascontiguousarray(inverse), np.ascontiguousarray(shrunk)
        return ItemCovariance(*both, self.smoothness, self.table, STEP, self.noise)


def matern(z: Array, nu: float) -> Array:
    """Return M(ν, z)."""
    out = np.ones_like(z)
    positive = z > 0
    out[positive] = _power_times_bessel(z[positive], nu, nu)
    return out


@functools.lru_cache(maxsize=512)  # twice as many as are drawn from a prior, the same ones for each fit
def _table(nu: float) -> Array:
    """Return the polynomials in √z with the values of M and its first two derivatives at the nodes, [interval, 6].

    The second derivative follows from Bessel's equation. At 0, where it may be infinite, it is that with which the
    value amid the first interval is right.
    """
    # Beyond z = 49 a correlation, below 1e-13 for ν up to 8, counts as 0.
    root: Array = np.arange(0, 7 + STEP, STEP)
    z, along = root**2, np.zeros(root.size)
    along[1:] = -_power_times_bessel(z[1:], nu, nu - 1)  # ∂M/∂z
    value, slope, bend = matern(z, nu), 2 * root * along * STEP, np.zeros(root.size)
    bend[1:] = (4 * z * value + (8 * nu - 2) * along)[1:] * STEP**2
    amid = float(matern(z[1:2] / 4, nu)[0]) - (value[0] + value[1]) / 2 + 5 / 32 * slope[1]
    bend[0] = 64 * amid - bend[1]
    v, d, b = value[:-1], slope[:-1], bend[:-1]
    rise, turn, change = value[1:] - v - d - b / 2, slope[1:] - d - b, bend[1:] - b
    third, fifth = 10 * rise - 4 * turn + change / 2, 6 * rise - 3 * turn + change / 2
    return np.stack([v, d, b / 2, third, 7 * turn - 15 * rise - change, fifth], axis=1)


@functools.lru_cache(maxsize=64)
def _bend(nu: float) -> Array:
    """Return the derivative of `_table` by log ν, by differences."""
    step = float(np.cbrt(np.finfo(np.float64).eps))  # where rounding and curvature are about as large
    return (_table(nu * math.exp(step)) - _table(nu * math.exp(-step))) / (2 * step)


def _power_times_bessel(z: Array, nu: float, order: float) -> Array:
    """Return 2^(1−ν)/Γ(ν) z^ν K_order(z), for which z^ν may be too large and K too small alone."""
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        logarithm = (1 - nu) * np.log(2) - gammaln(nu) + nu * np.log(z)
        return np.nan_to_num(np.exp(logarithm) * kv(order, z), nan=0.0)

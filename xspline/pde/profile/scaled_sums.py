"""Statistics of the variables of an equation, each in units of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from xspline.pde.profile.axes import Array
from xspline.pde.profile.normal_equations import BandOrder, band_of
from xspline.solve import Ridge, SingularSystemError, solve
from xspline.sums import Sums


@dataclass(frozen=True, eq=False)
class ScaledSums:
    """Statistics of some variables, in units in which the diagonal of each variable's G is 1 on average.

    Equations are weighed against data by traces. In common units the variable of larger numbers would outweigh the
    others there. `sums` have no batch axes, and a reference near the data. `precision` is 1 / σ² of an observation of
    weight 1, up to a factor that all variables share, and `scale` the unit of each variable's coefficients.
    """

    order: BandOrder
    sums: Mapping[str, Sums]
    precision: Mapping[str, float]
    scale: Mapping[str, float]

    @staticmethod
    def of(order: BandOrder, sums: Mapping[str, Sums], precision: Mapping[str, float]) -> ScaledSums:
        """Return statistics in the units in which the diagonal of G is 1 on average."""
        scale = {}
        for name, s in sums.items():
            pairs = s.gram.one_factor(order.frame).pairs.reshape((*order.frame.sizes, -1))
            mean = float(np.mean(pairs[..., 0]))
            scale[name] = 1 / math.sqrt(precision[name] * mean) if precision[name] * mean > 0 else 1.0
        return ScaledSums(order, sums, precision, scale)

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(int(s.count) for s in self.sums.values())

    @cached_property
    def power(self) -> float:
        """The weighted sum of squares of the data about their references."""
        return sum(float(s.power) * self.precision[name] for name, s in self.sums.items())

    def band(self) -> Array:
        """Return G as a band. It is not kept, as it is as large as the factor and takes a thousandth of its work."""
        factors = {n: self.precision[n] * self.scale[n] ** 2 for n in self.order.variables}
        return band_of([self.sums[n].gram.scaled(factor) for n, factor in factors.items()], self.order)

    @cached_property
    def free(self) -> float | None:
        """The residual sum of squares without the equations; None where data leave a coefficient undetermined.

        Only the equations tie variables to each other, so that each variable is solved by itself.
        """
        if self.count <= self.order.size:
            return None
        try:
            fits = {n: solve(s, self.order.space, Ridge(0.0), "banded") for n, s in self.sums.items()}
        except SingularSystemError:
            return None
        return sum(float(fit.rss) * self.precision[name] for name, fit in fits.items())

    @cached_property
    def moment(self) -> Array:
        """h as a row."""
        return self._row({n: s.full_moment(self.order.frame) for n, s in self.sums.items()})

    def image(self, row: Array) -> Array:
        """Return G z."""
        own = self.unscaled(row)
        return self._row({n: s.gram.matvec(own[n], self.order.frame) for n, s in self.sums.items()})

    def gradient(self, row: Array) -> Array:
        """Return h − G z."""
        return self.moment - self.image(row)

    def rss(self, row: Array) -> float:
        """Return the weighted residual sum of squares of centred coefficients."""
        own = self.unscaled(row)
        return sum(float(s.rss(own[n], self.order.frame)) * self.precision[n] for n, s in self.sums.items())

    def with_reference(self, row: Array) -> dict[str, Array]:
        """Return the coefficients [K..] of each variable from centred and scaled ones."""
        own = self.unscaled(row)
        return {n: 2 * own[n] - s.centred(own[n], self.order.frame) for n, s in self.sums.items()}

    def centred(self, coefficients: Mapping[str, Array]) -> Array:
        """Return the inverse of `with_reference`."""
        return self.order.flatten(
            {n: s.centred(coefficients[n], self.order.frame) / self.scale[n] for n, s in self.sums.items()}
        )

    def unscaled(self, row: Array) -> dict[str, Array]:
        """Return centred coefficients in the units of the data."""
        return {n: self.scale[n] * c for n, c in self.order.unflatten(row).items()}

    def _row(self, gradients: Mapping[str, Array]) -> Array:
        """Return slopes by the coefficients of each variable as one row of slopes by scaled coefficients."""
        return self.order.flatten({n: x * (self.precision[n] * self.scale[n]) for n, x in gradients.items()})

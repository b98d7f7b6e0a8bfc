"""The calls that users wait for: sums, smoothing, solves, predictions, error bars."""

from __future__ import annotations

import numpy as np
import xarray as xr

import xspline as xs

GAPS = ("none", "land", "clouds")


def product(gaps: str) -> xr.DataArray:
    """Ten years of months at two degrees."""
    sst = xs.synthetic.sea_surface_temperature(months=120, step=2.0).sst
    sst = sst.fillna(20.0) if gaps == "none" else sst
    return sst.where(np.random.default_rng(0).random(sst.shape) > 0.3) if gaps == "clouds" else sst


BASES = {"lat": 20, "lon": 40, "time": xs.Fourier(2, "year") + xs.Polynomial(1)}


class Fit:
    """A fit with a given penalty, and with one that REML chooses."""

    params = GAPS
    param_names = ("gaps",)
    timeout = 120

    def setup(self, gaps: str) -> None:
        self.data = product(gaps)
        self.data.spline.fit(BASES, penalty=0.1)  # compiled

    def time_sums(self, gaps: str) -> None:
        self.data.spline.statistics(BASES)

    def time_fit(self, gaps: str) -> None:
        self.data.spline.fit(BASES, penalty=0.1)

    def time_reml(self, gaps: str) -> None:
        self.data.spline.fit(BASES)

    def peakmem_fit(self, gaps: str) -> None:
        self.data.spline.fit(BASES, penalty=0.1)


class Points:
    """Scattered observations, and every pixel on its own."""

    timeout = 120

    def setup(self) -> None:
        self.points = xs.synthetic.diffusion().scatter(200_000, seed=0)
        self.pixels = product("clouds")
        self.time_points()
        self.time_pixels()

    def time_points(self) -> None:
        self.points.spline.fit(x=11, y=11, t=11, penalty=1e-4)

    def time_pixels(self) -> None:
        self.pixels.spline.fit(time=BASES["time"])


class Evaluate:
    """Values and errors of a field on its own grid."""

    timeout = 120

    def setup(self) -> None:
        self.field = product("clouds").spline.fit(BASES, penalty=0.1, holder="time.year")
        self.field.predict()
        self.field.stderr()

    def time_predict(self) -> None:
        self.field.predict()

    def time_stderr(self) -> None:
        self.field.stderr()

    def time_gradient(self) -> None:
        self.field.gradient(geometry="sphere")

    def time_jackknife(self) -> None:
        xs.Field.from_statistics(self.field.statistics, 0.1).stderr(method="jackknife")

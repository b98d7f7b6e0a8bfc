"""The scores and the withheld values of `python -m benchmarks contest`, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy import integrate, stats

from benchmarks.contest import peers, scores, sets


@pytest.fixture
def plane() -> sets.Problem:
    """A linear function of latitude and longitude on a grid in space and time, some of it withheld."""
    rng = np.random.default_rng(0)
    lat, lon, time = np.arange(8.0), np.arange(10.0), np.datetime64("2001-01-15") + 30 * np.arange(26)
    coords = {"time": time.astype("datetime64[ns]"), "lat": lat, "lon": lon}
    values = 0 * np.arange(26)[:, None, None] + 2 * lat[:, None] - lon
    data = xr.DataArray(values, coords, ("time", "lat", "lon"), "u")
    data[:, 0, 0] = np.nan
    held = xr.DataArray(rng.random(data.shape) < 0.1, data.coords, data.dims)
    return sets.Problem("plane", "random", data, held & data.notnull())


def test_crps_is_the_integral_of_its_definition() -> None:
    error, sd = np.array([-1.3, 0.0, 0.4]), np.array([0.5, 1.0, 2.0])
    wanted = [
        integrate.quad(
            lambda x, e=e, s=s: (stats.norm.cdf(x, scale=s) - (x >= -e)) ** 2, -30, 30, points=[-e]
        )[0]
        for e, s in zip(error, sd, strict=True)
    ]
    assert scores.crps(error, sd) == pytest.approx(np.mean(wanted), rel=1e-7)


def test_interval_score_and_coverage_by_hand() -> None:
    """A width of 2 z s, and 40 times the distance of a value outside; half of these are inside."""
    error, sd = np.array([1.0, 3.0]), np.array([1.0, 1.0])
    z = stats.norm.ppf(0.975)
    assert scores.interval_score(error, sd) == pytest.approx(2 * z + 40 * (3 - z) / 2)
    assert scores.coverage(error, sd) == 0.5


@pytest.mark.parametrize(
    "name", ["linear in lat and lon", "RBF of 30 neighbours", "trend and climatology per pixel"]
)
def test_peers_find_a_plane(plane: sets.Problem, name: str) -> None:
    got = peers.PEERS[name](plane)
    error = got - plane.truth.to_numpy()
    assert got.shape == plane.truth.shape
    assert np.nanmax(abs(error)) < (1.5 if "RBF" in name else 1e-8)  # a sum of cones is no plane

"""Numbers of functions of a single field that nobody named: what labels support, as far as there are seconds for it."""

from __future__ import annotations

import math
from typing import Any

import dask.array
import numpy as np
import pytest
import xarray as xr

import xspline as xs
from xspline.labels.read import defaults


def counts(data: xr.DataArray | xr.Dataset, **arguments: Any) -> dict[str, int]:
    return {name: basis.count for name, basis in defaults.single_for(data, **arguments).bases.items()}


def grid(**labels: int | np.ndarray) -> xr.DataArray:
    """Zeros that hold no memory; numbers of labels are over 0..50."""
    coords = {n: np.linspace(0, 50, k) if isinstance(k, int) else k for n, k in labels.items()}
    shape = tuple(map(len, coords.values()))
    return xr.DataArray(dask.array.zeros(shape), coords, list(coords), "u")


def points(**labels: Any) -> xr.DataArray:
    size = np.shape(next(iter(labels.values())))[0]
    return xr.DataArray(np.zeros(size), {n: ("obs", x) for n, x in labels.items()}, "obs", "u")


# ---- what labels support


@pytest.mark.parametrize(
    ("labels", "functions"), [(2, 4), (4, 5), (10, 8), (41, 23), (300, 153), (9000, 1024)]
)
def test_a_function_for_every_second_label(labels: int, functions: int) -> None:
    assert counts(grid(x=labels)) == {"x": functions}


def test_a_circle_has_no_ends() -> None:
    assert counts(grid(lon=np.arange(0, 360, 2.0))) == {"lon": 90}


def test_cells_are_square_on_the_sphere_but_not_where_units_differ() -> None:
    lat, lon = np.random.default_rng(0).uniform(0, 1, (2, 9000))
    # At 60° north a degree east is half of one north.
    chosen = counts(points(lat=55 + 10 * lat, lon=20 * lon))
    assert (chosen["lon"] - 3) / (chosen["lat"] - 3) == pytest.approx(1.0, abs=0.03)
    chosen = counts(points(lat=10 * lat, depth=5000 * lon))
    assert chosen["lat"] == chosen["depth"]


# ---- the budget


def test_a_ridge_and_no_penalty_keep_few_functions() -> None:
    x = np.linspace(0, 10, 200)
    data = xr.DataArray(np.sin(x), {"x": x}, "x", "u")
    old, new = (53,), (103,)
    for penalty, shape in (
        (0, old),
        (1e-3, old),
        (xs.Ridge(1e-3), old),
        (xs.Roughness(1e-3), new),
        (None, new),
    ):
        field = data.spline.fit(penalty=penalty, fine=False)
        assert field.space.shape == shape
        assert tuple(data.spline.plan(penalty=penalty, fine=False).coefficients.values()) == shape
    assert data.spline.space().shape == data.spline.statistics().space.shape == new


@pytest.mark.slow
def test_seconds_are_an_argument_of_all_that_choose() -> None:
    data = grid(lat=200, lon=200)
    few = data.spline.space(seconds=0.5)
    assert few.size < data.spline.space().size
    assert tuple(data.spline.plan(seconds=0.5, fine=False).coefficients.values()) == few.shape
    small = grid(x=200).expand_dims(member=2)
    for seconds in (1e-3, 1.0):
        space = small.spline.space(seconds=seconds)
        assert small.spline.fit(seconds=seconds, fine=False).space == space
        assert small.spline.statistics(seconds=seconds).space == space


def test_seconds_beside_bases_or_no_time_are_errors() -> None:
    data = grid(x=12)
    with pytest.raises(ValueError, match=r"seconds=5 is a budget.*these are given.*leave out one of both"):
        data.spline.fit(x=5, seconds=5)
    for seconds in (0, -1.0, math.nan):
        with pytest.raises(ValueError, match=rf"seconds={seconds} is no time.*pass a positive number"):
            data.spline.plan(seconds=seconds)
    with pytest.raises(TypeError, match="seconds='1 min' has to be a number or None"):
        data.spline.plan(seconds="1 min")


# ---- that it behaves


@pytest.mark.slow
def test_an_image_with_few_values_is_fitted() -> None:
    """More functions than observations: the penalty determines them."""
    x = np.linspace(0, 1, 40)
    data = xr.DataArray(np.sin(5 * x)[:, None] + x, {"a": x, "b": x}, ("a", "b"), "u")
    few = data.where(np.random.default_rng(0).random(data.shape) < 0.05)
    field = few.spline.fit(fine=False)
    assert field.space.shape == (23, 23) and np.isfinite(field.coefficients).all()
    for own in (field, few.spline.fit()):
        assert float(np.sqrt(((own.predict() - data) ** 2).mean())) < 0.05

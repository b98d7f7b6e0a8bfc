"""A field as a function of arrays, in xarray's `apply_ufunc`, of NumPy and of Dask."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs

X, Y = np.linspace(0, 3, 20), np.linspace(0, 2, 16)


@pytest.fixture(scope="module")
def field() -> xs.Field[xr.DataArray]:
    values = np.sin(X)[:, None] * np.cos(Y)
    return xr.DataArray(values, {"x": X, "y": Y}, ("x", "y"), "u").spline.fit(x=12, y=10, penalty=0)


def test_arrays_are_points_by_the_rules_of_broadcasting(field: xs.Field[xr.DataArray]) -> None:
    a, b = np.array([[0.1], [1.0], [5.0]]), np.array([0.2, 0.3])
    values = field(a, b)
    assert values.shape == (3, 2) and np.isnan(values[2]).all()
    np.testing.assert_allclose(values[:2], field.predict(x=[0.1, 1.0], y=[0.2, 0.3]), rtol=1e-14)
    assert field(0.1, 0.2) == pytest.approx(values[0, 0], rel=1e-14)


@pytest.mark.parametrize("chunks", [None, {"time": 2}])
def test_apply_ufunc_takes_a_field(field: xs.Field[xr.DataArray], chunks: dict[str, int] | None) -> None:
    track = xr.Dataset({"x": ("time", [0.1, 1.0, 2.0, 2.9]), "y": ("time", [0.2, 0.3, 1.0, 1.9])}).chunk(
        chunks or {}
    )
    called = xr.apply_ufunc(field, track.x, track.y, dask="parallelized", output_dtypes=[float])
    assert called.dims == ("time",) and (called.chunks is not None) == (track.x.chunks is not None)
    np.testing.assert_array_equal(called, field.predict(track))
    np.testing.assert_array_equal(field(track.x, track.y), field.predict(track))


def test_independent_fits_are_behind(field: xs.Field[xr.DataArray]) -> None:
    assert field.sample(3, seed=0)(np.zeros(5), 1.0).shape == (5, 3)


def test_labels_that_do_not_go_with_the_coordinates_are_refused(field: xs.Field[xr.DataArray]) -> None:
    with pytest.raises(TypeError, match=r"\(x, y\) takes labels of each .* in this order, and 1 were given"):
        field(np.zeros(3))
    both = xr.Dataset({n: ("x", np.sin(X)) for n in "uv"}, {"x": X}).spline.fit(x=8, penalty=0.1)
    with pytest.raises(TypeError, match=r"a field of u, v; by name: field.predict\(x=...\).* field\['u'\]"):
        both(np.zeros(3))

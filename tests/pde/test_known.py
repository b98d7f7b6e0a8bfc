"""What is known: numbers, labelled arrays, functions; and arrays that do not cover the points."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.pde import cases

TEXT = "u_t = D*u_xx + S"


@pytest.fixture(scope="module")
def field() -> xs.Field:
    """Return a fit of modes that a source sin x + t drives: u_t = 0.4 u_xx + sin x + t."""

    def driven(x: xr.DataArray, t: xr.DataArray) -> xr.DataArray:
        return (1 - np.exp(-0.4 * t)) / 0.4 * np.sin(x) + t**2 / 2 + np.exp(-1.6 * t) * np.cos(2 * x)

    return cases.fitted(driven)


@pytest.fixture(scope="module")
def source() -> xr.DataArray:
    at = cases.grid()
    return np.sin(at.x) + at.t


def estimate(field: xs.Field, known: object, **more: object) -> float:
    return field.recover(TEXT, known={"S": known}, **more).estimate.item()


@pytest.mark.slow
def test_every_form_of_a_source(field: xs.Field, source: xr.DataArray) -> None:
    assert estimate(field, source) == pytest.approx(0.4, rel=3e-5)
    assert estimate(field, source.transpose()) == estimate(field, source)
    assert estimate(field, source.isel(x=slice(None, None, -1), t=[*range(1, 40), 0])) == estimate(
        field, source
    )
    assert estimate(field, lambda x, t: np.sin(x) + t) == pytest.approx(0.4, rel=3e-5)
    assert estimate(field, lambda t, x, scale=1.0: scale * np.sin(x) + t) == pytest.approx(0.4, rel=3e-5)
    parts = field.recover(
        "u_t = D*u_xx + A + c*t**m", known={"A": lambda x: np.sin(x), "c": 1, "m": np.float32(1)}
    )
    assert parts.estimate.item() == pytest.approx(0.4, rel=3e-5)
    parts = field.recover("u_t = D*u_xx + A + t", known={"A": np.sin(cases.grid().x)})
    assert parts.estimate.item() == pytest.approx(0.4, rel=3e-5)
    parts = field.recover("u_t = D*u_xx + sin(x) + c*t", known={"c": xr.DataArray(1.0)})
    assert parts.estimate.item() == pytest.approx(0.4, rel=3e-5)


def test_a_constant_function_and_chunks(field: xs.Field) -> None:
    found = field.recover(
        "u_t = D*u_xx + sin(x) + c*t", known={"c": lambda x: 1.0}, at=cases.grid().chunk(x=20)
    )
    assert found.estimate.item() == pytest.approx(0.4, rel=3e-5)


def test_a_source_that_covers_the_points(field: xs.Field, source: xr.DataArray) -> None:
    at = cases.grid().isel(x=slice(10, 40, 3), t=slice(5, 20))
    assert estimate(field, source, at=at) == pytest.approx(0.4, rel=3e-5)
    interior = estimate(field, source, method="differences")
    assert interior == pytest.approx(
        estimate(field, source.isel(x=slice(1, -1), t=slice(1, -1)), method="differences")
    )
    ship = xr.Dataset(coords={"x": ("obs", source.x.values[3:43]), "t": ("obs", source.t.values)})
    assert estimate(field, source, at=ship) == pytest.approx(0.4, rel=1e-4)
    along = xr.DataArray(np.sin(ship.x.values) + ship.t.values, dims="obs")
    assert estimate(field, along, at=ship) == pytest.approx(estimate(field, source, at=ship), rel=1e-12)


def test_gaps_in_a_source_leave_points_out(field: xs.Field, source: xr.DataArray) -> None:
    found = field.recover(TEXT, known={"S": source.where(source.x > 1)}, method="pointwise")
    assert found.estimate.item() == pytest.approx(0.4, rel=3e-5)
    assert found.attrs["points"] == int((source.x > 1).sum()) * 40
    assert "points were left out: outside the domain, or a known has no value there" in found.attrs["checks"]


def test_a_source_without_labels(field: xs.Field, source: xr.DataArray) -> None:
    plain = source.drop_vars(["x", "t"])
    assert estimate(field, plain) == estimate(field, source, method="pointwise")
    with pytest.raises(
        ValueError, match="known 'S' has 69 entries along 'x' without labels, but there are 70 points"
    ):
        estimate(field, plain.isel(x=slice(1, None)))


def test_longitudes_and_calendars_meet() -> None:
    time = xr.date_range("2000-01-01", periods=10, freq="D", calendar="noleap", use_cftime=True)
    lon = xr.DataArray(np.arange(-40.0, 41.0, 5.0), dims="lon", attrs={"units": "degrees_east"})
    days = xr.DataArray(np.arange(10.0), {"time": time}, "time")
    data = (lon.assign_coords(lon=lon) ** 2 * 0 + 3 * days).rename("q")
    field = data.spline.fit(lon=6, time=xs.Polynomial(1), penalty=0)
    rate = xr.ones_like(data).assign_coords(lon=np.mod(lon.values, 360))
    found = field.recover("q_t = a*R", known={"R": rate.sortby("lon")})
    assert found.estimate.item() * 86400 == pytest.approx(3, rel=1e-9)


def test_labels_that_are_not_there_are_named(field: xs.Field, source: xr.DataArray) -> None:
    with pytest.raises(
        ValueError, match=r"known 'S' has no value at x=0.0 \(1 of 70 labels .*S.interp\(x=\.\.\.\)"
    ):
        estimate(field, source.isel(x=slice(1, None)))
    with pytest.raises(ValueError, match=r"known 'S' has no value at x=0.0 \(70 of 70 labels"):
        estimate(field, source.isel(x=slice(0, 0)))
    with pytest.raises(ValueError, match=r"known 'S' has no value at t=.* \(40 of 40 labels"):
        estimate(field, source.assign_coords(t=source.t + 1e-3), method="pointwise")
    with pytest.raises(
        ValueError, match=r"known 'S' spans 'depth', which is no dimension of the points \('x', 't'\)"
    ):
        estimate(field, source.expand_dims(depth=3))
    ship = xr.Dataset(coords={"x": ("obs", [1.0, 2, 3]), "t": ("obs", [0.1, 0.2, 0.3]), "obs": [1, 2, 3]})
    with pytest.raises(ValueError, match="known 'S' and the points have different labels along 'obs'"):
        estimate(field, xr.DataArray(np.ones(3), {"obs": [2, 3, 4]}, "obs"), at=ship)


def test_members_that_are_not_there_are_named() -> None:
    data = cases.plane().expand_dims(run=["a", "b"])
    field = data.spline.fit(x=6, t=6, penalty=0)
    some = xr.DataArray([1.0, 2.0], {"run": ["b", "c"]}, "run")
    with pytest.raises(ValueError, match="known 'q' does not have every 'run' of the fit"):
        field.recover("u_t = a*q*u_x", known={"q": some})
    with pytest.raises(ValueError, match="known 'q' has 3 entries along 'run', but the fit has 2"):
        field.recover("u_t = a*q*u_x", known={"q": xr.DataArray(np.ones(3), dims="run")})
    unlabelled = field.recover("u_t = a*q*u_x", known={"q": xr.DataArray(np.ones(2), dims="run")})
    np.testing.assert_allclose(unlabelled.estimate, field.recover("u_t = a*u_x").estimate)


@pytest.mark.parametrize("wrong", [np.ones((40, 70)), "3", True, None, [1.0], 2j])
def test_what_is_neither_number_array_nor_function_is_refused(field: xs.Field, wrong: object) -> None:
    with pytest.raises(
        TypeError, match=r"known 'S' is of type .*; pass a number, a DataArray, .* or a function"
    ):
        estimate(field, wrong)


def test_functions_and_dtypes_that_do_not_fit_are_refused(field: xs.Field, source: xr.DataArray) -> None:
    with pytest.raises(ValueError, match="no coordinate that the known 'S' could be a function of: 'y'"):
        estimate(field, lambda y: y)
    with pytest.raises(
        TypeError,
        match=r"a function whose arguments do not name coordinates; wrap it, for example lambda x, t",
    ):
        estimate(field, lambda *all_of_them: 0.0)
    with pytest.raises(TypeError, match="known 'S' has dtype complex128, which is not a real number"):
        estimate(field, source.astype(complex))

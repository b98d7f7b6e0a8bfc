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


@pytest.mark.slow
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


def relabelled(data: xr.DataArray, **units: tuple[str, float]) -> xr.DataArray:
    """Return data with coordinates in other units, of which so many are one of its own."""
    return data.assign_coords({n: (n, data[n].values * k, {"units": unit}) for n, (unit, k) in units.items()})


@pytest.mark.parametrize("method", [None, "pointwise", "differences"])
def test_labels_of_a_field_that_is_known_are_converted(
    method: str | None, field: xs.Field, source: xr.DataArray
) -> None:
    bases = {"x": xs.BSpline(24, 5), "t": xs.BSpline(8, 5)}
    own = estimate(field, source.spline.fit(bases, penalty=0), method=method)
    assert own == pytest.approx(0.4, rel=3e-5 if method != "differences" else 0.01)
    for other in (relabelled(source, x=("km", 1e-3), t=("min", 1 / 60)), source.to_dataset(name="S")):
        known = other.spline.fit(bases, penalty=0)
        assert estimate(field, known, method=method) == pytest.approx(own, rel=1e-7)
    along = source.isel(t=0).spline.fit(x=24, penalty=0)
    both = {"S": relabelled(source.isel(t=0), x=("mm", 1e3)).spline.fit(x=24, penalty=0)}
    text, at = "u_t = D*u_xx + S + t", cases.grid().chunk(x=20) if method else None
    found = field.recover(text, known=both, method=method, at=at).estimate.item()
    assert found == pytest.approx(field.recover(text, known={"S": along}, method=method).estimate.item())


def test_constants_beside_a_known_field_have_its_units(field: xs.Field, source: xr.DataArray) -> None:
    heated = source.rename("S").assign_attrs(units="W m-2")
    units = [
        field.recover("u_t = D*u_xx + a*S", known={"S": known}).units.values[1]
        for known in (heated, heated.spline.fit(x=24, t=8, penalty=0))
    ]
    assert "W-1" in units[0] and units[0] == units[1]


def test_fields_that_are_known_read_the_labels_of_points(field: xs.Field, source: xr.DataArray) -> None:
    known = relabelled(source, x=("km", 1e-3)).spline.fit(x=24, t=8, penalty=0)
    grid, labels = cases.grid(), source.x.values[3:43]
    far = grid.assign_coords(x=("x", grid.x.values / 1e3, {"units": "km"}))
    unsaid = source.assign_coords({n: source[n].drop_attrs() for n in "xt"}).spline.fit(x=24, t=8, penalty=0)
    for at in (grid, {n: grid[n].values for n in "xt"}, far):
        for own in (known, unsaid):
            assert estimate(field, own, at=at) == pytest.approx(0.4, rel=3e-5)
    ship = xr.Dataset(coords={"x": ("obs", labels), "t": ("obs", source.t.values)})
    assert estimate(field, known, at=ship) == pytest.approx(0.4, rel=1e-4)


@pytest.mark.parametrize("method", ["profile", "pointwise"])
def test_fields_that_are_known_read_angles_and_calendars(method: str) -> None:
    time = xr.date_range("2000-01-01", periods=10, freq="D", calendar="noleap", use_cftime=True)
    lon = xr.DataArray(np.arange(-40.0, 41.0, 5.0), dims="lon", attrs={"units": "degrees_east"})
    lat = xr.DataArray(np.arange(-60.0, 61.0, 10.0), dims="lat", attrs={"units": "degrees_north"})
    shape = (2 + np.cos(np.deg2rad(lon)) + np.sin(np.deg2rad(lat))).assign_coords(lon=lon, lat=lat)
    days = xr.DataArray(np.arange(10.0), {"time": time}, "time")
    bases = {"lon": xs.BSpline(10, 5), "lat": xs.BSpline(9, 5), "time": xs.Polynomial(1)}
    field = (3 * shape * days).rename("q").spline.fit(bases, penalty=0)
    rate = (shape + 0 * days).assign_coords(lon=("lon", lon.values % 360, lon.attrs))
    turned = relabelled(rate.sortby("lon"), lon=("radian", np.pi / 180), lat=("rad", np.pi / 180))
    south = relabelled(rate.assign_coords(lon=lon), lat=("degrees_south", -1), lon=("degrees_west", -1))
    for known in (rate.sortby("lon"), turned, south):
        known = known.rename("R").spline.fit(bases, penalty=0)
        found = field.recover("q_t = a*R", known={"R": known}, method=method)
        assert found.estimate.item() * 86400 == pytest.approx(3, rel=1e-5), known
    dated = rate.assign_coords(lon=lon, time=np.arange(10).astype("M8[D]").astype("M8[ns]")).rename("R")
    with pytest.raises((TypeError, ValueError), match=r"known 'R': .*calendar"):
        field.recover("q_t = a*R", known={"R": dated.spline.fit(bases, penalty=0)}, method=method)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["profile", "pointwise"])
def test_fields_that_cannot_be_known_are_named(method: str, field: xs.Field, source: xr.DataArray) -> None:
    def refused(data: xr.DataArray | xr.Dataset, match: str) -> None:
        known = data.spline.fit({n: 8 for n in data.dims if n != "run"}, penalty=0)
        with pytest.raises((TypeError, ValueError), match=match):
            estimate(field, known, method=method)

    refused(relabelled(source, x=("K", 1)), "known 'S': x: its labels have units 'm', .* 'K'")
    refused(
        source.assign_coords(t=np.arange(40).astype("M8[s]")), "known 'S': .*labels of type float64 on a time"
    )
    refused(source.rename(x="y"), "known 'S' is a field over 'y', which is no fitted coordinate .'x', 't'.")
    refused(
        xr.Dataset({"a": source, "b": source}),
        r"known 'S' is a field of several variables, .'a', 'b'.; select one, S\['a'\]",
    )
    refused(source.expand_dims(run=2), "known 'S' spans 'run', which is no")


def test_a_field_that_does_not_cover_the_domain(field: xs.Field, source: xr.DataArray) -> None:
    known = source.isel(x=slice(5, None)).spline.fit(x=24, t=8, penalty=0)
    found = field.recover(TEXT, known={"S": known}, method="pointwise")
    assert found.attrs["points"] == 65 * 40
    match = "known 'S' is a field without values on part of the domain"
    with pytest.raises(ValueError, match=match):
        estimate(field, known, method="profile")
    assert match in field.recover(TEXT, known={"S": known}).attrs["checks"]
    with pytest.raises(ValueError, match=match):
        field.statistics.solve(xs.Physics(TEXT, known={"S": known, "D": 0.4}))
    whole = relabelled(source, x=("km", 1e-3)).spline.fit(x=24, t=8, penalty=0)
    obeying = field.statistics.solve(xs.Physics(TEXT, known={"S": whole, "D": 0.4}))
    assert float(abs(obeying.predict() - field.predict()).max()) < 1e-4


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

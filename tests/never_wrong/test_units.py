"""Units of coordinates: labels in other units are converted or refused, wherever they come in."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs

DEPTHS = np.linspace(0.0, 3000.0, 121)  # m


def profile(z: np.ndarray = DEPTHS, units: str = "m", name: str = "z", **attrs: str) -> xr.DataArray:
    """cos(depth) with labels in some units; `z` is in metres."""
    factor = {"m": 1.0, "metres": 1.0, "km": 1e-3, "cm": 100.0, "": 1.0}.get(units, 1.0)
    labels = xr.DataArray(z * factor, dims=name, attrs={"units": units, **attrs} if units else attrs)
    return xr.DataArray(np.cos(z / 500), {name: labels}, name, "temperature", {"units": "K"})


def grid(units: str) -> xr.DataArray:
    """sin(latitude) on a grid of the whole sphere."""
    lat, lon = np.linspace(-85, 85, 69), np.arange(0, 360, 6.0)
    factor = np.pi / 180 if units.startswith("rad") else 1.0
    north, east = (f"{units}_north", f"{units}_east") if units == "degrees" else (units, units)
    coords = {
        "y": xr.DataArray(lat * factor, dims="y", attrs={"standard_name": "latitude", "units": north}),
        "x": xr.DataArray(lon * factor, dims="x", attrs={"standard_name": "longitude", "units": east}),
    }
    phi, lam = np.deg2rad(lat)[:, None], np.deg2rad(lon)
    return xr.DataArray(np.sin(phi) + np.cos(phi) * np.cos(lam), coords, ("y", "x"), "v")


# --- data and targets


def test_a_partner_in_kilometres_fits_into_a_space_of_metres() -> None:
    space = xs.space(profile(), z=20)
    near, far = profile(DEPTHS[::2]), profile(DEPTHS[1::2], "km")
    parts = [near.spline.statistics(space, holder="a"), far.spline.statistics(space, holder="b")]
    field = xs.merge(parts).solve(1e-9)
    assert field.statistics.count == DEPTHS.size
    np.testing.assert_allclose(field.predict(z=DEPTHS), profile(), atol=1e-4)


@pytest.mark.parametrize("chunks", [None, {"z": 20}])
def test_targets_are_converted(chunks: dict[str, int] | None) -> None:
    field, target = profile().spline.fit(z=20, penalty=1e-9), profile(units="km")
    if chunks:
        target = target.to_dataset().chunk(chunks).temperature
    predicted = field.predict(target)
    np.testing.assert_allclose(predicted, profile(), atol=1e-4)
    assert predicted.z.equals(target.z) and predicted.z.units == "km"  # the labels stay as they were given
    by_name = field.predict(z=target.z)
    np.testing.assert_array_equal(by_name, predicted)
    np.testing.assert_array_equal(field.predict({"z": target.z}), predicted)


@pytest.mark.parametrize(
    ("fitted", "given", "factor"),
    [
        ("hPa", "Pa", 100.0),
        ("millibar", "hPa", 1.0),
        ("hours", "minutes", 60.0),
        ("days", "h", 24.0),
        ("m", "meters", 1.0),
        ("degrees_north", "degrees", 1.0),
        ("degrees_east", "degrees_west", -1.0),
        ("degrees", "radians", np.pi / 180),
        ("cm", "km", 1e-5),
        ("%", "1", 0.01),
        ("degC", "K", 1.0),
        ("days since 2000-01-01", "hours since 2000-01-01 00:00:00", 24.0),
    ],
)
def test_the_usual_units_are_known(fitted: str, given: str, factor: float) -> None:
    x = np.linspace(1.0, 10.0, 50)
    data = xr.DataArray(np.sin(x), {"x": ("x", x, {"units": fitted})}, "x")
    field = data.spline.fit(x=20, penalty=1e-9)
    at = xr.DataArray(x * factor + 273.15 * (given == "K"), dims="x", attrs={"units": given})
    np.testing.assert_allclose(field.predict(x=at), field.predict().values, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [None, {"x": 2}])
def test_conversion_does_not_push_labels_out_of_the_domain(chunks: dict[str, int] | None) -> None:
    rng = np.random.default_rng(0)
    for lo, hi in np.sort(rng.uniform(-3, 3, (40 if chunks is None else 3, 2)), axis=1):
        space = xs.Space({"x": xs.BSpline(8, domain=(lo, hi))}, axes={"x": xs.Axis(units="radian")})
        ends = xr.DataArray(np.rad2deg([lo, (lo + hi) / 2, hi]), dims="x", attrs={"units": "degrees"})
        data = xr.DataArray(np.ones(3), {"x": ends}, "x")
        parts = (data.chunk(chunks) if chunks else data).spline.statistics(space)
        assert parts.outside == 0 and parts.count == 3
        target = xr.Dataset(coords={"x": ends})
        target = target.chunk(chunks) if chunks else target
        assert np.isfinite(parts.solve(1.0).predict(target)).all()


def test_labels_without_units_are_taken_as_they_are() -> None:
    field = profile().spline.fit(z=20, penalty=1e-9)
    np.testing.assert_array_equal(field.predict(z=DEPTHS), field.predict(profile(units="")))
    np.testing.assert_array_equal(field.predict(z=DEPTHS), field.predict())
    bare = profile(units="").spline.fit(z=20, penalty=1e-9)
    np.testing.assert_array_equal(bare.predict(profile()), bare.predict())
    assert "units" not in bare.derivative(z=1).attrs


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("K", r"z: its labels have units 'K', and the fitted coordinate has 'm': these measure different"),
        (
            "furlong",
            r"z: its labels have units 'furlong', .* 'm': 'furlong' cannot be converted; convert the",
        ),
        ("days since 2000-01-01", r"z: its labels have units 'days since 2000-01-01', .* has 'm'"),
    ],
)
def test_other_quantities_and_unknown_units_are_refused(given: str, message: str) -> None:
    field, other = profile().spline.fit(z=20, penalty=1e-9), profile(units=given)
    with pytest.raises(ValueError, match=message):
        field.predict(other)
    with pytest.raises(ValueError, match=message):
        field.predict(z=other.z)
    with pytest.raises(ValueError, match=message):
        other.spline.statistics(field.space)
    with pytest.raises(ValueError, match=message):
        other.spline.fit(field.space)


# --- merges


def test_parts_read_in_different_units_do_not_merge() -> None:
    space = xs.Space({"z": xs.BSpline(20, domain=(0, 3000))})
    a, b = (profile(units=u).spline.statistics(space, holder=u) for u in ("m", "km"))
    message = r"labels of 'z' were read as 'm' in one part and as 'km' in the other"
    with pytest.raises(ValueError, match=message):
        xs.merge([a, b])
    with pytest.raises(ValueError, match=message):
        a + b
    with pytest.raises(ValueError, match=message):
        xs.merge_models([a.solve(1.0), b.solve(1.0)])


@pytest.mark.parametrize("other", ["metres", ""])
def test_one_unit_under_two_names_and_none_at_all_merge(other: str) -> None:
    space = xs.Space({"z": xs.BSpline(20, domain=(0, 3000))})
    parts = [(profile(units=u) + len(u)).spline.statistics(space, holder=u or "none") for u in ("m", other)]
    assert xs.merge(parts).count == 2 * DEPTHS.size


# --- the sphere


def test_radians_and_degrees_give_one_sphere() -> None:
    fields = [grid(units).spline.fit(y=20, x=12, penalty=1e-9) for units in ("degrees", "radian")]
    assert all(field.space.basis("x").period for field in fields)  # both close the circle
    degrees, radians = (field.gradient(geometry="sphere", stderr=True) for field in fields)
    for name in degrees.data_vars:
        scale = float(abs(degrees[name]).max())
        np.testing.assert_allclose(radians[name], degrees[name].values, rtol=1e-6, atol=1e-6 * scale)
    degrees, radians = (field.laplacian(geometry="sphere") for field in fields)
    np.testing.assert_allclose(radians, degrees.values, rtol=1e-5, atol=1e-5 * float(abs(degrees).max()))
    assert radians.units == degrees.units == "m-2"


@pytest.mark.parametrize("units", ["m", "degrees_south", "gon"])
def test_other_units_on_the_sphere_are_refused(units: str) -> None:
    data = grid("degrees")
    data.y.attrs["units"] = units
    field = data.spline.fit(y=12, x=12, penalty=1e-9)
    for method in (field.gradient, field.laplacian):
        with pytest.raises(ValueError, match=rf"takes degrees, .* and 'y' was fitted in '{units}'; convert"):
            method(geometry="sphere")


def test_a_laplacian_adds_one_unit_under_two_names() -> None:
    x = np.linspace(0, 1, 30)
    coords = {"x": ("x", x, {"units": "m"}), "y": ("y", x, {"units": "metres"})}
    data = xr.DataArray(np.sin(x)[:, None] + x**2, coords, ("x", "y"), "v")
    assert data.spline.fit(x=10, y=10, penalty=1e-9).laplacian().units == "m-2"
    mixed = data.assign_coords(y=("y", x, {"units": "km"})).spline.fit(x=10, y=10, penalty=1e-9)
    with pytest.raises(ValueError, match="which differ; choose dims= with one unit"):
        mixed.laplacian()


# --- units of results


@pytest.mark.parametrize(
    ("units", "per"),
    [("m s-1", "K (m s-1)-1"), ("days since 2000-01-01", "K days-1"), ("m2", "K (m2)-1"), ("1", "K")],
)
def test_derivatives_are_per_unit_of_any_coordinate(units: str, per: str) -> None:
    field = profile(units=units).spline.fit(z=20, penalty=1e-9)
    assert field.derivative(z=1).units == per

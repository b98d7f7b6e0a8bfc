"""Pictures of a field: which kind there is, what stands on its axes, how wide its band is, and what it asks for."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import SEASONS, sst

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(scope="module")
def field() -> xs.Field:
    return sst(months=24).spline.fit({"lat": 6, "lon": 8, "time": SEASONS}, penalty=1e-3, holder="time.year")


@pytest.fixture(autouse=True)
def figure() -> Iterator[None]:
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def line(n: int = 60, **attrs: str) -> xr.DataArray:
    x = np.linspace(0, 10, n)
    values = np.sin(x) + 0.1 * np.random.default_rng(0).standard_normal(n)
    return xr.DataArray(values, {"x": ("x", x, {"units": "m"} | attrs)}, "x", "u", {"units": "K"})


def band(axes: object) -> np.ndarray:
    """Return the corners of the one filled band."""
    (filled,) = axes.collections  # type: ignore[attr-defined]
    return np.asarray(filled.get_paths()[0].vertices)


# ---- what it shows


def test_two_coordinates_are_a_map(field: xs.Field) -> None:
    mesh = field.plot(time="2000-06-15")
    expected = field.predict(time="2000-06-15")
    np.testing.assert_array_equal(np.asarray(mesh.get_array()).reshape(expected.shape), expected)
    axes = mesh.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("lon [degrees_east]", "lat [degrees_north]")
    assert mesh.colorbar.ax.get_ylabel().split() == "sea surface temperature [degC]".split()
    assert axes.get_title() == "time = 2000-06-15"


def test_one_coordinate_is_a_line_with_a_band_of_its_error(field: xs.Field) -> None:
    (drawn,) = field.plot(time="2000-06-15", lon=200.0, color="k", ax=plt.gca())
    predicted = field.predict(time="2000-06-15", lon=200.0)
    error = field.stderr(time="2000-06-15", lon=200.0)
    np.testing.assert_array_equal(drawn.get_ydata(), predicted)
    assert drawn.axes is plt.gca() and drawn.get_color() == "k"
    corners, half = band(drawn.axes), 1.959964 * error
    assert corners[:, 1].max() == pytest.approx((predicted + half).max().item())
    assert corners[:, 1].min() == pytest.approx((predicted - half).min().item())
    assert drawn.axes.get_legend().get_texts()[0].get_text() == "95 %, errors taken as independent"


def test_labels_in_any_order_are_drawn_in_theirs() -> None:
    """As longitudes of a box around the meridian of 0° come, and times of a buoy that reports the latest first."""
    lat, lon = np.arange(-10.0, 1), np.array([0.5, *np.arange(325.5, 360, 5)])
    values = np.sin(np.deg2rad(10 * lat))[:, None] + np.cos(np.deg2rad(5 * lon))
    data = xr.DataArray(values, {"lat": lat, "lon": lon}, ("lat", "lon"), "u")
    mesh = data.spline.fit(lat=5, lon=xs.BSpline(4), penalty=1e-3).plot()
    assert mesh.get_array().shape == (11, 8)
    mixed = line().isel(x=np.random.default_rng(0).permutation(60))
    (drawn,) = mixed.spline.fit(x=10, penalty=1e-6).plot(ax=plt.figure().subplots())
    assert np.all(np.diff(drawn.get_xdata()) > 0)


def test_what_is_positive_down_goes_down() -> None:
    (drawn,) = line(positive="down").spline.fit(x=12, penalty=1e-6).plot()
    assert drawn.axes.get_ylabel() == "x [m]" and drawn.axes.yaxis_inverted()
    assert band(drawn.axes)[:, 1].max() == 10


def test_curvilinear_grids_are_maps_over_latitude_and_longitude() -> None:
    """Evenly over their domain, without seams; on their own labels where these are passed."""
    j, i = np.meshgrid(np.arange(12.0), np.arange(15.0), indexing="ij")
    lat, lon = -10 + j + 0.2 * i, 180 + 2 * i - 0.3 * j
    coords = {"lat": (("j", "i"), lat), "lon": (("j", "i"), lon), "j": np.arange(12), "i": np.arange(15)}
    data = xr.DataArray(np.cos(lat / 9), coords, ("j", "i"), "u")
    field = data.spline.fit(lat=6, lon=6, penalty=1e-3)
    for mesh, count in ((field.plot(), 201**2), (field.plot(data), 12 * 15)):
        assert mesh.axes.get_xlabel().startswith("lon") and mesh.axes.get_ylabel().startswith("lat")
        assert np.asarray(mesh.get_array()).size == count


def test_independent_fits_are_chosen_by_label() -> None:
    field = sst(months=24).spline.fit(time=SEASONS, penalty=1e-3)
    (drawn,) = field.plot(lat=0.0, lon=180.0)
    np.testing.assert_allclose(drawn.get_ydata(), field.predict().sel(lat=0.0, lon=180.0))
    with pytest.raises(ValueError, match=r"lat=0\.3 is none of its 17 labels.*nearest is lat=0\.0"):
        field.plot(lat=0.3, lon=180.0)


# ---- what it asks for


def test_more_coordinates_ask_for_a_choice(field: xs.Field) -> None:
    with pytest.raises(
        ValueError, match=r"lat \(17\), lon \(25\), time \(24\).*one or two.*plot\(time='2001-01-01'\)"
    ):
        field.plot()


def test_unknown_names_are_told(field: xs.Field) -> None:
    with pytest.raises(ValueError, match="'tme'; did you mean 'time'"):
        field.plot(time="2000-06-15", tme=3)


@pytest.mark.parametrize("level", [0, 1, 1.5])
def test_a_band_is_a_probability(field: xs.Field, level: object) -> None:
    with pytest.raises(ValueError, match=r"band=.* is no probability between 0 and 1, such as 0\.95"):
        field.plot(time="2000-06-15", lat=0.0, band=level)
    for other in ("95%", True):
        with pytest.raises(TypeError, match=r"band=.* has to be a number or None"):
            field.plot(time="2000-06-15", lat=0.0, band=other)


def test_without_matplotlib(field: xs.Field, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    with pytest.raises(ImportError, match=r"plot\(\) needs matplotlib.*pip install 'xarray-spline\[plot\]'"):
        field.plot(time="2000-06-15")


def test_lazy_fields_are_drawn_once_computed() -> None:
    lazy = line().chunk(x=20).spline.fit(x=12, penalty=1e-6, compute=False)
    with warnings.catch_warnings():
        assert lazy.compute().plot()
    with pytest.raises(ValueError, match=r"still lazy.*\.compute\(\)"):
        lazy.plot()

"""Numbers of functions that nobody named: what the labels support, within a budget of seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pytest
import xarray as xr

import xspline as xs
from xspline.labels.read import defaults


def counts(data: xr.DataArray | xr.Dataset, **arguments: Any) -> dict[str, int]:
    return {name: basis.count for name, basis in defaults.bases_for(data, **arguments).bases.items()}


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


def test_a_small_grid_and_that_of_a_satellite_image() -> None:
    assert counts(grid(x=10, y=10)) == {"x": 8, "y": 8}
    assert counts(grid(lat=300, lon=500)) == {"lat": 153, "lon": 253}


def test_flight_lines_get_a_function_for_every_second_reading_in_square_cells() -> None:
    rng = np.random.default_rng(0)
    along, line = np.tile(np.linspace(0, 300, 400), 95), np.repeat(np.linspace(0, 200, 95), 400)
    noisy = {"easting": along, "northing": line + rng.normal(0, 0.1, line.size)}
    chosen = counts(points(**noisy))
    assert 0.45 < math.prod(chosen.values()) / line.size < 0.53
    assert (chosen["easting"] - 3) / (chosen["northing"] - 3) == pytest.approx(1.5, rel=0.02)


def test_cells_are_square_on_the_sphere_but_not_where_units_differ() -> None:
    lat, lon = np.random.default_rng(0).uniform(0, 1, (2, 9000))
    chosen = counts(
        points(lat=55 + 10 * lat, lon=20 * lon)
    )  # at 60° north a degree east is half of one north
    assert (chosen["lon"] - 3) / (chosen["lat"] - 3) == pytest.approx(1.0, abs=0.03)
    chosen = counts(points(lat=10 * lat, depth=5000 * lon))
    assert chosen["lat"] == chosen["depth"]


def test_repeated_positions_and_few_labels_bound_scattered_counts() -> None:
    rng = np.random.default_rng(0)
    stations, reports = rng.uniform(0, 10, (2, 50)), rng.integers(0, 50, 20_000)
    lat, lon = stations[:, reports]
    assert (
        math.prod(n - 3 for n in counts(points(lat=lat, lon=lon)).values()) <= 100
    )  # two cells for each of 50
    lat = np.round(rng.uniform(0, 3, 20_000))
    assert counts(points(lat=lat, lon=lon))["lat"] == 5  # four latitudes


def test_a_curvilinear_grid_gets_a_function_for_every_second_label_of_both_dimensions() -> None:
    y, x = np.meshgrid(np.linspace(0, 40, 80), np.linspace(0, 60, 120), indexing="ij")
    angle = math.radians(30)
    coords = {
        "lat": (("j", "i"), x * math.sin(angle) + y * math.cos(angle)),
        "lon": (("j", "i"), x * math.cos(angle) - y * math.sin(angle)),
    }
    chosen = counts(xr.DataArray(np.zeros(y.shape), coords, ("j", "i"), "u"))
    assert 0.22 < math.prod(chosen.values()) / y.size < 0.28


def test_many_positions_are_told_by_a_sample() -> None:
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(0, 40, (2, 1_200_000))
    few = rng.integers(0, 10, (2, lat.size))
    assert counts(points(lat=lat, lon=lon), seconds=1e9)["lat"] > 700
    assert max(counts(points(lat=few[0] * 1.0, lon=few[1] * 1.0)).values()) == 8


# ---- the budget


LARGE: dict[str, Callable[[], xr.DataArray]] = {
    "plane": lambda: grid(lat=720, lon=1440),
    "box": lambda: grid(time=91, lat=128, lon=344),
    "batch": lambda: grid(lat=100, lon=100).expand_dims(member=1000),
}


@pytest.mark.parametrize("case", LARGE)
def test_the_estimate_keeps_the_budget_and_more_seconds_give_more_functions(case: str) -> None:
    data, sizes = LARGE[case](), []
    for seconds in (3.0, 30.0, 300.0):
        bases, _, budget = defaults.bases_for(data, seconds=seconds)
        assert budget is not None and budget.estimate <= seconds == budget.seconds
        shares = [(bases[n].count - 3) / (k - 3) for n, k in budget.supported.items() if bases[n].count > 4]
        assert max(shares) - min(shares) < 0.05  # one factor for all cells
        sizes.append(math.prod(basis.count for basis in bases.values()))
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]


def test_a_sea_of_ninety_days_gets_more_than_the_thirty_two_of_old() -> None:
    chosen = counts(LARGE["box"]())
    assert chosen["lon"] > 50 and math.prod(chosen.values()) > 20_000


def test_a_short_coordinate_keeps_its_shape_beside_long_ones() -> None:
    chosen = counts(grid(time=12, lat=291, lon=360))
    assert 5 <= chosen["time"] <= 7 and chosen["lon"] < 150


def test_seasons_and_a_static_mask_are_cheap() -> None:
    months = np.datetime64("2000-01", "M") + np.arange(240)
    data = grid(lat=np.linspace(-88, 88, 89), lon=np.arange(0, 360, 2.0), time=months.astype("M8[ns]"))
    assert counts(data) == {"lat": 47, "lon": 90, "time": 7}


def linear(data: xr.DataArray) -> dict[str, tuple[int, ...]] | None:
    budget = defaults.bases_for(data).budget
    assert budget is not None
    return budget.linear and budget.linear.budget.nested


def test_linear_splines_are_for_three_coordinates_that_cubics_have_no_time_for() -> None:
    assert linear(grid(lat=720, lon=1440)) is None  # two
    assert linear(grid(time=12, lat=20, lon=20)) is None  # time for all
    nested = linear(grid(lat=np.linspace(-90, 90, 91), lon=np.arange(0, 360, 2.0), depth=40))
    assert nested is not None and nested["lon"][-1] == 180 and nested["lon"][0] >= 3  # on a circle
    nested = linear(grid(time=30, lat=128, lon=344))
    assert (
        nested is not None and nested["time"][-1] == 29 and nested["lat"][-1] == 121
    )  # for nearly every label


def test_several_variables_share_the_budget() -> None:
    data = grid(lat=720, lon=1440)
    both = xr.Dataset({"u": data, "v": data, "area": data.isel(lat=0)})
    assert counts(both) == counts(data, seconds=30)


def test_nothing_depends_on_the_machine_or_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = grid(lat=720, lon=1440)
    chosen = counts(data)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert counts(data) == counts(data.chunk(100)) == chosen


def test_a_ridge_and_no_penalty_keep_few_functions() -> None:
    x = np.linspace(0, 10, 200)
    data = xr.DataArray(np.sin(x), {"x": x}, "x", "u")
    old, new = (32,), (103,)
    for penalty, shape in (
        (0, old),
        (1e-3, old),
        (xs.Ridge(1e-3), old),
        (xs.Roughness(1e-3), new),
        (None, new),
    ):
        field = data.spline.fit(penalty=penalty)
        assert field.space.shape == shape
        assert tuple(data.spline.plan(penalty=penalty).coefficients.values()) == shape
    assert data.spline.space().shape == data.spline.statistics().space.shape == new


def test_seconds_are_an_argument_of_all_that_choose() -> None:
    data = grid(lat=200, lon=200)
    few = data.spline.space(seconds=0.5)
    assert few.size < data.spline.space().size
    plan = data.spline.plan(seconds=0.5)
    assert tuple(plan.coefficients.values()) == few.shape
    assert "of 0.5 s to choose the penalty; labels support lat 103 × lon 103" in repr(plan)
    assert "budget" in plan._repr_html_() and "budget" not in repr(data.spline.plan(lat=9))
    small = grid(x=12)
    assert small.spline.fit(seconds=5).space == small.spline.statistics(seconds=5).space


def test_seconds_beside_bases_or_no_time_are_errors() -> None:
    data = grid(x=12)
    with pytest.raises(ValueError, match=r"seconds=5 is a budget.*these are given.*leave out one of both"):
        data.spline.fit(x=5, seconds=5)
    for seconds in (0, -1.0, math.nan):
        with pytest.raises(ValueError, match=rf"seconds={seconds} is no time.*pass a positive number"):
            data.spline.plan(seconds=seconds)
    with pytest.raises(TypeError, match="seconds='1 min' is not a number"):
        data.spline.plan(seconds="1 min")


# ---- that it behaves


def test_an_image_with_few_values_is_fitted() -> None:
    """More functions than observations: the penalty determines them."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 40)
    data = xr.DataArray(np.sin(5 * x)[:, None] + x, {"a": x, "b": x}, ("a", "b"), "u")
    field = data.where(rng.random(data.shape) < 0.05).spline.fit()
    assert field.space.shape == (23, 23) and np.isfinite(field.coefficients).all()
    assert float(np.sqrt(((field.predict() - data) ** 2).mean())) < 0.05


def test_masks_labels_that_lack_and_positions_in_a_row() -> None:
    x = np.linspace(0, 1, 20)
    assert counts(xr.DataArray(np.eye(20) > 0, {"a": x, "b": x}, ("a", "b"), "u")) == {"a": 13, "b": 13}
    lat, lon = np.random.default_rng(0).random((2, 50))
    lat[0] = np.nan
    assert counts(points(lat=lat, lon=lon)) == {"lat": 8, "lon": 8}
    assert counts(points(lat=np.repeat([0.0, 1.0], 25), lon=np.repeat([0.0, 1.0], 25))) == {
        "lat": 4,
        "lon": 4,
    }


def test_repeated_scattered_observations_are_fitted() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 1, (2, 200))
    twice = np.tile(np.arange(200), 2)
    values = np.sin(4 * a + b)[twice] + rng.normal(0, 0.01, 400)
    data = xr.DataArray(values, {"x": ("p", a[twice]), "y": ("p", b[twice])}, "p", "u")
    field = data.spline.fit()
    assert 100 < field.space.size <= 300 and float(field.summary()["rmse"]) < 0.02


def test_the_contest_s_image(data_dir: Path) -> None:
    with xr.open_dataset(data_dir / "modis_lst_gaps.nc") as opened:
        assert counts(opened) == counts(opened.train, seconds=30)  # two variables
        assert counts(opened.train) == {"lat": 153, "lon": 253}

"""Numbers of functions of a single field that nobody named: what labels support, as far as there are seconds for it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pytest
import xarray as xr

import xspline as xs
from xspline.labels.read import defaults, sizes


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


def test_a_small_grid_and_that_of_a_satellite_image() -> None:
    assert counts(grid(x=10, y=10)) == {"x": 8, "y": 8}
    assert counts(grid(lat=300, lon=500), seconds=20) == {"lat": 153, "lon": 253}


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


def test_a_curvilinear_grid_gets_a_cell_for_every_second_label_of_both_dimensions() -> None:
    y, x = np.meshgrid(np.linspace(0, 40, 80), np.linspace(0, 60, 120), indexing="ij")
    angle = math.radians(30)
    coords = {
        "lat": (("j", "i"), x * math.sin(angle) + y * math.cos(angle)),
        "lon": (("j", "i"), x * math.cos(angle) - y * math.sin(angle)),
    }
    chosen = counts(xr.DataArray(np.zeros(y.shape), coords, ("j", "i"), "u"))
    assert math.prod(n - 3 for n in chosen.values()) / y.size == pytest.approx(0.25, rel=0.03)


def test_many_positions_are_told_by_a_sample() -> None:
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(0, 40, (2, 1_200_000))
    few = rng.integers(0, 10, (2, lat.size))
    assert counts(points(lat=lat, lon=lon), seconds=1e9)["lat"] > 700
    assert max(counts(points(lat=few[0] * 1.0, lon=few[1] * 1.0)).values()) == 8


# ---- the budget


LARGE: dict[str, tuple[xr.DataArray, int]] = {  # and how many systems there are
    "line": (grid(x=1000).expand_dims(member=10_000), 10_000),
    "plane": (grid(lat=720, lon=1440), 1),
    "box": (grid(time=91, lat=128, lon=344), 1),
    "batch": (grid(lat=100, lon=100).expand_dims(member=1000), 1000),
}


@pytest.mark.parametrize("case", LARGE)
@pytest.mark.parametrize("seconds", [3.0, 30.0, 300.0])
def test_all_cells_shrink_by_one_factor_to_what_there_is_time_for(case: str, seconds: float) -> None:
    """Time grows as the number of coefficients, its power 3/2 and its square in one, two and three coordinates."""
    data, systems = LARGE[case]
    chosen = counts(data, seconds=seconds)
    time_power = {1: 1.0, 2: 1.5, 3: 2.0}[len(chosen)]
    most = sizes.TEN_SECONDS[len(chosen)] * (seconds / 10 / systems) ** (1 / time_power)
    supported = {name: data.sizes[name] // 2 for name in chosen}
    most = min(most, math.prod(n + 3 for n in supported.values()))
    assert 0.8 * most < math.prod(chosen.values()) <= 1.001 * most
    factors = [((chosen[name] - 3.5) / n, (chosen[name] - 2.5) / n) for name, n in supported.items()]
    assert max(low for low, _ in factors) <= min(high for _, high in factors)


def test_several_variables_share_the_budget() -> None:
    data = grid(lat=720, lon=1440)
    both = xr.Dataset({"u": data, "v": data, "area": data.isel(lat=0)})
    assert counts(both) == counts(data, seconds=5)


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
        field = data.spline.fit(penalty=penalty, fine=False)
        assert field.space.shape == shape
        assert tuple(data.spline.plan(penalty=penalty, fine=False).coefficients.values()) == shape
    assert data.spline.space().shape == data.spline.statistics().space.shape == new


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
    with pytest.raises(TypeError, match="seconds='1 min' is not a number"):
        data.spline.plan(seconds="1 min")


# ---- that it behaves


def test_an_image_with_few_values_is_fitted() -> None:
    """More functions than observations: the penalty determines them."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 40)
    data = xr.DataArray(np.sin(5 * x)[:, None] + x, {"a": x, "b": x}, ("a", "b"), "u")
    few = data.where(rng.random(data.shape) < 0.05)
    field = few.spline.fit(fine=False)
    assert field.space.shape == (23, 23) and np.isfinite(field.coefficients).all()
    for own in (field, few.spline.fit()):
        assert float(np.sqrt(((own.predict() - data) ** 2).mean())) < 0.05


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
    field = data.spline.fit(fine=False)
    assert 100 < field.space.size <= 300 and float(field.summary()["rmse"]) < 0.02
    assert float(data.spline.fit().summary()["rmse"]) < 0.02


def test_the_contest_s_image(data_dir: Path) -> None:
    with xr.open_dataset(data_dir / "modis_lst_gaps.nc") as opened:
        assert counts(opened) == counts(opened.train, seconds=5)  # two variables
        assert counts(opened.train, seconds=20) == {"lat": 153, "lon": 253}
        assert 0.95 * 36_000 < math.prod(counts(opened.train).values()) <= 36_000

"""Where labels support more functions than there is time for, the likelihood says which coordinate gets them."""

from __future__ import annotations

from dataclasses import replace

import dask.array
import numpy as np
import pytest
import xarray as xr
from scipy import ndimage

import xspline as xs
from xspline.labels.read import defaults, spread, stores
from xspline.labels.read.sizes import Budget, decay
from xspline.solve import Resources, choose, first_order, likelihood

SECONDS = 0.5  # of a budget


def waves(
    x: float, y: float, t: float, shape: tuple[int, int, int] = (48, 48, 12), count: int = 20
) -> xr.DataArray:
    """So many waves along each coordinate, with noise and gaps."""
    rng = np.random.default_rng(0)
    grids = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    phase = 2 * np.pi * rng.normal(size=(count, 3)) * [x, y, t]
    values = sum(np.cos(sum(f * g for f, g in zip(p, grids, strict=True)) + i) for i, p in enumerate(phase))
    values = values + rng.normal(0, 0.5, shape)
    values[rng.random(shape) < 0.2] = np.nan
    coords = {name: np.linspace(0, 50, n) for name, n in zip("xyt", shape, strict=True)}
    return xr.DataArray(values, coords, ("x", "y", "t"), "u")


@pytest.fixture(scope="module")
def rough_along_x() -> xr.DataArray:
    return waves(2, 0.5, 0.25)


@pytest.fixture(scope="module")
def field(rough_along_x: xr.DataArray) -> xs.Field:
    return rough_along_x.spline.fit(seconds=SECONDS)


def shape_of(space: xs.Space) -> dict[str, int]:
    return dict(zip(space.names, space.shape, strict=True))


def test_the_coordinate_that_needs_functions_gets_them(field: xs.Field, rough_along_x: xr.DataArray) -> None:
    by_labels, own = shape_of(rough_along_x.spline.space(seconds=SECONDS)), shape_of(field.space)
    assert own["x"] > 2 * by_labels["x"] and own["y"] < by_labels["y"] and own["t"] <= by_labels["t"] + 2


def test_the_line_of_code_gives_the_same_field(field: xs.Field, rough_along_x: xr.DataArray) -> None:
    code = repr(field).splitlines()[-1].strip(" =>")
    again = eval(f"xs.{code}".replace("fit(", "fit(data, ", 1), {"xs": xs, "data": rough_along_x})
    assert again.space == field.space
    np.testing.assert_allclose(again.predict(), field.predict(), atol=2e-3)
    by_bases = rough_along_x.spline.fit(field.space)
    np.testing.assert_allclose(by_bases.predict(), field.predict(), atol=1e-4)


def test_what_happened_is_told(field: xs.Field, rough_along_x: xr.DataArray, tmp_path) -> None:
    told = field.summary().attrs["spread"]
    assert (
        told.startswith("by the likelihood among spaces that lie in y 27 × x 27 × t 9")
        and f"of {SECONDS:g} s" in told
    )
    field.to_zarr(tmp_path / "field.zarr")
    assert xs.open_field(tmp_path / "field.zarr").summary().attrs["spread"] == told
    assert "spread" not in rough_along_x.spline.fit(x=8, y=8, t=8, penalty=1).summary().attrs


def test_chunks_are_read_once_and_give_the_same_space(field: xs.Field, rough_along_x: xr.DataArray) -> None:
    reads = []

    def read(block: np.ndarray) -> np.ndarray:
        reads.append(block.shape)
        return block

    blocks = dask.array.from_array(rough_along_x.to_numpy(), chunks=(24, 48, 6))
    chunked = rough_along_x.copy(data=blocks.map_blocks(read, dtype=float, meta=np.zeros((0, 0, 0))))
    other = chunked.spline.fit(seconds=SECONDS)
    assert len(reads) == 4 and other.space == field.space
    np.testing.assert_allclose(other.coefficients, field.coefficients, atol=1e-4)


@pytest.mark.filterwarnings("ignore:u. .*knots limit:xspline.FitWarning")
def test_what_is_computed_later_or_asked_for_goes_by_labels(rough_along_x: xr.DataArray) -> None:
    space = rough_along_x.spline.space(seconds=SECONDS)
    assert rough_along_x.spline.fit(seconds=SECONDS, compute=False).space == space
    assert rough_along_x.spline.fit(seconds=SECONDS, penalty=xs.Roughness(1e-3)).space == space
    halves = xr.DataArray(np.arange(12) // 6, dims="t")
    parts = rough_along_x.spline.fit(seconds=SECONDS, holder=halves)
    assert parts.space == space and "spread" not in parts.summary().attrs
    assert rough_along_x.spline.statistics(seconds=SECONDS).space == space
    counts = rough_along_x.spline.plan(seconds=SECONDS).coefficients
    assert tuple(counts.values()) == space.shape


@pytest.mark.filterwarnings(
    "ignore:u. .*knots limit:xspline.FitWarning", "ignore:v. .*knots limit:xspline.FitWarning"
)
@pytest.mark.slow
def test_all_variables_share_one_shape(rough_along_x: xr.DataArray) -> None:
    data = xr.Dataset({"u": rough_along_x, "v": 3 * rough_along_x - 1})
    both = data.spline.fit(seconds=SECONDS, holder="west")
    assert both.statistics.holders == ("west",) and both["u"].space == both["v"].space
    own = shape_of(both.space)
    assert own["x"] > 2 * own["y"]


# ---- linear splines, where cubics take too long


@pytest.fixture(scope="module")
def rough() -> xr.DataArray:
    return waves(2, 2, 0.5, count=40)


@pytest.mark.filterwarnings("ignore:u. .*knots limit:xspline.FitWarning")
@pytest.mark.slow
def test_rough_waves_get_linear_splines(rough: xr.DataArray) -> None:
    reads: list[int] = []

    def read(block: np.ndarray) -> np.ndarray:
        reads.append(block.size)
        return block

    blocks = dask.array.from_array(rough.to_numpy(), chunks=(24, 48, 6))
    chunked = rough.copy(data=blocks.map_blocks(read, dtype=float, meta=np.zeros((0, 0, 0))))
    cubic = rough.spline.fit(rough.spline.space(seconds=2))
    for data in (rough, chunked):
        own = data.spline.fit(seconds=2)
        assert {own.space.basis(name).degree for name in "xyt"} == {1}
        assert (
            own.summary().attrs["spread"].startswith("by the likelihood among spaces that lie in y 41 × x 41")
        )
        assert "linear splines" in own.summary().attrs["spread"]
        assert own.summary().sigma < 0.9 * cubic.summary().sigma
    assert len(reads) == 8  # cubics first: only their sums tell that more are asked for


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:u. .*knots limit:xspline.FitWarning")
def test_smooth_waves_keep_cubics() -> None:
    own = waves(0.5, 0.5, 0.25, count=40).spline.fit(seconds=2)
    assert {own.space.basis(name).degree for name in "xyt"} == {3}


def test_what_is_gained_from_more_decides_whether_to_look(
    field: xs.Field, rough_along_x: xr.DataArray
) -> None:
    assert field.space.basis("x").degree == 3
    budget = defaults.bases_for(rough_along_x, seconds=SECONDS).budget
    assert budget is not None and budget.linear is not None
    assert budget.linear.budget.degree == 1 and budget.linear.budget.nested["x"][-1] == 41
    assert f"in up to {spread.listed({'y': 41, 'x': 41, 't': 12})} where that is likelier" in str(budget)
    nested = spread.NestedSpaces([], rough_along_x.spline.space(x=27, y=27, t=9), budget)
    nested._reached, nested._left = ((27, 27, 9), spread.Score(0.0, ())), [(0.3, 0.5)] * 3
    assert not nested.gains_from_more((27, 27, 9)) and nested.gains_from_more((15, 15, 6))
    nested._left = [(1e-4, 0.5)] * 3
    assert not nested.gains_from_more((15, 15, 6))


def test_what_was_looked_at_is_known_and_the_rest_is_expected(rough_along_x: xr.DataArray) -> None:
    data = rough_along_x.isel(x=slice(16), y=slice(16))
    budget = Budget(60.0, 0.0, {}, {"x": (4, 5, 7), "y": (4, 5, 7)})
    statistics = data.spline.statistics(x=7, y=7, t=4)
    nested = spread.NestedSpaces.of(statistics, budget)
    coarse, fine = ((n, n, 4) for n in (4, 7))
    nested._reached = coarse, nested.score(coarse, search=True)
    nested._left = [(0.3, 0.5), (0.3, 0.5), (0.0, 0.5)]
    before = nested._reached[1].value
    n = int(data.count())
    assert nested.expected(fine) == pytest.approx(before + n / 2 * np.log(1 - 0.6 * (1 - 0.5**2)))
    look = nested.score(fine, nested._reached[1]).value
    assert look < before - 100 and nested.expected(fine) == look


def rough_spectrum(
    slope: float, noise: float, shape: tuple[int, int, int] = (30, 24, 24), gaps: float = 0.4
) -> xr.DataArray:
    """Waves of up to twelve along the domain whose amplitudes fall as k to minus the slope, with 40 % of gaps."""
    rng = np.random.default_rng(0)
    grids = np.stack(np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij"), axis=-1)
    direction = rng.normal(size=(400, 3))
    k = rng.uniform(0.5, 12, 400)
    along = direction / np.linalg.norm(direction, axis=1, keepdims=True) * k[:, None]
    values = np.cos(2 * np.pi * (grids @ along.T) + rng.uniform(0, 2 * np.pi, 400)) @ k**-slope
    values = values / values.std() + noise * rng.normal(size=shape)
    values[rng.random(shape) < gaps] = np.nan
    coords = {name: np.linspace(0, 30, n) for name, n in zip(("time", "lat", "lon"), shape, strict=True)}
    return xr.DataArray(values, coords, ("time", "lat", "lon"), "u")


@pytest.mark.filterwarnings("ignore:u. .*knots limit:xspline.FitWarning")
@pytest.mark.slow
def test_a_rough_field_is_not_called_noise_by_few_linear_splines() -> None:
    data = rough_spectrum(2.0, 0.02)
    own = data.spline.fit(seconds=2)
    by_hand = data.spline.fit(time=xs.BSpline(21, 1), lat=xs.BSpline(11, 1), lon=xs.BSpline(15, 1))
    cubic = data.spline.fit(time=8, lat=9, lon=9)
    scores = [float(field.summary().comparable_score) for field in (own, by_hand, cubic)]
    assert scores[0] < scores[1] + 100 and scores[0] < scores[2] - 100


@pytest.mark.parametrize("slope, noise, finer", [(1.0, 0.05, True), (4.0, 0.5, False)])
def test_check_says_where_nearly_all_functions_are_in_use(slope: float, noise: float, finer: bool) -> None:
    data = rough_spectrum(slope, noise)
    field = data.spline.fit({name: xs.BSpline(12, 1) for name in ("time", "lat", "lon")})
    (knots,) = (f for f in field.check().findings["u"] if f.subject == "knots")
    assert not knots.warns
    assert ("finer knots may still gain, which error bars do not know" in knots.text) == finer
    assert ("lat=24" in knots.advice) == finer


@pytest.mark.filterwarnings("ignore:u. .*knots limit:xspline.FitWarning")
@pytest.mark.slow
def test_error_bars_of_a_hurried_fit_include_what_its_space_leaves_out(tmp_path) -> None:
    data, at = rough_spectrum(1.5, 0.2, (36, 48, 40)), rough_spectrum(1.5, 0.0, (36, 48, 40), gaps=0.0)
    field = data.spline.fit(seconds=2)
    error, summary = field.stderr(at), field.summary()
    off = field.predict(at) - at
    assert float((abs(off) < 1.96 * error).mean()) > 0.88
    assert 0.9 < float((error**2).mean() / (off**2).mean()) ** 0.5 < 1.6
    assert 0.1 < summary.sigma < 0.3 and summary.left_out > 0.1
    assert float((error**2).mean()) > 0.5 * float(summary.left_out) ** 2
    (cells,) = (f for f in field.check().concerns["u"] if f.subject == "cells")
    assert "error bars include it" in cells.advice and "space leaves out" in error.attrs["comment"]
    draws = field.sample(40, seed=0).predict(at)
    np.testing.assert_allclose(float(draws.var("sample").mean()), float((error**2).mean()), rtol=0.1)
    field.to_zarr(tmp_path / "field.zarr")
    np.testing.assert_allclose(xs.open_field(tmp_path / "field.zarr").stderr(at), error, rtol=1e-6)


def test_linear_splines_start_from_the_strengths_of_cubics() -> None:
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 400)
    walk = xr.DataArray(
        np.cumsum(rng.normal(size=x.size)) / 20 + rng.normal(0, 0.2, x.size), {"x": x}, "x", "u"
    )
    resources = Resources(cores=1, memory=2**30)
    strengths = {}
    for size in (23, 43):
        statistics = walk.spline.statistics(x=size)
        _, rho = likelihood(statistics.total("u"), statistics.space, search=True, resources=resources)
        (strengths[size],) = first_order(statistics.total("u"), statistics.space, rho, resources)
    linear = walk.spline.statistics(x=xs.BSpline(81, 1))
    _, (best,) = likelihood(linear.total("u"), linear.space, search=True, resources=resources)
    assert strengths[23] == pytest.approx(strengths[43], abs=0.7)  # they do not depend on knots
    assert strengths[43] == pytest.approx(best, abs=0.7)


def test_looks_are_part_of_the_budget(rough_along_x: xr.DataArray) -> None:
    budget = Budget(4.0, 0.0, {}, {"x": (4, 5, 7), "y": (4, 5, 7)})
    nested = spread.NestedSpaces.of(rough_along_x.spline.statistics(x=7, y=7, t=4), budget)
    assert nested.rest == 4
    first = nested.score((4, 4, 4), search=True)
    assert 3.5 < nested.rest < 4
    before = nested.rest
    nested.score((7, 7, 4), first)
    after = nested.rest
    assert after < before
    nested.score((7, 7, 4), first)  # known
    assert nested.rest == after
    nested.spent = 3.0
    assert nested.rest == pytest.approx(4 * spread.KEPT)


@pytest.mark.slow
def test_a_search_goes_on_from_the_looks(rough_along_x: xr.DataArray) -> None:
    budget = defaults.bases_for(rough_along_x, seconds=SECONDS).budget
    assert budget is not None
    statistics = rough_along_x.spline.statistics(x=27, y=27, t=9)
    own, looks = spread.spread(statistics, replace(budget, linear=None), lambda space: statistics)
    fits = [
        choose(own.total("u"), own.space, "reml", start=start)
        for start in (looks.starts["u"], None, np.zeros(9))  # of another family: it says nothing
    ]
    assert fits[0].factorisations < fits[1].factorisations == fits[2].factorisations
    assert fits[0].score == pytest.approx(fits[1].score, abs=1e-3)


def test_finer_cells_that_lose_likelihood_are_left(rough_along_x: xr.DataArray, monkeypatch) -> None:
    budget = Budget(4.0, 0.0, {}, {"x": (4, 5, 7), "y": (4, 5, 7)})
    nested = spread.NestedSpaces.of(rough_along_x.spline.statistics(x=7, y=7, t=4), budget)
    monkeypatch.setattr(spread, "SETTLED_SHARE", 1.0)
    coarsest = nested.score((4, 4, 4), search=True)
    nested._reached, nested._left = ((4, 4, 4), coarsest), [(0.1, 0.5)] * 3
    counts, strengths = nested.settled((7, 7, 4))
    assert counts == (7, 7, 4) and not np.array_equal(strengths, coarsest.rho)
    monkeypatch.setattr(nested, "score", lambda *_, search: coarsest._replace(value=coarsest.value + 1))
    nested._scores.clear()
    nested._scores[(4, 4, 4)] = coarsest  # as if all others were less likely
    assert nested.settled((7, 7, 4)) == ((4, 4, 4), coarsest.rho)


@pytest.mark.filterwarnings("ignore:u. .*knots limit:xspline.FitWarning")
@pytest.mark.slow
def test_the_last_space_takes_a_solve_or_two_and_is_as_good_as_searched() -> None:
    data, at = rough_spectrum(2.0, 0.2, (60, 60, 60)), rough_spectrum(2.0, 0.0, (60, 60, 60), gaps=0.0)
    field = data.spline.fit(seconds=10)
    assert isinstance(field.penalty, xs.Sobolev)
    searched = data.spline.fit(field.space, penalty=xs.Sobolev(tuple(field.penalty.orders)))
    steps = [int(x.summary().attrs["smoothing"].split()[1]) for x in (field, searched)]
    assert steps[0] <= 2 < steps[1]
    off, best = (float(((x.predict(at) - at) ** 2).mean()) ** 0.5 for x in (field, searched))
    assert off < 1.05 * best


def test_where_all_fits_the_budget_nothing_is_chosen() -> None:
    small = waves(2, 0.5, 0.25, (12, 12, 6))
    field = small.spline.fit()
    assert field.space == small.spline.space() and "spread" not in field.summary().attrs


def test_constant_data_take_what_labels_support() -> None:
    data = 0 * waves(2, 0.5, 0.25, (16, 16, 8)) + 3
    field = data.spline.fit(seconds=0.1)
    np.testing.assert_allclose(field.predict(), 3, atol=1e-6)


# ---- which spaces


def nested(data: xr.DataArray, **arguments: float) -> dict[str, tuple[int, ...]]:
    budget = defaults.bases_for(data, **arguments).budget
    assert budget is not None
    return budget.nested


def test_nested_spaces_have_cells_made_of_the_finest(rough_along_x: xr.DataArray) -> None:
    ladders = nested(rough_along_x, seconds=SECONDS)
    assert ladders["x"][-1] == 27 and ladders["x"][0] == 4
    cells = {name: [k - 3 for k in ladder] for name, ladder in ladders.items()}
    assert all(own[-1] % k == 0 for own in cells.values() for k in own)
    assert nested(rough_along_x) == {}


def test_the_finest_space_keeps_its_sums_small() -> None:
    labels = {"lat": np.linspace(-89, 89, 720), "lon": np.arange(0, 360, 0.25), "depth": np.arange(200.0)}
    data = xr.DataArray(dask.array.zeros((720, 1440, 200)), labels, list(labels))
    ladders = nested(data)
    size = np.prod([ladder[-1] for ladder in ladders.values()])
    assert 0.5 * 2**28 < 8 * 4**3 * size <= 1.1 * 2**28
    assert ladders["lon"][0] >= 7  # on a circle


@pytest.mark.parametrize("count", [12, 17])
def test_few_labels_have_linear_splines_between_them(count: int) -> None:
    """A month is a knot: between other knots each would be a mean of two."""
    data = xr.DataArray(
        dask.array.zeros((count, 400, 500)),
        {"t": np.arange(float(count)), "y": np.arange(400.0), "x": np.arange(500.0)},
        ("t", "y", "x"),
    )
    budget = defaults.bases_for(data).budget
    assert budget is not None and budget.linear is not None
    ladders = budget.linear.budget.nested
    assert ladders["t"][-1] == count and ladders["y"][-1] < 400


def test_linear_splines_of_a_curvilinear_grid_have_a_cell_for_each_position() -> None:
    j, i = np.meshgrid(np.arange(200.0), np.arange(240.0), indexing="ij")
    coords = {
        "lat": (("j", "i"), -80 + 0.8 * j + 0.01 * i, {"standard_name": "latitude"}),
        "lon": (("j", "i"), 1.5 * i + 0.01 * j, {"standard_name": "longitude"}),
        "time": ("time", np.arange(12.0)),
    }
    data = xr.DataArray(dask.array.zeros((12, 200, 240)), coords, ("time", "j", "i"))
    budget = defaults.bases_for(data).budget
    assert budget is not None and budget.linear is not None
    own, linear = (x["lat"][-1] * x["lon"][-1] for x in (budget.nested, budget.linear.budget.nested))
    assert 2 * own < linear < 200 * 240


def test_a_coordinate_that_gains_nothing_is_the_last() -> None:
    u, share = decay(0.3, 1.0, 0.6, 1.0)
    assert share == pytest.approx(0.5) and u == pytest.approx(0.6)
    assert decay(0.0, 1.0, 0.0, 0.0)[0] < 1e-3
    u, share = decay(0.0, 0.0, 0.5, 1.0)  # as fine as labels support: what half of it loses
    assert u * (1 / share - 1) == pytest.approx(0.5)
    u, share = decay(0.0, 0.0, 5.0, 1.0)  # five times what is left
    assert u < 1 and u * (1 / share - 1) == pytest.approx(5)


@pytest.mark.parametrize("degree", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_events_are_refined_or_left_out_as_a_coordinate_is(degree: int) -> None:
    time = np.datetime64("2000-01-01") + np.arange(0, 4 * 365, 10).astype("timedelta64[D]")
    rng = np.random.default_rng(0)
    values = np.sin(np.arange(time.size) / 2) + np.sin(np.linspace(0, 3, 8))[:, None]
    values = values + rng.normal(0, 0.1, values.shape)
    data = xr.DataArray(values, {"x": np.arange(8.0), "time": time}, ("x", "time"), "u")
    seasons = xs.Fourier(2, "year") + xs.Polynomial(2)
    statistics = data.spline.statistics(x=4, time=seasons + xs.BSpline(48 + degree, degree))
    ladder = (7, *(7 + cells + degree for cells in (3, 6, 12, 24, 48)))
    budget = Budget(60.0, 0.0, {}, {"time": ladder})
    nested = spread.NestedSpaces([statistics.total("u")], statistics.space, budget)
    shapes = [nested.space((4, k)).basis("time") for k in budget.nested["time"]]
    events = [isinstance(basis, xs.spaces.Union) and basis.has_events for basis in shapes]
    assert events == [False, True, True, True, True, True]
    direct = data.spline.statistics(nested.space((4, ladder[1]))).total("u")
    (cut,) = nested.sums((4, ladder[1]))
    np.testing.assert_allclose(cut.moment, direct.moment, atol=1e-9 * np.abs(direct.moment).max())
    assert nested.greedy()[0][1] >= ladder[4]  # waves of four months


def moorings(smooth: float) -> xr.DataArray:
    """Eight years of 5-day means at 24 places that report one after the other; events as short as `smooth` days."""
    rng = np.random.default_rng(4)
    time = np.datetime64("2000-01-01") + np.arange(0, 8 * 365, 5).astype("timedelta64[D]")
    lat, lon = (x.ravel() for x in np.meshgrid(np.linspace(-8, 8, 4), np.linspace(160, 260, 6)))
    shape = (3 if smooth else lat.size, time.size)
    if smooth:
        waves = 6 * ndimage.gaussian_filter1d(rng.normal(size=shape), smooth / 5, axis=1)
        values = waves[0] + np.outer(np.sin(lat / 4), waves[1]) + np.outer(np.cos(lon / 30), waves[2])
    else:
        values = 0.3 * np.cumsum(rng.normal(size=shape) + rng.normal(size=time.size), axis=1)
    values = values + 2 * np.cos(2 * np.pi * np.arange(time.size) / 73) + rng.normal(0, 0.1, values.shape)
    place, day = np.nonzero(rng.random((lat.size, time.size // 40 + 1)).repeat(40, 1)[:, : time.size] > 0.3)
    coords = {"lat": ("obs", lat[place]), "lon": ("obs", lon[place]), "time": ("obs", time[day])}
    return xr.DataArray(values[place, day], coords, "obs", name="sst")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:sst. .*(straight line|knots limit):xspline.FitWarning")
def test_waves_of_two_months_are_events() -> None:
    """Cells of more than 90 days would gain nothing, and the path of looks would end before it saw them."""
    rng = np.random.default_rng(5)
    lat, lon = rng.uniform(-10, 10, 4000), rng.uniform(150, 200, 4000)
    day = np.sort(rng.uniform(0, 4 * 365, 4000))
    time = np.datetime64("2000-01-01") + (day * 86400).astype("timedelta64[s]")
    truth = 3 * np.cos(2 * np.pi * day / 365.25) + np.sin(2 * np.pi * day / 60 + lat / 10)
    coords = {"lat": ("obs", lat), "lon": ("obs", lon), "time": ("obs", time)}
    data = xr.DataArray(truth + 0.3 * rng.normal(size=4000), coords, "obs", name="sst")
    field = data.spline.fit(seconds=3)
    assert float(np.sqrt(((field.predict(data) - truth) ** 2).mean())) < 0.2


def test_a_series_of_months_has_all_the_events_that_its_labels_support() -> None:
    time = np.datetime64("2000-01", "M") + np.arange(240)
    months = np.arange(240)
    values = 3 * np.cos(2 * np.pi * months / 12) + np.sin(2 * np.pi * months / 7 + 2)
    values = values + 0.3 * np.random.default_rng(2).normal(size=240)
    data = xr.DataArray(values, {"time": time.astype("datetime64[ns]")}, "time", "sst")
    assert data.spline.space(seconds=3).size == 90 and not defaults.bases_for(data, seconds=3).budget.nested


def test_events_of_points_have_a_cell_for_each_label_in_linear_splines() -> None:
    budget = defaults.bases_for(moorings(0.0)).budget
    assert budget is not None and budget.linear is not None
    assert budget.linear.bases["time"].has_events and budget.linear.budget.nested["time"][0] < 60
    own, linear = (x["time"][-1] for x in (budget.nested, budget.linear.budget.nested))
    assert 240 < own <= 300 and linear > 1.5 * own
    assert budget.finest["time"].count == own


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:sst. .*(knots limit|straight line):xspline.FitWarning")
@pytest.mark.parametrize("smooth, degree", [(0.0, 1), (120.0, 3)])
def test_rough_events_have_linear_splines_and_smooth_ones_cubics(smooth: float, degree: int) -> None:
    field = moorings(smooth).spline.fit(seconds=8)
    assert field.space.basis("lat").degree == degree
    assert field.space.basis("time").has_events


# ---- season, trend and events where gaps are the same at all times


def sea(shape: tuple[int, int, int] = (60, 24, 36)) -> xr.DataArray:
    """Five years of months with land, a season, and events near the equator."""
    rng, (months, n, m) = np.random.default_rng(0), shape
    t = np.arange(months)[:, None, None]
    lat, lon = np.linspace(-20, 20, n), np.linspace(150, 270, m)
    values = 20 + np.cos(2 * np.pi * t / 12) + np.sin(t / 7) * np.exp(-((lat[:, None] / 8) ** 2))
    values = values + 0.1 * np.cos(np.deg2rad(lon) * 9) + rng.normal(0, 0.3, shape)
    values[:, :8, :9] = np.nan
    time = xr.date_range("2000-01-01", periods=months, freq="MS")
    return xr.DataArray(values, {"time": time, "lat": lat, "lon": lon}, ("time", "lat", "lon"), "sst")


@pytest.fixture(scope="module")
def of_land() -> xs.Field:
    return sea().spline.fit(seconds=1)


def test_a_map_with_land_gets_events(of_land: xs.Field) -> None:
    assert isinstance(of_land.penalty, xs.SpaceTime) and of_land.space.basis("time").has_events
    assert (
        of_land.summary()
        .attrs["spread"]
        .startswith("as many as there is time for with gaps that are (nearly) the same")
    )
    assert not sea().spline.space(seconds=1).basis("time").has_events
    more = " × ".join(f"{name} {n}" for name, n in shape_of(of_land.space).items())
    assert f"a fit takes {more} where gaps are the same at all times" in sea().spline.plan(seconds=1).budget


@pytest.mark.slow
def test_months_without_values_change_nothing_of_that(of_land: xs.Field) -> None:
    assert sea().where(sea().time.dt.month != 3).spline.fit(seconds=1).space == of_land.space


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [{"time": 20}, {"lat": 12, "lon": 12}])
def test_chunks_change_nothing_of_that(of_land: xs.Field, chunks: dict[str, int]) -> None:
    clouds = sea().where(np.random.default_rng(1).random((60, 24, 36)) > 0.1)
    in_space = {"lat": 15, "lon": 21, "time": 7}  # all that labels support
    assert shape_of(sea().chunk(chunks).spline.fit(seconds=1).space) == shape_of(of_land.space)
    nearly, chunked = (data.spline.fit(seconds=2) for data in (clouds, clouds.chunk(chunks)))
    assert nearly.space == chunked.space and nearly.space.basis("time").has_events
    month = xr.DataArray(np.arange(60), dims="time")
    blocks = sea().where(~((month > 20) & (month < 40) & (sea().lon > sea().lon[17])))
    for data in (blocks, blocks.chunk(chunks)):
        assert shape_of(data.spline.fit(seconds=1).space) == in_space


def test_gaps_that_last_are_others_than_single_ones() -> None:
    land = sea()
    single = land.where(np.random.default_rng(1).random(land.shape) > 0.1)
    lasting = land.where(np.random.default_rng(1).random((10, 24, 36)).repeat(6, axis=0) > 0.1)
    found = [stores.gaps_along([data], "time", None) for data in (land, single, lasting)]
    assert found == [stores.Gaps.ALIKE, stores.Gaps.NEARLY, stores.Gaps.DIFFERENT]
    few = land.where(np.random.default_rng(1).random(land.shape) > 0.5)
    assert stores.gaps_along([few], "time", None) is stores.Gaps.DIFFERENT
    assert stores.gaps_along([land], "time", land.notnull()) is None
    silent = land.where(land.time.dt.month != 3)  # months without any value do not count
    assert stores.gaps_along([silent], "time", None) is stores.Gaps.ALIKE

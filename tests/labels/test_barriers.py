"""Land barriers: waters on two sides of a wall are fitted as if each were alone; what `where=` refuses; files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from xspline.solve import Penalty, rounded

N, WALL = 17, 8  # cells along each coordinate, and which one is land
TRUTHS = {  # of each basin, as rough as each other: they share their strengths
    "west": lambda x, y: 5.0 + np.sin(0.5 * y) * np.cos(0.4 * x),
    "east": lambda x, y: np.cos(0.45 * x + 1) * np.sin(0.55 * y + 2),
}
SIDES = {"west": slice(0, WALL), "east": slice(WALL + 1, N)}


def basins(seed: int = 0) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """The truth, half of its cells with noise of 0.1, and where there is sea."""
    rng = np.random.default_rng(seed)
    middles = np.arange(N) + 0.5
    x, y = (xr.DataArray(middles, {n: middles}, n) for n in "xy")
    truth = xr.where(x < WALL, TRUTHS["west"](x, y), TRUTHS["east"](x, y)).transpose("x", "y").rename("u")
    sea = ((x != WALL + 0.5) & (y == y)).transpose("x", "y")
    noisy = truth + 0.1 * rng.standard_normal(truth.shape)
    return truth.where(sea), noisy.where(sea & (rng.random(truth.shape) < 0.5)), sea


def splines(x: slice = slice(0, N), degree: int = 3, per_cell: int = 3) -> dict[str, xs.BSpline]:
    ends = {"x": (x.start, x.stop), "y": (0, N)}
    return {
        n: xs.BSpline((hi - lo) * per_cell + degree, degree, domain=(lo, hi)) for n, (lo, hi) in ends.items()
    }


def error(values: xr.DataArray, truth: xr.DataArray, data: xr.DataArray) -> float:
    return float(np.sqrt(((values - truth).where(data.isnull()) ** 2).mean()))


@pytest.mark.parametrize(
    ("degree", "order", "per_cell"), [(1, 1, 1), (2, 2, 2), pytest.param(3, 2, 3, marks=pytest.mark.slow)]
)
@pytest.mark.filterwarnings("ignore:.*is at its upper bound")
def test_basins_are_fitted_as_if_each_were_alone(degree: int, order: int, per_cell: int) -> None:
    truth, data, sea = basins()
    whole, grid = splines(degree=degree, per_cell=per_cell), {"x": truth.x, "y": truth.y}
    walled = data.spline.fit(whole, penalty=xs.Roughness("reml", order=order, where=sea))
    plain = data.spline.fit(whole, penalty=xs.Roughness("reml", order=order))
    alone = xr.concat(
        [
            data[s]
            .spline.fit(splines(s, degree, per_cell), penalty=xs.Roughness("reml", order=order))
            .predict(x=truth.x[s], y=truth.y)
            for s in SIDES.values()
        ],
        "x",
    )
    errors = [error(values, truth, data) for values in (walled.predict(grid), alone, plain.predict(grid))]
    assert errors[0] < 1.05 * errors[1] < 0.8 * errors[2], errors
    assert walled.fits["u"].choice["converged"]


def test_nothing_leaks_through_a_wall() -> None:
    truth, data, sea = basins()
    grid, penalty = {"x": truth.x, "y": truth.y}, xs.Roughness(1e-4, where=sea)
    fits = [
        d.spline.fit(splines(), penalty=penalty) for d in (data, (data + 100.0 * (data.x > WALL)).rename("u"))
    ]
    moved = (fits[1].predict(grid) - fits[0].predict(grid)).where(sea)
    assert float(abs(moved[SIDES["west"]]).max()) < 1e-2
    assert float(abs(moved[SIDES["east"]] - 100).max()) < 1e-2


@pytest.mark.parametrize(
    ("units", "others", "scale"), [("km", "m", 1e3), ("degrees_north", "degrees_south", -1)]
)
def test_labels_of_a_mask_are_converted_to_the_units_of_the_data(
    units: str, others: str, scale: float
) -> None:
    _, data, sea = basins()
    data = data.assign_coords(x=("x", data.x.values, {"units": units}))
    other = sea.assign_coords(x=("x", scale * sea.x.values, {"units": others}))
    fits = [data.spline.fit(splines(), penalty=xs.Roughness(1e-4, where=m)) for m in (sea, other)]
    xr.testing.assert_allclose(fits[0].predict(), fits[1].predict(), rtol=1e-6)
    other["x"] = other.x.assign_attrs(units="K")
    with pytest.raises(ValueError, match=f"^x of where=: its labels have units 'K', and .*'{units}'"):
        data.spline.fit(splines(), penalty=xs.Roughness(1.0, where=other))


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["banded", "dense"])
def test_solvers_agree(solver: str) -> None:
    _, data, sea = basins()
    penalty = xs.Roughness({"x": 1e-4, "y": 3e-4}, order=1, where=sea)
    fits = [data.spline.fit(splines(degree=1), penalty=penalty, solver=s) for s in ("dissection", solver)]
    values = [fit.predict(stderr=True).where(sea) for fit in fits]
    xr.testing.assert_allclose(values[0].u, values[1].u, atol=1e-6)
    xr.testing.assert_allclose(values[0].u_stderr, values[1].u_stderr, rtol=1e-4)


# --- as data


def globe() -> xr.DataArray:
    lat, lon = np.arange(-89.5, 90), np.arange(0.5, 360)
    wave = np.sin(np.deg2rad(3 * lon)) * 40
    return xr.DataArray(lat[:, None] < wave, {"lat": lat, "lon": lon}, ["lat", "lon"])


def test_a_penalty_is_plain_data_and_short() -> None:
    sea = globe()
    penalty = xs.Roughness({"lat": 0.123456, "lon": 1.0}, order=1, where=sea)
    text = json.dumps(penalty.to_dict())
    assert len(text) < 20_000
    again = Penalty.from_dict(json.loads(text))
    assert again == penalty and hash(again) == hash(penalty)
    same = sea.transpose("lon", "lat").sortby("lat", ascending=False)
    assert xs.Roughness({"lat": 0.123456, "lon": 1.0}, order=1, where=same) == penalty
    assert xs.Roughness({"lat": 0.123456, "lon": 1.0}, order=1, where=~sea) != penalty
    assert repr(penalty) == (
        "Roughness({'lat': 0.123456, 'lon': 1.0}, order=1, where=<180 × 360 cells of lat, lon, 50% True>)"
    )
    assert rounded(penalty).where == penalty.where  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_files_hold_the_mask(tmp_path: Path, suffix: str) -> None:
    _, data, sea = basins()
    field = data.spline.fit(splines(per_cell=1, degree=1), penalty=xs.Roughness("reml", order=1, where=sea))
    getattr(field, f"to_{'netcdf' if suffix == 'nc' else suffix}")(tmp_path / f"field.{suffix}")
    again = xs.open_field(tmp_path / f"field.{suffix}")
    assert again.penalty == field.penalty
    xr.testing.assert_equal(again.predict(stderr=True), field.predict(stderr=True))


# --- findings


def test_walls_that_functions_reach_over_are_a_warning() -> None:
    _, data, sea = basins()
    with pytest.warns(xs.FitWarning, match=r"reach over land from one water to another, as near x 8, y"):
        field = data.spline.fit(splines(per_cell=1), penalty=xs.Roughness(1e-4, where=sea))
    assert "tie what lies on its two sides" in repr(field)
    with pytest.warns(xs.FitWarning, match=r"hold no cell of x, y that where= marks; .*where=~mask"):
        data.spline.fit(splines(), penalty=xs.Roughness(1e-4, where=~sea))
    fine = data.spline.fit(splines(), penalty=xs.Roughness(1e-4, where=sea))
    (found,) = (f for f in fine.check().findings["u"] if f.subject == "walls")
    assert found.text == "none of 2916 functions reaches over land from one water to another"
    assert not found.advice


# --- errors


def bad(**kwargs: Any) -> xr.DataArray:
    return xr.DataArray(np.ones(3, bool), {"x": [1.0, 2.0, 3.0]}, ["x"]).assign_coords(**kwargs)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (np.ones((3, 3), bool), "where=ndarray has to be a DataArray of bool"),
        (bad() * 1.0, "has to be a DataArray of bool, True where there is sea.*where=\\(mask > 0\\)"),
        (bad().drop_vars("x"), "dimension 'x' of where= has no labels; assign them"),
        (
            bad(x=[1.0, 2.0, 2.0]),
            r"labels of 'x' of where= have to be two or more, all different.*\[1.0, 2.0, 2.0\]",
        ),
        (bad(x=[1.0, np.nan, 2.0]), "all different and none missing"),
        (bad()[:1], "two or more"),
        (~bad(), "where= is True nowhere: there is no sea to be smoothed; is it the mask of land"),
    ],
)
def test_masks_that_are_none(where: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        xs.Roughness(1.0, where=where)


def test_what_does_not_go_with_walls() -> None:
    with pytest.raises(ValueError, match="strengths are numbers or chosen by 'reml', not by 'gcv'"):
        xs.Roughness("gcv", where=bad())


def test_masks_that_do_not_fit_the_space() -> None:
    _, data, sea = basins()

    def fit(where: xr.DataArray, **bases: Any) -> None:
        data.spline.fit({**splines(per_cell=1), **bases}, penalty=xs.Roughness(1e-4, where=where))

    with pytest.raises(ValueError, match=r"'depth', which is no fitted coordinate.*isel\(depth=0\)"):
        fit(sea.expand_dims(depth=[0.0, 1.0]))
    with pytest.raises(
        ValueError,
        match=r"reach from 0.0 to 9.0 along 'x' and do not cover its domain, 0.0 to 17.0; give the mask",
    ):
        fit(sea[:9])
    with pytest.raises(ValueError, match=r"masks 'y', whose basis Polynomial.*take a BSpline along 'y'"):
        fit(sea, y=xs.Polynomial(1, domain=(0, N)))
    with pytest.raises(
        ValueError, match="the dimension 'y', which is no fitted coordinate"
    ):  # independent fits
        data.spline.fit(x=20, penalty=xs.Roughness(1e-4, where=sea))
    with pytest.raises(ValueError, match="takes neither unions with a long B-spline nor where="):
        data.spline.fit(splines(), penalty=xs.Roughness(1e-4, where=sea), solver="iterative")
    with pytest.raises(ValueError, match="Roughness alone, on no sphere and without where="):
        xs.Roughness(where=sea) + xs.Physics("u_xx + u_yy = 0")

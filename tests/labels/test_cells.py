"""Observations that are means over cells: `support="cells"` from labels to fields, against dense least squares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.reference import gauss

YEAR = 31556952.0
EDGES = np.arange("1990-01", "2001-02", dtype="datetime64[M]").astype("datetime64[ns]")
RNG = np.random.default_rng(0)


def seconds(times: np.ndarray) -> np.ndarray:
    return (times - np.datetime64(0, "ns")) / np.timedelta64(1, "s")


def months(values: np.ndarray | None = None) -> xr.Dataset:
    """Monthly means of 10 + 3 cos of a year, with the bounds of the months."""
    ends = np.stack([EDGES[:-1], EDGES[1:]], axis=1)
    lo, hi = seconds(EDGES[:-1]), seconds(EDGES[1:])
    w = 2 * np.pi / YEAR
    cycle = 10 + 3 * (np.sin(w * hi) - np.sin(w * lo)) / (w * (hi - lo))
    middle = EDGES[:-1] + (EDGES[1:] - EDGES[:-1]) // 2
    coords = {"time": ("time", middle, {"bounds": "time_bnds"}), "time_bnds": (("time", "nv"), ends)}
    return xr.Dataset({"t": ("time", cycle if values is None else values)}, coords)


def boxes(nlat: int = 30, nlon: int = 24) -> xr.Dataset:
    """Values over boxes of a region, with bounds."""
    lat, lon = np.linspace(20, 65, nlat + 1), np.linspace(-40, 8, nlon + 1)
    coords = {}
    for name, edges, units in (("lat", lat, "degrees_north"), ("lon", lon, "degrees_east")):
        coords[name] = (name, (edges[:-1] + edges[1:]) / 2, {"bounds": f"{name}_bnds", "units": units})
        coords[f"{name}_bnds"] = ((name, "nv"), np.stack([edges[:-1], edges[1:]], axis=1))
    u = np.sin(lat[:-1, None] / 9) * np.cos(lon[:-1] / 7) + 0.1 * RNG.normal(size=(nlat, nlon))
    return xr.Dataset({"u": (("lat", "lon"), u)}, coords)


SPACE = xs.Space(
    {"lat": xs.BSpline(9, domain=(20, 65)), "lon": xs.BSpline(14, domain=(-40, 8))},
    axes={"lat": xs.Axis(role="latitude"), "lon": xs.Axis(role="longitude", wrap=360.0)},
)


def means_of(space: xs.Space, j: int, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Means of functions over intervals [n, K], integrated by another code: Gauss quadrature between knots."""
    features, rows = space.features[j], []
    turns = np.array([-1, 0, 1])[:, None] * np.ptp(features.ends) * features.periodic
    for lo, hi in zip(lower, upper, strict=True):
        edges = np.unique(np.clip((features.edges + turns).ravel(), lo, hi))
        x, weights = gauss(edges, 20)
        weights = weights * (np.cos(np.deg2rad(x)) if space.names[j] == "lat" else 1.0)
        rows.append(weights @ features.design(x) / weights.sum())
    return np.array(rows)


def rows_of(space: xs.Space, data: xr.Dataset) -> np.ndarray:
    """Dense rows of means over boxes, weighted by the cosine of latitude."""
    out = [means_of(space, j, *data[f"{name}_bnds"].values.T) for j, name in enumerate(space.names)]
    return np.einsum("ik,jl->ijkl", *out).reshape(data.u.size, -1)


def solution(rows: np.ndarray, values: Any) -> np.ndarray:
    return np.linalg.lstsq(rows, np.asarray(values).ravel(), rcond=None)[0]


def coefficients(field: Any) -> np.ndarray:
    return np.asarray(next(iter(field.fits.values())).coefficients).ravel()


def close(mine: np.ndarray, others: np.ndarray) -> None:
    np.testing.assert_allclose(mine, others, atol=1e-10 * np.abs(others).max())


# ---- what the field is


@pytest.mark.parametrize("basis", [xs.Fourier(1, "year"), xs.Polynomial(1) + xs.Fourier(2, "year")])
def test_the_amplitude_of_a_yearly_cycle_from_monthly_means(basis: Any) -> None:
    for data, support in ((months(), "cells"), (months().t, {"time": months().time_bnds})):
        cells = xs.fit(data, time=basis, penalty=0, support=support)
        points = xs.fit(data, time=basis, penalty=0)
        names = cells.space.coefficient_labels("time")
        amplitude = {f: coefficients(f)[list(names).index("cos1")] for f in (cells, points)}
        assert abs(amplitude[cells] - 3) < 3e-10
        assert 0.985 < amplitude[points] / 3 < 0.99  # what a point in the middle would have to be


def test_predictions_are_values_at_points() -> None:
    field = xs.fit(months(), time=xs.Fourier(1, "year"), penalty=0, support="cells")["t"]
    peak = np.datetime64(0, "ns") + np.timedelta64(round(30 * YEAR), "s")
    assert abs(float(field.predict(time=peak)) - 13) < 1e-9


def test_boxes_are_dense_least_squares_of_integrated_rows() -> None:
    data = boxes()
    field = xs.fit(data, SPACE, penalty=0, support="cells")
    close(coefficients(field), solution(rows_of(SPACE, data), data.u))
    regridded = field.regrid(data)["u"]  # the same cells, by area
    close(regridded.values.ravel(), rows_of(SPACE, data) @ coefficients(field))


def test_gaps_weights_and_batches() -> None:
    data = boxes()
    support = {"lat": data.lat_bnds, "lon": data.lon_bnds}
    values = data.u.where(RNG.uniform(size=data.u.shape) < 0.9)
    weights = xr.DataArray(RNG.uniform(0.5, 2, data.u.shape), data.u.coords, data.u.dims)
    field = xs.fit(values, SPACE, penalty=0, support=support, weights=weights)
    used, root = np.isfinite(values.values).ravel(), np.sqrt(weights.values).ravel()
    rows = rows_of(SPACE, data)[used] * root[used, None]
    close(coefficients(field), solution(rows, values.values.ravel()[used] * root[used]))
    both = xr.concat([data.u, 2 * data.u], "member")
    many = xs.fit(both, SPACE, penalty=0, support=support).fits["u"].coefficients
    close(np.asarray(many)[..., 1].ravel(), 2 * np.asarray(many)[..., 0].ravel())


def test_points_and_cells_merge_to_the_pooled_least_squares() -> None:
    data = boxes()
    lat, lon = RNG.uniform(20, 65, 400), RNG.uniform(-40, 8, 400)
    u = np.sin(lat / 9) * np.cos(lon / 7)
    ships = xr.DataArray(u, {"lat": ("n", lat), "lon": ("n", lon)}, "n", "u").to_dataset()
    cells = xs.statistics(data, SPACE, support="cells", holder="boxes")
    points = xs.statistics(ships, SPACE, holder="ships")
    rows = np.einsum("nk,nl->nkl", *(f.design(x) for f, x in zip(SPACE.features, (lat, lon), strict=True)))
    rows = np.concatenate([rows_of(SPACE, data), rows.reshape(400, -1)])
    pooled = solution(rows, np.concatenate([data.u.values.ravel(), u]))
    for merged in (cells + points, points + cells, xs.merge([points, cells])):
        close(coefficients(merged.solve(0)), pooled)
    assert cells + points - points == cells or (cells + points - points).holders == ("boxes",)
    close(coefficients((cells + points - cells).solve(0)), coefficients(points.solve(0)))


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["banded", "dissection", "iterative", "reml"])
def test_all_solvers_take_wider_sums(solver: str) -> None:
    data = boxes()
    data["u"] = data.u.where(RNG.uniform(size=data.u.shape) < 0.9)
    statistics = xs.statistics(data, SPACE, support="cells")
    given: Any = (
        {"penalty": "reml"} if solver == "reml" else {"penalty": xs.Roughness(1e-4), "solver": solver}
    )
    field, dense = statistics.solve(**given), statistics.solve(**given | {"solver": "dense"})
    np.testing.assert_allclose(coefficients(field), coefficients(dense), atol=1e-5)
    if solver != "iterative":
        np.testing.assert_allclose(field.stderr().u_stderr, dense.stderr().u_stderr, rtol=1e-4)


@pytest.mark.parametrize("solver", ["spectral", "separable"])
def test_solvers_of_grids_take_wider_sums(solver: str) -> None:
    statistics = xs.statistics(boxes(), SPACE, support="cells")
    penalty = 1e-3 if solver == "spectral" else xs.Roughness({"lat": 1e-4})
    fields = [statistics.solve(penalty, solver=s) for s in (solver, "dense")]
    np.testing.assert_allclose(*map(coefficients, fields), atol=1e-9)


# ---- chunks, files, parts


@pytest.mark.slow
def test_chunks_holders_and_files_agree(tmp_path: Path) -> None:
    data = boxes()
    whole = xs.statistics(data, SPACE, support="cells")
    rows, values = rows_of(SPACE, data), data.u.values.ravel()
    chunked = xs.statistics(data.chunk(lat=7, lon=11), SPACE, support="cells")
    halves = [
        xs.statistics(data.isel(lat=part), SPACE, support="cells", holder=str(part.start))
        for part in (slice(0, 13), slice(13, None))
    ]
    data.chunk(lat=10).to_zarr(tmp_path / "boxes.zarr", consolidated=False)
    stored = xr.open_zarr(tmp_path / "boxes.zarr", chunks=None, consolidated=False).set_coords(
        ["lat_bnds", "lon_bnds"]
    )
    for statistics in (whole, chunked, xs.merge(halves), xs.statistics(stored, SPACE, support="cells")):
        total = statistics.total("u")
        frame = statistics.space.frame
        np.testing.assert_allclose(total.gram.to_dense(frame), rows.T @ rows, atol=1e-11)
        h = total.recentred(0.0, frame).full_moment(frame).ravel()
        np.testing.assert_allclose(h, rows.T @ values, atol=1e-11)
    whole.to_zarr(tmp_path / "sums.zarr")
    again = xs.open_statistics(tmp_path / "sums.zarr")
    assert again.space.coupled == whole.space.coupled and again.parts[0].digest == whole.parts[0].digest
    np.testing.assert_array_equal(coefficients(again.solve(0)), coefficients(whole.solve(0)))
    lazy = xs.statistics(data.chunk(lat=7), SPACE, support="cells", compute=False).compute()
    close(coefficients(lazy.solve(0)), coefficients(whole.solve(0)))


def test_a_checkpoint_tells_cells_from_points(tmp_path: Path) -> None:
    data, kept = boxes().chunk(lat=7), {"checkpoint": tmp_path / "kept"}
    for support in ("cells", None, "cells"):
        mine = xs.statistics(data, SPACE, support=support, **kept).parts[0]
        assert mine.digest == xs.statistics(data, SPACE, support=support).parts[0].digest


# ---- what compares with observations


def noisy_months() -> xr.Dataset:
    """Monthly means of a fast cycle, which points in the middle are far from."""
    lo, hi = seconds(EDGES[:-1]) / YEAR, seconds(EDGES[1:]) / YEAR
    w = 2 * np.pi * 4
    fast = 100 * (np.sin(w * hi) - np.sin(w * lo)) / (w * (hi - lo))
    return months(fast + np.random.default_rng(1).normal(0, 0.1, lo.size))


def test_residuals_are_those_of_means() -> None:
    data = noisy_months()
    field = xs.fit(data, time=xs.Fourier(4, "year"), penalty=0, support="cells")
    assert 0.08 < float(field.summary().sigma.squeeze()) < 0.12
    points = np.abs(field.predict()["t"] - data.t)  # of points they would be 30 times as large
    assert float(points.median()) > 3
    known = {"t": ()}
    assert field.check(data).concerns == field.check().concerns == known
    spike = data.copy(deep=True)
    spike["t"][40] += 5
    found = {s: field.check(spike, support=s).concerns["t"] for s in (None, "cells", "points")}
    assert [c.subject for c in found[None]] == [c.subject for c in found["cells"]] == ["tails"]
    assert not found["points"]  # 5 is within what points in the middle differ by


def test_a_robust_fit_weighs_residuals_of_means() -> None:
    data = noisy_months()
    data["t"][[20, 70, 100]] += 40
    for own in (data, data.chunk(time=50)):
        robust = xs.fit(own, time=xs.Fourier(4, "year"), penalty=0, support="cells", robust=True)
        clean = xs.fit(noisy_months(), time=xs.Fourier(4, "year"), penalty=0, support="cells")
        assert np.abs(coefficients(robust) - coefficients(clean)).max() < 0.5
        assert robust.summary().attrs["robust"]


def test_cross_validation_and_the_jackknife_take_cells() -> None:
    data = noisy_months()
    field = xs.fit(data, time=xs.Fourier(4, "year"), penalty=0, support="cells", holder="time.year")
    assert 0.08 < float(field.cross_validate().rmse.mean()) < 0.14
    assert np.isfinite(field.stderr(method="jackknife")["t_stderr"]).all()


def test_code_says_that_observations_are_cells() -> None:
    field = xs.fit(months(), time=xs.Fourier(1, "year"), penalty=0, support="cells")
    assert field.code().endswith(', support={"time": "cells"})')
    again = eval(field.code(), {"xs": xs, "fit": lambda *a, **k: xs.fit(months(), *a, **k)})
    np.testing.assert_array_equal(coefficients(again), coefficients(field))
    assert xs.plan(months(), time=xs.Fourier(1, "year"), support="cells").code.endswith("'cells'})")


def test_a_field_of_points_and_cells_asks_what_data_are() -> None:
    space = xs.space(months(), time=xs.Fourier(4, "year"), support="cells")
    parts = [
        xs.statistics(noisy_months(), space, holder="cells", support="cells"),
        xs.statistics(months(), space, holder="points"),
    ]
    for merged in (xs.merge(parts), xs.merge(parts).collapse()):
        field = merged.solve(0)
        with pytest.raises(ValueError, match=r"say what these data are, check\(data, support='cells'\)"):
            field.check(months())
        field.check(months(), support="cells")
        assert "support" not in field.code()
    assert xs.merge(parts[:1]).collapse().solve(0).check(noisy_months()).concerns == {"t": ()}


# ---- which cells


def test_domains_hold_the_cells() -> None:
    space = xs.space(months(), time=20, support="cells")
    assert space.basis("time").domain == ("1990-01-01T00:00:00", "2001-01-01T00:00:00")
    assert xs.fit(months(), time=20, penalty=0, support="cells").statistics.outside == 0
    lat = np.linspace(-87.5, 87.5, 36)
    data = xr.Dataset({"u": ("lat", np.cos(lat))}, {"lat": ("lat", lat, {"bounds": "b"})})
    data["b"] = (("lat", "nv"), np.stack([lat + 2.5, lat - 2.5], axis=1))  # ends may descend
    assert xs.space(data, lat=8, support="cells").basis("lat").domain == (-90.0, 90.0)


def test_cells_that_a_domain_cuts_are_told() -> None:
    space = xs.space(months(), time=20)
    with pytest.warns(xs.FitWarning, match=r"2 of 132 cells of 'time' reach out of its domain 1990-01-16"):
        statistics = xs.statistics(months(), space, support="cells")
    assert (statistics.count, statistics.outside) == (130, 2)


@pytest.mark.parametrize("west", [0.0, -180.0])
@pytest.mark.parametrize("across", [False, True])
def test_cells_of_a_circle(west: float, across: bool) -> None:
    lon = np.arange(0.0, 360.0, 10.0)
    low, high = lon - 5, lon + 5
    if across:  # as files have it: the first from 355 to 5
        low = low % 360
    data = xr.Dataset({"u": ("lon", np.sin(np.deg2rad(lon)))}, {"lon": ("lon", lon, {"bounds": "b"})})
    data["b"] = (("lon", "nv"), np.stack([low, high], axis=1))
    basis = xs.BSpline(12, domain=(west, west + 360), period=360)
    field = xs.fit(data, lon=basis, penalty=0, support="cells")
    assert field.statistics.outside == 0
    rows = means_of(field.space, 0, lon - 5, lon + 5)
    close(coefficients(field), solution(rows, data.u))
    with pytest.raises(ValueError, match=r"lon: a cell of .* touches 5 of the 8 functions on the circle"):
        xs.fit(data, lon=xs.BSpline(8, period=360), support="cells")


def test_points_with_depth_bins_of_their_own() -> None:
    rng, n = np.random.default_rng(2), 300
    lat, depth = rng.uniform(0, 10, n), rng.integers(4, 67, n).astype(float)  # equal labels, unequal bins
    half = rng.uniform(0.5, 4, n)
    coords = {"lat": ("cast", lat), "depth": ("cast", depth, {"bounds": "bins"})}
    data = xr.Dataset({"u": ("cast", np.sin(lat) * depth)}, coords)
    data["bins"] = (("cast", "nv"), np.stack([depth - half, depth + half], axis=1))
    space = xs.Space({"lat": xs.BSpline(6, domain=(0, 10)), "depth": xs.BSpline(9, domain=(0, 70))})
    field = xs.fit(data, space, penalty=0, support="cells")
    means = means_of(field.space, 1, depth - half, depth + half)
    rows = np.einsum("nk,nl->nkl", space.features[0].design(lat), means).reshape(n, -1)
    close(coefficients(field), solution(rows, data.u))


@pytest.mark.slow
def test_events_of_monthly_means() -> None:
    basis = xs.Polynomial(1) + xs.Fourier(2, "year") + xs.BSpline(60)
    data = months(10 + np.cumsum(np.random.default_rng(0).normal(size=132)))
    fields = [xs.fit(data, time=basis, penalty="reml", support="cells", solver=s) for s in (None, "dense")]
    np.testing.assert_allclose(*map(coefficients, fields), atol=1e-4)
    assert np.isfinite(fields[0].stderr().t_stderr).all()
    other = xs.statistics(data.isel(time=slice(0, 50)), fields[0].space, holder="points")
    merged = xs.merge([other, fields[0].statistics]).solve(xs.Roughness(1e-4))
    dense = xs.merge([other, fields[0].statistics]).solve(xs.Roughness(1e-4), solver="dense")
    np.testing.assert_allclose(coefficients(merged), coefficients(dense), atol=1e-6)


BAD: dict[str, tuple[Any, str]] = {
    "none": ({"drop": True}, r"none of time names any; add them \(cf_xarray"),
    "other": ({"support": "area"}, r"support='area' is unknown; pass 'cells'"),
    "name": ({"support": {"tme": "cells"}}, r"no fitted coordinate for support= 'tme'; did you mean 'time'"),
    "kind": (
        {"support": {"time": 3}},
        r"support=\{'time': 3\} is unknown; pass 'cells', 'points', or a DataArray",
    ),
    "no attribute": ({"drop": True, "support": {"time": "cells"}}, r"'time' names no bounds"),
    "array": ({"only": "t"}, r"names the bounds 'time_bnds', which are not here: xarray leaves them out"),
    "lost": ({"only": ["t"]}, r"ds\[\['u'\]\]; fit the Dataset that holds them, ds.spline.fit\(...\), or"),
    "numbers": ({"bounds": lambda b: b.astype(float)}, r"bounds of time: labels of type float64 on a time"),
    "shape": (
        {"bounds": lambda b: b.isel(nv=0)},
        r"bounds of 'time' have the dimensions \{'time': 132\}, and have",
    ),
    "corners": (
        {"bounds": lambda b: xr.concat([b, b], "nv")},
        r"\{'time': 132, 'nv': 4\}, and have to have .* corners",
    ),
    "length": ({"bounds": lambda b: b[:100]}, r"\{'time': 100, 'nv': 2\}"),
    "labels": (
        {"bounds": lambda b: b.assign_coords(time=b.time + np.timedelta64(1, "ns"))},
        r"bounds of 'time' are those of time=",
    ),
    "missing": (
        {"bounds": lambda b: b.where(b.time != b.time[3])},
        r"cell NaN to NaN of the label 1990-04-16.* is",
    ),
    "width": (
        {"bounds": lambda b: b.isel(nv=[0, 0])},
        r"of the label 1990-01-16.* has no width, as 132 of 132",
    ),
    "outside": (
        {"bounds": lambda b: b.copy(data=np.roll(b, 1, 0))},
        r"of the label .* does not hold it, as 132",
    ),
    "fine": ({"fine": True}, r"a fine field takes points, not means over cells"),
}


@pytest.mark.parametrize("kind", BAD)
def test_errors_say_what_to_do(kind: str) -> None:
    options, text = dict(BAD[kind][0]), BAD[kind][1]
    data: Any = months()
    if options.pop("drop", False):
        del data.time.attrs["bounds"]
    if (only := options.pop("only", None)) is not None:
        data = data[only]
    if (changed := options.pop("bounds", None)) is not None:
        options = {"support": {"time": changed(data.time_bnds)}}
    with pytest.raises((TypeError, ValueError), match=text):
        xs.fit(data, **({"support": "cells"} | options))


def test_a_missing_label_needs_no_cell_and_points_may_be_named() -> None:
    data = boxes()
    lat = data.lat.values.copy()
    lat[3] = np.nan
    bounds = data.lat_bnds.values.copy()
    bounds[3] = np.nan
    holes = data.drop_vars("lat").assign_coords(lat=("lat", lat, data.lat.attrs))
    support = {"lat": xr.DataArray(bounds, dims=("lat", "nv")), "lon": "points"}
    with pytest.warns(xs.FitWarning, match="24 observations were left out because a label is NaN"):
        statistics = xs.statistics(holes, SPACE, support=support)
    assert statistics.count == 29 * 24 and statistics.parts[0].provenance["cells"] == ["lat"]

"""Observations that are means over cells: `support="cells"` from labels to fields, against dense least squares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from xspline.sums.integrals import over_intervals

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
        coords[name] = (
            name,
            (edges[:-1] + edges[1:]) / 2,
            {"bounds": f"{name}_bnds", "units": units},
        )
        coords[f"{name}_bnds"] = ((name, "nv"), np.stack([edges[:-1], edges[1:]], axis=1))
    u = np.sin(lat[:-1, None] / 9) * np.cos(lon[:-1] / 7) + 0.1 * RNG.normal(size=(nlat, nlon))
    return xr.Dataset({"u": (("lat", "lon"), u)}, coords)


SPACE = xs.Space(
    {"lat": xs.BSpline(9, domain=(20, 65)), "lon": xs.BSpline(14, domain=(-40, 8))},
    axes={"lat": xs.Axis(role="latitude"), "lon": xs.Axis(role="longitude", wrap=360.0)},
)


def rows_of(space: xs.Space, data: xr.Dataset) -> np.ndarray:
    """Dense rows of means over boxes, integrated by another code, weighted by the cosine of latitude."""
    out = []
    for j, name in enumerate(space.names):
        density = (lambda x: np.cos(np.deg2rad(x))) if name == "lat" else np.ones_like
        lo, hi = data[f"{name}_bnds"].values.T
        integrals, sizes = over_intervals(space, j, lo, hi, density)
        out.append(integrals / sizes[:, None])
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


@pytest.mark.parametrize("solver", ["banded", "dissection", "dense", "iterative", None])
@pytest.mark.parametrize("strength", [1e-4, "reml"])
def test_all_solvers_take_wider_sums(solver: str | None, strength: Any) -> None:
    if strength == "reml" and solver == "iterative":
        pytest.skip("its REML is drawn")
    data = boxes()
    data["u"] = data.u.where(RNG.uniform(size=data.u.shape) < 0.9)
    statistics = xs.statistics(data, SPACE, support="cells")
    dense = statistics.solve(xs.Roughness(strength), solver="dense")
    field = statistics.solve(xs.Roughness(strength), solver=solver)
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
    stored = xr.open_zarr(tmp_path / "boxes.zarr", chunks=None, consolidated=False).set_coords(["lat_bnds", "lon_bnds"])
    for statistics in (whole, chunked, xs.merge(halves), xs.statistics(stored, SPACE, support="cells")):
        total = statistics.total("u")
        frame = statistics.space.frame
        np.testing.assert_allclose(total.gram.to_dense(frame), rows.T @ rows, atol=1e-11)
        h = total.recentred(0.0, frame).full_moment(frame).ravel()
        np.testing.assert_allclose(h, rows.T @ values, atol=1e-11)
    whole.to_zarr(tmp_path / "sums.zarr")
    again = xs.open_statistics(tmp_path / "sums.zarr")
    assert again.space.reach == whole.space.reach and again.parts[0].digest == whole.parts[0].digest
    np.testing.assert_array_equal(coefficients(again.solve(0)), coefficients(whole.solve(0)))
    lazy = xs.statistics(data.chunk(lat=7), SPACE, support="cells", compute=False).compute()
    close(coefficients(lazy.solve(0)), coefficients(whole.solve(0)))


def test_cells_and_points_of_equal_labels_are_different_factors() -> None:
    data = boxes()
    parts = [xs.statistics(data, SPACE, support=s, holder=str(s)) for s in ("cells", None)]
    keys = [{f.key for term in p.parts[0].sums["u"].gram.terms for f in term} for p in parts]
    assert not keys[0] & keys[1]

"""Fine fields of grids that are not in memory: what tiles read gives the field of memory, whatever the chunks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from xspline.kriging import fitting
from xspline.labels.fine import tiles


@pytest.fixture(autouse=True)
def many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand values are many here, and some windows in four boxes of them tell the covariance."""
    monkeypatch.setattr(tiles, "MOST_VALUES", 1000)
    monkeypatch.setattr(tiles, "BOXES", 4)
    monkeypatch.setattr(fitting, "FEW", 8)


def truth(shape: tuple[int, ...]) -> np.ndarray:
    """A field that is smooth at every fifth label and rough between neighbours: noise through a filter."""
    rng = np.random.default_rng(0)
    k = np.sqrt(sum(f**2 for f in np.meshgrid(*(np.fft.fftfreq(n) for n in shape), indexing="ij")))
    power = (k**2 + 0.004) ** (-0.45 - len(shape) / 2)
    values = np.real(np.fft.ifftn(np.fft.fftn(rng.standard_normal(shape)) * power))
    return np.asarray((values - values.mean()) / values.std())


def gridded(
    shape: tuple[int, ...], dims: tuple[str, ...], gaps: float = 0.3
) -> tuple[xr.DataArray, xr.DataArray]:
    """Noisy values with single gaps and a block, and the field that they are of."""
    rng = np.random.default_rng(1)
    coords = {"lat": (30, 42), "lon": (-20, -5), "time": (0, 20)}
    field = xr.DataArray(
        truth(shape), {d: np.linspace(*coords[d], n) for d, n in zip(dims, shape, strict=True)}, dims
    )
    data = field + 0.1 * rng.standard_normal(shape)
    data = data.where(rng.random(shape) > gaps).rename("u")
    data[tuple(slice(n // 3, n // 2) for n in shape)] = np.nan
    return data, field


def error_bars_apart(one: xr.Dataset, other: xr.Dataset) -> xr.DataArray:
    """How far two fields are apart, in error bars of the second."""
    return abs(one.u - other.u) / other.u_stderr


@pytest.mark.slow
def test_tiles_of_a_store_give_what_memory_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, field = gridded((80, 70), ("lat", "lon"))
    data.to_dataset().chunk(lat=50, lon=40).to_zarr(tmp_path / "u.zarr", consolidated=False)
    stored = xr.open_zarr(tmp_path / "u.zarr", consolidated=False).u
    tiled = stored.spline.fit(seconds=4)
    assert isinstance(tiled.fits["u"].fine, tiles.Tiled)
    lazily = tiled.predict(stderr=True)
    assert lazily.u.chunks == stored.chunks
    with pytest.raises(ValueError, match=r"errors of means of 'u' take all observations at once.*fine=False"):
        tiled.mean("lat", stderr=True)
    lazily.to_zarr(tmp_path / "predicted.zarr", consolidated=False)
    there = xr.open_zarr(tmp_path / "predicted.zarr", consolidated=False).load()

    # Other chunks, and values at labels that are asked for at once
    again = stored.chunk(lat=-1, lon=30).spline.fit(seconds=4).predict(data, stderr=True)
    assert float(error_bars_apart(again, there).max()) < 1e-6
    np.testing.assert_allclose(again.u_stderr, there.u_stderr, rtol=1e-6)

    monkeypatch.setattr(tiles, "MOST_VALUES", data.size)
    whole = data.spline.fit(seconds=4).predict(stderr=True)
    assert float(error_bars_apart(there, whole).median()) < 0.25
    rmse = {
        name: float(np.sqrt(((own.u - field) ** 2).mean()))
        for name, own in (("tiled", there), ("whole", whole))
    }
    assert rmse["tiled"] < 1.05 * rmse["whole"]
    covered = abs(there.u - field) < 1.96 * there.u_stderr
    assert 0.9 < float(covered.mean()) < 0.99 and 0.85 < float(covered.where(data.isnull()).mean())


@pytest.mark.slow
def test_points_derivatives_masks_and_weights_of_tiles() -> None:
    data, _ = gridded((60, 50), ("lat", "lon"))
    noisier = xr.where(data.lon < -12, 4.0, 1.0)
    rng = np.random.default_rng(2)
    data = data + 0.2 * xr.where(data.lon < -12, 0.0, data.copy(data=rng.standard_normal(data.shape)))
    tiled = data.rename("u").chunk(lat=30, lon=50).spline.fit(weights=noisier, seconds=1)
    points = xr.Dataset({"lat": ("p", [33.03, 40.2]), "lon": ("p", [-18.2, -6.3])}, {"p": [0, 1]})
    at_points = tiled.predict(points, stderr=True)
    on_grid = tiled.predict(lat=points.lat.values, lon=points.lon.values, stderr=True)
    for k in range(2):
        assert float(at_points.u[k]) == pytest.approx(float(on_grid.u[k, k]), abs=1e-9)
    step = 0.01
    difference = tiled.predict(points.assign(lat=points.lat + step)) - tiled.predict(
        points.assign(lat=points.lat - step)
    )
    slope = tiled.derivative(at=points, lat=1)
    assert float(abs(slope * 2 * step - difference).max()) < 0.25 * float(abs(difference).max())
    near = tiled.predict(mask="data")
    assert bool(near.isnull().any()) and bool(
        near.where(data.notnull()).notnull().sum() == data.notnull().sum()
    )
    # The weights say where noise is larger.
    sides = [
        tiled.stderr().where(data.notnull()).where(side).mean() for side in (data.lon < -12, data.lon > -12)
    ]
    assert float(sides[0]) < float(sides[1].compute())


@pytest.mark.slow
def test_around_the_globe_tiles_have_neighbours_across_the_date_line() -> None:
    lat, lon = np.linspace(-60, 60, 41), np.arange(0.0, 360.0, 4.0)
    field = (
        np.sin(np.radians(lat))[:, None]
        * np.cos(3 * np.radians(lon))
        * xr.DataArray(np.ones((41, 90)), {"lat": lat, "lon": lon}, ("lat", "lon"))
    )
    rng = np.random.default_rng(0)
    data = (field + 0.05 * rng.standard_normal(field.shape)).rename("u")
    data[:, :2] = np.nan
    tiled = data.chunk(lat=20, lon=30).spline.fit(seconds=1).predict(stderr=True).compute()
    seam = abs(tiled.u - field)[:, :2]
    assert float((seam < 1.96 * tiled.u_stderr[:, :2]).mean()) > 0.85
    assert float(seam.mean()) < 0.06


def test_what_tiles_cannot_do_is_said(tmp_path: Path) -> None:
    data, _ = gridded((60, 50), ("lat", "lon"))
    tiled = data.chunk(lat=30).spline.fit(seconds=1)
    with pytest.raises(ValueError, match=r"reads its observations where they are stored.*predict.*to_zarr"):
        tiled.to_netcdf(tmp_path / "field.nc")
    with pytest.raises(ValueError, match=r"robust=True looks at all observations.*fine=False, robust=True"):
        data.spline.fit(robust=True)
    points = data.stack(p=("lat", "lon")).reset_index("p").chunk(p=500)
    with pytest.warns(xs.FitWarning, match="a single field is fitted: u has .* unless they are one grid"):
        assert points.spline.fit().fits["u"].fine is None


def test_few_observations_among_many_labels_have_no_fine_field_and_this_is_told() -> None:
    data, _ = gridded((120, 100), ("lat", "lon"), gaps=0.99)
    with pytest.warns(xs.FitWarning, match="u has no fine field: boxes of its 12,000 labels hold too few"):
        field = data.chunk(lat=60).spline.fit()
    assert float(field.predict(lat=36.0, lon=-10.0)) == pytest.approx(float(data.mean()), abs=0.5)


@pytest.mark.slow
def test_a_dimension_of_one_label_is_none_of_the_grid() -> None:
    """As OISST has a `zlev` of one depth: a single field was fitted, of 11 % of places within its error bars."""
    data, _ = gridded((40, 45), ("lat", "lon"))
    deep = data.expand_dims(zlev=[0.0], axis=1)
    plain, field = data.chunk(lat=20).spline.fit(seconds=2), deep.chunk(lat=20).spline.fit(seconds=2)
    assert isinstance(field.fits["u"].fine, tiles.Tiled)
    flat, lazy = plain.predict(data, stderr=True), field.predict(deep.chunk(lat=15), stderr=True)
    assert lazy.u.dims == field.predict(deep).dims and lazy.u.sizes["zlev"] == 1
    xr.testing.assert_allclose(lazy.squeeze("zlev", drop=True).compute(), flat, rtol=1e-9)
    xr.testing.assert_allclose(field.predict(deep).isel(zlev=0, drop=True), flat.u, rtol=1e-9)

"""A product of the shape of NOAA's: 494 months x 60 x 160, P = 2093, two holders either side of 200E."""

from __future__ import annotations

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import stand_in
from benchmarks.paper.row import Row

MERIDIAN = 200.0
SEED, SHARE, EVERY = 42, 0.2, 6
APART = 1e-11  # degC


def rows(quick: bool) -> list[Row]:
    sst = stand_in.noaa(60 if quick else 494)
    space = sst.spline.space(stand_in.paper_bases())
    cells, months = held_out_cells(sst), np.arange(sst.sizes["time"]) % EVERY == EVERY - 1
    months = xr.DataArray(months, dims="time")
    everything = xr.full_like(cells, True)
    return [
        *scores("in sample", sst, everything, space, 1e-1, "0.639"),
        *scores("20 % of ocean cells held out", sst.where(~cells), cells, space, 1e-4, "0.643", sst),
        *scores("every 6th month held out", sst.where(~months), months, space, 1e-4, "0.663", sst),
    ]


def held_out_cells(sst: xr.DataArray) -> xr.DataArray:
    """A fifth of the cells that are ever observed, at random."""
    ocean = sst.notnull().any("time")
    place = np.flatnonzero(ocean.values)
    chosen = np.zeros(ocean.size, bool)
    chosen[np.random.default_rng(SEED).choice(place, round(SHARE * place.size), replace=False)] = True
    return ocean.copy(data=chosen.reshape(ocean.shape))


def scores(
    what: str,
    data: xr.DataArray,
    where: xr.DataArray,
    space: xs.Space,
    penalty: float,
    paper: str,
    truth: xr.DataArray | None = None,
) -> list[Row]:
    """RMSE where it counts, pooled and merged, and how far the two are apart at observed cells."""
    truth = data if truth is None else truth
    pooled = data.spline.fit(space, penalty=penalty).predict(truth)
    halves = {"west": data.sel(lon=slice(None, MERIDIAN)), "east": data.sel(lon=slice(MERIDIAN, None))}
    parts = [half.spline.statistics(space, holder=name) for name, half in halves.items()]
    merged = xs.merge(parts).solve(penalty=penalty).predict(truth)
    apart = float(np.abs(merged - pooled).where(truth.notnull()).max())
    one, other = (rmse((field - truth).where(where)) for field in (pooled, merged))
    return [
        Row(f"{what}: RMSE, pooled, degC", one, paper, None, f"penalty {penalty:g}"),
        Row(f"{what}: RMSE, merged, degC", other, paper, None, f"penalty {penalty:g}"),
        Row(f"{what}: delta_max, degC", apart, "", APART),
    ]


def rmse(errors: xr.DataArray) -> float:
    return float(np.sqrt((errors.astype(float) ** 2).mean()))

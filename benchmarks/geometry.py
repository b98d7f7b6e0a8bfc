"""Roughness on the sphere, and land as a wall: errors of withheld values beside those of a plane without walls.

*sphere*: fields drawn from spherical harmonics up to a degree, of power falling with the degree, at points that are
uniform on the sphere, with noise. Errors near the poles are over those near the equator.

*winds*: the northward wind of drawn stream functions on a grid that has both poles, of which a tenth is withheld. At a
pole it follows the longitude; fits differ by how far from the poles the sphere becomes a tube for such values.

*walls*: two waters with a wall of land between them, one cell wide, of which half of the cells are seen with noise.
Errors with `where=sea` are over those of fits to each water alone.

*Panama*: the January climatology of OISST off Central America, of which half of the cells are withheld at random. The
mask of one degree is open at the isthmus; here it is closed by the cells from Costa Rica to Colombia.
"""

from __future__ import annotations

import argparse
import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr
from scipy.special import sph_harm_y

import xspline as xs
from benchmarks import measure
from xspline.kriging import places

TABLES = ("sphere", "winds", "walls", "Panama")
HARMONICS = 12  # the highest degree of drawn fields
OBSERVATIONS, NOISE = 4000, 0.1
BANDS = {"over 75°": (75.0, 90.0), "under 15°": (0.0, 15.0)}
WIDTH, WIDE = 3.0, 9.0  # degrees of a cell of the grid of winds; the second in a quick run
CELLS, WALL = 17, 8  # of the two waters, and which column of cells is land
CLIMATOLOGY, MASK = "oisst_v2_climatology_1991_2020.nc", "oisst_v2_land_sea_mask.nc"
BOX = {"lat": slice(2, 22), "lon": slice(262, 290)}
ISTHMUS = ((9.5, 275, 279), (8.5, 279, 283))  # degrees north, and east from and to
CARIBBEAN = {"lat": slice(8, 13), "lon": slice(276, 286)}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--draws", type=int, default=8)


def rmse(difference: xr.DataArray) -> float:
    return float(np.sqrt((difference**2).mean()))


# --- the sphere


def drawn(seed: int) -> tuple[xr.DataArray, xr.DataArray]:
    """Points with noise, and as many others with the truth."""
    rng = np.random.default_rng(seed)
    lat = np.rad2deg(np.arcsin(rng.uniform(-1, 1, 2 * OBSERVATIONS)))
    lon = rng.uniform(0, 360, lat.size)
    values = np.zeros(lat.size)
    for degree in range(1, HARMONICS + 1):
        for order in range(degree + 1):
            wave = sph_harm_y(degree, order, np.deg2rad(90 - lat), np.deg2rad(lon))
            a, b = rng.standard_normal(2) * (math.sqrt(2) if order else 1) / degree**1.5
            values += a * wave.real + b * wave.imag
    values /= values.std()
    values[:OBSERVATIONS] += NOISE * rng.standard_normal(OBSERVATIONS)
    coords = {"lat": ("obs", lat), "lon": ("obs", lon)}
    points = xr.DataArray(values, coords, "obs", "u")
    return points[:OBSERVATIONS], points[OBSERVATIONS:]


def sphere(draws: int) -> Iterator[tuple[str, ...]]:
    """A row for each roughness: errors in both bands, and their ratio."""
    bases = {"lat": xs.BSpline(24, domain=(-90, 90)), "lon": xs.BSpline(36, period=360.0)}
    penalties = {
        'Roughness("reml")': xs.Roughness("reml"),
        'Roughness("reml", geometry="sphere")': xs.Roughness("reml", geometry="sphere"),
    }
    for name, penalty in penalties.items():
        squares: dict[str, list[float]] = {band: [] for band in BANDS}
        for seed in range(draws):
            seen, truth = drawn(seed)
            difference = seen.spline.fit(bases, penalty=penalty).predict(truth) - truth
            for band, (low, high) in BANDS.items():
                inside = (abs(truth.lat) >= low) & (abs(truth.lat) < high)
                squares[band].append(float((difference[inside.to_numpy()] ** 2).mean()))
        poles, equator = (math.sqrt(np.mean(own)) for own in squares.values())
        yield name, f"{poles:.4f}", f"{equator:.4f}", f"{poles / equator:.3f}"


# --- winds


def northward(seed: int, width: float) -> xr.DataArray:
    """The northward wind ∂ψ/∂λ / cos φ; at a pole its limit along each longitude."""
    rng = np.random.default_rng(seed)
    lat, lon = np.arange(-90, 91, width), np.arange(0, 360, width)
    off_pole = np.clip(lat, -90 + 1e-4, 90 - 1e-4)[:, None]
    values = np.zeros((lat.size, lon.size))
    for degree in range(1, HARMONICS + 1):
        for order in range(1, degree + 1):
            wave = sph_harm_y(degree, order, np.deg2rad(90 - off_pole), np.deg2rad(lon))
            a, b = rng.standard_normal(2) / degree**2
            values += order * (b * wave.real - a * wave.imag) / np.cos(np.deg2rad(off_pole))
    return xr.DataArray(values / values.std(), {"lat": lat, "lon": lon}, ("lat", "lon"), "v")


def winds(draws: int, *, quick: bool) -> Iterator[tuple[str, ...]]:
    """A row for each tube: errors in both bands, and their ratio."""
    usual = places.TUBE
    for tube in (0.0,) if quick else (0.0, usual / 2, usual, 2 * usual):
        places.TUBE = tube
        squares: dict[str, list[float]] = {band: [] for band in BANDS}
        for seed in range(draws):
            truth = northward(seed, WIDE if quick else WIDTH)
            hidden = np.random.default_rng(seed).random(truth.shape) < 0.1
            difference = (truth.where(~hidden).spline.fit().predict(truth) - truth).where(hidden)
            for band, (low, high) in BANDS.items():
                inside = (abs(truth.lat) >= low) & (abs(truth.lat) <= high)
                squares[band].append(float((difference.where(inside) ** 2).mean()))
        poles, equator = (math.sqrt(np.mean(own)) for own in squares.values())
        yield f"{tube:g}°", f"{poles:.2e}", f"{equator:.2e}", f"{poles / equator:.3g}"
    places.TUBE = usual


# --- walls


def waters(seed: int, *, alike: bool) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """The truth, what is seen of it, and where there is sea; one water is smoother, if they are not alike."""
    rng = np.random.default_rng(seed)
    cells = np.arange(CELLS) + 0.5
    x, y = (xr.DataArray(cells, {name: cells}, name) for name in "xy")
    phases = rng.uniform(0, 2 * np.pi, 4)
    slow = 1.0 if alike else 0.3
    west = 5 + np.sin(0.5 * y + phases[0]) * np.cos(0.4 * x + phases[1])
    east = np.cos(slow * 0.45 * x + phases[2]) * np.sin(slow * 0.55 * y + phases[3])
    truth = xr.where(x < WALL, west, east).transpose("x", "y").rename("u")
    sea = ((x != WALL + 0.5) & (y == y)).transpose("x", "y")
    seen = truth + NOISE * rng.standard_normal(truth.shape)
    return truth.where(sea), seen.where(sea & (rng.random(truth.shape) < 0.5)), sea


def splines(data: xr.DataArray, degree: int) -> dict[str, xs.BSpline]:
    """As many knot intervals in a cell as the degree."""
    return {
        str(name): xs.BSpline(
            data.sizes[name] * degree + degree,
            degree,
            domain=(float(data[name][0]) - 0.5, float(data[name][-1]) + 0.5),
        )
        for name in data.dims
    }


def walls(draws: int) -> Iterator[tuple[str, ...]]:
    """A row for each kind of waters and degree."""
    for alike in (True, False):
        for degree in (1, 2):
            plain = xs.Roughness("reml", order=degree)
            ratios = []
            for seed in range(draws):
                truth, seen, sea = waters(seed, alike=alike)
                hidden = sea & seen.isnull()
                sides = [slice(0, WALL), slice(WALL + 1, CELLS)]
                alone = xr.concat(
                    [
                        seen[side].spline.fit(splines(seen[side], degree), penalty=plain).predict(truth[side])
                        for side in sides
                    ],
                    "x",
                )
                bases = splines(seen, degree)
                penalties = xs.Roughness("reml", order=degree, where=sea), plain
                together = [seen.spline.fit(bases, penalty=p).predict(truth) for p in penalties]
                own = rmse((alone - truth).where(hidden))
                ratios.append([rmse((values - truth).where(hidden)) / own for values in together])
            with_walls, without = np.array(ratios).T
            kind = "equally rough" if alike else "one smoother"
            yield (
                kind,
                str(degree),
                f"{np.median(with_walls):.3f}",
                f"{with_walls.max():.3f}",
                f"{np.median(without):.3f}",
            )


def panama(folder: Path, draws: int) -> Iterator[tuple[str, ...]]:
    """A row for each degree: errors in the box and on the Caribbean side of the isthmus."""
    sst = xr.open_dataset(folder / CLIMATOLOGY).sst.isel(time=0, drop=True).astype(float).sel(BOX)
    # Cells of the mask have their middles at half degrees, and those of the climatology the same cells' at whole ones.
    mask = xr.open_dataset(folder / MASK).mask.isel(time=0, drop=True).sortby("lat")
    sea = mask.sel(lat=sst.lat, lon=sst.lon + 0.5).assign_coords(lon=sst.lon) > 0
    for lat, west, east in ISTHMUS:
        sea.loc[{"lat": lat, "lon": slice(west, east)}] = False
    sst = sst.where(sea).rename("sst")
    for degree in (1, 2):
        squares = np.zeros((2, 2))
        for seed in range(draws):
            hidden = sea & xr.DataArray(np.random.default_rng(seed).random(sst.shape) < 0.5, sst.coords)
            seen = sst.where(~hidden)
            for row, where in enumerate((None, sea)):
                penalty = xs.Roughness("reml", order=degree, where=where)
                field = seen.spline.fit(splines(seen, degree), penalty=penalty)
                squared = ((field.predict(sst) - sst) ** 2).where(hidden)
                squares[row] += float(squared.mean()), float(squared.sel(CARIBBEAN).mean())
        errors = np.sqrt(squares / draws).T
        yield (str(degree), *(f"{error:.3f}" for error in errors.ravel()))


def run(args: argparse.Namespace) -> None:
    draws = 1 if args.quick else args.draws
    folder = Path(os.environ.get("XSPLINE_DATA_DIR", "data"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xs.FitWarning)
        if "sphere" in args.tables:
            header = ("penalty", *(f"rmse {band}" for band in BANDS), "ratio")
            measure.table(f"geometry: {draws} fields on the sphere", header, list(sphere(draws)))
        if "winds" in args.tables:
            header = ("tube", *(f"rmse {band}" for band in BANDS), "ratio")
            measure.table(f"northward wind, {draws} draws", header, list(winds(draws, quick=args.quick)))
        if "walls" in args.tables:
            header = ("waters", "degree", "walls / alone", "at worst", "no walls / alone")
            measure.table(f"two waters, {draws} draws: medians", header, list(walls(draws)))
        if "Panama" in args.tables:
            if not (folder / CLIMATOLOGY).exists():
                print(f"\nPanama: no {CLIMATOLOGY} in {folder}")
                return
            header = ("degree", "box: plain", "walls", "Caribbean side: plain", "walls")
            measure.table(
                f"off Central America, {draws} draws: rmse, degC", header, list(panama(folder, draws))
            )

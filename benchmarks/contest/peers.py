"""What else is at hand: interpolation by xarray and SciPy, trends per pixel, and verde where it is installed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr
from scipy import interpolate, linalg, optimize, spatial

from benchmarks.contest.sets import Problem, points

KM_OF_A_DEGREE = 111.2
NEIGHBOURS = 30
RBF = f"RBF of {NEIGHBOURS} neighbours"
KRIGING = "kriging"
MAX_KRIGED = 1_100  # points of a dense covariance, of which the likelihood takes some hundred factorisations
MAX_TRIANGULATED = 250_000  # points of a Delaunay triangulation in two dimensions
MAX_BLOCK_MEANS = 4_000  # verde's spline is a dense system
LATITUDES, LONGITUDES = ("lat", "latitude"), ("lon", "longitude")
Array = np.ndarray


def coordinate(data: xr.DataArray, names: tuple[str, ...]) -> Array:
    return data[next(name for name in names if name in data.coords)].to_numpy().astype(float)


def places(data: xr.DataArray, problem: Problem) -> Array:
    """Points in a Euclidean space, [points, 2 to 4]: on the sphere if it is large, days beside, in degrees.

    Without latitudes they are coordinates in units of their standard deviations.
    """
    if not set(LATITUDES) & set(problem.data.coords):
        own = {str(n): c.to_numpy().astype(float) for n, c in problem.data.coords.items()}
        return np.stack([data[n].to_numpy().astype(float) / np.std(c) for n, c in own.items()], axis=-1)
    lat, lon = coordinate(data, LATITUDES), coordinate(data, LONGITUDES)
    rad_lat, rad_lon = np.radians(lat), np.radians(lon)
    middle = np.nanmean(coordinate(problem.data, LATITUDES))
    if np.ptp(coordinate(problem.data, LONGITUDES)) > 180:
        axes = [np.cos(rad_lat) * np.cos(rad_lon), np.cos(rad_lat) * np.sin(rad_lon), np.sin(rad_lat)]
        axes = [np.degrees(a) for a in axes]
    else:
        axes = [lat, lon * np.cos(np.radians(middle))]
    if "time" in data.coords and data["time"].ndim:
        axes.append(days(data["time"]) / problem.days)
    return np.stack(axes, axis=-1)


def days(time: xr.DataArray) -> Array:
    """Days since 1970 in the labels' calendar."""
    if time.dtype == object:
        import cftime

        return np.asarray(
            cftime.date2num(time.to_numpy(), "days since 1970-01-01", time.to_numpy().flat[0].calendar)
        )
    return (time.to_numpy() - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")


def observed(problem: Problem) -> tuple[Array, Array, Array]:
    """Places and values to learn from, and places to predict."""
    train = points(problem.train, problem.train.notnull().to_numpy())
    return places(train, problem), train.to_numpy().astype(float), places(problem.truth, problem)


def nearest(problem: Problem) -> Array:
    at, values, wanted = observed(problem)
    return values[spatial.cKDTree(at).query(wanted)[1]]


def neighbours(problem: Problem) -> Array:
    """A radial basis function −r through the nearest values: the local limit of kriging with a linear variogram."""
    at, values, wanted = observed(problem)
    fit = interpolate.RBFInterpolator(at, values, neighbors=NEIGHBOURS, kernel="linear", degree=0)
    return fit(wanted)


def linear(problem: Problem) -> Array:
    """`griddata`: Delaunay triangles, in each time slice on its own."""
    got = np.full(problem.truth.shape, np.nan)
    train = points(problem.train, problem.train.notnull().to_numpy())
    slices = [np.ones(train.size, bool)], [np.ones(got.size, bool)]
    if "time" in problem.data.dims:
        labels = problem.data["time"].to_numpy()
        slices = tuple([p["time"].to_numpy() == t for t in labels] for p in (train, problem.truth))
    known, wanted = (flat(p) for p in (train, problem.truth))
    for here, there in zip(*slices, strict=True):
        if there.any():
            got[there] = interpolate.griddata(known[here], train.to_numpy()[here], wanted[there])
    return got


def flat(data: xr.DataArray) -> Array:
    return np.stack([coordinate(data, LATITUDES), coordinate(data, LONGITUDES)], axis=-1)


def in_time(problem: Problem) -> Array:
    """`interpolate_na` along time: of each pixel, or of each mooring."""
    if "time" in problem.data.dims:
        filled = problem.train.interpolate_na("time", use_coordinate=problem.data["time"].dtype != object)
        return points(filled, problem.held.to_numpy()).to_numpy()
    got = np.empty(problem.truth.size)
    for here, there in by_place(problem):
        got[there] = np.nan
        if here.any() and there.any():
            t, order = days(problem.data["time"][here]), np.argsort(days(problem.data["time"][here]))
            wanted = days(problem.truth["time"][there])
            got[there] = np.interp(wanted, t[order], problem.data.to_numpy()[here][order], np.nan, np.nan)
    return got


def by_place(problem: Problem):
    """Of each mooring: which observations may be seen, and which withheld ones are to be predicted."""
    seen = problem.train.notnull().to_numpy()
    _, place = np.unique(flat(problem.data).round(), axis=0, return_inverse=True)
    held = place[problem.held.to_numpy()]
    for one in range(place.max() + 1):
        yield seen & (place == one), held == one


def climatology(problem: Problem) -> Array:
    """Of each pixel a line in time by `polyfit`, and the mean of each month of what that leaves."""
    data = problem.train
    if "time" in data.dims:
        line = xr.polyval(data["time"], data.polyfit("time", 1).polyfit_coefficients)
        rest = (data - line).groupby("time.month")
        filled = line + rest.mean().sel(month=data["time"].dt.month)
        return points(filled.transpose(*data.dims), problem.held.to_numpy()).to_numpy()
    got = np.full(problem.truth.size, np.nan)
    for here, there in by_place(problem):
        if here.sum() > 24 and there.any():
            rows = harmonics(days(data["time"][here]))
            fit, *_ = np.linalg.lstsq(rows, data.to_numpy()[here].astype(float))
            got[there] = harmonics(days(problem.truth["time"][there])) @ fit
    return got


def harmonics(t: Array) -> Array:
    """A line, and two waves a year."""
    year = 2 * np.pi * t / 365.2425
    waves = [wave(k * year) for k in (1, 2) for wave in (np.cos, np.sin)]
    return np.stack([np.ones_like(t), t / 1e4, *waves], axis=-1)


def verde(problem: Problem) -> Array:
    """Verde's own recipe for many values: means of blocks, a plane and a biharmonic spline."""
    import verde as vd

    known = points(problem.train, problem.train.notnull().to_numpy())
    (lat, lon), (to_lat, to_lon) = flat(known).T, flat(problem.truth).T
    scale = np.cos(np.radians(lat.mean()))
    area = np.ptp(lat) * np.ptp(lon) * scale
    chain = vd.Chain(
        [
            ("mean", vd.BlockReduce(np.mean, spacing=np.sqrt(area / MAX_BLOCK_MEANS))),
            ("trend", vd.Trend(degree=1)),
            ("spline", vd.Spline(damping=1e-8)),
        ]
    )
    return chain.fit((lon * scale, lat), known.to_numpy()).predict((to_lon * scale, to_lat))


MATERN: dict[float, Callable[[Array], Array]] = {
    0.5: lambda r: np.exp(-r),
    1.5: lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
    2.5: lambda r: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r),
}


def kriging(problem: Problem) -> Array:
    """Ordinary kriging: a constant and a Matérn covariance, its range, nugget and smoothness of largest likelihood."""
    at, values, wanted = observed(problem)
    if len(at) > MAX_KRIGED:
        return np.full(len(wanted), np.nan)
    between = spatial.distance.cdist(at, at)
    ones = np.ones(len(at))

    def solved(log: Array, matern: Callable[[Array], Array]) -> tuple[float, Array, float]:
        """The negative log-likelihood, what covariances are taken times, and the constant."""
        system = matern(between / np.exp(log[0])) + (np.exp(log[1]) + 1e-9) * np.eye(len(at))
        factor = linalg.cho_factor(system, lower=True)
        of_ones, of_values = linalg.cho_solve(factor, ones), linalg.cho_solve(factor, values)
        mean = (ones @ of_values) / (ones @ of_ones)
        weights = of_values - mean * of_ones
        rest = len(at) * np.log((values - mean) @ weights) / 2
        return rest + np.log(np.diag(factor[0])).sum(), weights, mean

    starts = np.log([[np.median(between) / k, 0.3] for k in (2, 8)])
    found = [
        (optimize.minimize(lambda log, of=matern: solved(log, of)[0], start, method="Nelder-Mead"), matern)
        for matern in MATERN.values()
        for start in starts
    ]
    best, matern = min(found, key=lambda each: each[0].fun)
    _, weights, mean = solved(best.x, matern)
    return mean + matern(spatial.distance.cdist(wanted, at) / np.exp(best.x[0])) @ weights


PEERS: dict[str, Callable[[Problem], Array]] = {
    "nearest": nearest,
    "linear in lat and lon": linear,
    RBF: neighbours,
    KRIGING: kriging,
    "linear in time": in_time,
    "trend and climatology per pixel": climatology,
    "verde": verde,
}

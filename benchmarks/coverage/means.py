"""Means over a box, `field.mean({"lat": ..., "lon": ...})`: of a month, the difference of two, the trend of the mean.

Independent errors: 9 × 13 labels and 36 months, a fifth of the values missing, errors of standard deviation 0.1 about a
truth that is drawn anew in every replicate from what the penalty expects (its prior; of variance 1, in the space of the
fit, 7 × 8 × 9 functions, with planes of any height); strengths are those of the prior, or by REML. The box ends between
labels. The trend is the slope of a straight line through the means of the months, `field.functional(weights,
mean=box)`. Errors are the exact ones; of strengths that are known draws too.

Bare fits: a Gaussian field of variance 1, over 240 labels of time (exponential covariance, 6 labels), and over 60
labels of time and 30 in space (Matérn 3/2, 5 and 6 labels), with a fifth of the values missing, and all within a gap;
noise of standard deviation 0.3. Means are over boxes beside the gap and half within it; truths are means over three
places in each cell. The trend is that of the field as it was in these months, not of a climate that it is a sample of.

Errors that last: AR(1) from month to month of 0.8, over 12 years about season and trend, also the same over 20° (red
in space): the trend of the mean, by the exact error, which takes errors as independent, and by the jackknife over
years. Shares of replicates whose interval of 95 % holds the truth; standard errors over the root mean square of errors.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import xarray as xr
from scipy import stats

import xspline as xs
from benchmarks import measure
from benchmarks.coverage.older import Rng, lasting, months
from benchmarks.coverage.shares import rms, text

LAT, LON = np.linspace(-20.0, 20.0, 9), np.linspace(150.0, 210.0, 13)
BOX = {"lat": (-7.3, 11.0), "lon": (163.0, 189.5)}
MONTHS, NOISE, MISSING = 36, 0.1, 0.2
BASES = {"lat": 7, "lon": 8, "time": 9}
PARTS, GAP_NOISE = 3, 0.3  # places in a cell along each axis; standard deviation of noise of bare fits
PERSISTENCE, YEARS, REACH = 0.8, 12, 20.0
YEAR = 365.2425 * 86_400
HEADER = ("errors", "of the mean", "error by", "replicates", "covered", "stderr / error", "CPU s each")
Result = dict[tuple[str, str], tuple[float, float, float]]


def slopes(time: np.ndarray) -> xr.DataArray:
    """Weights over months whose sum is the slope of a straight line, per year."""
    t = xr.DataArray((time - time[0]) / np.timedelta64(1, "s") / YEAR, {"time": time}, ("time",))
    t = t - t.mean()
    return t / (t**2).sum()


@functools.cache
def prior() -> tuple[xs.Space, np.ndarray, float]:
    """A space, columns [P, P] whose sums with independent normal numbers are its truths, and the strength for these."""
    times = months(MONTHS // 12)
    ends = {"lat": (-20.0, 20.0), "lon": (150.0, 210.0), "time": (str(times[0]), str(times[-1]))}
    space = xs.Space({name: xs.BSpline(n, domain=ends[name]) for name, n in BASES.items()})
    values, vectors = np.linalg.eigh(xs.Roughness(1.0, order=2).gram(space).to_dense(space.frame))
    rough = values > 1e-8 * values.max()
    root = vectors[:, rough] / np.sqrt(values[rough])
    design = functools.reduce(np.kron, (f.design(f.sample()) for f in space.features))
    variance = np.mean(np.sum((design @ root) ** 2, axis=1))
    columns = np.concatenate([root / np.sqrt(variance), vectors[:, ~rough]], axis=1)
    return space, columns, float(NOISE**2 * variance)


def truth(rng: Rng) -> Callable[..., np.ndarray]:
    """A truth as a function of latitudes, longitudes and months."""
    space, root, _ = prior()
    c = (root @ rng.standard_normal(root.shape[1])).reshape(space.shape)
    seconds = space.to_float("time", months(MONTHS // 12))

    def values(lat: np.ndarray, lon: np.ndarray, month: np.ndarray) -> np.ndarray:
        rows = [f.design(x) for f, x in zip(space.features, (lat, lon, seconds[month]), strict=True)]
        return np.einsum("yk,xl,tm,klm->tyx", *rows, c, optimize=True)

    return values


def mean_of(values: Callable[..., np.ndarray], month: np.ndarray) -> np.ndarray:
    """The mean over the box by quadrature."""
    z, w = np.polynomial.legendre.leggauss(64)  # knots are in between: an error of 1e-6
    (lat, lon) = (lo + (hi - lo) * (z + 1) / 2 for lo, hi in BOX.values())
    weights = w * np.cos(np.deg2rad(lat))
    return np.einsum("tyx,y,x->t", values(lat, lon, month), weights / weights.sum(), w / w.sum())


def independent(rng: Rng, *, known: bool) -> Result:
    """Errors, standard errors and quantiles of one replicate, with strengths that are known or by REML."""
    times, month, values = months(MONTHS // 12), np.arange(MONTHS), truth(rng)
    noisy = values(LAT, LON, month) + NOISE * rng.standard_normal((MONTHS, LAT.size, LON.size))
    noisy[rng.random(noisy.shape) < MISSING] = np.nan
    data = xr.DataArray(noisy, {"time": times, "lat": LAT, "lon": LON}, name="u")
    field = data.spline.fit(prior()[0], penalty=xs.Roughness(prior()[2] if known else "reml", order=2))
    weights = xr.DataArray(
        np.zeros((MONTHS, 3)), {"time": times, "of": ["month", "difference", "trend"]}, ("time", "of")
    )
    weights[14, 0], weights[14, 1], weights[17, 1] = 1.0, 1.0, -1.0
    weights[:, 2] = slopes(times)
    expected = xr.dot(weights, xr.DataArray(mean_of(values, month), dims="time"), dim="time")
    out: Result = {}
    for method in ("exact", "draws")[: 1 + known]:
        found = field.functional(weights, mean=BOX, stderr=True, method=method)
        for of in weights["of"].values:
            error = float(found.u_functional.sel(of=of) - expected.sel(of=of))
            out[str(of), method] = (
                error,
                float(found.u_functional_stderr.sel(of=of)),
                float(stats.norm.ppf(0.975)),
            )
    return out


def that_last(rng: Rng, reach: float) -> Result:
    """The same of the trend, where errors last, and are alike over so many degrees."""
    times, lat, lon = months(YEARS), LAT[1::2], LON[1:12:2]
    y, x = (c.ravel() for c in np.meshgrid(lat, lon, indexing="ij"))
    apart = np.hypot(y[:, None] - y, x[:, None] - x)
    between = np.linalg.cholesky(np.exp(-apart / reach)) if reach else np.eye(y.size)
    errors = lasting(rng, (len(times), y.size), PERSISTENCE) @ between.T
    elapsed = (times - times[0]) / np.timedelta64(1, "s") / YEAR
    clean = 0.03 * elapsed + np.cos(2 * np.pi * elapsed)
    values = clean[:, None, None] + errors.reshape(-1, lat.size, lon.size)
    data = xr.DataArray(values, {"time": times, "lat": lat, "lon": lon}, name="u")
    season = xs.Fourier(1, period="year") + xs.Polynomial(1)
    parts = data.spline.fit({"lat": 4, "lon": 5, "time": season}, penalty="reml", holder="time.year")
    weights, out = slopes(times), Result()
    trend = parts.select(time=xs.Polynomial)
    for name, method, factor in (
        ("exact", None, stats.norm.ppf(0.975)),
        ("jackknife over years", "jackknife", stats.t.ppf(0.975, YEARS - 1)),
    ):
        found = trend.functional(weights, mean=BOX, stderr=True, method=method)
        out["trend", name] = float(found.u_functional) - 0.03, float(found.u_functional_stderr), float(factor)
    return out


Lattice = tuple[tuple[str, ...], tuple[int, ...], tuple[float, ...], Callable[[np.ndarray], np.ndarray]]
LATTICES: dict[str, Lattice] = {
    "over time": (("time",), (240,), (6.0,), lambda r: np.exp(-r)),
    "over time and space": (
        ("time", "y"),
        (60, 30),
        (5.0, 6.0),
        lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
    ),
}


def drawn(rng: Rng, lattice: Lattice) -> np.ndarray:
    """A Gaussian field at `PARTS` places of each cell along each axis, from one that is periodic.

    Dietrich and Newsam (1997): circulant embedding.
    """
    _, shape, lengths, correlation = lattice
    sizes = [4 * PARTS * n for n in shape]
    apart = [
        np.minimum(i, n - i) / PARTS / length
        for i, n, length in zip(map(np.arange, sizes), sizes, lengths, strict=True)
    ]
    distance = np.sqrt(sum(np.meshgrid(*(x**2 for x in apart), indexing="ij")))
    power = np.maximum(np.fft.fftn(correlation(distance)).real, 0.0)
    noise = rng.standard_normal(sizes) + 1j * rng.standard_normal(sizes)
    periodic = np.fft.fftn(np.sqrt(power / power.size) * noise).real
    return periodic[tuple(slice(PARTS * n) for n in shape)]


def bare(rng: Rng, name: str) -> Result:
    """Errors, standard errors and quantiles of one replicate of a bare fit."""
    dims, shape, *_ = lattice = LATTICES[name]
    places = drawn(rng, lattice)
    cells = places.reshape([n for size in shape for n in (size, PARTS)])
    at_labels = places[(slice(PARTS // 2, None, PARTS),) * len(shape)]
    noisy = at_labels + GAP_NOISE * rng.standard_normal(shape)
    noisy[rng.random(shape) < MISSING] = np.nan
    third = [n // 3 for n in shape]
    gap, beside, within = (
        tuple(slice(start * n // 12, end * n // 12) for n in shape) for start, end in ((4, 6), (7, 9), (3, 5))
    )
    noisy[gap] = np.nan
    labels = {"time": np.datetime64("2000-01-01", "ns") + np.arange(shape[0]) * np.timedelta64(30, "D")}
    coords = {**labels, "y": np.arange(shape[-1]) * 1.0} if len(shape) > 1 else labels
    data = xr.DataArray(noisy, coords, dims, "u")
    field = data.spline.fit()
    boxes = xr.DataArray(np.zeros((2, *shape), bool), coords, ("box", *dims))
    for k, box in enumerate((beside, within)):
        boxes.values[(k, *box)] = True
    means = xr.DataArray(cells.mean(axis=tuple(range(1, 2 * len(shape), 2))), coords, dims)
    expected = [float(means.where(boxes[k]).mean()) for k in range(2)]
    found = field.mean(where=boxes, covariance=True)
    error, square = found.u.values - expected, found.u_covariance.values
    slope, out = slopes(labels["time"]), {}
    out["mean beside a gap", "exact"] = (error[0], np.sqrt(square[0, 0]))
    out["mean half in a gap", "exact"] = (error[1], np.sqrt(square[1, 1]))
    apart = np.sqrt(square[0, 0] + square[1, 1] - 2 * square[0, 1])
    out["difference", "exact"] = (error[0] - error[1], apart)
    if len(shape) == 1:
        trend, truth = field.functional(slope, stderr=True), means.copy(data=at_labels)
    else:
        own = slice(third[1], 2 * third[1])
        trend = field.functional(slope, mean={"y": (own.start - 0.5, own.stop - 0.5)}, stderr=True)
        truth = means.copy(data=cells[:, PARTS // 2].mean(axis=-1)).isel(y=own).mean("y")
    out["trend", "exact"] = (
        float(trend.u_functional - xr.dot(slope, truth, dim="time")),
        float(trend.u_functional_stderr),
    )
    return {key: (*both, float(stats.norm.ppf(0.975))) for key, both in out.items()}


def rows(name: str, replicate: Callable[[Rng], Result], replicates: int) -> Iterator[tuple[object, ...]]:
    """As `HEADER` says."""
    start, all_of = time.process_time(), list[Mapping[tuple[str, str], tuple[float, float, float]]]()
    for seed in range(replicates):
        all_of.append(replicate(np.random.default_rng(seed)))
    each = (time.process_time() - start) / replicates
    for of, by in all_of[0]:
        error, stderr, factor = np.array([one[of, by] for one in all_of]).T
        held = (np.abs(error) <= factor * stderr).astype(float)
        ratio = f"{rms(stderr) / rms(error):.2f}"
        yield name, of, by, replicates, text(list(held)), ratio, each


def tables(replicates: int, *, quick: bool) -> None:
    """A table of independent errors, and one of errors that last."""
    for name, known in (("strengths known", True), ("strengths by REML", False)):
        own = rows(name, functools.partial(independent, known=known), replicates)
        measure.table(f"coverage, means of a box: independent errors, {name}", HEADER, own)
    for name in list(LATTICES)[: 1 if quick else None]:
        own = rows(name, functools.partial(bare, name=name), replicates)
        measure.table(f"coverage, means of a box: bare fits {name}", HEADER, own)
    for name, reach in (("last", 0.0), ("last, red in space", REACH))[: 1 if quick else 2]:
        last = rows(name, functools.partial(that_last, reach=reach), replicates)
        measure.table(f"coverage, means of a box: errors that {name}", HEADER, last)

"""Fits on the sphere, from data to values at a pole."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import minimize_scalar
from scipy.special import sph_harm_y

import xspline as xs
from benchmarks.contest.sets import points
from tests.reference import functions_of_one_place
from xspline.sums import Gram

BASES = {"lat": xs.BSpline(23, domain=(-90, 90)), "lon": xs.BSpline(36, period=360.0)}


class RandomField:
    """A field that is alike everywhere on the sphere, with a Gaussian spectrum."""

    def __init__(self, seed: int, length: float = 18.0, degrees: int = 26) -> None:
        rng = np.random.default_rng(seed)
        self.waves = [
            (
                n,
                m,
                np.exp(-n * (n + 1) * np.deg2rad(length) ** 2 / 4)
                * (2 - (m == 0)) ** 0.5
                * rng.standard_normal(2),
            )
            for n in range(degrees)
            for m in range(n + 1)
        ]

    def __call__(self, lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
        theta, phi = np.deg2rad(90 - lat), np.deg2rad(lon)
        values = ((a, b, sph_harm_y(n, m, theta, phi)) for n, m, (a, b) in self.waves)
        return sum(a * y.real + b * y.imag for a, b, y in values)


def observed(field: RandomField, seed: int, n: int = 1500, noise: float = 0.3) -> tuple[xr.DataArray, float]:
    """Noisy values at places that are spread evenly over the sphere."""
    rng = np.random.default_rng(1000 + seed)
    lat, lon = np.rad2deg(np.arcsin(rng.uniform(-1, 1, n))), rng.uniform(0, 360, n)
    values = field(lat, lon)
    sigma = noise * values.std()
    places = {"lat": ("place", lat), "lon": ("place", lon)}
    return xr.DataArray(values + sigma * rng.standard_normal(n), places, ["place"], name="u"), sigma


def test_a_field_has_one_value_at_a_pole(tmp_path: Path) -> None:
    """Its coefficients, draws of it, and what a file gives back; without the geometry it has many."""
    data, sigma = observed(RandomField(0), 0, n=600)
    pole = {"lat": [-90.0, 90.0], "lon": np.arange(0, 360, 30.0)}
    field = data.spline.fit(BASES, fine=False, penalty=xs.Roughness("reml", geometry="sphere"))
    assert list(field.summary()["lambda"].penalised) == ["sphere"]
    field.to_netcdf(tmp_path / "field.nc")
    again = xs.open_field(tmp_path / "field.nc")
    assert again.fits["u"].known_penalty == field.fits["u"].known_penalty
    for values in (field.predict(pole), field.sample(3, seed=0).predict(pole), again.predict(pole)):
        assert float((values.max("lon") - values.min("lon")).max()) < 1e-10
    plane = data.spline.fit(BASES, fine=False, penalty=xs.Roughness("reml")).predict(pole)
    assert float((plane.max("lon") - plane.min("lon")).max()) > sigma / 10


# Fewer than 13 functions of longitude have but a rough cosine, and no observations are within 10° of a pole.
GRID = {"time": np.arange(6.0), "lat": np.arange(80, -81, -10.0), "lon": np.arange(0, 360, 15.0)}
POLES = {"lat": xs.BSpline(9, domain=(-90, 90)), "lon": xs.BSpline(12, period=360.0)}
TREND = POLES | {"time": xs.Polynomial(1)}
TRUTHS = {
    "smooth": lambda a, b: 15 * np.cos(a) ** 2 + 2 * np.cos(a) * np.cos(b),
    "cone": lambda a, b: (
        15 * np.cos(a) + 0 * b
    ),  # as the wind of a solid rotation, with no tangent plane at a pole
}


def on_grid(truth: str, gaps: float = 0.0) -> xr.DataArray:
    """The same field at all times, with noise."""
    rng = np.random.default_rng(0)
    values = TRUTHS[truth](np.deg2rad(GRID["lat"])[:, None], np.deg2rad(GRID["lon"]))
    values = values + rng.normal(0, 0.05, (6, *values.shape))
    values[rng.random(values.shape) < gaps] = np.nan
    return xr.DataArray(values, GRID, list(GRID), name="u")


class Constrained:
    """Penalised least squares over all functions that are single-valued at the poles, in NumPy."""

    def __init__(
        self, space: xs.Space, data: xr.DataArray, strength: float, beside: np.ndarray | None = None
    ) -> None:
        names = [name for name in ("lat", "lon", "time") if name in data.dims]
        values = data.transpose(*names).values
        designs = [f.design(GRID[name]) for f, name in zip(space.features, names, strict=False)]
        designs += [np.ones((len(GRID[name]), 1)) for name in names[len(designs) :]]
        single = functions_of_one_place(space)
        self.rows = functools.reduce(np.kron, designs) @ single
        seen = np.isfinite(values.ravel())
        rough = xs.Roughness({"sphere": strength}, geometry="sphere").gram(space)
        rough = Gram(rough.terms[:3]).to_dense(space.frame)
        self.penalty = single.T @ rough @ single
        if beside is not None:
            self.rows = np.column_stack([self.rows, beside])
            self.penalty = np.pad(self.penalty, (0, 1))
        y = values.ravel()[seen]
        self.matrix = self.rows[seen].T @ self.rows[seen] + self.penalty
        self.c = np.linalg.solve(self.matrix, self.rows[seen].T @ y)
        self.deviance = np.sum((y - self.rows[seen] @ self.c) ** 2) + self.c @ self.penalty @ self.c
        self.n = len(y)
        self.shape, self.dims = values.shape, names

    @property
    def errors(self) -> np.ndarray:
        """Those of the values over σ."""
        return np.sqrt(np.sum(self.rows * np.linalg.solve(self.matrix, self.rows.T).T, axis=1)).reshape(
            self.shape
        )

    @property
    def likelihood(self) -> float:
        """The restricted one, as its negative logarithm; constants alone cost nothing."""
        penalised = np.linalg.eigvalsh(self.penalty)[1:]
        both = np.linalg.slogdet(self.matrix)[1] - np.sum(np.log(penalised))
        return ((self.n - 1) * np.log(self.deviance) + both) / 2


@pytest.mark.parametrize("strength", [1e-3, 1e-6])
@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize(
    "space, gaps", [(TREND, 0.0), (TREND, 0.3), (POLES, 0.3)], ids=["product", "gaps", "batch"]
)
def test_one_value_at_a_pole_is_a_constraint_of_the_fit(
    space: dict, gaps: float, truth: str, strength: float
) -> None:
    """Values, errors and draws are those of least squares, however weak the penalty and far the data."""
    data = on_grid(truth, gaps)
    field = data.spline.fit(space, penalty=xs.Roughness(strength, geometry="sphere"))
    predicted = field.predict(data, stderr=True)
    drawn = field.sample(400, seed=0).predict(data.isel(time=[0])).std("sample")
    for t in range(6 if space is POLES else 1):
        own = {"time": t} if space is POLES else {}
        reference = Constrained(field.space, data.isel(own), strength)
        sigma = float(field.summary().sigma.isel(own))
        values, errors = (
            predicted[name].isel(own).transpose(*reference.dims).values for name in ("u", "u_stderr")
        )
        exact = sigma * reference.errors
        assert errors == pytest.approx(exact, rel=1e-3)
        assert (
            np.abs(values - (reference.rows @ reference.c).reshape(values.shape)).max() < 0.02 * exact.min()
        )
    spread = drawn / predicted.u_stderr.isel(time=[0])
    assert 0.8 < float(spread.min()) and float(spread.max()) < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("truth", TRUTHS)
def test_the_likelihood_knows_the_constraint_at_poles(truth: str) -> None:
    data = on_grid(truth).isel(time=0)
    field = data.spline.fit(POLES, penalty=xs.Roughness("reml", geometry="sphere"))
    chosen = np.log(field.summary()["lambda"].item())
    best = minimize_scalar(
        lambda rho: Constrained(field.space, data, np.exp(rho)).likelihood, (chosen - 1, chosen + 1)
    )
    assert chosen == pytest.approx(best.x, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("dim", ["lon", "time"])
def test_offsets_of_holders_know_the_constraint_at_poles(dim: str, truth: str) -> None:
    """One holder has half of the places, or half of the times."""
    data = on_grid(truth)
    later = data[dim] >= data[dim][data.sizes[dim] // 2]
    data = data + 0.5 * later
    space = POLES | {"time": None}
    parts = [
        data.isel({dim: own}).rename("u").spline.statistics(space, holder=h)
        for h, own in (("a", ~later), ("b", later))
    ]
    field = (parts[0] + parts[1]).solve(
        xs.Roughness(1e-6, geometry="sphere"), reference="a", offsets="holders"
    )
    beside = later.broadcast_like(data).transpose("lat", "lon", "time").values.ravel()
    reference = Constrained(field.space, data, 1e-6, beside)
    offset, stderr = (float(field.offsets[name][1]) for name in ("offset", "stderr"))
    assert offset == pytest.approx(reference.c[-1], abs=0.1 * stderr)


@pytest.mark.slow
def test_iterations_choose_what_a_factorisation_chooses() -> None:
    rng = np.random.default_rng(0)
    lat, lon, time = np.arange(-85, 90, 10.0), np.arange(0, 360, 15.0), np.arange(24.0)
    a, b, t = np.meshgrid(np.deg2rad(lat), np.deg2rad(lon), time, indexing="ij")
    values = np.cos(a) ** 2 * np.sin(3 * a) * np.cos(2 * b + t / 4) + np.cos(a) * np.sin(b) * np.cos(t / 3)
    values = np.where(rng.random(a.shape) < 0.3, np.nan, values + 0.3 * rng.standard_normal(a.shape))
    data = xr.DataArray(values, {"lat": lat, "lon": lon, "time": time}, ["lat", "lon", "time"], name="u")
    bases = {"lat": xs.BSpline(10, domain=(-90, 90)), "lon": 12, "time": 9}
    penalty = xs.Roughness("reml", geometry="sphere")
    exact, iterated = (data.spline.fit(bases, penalty=penalty, solver=s) for s in (None, "iterative"))
    apart = np.log(iterated.summary()["lambda"] / exact.summary()["lambda"])
    error = iterated.fits["u"].choice["error"]
    assert set(error) == {"sphere", "time"}
    assert all(abs(float(apart.sel(penalised=name))) < 4 * x for name, x in error.items())
    at = {"lat": [0.0, 80.0, 90.0], "lon": [0.0, 90.0], "time": [5.5]}
    first, second = (field.predict(at, stderr=True) for field in (exact, iterated))
    assert float(abs(first.u - second.u).max()) < 0.1 * float(first.u_stderr.min())
    assert second.u_stderr.values == pytest.approx(first.u_stderr.values, rel=0.25)  # 200 draws


@pytest.mark.simulation
def test_errors_near_a_pole_are_those_at_the_equator() -> None:
    """The ratio of prediction errors at 75° and at the equator, over 32 fields; without the geometry over 8."""
    bases = {"lat": xs.BSpline(16, domain=(-90, 90)), "lon": xs.BSpline(24, period=360.0)}
    squares: dict[str | None, list[tuple[float, float]]] = {"sphere": [], None: []}
    lon = np.arange(0, 360, 10.0)
    for seed in range(32):
        truth = RandomField(seed, length=27.0, degrees=18)
        data, sigma = observed(truth, seed, n=700)
        for geometry, own in squares.items() if seed < 8 else [("sphere", squares["sphere"])]:
            field = data.spline.fit(bases, fine=False, penalty=xs.Roughness("reml", geometry=geometry))
            at = np.array([-78, -75, -72, -3, 0, 3, 72, 75, 78.0])
            apart = field.predict({"lat": at, "lon": lon}).values - truth(at[:, None], lon)
            by_place = np.mean(apart**2, axis=1) / sigma**2
            own.append((float(by_place[[0, 1, 2, 6, 7, 8]].mean()), float(by_place[3:6].mean())))
    ratios = {g: np.sqrt(np.divide(*np.mean(own, axis=0))) for g, own in squares.items()}
    assert 0.9 < ratios["sphere"] < 1.1, ratios
    assert ratios[None] > 1.5, ratios


@pytest.mark.slow
@pytest.mark.parametrize("in_tiles", [False, True])
def test_a_wind_over_a_pole_is_predicted_there(monkeypatch: pytest.MonkeyPatch, in_tiles: bool) -> None:
    """Its northward component follows the longitude at a pole; noise, and a temperature, do not."""
    monkeypatch.setattr("xspline.labels.fine.tiles.is_large", lambda observed: in_tiles)
    rng = np.random.default_rng(0)
    lat, lon = np.arange(-90, 91, 5.0), np.arange(0, 360, 10.0)
    a, b = np.deg2rad(lat)[:, None], np.deg2rad(lon)
    wind = 8 * np.sin(a) * np.cos(b) + 5 * np.cos(2 * a) * np.cos(3 * a)
    data = xr.DataArray(wind, {"lat": lat, "lon": lon}, ["lat", "lon"], name="v")
    withheld = rng.random(wind.shape) < 0.1
    field = data.where(~withheld).spline.fit(seconds=3)
    places = field.fits["v"].fine.members[0].places
    assert places.tube > 0
    polar = points(data, withheld & (abs(lat) > 80)[:, None])
    assert float(np.sqrt(((field.predict(polar) - polar) ** 2).mean())) < 0.1
    if not in_tiles:
        warm = 10 * np.cos(a) + rng.normal(0, 1, wind.shape)
        assert data.copy(data=warm).spline.fit(seconds=3).fits["v"].fine.members[0].places.tube == 0


@pytest.mark.slow
def test_a_wind_whose_latitudes_end_beside_the_poles_is_as_smooth_as_it_is() -> None:
    """Its longitudes meet there, and it was taken for rough everywhere: errors were half as large as the noise."""
    lat, lon = np.arange(-87.5, 88, 5.0), np.arange(0, 360, 5.0)
    a, b = np.deg2rad(lat)[:, None], np.deg2rad(lon)
    waves = 2 * np.sin(a) * np.cos(a) ** 2 - np.sin(a) ** 3
    warm = 10 * np.sin(a) ** 2 + 3 * np.cos(a) * np.cos(b) + 3 * np.cos(a) ** 2 * np.sin(a) * np.sin(2 * b)
    noise = np.random.default_rng(0).normal(0, 0.5, (lat.size, lon.size))
    for true, is_wind in ((20 * np.cos(a) - 1.57 * np.cos(b) * waves, True), (warm, False)):
        truth = xr.DataArray(true, {"lat": lat, "lon": lon}, ["lat", "lon"], name="u")
        field = (truth + noise).spline.fit(seconds=3)
        assert (field.fits["u"].fine.first.places.tube > 0) == is_wind
        assert float(np.sqrt(((field.predict(truth) - truth) ** 2).mean())) < 0.15


@pytest.mark.slow
def test_a_season_that_follows_the_longitude_does_no_harm_at_the_poles() -> None:
    """Its splines have many values at a pole, where the data have one at each time."""
    rng = np.random.default_rng(0)
    lat, lon = np.arange(-90, 91, 10.0), np.arange(0, 360, 10.0)
    time = np.arange("2000-01", "2003-01", dtype="datetime64[M]").astype("datetime64[ns]")
    north, east = np.deg2rad(lat)[:, None], np.deg2rad(lon)
    land = np.cos(north) * np.cos(2 * east + 4 * north) * np.exp(np.sin(3 * east + 2 * north))
    values = 10 + 20 * np.cos(north) + 5 * land * np.cos(np.arange(36) * np.pi / 6)[:, None, None]
    data = xr.DataArray(values, {"time": time, "lat": lat, "lon": lon}, ("time", "lat", "lon"), "t")
    withheld = rng.random(values.shape) < 0.1
    places = points(data, withheld)
    apart = {}
    for name, fit in {
        "bare": {},
        "constant": {"space": dict.fromkeys(data.dims, xs.Polynomial(0)), "fine": True},
    }.items():
        error = data.where(~withheld).spline.fit(**fit).predict(places) - places
        apart[name] = float(np.sqrt((error**2).mean()))
    assert apart["bare"] < 2 * apart["constant"], apart

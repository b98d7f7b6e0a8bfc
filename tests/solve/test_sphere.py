"""Roughness on the sphere: what harmonics cost, that all places are alike, and that a field has one value at a pole."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import sph_harm_y

from tests.reference import gauss
from xspline import Physics
from xspline.solve import Roughness, SpaceTime, factorise
from xspline.solve.costs import Resources
from xspline.solve.families.sphere import OnSphere
from xspline.solve.penalties.sphere import factors, single_valued, sphere_of
from xspline.spaces import Axis, Basis, BSpline, Fourier, Polynomial, Space
from xspline.sums import Gram
from xspline.sums.integrals import integral

Floats = np.ndarray
UNIT = Roughness({"sphere": 1.0}, geometry="sphere")
GLOBE = Space({"lat": BSpline(14, domain=(-90, 90)), "lon": BSpline(12, period=360.0)})
WAVES = Space({"lat": BSpline(12, domain=(-90, 90)), "lon": Fourier(3, 360.0)})
OCEAN = Space({"lat": BSpline(8, domain=(20, 65)), "lon": BSpline(9, domain=(-80, 10))})
BAND = Space({"lat": BSpline(9, domain=(-60, 60)), "lon": BSpline(12, period=360.0)})
YEARS = Space(
    {"lat": BSpline(7, domain=(-90, 90)), "lon": BSpline(7, period=360.0), "t": BSpline(6, domain=(0, 1))}
)


def masses(space: Space) -> Gram:
    """The mean over the sphere of u²."""
    sphere = sphere_of(space, "a test")
    own = [integral(space, j, 0) for j in range(len(space.names))]
    own[sphere.latitude] = factors(space, sphere)[1]
    return Gram((tuple(own),))


def coefficients(space: Space, u: Callable[[Floats, Floats], Floats]) -> Floats:
    """Those of the nearest function of latitude and longitude."""
    sphere = sphere_of(space, "a test")
    span = math.degrees(sphere.width)
    labels = [np.linspace(*space.features[0].domain, 300), np.linspace(0, span, 300)]
    c = u(*np.meshgrid(*labels, indexing="ij"))
    for j, (f, x) in enumerate(zip(space.features, labels, strict=True)):
        c = np.moveaxis(np.tensordot(np.linalg.pinv(f.design(x)), c, axes=(1, j)), 0, j)
    return c


@pytest.mark.parametrize("lon", [Fourier(8, 360.0), BSpline(48, 5, period=360.0)], ids=["waves", "spline"])
@pytest.mark.parametrize("l, m", [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 0), (4, 3), (6, 5)])
def test_a_harmonic_costs_its_eigenvalue_squared(lon: Basis, l: int, m: int) -> None:  # noqa: E741
    space = Space({"lat": BSpline(44, 5, domain=(-90, 90)), "lon": lon})
    c = coefficients(space, lambda a, b: sph_harm_y(l, m, np.deg2rad(90 - a), np.deg2rad(b)).real)
    rough, mass = (float(gram.form(c, space.frame)) for gram in (UNIT.gram(space), masses(space)))
    assert rough / mass == pytest.approx((l * (l + 1)) ** 2, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("space", [BAND, OCEAN], ids=["circle", "part"])
def test_it_is_the_integral_of_hessian_and_gradient(space: Space) -> None:
    c = np.random.default_rng(0).standard_normal(space.shape)
    (south, north), closed = space.features[0].domain, space is BAND
    west, east = (0.0, 360.0) if closed else space.features[1].domain
    (lat, w_lat), (lon, w_lon) = gauss(np.linspace(south, north, 61)), gauss(np.linspace(west, east, 73))
    designs = [
        [f.design(x, k) * (180 / np.pi) ** k for k in range(3)]
        for f, x in zip(space.features, (lat, lon), strict=True)
    ]
    d = {(i, j): designs[0][i] @ c @ designs[1][j].T for i in range(3) for j in range(3)}
    cos, tan = (f(np.deg2rad(lat))[:, None] for f in (np.cos, np.tan))
    squares = d[2, 0] ** 2 + 2 * ((d[1, 1] + tan * d[0, 1]) / cos) ** 2 + d[1, 0] ** 2 + (d[0, 1] / cos) ** 2
    squares += (d[0, 2] / cos**2) ** 2 + (tan * d[1, 0]) ** 2 - closed * 2 * d[0, 2] / cos**2 * tan * d[1, 0]
    weights = w_lat[:, None] * cos * w_lon
    mean = np.sum(squares * weights) / np.sum(weights)
    assert float(UNIT.gram(space).form(c, space.frame)) == pytest.approx(mean, rel=1e-6)


def test_what_is_known_is_the_same_at_all_latitudes() -> None:
    """Of observations spread evenly over the sphere; along latitude and longitude apart it is not."""
    space = Space({"lat": BSpline(25, domain=(-90, 90)), "lon": BSpline(36, period=360.0)})
    variances = []
    for penalty in (Roughness({"sphere": 1e-3}, geometry="sphere"), Roughness({"lat": 1e-5, "lon": 1e-5})):
        pairs = factorise(masses(space), penalty.gram(space), space).inverse_pairs()
        variances.append(np.array([_variance(pairs, space, lat) for lat in (0.0, 40.0, 60.0, 80.0, 88.0)]))
    sphere, plane = (v / v[0] for v in variances)
    assert sphere == pytest.approx(np.ones(5), rel=0.05)
    assert plane[3] > 2


def _variance(pairs: Floats, space: Space, lat: float) -> float:
    """φᵀZφ at a latitude and longitude 0."""
    values = pairs
    for f, x in zip(space.features, (lat, 0.0), strict=True):
        (row,) = f.design(np.array([x]))
        products = np.stack([row * np.roll(row, -o) for o in range(f.offsets)], axis=1)
        values = np.tensordot(products, values, axes=((0, 1), (0, values.ndim // 2)))
    return float(values)


@pytest.mark.parametrize("space", [GLOBE, WAVES, OCEAN, YEARS], ids=["circle", "waves", "part", "time"])
def test_the_log_determinant_is_that_of_the_eigenvalues(space: Space) -> None:
    family = OnSphere(space, space.names, 1e4)
    frame, values = space.frame, []
    for rho in np.random.default_rng(1).uniform(-2, 2, (2, len(family.parameters))):
        matrix = family.penalty(rho).gram(space).to_dense(frame)
        eigenvalues = np.linalg.eigvalsh(matrix)
        assert eigenvalues[family.null - 1] < 1e-9 * eigenvalues[-1]
        own = family.log_determinant(rho, Resources.here())
        exact = float(np.sum(np.log(eigenvalues[family.null :])))
        assert own.value == pytest.approx(exact, abs=1e-3)
        values.append((rho, own))
        step = 1e-5
        for j, slope in enumerate(family.design.T @ own.gradient):
            ends = (
                family.log_determinant(rho + x * np.eye(len(rho))[j], Resources.here()).value
                for x in (step, -step)
            )
            assert slope == pytest.approx(np.subtract(*ends) / (2 * step), rel=1e-5)


@pytest.mark.parametrize("space", [GLOBE, WAVES, OCEAN, YEARS], ids=["circle", "waves", "part", "time"])
def test_solvers_agree(space: Space) -> None:
    rng = np.random.default_rng(2)
    gram = Gram((tuple(integral(space, j, 0) for j in range(len(space.names))),))
    rhs = gram.matvec(rng.standard_normal(space.shape), space.frame)
    penalty = Roughness(1e-3, geometry="sphere").gram(space)
    dense = np.linalg.solve((gram.to_dense(space.frame) + penalty.to_dense(space.frame)), rhs.ravel())
    for solver in ("dense", "banded", "dissection", "iterative"):
        c = factorise(gram, penalty, space, solver).solve(rhs)
        assert c.ravel() == pytest.approx(dense, rel=1e-6, abs=1e-7), solver


@pytest.mark.parametrize("space", [GLOBE, WAVES, YEARS], ids=["circle", "waves", "time"])
def test_poles_have_one_value_and_one_tangent_plane(space: Space) -> None:
    sphere = sphere_of(space, "a test")
    c = single_valued(np.random.default_rng(4).standard_normal((*space.shape, 2)), space, sphere)
    turn = np.linspace(0, 2 * np.pi, 90)
    around = space.features[1].design(np.rad2deg(turn))
    plane = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    for pole in (-90.0, 90.0):
        value, slope = (
            np.tensordot(
                around, np.tensordot(space.features[0].design(np.array([pole]), k)[0], c, axes=1), axes=1
            ).reshape(90, -1)
            for k in (0, 1)
        )
        assert np.ptp(value, axis=0).max() < 1e-12
        left = slope - plane @ np.linalg.lstsq(plane, slope)[0]
        assert np.abs(left).max() < (1e-12 if space is WAVES else 2e-3) * np.abs(slope).max()
    assert single_valued(c, space, sphere) == pytest.approx(c, abs=1e-12)


def test_radians_are_the_same_sphere() -> None:
    turn = math.pi / 180
    axes = {"lat": Axis(role="latitude", units="radians"), "lon": Axis(role="longitude", units="radians")}
    bases = {"lat": BSpline(14, domain=(-90 * turn, 90 * turn)), "lon": BSpline(12, period=360 * turn)}
    one, other = (UNIT.gram(space).to_dense(space.frame) for space in (GLOBE, Space(bases, axes=axes)))
    assert other == pytest.approx(one, rel=1e-9, abs=1e-9 * np.abs(one).max())


LAT, LON = BSpline(8, domain=(-90, 90)), BSpline(12, period=360.0)
WRONG = {
    "none of the coordinates x, y is a latitude.*name it 'lat'": ({"x": LAT, "y": LON}, {}),
    "none of the coordinates lat, x is a longitude.*standard_name='longitude'": ({"lat": LAT, "x": LON}, {}),
    "2 of the coordinates lat, y, lon is a latitude": (
        {"lat": LAT, "y": LAT, "lon": LON},
        {"y": Axis(role="latitude")},
    ),
    "the units of 'lat' are 'm', no angle": (
        {"lat": LAT, "lon": LON},
        {"lat": Axis(role="latitude", units="m")},
    ),
    "the basis of 'lat' is Polynomial.*takes a B-spline": (
        {"lat": Polynomial(2, domain=(0, 1)), "lon": LON},
        {},
    ),
    "'lat' reaches 95.0, beyond the pole at 90.0": ({"lat": BSpline(8, domain=(-90, 95)), "lon": LON}, {}),
    "the basis of 'lon' is Fourier.* alone": (
        {"lat": LAT, "lon": Fourier(1, 360.0) + BSpline(8, domain=(0, 360))},
        {},
    ),
    "'lon' are 180° long, and a circle has 360°; pass a period": (
        {"lat": LAT, "lon": BSpline(12, period=180.0)},
        {},
    ),
    "'lon' are 400° long.*at most 360°": ({"lat": LAT, "lon": BSpline(12, domain=(0, 400))}, {}),
    "derivatives up to order 1, not 2": ({"lat": BSpline(8, 1, domain=(0, 60)), "lon": LON}, {}),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_sphere_is_refused(message: str) -> None:
    bases, axes = WRONG[message]
    with pytest.raises(ValueError, match=message):
        UNIT.gram(Space(bases, axes=axes))


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown geometry 'ball'; pass 'sphere'"):
        Roughness(1.0, geometry="ball")
    with pytest.raises(ValueError, match="on the sphere roughness is of order 2, not 1"):
        Roughness(1.0, order=1, geometry="sphere")
    with pytest.raises(ValueError, match=r"'lat' has no strength of its own.*pass \{'sphere': 0.5\}"):
        Roughness({"lat": 0.5}, geometry="sphere").gram(GLOBE)
    with pytest.raises(ValueError, match="no coordinate 'time' in this space"):
        Roughness({"time": 0.5}, geometry="sphere").gram(GLOBE)
    with pytest.raises(ValueError, match="no coordinate 'sphere' in this space"):
        Roughness({"sphere": 0.5}).gram(GLOBE)
    with pytest.raises(ValueError, match="SpaceTime: its norm in space is that of a plane"):
        SpaceTime(time=Roughness("reml", geometry="sphere"))
    with pytest.raises(ValueError, match="strengths of a Roughness alone, on no sphere"):
        Roughness("reml", geometry="sphere") + Physics("u_t = D * u_xx", known={"D": 1.0})
    with pytest.raises(ValueError, match="are to be chosen by 'reml' from data"):
        Roughness("reml", geometry="sphere").gram(GLOBE)
    part = Space({"lat": BSpline(60, domain=(-60, 60)), "lon": BSpline(60, domain=(0, 200))})
    with pytest.raises(ValueError, match="lat and lon have 60 × 60 functions on a part of a circle, too"):
        OnSphere(part, part.names)

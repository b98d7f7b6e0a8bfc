"""Roughness over a sea against quadrature on a fine mesh, its determinant, and how far land parts waters."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from tests.reference import gauss
from xspline.solve import Resources, Roughness
from xspline.solve.families.orders import OverSea
from xspline.solve.penalties.sea import Sea
from xspline.spaces import Axis, BSpline, Fourier, Polynomial, Space

from .cases import close


def mask_of(values: np.ndarray, **labels: np.ndarray) -> xr.DataArray:
    return xr.DataArray(values, labels, list(labels))


def plane(degree: int = 3, per_cell: float = 3, **cells: int) -> Space:
    bases = {n: BSpline(int(k * per_cell) + degree, degree, domain=(0, k)) for n, k in cells.items()}
    return Space(bases, axes={n: Axis() for n in bases})


def middles(n: int) -> np.ndarray:
    return np.arange(n) + 0.5


def two_basins() -> xr.DataArray:
    values = np.ones((5, 4), bool)
    values[2] = False
    return mask_of(values, x=middles(5), y=middles(4))


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("along", ["x", "y"])
def test_the_penalty_is_the_integral_over_the_sea(order: int, along: str) -> None:
    """Gauss quadrature between all knots and borders of cells."""
    space = Space(
        {"y": BSpline(8, domain=(0, 3)), "x": BSpline(7, 2, domain=(0.5, 5))}, axes={"x": Axis(), "y": Axis()}
    )
    rng = np.random.default_rng(0)
    mask = mask_of(rng.random((6, 3)) < 0.6, x=np.array([0.0, 1.0, 2.0, 3.0, 4.0, 6.0]), y=middles(3))
    at, scale = {}, {}
    for name, (lo, hi) in {"x": (0.5, 5.0), "y": (0.0, 3.0)}.items():
        edges = np.unique(
            np.concatenate([space.features[space.names.index(name)].edges, np.arange(lo, hi + 0.1, 0.5)])
        )
        at[name], weights = gauss(edges, 4)
        scale[name] = weights / (hi - lo)
    sea = mask.sel(x=at["x"], y=at["y"], method="nearest").transpose("y", "x").values
    designs = [
        f.design(at[n], order if n == along else 0) * np.ptp(f.ends) ** (order if n == along else 0)
        for n, f in zip(space.names, space.features, strict=True)
    ]
    phi = np.kron(designs[0], designs[1])
    expected = phi.T @ (phi * (sea * np.outer(scale["y"], scale["x"])).reshape(-1, 1))
    own = Roughness({along: 2.0}, order, where=mask).gram(space).to_dense(space.frame)
    assert close(own, 2 * expected, 30 * Sea.land)


def test_sea_everywhere_is_the_plain_roughness() -> None:
    space = plane(x=5, y=4)
    everywhere = mask_of(np.ones((5, 4), bool), x=middles(5), y=middles(4))
    own, plain = (
        p.gram(space).to_dense(space.frame) for p in (Roughness(1.0, where=everywhere), Roughness(1.0))
    )
    assert close(own, plain, 10 * Sea.land)


SPACES = {
    "time between": {
        "t": BSpline(4, domain=(0, 1)),
        "y": BSpline(5, domain=(0, 4)),
        "s": Fourier(1, period=1.0),
        "x": BSpline(8, 2, domain=(0, 5)),
    },
    "events": {
        "x": BSpline(7, 2, domain=(0, 5)),
        "y": BSpline(4, 2, domain=(0, 4)),
        "t": Polynomial(1, domain=(0, 1)) + Fourier(1, period=0.4) + BSpline(6, degree=2, domain=(0, 1)),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(SPACES))
@pytest.mark.parametrize("order", [1, 2])
def test_the_determinant_is_that_of_the_eigenvalues(kind: str, order: int) -> None:
    space = Space(SPACES[kind], axes={n: Axis() for n in SPACES[kind]})
    names = tuple(n for n in space.names if n != "s")
    family = OverSea(space, names, order, Sea.of(two_basins()))
    rho = np.linspace(-0.5, 0.7, len(family.parameters))

    def value(rho: np.ndarray) -> float:
        matrix = family.penalty(rho).gram(space).to_dense(space.frame).reshape(space.size, -1)
        values = np.linalg.eigvalsh(matrix)
        assert values[family.null - 1] < 1e-14 * values[-1] < values[family.null]
        return float(np.sum(np.log(values[family.null :])))

    known = family.log_determinant(rho, Resources.here())
    assert known.value == pytest.approx(value(rho), abs=1e-3)
    steps = 1e-2 * np.eye(len(rho))
    slopes = [(value(rho + e) - value(rho - e)) / 2e-2 for e in steps]
    np.testing.assert_allclose(known.gradient, slopes, rtol=1e-4, atol=1e-2)
    assert np.sum(known.gradient) == pytest.approx(space.size - family.null, rel=1e-6)


# --- walls


@pytest.mark.parametrize(
    ("degree", "per_cell", "parted"),
    [(1, 1, True), (2, 1, False), (2, 2, True), (3, 2, False), (3, 3, True), (4, 3, False), (4, 4, True)],
)
def test_a_wall_parts_where_it_holds_as_many_intervals_as_the_degree(
    degree: int, per_cell: int, parted: bool
) -> None:
    tied, seen, place = Sea.of(two_basins()).straddling(plane(degree, per_cell, x=5, y=4))
    assert (tied == 0) == parted
    assert parted or (0 < tied < seen and abs(place["x"] - 2.5) < 1)


def test_land_at_corners_is_no_wall() -> None:
    values = ~np.eye(6, dtype=bool)
    space = plane(x=6, y=6)
    corners = Sea.of(mask_of(values, x=middles(6), y=middles(6)))
    closed = Sea.of(mask_of(values & ~np.eye(6, k=1, dtype=bool), x=middles(6), y=middles(6)))
    assert corners.straddling(space)[0] > 0 == closed.straddling(space)[0]


def test_an_island_in_reach_ties_nothing() -> None:
    values = np.ones((6, 6), bool)
    values[3, 3] = False
    sea = Sea.of(mask_of(values, x=middles(6), y=middles(6)))
    assert sea.straddling(plane(3, 0.5, x=6, y=6))[0] == 0


# --- longitudes


def globe(shift: float, flip: bool = False) -> xr.DataArray:
    lon, lat = np.arange(5.0, 360, 10), np.arange(-85.0, 90, 10)
    sea = (np.cos(np.deg2rad(lon[:, None] - 20)) > 0.2) | (lat > 30)
    mask = mask_of(sea, lon=(lon + shift) % 360 - shift, lat=lat).sortby("lon")
    return mask.isel(lat=slice(None, None, -1)) if flip else mask


@pytest.mark.parametrize(
    "basis", [BSpline(36, domain=(-180, 180)), BSpline(36, 2, period=360.0), BSpline(12, domain=(-30, 30))]
)
def test_longitudes_are_places_on_a_circle(basis: BSpline) -> None:
    space = Space({"lat": BSpline(9, domain=(-90, 90)), "lon": basis})
    own = [
        Roughness(1.0, where=globe(shift, flip))
        for shift, flip in ((0.0, False), (180.0, True), (180.0, False))
    ]
    grams = [p.gram(space).to_dense(space.frame) for p in own]
    assert close(grams[0], grams[1], 1e-12) and close(grams[0], grams[2], 1e-12)
    assert own[1] == own[2] != own[0]
    ties = {p.where.straddling(space)[:2] for p in own if p.where is not None}
    assert len(ties) == 1

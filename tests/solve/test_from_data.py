"""From observations through the kernels to coefficients."""

from __future__ import annotations

import numpy as np
import pytest

from xspline.kernels import Block, Group, Layout, accumulate
from xspline.solve import Ridge, Roughness, solve
from xspline.spaces import Axis, BSpline, Fourier, Polynomial, Space
from xspline.sums import Sums

from .cases import close, kron

SPACE = Space(
    {
        "lat": BSpline(6, domain=(-30.0, 30.0)),
        "lon": BSpline(9, period=360.0),
        "time": Fourier(1, period=1.0) + Polynomial(1, domain=(0.0, 3.0)),
    },
    axes={"lat": Axis(), "lon": Axis(), "time": Axis()},
)
LAYOUT = Layout((Group((0,), (2,)), Group((1,), (0,)), Group((2,), (1,))), ())
COORDINATES = np.linspace(-30, 30, 13), np.arange(0, 360, 15.0), np.linspace(0, 3, 20)


def observations(missing: str) -> np.ndarray:
    """Values [time, lat, lon], with missing ones."""
    rng = np.random.default_rng(0)
    y = 280 + rng.normal(size=(20, 13, 24))
    if missing == "land":
        y[:, 3:6, 4:8] = np.nan
    if missing == "clouds":
        y[rng.random(y.shape) < 0.3] = np.nan
    return y


def sums_of(y: np.ndarray, start: int = 0) -> Sums:
    lat, lon, time = COORDINATES
    here = (lat, lon, time[start : start + len(y)])
    return accumulate(Block(y, here, (), (start, 0, 0), None), LAYOUT, SPACE)


@pytest.mark.parametrize(
    ("missing", "penalty", "solver"),
    [
        ("nothing", Ridge(0.1), "spectral"),
        ("land", Ridge(0.1), "separable"),
        ("clouds", Ridge(0.1), "banded"),
        pytest.param("land", Ridge(0.01) + Roughness(0.1), "banded", marks=pytest.mark.slow),
    ],
)
def test_a_grid_and_its_merged_blocks(missing: str, penalty: Ridge, solver: str) -> None:
    y = observations(missing)
    phi = kron([f.design(x) for f, x in zip(SPACE.features, COORDINATES, strict=True)])
    values = y.transpose(1, 2, 0).ravel()
    seen = np.isfinite(values)
    matrix = phi[seen].T @ phi[seen] + penalty.gram(SPACE).to_dense(SPACE.frame)
    expected = np.linalg.solve(matrix, phi[seen].T @ values[seen])
    merged = Sums.merge([sums_of(y[:7]), sums_of(y[7:], 7)], SPACE.frame)
    for sums in (sums_of(y), merged):
        for name in (solver, "dense"):
            solution = solve(sums, SPACE, penalty, name)
            fitted = phi @ solution.coefficients.ravel()
            assert close(fitted[seen], (phi @ expected)[seen], 1e-12)
            assert np.isclose(solution.rss, np.sum((values - phi @ expected)[seen] ** 2), rtol=1e-10)
    assert solve(merged, SPACE, penalty).factorisation.choice.name in (solver, "dense")

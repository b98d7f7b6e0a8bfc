"""Band storage and the factorisations of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xspline.solve.direct.band import band, narrowest
from xspline.solve.direct.cholesky import BandCholesky, BatchCholesky
from xspline.spaces import Space

from .cases import gaps, rngs, spaces


def unpacked(stored: np.ndarray) -> np.ndarray:
    """The symmetric matrix of a band [P, u + 1]."""
    size, width = stored.shape
    out = np.zeros((size, size))
    for r in range(width):
        j = np.arange(size - r)
        out[j + r, j] = out[j, j + r] = stored[: size - r, r]
        assert not stored[size - r :, r].any()
    return out


def random_band(rng: np.random.Generator, size: int, width: int, members: int) -> np.ndarray:
    """Positive definite bands, badly scaled."""
    out = rng.normal(size=(size, width, members))
    out[:, 0] = 3.0 * width
    for r in range(1, width):
        out[size - r :, r] = 0
    scale = 10.0 ** rng.uniform(-4, 4, size)
    for r in range(width):
        out[: size - r, r] *= (scale[: size - r] * scale[r:])[:, None]
    return out


@given(space=spaces, rng=rngs)
def test_a_band_holds_the_matrix(space: Space, rng: np.random.Generator) -> None:
    case, gram = gaps(space, rng, (2,))
    ordering = narrowest(space.frame)
    stored = band(2 * gram.one_factor(space.frame).pairs, ordering)
    permutation = ordering.flatten(np.arange(space.size, dtype=float).reshape(space.shape)).astype(int)
    for b in range(2):
        expected = 2 * case.dense[..., b][np.ix_(permutation, permutation)]
        np.testing.assert_allclose(unpacked(stored[..., b]), expected, atol=1e-12 * expected.max())
    assert [ordering.original(i) for i in range(space.size)] == permutation.tolist()


@given(space=spaces, rng=rngs)
def test_flattening_round_trips(space: Space, rng: np.random.Generator) -> None:
    ordering, v = narrowest(space.frame), rng.normal(size=(*space.shape, 2, 3))
    flat = ordering.flatten(v)
    assert flat.shape == (space.size, 2, 3)
    np.testing.assert_array_equal(ordering.unflatten(flat), v)


shapes = st.tuples(st.integers(1, 90), st.integers(1, 12)).map(lambda s: (s[0], min(s)))


@given(rng=rngs, shape=shapes)
def test_one_band(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    stored = random_band(rng, *shape, 1)[..., 0]
    matrix, factor = unpacked(stored), BandCholesky(stored.copy())
    rhs = rng.normal(size=(shape[0], 3))
    units = np.sqrt(np.diag(matrix))[:, None]  # small entries of x are differences of large ones
    expected = units * np.linalg.solve(matrix, rhs)
    assert factor.determined
    np.testing.assert_allclose(units * factor.solve(rhs), expected, atol=1e-12 * np.abs(expected).max())
    np.testing.assert_allclose(matrix @ factor.solve(rhs), rhs, atol=1e-9)
    assert factor.nbytes > 0


@given(rng=rngs, shape=shapes)
def test_many_bands(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    stored = random_band(rng, *shape, 4)
    cholesky = BatchCholesky(stored.copy())
    rhs, which = rng.normal(size=(shape[0], 6)), np.array([0, 3, 3, 1, 2, 0])
    solved, own = cholesky.solve(rhs, which), cholesky.solve(rhs[:, :4], np.arange(4))
    every = np.arange(shape[1])
    halves, inverse = cholesky.apply_inverse_sqrt(rhs, which), cholesky.inverse(every)
    for b in range(4):
        alone = BandCholesky(stored[..., b].copy())
        np.testing.assert_allclose(solved[:, which == b], alone.solve(rhs[:, which == b]), rtol=1e-9)
        np.testing.assert_allclose(
            halves[:, which == b], alone.apply_inverse_sqrt(rhs[:, which == b]), rtol=1e-9
        )
        np.testing.assert_allclose(own[:, b], alone.solve(rhs[:, [b]])[:, 0], rtol=1e-9)
        np.testing.assert_allclose(inverse[..., b], alone.inverse(every), rtol=1e-8, atol=1e-300)
        np.testing.assert_allclose(cholesky.pivot[b], alone.pivot, rtol=1e-9)
        np.testing.assert_allclose(cholesky.logdet[b], alone.logdet, rtol=1e-9, atol=1e-12)


def test_pivots_do_not_know_units() -> None:
    for scale in (1e-150, 1.0, 1e150):
        assert BandCholesky(np.array([[2.0 * scale**2, scale], [2.0, 0.0]])).pivot == pytest.approx(0.75)


@pytest.mark.parametrize("gap", [0.0, 1e-9, 1e-4])
def test_a_dependent_coefficient_is_found(gap: float) -> None:
    """Coefficient 2 is coefficient 1 but for a gap, whose square is the pivot."""
    rows = np.random.default_rng(0).normal(size=(20, 4))
    rows[:, 2] = rows[:, 1] + gap * rows[:, 3]
    matrix = rows.T @ rows
    stored = np.zeros((4, 4))
    for r in range(4):
        stored[: 4 - r, r] = np.diagonal(matrix, -r)
    systems = BandCholesky(stored.copy()), BatchCholesky(stored[..., None].copy())
    for cholesky in systems:
        assert np.all(cholesky.determined) == (gap == 1e-4)
        # With a pivot of rounding errors the order of the last two is arbitrary.
        assert np.all(np.isin(cholesky.weakest, [2, 3]))

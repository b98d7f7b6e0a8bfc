"""Draws of systems that are solved by iterations: roots of G and Λ, and what a tolerance leaves of a covariance."""

from __future__ import annotations

import numpy as np
import pytest

from tests import scatter
from tests.solve.cases import Case, gaps, grid, space_of, static, with_multiplicity
from tests.solve.test_iterative import roughness
from xspline.solve import Roughness, factorise
from xspline.solve.errors import ConvergenceError
from xspline.spaces import Axis, BSpline, Space


def plane(*sizes: int) -> Space:
    bases = {name: BSpline(k, domain=(0, 1)) for name, k in zip("abc", sizes, strict=False)}
    return Space(bases, axes={name: Axis() for name in bases})


def clouds(space: Space, seed: int = 0, per: float = 2.5) -> Case:
    """A hole over a third of each axis, and a third missing at random."""
    rng = np.random.default_rng(seed)
    xs = tuple((np.arange(int(per * k)) + 0.5) / int(per * k) for k in space.shape)
    w = (rng.random(tuple(map(len, xs))) < 0.67).astype(float)
    w[tuple(slice(n // 4, n // 4 + n // 3) for n in w.shape)] = 0.0
    return Case(space, xs, np.zeros(w.shape), w)


def test_draws_that_would_be_wrong_are_refused() -> None:
    """Fewer observations than coefficients and next to no penalty: what a root of G lacks, nothing makes up for."""
    space = plane(24, 22)
    gram = clouds(space, per=1.2).general()
    for share, refused in ((1e-2, False), (1e-9, True)):
        penalty = roughness(space, gram, share).gram(space)
        draw = factorise(gram, penalty, space, "iterative").draws(np.random.default_rng(0))
        if not refused:
            assert np.isfinite(draw((8,))).all()
            continue
        with pytest.raises(
            ConvergenceError, match=r"times the variance that they should have.*larger penalty"
        ):
            draw((8,))


@pytest.mark.parametrize("structure", [pytest.param("gaps", marks=pytest.mark.slow), "static", "grid"])
def test_draws_have_the_inverse_as_covariance(structure: str) -> None:
    """Whitened by a root of the dense matrix, 1,000 draws have the identity as covariance, up to their scatter."""
    space = space_of("cubic", "linear")
    make = {"gaps": gaps, "static": static, "grid": grid}[structure]
    case, gram = make(space, np.random.default_rng(0), (2,))
    if structure == "grid":
        case, gram = with_multiplicity(case, gram, np.array([1.0, 3.0]))
    penalty = Roughness(0.2, order=1).gram(space)
    n, solver = 1000, "spectral" if structure == "grid" else "iterative"
    draws = factorise(gram, penalty, space, solver).draws(np.random.default_rng(0))((n, 2))
    assert draws.shape == (*space.shape, n, 2)
    for member in range(2):
        matrix = case.dense[..., member] + penalty.to_dense(space.frame)
        white = np.linalg.cholesky(matrix).T @ draws[..., member].reshape(space.size, n)
        off = white @ white.T / n - np.eye(space.size)
        assert np.abs(np.diagonal(off)).max() < scatter.FIVE * np.sqrt(2 / n)
        assert np.abs(off - np.diag(np.diagonal(off))).max() < scatter.FIVE / np.sqrt(n)
        tolerance_of_solves = 0.003
        assert (
            abs(np.diagonal(off).mean())
            < scatter.FIVE * scatter.of_trace(space.size, n) + tolerance_of_solves
        )

"""What a choice of smoothing leaves open where there are no observations, against rows of Φ."""

from __future__ import annotations

import numpy as np
import pytest

from xspline.kernels import Block, Group, Layout, accumulate
from xspline.solve import choose
from xspline.solve.families.orders import SingleOrder
from xspline.solve.smoothing.criteria import Gcv, Holders
from xspline.solve.smoothing.fit import Model, centred
from xspline.solve.smoothing.resolution import cell_variances, gap_error
from xspline.spaces import Axis, BSpline, Fourier, Space
from xspline.sums import Sums

POINTS = Layout((Group((0,), (0, 1)),), ())
PLANE = Space({"a": BSpline(7, domain=(0, 2)), "b": BSpline(10, period=3.0)}, axes={n: Axis() for n in "ab"})
MIXED = Space({"a": BSpline(8, domain=(0, 2)), "b": Fourier(1, period=3.0)}, axes={n: Axis() for n in "ab"})


def observed(space: Space, rows: slice = slice(None)) -> Sums:
    """Noisy observations, none of them with a between 0.9 and 1.7."""
    rng = np.random.default_rng(0)
    a, b, noise = 2 * rng.random(200), 3 * rng.random(200), rng.standard_normal(200)
    a[a > 0.9] = 2 - (a[a > 0.9] - 0.9) / 4
    y = np.sin(3 * a) + np.cos(2 * np.pi * b / 3) + 0.3 * noise
    return accumulate(Block(y[rows], (a[rows], b[rows]), (), (0,)), POINTS, space)


def model_of(space: Space, sums: Sums) -> Model:
    return Model(space, centred(sums, space), SingleOrder(space, "ab" if space is PLANE else "a", 2))


@pytest.mark.parametrize("space", [PLANE, MIXED], ids=["plane", "mixed"])
def test_variances_of_cells_are_those_of_their_middles(space: Space) -> None:
    fit = Gcv(model_of(space, observed(space)), np.full(2 if space is PLANE else 1, -3.0)).fit
    identity = np.eye(space.size).reshape(*space.shape, -1)
    inverse = fit.factorisation.solve(identity).reshape(space.size, -1)
    places = [
        f.edges[:-1] + np.diff(f.edges) / 2 if f.local else np.linspace(0, 3, 60, endpoint=False)
        for f in space.features
    ]
    a, b = (f.design(x) for f, x in zip(space.features, places, strict=True))
    phi = np.einsum("ik,jl->ijkl", a, b).reshape(len(a), len(b), -1)
    expected = np.einsum("ijp,pq,ijq->ij", phi, inverse, phi)
    if space is MIXED:
        expected = expected.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(cell_variances(fit.factorisation.inverse_pairs(), space), expected, rtol=1e-10)


def test_the_variance_in_gaps_is_an_integral() -> None:
    point = Gcv(model_of(PLANE, observed(PLANE)), np.array([-6.0, -2.0]))
    error = gap_error(point.model, point)
    sums, fit = point.model.sums, point.fit
    v = cell_variances(fit.factorisation.inverse_pairs(), PLANE)
    edf = PLANE.size - float(fit.traces.sum())
    variance = float(fit.rss) / (200 - edf)
    gaps = slice(2, 3)  # of four cells along a, each half a unit: from 1 to 1.5
    assert np.isclose(error.share, 0.25) and np.isclose(error.spread, float(sums.power) / 200)
    assert np.isclose(error.gaps, variance * v[gaps].sum() / v.size)


def test_holders_have_the_gaps_of_a_fit_to_all() -> None:
    parts = [observed(PLANE, slice(i, None, 2)) for i in range(2)]
    whole = Sums.merge(parts, PLANE.frame)
    model, rho = model_of(PLANE, whole), np.array([-6.0, -2.0])
    fits = [
        Gcv(model, rho),
        Holders(model, [(model_of(PLANE, p), o) for p, o in zip(parts, parts[::-1], strict=True)], rho),
    ]
    own, held = (gap_error(model, fit) for fit in fits)
    assert own == held


def test_a_choice_says_what_it_would_have_left() -> None:
    chosen = choose(observed(PLANE), PLANE, "gcv")
    assert chosen.gap_error == 0.0  # the gap is narrow

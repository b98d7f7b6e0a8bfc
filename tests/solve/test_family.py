"""REML over `Sobolev` penalties of several orders, against dense matrices; the penalty by quadrature."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import xarray as xr

from tests import reference_reml as reference
from tests.reference import gauss
from xspline.kernels import Block, Group, Layout, accumulate
from xspline.solve import Roughness, Sobolev, choose, solve
from xspline.solve.families.base import Family
from xspline.solve.families.determinant import axis_spectrum
from xspline.solve.families.orders import SeveralOrders, several_orders, smoothed
from xspline.solve.kronecker.product import dense_of
from xspline.solve.smoothing.criteria import Reml
from xspline.solve.smoothing.fit import Model, centred
from xspline.spaces import Axis, BSpline, Space
from xspline.sums import Gram
from xspline.sums.integrals import integral

from .cases import Case, gaps, grid, on, space_of, static
from .test_smoothing import noisy_wave

CASES = {
    "line": (("cubic",), grid),
    "circle": (("circle",), gaps),
    "plane": (("cubic", "uneven"), gaps),
    "static mask": (("cubic", "circle", "season"), static),
    "season between": (("season", "cubic"), gaps),
    "box": (("cubic", "circle", "uneven"), gaps),
}


def family_of(space: Space, orders: tuple[int, ...] = (1, 2)) -> SeveralOrders:
    family = several_orders(space, smoothed(space, "reml"), orders)
    assert family is not None
    return family


def model_of(case: Case, gram: Gram, family: Family) -> Model:
    exact = on(exact_entries=10**9)
    return Model(case.space, centred(case.sums(gram, 0.7), case.space), family, resources=exact)


def dense_reml(case: Case, family: Family, rho: np.ndarray) -> float:
    y, w = (case.flat(x).reshape(len(case.phi), -1) for x in (case.y, case.w))
    terms = family.penalty(rho).gram(family.space).terms
    penalty = sum(Gram((term,)).to_dense(family.space.frame) for term in terms)
    return sum(
        reference.reml(reference.Rows(case.phi, *yw, [penalty]), [0.0]) for yw in zip(y.T, w.T, strict=True)
    )


def assert_scores_are_dense(case: Case, model: Model, rhos: Sequence[np.ndarray]) -> None:
    """1e-8 relative, and the differences between strengths to as much."""
    ours = [Reml(model, rho).value for rho in rhos]
    dense = [dense_reml(case, model.family, rho) for rho in rhos]
    np.testing.assert_allclose(ours, dense, rtol=1e-8)
    np.testing.assert_allclose(np.diff(ours), np.diff(dense), rtol=1e-7, atol=1e-8)


def at(family: Family, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(-2.0, 1.5, len(family.parameters))


@pytest.mark.parametrize("orders", [(1,), (2,), (1, 2)], ids=str)
def test_the_penalty_is_its_integral(orders: tuple[int, ...]) -> None:
    """Σ_k τ_k ∫ |∇^k u|² by quadrature over [0, 1]², ∇_j = √m_j ∂_j."""
    space = space_of("cubic", "circle")
    penalty = Sobolev({k: 0.3 * k for k in orders}, {"a": 1.0, "b": 2.5})
    c = np.random.default_rng(0).normal(size=space.shape)
    x, w = gauss(np.linspace(0, 1, 7))
    total = 0.0
    for k in orders:
        for i in range(k + 1):
            designs = [f.design(x, order) for f, order in zip(space.features, (i, k - i), strict=True)]
            u = np.einsum("xi,yj,ij->xy", *designs, c)
            ways = 2 if (i, k) == (1, 2) else 1
            total += 0.3 * k * ways * 2.5 ** (k - i) * np.einsum("xy,x,y->", u**2, w, w)
    assert np.isclose(np.sum(c * penalty.gram(space).matvec(c, space.frame)), total, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "batch"])
@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_dense_matrices(name: str, batch: tuple[int, ...]) -> None:
    kinds, structure = CASES[name]
    case, gram = noisy_wave(kinds, structure, batch)
    family = family_of(case.space)
    assert_scores_are_dense(case, model_of(case, gram, family), [at(family, seed) for seed in range(3)])


def gram_of(space: Space, j: int) -> np.ndarray:
    """The mass matrix of one coordinate."""
    return dense_of((integral(space, j, 0),), (j,), space.frame)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_choice_is_the_minimum(seed: int) -> None:
    case, gram = noisy_wave(("cubic", "circle"), gaps, seed=seed)
    chosen = choose(case.sums(gram), case.space, "reml")
    family = family_of(case.space)
    assert isinstance(chosen.penalty, Sobolev) and chosen.converged
    rng = np.random.default_rng(seed)
    for _ in range(40):
        rho = np.array([rng.uniform(-16, 8), rng.uniform(-16, 8), rng.uniform(-6, 6)])
        assert dense_reml(case, family, rho) > chosen.score - 1e-4


LINE, GRAM = noisy_wave(("cubic",), grid)
ON_A_LINE = LINE.sums(GRAM), LINE.space


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sobolev({}), "there are no orders; pass penalty=0"),
        (lambda: Sobolev({0: 1.0}), "orders are integers of at least 1, not 0"),
        (lambda: Sobolev([np.timedelta64(1, "s")]), "orders are integers of at least 1, not np.timedelta64"),
        (lambda: Sobolev({1: 1.0}, {"a": 0.0}), "the metric has a positive number for each coordinate"),
        (lambda: Sobolev((1, 2), {"a": 1.0}), "a metric without strengths"),
        (lambda: Roughness("reml", order=0), "a strength of order 0 is not chosen by 'reml'; pass a number"),
        (lambda: Roughness("aic"), "strength='aic' is no criterion; use one of 'reml'"),
        (lambda: Sobolev({1: 1.0}, {"q": 1.0}).gram(space_of("cubic")), r"no coordinate 'q' .* which has a"),
        (lambda: Sobolev({3: 1.0}).gram(space_of("circle")), r"derivatives up to order 2, .* order 3 out"),
        (lambda: Sobolev({1: 1.0}).gram(space_of("trend")), r"smooths B-spline coordinates .* of a has one"),
        (lambda: Sobolev().gram(space_of("cubic")), r"are to be chosen by .* data; pass it to fit or solve"),
        (lambda: choose(*ON_A_LINE, Roughness("reml", order=4)), r"the basis of 'a' has .* order 3, not 4"),
        (lambda: choose(*ON_A_LINE, Sobolev((2,))), "without order 1 straight lines cost nothing"),
        (lambda: Sobolev() + Roughness(1.0), "which chooses a penalty alone and no sum"),
    ],
)
def test_what_makes_no_penalty_says_why(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("noise", [1e-9, pytest.param(0.1, marks=pytest.mark.slow)])
def test_no_strength_is_so_large_that_rounding_moves_the_mean(noise: float) -> None:
    """Noise about a constant: a metric and a strength within their bounds have a product that is not."""
    rng = np.random.default_rng(0)
    space = Space({"a": BSpline(20, domain=(0, 1)), "b": BSpline(20, domain=(0, 1))})
    x, y = rng.random((2, 300))
    values = 3 + noise * rng.normal(size=300)
    sums = accumulate(Block(values, (x, y), (), (0,)), Layout((Group((0,), (0, 1)),), ()), space)
    solution = solve(sums, space, choose(sums, space, "reml").penalty)
    a, b = (f.design(z) for f, z in zip(space.features, (x, y), strict=True))
    left = values - np.einsum("ni,nj,ij->n", a, b, solution.coefficients)
    assert abs(left.mean()) < 1e-5 * noise + 1e-10 and left.std() < 1.2 * noise


@pytest.mark.slow
def test_of_few_noisy_data_the_lower_of_two_minima_is_found_whichever_coordinate_is_first() -> None:
    """One minimum is waves along y, the other a constant in noise, 5.5 higher; each was found in one order."""
    rng = np.random.default_rng(14)
    n = int(rng.integers(40, 300))
    x, y = rng.uniform(0, 1, (2, n))
    kx, ky = rng.uniform(0.5, 3, 2)
    values = rng.choice([0.3, 1, 3]) * np.sin(2 * np.pi * kx * x) * np.cos(2 * np.pi * ky * y)
    coords = {"x": ("o", x), "y": ("o", y)}
    data = xr.DataArray(values + rng.normal(0, 1, n), coords, "o", "v")
    first, second = (data.spline.fit(dict.fromkeys(order, 9)) for order in ("xy", "yx"))
    assert float(first.summary().score) == pytest.approx(148.851, abs=1e-3)
    assert float(second.summary().score) == pytest.approx(148.851, abs=1e-3)


def test_scores_of_batches_compare_only_where_all_members_count() -> None:
    rng, x = np.random.default_rng(0), np.linspace(0, 1, 40)
    values = np.sin(9 * x) + 0.1 * rng.standard_normal((3, 40))
    data = xr.DataArray(values, {"x": x}, ("m", "x"), "v")
    scores = [
        own.spline.fit(x=8, penalty=Roughness("reml", 2)).fits["v"].choice["comparable"]
        for own in (data, data.where((data.m > 0) | (data.x < 0.04)), data.where(data.m > 0))
    ]
    assert np.isfinite(scores).tolist() == [True, False, True]


@pytest.mark.slow
@pytest.mark.parametrize("size", [400, 1000])
def test_fine_splines_keep_their_null_space(size: int) -> None:
    """Rounding errors of the largest eigenvalues exceed the smallest one that is not 0."""
    for basis, null in ((BSpline(size, domain=(0, 1)), 2), (BSpline(size, period=1.0), 1)):
        axis = axis_spectrum(Space({"a": basis}, axes={"a": Axis()}), 0, 2)
        assert axis.null == null and axis.values[null] > 0

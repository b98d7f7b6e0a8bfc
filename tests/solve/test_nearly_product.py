"""Grids whose gaps change a little from time to time: solves, REML, draws and traces against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from tests import scatter
from xspline.solve import ConvergenceError, Roughness, Sobolev, SpaceTime, choose, factorise, solve
from xspline.solve.kronecker.nearly import NearlySeparable
from xspline.solve.kronecker.product import expected
from xspline.spaces import Axis, Basis, BSpline, Fourier, Polynomial, Space
from xspline.sums import Sums

from .cases import Case, on

TIMES: dict[str, Basis] = {
    "short": Fourier(1, period=0.3) + Polynomial(1) + BSpline(7, domain=(0, 1)),
    "in cells": Polynomial(1) + BSpline(18, degree=2, domain=(0, 1)),
}
SLOWER = [False, pytest.param(True, marks=pytest.mark.slow)]
PENALTY = SpaceTime(
    Sobolev({1: 0.3, 2: 0.02}, {"a": 1.0, "b": 2.5}), Roughness({"t": 0.01}, 2) + Roughness({"t": 0.2}, 0)
)


def case_of(kind: str, first: bool = False, missing: float = 0.15, block: bool = False) -> tuple[Case, Sums]:
    """A wave that travels, a season and noise over a circle and a line; a share is missing, or a block of all times."""
    plane = {"a": BSpline(4, degree=2, domain=(0, 1)), "b": BSpline(6, degree=2, period=1.0, domain=(0, 1))}
    bases = {"t": TIMES[kind], **plane} if first else {**plane, "t": TIMES[kind]}
    axes = {n: Axis("number", role="time") if n == "t" else Axis() for n in bases}
    space, rng = Space(bases, axes=axes), np.random.default_rng(5)
    xs = tuple(np.sort(rng.uniform(0, 1, 50 if n == "t" else 11)) for n in space.names)
    along = dict(zip(space.names, np.meshgrid(*xs, indexing="ij"), strict=True))
    w = np.where(rng.uniform(size=along["t"].shape) < missing, 0.0, 1.0)
    if block:
        w[(along["a"] < 0.4) & (along["b"] < 0.4) & (along["t"] < 0.4)] = 0.0
    wave = np.cos(2 * np.pi * (along["b"] + along["t"])) + np.sin(4 * along["a"]) + np.cos(7 * along["t"])
    case = Case(space, xs, wave + 0.3 * rng.normal(size=w.shape), w)
    return case, case.sums(case.general())


def exact_inverse(sums: Sums, space: Space) -> np.ndarray:
    penalty = PENALTY.bound(sums.gram, space).gram(space)
    return np.linalg.inv(sums.gram.to_dense(space.frame) + penalty.to_dense(space.frame))


def nearly(sums: Sums, space: Space) -> NearlySeparable:
    penalty = PENALTY.bound(sums.gram, space).gram(space)
    system = factorise(sums.gram, penalty, space, "nearly_separable").system
    assert isinstance(system, NearlySeparable)
    return system


@pytest.mark.slow
@pytest.mark.parametrize("block", [False, True], ids=["values", "a block"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("kind", TIMES)
def test_solutions_and_traces_are_those_of_dense_matrices(kind: str, first: bool, block: bool) -> None:
    case, sums = case_of(kind, first, block=block)
    space, inverse = case.space, exact_inverse(sums, case.space)
    system = nearly(sums, space)
    h = sums.full_moment(space.frame)
    c = system.solve(h).ravel()
    fields = case.phi @ c, case.phi @ inverse @ h.ravel()
    np.testing.assert_allclose(*fields, rtol=0, atol=1e-7 * abs(fields[1]).max())
    edf = np.trace(inverse @ sums.gram.to_dense(space.frame))
    assert float(system.edf()) == pytest.approx(edf, rel=0.01)
    a, w, b = (x.reshape(space.size, -1) for x in system.probes())
    near = np.linalg.inv(system.near_gram.to_dense(space.frame) + system.penalty.to_dense(space.frame))
    np.testing.assert_allclose(near @ w, a, rtol=0, atol=1e-7 * abs(a).max())
    np.testing.assert_allclose(b, inverse @ w, rtol=0, atol=0.01 * abs(b).max())


@pytest.mark.parametrize("block", SLOWER, ids=["values", "a block"])
def test_draws_have_the_covariance_and_go_with_those_of_the_product(block: bool) -> None:
    """Standard errors from 40 coupled draws are nearer than those of draws alone by far, and exact ones on average."""
    case, sums = case_of("short", block=block)
    space, inverse = case.space, exact_inverse(sums, case.space)
    system, size = nearly(sums, case.space), case.space.size
    x, beside = (d.reshape(size, -1) for d in system.coupled_draws(np.random.default_rng(1))((80,)))
    white = np.linalg.solve(np.linalg.cholesky(inverse), x)
    assert np.mean(white**2) == pytest.approx(1, abs=scatter.FIVE * scatter.of_trace(size, 80))
    near = np.linalg.inv(system.near_gram.to_dense(space.frame) + system.penalty.to_dense(space.frame))
    coupled = np.diag(near) + np.mean(x[:, :40] ** 2 - beside[:, :40] ** 2, axis=1)
    alone = np.mean(x[:, :40] ** 2, axis=1)
    wrong = [np.sqrt(np.mean((v / np.diag(inverse) - 1) ** 2)) for v in (coupled, alone)]
    assert (coupled > 0).all() and wrong[0] < 0.2 * wrong[1]


@pytest.mark.slow
@pytest.mark.parametrize("block", SLOWER, ids=["values", "a block"])
@pytest.mark.parametrize("kind", ["short", pytest.param("in cells", marks=pytest.mark.slow)])
def test_strengths_are_those_of_exact_reml(kind: str, block: bool) -> None:
    """Each log-strength within 0.1, where the product alone is off by more in a block."""
    case, sums = case_of(kind, block=block)
    ours = choose(sums, case.space, SpaceTime(), solver="nearly_separable", resources=on())
    exact = choose(sums, case.space, SpaceTime(), solver="banded", resources=on())
    assert ours.factorisation.choice.name == "nearly_separable" and ours.converged
    assert np.isnan([ours.score, ours.comparable]).all()  # what was searched is no likelihood of the data
    values = []
    for choice in (ours, exact):
        penalty = choice.penalty
        assert isinstance(penalty, SpaceTime)
        metric = penalty.space.metric(Space({n: case.space.basis(n) for n in ("a", "b")}))
        strengths = [p.strength["t"] for p in penalty.time.parts if isinstance(p, Roughness)]  # type: ignore[index,call-overload]
        values.append(
            np.log([*(x for x in penalty.space.orders.values() if x), *metric.values(), *strengths])
        )
    free = np.array([name not in exact.at_bounds for name in ["a", "a", "a", "b", "t", "t"]])
    assert abs(values[0] - values[1])[free].max() < 0.1
    solution = solve(sums, case.space, ours.penalty, None, ours.factorisation)
    other = solve(sums, case.space, exact.penalty, "banded")
    scale = np.sqrt(np.mean(other.coefficients**2))
    assert abs(solution.coefficients - other.coefficients).max() < 0.04 * scale


@pytest.mark.slow
def test_data_far_from_a_product_are_fitted_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places observed one after the other are no product; where iterations give up, "reml" takes another kind."""
    case, _ = case_of("in cells")
    a, _, t = (x.reshape([-1 if i == j else 1 for i in range(3)]) for j, x in enumerate(case.coordinates))
    one_by_one = Case(case.space, case.coordinates, case.y, case.w * (t > a - 0.15) * (t < a + 0.3))
    assert expected(one_by_one.general(), case.space.frame, 2) is None
    sums = case.sums(case.general())
    cheap = on(expected_iterations=0)
    assert choose(sums, case.space, "reml", resources=cheap).factorisation.choice.name == "nearly_separable"
    monkeypatch.setattr("xspline.solve.krylov.MAX_ITERATIONS", 2)
    other = choose(sums, case.space, "reml", resources=cheap)
    assert other.converged and not isinstance(other.penalty, SpaceTime)
    with pytest.raises(ConvergenceError, match="stand at a relative residual"):
        choose(sums, case.space, SpaceTime(), resources=cheap)

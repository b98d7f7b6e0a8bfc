"""The choice of smoothing by iterations: estimates against the exact choice, and what they say of themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests import scatter
from tests.solve.cases import Case, on, product
from xspline.solve import Roughness, Smoothing, choice_for, choose, krylov
from xspline.solve.families.orders import SingleOrder
from xspline.solve.smoothing import choose as smoothing
from xspline.solve.smoothing.criteria import Reml
from xspline.solve.smoothing.fit import Model, centred
from xspline.solve.smoothing.probes import Estimated
from xspline.spaces import Axis, BSpline, Polynomial, Space
from xspline.sums import Factor, Gram, Sums


def cube(*sizes: int) -> Space:
    bases = {name: BSpline(k, domain=(0, 1)) for name, k in zip("abc", sizes, strict=False)}
    return Space(bases, axes={name: Axis() for name in bases})


def waves(space: Space, *, gaps: bool = True, seed: int = 0, noise: float = 0.3) -> tuple[Space, Sums]:
    """Noisy waves on a grid, with a hole and random gaps or full."""
    rng = np.random.default_rng(seed)
    xs = tuple((np.arange(2 * k) + 0.5) / (2 * k) for k in space.shape)
    mesh = np.meshgrid(*xs, indexing="ij")
    y = np.sin(sum((5 + 3 * j) * x for j, x in enumerate(mesh))) + noise * rng.normal(size=mesh[0].shape)
    if not gaps:
        case, gram = product(space, xs, [((j,), np.ones(len(x))) for j, x in enumerate(xs)], rng)
        return space, Case(space, xs, y, np.ones_like(y)).sums(gram)
    w = (rng.random(y.shape) < 0.7).astype(float)
    w[tuple(slice(n // 4, n // 2) for n in y.shape)] = 0.0
    case = Case(space, xs, y, w)
    return space, case.sums(case.general())


def logs(choice: Smoothing, space: Space) -> np.ndarray:
    return np.log(list(choice.penalty.strengths(space).values()))


@pytest.mark.parametrize(("gaps", "solver"), [(True, "iterative"), (False, "spectral")])
def test_estimated_choice_is_the_exact_one_within_its_error(gaps: bool, solver: str) -> None:
    space, sums = waves(cube(11, 12, 10), gaps=gaps)
    exact = choose(sums, space, Roughness("reml"), solver="banded")
    ours = choose(sums, space, Roughness("reml"), solver=solver)
    assert ours.converged and ours.factorisation.choice.name == solver
    error = np.array([ours.error[name] for name in space.names])
    assert (error > 0).all() and (error < (0.05 if gaps else 0.005)).all()
    off = np.abs(logs(ours, space) - logs(exact, space))
    assert (off < scatter.FIVE * error + smoothing.ESTIMATED).all()
    assert math.isnan(ours.score) and not exact.error and math.isfinite(exact.score)


@pytest.mark.slow
def test_other_probes_choose_nearly_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    space, sums = waves(cube(8, 9, 10))
    choices = []
    for seed in (1, 2, 3, 4):
        monkeypatch.setattr(krylov, "SEED", seed)
        choices.append(choose(sums, space, Roughness("reml"), solver="iterative"))
    spread = np.std([logs(choice, space) for choice in choices], axis=0, ddof=1)
    error = np.mean([list(choice.error.values()) for choice in choices], axis=0)
    above = 1 + scatter.FIVE * scatter.of_deviation(len(choices) - 1)
    assert (spread < above * error).all() and (spread > 0).all()
    again = choose(sums, space, Roughness("reml"), solver="iterative")
    assert again.penalty == choices[-1].penalty  # the same probes, the same bits


def test_gradient_and_hessian_are_those_of_reml() -> None:
    space, sums = waves(cube(8, 9, 10))
    model = Model(space, centred(sums, space), SingleOrder(space, space.names, 2))
    rho = np.array([-3.0, -4.0, -5.0])
    ours, exact = (
        Estimated(Model(space, centred(sums, space), SingleOrder(space, space.names, 2), "iterative"), rho),
        Reml(model, rho),
    )
    error = np.sqrt(np.diag(ours.scatter))
    assert (np.abs(ours.gradient - exact.gradient) < scatter.FIVE * error).all()
    scale = np.sqrt(np.diag(exact.hessian))
    assert np.abs((ours.hessian - exact.hessian) / scale / scale[:, None]).max() < 0.15


def test_a_strength_that_makes_no_difference_has_the_score_of_the_exact_choice() -> None:
    """A field that is linear along one coordinate: whatever large strength is chosen, the score is as good."""
    space = cube(9, 10, 8)
    rng = np.random.default_rng(0)
    xs = tuple((np.arange(3 * k) + 0.5) / (3 * k) for k in space.shape)
    a, b, c = np.meshgrid(*xs, indexing="ij")
    y = a + np.sin(7 * b + 4 * c) + 0.1 * rng.normal(size=a.shape)
    w = (rng.random(y.shape) < 0.9).astype(float)
    case = Case(space, xs, y, w)
    sums = case.sums(case.general())
    exact, ours = (choose(sums, space, Roughness("reml"), solver=s) for s in ("banded", "iterative"))
    assert exact.at_bounds == {"a": "upper"} and ours.converged and ours.factorisations < 12
    assert ours.at_bounds == {"a": "upper"} or ours.error["a"] > 0.5
    model = Model(space, centred(sums, space), SingleOrder(space, space.names, 2))
    assert abs(Reml(model, logs(ours, space)).value - exact.score) < 0.2


def test_iterations_choose_where_factorisations_take_long() -> None:
    space, sums = waves(cube(11, 10, 9))
    costly = on(
        iterative_handicap_flops=-1e12,
        coarse_start_flops=1e5,
        max_exact_reml_flops=1e6,
    )
    ours = choose(sums, space, Roughness("reml"), resources=costly)
    exact = choose(sums, space, Roughness("reml"), solver="banded")
    assert ours.factorisation.choice.name == "iterative" and ours.error
    assert "would take longer than iterations" in ours.factorisation.choice.reason
    assert np.abs(logs(ours, space) - logs(exact, space)).max() < 0.1
    assert ours.factorisations <= 5  # coarser exact problems gave the start


def test_gcv_and_several_systems_are_not_estimated() -> None:
    space, sums = waves(cube(6, 6, 6))
    with pytest.raises(ValueError, match="solver='iterative' does not know the inverse"):
        choose(sums, space, "gcv", solver="iterative")
    several = sums.gram.terms[0][0]
    batch = Gram(
        ((type(several)(several.axes, several.window, several.pairs[..., None] * np.array([1.0, 2.0]), 1),),),
        1,
    )
    doubled = Sums(
        sums.window,
        batch,
        np.stack([sums.moment, 2 * sums.moment], axis=-1),
        *(np.stack([x, 2 * x], axis=-1) for x in (sums.power, sums.weight)),
        np.stack([sums.count] * 2, axis=-1),
        np.zeros(2),
    )
    with pytest.raises(ValueError, match="solver='iterative' does not know the inverse"):
        choose(doubled, space, Roughness("reml"), solver="iterative")


def test_a_coordinate_without_a_spline_is_not_smoothed() -> None:
    bases = {
        "a": BSpline(9, domain=(0, 1)),
        "b": BSpline(8, domain=(0, 1)),
        "c": Polynomial(1, domain=(0, 1)),
    }
    space, sums = waves(Space(bases, axes={name: Axis() for name in bases}))
    ours, exact = (choose(sums, space, Roughness("reml"), solver=s) for s in ("iterative", "banded"))
    assert set(ours.error) == {"a", "b"}
    assert (
        np.abs(logs(ours, space) - logs(exact, space))
        < scatter.FIVE * np.array(list(ours.error.values())) + smoothing.ESTIMATED
    ).all()


def test_too_little_memory_for_a_direct_solver_is_the_reason_of_the_choice() -> None:
    space = cube(14, 15, 16)
    pairs = np.ones((*space.shape, *space.offsets))
    gram = Gram(((Factor((0, 1, 2), tuple((0, k) for k in space.shape), pairs, 1),),))
    little = choice_for(gram, "reml", space, resources=on(memory=2e7))
    assert not little.exact and "solve for P = 3360 coefficients needs" in little.memory_refusal
    much = choice_for(gram, "reml", space, resources=on(memory=2e9))
    assert much.exact and not much.memory_refusal

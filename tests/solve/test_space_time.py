"""`SpaceTime` penalties: their definition row by row, and REML by modes of time, against dense matrices."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from xspline.solve import Ridge, Roughness, SingularSystemError, Sobolev, SpaceTime, choose, solve
from xspline.solve.families.base import Family
from xspline.solve.families.modes import SpaceTimes
from xspline.solve.kronecker.separable import Separable
from xspline.solve.smoothing.criteria import Reml
from xspline.solve.smoothing.family import choice_for, family_for
from xspline.spaces import Axis, Basis, BSpline, Fourier, Polynomial, Space
from xspline.sums import Gram
from xspline.sums.integrals import with_events

from .cases import Case, gaps, product
from .test_family import dense_reml, gram_of, model_of

TIMES: dict[str, Basis] = {
    "events": Fourier(1, period=0.3) + Polynomial(1) + BSpline(7, domain=(0, 1)),
    "events in cells": Polynomial(1) + BSpline(16, degree=2, domain=(0, 1)),
    "spline": BSpline(6, domain=(0, 1)),
}
SPACES: dict[str, dict[str, Basis]] = {
    "line": {"a": BSpline(6, degree=2, domain=(0, 1))},
    "plane": {"a": BSpline(4, degree=2, domain=(0, 1)), "b": BSpline(6, degree=2, period=1.0, domain=(0, 1))},
}
# Space, time, whether there is land, whether time comes first
CASES = {
    "line, events": ("line", "events", False, False),
    "line, events in cells": ("line", "events in cells", False, True),
    "plane with land, spline": ("plane", "spline", True, False),
    "plane with land, events": ("plane", "events", True, True),
    "plane, spline": ("plane", "spline", False, False),
}


def case_of(name: str, batch: tuple[int, ...] = (), missing: float = 0.0) -> tuple[Case, Gram]:
    """A wave, a season and noise on a grid with land that stays; a share of times may have no observations."""
    place, kind, land, first = CASES[name]
    bases = {"t": TIMES[kind], **SPACES[place]} if first else {**SPACES[place], "t": TIMES[kind]}
    axes = {n: Axis("number", role="time") if n == "t" else Axis() for n in bases}
    space, rng = Space(bases, axes=axes), np.random.default_rng(3)
    xs = tuple(np.sort(rng.uniform(0, 1, 40 if n == "t" else 9)) for n in space.names)
    shape, time = tuple(map(len, xs)), space.names.index("t")
    others = tuple(j for j in range(len(shape)) if j != time)
    mask = np.ones([shape[j] for j in others])
    if land:
        mask[2:5, 3:6] = 0.0
    weights = rng.uniform(0.5, 2.0, shape[time])
    if missing:
        weights[xs[time] < min(missing, xs[time][-1])] = 0.0
    parts = [((j,), np.ones(shape[j])) for j in others] if not land else [(others, mask)]
    case, gram = product(space, xs, [*parts, ((time,), weights)], rng, batch)
    along = dict(zip(space.names, np.meshgrid(*xs, indexing="ij"), strict=True))
    wave = np.sin(7 * along["a"] + 5 * along["t"]) + np.cos(2 * np.pi * along["t"] / 0.3)
    if "b" in along:
        wave = wave + np.cos(2 * np.pi * (along["b"] + along["t"]))
    y = wave.reshape(wave.shape + (1,) * len(batch)) + 0.3 * case.y
    return Case(space, xs, y, case.w), gram


def family_of(gram: Gram, space: Space) -> SpaceTimes:
    family = family_for(gram, SpaceTime(), space)
    assert isinstance(family, SpaceTimes)
    return family


def rho_of(family: Family, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(-2.5, 1.5, len(family.parameters))


@pytest.mark.parametrize("name", CASES)
def test_the_penalty_is_the_mean_over_observed_times_and_an_integral(name: str) -> None:
    case, gram = case_of(name)
    space = case.space
    c = np.random.default_rng(0).normal(size=space.shape)
    time = space.names.index("t")
    others = [n for n in space.names if n != "t"]
    in_space = Sobolev({1: 0.3, 2: 0.02}, dict(zip(others, (1.0, 2.5), strict=False)))
    in_time = Roughness({"t": 0.01}, 2)
    penalty = SpaceTime(in_space, in_time + Roughness({"t": 0.2}, 0) if with_events(space) else in_time)
    ours = np.sum(c * penalty.bound(gram, space).gram(space).matvec(c, space.frame))
    own = Space({n: space.basis(n) for n in others}, axes={n: space.axis(n) for n in others})
    lambda_x, x, w = in_space.gram(own).to_dense(own.frame), case.coordinates[time], case.w
    weights = w.max(axis=tuple(j for j in range(w.ndim) if j != time))
    fields = np.moveaxis(np.tensordot(c, space.features[time].design(x), axes=(time, 1)), -1, 0).reshape(
        len(x), -1
    )
    expected = np.sum(weights * np.einsum("tp,pq,tq->t", fields, lambda_x, fields)) / np.sum(weights)
    only = Space({"t": space.basis("t")}, axes={"t": space.axis("t")})
    lambda_t = penalty.time.gram(only).to_dense(only.frame)
    mass = functools.reduce(np.kron, [gram_of(space, j) for j in range(len(space.shape)) if j != time])
    series = np.moveaxis(c, time, -1).reshape(-1, c.shape[time])
    expected += np.sum(series * (mass @ series @ lambda_t))
    np.testing.assert_allclose(ours, expected, rtol=1e-10)


@pytest.mark.parametrize("batch", [(), pytest.param((3,), marks=pytest.mark.slow)], ids=["one", "batch"])
@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_dense_matrices(name: str, batch: tuple[int, ...]) -> None:
    """1e-8 relative, and the differences between strengths to as much; by modes of time."""
    case, gram = case_of(name, batch)
    family = family_of(gram, case.space)
    model = model_of(case, gram, family)
    ours, dense = [], []
    for seed in range(3):
        rho = rho_of(family, seed)
        point = Reml(model, rho)
        assert isinstance(point.fit.factorisation.system, Separable)
        ours.append(point.value)
        dense.append(dense_reml(case, family, rho))
    np.testing.assert_allclose(ours, dense, rtol=1e-8)
    np.testing.assert_allclose(np.diff(ours), np.diff(dense), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("missing", [0.0, 0.3], ids=["all times", "times without observations"])
@pytest.mark.parametrize("name", CASES)
def test_solutions_errors_and_traces_are_those_of_dense_matrices(name: str, missing: float) -> None:
    case, gram = case_of(name, (2,), missing)
    space, family = case.space, family_of(gram, case.space)
    penalty = family.penalty(rho_of(family, 2))
    dense = penalty.gram(space).to_dense(space.frame)
    phi, w = case.phi, case.flat(case.w)[:, 0]
    a = (phi.T * w) @ phi + dense
    expected = np.linalg.solve(a, (phi.T * w) @ case.flat(case.y))
    solution = solve(case.sums(gram, 0.7), space, penalty)
    system = solution.factorisation.system
    assert isinstance(system, Separable) and solution.factorisation.choice.name == "separable"
    scale = np.abs(expected).max()
    np.testing.assert_allclose(solution.coefficients.reshape(expected.shape), expected, atol=1e-8 * scale)
    inverse = np.linalg.inv(a)
    edf = np.trace(inverse @ (a - dense))
    np.testing.assert_allclose(solution.factorisation.edf(), edf, rtol=1e-8)
    np.testing.assert_allclose(solution.factorisation.logdet(), np.linalg.slogdet(a)[1], rtol=1e-8)
    pairs = solution.factorisation.inverse_pairs()[..., 0]
    for gram_s in (gram, penalty.gram(space)):
        s = gram_s.to_dense(space.frame).reshape(a.shape)
        trace = np.sum(
            pairs
            * Gram(((gram_s.one_factor(space.frame),),), gram_s.batch_ndim)
            .one_factor(space.frame)
            .pairs.reshape(pairs.shape)
        )
        np.testing.assert_allclose(trace, np.trace(inverse @ s), rtol=1e-8)
    draws = system.apply_inverse_sqrt(np.eye(space.size).reshape(*space.shape, space.size)[..., None])
    root = draws.reshape(space.size, space.size)
    np.testing.assert_allclose(root @ root.T, inverse, atol=1e-8 * np.abs(inverse).max())


@pytest.mark.slow
def test_the_choice_is_the_minimum() -> None:
    case, gram = case_of("line, events")
    chosen = choose(case.sums(gram), case.space, "reml")
    assert isinstance(chosen.penalty, SpaceTime) and chosen.converged
    assert chosen.factorisation.choice.name == "separable"
    family = family_of(gram, case.space)
    rng = np.random.default_rng(0)
    for _ in range(10):
        rho = rng.uniform(-6, 3, len(family.parameters))
        assert dense_reml(case, family, rho) > chosen.score - 1e-4
    assert isinstance(family_for(case.general(), "reml", case.space), SpaceTimes)  # a product, as one factor


def test_times_without_observations_do_not_hide_a_trend() -> None:
    """Season and trend have nothing but data: one observed label does not tell them."""
    case, gram = case_of("plane with land, events", missing=1.0)
    assert np.sum(case.w.max(axis=(1, 2)) > 0) == 1
    with pytest.raises(ValueError, match="the observed labels of 't' do not determine season and trend"):
        choose(case.sums(gram), case.space, SpaceTime())
    penalty = SpaceTime(Sobolev({1: 1.0, 2: 0.1}), Roughness({"t": 1.0}))
    with pytest.raises(SingularSystemError, match="72 of 264 coefficients have no observations"):
        solve(case.sums(gram), case.space, penalty)


PENALTIES = [
    SpaceTime(),
    SpaceTime(Sobolev((1, 3)), Roughness(order=1)),
    SpaceTime(
        Sobolev({1: 0.5, 2: 1e-3}, {"a": 1.0, "b": 3.0}), Roughness({"t": 0.1}) + Roughness({"t": 2.0}, 0)
    ),
]


def test_gaps_of_their_own_are_refused() -> None:
    case, _ = gaps(case_of("line, events")[0].space, np.random.default_rng(0))
    a, t = case.coordinates
    turns = case.w * ((a[:, None] < 0.5) == (t < 0.5))  # one half is seen, then the other
    general = Case(case.space, case.coordinates, case.y, turns).general()
    for penalty in (SpaceTime(), PENALTIES[2]):
        with pytest.raises(
            ValueError, match=r"the same gaps and weights at all labels of 't' .*, and they differ"
        ):
            choice_for(general, penalty, case.space)
    with pytest.raises(ValueError, match=r"which statistics know; call penalty\.bound\(gram, space\) first"):
        SpaceTime(Sobolev({1: 1.0}), Roughness({"t": 1.0})).gram(case.space)
    ridge = SpaceTime(Sobolev({1: 1.0}), Roughness({"t": 1.0})) + Ridge(1.0)
    with pytest.raises(ValueError, match="the same gaps and weights"):
        ridge.bound(general, case.space)


def test_what_is_missing_is_named() -> None:
    case, gram = case_of("line, events")
    plain = Space({n: case.space.basis(n) for n in "at"} | {"b": Polynomial(1, domain=(0, 1))})
    low = Space(
        {"a": BSpline(6, degree=1, domain=(0, 1)), "t": TIMES["spline"]},
        axes={"a": Axis(), "t": Axis("number", role="time")},
    )
    nowhere = Space({"a": BSpline(6, domain=(0, 1)), "b": TIMES["spline"]}, axes={"a": Axis(), "b": Axis()})
    for space, match in (
        (plain, "smooths all coordinates, of which one is time, and 'b' has no B-spline"),
        (low, r"degrees of at least its orders \(1, 2\).*the degrees are a 1"),
        (nowhere, "of the coordinates a, b none is known to be time"),
        (Space({"t": TIMES["events"]}), "there is none beside 't'"),
    ):
        with pytest.raises(ValueError, match=match):
            family_for(gram, SpaceTime(), space)
    elsewhere = SpaceTime(Sobolev({1: 1.0}), Roughness({"z": 1.0}))
    with pytest.raises(ValueError, match="no coordinate 'z' in this space, which has a, t"):
        elsewhere.bound(gram, case.space)
    with pytest.raises(TypeError, match="space is a Sobolev penalty and time a Roughness"):
        SpaceTime(Roughness(1.0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="either all strengths are given or all are chosen by 'reml'"):
        SpaceTime(Sobolev({1: 1.0}))
    with pytest.raises(ValueError, match="the roughness of one coordinate, here of all B-splines"):
        SpaceTime(Sobolev({1: 1.0}), Roughness(1.0))

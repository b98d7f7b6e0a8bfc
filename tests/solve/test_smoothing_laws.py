"""Answers at the ends of the scale, batches, holders, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests import reference_reml as reference
from xspline.kernels import Block, Group, Layout, accumulate
from xspline.solve import Roughness, SingularSystemError, choose, solve
from xspline.solve.smoothing.choose import CLOSE
from xspline.spaces import Axis, BSpline, Fourier, Polynomial, Space
from xspline.sums import Sums

from .cases import Case, gaps, on
from .test_smoothing import (
    LINE,
    METHODS,
    PLANE,
    derivatives,
    noisy_wave,
    rows_of,
    scattered,
    strengths,
    summed,
)

ALL = ["reml", "gcv", "holders"]


def on_line(
    values: Any, space: Space = LINE, n: int = 120, inside: tuple[float, float] = (0.0, 1.0)
) -> tuple[Sums, np.ndarray, np.ndarray]:
    """Sums of values at random places of a line, a function of them and of random numbers; the places and values."""
    rng = np.random.default_rng(2)
    x = inside[0] + (inside[1] - inside[0]) * rng.random(n)
    y = values(x, rng)
    return accumulate(Block(y, (x,), (), (0,)), Layout((Group((0,), (0,)),), ()), space), x, y


@pytest.mark.parametrize("method", METHODS)
def test_noise_about_a_line_leaves_the_line(method: str) -> None:
    """Noise about a line: nothing but the line is left."""
    sums, x, y = on_line(lambda x, rng: 3 + 2 * x + rng.normal(size=x.size))
    chosen = choose(sums, LINE, Roughness(method))
    assert chosen.at_bounds == {"a": "upper"} and chosen.converged
    assert chosen.factorisations <= (10 if method == "reml" else 120)  # several starts
    solution = solve(sums, LINE, chosen.penalty)
    assert abs(solution.factorisation.edf() - 2) < 1e-3
    rest = np.linalg.lstsq(np.column_stack([np.ones(x.size), x]), y, rcond=None)[1]
    assert np.isclose(solution.rss, rest[0], rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_spline_without_noise_is_reproduced(method: str) -> None:
    """Data in the space itself: the less smoothing the better."""
    c = np.random.default_rng(0).normal(size=LINE.size)
    sums, *_ = on_line(lambda x, rng: 280 + LINE.features[0].design(x) @ c)
    chosen = choose(sums, LINE, Roughness(method))
    fit = solve(sums, LINE, chosen.penalty).coefficients
    np.testing.assert_allclose(fit, c + 280, atol=1e-4)
    assert chosen.converged


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [0.0, 1.0, 288.15])
def test_a_constant_is_reproduced(value: float, method: str) -> None:
    sums, *_ = on_line(lambda x, rng: np.full(x.size, value))
    chosen = choose(sums, LINE, Roughness(method))
    assert np.isfinite(chosen.score)
    np.testing.assert_allclose(solve(sums, LINE, chosen.penalty).coefficients, value, rtol=1e-10)


@pytest.mark.slow
def test_a_coordinate_that_is_straight_is_at_its_upper_bound() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 500))
    block = Block(np.sin(9 * x) + 0.3 * rng.normal(size=500), (x, y), (), (0,))
    chosen = choose(accumulate(block, Layout((Group((0,), (0, 1)),), ()), PLANE), PLANE, Roughness("reml"))
    assert chosen.at_bounds == {"b": "upper"}
    assert abs(chosen.gradient["a"]) < 1e-3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("members", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_members_that_are_not_determined_are_left_out(method: str, members: int) -> None:
    """One without observations, and one with no more than straight lines need."""
    case, _ = noisy_wave(("uneven",), gaps, (members,))
    w = case.w.copy()
    w[:, 1], w[:, 2] = 0.0, 0.0
    w[:2, 2] = 1.0
    case = replace(case, w=w)
    others = [b for b in range(members) if b not in (1, 2)]
    rest = Case(case.space, case.coordinates, case.y[:, others], w[:, others])
    assert np.allclose(
        strengths(case, case.general(), method), strengths(rest, rest.general(), method), atol=1e-4
    )
    score, rows = choose(case.sums(case.general()), case.space, Roughness(method)), rows_of(rest)
    rho = np.log([score.penalty.strengths(case.space)["a"]])
    assert np.isclose(score.score, reference.score(rows, rho, method), rtol=1e-8)


def parts_of(space: Space, count: int, n: int = 300) -> tuple[list[Sums], list[tuple[np.ndarray, ...]]]:
    """Sums of holders about references of their own, and their observations as rows."""
    block = scattered(space, n)
    slices = [slice(i, None, count) for i in range(count)]
    parts = [summed(block, space, s).recentred(10.0 * i, space.frame) for i, s in enumerate(slices)]
    phi = np.einsum(
        "na,nb->nab", *(f.design(x) for f, x in zip(space.features, block.coordinates, strict=True))
    )
    rows = phi.reshape(n, -1), block.values, block.weights[0][1]
    return parts, [tuple(a[s] for a in rows) for s in slices]


def predicted(rows: list[tuple[np.ndarray, ...]], space: Space, rho: np.ndarray) -> float:
    """Mean squared error of refits without each holder, by dense normal equations."""
    names = Roughness(1.0).strengths(space)
    smooth = Roughness(dict(zip(names, np.exp(rho), strict=True))).gram(space).to_dense(space.frame)
    error = 0.0
    for h, (phi, y, w) in enumerate(rows):
        others = [row for i, row in enumerate(rows) if i != h]
        matrix = sum(((p * v[:, None]).T @ p for p, _, v in others), start=smooth)
        c = np.linalg.solve(matrix, sum(p.T @ (v * x) for p, x, v in others))
        error += np.sum(w * (y - phi @ c) ** 2)
    return float(error / sum(w.sum() for _, _, w in rows))


@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_holders_are_predicted_by_the_others(count: int) -> None:
    parts, rows = parts_of(PLANE, count)
    chosen = choose(Sums.merge(parts, PLANE.frame), PLANE, Roughness("holders"), parts=parts)
    rho = np.log(list(chosen.penalty.strengths(PLANE).values()))
    assert np.isclose(chosen.score, predicted(rows, PLANE, rho), rtol=1e-9)
    expected = derivatives(lambda r: predicted(rows, PLANE, r), rho, 1e-3)
    np.testing.assert_allclose(list(chosen.gradient.values()), expected, atol=1e-7)
    for shift in 0.3 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]):
        assert predicted(rows, PLANE, rho + shift) >= chosen.score
    # Several starts, one of them by REML.
    assert chosen.converged and chosen.factorisations <= 80 * count + 10


@pytest.mark.slow
def test_holders_may_have_few_observations_or_none() -> None:
    """A holder of one observation determines nothing itself; one without any does not matter."""
    block = scattered(PLANE, 200)
    pieces = [slice(0, 1), slice(1, 80), slice(80, 200)]
    parts = [summed(block, PLANE, piece) for piece in pieces]
    chosen = choose(summed(block, PLANE), PLANE, Roughness("holders"), parts=parts)
    nothing = Sums.zero(PLANE.frame)
    again = choose(summed(block, PLANE), PLANE, Roughness("holders"), parts=[*parts[:2], nothing, parts[2]])
    assert again.penalty == chosen.penalty and again.score == chosen.score


@pytest.mark.parametrize("method", ALL)
def test_a_space_without_splines_is_refused(method: str) -> None:
    space = Space({"t": Fourier(2, period=1.0) + Polynomial(1, domain=(0, 1))}, axes={"t": Axis()})
    sums, *_ = on_line(lambda x, rng: rng.normal(size=x.size), space)
    message = (
        f"penalty='{method}' smooths coordinates with a B-spline, and none of t has one; pass penalty=0 for least "
        "squares, or a number for a ridge"
    )
    with pytest.raises(ValueError, match=message):
        choose(sums, space, Roughness(method), parts=[sums, sums])


def test_splines_of_degree_0_are_refused() -> None:
    space = Space({"a": BSpline(5, degree=0, domain=(0, 1))}, axes={"a": Axis()})
    sums, *_ = on_line(lambda x, rng: rng.normal(size=x.size), space)
    with pytest.raises(
        ValueError, match="the B-spline of 'a' has degree 0 and no roughness to smooth; use degree 1"
    ):
        choose(sums, space, Roughness("reml"))


@pytest.mark.parametrize("method", ["reml", "gcv"])
def test_fewer_observations_than_the_null_space_are_refused(method: str) -> None:
    block = scattered(PLANE, 4)
    with pytest.raises(
        ValueError,
        match=r"needs more observations than the 4 functions that have no roughness, and there are 4; use",
    ):
        choose(summed(block, PLANE), PLANE, Roughness(method))


@pytest.mark.parametrize("method", ["reml", "gcv"])
def test_all_weight_in_one_cell_is_continued_as_a_line(method: str) -> None:
    """What the cell says is smoothed, and continued as a straight line."""
    sums, *_ = on_line(lambda x, rng: 1 + x + 0.1 * rng.normal(size=x.size), inside=(0.4, 0.45))
    fit = solve(sums, LINE, choose(sums, LINE, Roughness(method)).penalty).coefficients
    assert np.abs(np.diff(fit, 2)).max() < 0.2


def test_a_single_holder_is_refused() -> None:
    parts, _ = parts_of(PLANE, 1)
    with pytest.raises(
        ValueError,
        match=r"needs two or more with observations, not 1; pass holder=labels .*, or penalty='reml'",
    ):
        choose(parts[0], PLANE, Roughness("holders"), parts=[*parts, Sums.zero(PLANE.frame)])


def test_a_holder_that_the_others_cannot_do_without_is_named() -> None:
    block = scattered(PLANE, 100)
    parts = [summed(block, PLANE, slice(0, 2)), summed(block, PLANE, slice(2, 100))]
    with pytest.raises(
        SingularSystemError, match=r"without part 1 the others do not determine the fit: .*pass a larger"
    ):
        choose(Sums.merge(parts, PLANE.frame), PLANE, Roughness("holders"), parts=parts)


@pytest.mark.parametrize(
    "method", ["reml", *(pytest.param(method, marks=pytest.mark.slow) for method in ("holders", "gcv"))]
)
def test_coarser_problems_lead_to_the_same_choice(method: str) -> None:
    """One coordinate with knots to spare, one twice over, and one that cannot be coarsened."""
    space = Space(
        {"a": BSpline(11, domain=(0, 1)), "b": BSpline(19, domain=(0, 1)), "c": Fourier(1, period=1.0)},
        axes={n: Axis() for n in "abc"},
    )
    block = scattered(space, 900, noise=0.5)
    parts = [summed(block, space, slice(i, None, 2)) for i in range(2)]
    plain = choose(summed(block, space), space, Roughness(method), parts=parts)
    levels = choose(
        summed(block, space), space, Roughness(method), parts=parts, resources=on(coarse_start_flops=1e4)
    )
    for name, strength in plain.penalty.strengths(space).items():
        # Each search ends at a step of `CLOSE`; of traces from draws the next one may be as long.
        assert abs(np.log(levels.penalty.strengths(space)[name] / strength)) < 2 * CLOSE


@pytest.mark.slow
@pytest.mark.parametrize("flops", [1e4, None])
def test_observations_that_vary_as_one_count_as_one(flops: float | None) -> None:
    """REML of observations that are there four times is that of each once, with four times the strengths."""
    space = Space({n: BSpline(12, domain=(0, 1)) for n in "ab"}, axes={n: Axis() for n in "ab"})
    block = scattered(space, 400, noise=0.5)
    resources = on(coarse_start_flops=flops) if flops else on()
    once = choose(summed(block, space), space, Roughness("reml"), resources=resources)
    seen = []

    def count(coefficients: np.ndarray) -> float:
        seen.append(coefficients.shape)
        return 4.0

    fourfold = Sums.merge([summed(block, space)] * 4, space.frame)
    alike = choose(fourfold, space, Roughness("reml"), resources=resources, as_one=count)
    assert alike.as_one == 4.0 and seen == [space.shape]
    unaware = choose(fourfold, space, Roughness("reml"), resources=resources)
    for name, strength in once.penalty.strengths(space).items():
        assert abs(np.log(alike.penalty.strengths(space)[name] / strength / 4.0)) < 2 * CLOSE
        assert abs(np.log(unaware.penalty.strengths(space)[name] / strength / 4.0)) > 0.5

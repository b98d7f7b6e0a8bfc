"""The iterative solver: its pieces against their dense definitions, its solutions against the direct ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import scatter
from tests.solve.cases import Case, gaps, moment_of, rngs, roughness, spaces
from xspline.solve import Penalty, Ridge, SingularSystemError, factorise, solve
from xspline.solve.direct.solver import Direct
from xspline.solve.errors import ConvergenceError
from xspline.solve.kronecker.operator import Operator
from xspline.solve.multigrid.solver import Iterative
from xspline.spaces import Axis, Basis, BSpline, Fourier, Polynomial, Space
from xspline.sums import Gram, Sums
from xspline.threads import on_cores


def field(space: Space, rng: np.random.Generator, missing: float = 0.6, per: float = 2.5) -> Sums:
    """Sums of noise on a grid, with a hole over a share of the domain."""
    xs = tuple((np.arange(int(per * k)) + 0.5) / int(per * k) for k in space.shape)
    w = (rng.random(tuple(map(len, xs))) < 0.9).astype(float)
    w[tuple(slice(int(0.1 * n), int((0.1 + missing ** (1 / w.ndim)) * n)) for n in w.shape)] = 0.0
    case = Case(space, xs, rng.normal(size=w.shape), w)
    gram = case.general()
    window = tuple((0, k) for k in space.shape)
    power, weight, count = (np.asarray(np.sum(x)) for x in (w * case.y**2, w, w > 0))
    return Sums(window, gram, moment_of(case), power, weight, count, np.zeros(()))


def cube(size: int, **others: Basis) -> Space:
    bases: dict[str, Basis | int] = {
        "t": BSpline(size, domain=(0, 1)),
        "y": BSpline(size + 1, domain=(0, 1)),
        "x": BSpline(size, period=1.0, domain=(0, 1)),
    }
    return Space(bases | others, axes={name: Axis() for name in bases | others})


@dataclass(frozen=True, eq=False)
class System:
    """G + Λ of a cube with a hole, in all its forms."""

    space: Space
    sums: Sums
    penalty: Gram

    @staticmethod
    def of(size: int, share: float, missing: float = 0.6, **others: Basis) -> System:
        space = cube(size, **others)
        sums = field(space, np.random.default_rng(1), missing)
        return System(space, sums, roughness(space, sums.gram, share).gram(space))

    def solved(self, **options: float) -> Iterative:
        system = Iterative(self.sums.gram, self.penalty, self.space, **options)
        system.solve(self.sums.full_moment(self.space.frame))
        return system

    def direct(self) -> Direct:
        return Direct(self.sums.gram, self.penalty, self.space.frame)


@given(spaces, rngs, st.integers(1, 3))
@settings(max_examples=40)
def test_products_are_those_of_the_gram(space: Space, rng: np.random.Generator, count: int) -> None:
    _, gram = gaps(space, rng)
    operator = Operator(gram.one_factor(space.frame).pairs, space.frame)
    v = rng.normal(size=(*space.shape, count))
    ours = np.moveaxis(operator.matvec(np.moveaxis(v, -1, 0)), 0, -1)
    expected = gram.matvec(v, space.frame)
    assert np.abs(ours - expected).max() <= 1e-13 * np.abs(expected).max()


@pytest.mark.parametrize("share", [1e-2, pytest.param(1e-4, marks=pytest.mark.slow), 1e-6])
def test_solution_is_the_direct_one(share: float) -> None:
    system = System.of(12, share, missing=0.3)
    rhs = system.sums.full_moment(system.space.frame)
    iterative = Iterative(system.sums.gram, system.penalty, system.space, tolerance=1e-12, coarsest=400)
    ours, expected = iterative.solve(rhs), system.direct().solve(rhs)
    assert np.abs(ours - expected).max() < 1e-9 * np.abs(expected).max()
    assert iterative.iterations <= 14


@pytest.mark.slow
@pytest.mark.parametrize(
    "basis", [Fourier(2, period=0.5) + Polynomial(1, domain=(0, 1)), BSpline(6, degree=2, domain=(0, 1))]
)
def test_four_coordinates(basis: Basis) -> None:
    system = System.of(6, 1e-4, s=basis)
    rhs = system.sums.full_moment(system.space.frame)
    iterative = Iterative(system.sums.gram, system.penalty, system.space, tolerance=1e-12, coarsest=400)
    expected = system.direct().solve(rhs)
    assert np.abs(iterative.solve(rhs) - expected).max() < 1e-9 * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("share", [1e-4, 1e-6])
def test_iterations_do_not_grow_with_the_number_of_coefficients(share: float) -> None:
    counts = [System.of(size, share).solved(coarsest=300).iterations for size in (10, 22)]
    assert counts[1] <= 1.5 * counts[0]


@pytest.mark.slow
def test_same_bits_on_any_number_of_threads() -> None:
    system = System.of(16, 1e-4)
    rhs = system.sums.full_moment(system.space.frame)
    ours = []
    for cores in (1, 4):
        with on_cores(cores):
            ours.append(Iterative(system.sums.gram, system.penalty, system.space, coarsest=300).solve(rhs))
    assert np.array_equal(*ours)


@pytest.mark.parametrize("share", [1e-2, pytest.param(1e-4, marks=pytest.mark.slow)])
def test_estimates_from_probes(share: float) -> None:
    system = System.of(11, share)
    ours, direct = system.solved(coarsest=300), system.direct()
    samples = ours.edf_samples()[0]
    error = float(np.std(samples, ddof=1) / math.sqrt(len(samples)) / samples.mean())
    assert 0 < error < 0.02
    assert abs(float(ours.edf()) / float(direct.edf()) - 1) < scatter.FIVE * error


@pytest.mark.parametrize(
    "share", [pytest.param(1e-8, marks=pytest.mark.slow), pytest.param(1e-10, marks=pytest.mark.slow), 1e-12]
)
def test_a_weak_penalty_converges(share: float) -> None:
    space = cube(20)
    sums = field(space, np.random.default_rng(1))
    penalty = roughness(space, sums.gram, share)
    ours, rhs = solve(sums, space, penalty, "iterative").coefficients, sums.full_moment(space.frame)
    image = sums.gram.matvec(ours, space.frame) + penalty.gram(space).matvec(ours, space.frame)
    assert np.linalg.norm(image - rhs) <= 2e-10 * np.linalg.norm(rhs)


@pytest.mark.parametrize(("share", "advice"), [(0.0, "pass a penalty"), (1e-17, "pass a larger penalty")])
def test_too_weak_a_penalty_is_an_error_that_advises_one(share: float, advice: str) -> None:
    space = cube(20)
    sums = field(space, np.random.default_rng(1))
    penalty: Penalty = roughness(space, sums.gram, share) if share else Ridge(0.0)
    with pytest.raises((ConvergenceError, SingularSystemError), match=f"(?i){advice}"):
        solve(sums, space, penalty, "iterative")


def clouds(space: Space, seed: int = 0, per: float = 2.5) -> Case:
    """A hole over a third of each axis, and a third missing at random."""
    rng = np.random.default_rng(seed)
    xs = tuple((np.arange(int(per * k)) + 0.5) / int(per * k) for k in space.shape)
    w = (rng.random(tuple(map(len, xs))) < 0.67).astype(float)
    w[tuple(slice(n // 4, n // 4 + n // 3) for n in w.shape)] = 0.0
    return Case(space, xs, np.zeros(w.shape), w)


def test_draws_that_would_be_wrong_are_refused() -> None:
    """Fewer observations than coefficients and next to no penalty: what a root of G lacks, nothing makes up for."""
    bases = {name: BSpline(k, domain=(0, 1)) for name, k in (("a", 24), ("b", 22))}
    space = Space(bases, axes={name: Axis() for name in bases})
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

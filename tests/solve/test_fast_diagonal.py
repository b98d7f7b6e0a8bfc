"""Full grids with roughness: eigenvectors that precondition, against dense definitions and direct solvers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import scatter
from tests.solve.cases import (
    Case,
    close,
    coordinates_of,
    cube,
    grid,
    moment_of,
    on,
    product,
    rngs,
    roughness,
    space_of,
    spaces,
    weights_of,
)
from xspline.solve import ConvergenceError, Penalty, Roughness, factorise, solve
from xspline.solve.direct.solver import Direct
from xspline.solve.kronecker.pcg import FastDiagonal
from xspline.solve.kronecker.product import product_of
from xspline.solve.select import candidates
from xspline.spaces import Space
from xspline.sums import Gram
from xspline.threads import on_cores

from .test_solvers import penalties, well_posed

many = spaces.filter(lambda space: len(space.names) > 1)


def even(space: Space, per: float = 3.0, gap: tuple[float, float] = (0.0, 0.0)) -> tuple[Case, Gram]:
    """A uniform grid with so many observations for each coefficient, without those of a gap in the first axis."""
    rng = np.random.default_rng(0)
    xs = [(np.arange(int(per * k)) + 0.5) / int(per * k) for k in space.shape]
    xs[0] = xs[0][(xs[0] < gap[0]) | (xs[0] >= gap[1])]
    return product(space, tuple(xs), [((j,), np.ones(len(x))) for j, x in enumerate(xs)], rng)


def system_of(space: Space, gram: Gram, penalty: Penalty) -> FastDiagonal:
    product = product_of(gram, space.frame)
    assert product is not None
    return FastDiagonal(product, penalty.gram(space), space.frame)


# --- solutions


@given(space=many, rng=rngs, kind=st.sampled_from(["roughness", "sum"]))
def test_solution_is_the_dense_one(space: Space, rng: np.random.Generator, kind: str) -> None:
    case, gram = grid(space, rng)
    penalty = penalties(space)[kind]
    assume(well_posed(case, penalty))
    solution = solve(case.sums(gram, 3.0), space, penalty, "spectral")
    factorisation = solution.factorisation
    assert (factorisation.choice.name, factorisation.choice.reason) == ("spectral", "asked for by name")
    c = solution.coefficients.reshape(space.size)
    assert close(case.phi @ c, case.phi @ case.expected(penalty), 1e-7)


@pytest.mark.parametrize(("share", "most"), [(1e-2, 9), (1e-4, 4), (1e-8, 2)])
def test_a_few_iterations_where_observations_are_dense(share: float, most: int) -> None:
    space = cube(14, 16, 12)
    case, gram = even(space)
    penalty = roughness(space, gram, share)
    system, rhs = system_of(space, gram, penalty), moment_of(case)
    ours = system.solve(rhs)
    expected = Direct(gram, penalty.gram(space), space.frame).solve(rhs)
    assert close(ours, expected, 1e-9)
    assert system.iterations <= most


@pytest.mark.slow
def test_a_solve_has_the_same_bits_on_any_number_of_threads() -> None:
    space = cube(60, 52, 50)  # its products are cut into slabs
    case, gram = even(space)
    penalty, rhs = roughness(space, gram, 1e-3), moment_of(case)
    answers = []
    for cores in (1, 4):
        with on_cores(cores):
            answers.append(system_of(space, gram, penalty).solve(rhs))
    assert np.array_equal(*answers)


# --- estimates


@pytest.mark.parametrize("share", [1e-2, 1e-4])
def test_edf_is_estimated_and_what_needs_the_inverse_is_refused(share: float) -> None:
    space = cube(9, 10, 11)
    _, gram = even(space, per=1.5)
    penalty = roughness(space, gram, share)
    ours = system_of(space, gram, penalty)
    direct = Direct(gram, penalty.gram(space), space.frame)
    samples = ours.edf_samples()[0]
    error = float(np.std(samples, ddof=1) / np.sqrt(len(samples)) / samples.mean())
    assert 0 < error < 0.01
    assert abs(float(ours.edf()) / float(direct.edf()) - 1) < scatter.FIVE * error
    factorisation = factorise(gram, penalty.gram(space), space, "spectral")
    for answer in (
        lambda: factorisation.apply_inverse_sqrt(np.zeros(space.shape)),
        factorisation.inverse_pairs,
        factorisation.logdet,
        lambda: factorisation.traces([penalty.gram(space)]),
    ):
        with pytest.raises(ConvergenceError, match=r"not available from iterations: pass solver='banded'"):
            answer()


# --- selection


@pytest.mark.slow
def test_too_many_iterations_fall_through_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    space = cube(12, 12, 12)
    case, gram = even(space, gap=(0.2, 0.7))
    penalty = roughness(space, gram, 1e-2)
    direct = solve(case.sums(gram), space, penalty, "banded")
    costs = on(iterative_handicap_flops=-1e12)
    monkeypatch.setattr("xspline.solve.krylov.MAX_ITERATIONS", 4)
    names = [c.name for c in candidates(gram, penalty.gram(space), space.frame, resources=costs)]
    assert names[0] == "spectral" and set(names[1:]) == {"iterative", "banded", "dissection", "dense"}
    fallback = solve(case.sums(gram), space, penalty, resources=costs)
    assert fallback.factorisation.choice.name in names[1:]
    assert "; spectral did not converge" in fallback.factorisation.choice.reason
    assert close(fallback.coefficients, direct.coefficients, 1e-9)


def test_the_error_reaches_whoever_asks_for_a_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    space = cube(12, 12, 12)
    case, gram = even(space, gap=(0.2, 0.7))
    monkeypatch.setattr("xspline.solve.krylov.MAX_ITERATIONS", 4)
    with pytest.raises(ConvergenceError, match=r"after 4 iterations, 1e-10 was asked for.*a larger penalty"):
        solve(case.sums(gram), space, roughness(space, gram, 1e-2), "spectral")


def test_a_function_with_neither_observations_nor_roughness_is_named() -> None:
    space = space_of("linear", "season")
    rng = np.random.default_rng(0)
    xs = (coordinates_of(space, rng)[0], np.array([0.25, 0.25, 1.0]))
    case, gram = product(space, xs, [((j,), weights_of((len(x),), rng)) for j, x in enumerate(xs)], rng)
    penalty = Roughness({"a": 1.0}, order=1)
    assert not system_of(space, gram, penalty).determined
    with pytest.raises(ValueError, match=r"nearly dependent, most of all the one at a .*, b "):
        solve(case.sums(gram), space, penalty, "spectral")

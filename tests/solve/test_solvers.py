"""Every solver against the dense normal equations, in every structure that it admits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from xspline.solve import SOLVERS, Penalty, Ridge, Roughness, solve
from xspline.solve.direct.lapack import divide, downdate, pbtrf, potrf
from xspline.solve.select import ITERATIVE, NEARLY_SEPARABLE
from xspline.spaces import Space
from xspline.sums import Gram

from .cases import (
    Case,
    close,
    coordinates_of,
    dense_penalty,
    gaps,
    grid,
    on,
    product,
    rngs,
    space_of,
    spaces,
    static,
    weights_of,
)

# Others estimate their edf: test_iterative.py, test_nearly_product.py.
EXACT = tuple(name for name in SOLVERS if name not in (ITERATIVE, NEARLY_SEPARABLE))
STRUCTURES = {"grid": grid, "static": static, "gaps": gaps}


def penalties(space: Space) -> dict[str, Penalty]:
    smooth = {n: 0.01 for n, f in zip(space.names, space.features, strict=True) if f.max_order != 0}
    rough = Roughness(smooth, order=1)
    return {"none": Ridge(0), "ridge": Ridge(0.1), "roughness": rough, "sum": Ridge(0.1) + rough}


def admissible(structure: str, space: Space, kind: str) -> set[str]:
    """What the structure of the weights and the penalty admit."""
    count, found = len(space.names), {"banded", "dissection", "dense"}
    if kind in ("none", "ridge") and structure == "grid" and count > 1:
        found |= {"spectral", "separable"}
    if kind in ("none", "ridge") and structure == "static" and count > 2:
        found.add("separable")
    return found


def check(case: Case, gram: Gram, penalty: Penalty, solver: str | None, tolerance: float = 1e-9) -> str:
    """Predictions, residual sum of squares and edf of one solver against the dense definition."""
    solution = solve(case.sums(gram, 3.0), case.space, penalty, solver)
    assert solution.coefficients.shape == (*case.space.shape, *case.batch)
    c = solution.coefficients.reshape(case.space.size, *case.batch)
    fitted = np.tensordot(case.phi, case.expected(penalty), axes=(1, 0))
    assert close(np.tensordot(case.phi, c, axes=(1, 0)), fitted, tolerance)
    w, y = case.flat(case.w), case.flat(case.y)
    scale = np.sum(w * y**2, axis=0)
    assert close(1 + solution.rss / scale, 1 + np.sum(w * (y - fitted) ** 2, axis=0) / scale, tolerance)
    assert close(np.broadcast_to(solution.factorisation.edf(), case.batch), case.edf(penalty), tolerance)
    assert solution.determined.shape == case.batch
    assert solution.determined.all()
    return solution.factorisation.choice.name


def well_posed(case: Case, penalty: Penalty) -> bool:
    matrix = np.moveaxis(case.dense, (0, 1), (-2, -1)) + dense_penalty(penalty, case.space)
    values = np.linalg.eigvalsh(matrix)
    return bool((values[..., 0] > 1e-8 * values[..., -1]).all())


@pytest.mark.parametrize("kinds", [("none", "ridge"), ("roughness", "sum")])
@given(space=spaces, rng=rngs, structure=st.sampled_from(sorted(STRUCTURES)), data=st.data())
def test_every_solver_is_the_dense_one(
    kinds: tuple[str, str], space: Space, rng: np.random.Generator, structure: str, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(kinds))
    structure = "grid" if len(space.names) < 2 and structure == "static" else structure
    case, gram = STRUCTURES[structure](space, rng)
    penalty = penalties(space)[kind]
    assume(well_posed(case, penalty))
    for solver in EXACT:
        if solver == "spectral" and structure == "grid" and kind in ("roughness", "sum"):
            continue  # iterations: test_fast_diagonal.py
        if solver in admissible(structure, space, kind):
            assert check(case, gram, penalty, solver) == solver
        else:
            with pytest.raises(ValueError, match="leave solver out"):
                solve(case.sums(gram), space, penalty, solver)
    check(case, gram, penalty, None)


@given(rng=rngs, structure=st.sampled_from(sorted(STRUCTURES)), solver=st.sampled_from([None, *EXACT]))
def test_the_reference_does_not_matter(rng: np.random.Generator, structure: str, solver: str | None) -> None:
    space = space_of("linear", "circle", "season")
    case, gram = STRUCTURES[structure](space, rng, (2,))
    assume(solver is None or solver in admissible(structure, space, "ridge"))
    penalty = Ridge(0.3)
    plain = solve(case.sums(gram, 1.5), space, penalty, solver)
    for reference in (1001.5, np.array([-3.0, 1000.0])):
        moved = solve(case.sums(gram, reference), space, penalty, solver)
        assert close(moved.coefficients, plain.coefficients, 1e-10)
        assert close(moved.rss, plain.rss, 1e-7)


def test_a_separable_solve_that_keeps_nothing() -> None:
    space = space_of("linear", "circle", "season")
    case, gram = static(space, np.random.default_rng(6))
    kept = solve(case.sums(gram), space, Ridge(0.1), "separable")
    again = solve(case.sums(gram), space, Ridge(0.1), "separable", resources=on(kept_bytes=0.0))
    assert again.factorisation.system.nbytes == 0 < kept.factorisation.system.nbytes
    np.testing.assert_array_equal(again.coefficients, kept.coefficients)
    for answer in ("edf", "logdet", "inverse_pairs"):
        ours, theirs = (getattr(s.factorisation, answer)() for s in (again, kept))
        np.testing.assert_array_equal(ours, theirs)
    check(case, gram, Ridge(0.1), "separable")


@pytest.mark.parametrize("kept", [0.0, 2000.0, 2.0**28])
def test_same_bits_on_any_number_of_cores(kept: float) -> None:
    space = space_of("linear", "circle", "season")
    case, gram = static(space, np.random.default_rng(6))
    answers = []
    for cores in (1, 3):
        resources = on(cores=cores, threaded_flops=0.0, kept_bytes=kept)
        solution = solve(case.sums(gram), space, Ridge(0.1), "separable", resources=resources)
        own = [solution.factorisation.edf(), solution.factorisation.inverse_pairs()]
        answers.append([solution.coefficients, *own, solution.factorisation.edf()])
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(*answers, strict=True))


@pytest.mark.parametrize("offered", [True, False])
def test_lapack_with_and_without_the_lock(monkeypatch: pytest.MonkeyPatch, offered: bool) -> None:
    if not offered:
        monkeypatch.setattr("xspline.solve.direct.lapack._routine", lambda *args: None)
    rng = np.random.default_rng(0)
    matrix = np.eye(9) * 3 + np.diag(rng.random(8), -1) + np.diag(rng.random(7), -2)
    band = np.zeros((9, 3))
    for r in range(3):
        band[: 9 - r, r] = np.diagonal(matrix, -r)
    lower = np.linalg.cholesky(np.tril(matrix) + np.tril(matrix, -1).T)
    factor = band.copy()
    assert pbtrf(factor) == 0
    for r in range(3):
        np.testing.assert_allclose(factor[: 9 - r, r], np.diagonal(lower, -r), rtol=1e-14)
    band[4, 0] = -1.0
    assert pbtrf(band) == 5
    # Blocks of a larger matrix, as the columns of a front are.
    front = np.asfortranarray(np.vstack([matrix @ matrix.T + np.eye(9), rng.normal(size=(5, 9))]))
    rest, update = front[9:].copy(), np.zeros((5, 5), order="F")
    lower = np.linalg.cholesky(front[:9])
    assert potrf(front[:9]) == 0
    np.testing.assert_allclose(np.tril(front[:9]), lower, rtol=1e-13)
    divide(front[9:], front[:9], transposed=True)
    np.testing.assert_allclose(front[9:], np.linalg.solve(lower, rest.T).T, rtol=1e-11, atol=1e-13)
    downdate(update, front[9:])
    np.testing.assert_allclose(np.tril(update), np.tril(-front[9:] @ front[9:].T), rtol=1e-12)
    divide(front[9:], front[:9], transposed=False)
    np.testing.assert_allclose(front[9:], np.linalg.solve(lower @ lower.T, rest.T).T, rtol=1e-10, atol=1e-13)
    front[2, 2] = -1.0
    assert potrf(front[:9]) == 3


@pytest.mark.parametrize("apart", [0, 1, 2])
@pytest.mark.parametrize("penalty", [Ridge(0.0), Ridge(0.1)])
def test_the_mask_may_span_any_coordinates(apart: int, penalty: Penalty) -> None:
    """The axes of the banded factor need not come first."""
    space, rng = space_of("linear", "circle", "season"), np.random.default_rng(7)
    xs, together = coordinates_of(space, rng), tuple(j for j in range(3) if j != apart)
    mask = weights_of(tuple(len(xs[j]) for j in together), rng)
    case, gram = product(space, xs, [(together, mask), ((apart,), weights_of((len(xs[apart]),), rng))], rng)
    assert check(case, gram, penalty, None) == "separable"


def test_two_factors_over_two_coordinates_each() -> None:
    space, rng = space_of("linear", "circle", "trend", "linear"), np.random.default_rng(8)
    xs = coordinates_of(space, rng)
    parts = [((j, k), weights_of((len(xs[j]), len(xs[k])), rng)) for j, k in ((0, 2), (1, 3))]
    assert check(*product(space, xs, parts, rng), Ridge(0.1), None) == "separable"

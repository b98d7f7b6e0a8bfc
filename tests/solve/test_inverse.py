"""What comes out of A⁻¹: solutions, log-determinants, selected entries, traces and draws."""

from __future__ import annotations

import numpy as np
import pytest

from xspline.solve import Factorisation, Penalty, Ridge, Roughness, factorise
from xspline.solve.direct.band import band, gather_entries, narrowest
from xspline.solve.direct.cholesky import BandCholesky
from xspline.spaces import Axis, BSpline, Space
from xspline.sums import Gram

from .cases import Case, close, dense_penalty, gaps, grid, space_of, static, with_multiplicity

STRUCTURES = {"grid": grid, "static": static, "gaps": gaps}
KINDS = ("linear", "short circle", "trend")
PENALTIES: dict[str, Penalty] = {
    "none": Ridge(0.0),
    "ridge": Ridge(0.1),
    "one": Roughness({"b": 0.2}, order=1),
    "two": Roughness({"a": 0.1, "b": 0.2}, order=1),
    "all": Roughness({"a": 0.1, "b": 0.2, "c": 0.3}, order=1),
}
SEPARABLE = {("static", kind) for kind in ("none", "ridge", "one", "two")} | {
    ("grid", "one"),
    ("grid", "two"),
}


def solvers(structure: str, kind: str) -> list[str]:
    found = ["banded", "dissection", "dense"]
    found += ["spectral"] if structure == "grid" and kind in ("none", "ridge") else []
    return found + (["separable"] if (structure, kind) in SEPARABLE else [])


def check(found: Factorisation, case: Case, penalty: Penalty) -> None:
    """Everything that a factorisation gives, against dense inverses."""
    space, batch = case.space, case.batch
    frame, size = space.frame, space.size
    lifted = dense_penalty(penalty, space).reshape(size, size, *(1 for _ in batch))
    matrix = np.moveaxis(case.dense + lifted, (0, 1), (-2, -1))
    inverse = np.linalg.inv(matrix)
    moment = np.tensordot(case.phi, case.flat(case.w * case.y), axes=(0, 0))
    assert close(
        found.solve(moment.reshape(*space.shape, *batch)).reshape(moment.shape), case.expected(penalty)
    )
    assert close(np.broadcast_to(found.logdet(), batch), np.linalg.slogdet(matrix)[1], 1e-10)
    pairs = np.array([gather_entries(inverse[b], frame) for b in np.ndindex(*batch)])
    expected = np.moveaxis(pairs, 0, -1).reshape(*pairs.shape[1:], *batch)
    shape = (*frame.sizes, *frame.offsets, *batch)
    assert close(np.broadcast_to(found.inverse_pairs(), shape), expected)
    grams = [Roughness({name: 1.0}, order=1).gram(space) for name in space.names]
    grams += [Ridge(1.0).gram(space), Gram(()), grams[0].one_factor(frame)]
    grams[-1] = Gram(((grams[-1],),))
    traces = [
        np.trace(inverse @ g.to_dense(frame), axis1=-2, axis2=-1) if g.terms else 0 * inverse[..., 0, 0]
        for g in grams
    ]
    assert close(np.broadcast_to(found.traces(grams), (len(grams), *batch)), np.array(traces))
    units = np.eye(size).reshape(*space.shape, size, *(1 for _ in batch))
    halves = np.broadcast_to(found.apply_inverse_sqrt(units), (*space.shape, size, *batch)).reshape(
        size, size, *batch
    )
    halves = np.moveaxis(halves, (0, 1), (-2, -1))
    assert close(halves @ np.moveaxis(halves, -2, -1), inverse)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("structure", "kind", "batch"),
    [(s, k, ((), (2,))[(i + j) % 2]) for i, s in enumerate(STRUCTURES) for j, k in enumerate(PENALTIES)],
)
def test_every_solver_gives_what_the_dense_inverse_gives(
    structure: str, kind: str, batch: tuple[int, ...]
) -> None:
    space = space_of(*KINDS)
    case, gram = STRUCTURES[structure](space, np.random.default_rng(0), batch)
    for solver in solvers(structure, kind):
        penalty = PENALTIES[kind]
        check(factorise(gram, penalty.gram(space), space, solver), case, penalty)


@pytest.mark.parametrize("kind", ["none", "ridge", "one"])
@pytest.mark.parametrize("structure", ["grid", "static"])
def test_members_that_differ_by_a_multiplicity(structure: str, kind: str) -> None:
    space = space_of(*KINDS)
    case, gram = STRUCTURES[structure](space, np.random.default_rng(0), (2, 3))
    case, gram = with_multiplicity(case, gram, np.array([[1.0, 0.25, 3.0], [3.0, 1.0, 1.0]]))
    for solver in solvers(structure, kind):
        check(factorise(gram, PENALTIES[kind].gram(space), space, solver), case, PENALTIES[kind])


@pytest.mark.parametrize("members", [2, 40])
@pytest.mark.parametrize("kinds", [("circle",), ("uneven",), ("season",), ("linear", "short circle")])
def test_members_with_gaps_of_their_own(kinds: tuple[str, ...], members: int) -> None:
    space = space_of(*kinds)
    case, gram = gaps(space, np.random.default_rng(0), (members,))
    penalty = Ridge(0.1)
    for solver in ("banded", "dissection", "dense"):
        check(factorise(gram, penalty.gram(space), space, solver), case, penalty)


def test_rounding_errors_die_out_across_a_gap() -> None:
    """In panels narrower than the band, over many rows of coefficients without observations."""
    space = Space(
        {"a": BSpline(90, domain=(0, 1)), "b": BSpline(14, domain=(0, 1))}, axes={n: Axis() for n in "ab"}
    )
    xs = np.linspace(0, 1, 180), np.linspace(0, 1, 28)
    w = np.where((xs[0] > 0.15)[:, None] & (xs[1] > 0.2), 0.0, 1.0)
    matrix = Gram((*Case(space, xs, w, w).general().terms, *Roughness(1e-6).gram(space).terms))
    ordering = narrowest(space.frame)
    factor = BandCholesky(band(matrix.one_factor(space.frame).pairs[..., None], ordering)[..., 0])
    few = np.arange(0, space.size, 70)
    exact = factor.solve(np.eye(space.size)[:, few])[few].diagonal()
    variances = factor.inverse(np.zeros(1, np.int64), limits=(8, 8))[few, 0]
    np.testing.assert_allclose(variances, exact, rtol=1e-8)

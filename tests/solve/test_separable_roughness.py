"""Products whose penalty smooths the coordinates of some factors only: a small system for each eigenvalue."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from xspline.solve import Penalty, Ridge, Roughness, SingularSystemError, factorise
from xspline.spaces import Space

from .cases import (
    BASES,
    Case,
    close,
    coordinates_of,
    product,
    rngs,
    select,
    space_of,
    static,
    weights_of,
    with_multiplicity,
)
from .test_solvers import check, well_posed

SMALL = sorted(set(BASES) - {"cubic", "uneven", "union"})
spaces = (
    st.lists(st.sampled_from(SMALL), min_size=2, max_size=4)
    .map(lambda kinds: space_of(*kinds))
    .filter(lambda space: space.size <= 150)
)


def partition_of(rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    label = rng.integers(count, size=count)
    return [tuple(int(a) for a in np.flatnonzero(label == x)) for x in np.unique(label)]


def smoothed(space: Space, axes: list[int], ridge: bool = False) -> Penalty:
    rough = Roughness({space.names[j]: 0.01 * 3.0**j for j in axes}, order=1)
    return rough + Ridge(0.1) if ridge else rough


@given(space=spaces, rng=rngs, data=st.data())
def test_separable_is_admitted_where_a_factor_is_not_smoothed(
    space: Space, rng: np.random.Generator, data: st.DataObject
) -> None:
    count = len(space.names)
    axes = data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    xs, blocks = coordinates_of(space, rng), partition_of(rng, count)
    parts = [(block, weights_of(tuple(len(xs[j]) for j in block), rng)) for block in blocks]
    case, gram = product(space, xs, parts, rng)
    penalty = smoothed(space, axes)
    assume(well_posed(case, penalty))
    if any(not set(block) & set(axes) for block in blocks):
        assert check(case, gram, penalty, "separable") == "separable"
    else:
        with pytest.raises(ValueError, match="leave solver out"):
            select(gram, penalty.gram(space), space.frame, "separable")


@pytest.mark.parametrize("axes", [[0], [1], [0, 1]])
def test_members_that_differ_by_a_multiplicity_are_solved(axes: list[int]) -> None:
    space, rng = space_of("linear", "circle", "season"), np.random.default_rng(2)
    case, gram = static(space, rng, (2, 3))
    v = np.array([[1.0, 0.0, 3.0], [3.0, 1.0, 1.0]])
    case, gram = with_multiplicity(case, gram, np.where(v > 0, v, 0.5))
    check(case, gram, smoothed(space, axes), "separable")
    _, gram = with_multiplicity(*static(space, np.random.default_rng(2), (2, 3)), v)
    factorisation = factorise(gram, smoothed(space, axes).gram(space), space, "separable")
    np.testing.assert_array_equal(factorisation.determined, v > 0)
    np.testing.assert_array_equal(np.isnan(factorisation.edf()), v == 0)


@pytest.mark.parametrize("solver", [None, "separable", "banded"])
@pytest.mark.parametrize("strength", [1e-3, 1.0, 1e3])
def test_smoothing_space_does_not_determine_too_few_times(solver: str | None, strength: float) -> None:
    """Three times do not determine five waves, however much space is smoothed."""
    space, rng = space_of("linear", "linear", "season"), np.random.default_rng(0)
    xs = (np.linspace(0, 1, 9), np.linspace(0, 1, 9), np.array([0.25, 0.25, 1.0]))
    mask = np.ones((9, 9))
    mask[4, 4] = 0
    case, gram = product(space, xs, [((0, 1), mask), ((2,), np.ones(3))], rng)
    match = (
        r"nearly dependent, most of all the one at a [\d.]+, b [\d.]+, c (x1|cos1|sin1|const); pass a larger"
    )
    with pytest.raises(SingularSystemError, match=match):
        factorise(gram, Roughness({"a": strength, "b": strength}, order=1).gram(space), space, solver)
    assert factorise(gram, Ridge(1e-3).gram(space), space, "separable").determined
    assert isinstance(case, Case)


@pytest.mark.parametrize("solver", ["separable", "banded"])
def test_a_gap_that_smoothing_does_not_bridge_is_singular(solver: str) -> None:
    """No observations along a whole meridian, and smoothing along meridians only."""
    space, rng = space_of("linear", "linear", "season"), np.random.default_rng(0)
    xs = (np.linspace(0, 1, 9), np.linspace(0, 0.3, 9), np.linspace(0, 1, 20))
    _, gram = product(space, xs, [((0, 1), np.ones((9, 9))), ((2,), np.ones(20))], rng)
    with pytest.raises(
        SingularSystemError, match=r"coefficients have no observations, around b 0.66.* to 1;"
    ):
        factorise(gram, Roughness({"a": 1.0}, order=1).gram(space), space, solver)
    assert factorise(gram, Roughness({"b": 1.0}, order=1).gram(space), space, solver).determined


def test_strengths_of_any_size_give_the_log_determinant() -> None:
    """log|A| against the banded one, where the smoothed part is next to nothing and next to everything."""
    space, rng = space_of("linear", "circle", "season"), np.random.default_rng(1)
    _, gram = static(space, rng)
    for strength in (1e-12, 1e-3, 1e3, 1e7):
        penalty = Roughness({"a": strength, "b": 3 * strength}, order=1).gram(space)
        apart, whole = (factorise(gram, penalty, space, name) for name in ("separable", "banded"))
        np.testing.assert_allclose(apart.logdet(), whole.logdet(), rtol=1e-10)
        rough = [Roughness({name: strength}, order=1).gram(space) for name in "ab"]
        np.testing.assert_allclose(apart.traces(rough), whole.traces(rough), rtol=1e-6)
        assert close(apart.inverse_pairs(), whole.inverse_pairs(), 1e-7)

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
    coordinates_of,
    product,
    rngs,
    select,
    space_of,
    weights_of,
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
        with pytest.raises(ValueError, match=r"but the penalty is on all of them|they are one product"):
            select(gram, penalty.gram(space), space.frame, "separable")


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

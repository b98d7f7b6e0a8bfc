"""Systems of a batch whose masks differ in few places: one factorisation, corrected, answers as separate ones would."""

from __future__ import annotations

import numpy as np
import pytest

from xspline.solve import Penalty, Resources, Ridge, Roughness, factorise
from xspline.sums import Gram

from .cases import Case, close, coordinates_of, on, space_of, weights_of

SPACES = [
    ("cubic", "cubic"),
    ("circle", "uneven"),
    ("short circle", "cubic"),
    ("cubic", "season"),
    ("cubic",),
]
MEMBERS = 9


def resources(near: bool) -> Resources:
    """Systems that are small, but not taken for too small to look for differences; or too small always."""
    return on(min_update_flops=0.0 if near else np.inf, max_batched_numbers=0)


def nearly_equal(kinds: tuple[str, ...], seed: int, taken: int = 2) -> tuple[Case, Gram]:
    """Members whose weights are those of the first but for a few places, and two that are the first again."""
    rng, space = np.random.default_rng(seed), space_of(*kinds)
    xs = tuple(
        np.sort(np.concatenate([x, rng.random(4 * k)]))
        for x, k in zip(coordinates_of(space, rng), space.shape, strict=True)
    )
    shape = tuple(map(len, xs))
    w = np.repeat(((rng.random(shape) < 0.9) * weights_of(shape, rng))[..., None], MEMBERS, axis=-1)
    flat = w.reshape(-1, MEMBERS)
    for member in range(1, MEMBERS - 2):
        places = rng.choice(len(flat), 1 + member % (taken + 1), replace=False)
        flat[places, member] = rng.choice([0.0, 1.5], len(places))
    case = Case(space, xs, rng.normal(size=w.shape), w)
    return case, case.general()


PENALTIES = [Ridge(1e-3), Roughness(1e-4, order=1), Ridge(0.0)]


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
@pytest.mark.parametrize("kinds", SPACES, ids="-".join)
def test_every_answer_is_that_of_separate_factorisations(kinds: tuple[str, ...], penalty: Penalty) -> None:
    case, gram = nearly_equal(kinds, 1)
    matrix, space = penalty.gram(case.space), case.space
    found, expected = (
        factorise(gram, matrix, space, "banded", exact=True, resources=resources(r)) for r in (True, False)
    )
    assert found.system.nbytes < expected.system.nbytes
    np.testing.assert_array_equal(found.determined, expected.determined)
    rng = np.random.default_rng(0)
    rhs = rng.normal(size=(*space.shape, 3, MEMBERS))
    # Rounding errors of either grow with the condition of the system.
    dense = np.moveaxis(case.dense, -1, 0) + (matrix.to_dense(space.frame) if matrix.terms else 0.0)
    tolerance = max(1e-10, 1e-15 * np.linalg.cond(dense).max())
    assert close(found.solve(rhs), expected.solve(rhs), tolerance)
    one = rhs[..., :1]
    assert close(found.solve(one), expected.solve(one), tolerance)  # one right-hand side serves all members
    assert close(found.logdet(), expected.logdet(), 1e-10)
    assert close(found.edf(), expected.edf(), 1e-10)
    assert close(found.inverse_pairs(), expected.inverse_pairs(), tolerance)
    grams = [Ridge(2.0).gram(space), Roughness(dict.fromkeys(space.names, 1.0), 1).gram(space)]
    assert close(found.traces(grams), expected.traces(grams), tolerance)


@pytest.mark.parametrize("kinds", SPACES, ids="-".join)
def test_draws_have_the_covariance(kinds: tuple[str, ...]) -> None:
    """Over all columns of the identity, x xᵀ adds up to the inverse."""
    case, gram = nearly_equal(kinds, 2)
    space, size = case.space, case.space.size
    found = factorise(gram, Ridge(1e-2).gram(space), space, "banded", resources=resources(True))
    identity = np.eye(size).reshape(*space.shape, size, 1)
    x = found.apply_inverse_sqrt(identity).reshape(size, size, MEMBERS)
    inverse = np.linalg.inv(np.moveaxis(case.dense, -1, 0) + 1e-2 * np.eye(size))
    assert close(np.einsum("pmb,qmb->bpq", x, x), inverse, 1e-10)

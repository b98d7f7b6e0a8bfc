"""Nested dissection against the dense matrix and the band: everything that a factorisation answers, on any frame."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.sums.cases import frame_of, random_gram
from xspline.solve import Penalty, Ridge, Roughness, factorise
from xspline.solve.direct.band import gather_entries, narrowest, stripes
from xspline.solve.direct.cholesky import BandCholesky
from xspline.solve.direct.dissection import Tree, tree_of
from xspline.solve.direct.fronts import DissectionCholesky
from xspline.solve.kronecker.separable import Separable
from xspline.spaces import Frame
from xspline.sums import Factor
from xspline.threads import on_cores

from .cases import close, on, space_of, static

SHAPES = {
    "plane": (("local", 24, 3), ("local", 21, 3)),
    "globe": (("local", 14, 3), ("circle", 40, 3)),
    "two circles": (("circle", 20, 2), ("circle", 24, 1)),
    "line": (("local", 300, 3),),
    "circle": (("circle", 200, 2),),
    "box": (("local", 8, 1), ("circle", 10, 2), ("local", 7, 1)),
    "beside a season": (("local", 14, 2), ("global", 3, 0), ("local", 13, 1)),
    "steps": (("local", 30, 0), ("circle", 20, 1)),
    "an arrow": (("arrow", 200, 3),),
    "arrow and line": (("arrow", 40, 2), ("local", 12, 1)),
    "circle and arrow": (("circle", 30, 1), ("arrow", 14, 1)),
    "two arrows": (("arrow", 30, 1), ("arrow", 16, 2)),
    "nothing to cut": (("global", 6, 0), ("global", 5, 0)),
}


def dense(pairs: np.ndarray, frame: Frame) -> np.ndarray:
    """The matrix of a pair array, [P, P]."""
    axes, size = tuple(range(len(frame.sizes))), math.prod(frame.sizes)
    return Factor(axes, tuple((0, k) for k in frame.sizes), pairs, 0).to_dense(frame).reshape(size, size)


def positive(rng: np.random.Generator, frame: Frame) -> np.ndarray:
    """A random pair array whose matrix is diagonally dominant, and badly scaled."""
    count = len(frame.sizes)
    pairs = random_gram(rng, frame, terms=2).one_factor(frame).pairs.copy()
    diagonal = pairs[(slice(None),) * count + (0,) * count]
    rows = np.abs(dense(pairs, frame)).sum(axis=1).reshape(frame.sizes)
    diagonal += rows * (1.0 + 10.0 ** rng.uniform(-1, 3, frame.sizes)) + 1e-3
    return pairs


def band_of(pairs: np.ndarray, frame: Frame) -> tuple[BandCholesky, np.ndarray]:
    """The banded factorisation, and the flat index of each of its coefficients."""
    ordering = narrowest(frame)
    out = np.empty((ordering.size, ordering.bandwidth + 1))
    places = ordering.flatten(np.arange(ordering.size, dtype=float).reshape(frame.sizes)).astype(int)
    return BandCholesky.of_stripes(stripes(pairs[..., None], ordering)[..., 0], ordering.rows, out), places


def check(cholesky: DissectionCholesky, matrix: np.ndarray, frame: Frame, rng: np.random.Generator) -> None:
    """All answers against the dense inverse, in units in which the diagonal is 1."""
    units = np.sqrt(np.diag(matrix))
    inverse = np.linalg.inv(matrix / units / units[:, None]) / units / units[:, None]
    assert cholesky.determined and 0 < cholesky.pivot <= 1
    for columns in (1, 20):
        rhs = rng.normal(size=(len(matrix), columns))
        assert close(units[:, None] * cholesky.solve(rhs), units[:, None] * (inverse @ rhs), 1e-12)
    assert cholesky.logdet == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-12, abs=1e-12)
    halves = units[:, None] * cholesky.apply_inverse_sqrt(np.eye(len(matrix)))
    assert close(halves @ halves.T, units * inverse * units[:, None], 1e-12)
    pairs = cholesky.inverse_pairs(narrowest(frame))
    expected = gather_entries(inverse, frame)
    assert pairs.shape == (*frame.sizes, *frame.offsets, 1)
    assert close(pairs[..., 0], expected, 1e-12)
    assert cholesky.nbytes > 0


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_frames_of_many_boxes(shape: str) -> None:
    frame, rng = frame_of(*SHAPES[shape]), np.random.default_rng(0)
    pairs = positive(rng, frame)
    cholesky = DissectionCholesky(pairs, Tree(frame))
    check(cholesky, dense(pairs, frame), frame, rng)
    banded, _ = band_of(pairs, frame)
    assert close(cholesky.inverse_pairs(narrowest(frame)), banded.inverse_pairs(narrowest(frame)), 1e-12)
    assert cholesky.logdet == pytest.approx(banded.logdet, rel=1e-12)


@pytest.mark.parametrize("shape", ["globe", "box", "plane"])
def test_the_same_bits_on_any_number_of_threads(shape: str) -> None:
    frame, rng = frame_of(*SHAPES[shape]), np.random.default_rng(0)
    pairs, rhs = positive(rng, frame), rng.normal(size=(math.prod(frame.sizes), 3))
    answers = []
    for cores, threaded in ((1, False), (1, True), (2, True), (3, True)):
        with on_cores(cores):
            cholesky = DissectionCholesky(pairs, tree_of(frame), threaded=threaded)
            found = [cholesky.solve(rhs), cholesky.apply_inverse_sqrt(rhs), np.array(cholesky.logdet)]
            answers.append([*found, cholesky.inverse_pairs(narrowest(frame))])
    for other in answers[1:]:
        assert all(np.array_equal(x, y) for x, y in zip(answers[0], other, strict=True))


@pytest.mark.parametrize("penalty", [Ridge(0.0), Ridge(0.1), Roughness({"c": 0.1})], ids=repr)
def test_systems_behind_a_static_mask_are_dissected_where_that_is_cheaper(penalty: Penalty) -> None:
    space = space_of("circle", "cubic", "cubic")
    case, gram = static(space, np.random.default_rng(0), (2,))
    matrix = penalty.gram(space)
    cheap = on(front_flops=-1e9)
    ours, theirs = (factorise(gram, matrix, space, "separable", resources=r) for r in (cheap, on()))
    assert isinstance(ours.system, Separable) and isinstance(theirs.system, Separable)
    assert ours.system.systems.in_fronts and not theirs.system.systems.in_fronts
    moment = case.sums(gram).full_moment(space.frame)
    assert close(ours.solve(moment), theirs.solve(moment), 1e-9)
    assert close(ours.inverse_pairs(), theirs.inverse_pairs(), 1e-9)
    assert close(ours.logdet(), theirs.logdet(), 1e-12) and close(ours.edf(), theirs.edf(), 1e-10)

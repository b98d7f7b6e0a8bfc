"""The choice of smoothing against its definition on rows of Φ, and its laws: merging, batches, bounds, errors."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests import reference_reml as reference
from xspline.kernels import Block, Group, Layout, accumulate
from xspline.solve import Roughness, choose
from xspline.solve.penalties.roughness import spline_degrees
from xspline.spaces import Axis, BSpline, Fourier, Polynomial, Space
from xspline.sums import Gram, Sums

from .cases import Case, gaps, space_of

METHODS = ["gcv", "reml"]


def wave(case: Case, rng: np.random.Generator, noise: float = 0.3) -> Case:
    """The observations replaced by a smooth field and noise, another phase for each member of a batch."""
    count = len(case.coordinates)
    xs = np.meshgrid(*case.coordinates, indexing="ij")
    field = sum(np.sin((5 + 2 * j) * x + j) for j, x in enumerate(xs))
    phases = rng.uniform(0, 2, case.batch)
    signal = np.sin(field.reshape(field.shape + (1,) * (case.y.ndim - count)) + phases)
    return replace(case, y=signal + noise * rng.normal(size=case.y.shape))


def noisy_wave(
    kinds: tuple[str, ...], structure: Any, batch: tuple[int, ...] = (), seed: int = 0
) -> tuple[Case, Gram]:
    rng = np.random.default_rng(seed)
    case, gram = structure(space_of(*kinds), rng, batch)
    return wave(case, rng), gram


def penalties(space: Space, order: int = 2) -> list[np.ndarray]:
    names = Roughness(1.0, order).strengths(space)
    return [Roughness({name: 1.0}, order).gram(space).to_dense(space.frame) for name in names]


def rows_of(case: Case, order: int = 2) -> list[reference.Rows]:
    """One for each member of the batch."""
    y, w = case.flat(case.y), case.flat(case.w)
    each = [(slice(None), *b) for b in np.ndindex(*case.batch)]
    return [reference.Rows(case.phi, y[b], w[b], penalties(case.space, order)) for b in each]


def strengths(case: Case, gram: Gram, method: str = "reml") -> np.ndarray:
    chosen = choose(case.sums(gram), case.space, Roughness(method))
    return np.log(list(chosen.penalty.strengths(case.space).values()))


def scattered(space: Space, n: int, seed: int = 0, noise: float = 0.2) -> Block:
    rng = np.random.default_rng(seed)
    xs = tuple(rng.random(n) for _ in space.names)
    y = np.sin(sum((5 + j) * x for j, x in enumerate(xs))) + noise * rng.normal(size=n)
    return Block(y, xs, (((0,), np.exp(rng.normal(size=n))),), (0,))


def summed(block: Block, space: Space, part: slice = slice(None)) -> Sums:
    layout = Layout((Group((0,), tuple(range(len(space.names)))),), ())
    weights = tuple((axes, w[part]) for axes, w in block.weights)
    coordinates = tuple(x[part] for x in block.coordinates)
    return accumulate(Block(block.values[part], coordinates, weights, (0,)), layout, space)


def derivatives(f: Any, rho: np.ndarray, step: float = 1e-4) -> np.ndarray:
    """Central differences of fourth order."""
    out = []
    for e in np.eye(len(rho)):
        near, far = (f(rho + h * step * e) - f(rho - h * step * e) for h in (1, 2))
        out.append((8 * near - far) / (12 * step))
    return np.array(out)


def curvature(f: Any, rho: np.ndarray, step: float = 1e-2) -> np.ndarray:
    """Second derivatives by central differences of second order."""
    steps = step / 2 * np.eye(len(rho))
    rows = [[f(rho + a + b) - f(rho + a - b) - f(rho - a + b) + f(rho - a - b) for a in steps] for b in steps]
    return np.array(rows) / step**2


def bases(**named: Any) -> Space:
    return Space(named, axes={name: Axis() for name in named})


LINE = bases(a=BSpline(12, domain=(0, 1)))
PLANE = bases(a=BSpline(9, domain=(0, 1)), b=BSpline(8, domain=(0, 1)))
SPACES = {
    "line": LINE,
    "line of degree 2": bases(a=BSpline(14, degree=2, domain=(0, 1))),
    "line of degree 1": bases(a=BSpline(14, degree=1, domain=(0, 1))),
    "plane": PLANE,
    "circle": bases(a=BSpline(8, period=1.0, domain=(0, 1)), b=BSpline(7, domain=(0, 1))),
    "season": bases(a=BSpline(9, domain=(0, 1)), b=Fourier(1, period=1.0)),
    "union": bases(
        a=Polynomial(1, domain=(0, 1)) + BSpline(9, period=1.0, domain=(0, 1)), b=Fourier(1, period=0.5)
    ),
}


@pytest.mark.parametrize(
    ("name", "method"),
    [*((name, "reml") for name in SPACES), ("line", "gcv"), ("season", "gcv"), ("plane", "gcv")],
)
def test_the_choice_minimises_the_score(name: str, method: str) -> None:
    space, block = SPACES[name], scattered(SPACES[name], 200, seed=3)
    chosen = choose(
        summed(block, space), space, Roughness(method, order=min(2, *spline_degrees(space).values()))
    )
    designs = [f.design(x) for f, x in zip(space.features, block.coordinates, strict=True)]
    phi = functools.reduce(lambda a, b: (a[:, :, None] * b[:, None]).reshape(len(b), -1), designs)
    rows = [reference.Rows(phi, block.values, block.weights[0][1], penalties(space, chosen.penalty.order))]
    chosen_rho = np.log(list(chosen.penalty.strengths(space).values()))
    score = functools.partial(reference.score, rows, method=method)
    hessian = curvature(score, chosen_rho)
    assert (np.linalg.eigvalsh(hessian) > 0).all()
    # Where the definition of the score is lowest: one step of Newton's method from there.
    assert np.abs(np.linalg.solve(hessian, derivatives(score, chosen_rho, 1e-3))).max() < 1e-4
    assert not chosen.at_bounds and chosen.converged
    assert np.isclose(chosen.score, score(chosen_rho), rtol=1e-8)
    assert chosen.factorisations <= (10 if method == "reml" else 120)  # several starts
    assert max(map(abs, chosen.gradient.values())) < 1e-3
    assert chosen.method == method and tuple(chosen.gradient) == tuple(chosen.penalty.strengths(space))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_reference_does_not_change_the_choice(method: str) -> None:
    sums = summed(scattered(PLANE, 300), PLANE)
    plain = choose(sums, PLANE, Roughness(method))
    moved = choose(sums.recentred(288.15, PLANE.frame), PLANE, Roughness(method))
    for name, strength in plain.penalty.strengths(PLANE).items():
        assert np.isclose(moved.penalty.strengths(PLANE)[name], strength, rtol=1e-7)


def test_units_of_weights_and_values_do_not_change_the_choice() -> None:
    case, gram = noisy_wave(("circle", "cubic"), gaps)
    plain = strengths(case, gram)
    scaled = replace(case, w=case.w * 1e8, y=case.y * 1e-5)
    np.testing.assert_allclose(strengths(scaled, scaled.general()), plain + np.log(1e8), atol=1e-6)

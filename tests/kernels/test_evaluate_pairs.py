"""Quadratic forms φᵀZφ from pairs: against the dense matrix, and as the adjoint of how G is summed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests import reference
from tests.devices import Device
from tests.kernels.cases import CASES, SPACE, Case, Floats, grid
from tests.kernels.test_engines import assert_engines_agree
from tests.kernels.test_evaluate import EVALUABLE, assert_same_gaps
from xspline.kernels import Group, Layout, evaluate
from xspline.spaces import BSpline, Fourier, Polynomial, Space
from xspline.sums import Factor
from xspline.sums.window import whole

evaluate_pairs = partial(evaluate, pairs=True)

BASES = {
    "local": BSpline(6, domain=(0.0, 1.0)),
    "quadratic": BSpline(4, domain=(0.0, 1.0), degree=2),
    "periodic": BSpline(9, domain=(0.0, 1.0), period=1.0),
    "short circle": BSpline(4, domain=(0.0, 1.0), period=1.0),
    "seasons": Fourier(2, period=0.7),
    "constant": Polynomial(0, domain=(0.0, 1.0)),
    "trend": Polynomial(3, domain=(0.0, 1.0)),
    "arrow": Fourier(1, period=0.3) + BSpline(9, 2, domain=(0.0, 1.0)),
    "union": Fourier(1, period=0.3) + Polynomial(2, domain=(0.0, 1.0)),
}


def pairs_for(case: Case, rng: np.random.Generator) -> Floats:
    batch = tuple(case.shape[axis] for axis in case.layout.batch_axes)
    return rng.normal(size=(*SPACE.shape, *SPACE.frame.offsets, *batch))


def matrix(pairs: Floats, space: Space) -> Floats:
    """The symmetric matrix with Σ pairs[k, o] Π φ_k φ_{k+o} as its form: [P, P, b..]."""
    frame, ndim = space.frame, len(space.shape)
    batch = pairs.shape[2 * ndim :]
    many = np.ones(
        ()
    )  # entries of a symmetric matrix that a pair stands for: 2 for each offset that is not zero
    for offsets in frame.offsets:
        many = np.multiply.outer(many, np.where(np.arange(offsets) > 0, 2.0, 1.0))
    each = pairs / many.reshape(*frame.offsets, *(1,) * len(batch))
    dense = Factor(tuple(range(ndim)), whole(frame.sizes), each, 0).to_dense(frame)
    return dense.reshape(space.size, space.size, *batch)


def forms(
    pairs: Floats, coordinates: tuple[Floats, ...], layout: Layout, space: Space, orders: tuple[int, ...]
) -> Floats:
    """φᵀZφ for every row of Φ, in the order of the layout's axes."""
    z = matrix(pairs, space)
    shape = [1] * layout.ndim
    for j, x in enumerate(coordinates):
        for axis, length in zip(layout.spans[j], np.shape(x), strict=True):
            shape[axis] = length
    phi = reference.design(coordinates, layout, space, shape, orders)
    others = [axis for axis in range(layout.ndim) if axis not in layout.batch_axes]
    phi = phi.transpose(*layout.batch_axes, *others, layout.ndim)[(0,) * len(layout.batch_axes)]
    out = np.asarray(np.einsum("...p,pqz,...q->...z", phi, z.reshape(*z.shape[:2], -1), phi, optimize=True))
    return out.reshape((*phi.shape[:-1], *z.shape[2:])).transpose(np.argsort([*others, *layout.batch_axes]))


@pytest.mark.parametrize("orders", [(0, 0, 0), (0, 2, 1)])
@pytest.mark.parametrize("name", EVALUABLE)
def test_every_layout_and_order(name: str, orders: tuple[int, ...]) -> None:
    case, rng = EVALUABLE[name], np.random.default_rng(0)
    pairs, coordinates = pairs_for(case, rng), case.coordinates(rng)
    values = evaluate_pairs(pairs, coordinates, case.layout, SPACE, orders)
    assert values.shape == case.shape
    assert values.dtype == np.float64
    reference.close(values, forms(pairs, coordinates, case.layout, SPACE, orders))


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    "names",
    [(n,) for n in BASES]
    + [("local", "short circle"), ("union", "periodic"), ("constant", "quadratic", "trend")],
)
def test_every_basis(names: tuple[str, ...], together: bool) -> None:
    """On a grid, and at points."""
    space = Space({name: BASES[name] for name in names})
    rng, axes = np.random.default_rng(1), tuple(range(len(names)))
    layout = Layout((Group((0,), axes),)) if together else grid(*axes)
    coordinates = tuple(rng.uniform(size=30 if together else 6 + axis) for axis in axes)
    pairs = rng.normal(size=(*space.shape, *space.frame.offsets))
    for orders in np.ndindex(*(3,) * len(names)):
        values = evaluate_pairs(pairs, coordinates, layout, space, orders)
        reference.close(values, forms(pairs, coordinates, layout, space, orders))


@pytest.mark.parametrize("name", EVALUABLE)
def test_three_namespaces_give_the_same_values(name: str, device: Device) -> None:
    case = EVALUABLE[name]
    assert_engines_agree(evaluate_pairs, pairs_for(case, np.random.default_rng(0)), case, device)


@pytest.mark.parametrize("engine", ["numba", "namespace"])
@pytest.mark.parametrize("name", ["grid", "observations", "curvilinear", "scalar place", "batch last"])
def test_nan_outside_and_where_labels_are_missing(name: str, engine: str) -> None:
    case, rng = CASES[name], np.random.default_rng(0)
    coordinates, pairs = case.partly_outside(rng), pairs_for(case, rng)
    values = evaluate_pairs(pairs, coordinates, case.layout, SPACE, engine=engine)
    assert_same_gaps(values, forms(pairs, coordinates, case.layout, SPACE, (0, 0, 0)))

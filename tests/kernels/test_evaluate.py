"""Values and derivatives of fields against rows of Φ, in every layout, and quadratic forms φᵀZφ from pairs.

Of pairs against the dense matrix, and as the adjoint of how G is summed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from tests.devices import Device
from tests.kernels.cases import CASES, EVENTS, LAT, SPACE, TIME, Case, Floats, grid, pairwise
from xspline.kernels import Group, Layout, evaluate
from xspline.spaces import BSpline, Fourier, Polynomial, Space
from xspline.sums import Factor
from xspline.sums.window import whole

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
EVALUABLE = {name: case for name, case in CASES.items() if "pooled" not in name}


def coefficients_for(
    case: Case, rng: np.random.Generator, space: Space = SPACE, *, pairs: bool = False
) -> Floats:
    """Coefficients of random fields, or pairs of random matrices."""
    batch = tuple(case.shape[axis] for axis in case.layout.batch_axes)
    return rng.normal(size=(*space.shape, *(space.frame.offsets if pairs else ()), *batch))


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


def dense(pairs: bool) -> Callable[..., Floats]:
    """What gives values from rows of Φ."""
    return forms if pairs else reference.evaluate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "orders", "pairs"),
    [
        *[(SPACE, orders, False) for orders in ((0, 0, 0), (0, 2, 1), (3, 3, 2))],
        *[(EVENTS, orders, False) for orders in ((0, 0, 0), (1, 0, 2))],
        *[(SPACE, orders, True) for orders in ((0, 0, 0), (0, 2, 1))],
    ],
)
@pytest.mark.parametrize("name", EVALUABLE)
def test_every_layout_and_order(name: str, space: Space, orders: tuple[int, ...], pairs: bool) -> None:
    """Of splines, and of unions with one in cells."""
    case, rng = EVALUABLE[name], np.random.default_rng(0)
    coefficients, coordinates = coefficients_for(case, rng, space, pairs=pairs), case.coordinates(rng)
    values = evaluate(coefficients, coordinates, case.layout, space, orders, pairs=pairs)
    assert values.shape == case.shape
    assert values.dtype == np.float64
    reference.close(values, dense(pairs)(coefficients, coordinates, case.layout, space, orders))


@settings(max_examples=15)
@given(name=st.sampled_from(sorted(EVALUABLE)), slab=st.integers(10, 300), seed=st.integers(0, 2**31))
def test_any_slab(name: str, slab: int, seed: int) -> None:
    case, rng = EVALUABLE[name], np.random.default_rng(seed)
    coefficients, coordinates = coefficients_for(case, rng), case.coordinates(rng)
    values = evaluate(coefficients, coordinates, case.layout, SPACE, slab=slab)
    reference.close(values, evaluate(coefficients, coordinates, case.layout, SPACE))


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    "names",
    [(n,) for n in BASES]
    + [("local", "short circle"), ("union", "periodic"), ("constant", "quadratic", "trend")],
)
def test_pairs_of_every_basis(names: tuple[str, ...], together: bool) -> None:
    """On a grid, and at points."""
    space = Space({name: BASES[name] for name in names})
    rng, axes = np.random.default_rng(1), tuple(range(len(names)))
    layout = Layout((Group((0,), axes),)) if together else grid(*axes)
    coordinates = tuple(rng.uniform(size=30 if together else 6 + axis) for axis in axes)
    pairs = rng.normal(size=(*space.shape, *space.frame.offsets))
    for orders in np.ndindex(*(3,) * len(names)):
        values = evaluate(pairs, coordinates, layout, space, orders, pairs=True)
        reference.close(values, forms(pairs, coordinates, layout, space, orders))


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("name", EVALUABLE)
def test_three_namespaces_give_the_same_values(name: str, pairs: bool, device: Device) -> None:
    """Both engines, and an array that NumPy cannot read, give the same values and derivatives."""
    case = EVALUABLE[name]
    array = coefficients_for(case, np.random.default_rng(0), pairs=pairs)
    coordinates = case.coordinates(np.random.default_rng(1))
    for orders in ((0, 0, 0), (1, 0, 2)):
        where = (coordinates, case.layout, SPACE, orders)
        expected = evaluate(array, *where, pairs=pairs)
        reference.close(evaluate(array, *where, pairs=pairs, engine="namespace", slab=100), expected)
        reference.close(device.get(evaluate(device.put(array), *where, pairs=pairs)), expected)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("engine", ["numba", "namespace"])
@pytest.mark.parametrize("name", ["grid", "observations", "curvilinear", "scalar place", "batch last"])
def test_nan_outside_and_where_labels_are_missing(name: str, engine: str, pairs: bool) -> None:
    case, rng = CASES[name], np.random.default_rng(0)
    coordinates, coefficients = case.partly_outside(rng), coefficients_for(case, rng, pairs=pairs)
    values = evaluate(coefficients, coordinates, case.layout, SPACE, engine=engine, pairs=pairs)
    expected = dense(pairs)(coefficients, coordinates, case.layout, SPACE, (0, 0, 0))
    assert np.isnan(values).any()
    np.testing.assert_array_equal(np.isnan(values), np.isnan(expected))
    reference.close(values, expected) if np.isfinite(expected).any() else None


# Into a given array


@pytest.mark.parametrize(
    ("name", "slab", "dtype", "engine"), pairwise(EVALUABLE, (None, 50), ("f4", "f8"), ("numba", "namespace"))
)
def test_into_a_given_array(name: str, slab: int | None, dtype: str, engine: str) -> None:
    case, rng = EVALUABLE[name], np.random.default_rng(0)
    coefficients, coordinates = coefficients_for(case, rng), case.coordinates(rng)
    out = np.full(case.shape, np.nan, dtype)
    for orders in ((0, 0, 0), (0, 1, 1)):
        where = (coefficients, coordinates, case.layout, SPACE, orders)
        values = evaluate(*where, out=out, engine=engine, slab=slab)
        assert values is out
        expected = evaluate(*where, engine=engine, slab=slab)
        np.testing.assert_array_equal(out, expected.astype(dtype))


@pytest.mark.parametrize("functions", range(1, 12))
@pytest.mark.parametrize("order", [(TIME, LAT), (LAT, TIME)])
def test_any_number_of_functions(functions: int, order: tuple[int, int]) -> None:
    """Lines of values are summed four functions at a time."""
    space = Space({"y": BSpline(6, domain=(0.0, 1.0)), "x": Polynomial(functions - 1, domain=(0.0, 1.0))})
    rng = np.random.default_rng(0)
    coordinates = (rng.uniform(size=700), rng.uniform(size=40))
    layout = Layout(tuple(Group((order.index(j),), (i,)) for i, j in enumerate((LAT, TIME))))
    coefficients = rng.normal(size=space.shape)
    values = evaluate(coefficients, coordinates, layout, space)
    reference.close(values, reference.evaluate(coefficients, coordinates, layout, space))

"""Values and derivatives of fields against rows of Φ, in every layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from tests.kernels.cases import CASES, EVENTS, LAT, SPACE, TIME, Case, pairwise
from xspline.kernels import Group, Layout, evaluate
from xspline.spaces import BSpline, Polynomial, Space

EVALUABLE = {name: case for name, case in CASES.items() if "pooled" not in name}


def coefficients_for(case: Case, rng: np.random.Generator, space: Space = SPACE) -> np.ndarray:
    batch = tuple(case.shape[axis] for axis in case.layout.batch_axes)
    return rng.normal(size=(*space.shape, *batch))


@pytest.mark.parametrize(
    ("space", "orders"),
    [(SPACE, (0, 0, 0)), (SPACE, (0, 2, 1)), (SPACE, (3, 3, 2)), (EVENTS, (0, 0, 0)), (EVENTS, (1, 0, 2))],
)
@pytest.mark.parametrize("name", EVALUABLE)
def test_every_layout_and_order(name: str, space: Space, orders: tuple[int, ...]) -> None:
    """Of splines, and of unions with one in cells."""
    case, rng = EVALUABLE[name], np.random.default_rng(0)
    coefficients, coordinates = coefficients_for(case, rng, space), case.coordinates(rng)
    values = evaluate(coefficients, coordinates, case.layout, space, orders)
    assert values.shape == case.shape
    assert values.dtype == np.float64
    reference.close(values, reference.evaluate(coefficients, coordinates, case.layout, space, orders))


@settings(max_examples=15)
@given(name=st.sampled_from(sorted(EVALUABLE)), slab=st.integers(10, 300), seed=st.integers(0, 2**31))
def test_any_slab(name: str, slab: int, seed: int) -> None:
    case, rng = EVALUABLE[name], np.random.default_rng(seed)
    coefficients, coordinates = coefficients_for(case, rng), case.coordinates(rng)
    values = evaluate(coefficients, coordinates, case.layout, SPACE, slab=slab)
    reference.close(values, evaluate(coefficients, coordinates, case.layout, SPACE))


def assert_same_gaps(values: np.ndarray, expected: np.ndarray) -> None:
    """Some values are NaN, the same ones in both, and the others are close."""
    assert np.isnan(values).any()
    np.testing.assert_array_equal(np.isnan(values), np.isnan(expected))
    reference.close(values, expected) if np.isfinite(expected).any() else None


@pytest.mark.parametrize("engine", ["numba", "namespace"])
@pytest.mark.parametrize("name", ["grid", "observations", "curvilinear", "scalar place"])
def test_nan_outside_and_where_labels_are_missing(name: str, engine: str) -> None:
    case, rng = CASES[name], np.random.default_rng(0)
    coordinates, coefficients = case.partly_outside(rng), coefficients_for(case, rng)
    values = evaluate(coefficients, coordinates, case.layout, SPACE, engine=engine)
    assert_same_gaps(values, reference.evaluate(coefficients, coordinates, case.layout, SPACE))


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

"""log|Λ|₊ against the eigenvalues of Λ itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from tests import reference_reml as reference
from xspline.solve import Roughness
from xspline.solve.families.determinant import axis_spectrum
from xspline.solve.families.orders import SingleOrder
from xspline.spaces import Axis, BSpline, Fourier, Polynomial, Space, Union

from .cases import BASES, space_of

KNOTS = {  # a kink has no curvature: a knot as often as the degree
    "kink": BSpline(degree=2, knots=[0, 0, 0, 0.3, 0.6, 0.6, 1, 1, 1]),
    "jump": BSpline(degree=2, knots=[0, 0, 0, 0.3, 0.3, 0.3, 1, 1, 1]),
    "long season": Polynomial(1, domain=(0, 1))
    + Fourier(1, period=2.5)
    + BSpline(5, period=1.0, domain=(0, 1)),
}


def line(basis: object) -> Space:
    return Space({"a": basis}, axes={"a": Axis()})  # type: ignore[dict-item]


def nullity_of(space: Space, order: int) -> int:
    """Rank deficiency of the derivatives at many points; beside a B-spline those of other terms cost nothing."""
    x, design = (np.arange(4000) + 0.5) / 4000, space.features[0].design
    basis = space.basis("a")
    smoothed = basis.select(BSpline) if isinstance(basis, Union) else np.ones(space.size, dtype=bool)
    singular = linalg.svdvals(design(x, order) * (smoothed | ~smoothed.any()))
    return int(space.size - np.sum(singular > 1e-9 * singular[0]))


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", sorted(BASES | KNOTS))
def test_null_space_has_the_dimension_of_the_functions_without_roughness(name: str, order: int) -> None:
    basis = (BASES | KNOTS)[name]
    degree = getattr(basis, "degree", 9)
    if degree < order or (name in ("union", "long season", "arrow") and order > 1 + (name != "arrow")):
        return
    space = line(basis)
    axis = axis_spectrum(space, 0, order)
    assert axis.null == nullity_of(space, order)
    assert (np.diff(axis.values) >= -1e-9 * axis.values[-1]).all()


@pytest.mark.parametrize("size", [400, 1000])
def test_fine_splines_keep_their_null_space(size: int) -> None:
    """Rounding errors of the largest eigenvalues exceed the smallest one that is not 0."""
    for basis, null in ((BSpline(size, domain=(0, 1)), 2), (BSpline(size, period=1.0), 1)):
        axis = axis_spectrum(line(basis), 0, 2)
        assert axis.null == null and axis.values[null] > 0


@pytest.mark.parametrize(
    "kinds", [("cubic",), ("cubic", "uneven"), ("circle", "union", "season"), ("trend", "cubic")]
)
def test_the_determinant_is_that_of_the_matrix(kinds: tuple[str, ...]) -> None:
    space = space_of(*kinds)
    names = tuple(Roughness(1.0).strengths(space))
    grams = [Roughness({n: 1.0}).gram(space).to_dense(space.frame) for n in names]
    family, rng = SingleOrder(space, names, 2), np.random.default_rng(0)
    eigenvalues = family.spectrum
    rows = reference.Rows(np.zeros((0, space.size)), np.zeros(0), np.zeros(0), grams)
    span = reference.determined(rows)
    assert family.null == space.size - span.shape[1]
    for rho in rng.uniform(-3, 3, (3, len(names))):
        penalty = reference.total(rows, rho)
        expected = np.linalg.slogdet(span.T @ penalty @ span)[1]
        value, first, second = eigenvalues.at(rho)
        assert np.isclose(value, expected, rtol=1e-9, atol=1e-6)
        step = 1e-5 * np.eye(len(names))
        np.testing.assert_allclose(
            first, [(eigenvalues.at(rho + e)[0] - eigenvalues.at(rho - e)[0]) / 2e-5 for e in step], 1e-6
        )
        jacobian = np.array([(eigenvalues.at(rho + e)[1] - eigenvalues.at(rho - e)[1]) / 2e-5 for e in step])
        np.testing.assert_allclose(second, jacobian, atol=1e-6 * max(1.0, np.abs(jacobian).max()))

"""log|Λ|₊ against the eigenvalues of Λ itself."""

from __future__ import annotations

import pytest

from xspline.solve.families.determinant import axis_spectrum
from xspline.spaces import Axis, BSpline, Space


def line(basis: object) -> Space:
    return Space({"a": basis}, axes={"a": Axis()})  # type: ignore[dict-item]


@pytest.mark.parametrize("size", [400, 1000])
def test_fine_splines_keep_their_null_space(size: int) -> None:
    """Rounding errors of the largest eigenvalues exceed the smallest one that is not 0."""
    for basis, null in ((BSpline(size, domain=(0, 1)), 2), (BSpline(size, period=1.0), 1)):
        axis = axis_spectrum(line(basis), 0, 2)
        assert axis.null == null and axis.values[null] > 0

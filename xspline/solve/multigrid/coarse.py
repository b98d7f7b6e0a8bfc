"""The same problem with fewer knots: a cheap place to look for the strengths of a penalty first.

A space with every second breakpoint removed lies inside the fine one, so its statistics are those of the fine one
between the prolongations (a Galerkin projection), and no data are read. Strengths of roughness do not depend on
knots; what the coarse problem chooses is a good start for the fine one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from xspline.solve.multigrid.spaces import Line, galerkin, prolongation
from xspline.solve.structure import Array
from xspline.spaces import Axis, Basis, BSpline, Space
from xspline.sums import Factor, Gram, Sums


def coarser(sums: Sums, space: Space, names: Collection[str] | None = None) -> tuple[Sums, Space] | None:
    """Sums and space with every second breakpoint removed along each B-spline, or each of those named.

    None where none has a breakpoint to spare.
    """
    fine = [Line.of(f) for f in space.features]
    asked = [names is None or name in names for name in space.names]
    coarse = [line.coarse if wanted else None for line, wanted in zip(fine, asked, strict=True)]
    if all(line is None for line in coarse):
        return None
    bases = {
        name: basis if line is None else _with_knots(basis, line, axis)
        for line, (name, (axis, basis)) in zip(coarse, space.axes.items(), strict=True)
    }
    smaller = Space(bases, axes={name: axis for name, (axis, _) in space.axes.items()})
    steps = [None if c is None else Step(prolongation(f, c), f, c) for f, c in zip(fine, coarse, strict=True)]
    return _restricted(sums, space, steps), smaller


def _with_knots(basis: Basis, line: Line, axis: Axis) -> BSpline:
    """A bound B-spline with the knots of a coarser line; a periodic one is given the breakpoints of its period."""
    p, knots = line.degree, np.asarray(line.knots)
    inner = knots[p : knots.size - p] if line.periodic else knots
    labels = tuple(inner.tolist() if axis.kind == "number" else axis.to_label(inner))
    return BSpline(degree=p, knots=labels, period=basis.period if isinstance(basis, BSpline) else None)


@dataclass(frozen=True, eq=False)
class Step:
    """The prolongation P [K, K_c] of one axis."""

    matrix: sparse.csr_array
    fine: Line
    coarse: Line

    @cached_property
    def pairs(self) -> sparse.csr_array:
        """Pairs of PᵀMP from pairs of M, [K_c O_c, K O]."""
        return galerkin(self.matrix, self.fine, self.coarse)


def _restricted(sums: Sums, space: Space, steps: Sequence[Step | None]) -> Sums:
    moment = sums.full_moment(space.frame)
    for axis, step in enumerate(steps):
        if step is not None:
            moment = _along(moment, axis, step.matrix.T)
    terms = tuple(tuple(_factor(f.full(space.frame), steps) for f in term) for term in sums.gram.terms)
    window = tuple((0, k) for k in moment.shape[: len(steps)])
    return replace(sums, window=window, gram=Gram(terms, sums.gram.batch_ndim), moment=moment)


def _factor(factor: Factor, steps: Sequence[Step | None]) -> Factor:
    array, count = factor.pairs, len(factor.axes)
    for place, axis in enumerate(factor.axes):
        if (step := steps[axis]) is not None:
            array = _pairs_along(array, place, count + place, step.pairs)
    return Factor(factor.axes, tuple((0, k) for k in array.shape[:count]), array, factor.key)


def _along(array: Array, axis: int, matrix: sparse.csr_array) -> Array:
    front = np.moveaxis(array, axis, 0)
    out = matrix @ front.reshape(front.shape[0], -1)
    return np.moveaxis(out.reshape(-1, *front.shape[1:]), 0, axis)


def _pairs_along(array: Array, place: int, offset: int, matrix: sparse.csr_array) -> Array:
    """Replace an axis of coefficients and that of its offsets."""
    front = np.moveaxis(array, (place, offset), (0, 1))
    out = matrix @ front.reshape(front.shape[0] * front.shape[1], -1)
    out = out.reshape(-1, front.shape[1], *front.shape[2:])  # offsets of a local spline stay degree + 1
    return np.moveaxis(out, (0, 1), (place, offset))

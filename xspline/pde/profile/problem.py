"""What the constants of equations are estimated from: a field, its statistics, and the equations on its space."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels.field import Field
from xspline.labels.read.observations import Variable
from xspline.labels.uncertainty import MAX_PAIRS
from xspline.pde.known import at_nodes
from xspline.pde.profile.axes import Array, ProjectedCoordinate, Unsuitable
from xspline.pde.profile.constraint import Constraints
from xspline.pde.profile.gauss_newton import ConstrainedLeastSquares
from xspline.pde.profile.normal_equations import BandOrder
from xspline.pde.profile.scaled_sums import ScaledSums
from xspline.pde.profile.weak import WeakEstimate, weak_estimate
from xspline.pde.text.equation import Equation, Power
from xspline.pde.text.low_terms import LowTerm, low_terms, recover_code
from xspline.pde.text.symbols import Names, arguments_code
from xspline.solve import Penalty, Resources, TooLargeError, solve
from xspline.solve.direct.cholesky import TINY
from xspline.solve.multigrid.spaces import AxisLevel, coarser, prolongation, times_axis
from xspline.solve.smoothing.fit import centred
from xspline.spaces import BSpline, Space
from xspline.sums import Factor, Gram, Sums

BANDS = 2.5  # bands that a search holds: 1.1 to 2.2 by `python -m benchmarks constants --tables cost`


@dataclass(frozen=True, eq=False)
class EquationProblem:
    """A fit and the equations whose constants it tells."""

    space: Space
    sums: Mapping[str, Sums]  # of each variable that the equations hold, without batch axes, centred
    coefficients: Mapping[str, Array]  # [K..], of a fit, where a search starts
    sigma: Mapping[str, float]  # standard deviation of an observation of weight 1 in the fit
    penalties: Mapping[str, Penalty]
    # the sums of each holder, about the same references; empty where there is only one
    parts: Sequence[Mapping[str, Sums]]
    apply_inverse: Callable[[str, Array], Array]  # returns (G + Λ)⁻¹ of a variable times coefficients [K..]
    equations: tuple[Equation, ...]
    # returns what is known at the nodes of the coordinates of a space, by name
    known_at: Callable[[Space, Sequence[ProjectedCoordinate]], Mapping[str, Any]]
    # the ridge of the search. None stands for the ridge that the data need, which takes a factorisation
    ridge: float | None = None
    low_terms: Sequence[Sequence[LowTerm]] = ()  # what each equation may lack
    call: str = ""  # the call that asks data or a field for the constants
    # how many labels there are along the coordinates of a grid
    labels: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def constraints(self) -> Constraints:
        """The equations on this space."""
        return Constraints.of(self.space, self.equations, self.known_at)

    @property
    def parameters(self) -> tuple[Power, ...]:
        """How each constant enters."""
        return self.constraints.parameters

    def weak(self, combinations: int = 0) -> WeakEstimate:
        """Return the weak form on the fit; `combinations` of its residuals are held against their errors."""

        def apply_covariance(name: str, image: Array) -> Array:
            return self.sigma[name] ** 2 * self.apply_inverse(name, image)

        return weak_estimate(self.constraints, self.coefficients, apply_covariance, combinations)

    def weak_resolution(self, weak: WeakEstimate) -> Array:
        """Return what the knots leave of an error of the weak form, from fits with every second knot."""
        total = np.zeros(len(weak.value))
        for name in self.space.names:
            smaller = self.coarsened([name], self.coefficients)
            if smaller is None:
                continue
            fits = {
                v: solve(s, smaller.space, self.penalties[v]).coefficients for v, s in smaller.sums.items()
            }
            other = weak_estimate(smaller.constraints, fits, lambda _, image: 0.0 * image)
            # A method of second order has four times the error with half the knots, and so changes by three of them.
            total += np.abs(other.value - weak.value) / 3
        return total

    @cached_property
    def search(self) -> ConstrainedLeastSquares:
        """The search, with a vanishing ridge where data alone do not determine the field.

        It raises TooLargeError where a band is larger than a machine holds, or than what a step of some minutes takes.
        """
        order = order_of(self.constraints, ", or method='weak', which needs no band")
        several = len(self.sums) > 1
        precision = {n: 1 / self.sigma[n] ** 2 if several and self.sigma[n] > 0 else 1.0 for n in self.sums}
        data = ScaledSums.of(order, self.sums, precision)
        ridge = self.ridge
        if ridge is None:
            ridge = 0.0 if data.free is not None else TINY
        return ConstrainedLeastSquares(data, self.constraints, ridge)

    def finer(self, name: str) -> str:
        """Return the line of code that has twice the functions along a coordinate; empty beyond its labels."""
        own = self.space.basis(name)
        if not isinstance(own, BSpline):
            return ""
        size = self.space.features[self.space.names.index(name)].size
        more = min(2 * size, self.labels.get(name, 2 * size))
        if more <= size:
            return ""
        bases = {n: replace(own, size=more) if n == name else self.space.basis(n) for n in self.space.names}
        listed = ", ".join(f'"{n}": {basis.code("xs.")}' for n, basis in bases.items())
        return f"data.spline.fit({{{listed}}}).{self.call}"

    def coarsened(self, names: Collection[str], coefficients: Mapping[str, Array]) -> EquationProblem | None:
        """Return the same problem with every second knot of some coordinates, to start near some coefficients.

        It is None where the knots of a coordinate are too few for that.
        """
        projected = {v: coarser(s, self.space, names) for v, s in self.sums.items()}
        if any(both is None for both in projected.values()):
            return None
        by_variable = {v: both for v, both in projected.items() if both is not None}
        space = next(iter(by_variable.values()))[1]
        nearby = {
            axis: ProjectedCoordinate.of(self.space, axis).nearest(matrix)
            for axis, matrix in _refining(space, self.space).items()
        }
        nearest = {v: _along_axes(nearby, c) for v, c in coefficients.items()}
        sums = {v: both[0] for v, both in by_variable.items()}
        return replace(self, space=space, sums=sums, coefficients=nearest)


def refined(coefficients: Mapping[str, Array], coarse: Space, fine: Space) -> dict[str, Array]:
    """Return the coefficients of the same functions in a finer space."""
    matrices = _refining(coarse, fine)
    return {v: _along_axes(matrices, c) for v, c in coefficients.items()}


def _refining(coarse: Space, fine: Space) -> dict[int, Array]:
    """Return the matrices by which coefficients of a space become those of a finer one, by coordinate."""
    levels = [
        tuple(AxisLevel.of(f) for f in both) for both in zip(fine.features, coarse.features, strict=True)
    ]
    return {
        axis: prolongation(*both).toarray()
        for axis, both in enumerate(levels)
        if both[0].size != both[1].size
    }


def _along_axes(matrices: Mapping[int, Array], array: Array) -> Array:
    for axis, matrix in matrices.items():
        array = times_axis(matrix, array, axis)
    return array


def order_of(constraints: Constraints, otherwise: str = "", bands: float = BANDS) -> BandOrder:
    """Return the order in which the band is narrowest.

    It raises TooLargeError where so many bands do not fit in memory; `otherwise` says what else to do.
    """
    order = BandOrder.of(constraints)
    if order.nbytes > min(MAX_PAIRS * BANDS, Resources.here().memory) / bands:
        raise TooLargeError(
            f"the normal equations of {order.size} coefficients are a band of {order.nbytes / 1e9:.1f} GB; use fewer "
            f"functions along some coordinate{otherwise}"
        )
    return order


def problem_of(
    field: Field[Any],
    equations: Sequence[Equation],
    names: Names,
    given: Mapping[str, Any],
    variables: Sequence[str],
    index: tuple[int, ...] = (),
) -> EquationProblem:
    """Return the problem of one member of a batch; raises as `over_domain` does."""
    space = field.space
    solutions = field.solution
    sums: dict[str, Sums] = {}
    centres: dict[str, Any] = {}
    coefficients = {}
    sigma = {}
    solved = {}
    for name in variables:
        fit = field.fits[name]
        own = solutions[name]
        total = centred(fit.total, space)
        centres[name], sums[name] = total.reference, member(total, index)
        if not index and not float(sums[name].power) > 0:
            raise ValueError(
                f"all values of {name!r} are the same, which tells nothing of an equation; look at the data"
            )
        if index:
            own = solve(sums[name], space, fit.known_penalty)
        solved[name], coefficients[name] = own, fit.coefficients[(..., *index)]
        left = float(sums[name].count) - float(own.factorisation.edf())
        sigma[name] = math.sqrt(max(float(own.rss), 0.0) / left) if left > 0 else math.nan
    first = field.variables[variables[0]]
    known = {name: _of_member(name, value, first, index) for name, value in given.items()}

    def known_at(space: Space, coordinates: Sequence[ProjectedCoordinate]) -> dict[str, Any]:
        try:
            return {n: at_nodes(n, value, space, coordinates, names.letters) for n, value in known.items()}
        except ValueError as error:
            raise Unsuitable(str(error)) from error

    def apply_inverse(name: str, image: Array) -> Array:
        return solved[name].factorisation.solve(image)

    penalties = {name: field.fits[name].known_penalty for name in variables}
    held = field.statistics.parts if len(field.statistics.parts) > 1 else ()
    parts = [
        {n: member(part.sums[n].recentred(centres[n], space.frame), index) for n in variables}
        for part in held
    ]
    arguments = arguments_code(given, names.dims, names.vary)
    return EquationProblem(
        space,
        sums,
        coefficients,
        sigma,
        penalties,
        parts,
        apply_inverse,
        tuple(equations),
        known_at,
        low_terms=low_terms(equations, names, arguments),
        call=recover_code([equation.text for equation in equations], arguments),
        labels={n: c.size for n, c in (field.statistics._fitted or {}).items() if c.dims == (n,)},
    )


def _of_member(name: str, value: Any, variable: Variable, index: tuple[int, ...]) -> Any:
    """Return what is known of one member of a batch; the number itself where it is no array any more."""
    if not isinstance(value, xr.DataArray):
        return value
    own = value
    coords = variable.batch.coords
    for (dim, size), i in zip(variable.batch_sizes.items(), index, strict=True):
        if dim not in value.dims:
            continue
        if dim in value.coords and dim in coords:
            label = coords[dim].values[i]
            if label not in value[dim].values:
                raise Unsuitable(f"known {name!r} has no value at {dim}={label}")
            own = own.sel({dim: label})
        elif value.sizes[dim] == size:
            own = own.isel({dim: i})
        else:
            raise Unsuitable(
                f"known {name!r} has {value.sizes[dim]} entries along {dim!r}, but the fit has {size}"
            )
    return float(own) if own.ndim == 0 and own.dtype.kind in "iuf" else own


def member(sums: Sums, index: tuple[int, ...]) -> Sums:
    """Return the sums of one member of a batch, without batch axes."""
    if not index:
        return sums
    gram = sums.gram
    for axis, i in enumerate(index):
        gram = gram.batch_slice(axis, slice(i, i + 1))
    terms = tuple(
        tuple(
            Factor(f.axes, f.window, f.pairs.reshape(f.pairs.shape[: 2 * len(f.axes)]), f.key) for f in term
        )
        for term in gram.terms
    )

    def own(array: Any) -> Any:
        places = tuple(
            0 if extent == 1 else i for extent, i in zip(array.shape[-len(index) :], index, strict=True)
        )
        return array[(..., *places)]

    per_member = {
        name: own(getattr(sums, name)) for name in ("moment", "power", "weight", "count", "reference")
    }
    return Sums(sums.window, Gram(terms), **per_member)

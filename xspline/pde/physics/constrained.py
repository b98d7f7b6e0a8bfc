"""``field.constrain``: the field that obeys an equation and is nearest to the data, with the errors that are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
import xarray as xr

from xspline.labels.field import Field
from xspline.labels.fit import Fit, Request
from xspline.labels.report.check import Finding, FitCheck
from xspline.labels.statistics import Data, Statistics  # noqa: F401 (inherited hints are read here)
from xspline.labels.uncertainty import PARTS_METHODS, Covariance, Requested
from xspline.pde.over_domain import dataset_of
from xspline.pde.profile.axes import Array, Unsuitable
from xspline.pde.profile.estimate import profile
from xspline.pde.profile.problem import problem_of
from xspline.pde.profile.scaled_sums import ScaledSums
from xspline.pde.text.equation import Equation
from xspline.pde.text.symbols import Names
from xspline.solve import Choice, Factorisation, Ridge, Solution
from xspline.solve.direct.cholesky import BandCholesky
from xspline.solve.errors import warn
from xspline.solve.system import DirectSystem, Draw
from xspline.spaces import Frame
from xspline.sums import Gram, matrix_entries, outer_pairs
from xspline.threads import single_threaded_blas


@dataclass(frozen=True, eq=False, repr=False)
class EquationField(Field[Data]):
    """A field whose fit knows an equation: predictions, derivatives, error bars and draws as of any field.

    Attributes
    ----------
    doubt : str
        Why its error bars are withheld, and what to do; empty where nothing speaks against the equation.
    """

    _knows_equation: ClassVar[bool] = True
    doubt: str = dataclass_field(default="", kw_only=True)

    def __getitem__(self, name: str) -> Field[xr.DataArray]:
        """Return the field of one variable of a Dataset."""
        own = Field.__getitem__(Field(self.statistics, self.fits, self._request), name)
        of_one: Any = replace(self, statistics=own.statistics, fits=own.fits)  # type: ignore[arg-type]
        return of_one

    def check(
        self,
        data: Data | None = None,
        *,
        weights: xr.DataArray | None = None,
        support: Any = None,
        holder: Any = None,
    ) -> FitCheck:
        """Look at the equation, and at everything that may be wrong with the fit: see :meth:`Field.check`."""
        hidden = {"residual"} if self.doubt else set()
        known = super().check(data, weights=weights, support=support, holder=holder)
        own = {
            name: (*self._verdict, *(f for f in findings if f.subject not in hidden | self._not_asked))
            for name, findings in known.findings.items()
        }
        return FitCheck(own)

    _not_asked: ClassVar[frozenset[str]] = frozenset()  # subjects of a check that such a field has none of

    @property
    def _verdict(self) -> tuple[Finding, ...]:
        """What there is to say of the equation."""
        text, _, advice = self.doubt.rpartition("; ")
        return (Finding("equation", text or advice, advice),) if self.doubt else ()

    @property
    def _notes(self) -> list[str]:
        return [*super()._notes, *filter(None, [self.doubt])]

    def to_dataset(self) -> NoReturn:
        """Raise ValueError: a file holds no equation."""
        raise ValueError(
            "a field that obeys an equation is not stored, as files hold no equations; store its statistics "
            "(field.statistics.to_zarr(...)) and constrain or solve them again, or store predictions"
        )

    def cross_validate(self) -> NoReturn:
        """Raise ValueError: fits without a holder would not obey the equation."""
        raise ValueError(
            "fits without each holder would not obey the equation; constrain or solve statistics.without(holder)"
        )

    def _covariance(self, name: str, requested: Requested) -> Covariance:
        if requested.method in PARTS_METHODS:
            self.cross_validate()
        return super()._covariance(name, requested)


@dataclass(frozen=True, eq=False, repr=False)
class ConstrainedField(EquationField[Data]):
    """A field that obeys an equation: predictions, derivatives, error bars and draws as of any field.

    It does so on average over a few knot cells, by as many test functions as the equation determines; at single points,
    most at the ends of the domain, the residual is as small as the space allows.

    Attributes
    ----------
    constants : Dataset
        As of ``recover``: the constants of the equation that it obeys; without entries where all are known.
    line : str
        The line of code that asks for it.
    """

    constants: xr.Dataset
    line: str

    def __getitem__(self, name: str) -> Field[xr.DataArray]:
        """Return the field of one variable of a Dataset."""
        of_one: Any = super().__getitem__(name)
        return replace(of_one, line=f"{self.line}[{name!r}]")

    _not_asked: ClassVar[frozenset[str]] = frozenset({"smoothing"})

    @property
    def _verdict(self) -> tuple[Finding, ...]:
        ratio = float(self.constants.adequacy)
        told = "the data alone tell no other field"
        if np.isfinite(ratio):
            told = f"F = {ratio:.3g} against a fit without it"
        return super()._verdict or (Finding("equation", f"{self.constants.attrs['equation']}: {told}"),)

    @property
    def _beside_data(self) -> tuple[str, Any]:
        return "equation", self.constants.attrs["equation"]

    def _code(self, penalty: Any) -> str:
        return self.line


@single_threaded_blas()
def constrained(
    field: Field[Any], equations: Sequence[Equation], names: Names, given: Mapping[str, Any], call: str
) -> ConstrainedField[Any]:
    """Return the field of ``constrain``, as it was called; raises as ``over_domain`` does, and of a batch."""
    variables = list(dict.fromkeys(value.variable for e in equations for value in e.values))
    if missing := [name for name in field.variables if name not in variables]:
        raise Unsuitable(
            f"the equation does not hold {', '.join(missing)}; select the others first: field[name]"
        )
    if any(field.variables[name].batch_dims for name in variables):
        raise Unsuitable(
            f"the fit has the batch dimensions {field.variables[variables[0]].batch_dims}; fit one member and "
            "constrain it"
        )
    problem = problem_of(field, equations, names, given, variables)
    outcome = profile(problem)
    estimates = outcome.estimates
    doubtful = bool(estimates.remarks) and estimates.remarks[0].startswith("errors are withheld")
    if doubtful:
        warn(f"{estimates.remarks[0]}; the field has no error bars")
    data = problem.search.data
    centred = data.unscaled(outcome.result.state.row)
    coefficients, fits = data.with_reference(outcome.result.state.row), {}
    linear = outcome.result.linear
    values, vectors = (
        np.linalg.eigh(linear.information) if estimates.value.size else (np.ones(0), np.ones((0, 0)))
    )
    by_constants = linear.response @ (vectors / np.sqrt(values))
    unresolved = outcome.unresolved / estimates.sigma if estimates.sigma > 0 else 0.0 * outcome.unresolved
    for v, name in enumerate(data.order.variables):
        system = ConstrainedSystem(data, linear.factor, v, by_constants, unresolved)
        rss = np.maximum(data.sums[name].rss(centred[name], data.order.frame), 0.0)
        choice = Choice("constrained", "the field obeys an equation", system.nbytes, 0.0)
        solution = Solution(
            coefficients[name],
            np.full(rss.shape, np.nan) if doubtful else rss,
            np.ones((), dtype=np.bool_),
            Factorisation(choice, system, np.ones((), dtype=np.bool_)),
        )
        fits[name] = Fit(field.statistics, name, coefficients[name], Ridge(0.0), {}, solution)
    constants = dataset_of(field, equations, given, [estimates], list(problem.parameters), "profile")
    doubt, line = estimates.remarks[0] if doubtful else "", f"{field.code()}.{call}"
    return ConstrainedField(field.statistics, fits, Request(Ridge(0.0)), constants, line, doubt=doubt)


@dataclass(frozen=True, eq=False)
class ConstrainedSystem(DirectSystem):
    """A⁻¹ + Y S⁻¹Yᵀ + δδᵀ/σ²: the covariance of one variable's coefficients over σ², the constants being estimated too.

    δ is what the knots leave of an error, from every second one. `variable` is its number among the variables of
    `data`. `factor` is that of A = G + Λ, `by_constants`, [P, k], is Y S^(−1/2), and `unresolved`, [P, coordinates], is
    δ/σ along each coordinate.
    """

    data: ScaledSums
    factor: BandCholesky
    variable: int
    by_constants: Array
    unresolved: Array

    @property
    def frame(self) -> Frame:  # type: ignore[override]
        return self.data.order.frame

    @property
    def _precision(self) -> float:
        name = self.data.order.variables[self.variable]
        return self.data.precision[name] * self.data.scale[name] ** 2

    @property
    def _roots(self) -> Array:
        """X with X Xᵀ = Y S⁻¹Yᵀ + δδᵀ/σ², [P, k + coordinates]."""
        return np.column_stack([self.by_constants, self.unresolved])

    @property
    def determined(self) -> Any:
        return np.ones((), dtype=np.bool_)

    @property
    def weakest(self) -> int:
        return 0

    @property
    def nbytes(self) -> int:
        return self.factor.nbytes

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        index = self.data.order.index[self.variable]
        rows = np.zeros((self.data.order.size, *rhs.shape[index.ndim :]))
        rows[index] = rhs
        flat = rows.reshape(len(rows), -1)
        out = self.factor.solve(flat) + self._roots @ (self._roots.T @ flat)
        return np.asarray(self._precision * out.reshape(rows.shape)[index])

    def draws(self, rng: np.random.Generator) -> Draw:
        order = self.data.order

        def draw(extents: tuple[int, ...]) -> Array:
            count = int(np.prod(extents))
            rows = self.factor.apply_inverse_sqrt(rng.standard_normal((order.size, count)))
            rows += self._roots @ rng.standard_normal((self._roots.shape[1], count))
            own = rows[order.index[self.variable]] * np.sqrt(self._precision)
            return np.asarray(own.reshape(*order.frame.sizes, *extents))

        return draw

    def apply_inverse_sqrt(self, z: Array) -> NoReturn:
        raise NotImplementedError("a constrained system draws by itself, see draws")

    def edf(self) -> Array:
        gram = self.data.sums[self.data.order.variables[self.variable]].gram
        edf = self.traces([gram])[0]
        own = np.moveaxis(
            self.unresolved[self.data.order.index[self.variable]], -1, 0
        )  # errors, and no freedom
        edf -= self._precision * sum(float(np.sum(x * gram.matvec(x, self.frame))) for x in own)
        return np.asarray(edf)

    def logdet(self) -> Array:
        return np.asarray(np.nan if self.by_constants.size else self.factor.logdet)

    def traces(self, grams: Sequence[Gram]) -> Array:
        pairs = self.inverse_pairs()
        return np.array([float(np.sum(pairs * gram.one_factor(self.frame).pairs)) for gram in grams])

    def inverse_pairs(self) -> Array:
        return self._pairs

    @cached_property
    def _pairs(self) -> Array:
        frame, order = self.frame, self.data.order
        inverse, index = self.factor.inverse(np.arange(order.width)), order.index[self.variable]
        out = outer_pairs(np.moveaxis(self._roots[index], -1, len(frame.sizes)), frame)
        for place, rows, columns in matrix_entries(frame):
            row, column = index[rows], index[columns]
            out[place] += inverse[np.minimum(row, column), np.abs(row - column)]
        return np.asarray(self._precision * out)

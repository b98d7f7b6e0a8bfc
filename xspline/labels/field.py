"""Field: a fitted, differentiable function of labelled coordinates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from xspline import execution
from xspline.labels import attributes, defaults, evaluated, operators, target, uncertainty, writing
from xspline.labels.errors import unknown_name
from xspline.labels.html import titled
from xspline.labels.solving import Asked, lazy_arrays, solved_variables
from xspline.labels.statistics import Statistics, Variable
from xspline.labels.summary import summarise
from xspline.labels.validation import cross_validate
from xspline.solve import Penalty, Solution, as_penalty, penalty_code
from xspline.spaces import Space


@dataclass(frozen=True, eq=False)
class Field:
    """A field u = φᵀc, linear in tensor-product features, with everything that it was fitted from.

    Attributes
    ----------
    space : the features and their domains.
    statistics : what the data contributed.
    asked : the penalty of the solve, or the name of the criterion that chooses one.
    arrays : coefficients of each variable, axes in Space order then batch; one Dask block each while lazy.
    solver : the solver that was asked for, or None.
    penalties : the penalty of each variable; empty while one is still to be chosen.
    choices : for each variable whose penalty was chosen, how: plain data.
    solved : the solve of each variable, as far as it was made here.
    selected : for each coordinate of which one term was selected, that term's name.
    members : the dimension along which this field holds draws of another, or "".
    device : the device that was asked for: later solves run there too, where a process has one.
    """

    space: Space
    statistics: Statistics
    asked: Asked
    arrays: Mapping[str, Any]
    solver: str | None = None
    penalties: Mapping[str, Penalty] = field(default_factory=dict)
    choices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    solved: Mapping[str, Solution] = field(default_factory=dict)
    selected: Mapping[str, str] = field(default_factory=dict)
    members: str = ""
    device: str | None = None
    recover: ClassVar[Callable[..., xr.Dataset]]  # the door to pde, which is opened there

    @classmethod
    def from_statistics(
        cls,
        statistics: Statistics,
        penalty: Any = None,
        solver: str | None = None,
        device: str | None = None,
    ) -> Field:
        """Solve for the coefficients; see :meth:`Statistics.solve`."""
        space, asked = statistics.space, as_penalty(penalty, statistics.space)
        if statistics.is_lazy:
            given = {} if isinstance(asked, str) else dict.fromkeys(statistics.variables, asked)
            arrays = lazy_arrays(statistics, asked, solver, device)
            return cls(space, statistics, asked, arrays, solver, given, device=device)
        found = solved_variables(statistics, dict.fromkeys(statistics.variables, asked), solver, device)
        return cls(
            space,
            statistics,
            asked,
            {name: one.solution.coefficients for name, one in found.items()},
            solver,
            {name: one.penalty for name, one in found.items()},
            {name: one.choice for name, one in found.items() if one.choice},
            {name: one.solution for name, one in found.items()},
            device=device,
        )

    @property
    def penalty(self) -> Any:
        """The penalty; by variable where they differ; the name of a criterion while that has not chosen yet."""
        every = list(self.penalties.values())
        if not every:
            return self.asked
        return every[0] if all(one == every[0] for one in every) else dict(self.penalties)

    @property
    def variables(self) -> Mapping[str, Variable]:
        """Labels of each variable."""
        return self.statistics.variables

    @property
    def coefficients(self) -> Any:
        """Coefficients with dimensions ``<coord>_basis`` (Greville points or names) and batch: DataArray or Dataset."""
        return self._wrap({name: self._coefficients(name) for name in self.variables})

    def _coefficients(self, name: str) -> xr.DataArray:
        variable, space = self.variables[name], self.space
        labels: dict[Hashable, Any] = {
            f"{c}_basis": f.labels() for c, f in zip(space.names, space.features, strict=True)
        }
        dims = (*labels, *variable.batch_dims)
        result = xr.DataArray(self.arrays[name], dims=dims, coords=labels, name=name)
        attrs = attributes.attributes(
            variable.units, f"coefficients of {variable.long_name}", variable.history, "solve"
        )
        return result.assign_coords(variable.batch.coords).assign_attrs(attrs)

    @functools.cached_property
    def solution(self) -> Mapping[str, Solution]:
        """The solve of each variable: solver, reason, effective degrees of freedom."""
        self._check_computed("solution")
        if self.solved:
            return self.solved
        found = solved_variables(self.statistics, self.penalties, self.solver, execution.present(self.device))
        return {n: one.solution for n, one in found.items()}

    @property
    def is_lazy(self) -> bool:
        """Whether the coefficients are still to be computed."""
        return not all(isinstance(a, np.ndarray) for a in self.arrays.values())

    def compute(self) -> Field:
        """Return the same field with its statistics and coefficients in memory."""
        if not self.is_lazy:
            return self
        return self._solved_again(self.statistics.compute())

    def persist(self) -> Field:
        """Return the same field with its statistics being computed on the workers and kept there."""
        return self._solved_again(self.statistics.persist())

    def _solved_again(self, statistics: Statistics) -> Field:
        found = Field.from_statistics(statistics, self.asked, self.solver, execution.present(self.device))
        return found._with(self.selected)

    def __getitem__(self, name: str) -> Field:
        """Return the field of one variable of a Dataset."""
        if name not in self.variables:
            raise unknown_name(name, "fitted variable", self.variables)
        return replace(
            self,
            statistics=self.statistics[name],
            arrays={name: self.arrays[name]},
            penalties=_only(self.penalties, name),
            choices=_only(self.choices, name),
            solved=_only(self.solved, name),
        )

    def predict(self, at: Any = None, *, chunks: Any = None, device: str | None = None, **coords: Any) -> Any:
        """Evaluate the field.

        Parameters
        ----------
        at
            Labels to evaluate at: any xarray object that has them (as coordinates, else as data variables), or a
            mapping. None keeps the fitted labels.
        chunks
            Chunk sizes of a lazy result, as for ``Dataset.chunk``. By default the result is in memory when the target
            is, and chunked like the target when that is lazy.
        device
            "cuda" evaluates on a GPU.
        **coords
            Labels by name. Coordinates that share a dimension are points, others span a grid.

        Returns
        -------
        DataArray or Dataset
            float64, in the data's units; NaN outside a B-spline's domain.
        """
        where = self._target(at, coords, chunks)
        return self._each(lambda name: evaluated.values(self, name, where, {}, device))

    def derivative(
        self,
        at: Any = None,
        orders: Mapping[str, int] | None = None,
        *,
        chunks: Any = None,
        device: str | None = None,
        stderr: bool = False,
        **orders_kwargs: int,
    ) -> Any:
        """Evaluate a derivative, exactly.

        Parameters
        ----------
        at, chunks, device
            As for :meth:`predict`.
        orders, **orders_kwargs
            Order by coordinate, for example ``lon=1, time=1``: integers, at least one positive, none above the degree.
        stderr
            True returns a Dataset that holds the derivative and its standard error, ``dsst_dlat_stderr``.

        Returns
        -------
        DataArray or Dataset
            ``dsst_dlat`` and the like, per unit of each coordinate (time: per second).
        """
        wanted = operators.checked_orders(self.space, orders, orders_kwargs)
        where = self._target(at, {}, chunks)
        values = self._each(lambda name: evaluated.values(self, name, where, wanted, device))
        if not stderr:
            return values
        errors = self._each(lambda name: evaluated.errors(self, name, where, wanted, device))
        return xr.merge([values, errors], compat="override", combine_attrs="override")

    def stderr(
        self,
        at: Any = None,
        *,
        method: str | None = None,
        chunks: Any = None,
        device: str | None = None,
        **coords: Any,
    ) -> Any:
        """Evaluate the standard error of the field: √(σ̂² φᵀ(G + Λ)⁻¹φ) (Wahba 1983; Nychka 1988).

        Parameters
        ----------
        at, chunks, device, **coords
            As for :meth:`predict`.
        method
            "exact": from the factorised system. "draws": from 800 draws of the coefficients, with a relative error of
            2.5 %. "jackknife": from the fits without one part (holder) at a time, for errors that are correlated within
            parts (years, say). None: exact where the covariance fits in memory, else draws.

        Returns
        -------
        DataArray or Dataset
            ``sst_stderr``, in the data's units. Attributes say what it assumes; for the jackknife, with how many
            ``degrees_of_freedom`` an interval is to be made of it.

        Raises
        ------
        ValueError
            An unknown method; a jackknife of fewer than two parts.
        """
        where = self._target(at, coords, chunks)
        return self._each(lambda name: evaluated.errors(self, name, where, {}, device, method))

    def derivative_stderr(
        self,
        at: Any = None,
        orders: Mapping[str, int] | None = None,
        *,
        method: str | None = None,
        chunks: Any = None,
        device: str | None = None,
        **orders_kwargs: int,
    ) -> Any:
        """Evaluate the standard error of a derivative; parameters as for :meth:`derivative` and :meth:`stderr`."""
        wanted = operators.checked_orders(self.space, orders, orders_kwargs)
        where = self._target(at, {}, chunks)
        return self._each(lambda name: evaluated.errors(self, name, where, wanted, device, method))

    def sample(self, n: int, seed: int | None = None) -> Field:
        """Return draws of the field, given the data, along a dimension ``sample``.

        Parameters
        ----------
        n
            How many, at least 1.
        seed
            Of the random numbers; None takes fresh ones.

        Returns
        -------
        Field
            Each draw has coefficients of mean c and covariance σ̂² (G + Λ)⁻¹, independent between variables.
        """
        return uncertainty.drawn(self, n, seed)

    def cross_validate(self) -> xr.Dataset:
        """Return how well the fit without each part (holder) predicts it; from the statistics alone.

        Returns
        -------
        Dataset
            Over ``holder``: ``count``, ``rmse`` out of sample, and ``influence``, the largest change of the field when
            the part is left out.

        Raises
        ------
        ValueError
            There is one part only; make more with ``fit(..., holder="time.year")``.
        """
        self._check_computed("cross-validation")
        return cross_validate(self)

    def gradient(
        self,
        at: Any = None,
        *,
        dims: Iterable[str] | None = None,
        geometry: str = "plane",
        chunks: Any = None,
        device: str | None = None,
        stderr: bool = False,
    ) -> xr.Dataset:
        """Evaluate the gradient.

        Parameters
        ----------
        at, chunks, device
            As for :meth:`predict`.
        dims
            Coordinates to differentiate along; None takes every fitted one that is not time.
        geometry
            "plane": per unit of each coordinate; "sphere": northward and eastward per metre on a sphere of radius
            ``xs.EARTH_RADIUS``, NaN eastward at the poles.
        stderr
            True adds the standard error of each derivative: ``dsst_dlat_stderr``, …

        Returns
        -------
        Dataset
            ``dsst_dlat``, ``dsst_dlon``, …
        """
        names = operators.differentiated(self.space, dims)
        where = self._target(at, {}, chunks)
        every = [evaluated.values, evaluated.errors] if stderr else [evaluated.values]
        parts = [
            operators.gradient(one(self, name, where, device), v, self.space, names, geometry)
            for one in map(evaluated.at_orders, every)
            for name, v in self.variables.items()
        ]
        return attributes.without_encoding(xr.merge(parts, compat="override", combine_attrs="override"))

    def laplacian(
        self,
        at: Any = None,
        *,
        dims: Iterable[str] | None = None,
        geometry: str = "plane",
        chunks: Any = None,
        device: str | None = None,
    ) -> Any:
        """Evaluate the Laplacian; parameters as for :meth:`gradient`. Named ``sst_laplacian``, in units per area."""
        names = operators.differentiated(self.space, dims)
        where = self._target(at, {}, chunks)
        return self._wrap(
            {
                name: operators.laplacian(
                    evaluated.at_orders(evaluated.values)(self, name, where, device),
                    v,
                    self.space,
                    names,
                    geometry,
                )
                for name, v in self.variables.items()
            }
        )

    def select(self, **terms: type) -> Field:
        """Return the field with only one term of a coordinate's union: ``select(time=xs.Polynomial)`` is the trend.

        The constant goes with the polynomial if there is one, else with the Fourier series.
        """
        return self._with({name: kind.__name__ for name, kind in terms.items()})

    def _with(self, selected: Mapping[str, str]) -> Field:
        """Return the field with the coefficients of all terms but the selected ones at zero."""
        if not selected:
            return self
        keep = operators.selection(self.space, selected)
        arrays = {
            name: a * keep.reshape(keep.shape + (1,) * (a.ndim - keep.ndim))
            for name, a in self.arrays.items()
        }
        solved = {} if self.is_lazy or self.members else self.solution
        return replace(self, arrays=arrays, solved=solved, selected={**self.selected, **selected})

    def summary(self) -> xr.Dataset:
        """Return count, coefficients, rmse, r2, sigma and edf, over batch dimensions (and `variable` for a Dataset).

        ``rmse`` = √(Σw e²/Σw), ``sigma`` = √(Σw e²/(count − edf)); attributes name the penalty and the solver.
        """
        return self._summary.copy()

    @functools.cached_property
    def _summary(self) -> xr.Dataset:
        """The summary, made once: exact degrees of freedom cost a pass over the factors."""
        self._check_computed("summary()")
        every = {name: summarise(self, name) for name in self.variables}
        if not self.statistics.is_dataset:
            return next(iter(every.values()))
        return xr.concat(
            list(every.values()), dim=xr.Variable("variable", list(every)), combine_attrs="override"
        )

    def _check_computed(self, what: str) -> None:
        if self.is_lazy:
            raise ValueError("this field is still lazy (compute=False); call .compute() first")
        if self.members:
            raise ValueError(
                f"this field holds draws along {self.members!r}, which have no {what}; "
                "ask the field that they were drawn from"
            )

    def to_dataset(self) -> xr.Dataset:
        """Return coefficients, statistics and definitions as plain arrays and one JSON attribute (as in files)."""
        from xspline.labels import store

        return store.field_to_dataset(self.compute())

    def to_zarr(self, path: Any, **kwargs: Any) -> None:
        """Write to a Zarr store; read it again with ``xs.open_field``."""
        writing.write_zarr(self.to_dataset(), path, **kwargs)

    def to_netcdf(self, path: Any, **kwargs: Any) -> None:
        """Write to a NetCDF file; read it again with ``xs.open_field``."""
        writing.write_netcdf(self.to_dataset(), path, **kwargs)

    def _target(self, at: Any, coords: Mapping[str, Any], chunks: Any) -> target.Target:
        s = self.statistics
        return target.resolve(self.space, s.fitted, s.chunks, at, coords, chunks)

    @functools.cached_property
    def _covariances(self) -> dict[tuple[str, str | None], uncertainty.Covariance]:
        """Covariances in pair form by variable and method, remembered."""
        return {}

    def _each(self, one: Callable[[str], xr.DataArray]) -> Any:
        return self._wrap({name: one(name) for name in self.variables})

    def _wrap(self, results: Mapping[str, xr.DataArray]) -> Any:
        """Return a Dataset named by variables for a Dataset's field, else the one DataArray."""
        if not self.statistics.is_dataset:
            return next(iter(results.values()))
        return xr.Dataset({r.name: r for r in results.values()})

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.space.shape))
        state = "lazy" if self.is_lazy else f"{self.statistics.count} observations"
        lines = [
            f"<xspline.Field of {', '.join(self.variables)}: {shape} = {self.space.size} coefficients, {state}>"
        ]
        lines += [f"    {name}: {basis!r}" for name, (_, basis) in self.space.axes.items()]
        chosen = f" (by {self.asked!r})" if self.choices else ""
        return "\n".join([*lines, f"    penalty: {self.penalty!r}{chosen}", f"    = {self.code()}"])

    def code(self) -> str:
        """Return the line of code that asks for this fit, with ``import xspline as xs``.

        What was chosen is spelt out; of a penalty for each of several variables only the criterion.
        """
        penalty = self.asked if isinstance(self.penalty, dict) else self.penalty
        return f"fit({defaults.code(self.space)}, penalty={penalty_code(penalty)})"

    def _repr_html_(self) -> str:
        body = self.coefficients if self.is_lazy else self.summary()
        return titled(repr(self), body._repr_html_())


def _only(by_name: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: by_name[name]} if name in by_name else {}

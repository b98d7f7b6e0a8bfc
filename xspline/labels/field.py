"""Field: a fitted, differentiable function of labelled coordinates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from xspline import execution
from xspline.labels import attributes, operators, target, validation
from xspline.labels.errors import unknown_name
from xspline.labels.html import titled
from xspline.labels.statistics import Statistics, Variable
from xspline.labels.summary import summarise
from xspline.solve import Penalty, Solution, as_penalty, factorise, solve
from xspline.spaces import Space


@dataclass(frozen=True, eq=False)
class Field:
    """A field u = φᵀc, linear in tensor-product features, with everything that it was fitted from.

    Attributes
    ----------
    space : the features and their domains.
    statistics : what the data contributed.
    penalty : the penalty of the solve.
    arrays : coefficients of each variable, axes in Space order then batch; one Dask block each while lazy.
    solver : the solver that was asked for, or None.
    selected : for each coordinate of which one term was selected, that term's name.
    """

    space: Space
    statistics: Statistics
    penalty: Penalty
    arrays: Mapping[str, Any]
    solver: str | None = None
    solved: Mapping[str, Solution] = field(default_factory=dict)
    selected: Mapping[str, str] = field(default_factory=dict)
    recover: ClassVar[Callable[..., xr.Dataset]]  # the door to pde, which is opened there

    @classmethod
    def from_statistics(cls, statistics: Statistics, penalty: Any = None, solver: str | None = None) -> Field:
        """Solve for the coefficients; see :meth:`Statistics.solve`."""
        chosen = as_penalty(penalty)
        if statistics.is_lazy:
            return cls(statistics.space, statistics, chosen, _lazy_arrays(statistics, chosen, solver), solver)
        solved = solutions(statistics, chosen, solver)
        arrays = {name: solution.coefficients for name, solution in solved.items()}
        return cls(statistics.space, statistics, chosen, arrays, solver, solved)

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
        return self.solved or solutions(self.statistics, self.penalty, self.solver)

    @property
    def is_lazy(self) -> bool:
        """Whether the coefficients are still to be computed."""
        return not all(isinstance(a, np.ndarray) for a in self.arrays.values())

    def compute(self) -> Field:
        """Return the same field with its statistics and coefficients in memory."""
        if not self.is_lazy:
            return self
        return Field.from_statistics(self.statistics.compute(), self.penalty, self.solver)._with(
            self.selected
        )

    def persist(self) -> Field:
        """Return the same field with its statistics being computed on the workers and kept there."""
        return Field.from_statistics(self.statistics.persist(), self.penalty, self.solver)._with(
            self.selected
        )

    def __getitem__(self, name: str) -> Field:
        """Return the field of one variable of a Dataset."""
        if name not in self.variables:
            raise unknown_name(name, "fitted variable", self.variables)
        one = {name: self.solved[name]} if name in self.solved else {}
        return replace(self, statistics=self.statistics[name], arrays={name: self.arrays[name]}, solved=one)

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
        return self._each(lambda name: self._values(name, where, {}, device))

    def derivative(
        self,
        at: Any = None,
        orders: Mapping[str, int] | None = None,
        *,
        chunks: Any = None,
        device: str | None = None,
        **orders_kwargs: int,
    ) -> Any:
        """Evaluate a derivative, exactly.

        Parameters
        ----------
        at, chunks, device
            As for :meth:`predict`.
        orders, **orders_kwargs
            Order by coordinate, for example ``lon=1, time=1``: integers, at least one positive, none above the degree.

        Returns
        -------
        DataArray or Dataset
            ``dsst_dlat`` and the like, per unit of each coordinate (time: per second).
        """
        wanted = operators.checked_orders(self.space, orders, orders_kwargs)
        where = self._target(at, {}, chunks)
        return self._each(lambda name: self._values(name, where, wanted, device))

    def gradient(
        self,
        at: Any = None,
        *,
        dims: Iterable[str] | None = None,
        geometry: str = "plane",
        chunks: Any = None,
        device: str | None = None,
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

        Returns
        -------
        Dataset
            ``dsst_dlat``, ``dsst_dlon``, …
        """
        names = operators.differentiated(self.space, dims)
        where = self._target(at, {}, chunks)
        parts = [
            operators.gradient(self._derivative_at(name, where, device), v, self.space, names, geometry)
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
                    self._derivative_at(name, where, device), v, self.space, names, geometry
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
        solved = {} if self.is_lazy else self.solution
        return replace(self, arrays=arrays, solved=solved, selected={**self.selected, **selected})

    def summary(self) -> xr.Dataset:
        """Return count, coefficients, rmse, r2, sigma and edf, over batch dimensions (and `variable` for a Dataset).

        ``rmse`` = √(Σw e²/Σw), ``sigma`` = √(Σw e²/(count − edf)); attributes name the penalty and the solver.
        """
        return self._summary.copy()

    @functools.cached_property
    def _summary(self) -> xr.Dataset:
        """The summary, made once: exact degrees of freedom cost a pass over the factors."""
        if self.is_lazy:
            raise ValueError("this field is still lazy (compute=False); call .compute() first")
        every = {name: summarise(self, name) for name in self.variables}
        if not self.statistics.is_dataset:
            return next(iter(every.values()))
        return xr.concat(
            list(every.values()), dim=xr.Variable("variable", list(every)), combine_attrs="override"
        )

    def cross_validate(self) -> xr.Dataset:
        """Return count, rmse out of sample and influence of each holder; see :func:`validation.cross_validate`."""
        return validation.cross_validate(self)

    def to_dataset(self) -> xr.Dataset:
        """Return coefficients, statistics and definitions as plain arrays and one JSON attribute (as in files)."""
        from xspline.labels import store

        return store.field_to_dataset(self.compute())

    def to_zarr(self, path: Any, **kwargs: Any) -> None:
        """Write to a Zarr store; read it again with ``xs.open_field``."""
        from xspline.labels import store

        store.write_zarr(self.to_dataset(), path, **kwargs)

    def to_netcdf(self, path: Any, **kwargs: Any) -> None:
        """Write to a NetCDF file; read it again with ``xs.open_field``."""
        self.to_dataset().to_netcdf(path, **kwargs)

    def _target(self, at: Any, coords: Mapping[str, Any], chunks: Any) -> target.Target:
        s = self.statistics
        return target.resolve(self.space, s.fitted, s.chunks, at, coords, chunks)

    @property
    def _selection(self) -> str:
        return ", ".join(f"{name}={kind}" for name, kind in self.selected.items())

    def _derivative_at(self, name: str, where: target.Target, device: str | None) -> operators.Derivative:
        return lambda orders: self._values(name, where, orders, device)

    def _values(
        self, name: str, where: target.Target, orders: Mapping[str, int], device: str | None
    ) -> xr.DataArray:
        """Evaluate one variable, or a derivative of it per unit of its coordinates."""
        variable, coefficients = self.variables[name], self.arrays[name]
        grid = target.grid(where, variable, self.space, coefficients.shape[len(self.space.shape) :])
        order = tuple(orders.get(c, 0) for c in self.space.names)
        values = execution.evaluate(
            coefficients,
            grid.coordinates,
            grid.layout,
            self.space,
            order,
            grid.shape,
            chunks=grid.chunks,
            device=device,
        )
        result = xr.DataArray(
            values, dims=grid.dims, name=attributes.derivative_name(name, orders) if orders else name
        )
        return operators.labelled(result, where, variable, self.space, orders, self._selection)

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
        return "\n".join([*lines, f"    penalty: {self.penalty!r}"])

    def _repr_html_(self) -> str:
        body = self.coefficients if self.is_lazy else self.summary()
        return titled(repr(self), body._repr_html_())


def solutions(statistics: Statistics, penalty: Penalty, solver: str | None) -> dict[str, Solution]:
    """Solve for every variable; those with the same Gram share one factorisation."""
    space, matrix = statistics.space, penalty.gram(statistics.space)
    shared: list[tuple[Any, Any]] = []
    found = {}
    for name in statistics.variables:
        sums = statistics.total(name)
        factorisation = next((f for gram, f in shared if gram.equals(sums.gram)), None)
        if factorisation is None:
            factorisation = factorise(sums.gram, matrix, space, solver)
            shared.append((sums.gram, factorisation))
        found[name] = solve(sums, space, penalty, solver, factorisation)
    return found


def _lazy_arrays(statistics: Statistics, penalty: Penalty, solver: str | None) -> dict[str, Any]:
    space = statistics.space
    return {
        name: execution.deferred(
            functools.partial(_merged_coefficients, space=space, penalty=penalty, solver=solver),
            [part.sums[name] for part in statistics.parts],
            (*space.shape, *(variable.batch_shape)),
        )
        for name, variable in statistics.variables.items()
    }


def _merged_coefficients(parts: list[Any], space: Space, penalty: Penalty, solver: str | None) -> np.ndarray:
    from xspline.sums import Sums

    return solve(Sums.merge(parts, space.frame), space, penalty, solver).coefficients

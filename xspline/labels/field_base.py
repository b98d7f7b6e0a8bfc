"""A fitted function of labelled coordinates: what fields and draws of them share, and the draws."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, Self, overload

import numpy as np
import xarray as xr

from xspline.arguments import checked
from xspline.labels import derivatives, evaluation
from xspline.labels.evaluation import merged
from xspline.labels.fit import Fit, Request, coefficient_at
from xspline.labels.functionals.methods import WithFunctionals
from xspline.labels.read import targets
from xspline.labels.statistics import Data, Statistics
from xspline.labels.storage import files
from xspline.labels.uncertainty import Covariance, Requested, covariance, requested_if, roots
from xspline.solve.select import SOLVERS
from xspline.spaces import Basis

SAMPLE = "sample"  # the dimension of draws
_NOT_OF_DRAWS = (
    "stderr interval exceedance significance summary check cross_validate sample solution plot discover"
).split()


#: The functions behind the methods that take an equation, "recover", "constrain" and "discover": the room that knows
#: equations is built on fields, and so registers them here.
ABOUT_EQUATIONS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, eq=False, repr=False)
class FieldBase(WithFunctionals[Data], files.Stored, Generic[Data]):
    """A function u = φᵀc of labelled coordinates, or several along a dimension: what fields and draws of them share.

    Attributes
    ----------
    statistics : what the data contributed.
    fits : the fit of each variable, for a look inside.
    """

    statistics: Statistics[Data]
    fits: Mapping[str, Fit]
    _request: Request  # penalty, solver and device that were requested
    # Covariances in pair form that were asked for, by the variable and what was requested.
    _covariances: dict[tuple[str, Requested], Covariance] = field(default_factory=dict, init=False)

    @property
    def coefficients(self) -> Data:
        """Coefficients with dimensions ``<coord>_basis`` (Greville points or names) and batch: DataArray or Dataset."""
        space = self.space
        labels: dict[Hashable, Any] = {
            f"{name}_basis": space.coefficient_labels(name) for name in space.names
        }

        def labelled(fit: Fit) -> xr.DataArray:
            v = fit.variable
            result = xr.DataArray(fit.coefficients, labels, (*labels, *v.batch_dims), fit.name)
            attrs = evaluation.attributes(v.units, f"coefficients of {v.long_name}", v.history, "solve")
            return result.assign_coords(v.batch.coords).assign_attrs(attrs)

        return self._each(labelled)

    @property
    def _is_whole(self) -> bool:
        """Whether a fine field is added to the terms."""
        return any(fit.whole is not None for fit in self.fits.values())

    def _check_single(self, what: str, instead: str) -> None:
        """Raise ValueError where a fine field goes with the terms, which `what` would leave out."""
        if any(fit.fine is not None for fit in self.fits.values()):
            raise ValueError(
                f"{what} goes with the coefficients of a single field, and beside these there is a fine one, as of "
                f"fit() without bases; {instead}"
            )

    def compute(self) -> Self:
        """Return the same with its coefficients in memory."""
        return self

    def __getitem__(self, name: str) -> FieldBase[xr.DataArray]:
        """Return the field of one variable of a Dataset."""
        statistics = self.statistics[name]
        fits = {name: replace(self.fits[name], statistics=statistics)}
        return type(self)(statistics, fits, self._request)  # type: ignore[arg-type, return-value]

    @overload
    def predict(self, at: Any = None, *, stderr: Literal[True], **options: Any) -> xr.Dataset: ...

    @overload
    def predict(self, at: Any = None, *, stderr: Literal[False] = False, **options: Any) -> Data: ...

    @checked
    def predict(
        self,
        at: Any = None,
        *,
        chunks: Any = None,
        device: str | None = None,
        extrapolate: bool = False,
        mask: Any = None,
        stderr: bool = False,
        method: str | None = None,
        draws: int | None = None,
        seed: int = 0,
        smoothing_uncertainty: bool = True,
        **coords: Any,
    ) -> Data | xr.Dataset:
        """Evaluate the field.

        Parameters
        ----------
        at
            Labels to evaluate at: any xarray object that has them (as coordinates, else as data variables), a mapping,
            or a pandas DataFrame, whose rows are points with all coordinates. Of others what is left out keeps its
            fitted labels. A latitude, longitude or time of another name is taken for the fitted one, with an
            ``xs.FitWarning``.
        chunks
            Chunk sizes of a lazy result, as for ``Dataset.chunk``. By default the result is in memory when the target
            is, and chunked like the target when that is lazy.
        device
            "cuda" evaluates on a GPU.
        extrapolate
            Whether there are values outside the domain (by default the range of the data), those of the polynomials at
            its ends: their errors grow fast. A periodic basis has no outside.
        mask
            Where values are kept; elsewhere they are NaN. "data": in cells between knots that hold observations; a
            number n: and up to n cells away along every coordinate (Fourier series, polynomials and unions are one
            cell); or a boolean DataArray with the result's labels, such as ``field.stderr(at) < 0.3``.
        stderr
            True returns a Dataset of the values and their standard error, ``sst`` and ``sst_stderr``.
        method, draws, seed, smoothing_uncertainty
            Of the standard error, as for :meth:`Field.stderr`, which returns it alone.
        **coords
            Labels by name. Coordinates that share a dimension are points, others span a grid.

        Returns
        -------
        DataArray or Dataset
            float64, in the data's units; NaN outside the domain unless `extrapolate`.

        Raises
        ------
        TypeError, ValueError
            Labels without a name or with an unknown one, no fitted coordinate in `at`, another kind of `mask`.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x = np.linspace(0, 10, 200)
        >>> field = xs.fit(xr.DataArray(np.sin(x), {"x": x}, "x", "u"), x=24)
        >>> field.predict(x=[0.5, 1.0, 10.5]).round(2).values
        array([0.48, 0.84,  nan])
        """
        error = requested_if(stderr, method, draws, seed, smoothing_uncertainty)
        return self._evaluated(self._target(at, coords, chunks, extrapolate, mask), {}, device, error)

    def __call__(self, *labels: Any) -> Any:
        """Evaluate the field at points, as a function of arrays that are broadcast, such as NumPy's are.

        Parameters
        ----------
        *labels
            Of each fitted coordinate, in the order of ``field.space.names``. Arrays of NumPy, or all as DataArrays.

        Returns
        -------
        ndarray or DataArray
            Of the shape of the labels, with dimensions of independent fits behind it; as :meth:`predict` of DataArrays.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x = np.linspace(0, 10, 200)
        >>> field = xs.fit(xr.DataArray(np.sin(x), {"x": x}, "x", "u"), x=24)
        >>> field(np.array([0.5, 1.0])).round(2)
        array([0.48, 0.84])
        >>> track = xr.DataArray([0.5, 1.0], dims="time")
        >>> xr.apply_ufunc(field, track).round(2).dims
        ('time',)
        """
        names = self.space.names
        if len(labels) != len(names) or len(self.fits) > 1:
            raise TypeError(
                f"field({', '.join(names)}) takes labels of each of these coordinates, in this order, and "
                f"{len(labels)} were given, to a field of {', '.join(self.fits)}; by name: "
                f"field.predict({names[0]}=...), and one variable of several is field[{next(iter(self.fits))!r}]"
            )
        if any(isinstance(own, xr.DataArray) for own in labels):
            return self.predict(dict(zip(names, labels, strict=True)))
        shaped = np.broadcast_arrays(*labels)
        dims = [f"axis {k} of the labels" for k in range(shaped[0].ndim)]
        points = {name: xr.Variable(dims, own) for name, own in zip(names, shaped, strict=True)}
        values: Any = self.predict(points)
        (variable,) = values.data_vars.values() if isinstance(values, xr.Dataset) else (values,)
        return variable.transpose(*dims, ...).values

    @overload
    def derivative(
        self, at: Any = None, orders: Any = None, *, stderr: Literal[True], **options: Any
    ) -> xr.Dataset: ...

    @overload
    def derivative(
        self, at: Any = None, orders: Any = None, *, stderr: Literal[False] = False, **options: Any
    ) -> Data: ...

    @checked
    def derivative(
        self,
        at: Any = None,
        orders: Mapping[str, int] | None = None,
        *,
        chunks: Any = None,
        device: str | None = None,
        extrapolate: bool = False,
        mask: Any = None,
        stderr: bool = False,
        method: str | None = None,
        draws: int | None = None,
        seed: int = 0,
        smoothing_uncertainty: bool = True,
        **orders_kwargs: int,
    ) -> Data | xr.Dataset:
        """Evaluate a derivative, exactly.

        Parameters
        ----------
        at, chunks, device, extrapolate, mask
            As for :meth:`predict`.
        orders, **orders_kwargs
            Order by coordinate, for example ``lon=1, time=1``: integers, at least one positive, none above the degree.
        stderr
            True returns a Dataset of the derivative and its standard error, ``dsst_dlat`` and ``dsst_dlat_stderr``.
        method, draws, seed, smoothing_uncertainty
            Of the standard error, as for :meth:`Field.stderr`.

        Returns
        -------
        DataArray or Dataset
            ``dsst_dlat`` and the like, per unit of each coordinate (time: per second); without units where a coordinate
            has none. On the fitted labels a linear trend's slope is given once, not at each label.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x = xr.DataArray(np.linspace(0, 10, 200), dims="x", attrs={"units": "m"})
        >>> data = xr.DataArray(np.sin(x.values), {"x": x}, "x", "u", {"units": "K"})
        >>> slope = xs.fit(data, x=24).derivative({"x": [0.5, 1.5]}, x=1)
        >>> slope.name, slope.units, slope.round(2).values
        ('du_dx', 'K m-1', array([0.88, 0.07]))
        """
        error = requested_if(stderr, method, draws, seed, smoothing_uncertainty)
        requested = derivatives.checked_orders(self.space, orders, orders_kwargs, limited=not self._is_whole)
        once = derivatives.constant_along(self.fits, requested, at, chunks, mask)
        target = self._target(at, {}, chunks, extrapolate, mask, once=once)
        return self._evaluated(target, requested, device, error, once)

    @checked
    def gradient(
        self,
        at: Any = None,
        *,
        dims: Iterable[str] | None = None,
        geometry: str = "plane",
        chunks: Any = None,
        device: str | None = None,
        extrapolate: bool = False,
        mask: Any = None,
        stderr: bool = False,
        method: str | None = None,
        draws: int | None = None,
        seed: int = 0,
        smoothing_uncertainty: bool = True,
    ) -> xr.Dataset:
        """Evaluate the gradient.

        Parameters
        ----------
        at, chunks, device, extrapolate, mask
            As for :meth:`predict`.
        dims
            Coordinates to differentiate along; None takes every fitted one that is not time.
        geometry
            "plane": per unit of each coordinate; "sphere": latitude and longitude, in degrees or radians, northward and
            eastward per metre on a sphere of radius ``xs.EARTH_RADIUS``, NaN eastward, and for the Laplacian, within
            0.001° (111 m) of a pole.
        stderr
            True adds the standard error of each derivative: ``dsst_dlat_stderr``, …
        method, draws, seed, smoothing_uncertainty
            Of the standard errors, as for :meth:`Field.stderr`.

        Returns
        -------
        Dataset
            ``dsst_dlat``, ``dsst_dlon``, …

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> lat, lon = np.linspace(-60, 60, 41), np.linspace(0, 354, 60)
        >>> data = xr.DataArray(
        ...     np.sin(np.deg2rad(lat))[:, None] + 0 * lon, {"lat": lat, "lon": lon}, name="u"
        ... )
        >>> field = xs.fit(data, lat=12, lon=12, penalty=1e-9)
        >>> north = field.gradient({"lat": 0.0, "lon": 90.0}, geometry="sphere").du_dlat
        >>> (north * xs.EARTH_RADIUS).round(2).item()  # the slope of the sine, per radian
        1.0
        """
        error = requested_if(stderr, method, draws, seed, smoothing_uncertainty)
        names = derivatives.differentiated(self.space, dims)
        where = (self._target(at, {}, chunks, extrapolate, mask), names, geometry, device)
        gradients = [derivatives.gradient(fit, *where) for fit in self.fits.values()]
        if error is not None:
            covariances = {fit: self._covariance(fit.name, error) for fit in self.fits.values()}
            gradients += [derivatives.gradient(fit, *where, own) for fit, own in covariances.items()]
        return merged(gradients)

    @checked
    def laplacian(
        self,
        at: Any = None,
        *,
        dims: Iterable[str] | None = None,
        geometry: str = "plane",
        chunks: Any = None,
        device: str | None = None,
        extrapolate: bool = False,
        mask: Any = None,
        stderr: bool = False,
        method: str | None = None,
        draws: int | None = None,
        seed: int = 0,
        smoothing_uncertainty: bool = True,
    ) -> Any:
        """Evaluate the Laplacian; parameters as for :meth:`gradient`. Named ``sst_laplacian``, in units per area.

        With ``stderr=True`` it returns a Dataset that has ``sst_laplacian_stderr`` too. Over several coordinates this
        comes from draws of the coefficients (or the jackknife), as second derivatives along them do not err
        independently; beside a fine field, where there are no draws, it is the sum of the errors of the second
        derivatives, which is at least as large, and its ``comment`` says so.

        Raises
        ------
        ValueError
            The units of the coordinates differ, or latitude or longitude is among several of them in the plane.
        """
        error = requested_if(stderr, method, draws, seed, smoothing_uncertainty)
        names = derivatives.differentiated(self.space, dims)
        where = (self._target(at, {}, chunks, extrapolate, mask), names, geometry, device)
        values = self._each(lambda fit: derivatives.laplacian(fit, *where))
        if error is None:
            return values

        def error_of(fit: Fit) -> xr.DataArray:
            if len(names) == 1 or fit.fine is not None:
                return derivatives.laplacian(fit, *where, self._covariance(fit.name, error))
            own = roots(self._solved[fit.name], error, self._request.device)
            return derivatives.laplacian_stderr(fit, *where, *own)

        return merged([values, self._each(error_of)])

    @checked
    def geostrophic(
        self, at: Any = None, *, equator: float = 5.0, gravity: float = 9.80665, **options: Any
    ) -> xr.Dataset:
        """Evaluate the geostrophic velocity of a sea level: u = −g/f ∂η/∂y and v = g/f ∂η/∂x, on the sphere.

        Parameters
        ----------
        at, **options
            As for :meth:`gradient`, with ``stderr=True`` too.
        equator
            Degrees of latitude within which there is no velocity: f = 2Ω sin φ vanishes at the equator. Altimetry's
            products take the balance of a β-plane within 5° (Lagerloef et al. 1999), which is not computed here.
        gravity
            g, in m s⁻².

        Returns
        -------
        Dataset
            ``u`` eastward and ``v`` northward, in m s⁻¹; with ``stderr=True`` also ``u_stderr`` and ``v_stderr``. Of a
            geopotential height, the wind.

        Raises
        ------
        ValueError
            There are several variables, the values are no lengths, or latitude or longitude was not fitted.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> lat, lon = np.arange(30, 41.0), np.arange(0, 21.0)
        >>> eta = xr.DataArray(-0.1 * lat[:, None] + 0 * lon, {"lat": lat, "lon": lon}, name="adt")
        >>> field = eta.assign_attrs(units="m").spline.fit(lat=8, lon=8, penalty=0)
        >>> velocity = field.geostrophic({"lat": [0.0, 36.0], "lon": 10.0}, extrapolate=True)
        >>> velocity.u.round(3).values  # sea level falls towards the north, 10 cm a degree
        array([  nan, 0.103])
        """
        if len(self.fits) > 1:
            known = ", ".join(map(repr, self.fits))
            raise ValueError(
                f"geostrophic() takes one sea level, and this field has {known}; select it first: "
                f"field[{next(iter(self.fits))!r}].geostrophic()"
            )
        if not 0 <= equator < 90:
            raise ValueError(f"equator={equator:g} has to be a latitude in degrees, at least 0 and below 90")
        if not 0 < gravity < np.inf:
            raise ValueError(
                f"gravity={gravity:g} has to be above 0, in m s⁻²; leave it out for that of the Earth"
            )
        (fit,) = self.fits.values()
        derivatives.metres_in(fit.variable.units, fit.name)
        names = derivatives.on_sphere(self.space)
        slope = self.gradient(at, dims=names, geometry="sphere", **options)
        return derivatives.geostrophic(fit, slope, names, equator, gravity)

    def select(self, **terms: type | str | float) -> Self:
        """Return the field with only one term of a coordinate's union: ``select(time=xs.Polynomial)`` is the trend.

        A term is the class of a basis, or the name of one function: ``select(time="enso")`` is what the index ``enso``
        explains, its coefficient times the index. Of several Fourier series it is that of a period:
        ``select(time="day")``, ``select(time="12.42h")``. The constant goes with the polynomial if there is one, else
        with the first Fourier series.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> t = np.arange(0, 10, 0.05)
        >>> data = xr.DataArray(0.5 * t + np.sin(2 * np.pi * t), {"t": t}, "t", "u")
        >>> field = xs.fit(data, t=xs.Polynomial(1) + xs.Fourier(1, period=1.0))
        >>> [field.select(t=term).predict(t=4.25).round(6).item() for term in (xs.Polynomial, xs.Fourier)]
        [2.125, 1.0]
        """
        for name, kind in terms.items():
            is_term = isinstance(kind, type) and issubclass(kind, Basis)
            has_numbers = name in self.space.names and self.space.axis(name).kind == "number"
            if not is_term and not isinstance(kind, str | float | int if has_numbers else str):
                raise TypeError(
                    f"select({name}={kind!r}) takes the class of a term, the name of a function or a period, and no "
                    f"basis: select({name}=xs.Fourier)"
                )
        return self._select(
            {n: kind.__name__ if isinstance(kind, type) else str(kind) for n, kind in terms.items()}
        )

    @checked
    def coefficient(
        self,
        function: str,
        at: Any = None,
        *,
        chunks: Any = None,
        stderr: bool = False,
        method: str | None = None,
        draws: int | None = None,
        seed: int = 0,
        smoothing_uncertainty: bool = True,
        **coords: Any,
    ) -> Data | xr.Dataset:
        """Return the coefficient of one named function, a map over all other coordinates and independent fits.

        Parameters
        ----------
        function
            Its name, as ``field.space.coefficient_labels("time")`` has it: that of an index of ``xs.Regressors``,
            ``step``, ``trend1`` of ``xs.PiecewiseLinear``, ``x1`` of ``xs.Polynomial``, ``cos1`` of ``xs.Fourier``,
            ``cos1(12.42h)`` of one of several.
        at, chunks, **coords
            Labels of the other coordinates, as for :meth:`predict`; those that were fitted by default.
        stderr
            True returns a Dataset of the coefficient and its standard error, ``sst_enso`` and ``sst_enso_stderr``.
        method, draws, seed, smoothing_uncertainty
            Of the standard error, as for :meth:`Field.stderr`.

        Returns
        -------
        DataArray or Dataset
            ``sst_enso`` and the like. That of an index is in units of the data per unit of the index, that of a step is
            the jump, and those of ``x1``, ``trend1``, ``trend2``, … are slopes per unit of the coordinate (of time: per
            second); above degree 1, ``x1`` is the slope that the linear term alone has.

        Raises
        ------
        ValueError
            No function has this name, or functions of several coordinates have it.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> t, noise = np.arange(100.0), np.random.default_rng(0).normal(0, 0.1, 100)
        >>> enso = xr.DataArray(np.sin(t / 7), {"t": t}, "t")
        >>> data = (20 + 0.5 * enso + noise).rename("sst")
        >>> field = xs.fit(data, t=xs.Polynomial(1) + xs.Regressors(enso=enso))
        >>> found = field.coefficient("enso", stderr=True).round(2)
        >>> found.sst_enso.item(), found.sst_enso_stderr.item()
        (0.49, 0.01)
        """
        error = requested_if(stderr, method, draws, seed, smoothing_uncertainty)
        name, label, order, size, per_unit = coefficient_at(self.space, function)
        if isinstance(at, xr.DataArray | xr.Dataset):
            at = at.drop_vars(name, errors="ignore")
        own = self._select({name: function})
        target = self._target(at, {**coords, name: label}, chunks)

        def coefficient(fit: Fit, covariance: Covariance | None = None) -> xr.DataArray:
            values = evaluation.evaluate(fit, target, {name: 1} if order else {}, None, covariance)
            return evaluation.as_coefficient(values.drop_vars(name), fit, function, size, per_unit)

        values = own._each(coefficient)
        if error is None:
            return values
        return merged([values, own._each(lambda fit: coefficient(fit, own._covariance(fit.name, error)))])

    def _select(self, terms: Mapping[str, str]) -> Self:
        if not terms:
            return self
        return replace(self, fits={name: fit.select(terms) for name, fit in self.fits.items()})

    @checked
    def recover(
        self,
        equation: str | Sequence[str],
        *,
        known: Mapping[str, Any] | None = None,
        vary: Mapping[str, Any] | None = None,
        dims: Mapping[str, str] | None = None,
        method: str | None = None,
        at: Any = None,
    ) -> xr.Dataset:
        """Estimate the constants of an equation that this field obeys everywhere, with errors and what tells them.

        Parameters and results are those of :func:`xspline.pde.recover`, which says all that an equation may hold.
        """
        return self._about_equation(
            "recover", equation, known=known, vary=vary, dims=dims, method=method, at=at
        )

    def _about_equation(self, what: str, text: str | Sequence[str], **arguments: Any) -> Any:
        """Return what a function of the room of equations says of this field."""
        self._check_single(what, f"write xs.{what}(data, {text!r}), or fit(..., fine=False).{what}(...)")
        self.statistics._check_independent(what)
        if any(fit.levels is not None and fit.levels.offsets for fit in self.fits.values()):
            raise ValueError(
                f"{what} does not know of the offsets of holders, which the observations have and their errors follow "
                "from; solve without offsets='holders', with noise= alone if need be"
            )
        return ABOUT_EQUATIONS[what](self, text, **arguments)

    def to_dataset(self) -> xr.Dataset:
        """Return coefficients, statistics and definitions as arrays and one JSON attribute (in files: and a digest)."""
        if self.is_lazy:
            return self.compute().to_dataset()
        dataset, penalty = self.statistics.to_dataset(), self._request.penalty
        # The one solver of all variables, if there is one: draws follow from their seed and from it.
        solved = [fit.solution for fit in self.fits.values() if fit.solution is not None]
        used = {solution.factorisation.choice.name for solution in solved}
        solver = used.pop() if len(used) == 1 and used <= SOLVERS.keys() else None
        meta = json.loads(dataset.attrs[files.ATTRIBUTE]) | {
            "content": "field",
            "asked": penalty if isinstance(penalty, str) else penalty.to_dict(),
            "penalties": {name: fit.known_penalty.to_dict() for name, fit in self.fits.items()},
            "choices": {name: dict(fit.choice) for name, fit in self.fits.items() if fit.choice},
            "residuals": {name: dict(fit.residuals) for name, fit in self.fits.items() if fit.residuals},
            "robust": {name: dict(fit.robust) for name, fit in self.fits.items() if fit.robust},
            "solver": self._request.solver or solver,
            "selected": next(iter(self.fits.values())).selected,
            "members": self._members,
        }
        contents = {}
        for k, fit in enumerate(self.fits.values()):
            dims = [f"coefficients__{k}__{axis}" for axis in range(fit.coefficients.ndim)]
            contents[f"coefficients__{k}"] = (dims, fit.coefficients)
            if fit.rho is not None:
                contents[f"rho__{k}"] = ([f"rho__{k}__{axis}" for axis in range(fit.rho.ndim)], fit.rho)
            if fit.levels is not None:
                own = [
                    f"holders__{k}",
                    *(f"holders__{k}__{axis}" for axis in range(fit.levels.ratio.ndim - 1)),
                ]
                contents |= {f"{key}__{k}": (own, getattr(fit.levels, key)) for key in ("offset", "ratio")}
                meta.setdefault("levels", {})[fit.name] = fit.levels.described()
            if fit.fine is not None:
                columns, meta.setdefault("fine", {})[fit.name] = fit.fine.to_arrays()
                for key, array in columns.items():
                    own = [f"fine__{k}", f"fine__{k}__coordinate"][: array.ndim]
                    contents[f"fine__{k}__{key}"] = (own, array)
        return dataset.assign(contents).assign_attrs({files.ATTRIBUTE: json.dumps(meta)})

    def _evaluated(
        self,
        target: targets.Target,
        orders: Mapping[str, int],
        device: str | None,
        requested: Requested | None,
        once: Iterable[str] = (),
    ) -> Any:
        """Return values, or derivatives, with their errors where these are requested, without the labels `once`."""
        # Errors first: they find values on their way (`Target.known`).
        errors: Any = None if requested is None else self._errors(target, orders, device, requested)
        values = self._each(lambda fit: evaluation.evaluate(fit, target, orders, device)).drop_vars(once)
        return values if errors is None else merged([values, errors.drop_vars(once)])

    def _errors(
        self, target: targets.Target, orders: Mapping[str, int], device: str | None, requested: Requested
    ) -> Data:
        def error(fit: Fit) -> xr.DataArray:
            return evaluation.evaluate(fit, target, orders, device, self._covariance(fit.name, requested))

        return self._each(error)

    def _covariance(self, name: str, requested: Requested) -> Covariance:
        """Return the covariance of one variable's coefficients."""
        known = self._covariances
        if (name, requested) not in known:
            known[name, requested] = covariance(self._solved[name], requested, self._request.device)
        return known[name, requested]


class Draws(FieldBase[Data]):
    """Draws of a field along a dimension ``sample``, from :meth:`Field.sample`.

    They are evaluated as the field is. What says how sure the field is (``stderr``, ``summary``, ``cross_validate``) is
    asked of the field that they were drawn from.
    """

    _members: ClassVar[str] = SAMPLE

    def __getitem__(self, name: str) -> Draws[xr.DataArray]:
        """Return the draws of one variable of a Dataset."""
        return super().__getitem__(name)  # type: ignore[return-value]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name not in _NOT_OF_DRAWS and name != "_solved":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            what = "stderr" if name == "_solved" else name
            raise AttributeError(
                f"this holds draws along {SAMPLE!r}, which have no {what}; ask the field that they were drawn from"
            )

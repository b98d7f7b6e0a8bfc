"""Field: a fitted, differentiable function of labelled coordinates, with everything that says how sure it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Self

import numpy as np
import xarray as xr

from xspline import execution
from xspline.arguments import brief, checked
from xspline.labels import derivatives, evaluation, uncertainty
from xspline.labels.checks.look import look
from xspline.labels.errors import check_names
from xspline.labels.evaluation import merged
from xspline.labels.field_base import SAMPLE, Draws, FieldBase
from xspline.labels.fine.field import Fine
from xspline.labels.fit import Fit, Request, SolvedApart, batch_labels, lazy_fits, solve_variables
from xspline.labels.inference import estimates
from xspline.labels.inference.estimates import Estimate
from xspline.labels.inference.holders import (
    differing,
    levels_in_summary,
    levels_of,
    solve_differing,
    stored_levels,
)
from xspline.labels.read.cells import bounds_of
from xspline.labels.read.coordinates import coordinate_of
from xspline.labels.read.observations import (
    Holders,
    Observations,
    check_data,
    check_kind,
    holders_of,
    observations_of,
)
from xspline.labels.report import findings
from xspline.labels.report import plot as pictures
from xspline.labels.report.check import FitCheck
from xspline.labels.statistics import Data, Statistics
from xspline.labels.storage import files
from xspline.labels.uncertainty import Requested
from xspline.residuals.assumptions import FEWEST, MOST
from xspline.solve import Penalty, Solution, as_penalty


class Field(FieldBase[Data]):
    """A field u = φᵀc, linear in tensor-product features, with everything that it was fitted from.

    Attributes
    ----------
    statistics : what the data contributed.
    fits : the fit of each variable, for a look inside: coefficients, penalty and how it was chosen, solution.
    """

    _knows_equation: ClassVar[bool] = False  # then a fit is more than least squares and a penalty

    @classmethod
    def from_statistics(
        cls,
        statistics: Statistics[Data],
        penalty: Any = None,
        solver: str | None = None,
        device: str | None = None,
        *,
        warns: bool = True,
        as_one: Mapping[str, Callable[[np.ndarray], float]] | None = None,
        **holders: Any,
    ) -> Self:
        """Solve for the coefficients; see :meth:`Statistics.solve`, of whose holders there are offsets and noise.

        `as_one` counts how many observations of a variable vary as one, given coefficients, for that choice.
        """
        request = Request(as_penalty(penalty, statistics.space), solver, device)
        if holders and (wanted := differing(statistics, **holders)) is not None:
            statistics, fits = solve_differing(statistics, wanted, request)
        elif isinstance(request.penalty, SolvedApart):
            statistics._check_independent("a Physics penalty")
            return request.penalty.field(statistics, request)
        elif statistics.is_lazy:
            return cls(statistics, lazy_fits(statistics, request), request)
        else:
            penalties = dict.fromkeys(statistics.variables, request.penalty)
            fits = solve_variables(statistics, penalties, solver, device, as_one=as_one)
        if warns:
            findings.warn_of(fits)
        return cls(statistics, fits, request)

    def _as_robust(self, passes: int, settled: bool, plain: Self, equal: Mapping[str, bool]) -> Self:
        """Return this field with how many passes over the data made it robust, and whether the weights settled.

        It also keeps what share of the observations of a `plain` fit is left out, the largest over the batch, and
        whether most values are `equal`.
        """
        fits = {}
        for name, fit in self.fits.items():
            count = plain.fits[name].total.count
            shares = np.where(count >= FEWEST, 1 - fit.total.count / np.maximum(count, 1), 0.0)
            told = {"left_out": float(np.max(shares, initial=0.0)), "equal": equal[name]}
            fits[name] = replace(fit, robust={"passes": passes, "settled": settled, **told})
        return replace(self, fits=fits)

    def _looked_at(self, observed: Mapping[str, Observations], *, warns: bool = True) -> Self:
        """Return this field with what a sample of its residuals says; warn of what is wrong."""
        fits = {
            name: replace(fit, residuals=look(fit, observed.get(name))) for name, fit in self._solved.items()
        }
        if warns:
            findings.warn_of(fits)
        return replace(self, fits=fits)

    @classmethod
    def from_dataset(cls, dataset: xr.Dataset) -> Field[Any] | Draws[Any]:
        """Return the field, or the draws, in a Dataset that `to_dataset` returned; raises as `open_statistics` does."""
        meta = files.read_meta(dataset, "field")
        statistics = Statistics.from_dataset(dataset)
        requested = meta["asked"]
        fits = {}
        for k, name in enumerate(statistics.variables):
            fine = None
            if name in meta.get("fine", {}):
                columns = {
                    key: dataset[f"fine__{k}__{key}"].values for key in ("coordinates", "values", "weights")
                }
                fine = Fine.from_arrays(columns, meta["fine"][name], statistics.space)
            fits[name] = Fit(
                statistics,
                name,
                dataset[f"coefficients__{k}"].values,
                Penalty.from_dict(meta["penalties"][name]),
                meta.get("choices", {}).get(name, {}),
                selected=meta["selected"],
                fine=fine,
                residuals=meta.get("residuals", {}).get(name, {}),
                robust=meta.get("robust", {}).get(name, {}),
                rho=dataset[f"rho__{k}"].values if f"rho__{k}" in dataset else None,
                levels=stored_levels(dataset, meta, name, k),
            )
        penalty = requested if isinstance(requested, str) else Penalty.from_dict(requested)
        kind = Draws if meta.get("members") else cls
        return kind(statistics, fits, Request(penalty, meta["solver"]))

    @property
    def solution(self) -> Mapping[str, Solution]:
        """The solve of each variable: solver, reason, effective degrees of freedom."""
        return {name: fit.solved for name, fit in self._solved.items()}

    @functools.cached_property
    def _solved(self) -> Mapping[str, Fit]:
        """The fits with their solutions; those that were read from a file are solved again, once."""
        self._check_computed()
        if all(fit.solution is not None for fit in self.fits.values()):
            return self.fits
        penalties = {name: fit.penalty for name, fit in self.fits.items() if fit.penalty is not None}
        device = execution.present(self._request.device)
        rhos = {name: fit.rho for name, fit in self.fits.items()}
        solved = solve_variables(self.statistics, penalties, self._request.solver, device, rhos)
        return {
            name: replace(fit, solution=solved[name].solution, weak=solved[name].weak)
            for name, fit in self.fits.items()
        }

    def compute(self) -> Self:
        """Return the same field with its statistics and coefficients in memory."""
        if not self.is_lazy:
            return self
        return self._solved_again(self.statistics.compute())

    def persist(self) -> Self:
        """Return the same field with its statistics being computed on the workers and kept there."""
        if not self.is_lazy:
            return self
        return self._solved_again(self.statistics.persist())

    def _solved_again(self, statistics: Statistics[Data]) -> Self:
        request, selected = self._request, next(iter(self.fits.values())).selected
        device = execution.present(request.device)
        return self.from_statistics(statistics, request.penalty, request.solver, device)._select(selected)

    def __getitem__(self, name: str) -> Field[xr.DataArray]:
        """Return the field of one variable of a Dataset."""
        return super().__getitem__(name)  # type: ignore[return-value]

    @property
    def offsets(self) -> xr.Dataset:
        """What the observations of each holder are larger by than those of the reference, over ``holder``.

        ``offset``, its ``stderr``, and their ``covariance`` over ``holder`` and ``other``; the attribute ``reference``
        names the holder whose offset is 0. NaN for holders without observations. See :meth:`Statistics.solve`.
        """
        return self._table({name: levels_of(fit, "offsets") for name, fit in self._solved.items()})

    @property
    def noise(self) -> xr.Dataset:
        """The standard deviation of an observation of weight 1 of each holder, ``noise``, and its ``stderr``."""
        return self._table({name: levels_of(fit, "noise") for name, fit in self._solved.items()})

    @checked
    def stderr(
        self,
        at: Any = None,
        *,
        method: str | None = None,
        draws: int | None = None,
        seed: int = 0,
        chunks: Any = None,
        device: str | None = None,
        extrapolate: bool = False,
        mask: Any = None,
        smoothing_uncertainty: bool = True,
        simultaneous: float | None = None,
        **coords: Any,
    ) -> Data:
        """Evaluate the standard error of the field: √(σ̂² φᵀ(G + Λ)⁻¹φ) (Wahba 1983; Nychka 1988).

        The short form of ``predict(at, stderr=True)`` where the values themselves are not needed. That of a derivative
        is ``derivative(at, lon=1, stderr=True)``, and :meth:`gradient` and :meth:`laplacian` take ``stderr=True`` too.

        Where REML chose λ, this includes what the choice leaves open: φᵀJ Cov(log λ) Jᵀφ more under the root, with
        J = ∂c/∂log λ and Cov(log λ) from the curvature of REML (Wood, Pya and Säfken 2016).

        Parameters
        ----------
        at, chunks, device, extrapolate, mask, **coords
            As for :meth:`predict`.
        method
            "exact": from the factorised system. "draws": from draws of the coefficients. "jackknife": from the fits
            without one part (holder) at a time, for errors that are correlated within parts (years, say). "scores":
            from what each part moves the fit by, which is that without fits. None: scores where ``errors="auto"`` finds
            errors alike, exact where the solver knows the inverse and the covariance fits in memory, else draws.
        draws
            How many draws, at least 10; n of them leave a relative error of 1/√(2n). None: 200 where the solver
            iterates (5 %), 40 where they only tell what a few changing gaps leave open (up to 11 % there), 800 where it
            knows the inverse (2.5 %). They are made once and remembered.
        seed
            Of their random numbers: the same seed, the same error bars.
        smoothing_uncertainty
            False takes the chosen λ as known, as is always done where "gcv" or "holders" chose it, which are no
            likelihoods, and by parts.
        simultaneous
            A probability, such as 0.95, returns half the width of the band that holds the whole field with it, that of
            ``interval(level=0.95, simultaneous=True)``, in place of the standard error.

        Returns
        -------
        DataArray or Dataset
            ``sst_stderr``, in the data's units. Attributes say what it assumes; of draws also how many, ``seed`` and
            ``relative_error``; by parts the ``degrees_of_freedom`` of an interval.

        Raises
        ------
        ValueError
            An unknown method, or "exact" of a solver that iterates; fewer than 10 draws; a jackknife of fewer than two
            parts.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x, noise = np.linspace(0, 10, 200), np.random.default_rng(0).normal(0, 0.1, 200)
        >>> field = xs.fit(xr.DataArray(np.sin(x) + noise, {"x": x}, "x", "u"), x=12)
        >>> error = field.stderr(x=[5.0, 20.0])
        >>> error.name, error.round(2).values  # outside the domain there is none
        ('u_stderr', array([0.02,  nan]))

        Where neighbours err alike, parts tell how much:

        >>> drifting = np.sin(x) + np.repeat(np.random.default_rng(1).normal(0, 0.1, 20), 10)
        >>> cruise = xr.DataArray(np.arange(200) // 10, dims="x")
        >>> field = xs.fit(xr.DataArray(drifting, {"x": x}, "x", "u"), x=6, penalty=0, holder=cruise)
        >>> float(field.stderr(x=5.0, method="scores") / field.stderr(x=5.0)) > 1.5
        True
        """
        requested = Requested(method, draws, seed, smoothing_uncertainty)
        if simultaneous is None:
            return self._errors(self._target(at, coords, chunks, extrapolate, mask), {}, device, requested)
        where = {"chunks": chunks, "device": device, "extrapolate": extrapolate, "mask": mask}
        ends = ("lower end", "upper end")  # which no coordinate is called
        where |= {"level": simultaneous, "simultaneous": True, "names": ends}
        band = self.interval(at, **asdict(requested), **where, **coords)

        def half(fit: Fit) -> xr.DataArray:
            named = [f"{fit.name}_{end}" if self.statistics._is_dataset else end for end in ends]
            lower, upper = (band[name] for name in named)
            width = (upper - lower).assign_attrs(
                upper.attrs, long_name=f"half the width of a {simultaneous:g} band"
            )
            return (width / 2).rename(f"{fit.name}_stderr").assign_attrs(width.attrs)

        return self._each(half)

    @checked
    def interval(
        self,
        at: Any = None,
        orders: Mapping[str, int] | None = None,
        *,
        level: float = 0.95,
        new: bool = False,
        simultaneous: bool = False,
        names: Sequence[str] = ("lower", "upper"),
        **options: Any,
    ) -> xr.Dataset:
        """Return the ends of an interval for the field, a derivative of it, or a new observation.

        Parameters
        ----------
        at
            As for :meth:`predict`.
        orders
            Of a derivative, by coordinate, ``{"time": 1}``; None is the field itself, or a selected term.
        level
            Probability that each interval holds the truth.
        new
            Whether it is that of a new observation, with noise: ``summary().sigma``, and more or less of it in a fine
            field, as data around it vary. Where these had weights, pass ``weight=``, its own: a number or a DataArray.
        simultaneous
            Whether all labels together hold the truth with this probability, for each independent fit.
        names
            Of the lower and the upper end.
        **options
            Labels by name, `chunks`, `device`, `extrapolate`, `mask` as for :meth:`predict`; `method`, `draws`, `seed`,
            `smoothing_uncertainty` as for :meth:`stderr`, `draws` and `seed` of a simultaneous band too.

        Returns
        -------
        Dataset
            ``lower`` and ``upper``; of a Dataset's field ``sst_lower``, ``sst_upper``, … They are as many standard
            errors away as Student's t takes: of count - edf degrees of freedom, by the jackknife of one less than there
            are parts, and of those by which the covariance of a fine field is known.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x, noise = np.linspace(0, 10, 200), np.random.default_rng(0).normal(0, 0.1, 200)
        >>> field = xs.fit(xr.DataArray(np.sin(x) + noise, {"x": x}, "x", "u"), x=12)
        >>> [float(end.round(2)) for end in field.interval(x=5.0).values()]  # the sine is -0.96 here
        [-1.0, -0.92]
        >>> slope = field.interval({"x": 5.0}, {"x": 1})
        >>> [float(end.round(2)) for end in slope.values()]  # the cosine is 0.28
        [0.17, 0.33]
        """
        estimates.check_probability("level", level, "0.95")
        if len(names) != 2 or not all(isinstance(name, str) for name in names) or names[0] == names[1]:
            raise ValueError(f'names={names!r} has to be two texts that differ, such as ("lower", "upper")')
        if simultaneous and (new or any(fit.fine is not None for fit in self.fits.values())):
            raise ValueError(
                "simultaneous=True takes draws of all coefficients, which tell nothing of new observations nor of a "
                f"fine field; pass fine=False to the fit, or level=1 - {1 - level:.3g} / n, wide enough for n labels"
            )
        ends = []
        for e in self._estimates(at, orders, new=new, **options).values():
            own = [f"{e.value.name}_{end}" if self.statistics._is_dataset else end for end in names]
            if taken := [end for end in own if end in e.value.coords or end in e.value.dims]:
                raise ValueError(
                    f'{taken[0]!r} is a coordinate here; name the ends otherwise: interval(names=("low", "high"))'
                )
            ends.append(e.interval(level, own, simultaneous=simultaneous, new=new))
        return merged(ends)

    @checked
    def exceedance(
        self, level: Any, at: Any = None, orders: Mapping[str, int] | None = None, **options: Any
    ) -> Data:
        """Return the probability that the field, a derivative of it, or a new observation is above a level.

        Parameters
        ----------
        level
            A number, or a DataArray with labels of the result, in units of the field; of a Dataset by variable.
        at, orders, **options
            As for :meth:`interval`, with ``new=True``.

        Returns
        -------
        DataArray or Dataset
            ``sst_exceedance``, from 0 to 1; NaN outside the domain.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x, noise = np.linspace(0, 10, 200), np.random.default_rng(0).normal(0, 0.1, 200)
        >>> field = xs.fit(xr.DataArray(np.sin(x) + noise, {"x": x}, "x", "u"), x=12)
        >>> field.exceedance(0.9, x=[0.0, 1.1, 1.5]).round(2).values
        array([0.  , 0.12, 1.  ])
        """
        own = self._estimates(at, orders, **options)
        return self._each(lambda fit: own[fit.name].exceedance(level))

    @checked
    def significance(
        self,
        at: Any = None,
        orders: Mapping[str, int] | None = None,
        *,
        value: Any = None,
        rate: float = 0.05,
        procedure: str = "BH",
        **options: Any,
    ) -> Data:
        """Return where a trend, or any derivative, differs from zero: a map for stippling.

        Parameters
        ----------
        at, orders, **options
            As for :meth:`interval`: ``{"time": 1}`` is the trend.
        value
            What it is to differ from instead of zero, a number or a DataArray; needed without `orders`.
        rate
            The share of false discoveries among all places found, on average, at most.
        procedure
            "BH" (Benjamini and Hochberg 1995), for errors that are independent, or alike where they are near, as those
            of maps are (Wilks 2016); "BY" (Benjamini and Yekutieli 2001), for any errors, which finds less.

        Returns
        -------
        DataArray or Dataset
            ``dsst_dtime_significant``, over all labels and independent fits as one map; False outside the domain.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> months = np.arange("2000-01", "2010-01", dtype="datetime64[M]").astype("datetime64[ns]")
        >>> noise = np.random.default_rng(0).normal(0, 0.1, (120, 6))
        >>> warming = np.linspace(0, 1, 120)[:, None] * [0, 0, 0, 1, 1, 1]
        >>> data = xr.DataArray(warming + noise, {"time": months, "lat": range(6)}, ("time", "lat"), "sst")
        >>> trend = data.spline.fit(time=xs.Polynomial(1))  # a fit for each latitude
        >>> trend.significance(orders={"time": 1}).values
        array([False, False, False,  True,  True,  True])
        """
        if orders is None and value is None:
            raise ValueError(
                f"significance() of what? Of a derivative pass orders={{{self.space.names[-1]!r}: 1}}; of the field "
                "value=0, or what else it is to differ from"
            )
        estimates.check_probability("rate", rate, "0.05")
        if procedure not in estimates.PROCEDURES:
            raise ValueError(f"procedure={procedure!r} is unknown; use 'BH', or 'BY' for any errors")
        own, null = self._estimates(at, orders, **options), 0.0 if value is None else value
        return self._each(lambda fit: own[fit.name].significance(null, rate, procedure))

    @checked
    def _estimates(
        self,
        at: Any,
        orders: Mapping[str, int] | None,
        *,
        new: bool = False,
        weight: Any = None,
        chunks: Any = None,
        device: str | None = None,
        extrapolate: bool = False,
        mask: Any = None,
        method: str | None = None,
        draws: int | None = None,
        seed: int = 0,
        smoothing_uncertainty: bool = True,
        **coords: Any,
    ) -> dict[str, Estimate]:
        """Return values or derivatives with their errors, or new observations, by variable."""
        solved, requested = self._solved, Requested(method, draws, seed, smoothing_uncertainty)
        along: dict[str, int] = {}
        if orders is not None:
            along = derivatives.checked_orders(self.space, orders, {}, limited=not self._is_whole)
        selected = next(iter(solved.values())).selected
        if new and (along or selected):
            what = f"a derivative, {along}" if along else f"a term, {selected}"
            raise ValueError(f"new=True: observations are of the whole field, not of {what}; leave new out")
        if weight is not None and not new:
            raise ValueError(f"weight={weight!r} is that of a new observation, which takes new=True; add it")
        once = derivatives.constant_along(self.fits, along, at, chunks, mask)
        once = {name: label for name, label in once.items() if name not in coords}
        target = self._target(at, coords, chunks, extrapolate, mask, once=once)

        def evaluated(fit: Fit, covariance: uncertainty.Covariance | None = None) -> xr.DataArray:
            return evaluation.evaluate(fit, target, along, device, covariance).drop_vars(once)

        return {
            name: Estimate.of(
                fit,
                evaluated,
                self._covariance(name, requested),
                requested,
                estimates.noise_of(fit, weight, target) if new else None,
            )
            for name, fit in solved.items()
        }

    @checked
    def sample(self, n: int, seed: int | None = None, *, smoothing_uncertainty: bool = True) -> Draws[Data]:
        """Return draws of the field, given the data, along a dimension ``sample``.

        Parameters
        ----------
        n
            How many, at least 1.
        seed
            Of the random numbers; None takes fresh ones.
        smoothing_uncertainty
            As for :meth:`stderr`.

        Returns
        -------
        Draws
            Each draw has coefficients of mean c and the covariance of their errors, as :meth:`stderr` has it,
            independent between variables. Where the solver iterates, each takes a solve.

        Notes
        -----
        Errors of observations are taken as independent, unless the fit has ``errors=``. Where those of neighbours are
        alike, the mean over a region or a period of such draws is far too sure (36 times for the trend of Niño 3.4);
        there ``errors="auto"``, or ``mean(..., method="jackknife")`` over years, which is that of all fits without one.
        """
        self._check_single(
            "sample", "draw from fit(..., fine=False); errors of the whole field are those of stderr()"
        )
        if n < 1:
            raise ValueError(f"sample({n!r}): the number of draws is an integer, at least 1")
        if seed is not None and seed < 0:
            raise ValueError(
                f"sample(seed={seed}): a seed is an integer, 0 or more, or None for fresh numbers"
            )
        if n > MOST:
            raise ValueError(f"sample({n}): {MOST:,} draws are the most; take some at a time")
        solved = self._solved
        if any(SAMPLE in map(str, (*v.dims, *v.batch_dims)) for v in self.variables.values()):
            raise ValueError(
                f"the data have a dimension {SAMPLE!r} already; rename it before the fit, to draw samples"
            )
        requested = Requested(smoothing_uncertainty=smoothing_uncertainty)
        rng = np.random.default_rng(seed)
        axis = len(self.space.shape)
        fits = {}
        for name, fit in solved.items():
            estimate = np.expand_dims(fit.solved.coefficients, axis)
            parts = list(uncertainty.deviations(fit, n, rng, requested))
            drawn = estimate + np.concatenate(parts, axis=axis)
            fits[name] = replace(fit, selected={}).along(SAMPLE, drawn).select(fit.selected)
        return Draws(next(iter(fits.values())).statistics, fits, self._request)

    @checked
    def plot(
        self,
        at: Any = None,
        *,
        band: float | None = 0.95,
        method: str | None = None,
        extrapolate: bool = False,
        mask: Any = None,
        **options: Any,
    ) -> Any:
        """Draw the field: over two coordinates as a map, over one as a line with a band of its error, by xarray.

        Longitude, or else time, goes across; what is positive downwards (CF: ``positive="down"``) goes down.

        Parameters
        ----------
        at, extrapolate, mask
            As for :meth:`predict`; ``mask="data"`` leaves white what is far from observations. Coordinates of scattered
            points and curvilinear grids get 201 labels each, evenly over their domain.
        band
            Of a line, the level of the :meth:`interval` around each value. None draws none, and computes none.
        method
            Of the standard error, as for :meth:`stderr`: "jackknife" where errors of neighbours are alike.
        **options
            Labels by name, as for :meth:`predict`, also of dimensions of independent fits; anything else goes to
            xarray's ``plot.pcolormesh`` or ``plot.line``: ``ax``, ``cmap``, ``robust``, ``vmin``, ``color``, …

        Returns
        -------
        QuadMesh or list of Line2D
            As xarray's plotting does.

        Raises
        ------
        ValueError
            There are more than two dimensions: it says which, and what to pass; or none; or several variables; a field
            that is still lazy; a label without a fit; an option that nobody knows.
        ImportError
            There is no matplotlib.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x, y = np.linspace(0, 10, 40), np.linspace(0, 5, 30)
        >>> wave = np.sin(x)[:, None] * np.cos(y) + np.random.default_rng(0).normal(0, 0.1, (40, 30))
        >>> field = xs.fit(xr.DataArray(wave, {"x": x, "y": y}, ("x", "y"), "u"), x=12, y=8)
        >>> field.plot(cmap="RdBu_r").axes.get_ylabel()  # a map
        'y'
        >>> (line,) = field.plot(y=2.0)  # a line, with a band of 95 %
        >>> line.axes.get_title()
        'y = 2.0'
        """
        where = {"extrapolate": extrapolate, "mask": mask}
        interval = functools.partial(self.interval, method=method)
        return pictures.plot(self, interval, at, band, where, options)

    @checked
    def constrain(
        self,
        equation: str | Sequence[str],
        *,
        known: Mapping[str, Any] | None = None,
        vary: Mapping[str, Any] | None = None,
        dims: Mapping[str, str] | None = None,
    ) -> Field[Data]:
        """Return the field that obeys an equation everywhere and is nearest to the data.

        Parameters are those of :func:`xspline.pde.recover`; all constants may be known. Predictions, derivatives, error
        bars and draws are as of any field, much surer than without the equation; its ``constants`` are those of
        ``recover``.
        """
        constrained: Field[Data] = self._about_equation(
            "constrain", equation, known=known, vary=vary, dims=dims
        )
        return constrained

    @checked
    def discover(
        self,
        response: str,
        *,
        terms: Sequence[str] | None = None,
        order: int | None = None,
        power: int | None = None,
        known: Mapping[str, Any] | None = None,
        dims: Mapping[str, str] | None = None,
    ) -> xr.Dataset:
        """Find which terms the equation of this field has, among candidates, with their constants.

        Parameters and results are those of :func:`xspline.pde.discover`: a Dataset over ``model``, best first, and
        ``term``, whose attribute ``equation`` is the one that is claimed, or "none".
        """
        candidates = {"terms": terms, "order": order, "power": power, "known": known, "dims": dims}
        models: xr.Dataset = self._about_equation("discover", response, **candidates)
        return models

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
        device = self._request.device
        return self._table(
            {name: uncertainty.cross_validate(fit, device) for name, fit in self._solved.items()}
        )

    def summary(self) -> xr.Dataset:
        """Return count, coefficients, rmse, r2, sigma and edf, over batch dimensions (and `variable` for a Dataset).

        ``rmse`` = √(Σw e²/Σw), ``sigma`` = √(Σw e²/(count − edf)); attributes name the penalty and the solver. Of a
        bare fit ``sigma`` is the noise, and of more than 3200 values 3200 at random tell rmse, r2 and edf.
        Where errors remember there are ``ar1``, the correlation of those one step apart, and ``effective``, how many
        independent observations tell as much of the mean. Where holders differ there are ``offset`` and ``noise``.
        """
        return self._summary.copy()

    @functools.cached_property
    def _summary(self) -> xr.Dataset:
        """The summary, computed once: exact degrees of freedom cost a pass over the factors."""
        return self._table(
            {n: fit.summary().assign(levels_in_summary(fit)) for n, fit in self._solved.items()}
        )

    @checked
    def check(
        self,
        data: Data | None = None,
        *,
        weights: xr.DataArray | None = None,
        support: Any = None,
        holder: Any = None,
    ) -> FitCheck:
        """Look at everything that may be wrong with the fit, and say what to do about it.

        As ``gam.check`` of R's mgcv does: how the smoothing was chosen, whether that converged and ended at a bound;
        how many functions of each coordinate are in use, which shows whether the knots limit the fit; how nearly
        singular the system is; which observations were left out; how many independent fits there are; units of
        coordinates; residuals. It computes the effective degrees of freedom and a few solves.

        Of residuals a sample of 100,000 values at most is looked at, in boxes of neighbouring labels: how many are
        farther from the field than errors can be, whether their tails are heavier than those of a normal distribution,
        records that are there twice, what neighbours still share (structure that is left, or errors that are alike),
        and whether they are larger in some parts than in others. Of a field with neighbours these are the errors of
        some hundred observations, each predicted from all others. A fit of data in memory has looked at them already.

        Parameters
        ----------
        data
            The data that were fitted, or others with the same coordinates, whose residuals are looked at; of Dask
            arrays and stores the sample alone is read. None: what the fit has seen, if its data were in memory.
        weights
            Of these data, as for the fit.
        support
            Of these data, as for the fit: "cells" compares them with means of the field over their cells. None is what
            the fit had along each coordinate.
        holder
            Of these data, as for the fit, where holders differ by offsets or noise. None takes the name of labels that
            the fit was given.

        Returns
        -------
        FitCheck
            To be read: a line for each thing, "fine" or "look", with advice; ``concerns`` holds the latter as data.

        Raises
        ------
        ValueError
            The field is still lazy; it is of points and of cells, and `support` does not say which these data are;
            its holders differ, and `holder` does not say whose these data are.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x, noise = np.linspace(0, 10, 200), np.random.default_rng(0).normal(0, 0.1, 200)
        >>> data = xr.DataArray(np.sin(3 * x) + noise, {"x": ("x", x, {"units": "m"})}, "x", "u")
        >>> data.spline.fit(x=30).check().concerns
        {'u': ()}
        """
        field = (
            self
            if data is None
            else self._looked_at(self._observed(data, weights, support, holder), warns=False)
        )
        return FitCheck({name: tuple(findings.checked(fit)) for name, fit in field._solved.items()})

    def _observed(
        self, data: Data, weights: xr.DataArray | None, support: Any, holder: Any
    ) -> dict[str, Observations]:
        """Return the observations of each fitted variable in some data."""
        check_kind(data)
        kinds = self.statistics._kinds
        if support is None and len(kinds) > 1:
            raise ValueError(
                "the parts of this field are points and means over cells: say what these data are, "
                "check(data, support='cells') or support='points'"
            )
        observed = {}
        for name, variable in self.variables.items():
            if isinstance(data, xr.Dataset):
                check_names([name], data.data_vars, "variable of the data")
            values = data if isinstance(data, xr.DataArray) else data[name]
            check_data(values)
            coordinates = {n: coordinate_of(values, n, default_labels=True) for n in self.space.names}
            spanned = {*variable.batch_dims, *(dim for c in coordinates.values() for dim in c.dims)}
            pooled = tuple(dim for dim in values.dims if dim not in spanned)
            own = dict.fromkeys(kinds[0], "cells") if support is None else support
            bounds = bounds_of(data, own, coordinates)
            holders = self._holders_of(values, holder, name)
            (found,) = observations_of([values], coordinates, self.space, pooled, weights, holders, bounds)
            observed[name] = found.on_host()
        return observed

    def _holders_of(self, data: xr.DataArray, holder: Any, name: str) -> Holders | None:
        """Return whose each of some observations is; None where holders do not differ."""
        if (levels := self.fits[name].levels) is None:
            return None
        asked = {part.provenance.get("holder") for part in self.statistics.parts}
        own = asked.pop() if holder is None and len(asked) == 1 else holder
        found = holders_of(own, data)
        names = (str(own),) if found is None else found.names
        if strange := [repr(name) for name in names if name not in levels.names]:
            told = "" if own is None else f", and nothing is known of {brief(', '.join(strange))}"
            raise ValueError(
                f"the holders of this field differ (offsets=, noise=){told}: say whose these data are, "
                f"check(data, holder=...), by labels along a dimension or one of {', '.join(map(repr, levels.names))}"
            )
        dims = [dim for dim in data.dims if dim not in self.variables[name].batch_dims]
        if found is not None and found.dim not in dims:
            raise ValueError(
                f"the holder labels run along {found.dim!r}, of which each member is a fit of its own; label one of "
                f"the dimensions {tuple(dims)}"
            )
        if found is not None:
            return found
        return Holders(names, dims[0], np.zeros(data.sizes[dims[0]], np.int32))

    def _table(self, by_variable: Mapping[str, xr.Dataset]) -> xr.Dataset:
        """Return the one Dataset, or those of a Dataset's variables along `variable`."""
        tables = list(by_variable.values())
        if not self.statistics._is_dataset:
            return tables[0]
        for variable in self.variables.values():
            batch_labels(variable, ("variable",))
        along = xr.Variable("variable", list(by_variable))
        options: dict[str, Any] = {"coords": "minimal", "compat": "override", "combine_attrs": "override"}
        return xr.concat(tables, along, data_vars="all", join="outer", **options)


def open_field(path: Any, **kwargs: Any) -> Field[Any] | Draws[Any]:
    """Open a field written by ``Field.to_zarr`` or ``to_netcdf``; parameters as for :func:`open_statistics`."""
    return files.read(path, Field.from_dataset, **kwargs)

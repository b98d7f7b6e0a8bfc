"""The methods of a field that return linear functionals of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic

import numpy as np
import xarray as xr

from xspline.arguments import brief, checked
from xspline.labels.derivatives import EARTH_RADIUS
from xspline.labels.errors import check_names
from xspline.labels.evaluation import merged
from xspline.labels.fit import Fit
from xspline.labels.functionals.evaluate import Functional, scaled
from xspline.labels.functionals.marginals import (
    Marginal,
    Measure,
    Range,
    at_labels,
    check_weights,
    is_around,
    range_in,
    weighted,
)
from xspline.labels.read.coordinates import arrange, in_units_of
from xspline.labels.read.targets import Target, resolve
from xspline.labels.report.text import FieldText
from xspline.labels.statistics import Data, Statistics
from xspline.labels.uncertainty import Requested, requested_if
from xspline.spaces import Space
from xspline.spaces.conversions import degrees_in


class WithFunctionals(FieldText, Generic[Data]):
    """Means, integrals, weighted sums, anomalies and cell means of fields."""

    statistics: Statistics[Data]

    @property
    def _solved(self) -> Mapping[str, Fit]:
        """The fits with their solutions; draws have none, as `Draws.__getattr__` says."""
        raise AttributeError("_solved")

    @checked
    def mean(
        self,
        dims: Any = None,
        at: Any = None,
        *,
        where: Any = None,
        weights: Any = "area",
        stderr: bool = False,
        covariance: bool = False,
        **options: Any,
    ) -> Any:
        """Return the mean over some coordinates, exactly: of a basin at each time, of a period at each place.

        It is an integral of the field over that of 1, not a mean over labels: exact for the functions of the bases, by
        Gauss quadrature with the cosine of latitude. Of a field with a fine part that is a sum of values at nodes,
        about as many as there are labels: pairs of Gauss's, and of cells no wider than a label their middles.

        Parameters
        ----------
        dims
            Names of fitted coordinates, ``("lat", "lon")``, over their whole domains, or ranges by name, ``{"lat": (-5,
            5), "lon": (190, 240)}``: pairs of labels or slices, whose open ends are those of the fitted labels. A
            longitude may go on through the seam, ``(350, 10)``, and a time ends with the year, month or day that is
            written: ``("1991", "2020")``. None: all coordinates, or those of `where`.
        at
            Labels of the other coordinates, as for :meth:`predict`; by default the fitted ones.
        where
            A region: a DataArray with labels of coordinates in `dims`, True in it, or a weight of 0 or more. Each label
            stands for its cell, which goes half-way to the next labels. Further dimensions are those of the result, as
            of several regions.
        weights
            "area": by the cosine of latitude, where a latitude is among `dims`. None: as in the plane.
        stderr
            True returns a Dataset with the standard error beside the mean: ``sst`` and ``sst_stderr``.
        covariance
            True adds ``sst_covariance``, of the errors of any two labels: over ``time`` and ``time_``. With it
            differences and trends of means have errors: √(wᵀCw).
        **options
            Labels by name, as for :meth:`predict`; `method`, `draws`, `seed`, `smoothing_uncertainty` as for
            :meth:`Field.stderr`. The exact error takes a solve for each label, or each function where these are fewer,
            by any solver; draws stand for it beyond 800 (200 where the solver iterates). Of a field with a fine part it
            takes all observations, some 0.1 ms of each.

        Returns
        -------
        DataArray or Dataset
            Named like the variable, over what is left of its dimensions. NaN where a label is outside the domain.

        Raises
        ------
        ValueError
            An unknown coordinate, a range or labels of a region outside the domain, an open end of a range around the
            Earth where the fitted labels are not known, a mask that marks nothing or holds NaN; the error of a field
            with a fine part whose data are not in memory, or by another method than "exact".

        Notes
        -----
        Of a field with a fine part the error is that of the mean as it was, with its weather. So is that of a trend,
        ``functional(slope, mean=box, stderr=True)``; that of a climate, of which weather is a sample, is
        ``select(time=xs.Polynomial).functional(...)``.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> lat, lon, noise = np.linspace(-60, 60, 41), np.linspace(0, 354, 60), np.random.default_rng(0)
        >>> u = np.cos(np.deg2rad(lat))[:, None] + noise.normal(0, 0.1, (41, 60))
        >>> field = xs.fit(xr.DataArray(u, {"lat": lat, "lon": lon}, name="u"), lat=12, lon=8, penalty=1e-9)
        >>> mean = field.mean({"lat": (-30, 30)}, lon=[90, 180], stderr=True)
        >>> mean.u.round(2).values, mean.u_stderr.round(3).values
        (array([0.96, 0.97]), array([0.009, 0.009]))
        >>> region = xr.DataArray(lat > 0, {"lat": lat}, name="north")
        >>> field.mean(["lat", "lon"], where=region).round(2).item()  # of cos² over cos, from 0° to 60°
        0.85
        """
        return self._mean(dims, at, where, weights, "mean", stderr, covariance, options)

    @checked
    def integral(
        self,
        dims: Any = None,
        at: Any = None,
        *,
        where: Any = None,
        weights: Any = "area",
        stderr: bool = False,
        covariance: bool = False,
        **options: Any,
    ) -> Any:
        """Return the integral over some coordinates; parameters as for :meth:`mean`.

        Over latitude and longitude it is that over the surface of a sphere of radius ``xs.EARTH_RADIUS``, in units of
        the data times m2; over other coordinates, and with ``weights=None``, in units of these (time: seconds).

        Returns
        -------
        DataArray or Dataset
            ``sst_integral``; without units where a coordinate has none.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x = xr.DataArray(np.linspace(0, 10, 200), dims="x", attrs={"units": "m"})
        >>> field = xs.fit(xr.DataArray(np.sin(x.values), {"x": x}, "x", "u", {"units": "K"}), x=24)
        >>> heat = field.integral({"x": (0, np.pi)})
        >>> heat.name, heat.units, heat.round(3).item()
        ('u_integral', 'K m', 2.0)
        """
        return self._mean(dims, at, where, weights, "integral", stderr, covariance, options)

    @checked
    def functional(
        self,
        weights: Any,
        at: Any = None,
        *,
        mean: Any = None,
        where: Any = None,
        stderr: bool = False,
        covariance: bool = False,
        **options: Any,
    ) -> Any:
        """Return weighted sums of values of the field: differences, trends, projections, any linear functional.

        Parameters
        ----------
        weights
            A DataArray with labels of fitted coordinates, whose values there are multiplied by it and added up. Further
            dimensions are those of the result. Its attribute ``units`` goes into those of the result.
        mean, where
            What is averaged over before, by area: `dims` and `where` of :meth:`mean`. None: nothing.
        at, stderr, covariance, **options
            As for :meth:`mean`.

        Returns
        -------
        DataArray or Dataset
            ``sst_functional``.

        Examples
        --------
        The trend of a mean, with its error: least squares has the weights (t - t̄)/Σ(t - t̄)².

        >>> import numpy as np, xarray as xr, xspline as xs
        >>> year, lat, noise = np.arange(1990.0, 2020), np.linspace(-60, 60, 41), np.random.default_rng(0)
        >>> u = 0.02 * (year - 1990)[:, None] + noise.normal(0, 0.1, (30, 41))
        >>> data = xr.DataArray(u, {"year": year, "lat": lat}, name="u")
        >>> field = xs.fit(data, year=8, lat=6, penalty=1e-6)
        >>> t = data.year - data.year.mean()
        >>> slope = field.functional(t / (t**2).sum(), mean={"lat": (-30, 30)}, stderr=True)
        >>> slope.u_functional.round(3).item(), slope.u_functional_stderr.round(4).item()
        (0.02, 0.0004)
        """
        space = self.space
        names = check_weights(space, weights, "weights=", positive=False)
        ranges = {} if mean is None and where is None else self._ranges(mean, where)
        if both := [name for name in names if name in ranges]:
            raise ValueError(
                f"{both[0]!r} is averaged over and has weights= too; leave it out of one of them"
            )
        marginals, extra = self._reduced(ranges, where, _is_area(space, "area", ranges), is_mean=True)
        over = _beside(weights, names)
        if both := [str(dim) for dim in over.sizes if dim in extra.sizes]:
            raise ValueError(f"{both[0]!r} is a dimension of weights= and of where= too; rename one of them")
        target, errors = self._resolved(at, options, [*names, *ranges], stderr or covariance)
        whole = [*marginals, weighted(space, weights)]
        made = self._made(
            whole, target, extra.merge(over, combine_attrs="drop"), [*names, *ranges], "functional"
        )
        units = ((str(weights.attrs.get("units", "")), 1),)
        made = replace(made, long_name=f"weighted sum over {', '.join(names)} of {{}}", units=units)
        return self._of(made, errors, covariance)

    @checked
    def anomaly(
        self,
        at: Any = None,
        *,
        reference: Any = None,
        dim: str | None = None,
        mean: Any = None,
        where: Any = None,
        stderr: bool = False,
        covariance: bool = False,
        **options: Any,
    ) -> Any:
        """Return the field without its season, less its mean over a reference period.

        The season are the Fourier series of the time; where it is part of a B-spline it stays.

        Parameters
        ----------
        reference
            Range of the time, as in ``dims`` of :meth:`mean`: ``("1991", "2020")``. None: the whole domain.
        dim
            The coordinate that this is a range of; None: the only time.
        mean, where
            What is averaged over, by area: `dims` and `where` of :meth:`mean`, as for an index. None: nothing.
        at, stderr, covariance, **options
            As for :meth:`mean`. The error knows that values and reference are of one field.

        Returns
        -------
        DataArray or Dataset
            ``sst_anomaly``.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> time = np.arange("1990-01", "2020-01", dtype="datetime64[M]").astype("datetime64[ns]")
        >>> years = (time - time[0]) / np.timedelta64(1, "D") / 365.2425
        >>> u = 0.03 * years + np.cos(2 * np.pi * years) + np.random.default_rng(0).normal(0, 0.01, 360)
        >>> field = xs.fit(
        ...     xr.DataArray(u, {"time": time}, name="u"), time=xs.Fourier(2, "year") + xs.Polynomial(1)
        ... )
        >>> field.anomaly(reference=("1990", "1999"), time=["2000-01-01", "2005-01-01"]).round(2).values
        array([0.15, 0.3 ])
        """
        space = self.space
        times = [name for name in space.names if space.axis(name).kind == "time"]
        if dim is None and len(times) != 1:
            raise ValueError(
                f"anomaly() along which of {', '.join(times or space.names)}? Pass dim={(times or space.names)[0]!r}"
            )
        name = dim or times[0]
        check_names([name], space.names)
        period = range_in(space, name, reference, self._observed_ranges)
        ranges = {} if mean is None and where is None else self._ranges(mean, where)
        if name in ranges:
            raise ValueError(f"{name!r} is averaged over, so that it has no anomaly; leave it out of mean=")
        marginals, extra = self._reduced(ranges, where, _is_area(space, "area", ranges), is_mean=True)
        target, errors = self._resolved(at, options, list(ranges), stderr or covariance)
        made = self._made(marginals, target, extra, list(ranges), "anomaly")
        over, parts = Measure(space, False, self._steps).over(name, period), []
        for m in made.marginals:
            if name in m.names and len(m.names) > 1:
                raise ValueError(
                    f"anomaly() of points: {m.names} share their dimension; pass labels of each along its own, as in "
                    f"anomaly({name}=[...])"
                )
            parts.append(m.without_season(space, over) if m.names == (name,) else m)
        made = replace(made, marginals=tuple(parts), long_name="anomaly of {}")
        return self._of(made, errors, covariance)

    @checked
    def regrid(
        self,
        target: Any,
        *,
        dims: str | Iterable[str] | None = None,
        weights: Any = "area",
        stderr: bool = False,
        covariance: bool = False,
        **options: Any,
    ) -> Any:
        """Return the means over the cells of another grid, exactly: what conservative regridding returns.

        Parameters
        ----------
        target
            Labels, as `at` of :meth:`predict`, of the middles of cells, which go half-way to the next label, or to the
            CF bounds of the target where it has them. Cells end where the domain does.
        dims
            Coordinates whose cells are averaged over, names or one name; None: those of the target that are no times.
            Of others it is the value at the label.
        weights, stderr, covariance, **options
            As for :meth:`mean`.

        Returns
        -------
        DataArray or Dataset
            As ``predict(target)`` would be; NaN where a label is outside the domain.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x = np.linspace(0, 10, 201)
        >>> field = xs.fit(xr.DataArray(x**2, {"x": x}, name="u"), x=12)
        >>> field.regrid({"x": [1.0, 3.0, 5.0]}).round(2).values  # a third above the squares
        array([ 1.33,  9.33, 25.33])
        """
        space = self.space
        resolved, errors = self._resolved(target, options, [], stderr or covariance)
        given = target.variables if isinstance(target, xr.Dataset) else getattr(target, "coords", target)
        if dims is None:
            dims = [n for n in space.names if space.axis(n).kind == "number" and n in given]
        names = [dims] if isinstance(dims, str) else list(dims)
        if not names:
            raise ValueError(
                "regrid() over no coordinate: without dims= it goes over those of the target that are no times; pass "
                f"dims=, one or more of {', '.join(map(repr, space.names))}"
            )
        check_names(names, space.names)
        for name in names:
            others = [c.dims for n, c in resolved.coordinates.items() if n != name]
            own = resolved.coordinates[name].dims
            if len(own) != 1 or any(set(own) & set(dims) for dims in others):
                raise ValueError(
                    f"cells of {name!r} are known where its labels have a dimension of their own, and here it has "
                    f"{own}; pass a grid, or predict(target)"
                )
        measure = Measure(space, _is_area(space, weights, names), self._steps)
        marginals = []
        for name in names:
            labels = resolved.coordinates[name]
            bounds = labels.attrs.get("bounds")
            known = (
                target[bounds]
                if bounds is not None and bounds in getattr(target, "variables", given)
                else None
            )
            marginals.append(measure.cells(name, labels, known))
        made = self._made(marginals, resolved, xr.Dataset(), [], "regrid")
        made = replace(made, long_name=f"{{}}, mean over cells of {', '.join(names)}")
        return self._of(made, errors, covariance)

    # ---- how they are put together

    def _mean(
        self,
        dims: Any,
        at: Any,
        where: Any,
        weights: Any,
        kind: str,
        errors: bool,
        covariance: bool,
        options: Any,
    ) -> Any:
        """Return the mean over some coordinates, or their integral."""
        space, ranges = self.space, self._ranges(dims, where)
        area = _is_area(space, weights, ranges)
        marginals, extra = self._reduced(ranges, where, area, is_mean=kind == "mean")
        target, requested = self._resolved(at, options, list(ranges), errors or covariance)
        made = self._made(marginals, target, extra, list(ranges), kind)
        if kind == "integral":
            units = [(space.axis(name).units, 1) for name in ranges]
            if area:
                roles = {space.axis(name).role: name for name in ranges}
                if "longitude" not in roles:
                    raise ValueError(
                        f"the integral over {roles['latitude']!r} by area needs a longitude too; add it, or pass "
                        "weights=None for the integral over degrees"
                    )
                sphere = [roles[role] for role in ("latitude", "longitude")]
                radians = [np.deg2rad(degrees_in(space.axis(name).units) or 1.0) for name in sphere]
                made = scaled(made, float(EARTH_RADIUS**2 * np.prod(radians)))
                units = [("m", 2), *((space.axis(name).units, 1) for name in ranges if name not in sphere)]
            made = replace(made, units=tuple(units))
        return self._of(
            replace(made, long_name=f"{kind} over {', '.join(ranges)} of {{}}"), requested, covariance
        )

    def _ranges(self, dims: Any, where: Any) -> dict[str, Range]:
        """Return the ranges that are averaged over, as floats; by default all coordinates, or those of a mask.

        `dims` are names, or a mapping from names to ranges: pairs of labels, slices, or None for the whole domain.
        """
        space = self.space
        if where is not None:
            names = check_weights(space, where, "where=", positive=True)
            dims = names if dims is None else dims
        dims = space.names if dims is None else dims
        if not isinstance(dims, Iterable):
            raise TypeError(
                f"{brief(dims)} names no coordinates to go over; pass one or more of {', '.join(space.names)}, or "
                f"ranges, {{{space.names[0]!r}: (lo, hi)}}"
            )
        given = (
            dims if isinstance(dims, Mapping) else dict.fromkeys([dims] if isinstance(dims, str) else dims)
        )
        if not given:
            raise ValueError(
                f"a mean over no coordinate; name one of {', '.join(space.names)}, or leave dims out"
            )
        advice = "; of independent fits, and of samples, average the predictions"
        check_names(given, space.names, advice=advice)
        observed = self._observed_ranges  # which say what a whole domain is in place of the basis
        ranges = {name: range_in(space, name, given[name], observed) for name in space.names if name in given}
        for name in () if where is None else names:
            if name not in ranges:
                raise ValueError(
                    f"where= goes along {name!r}, which is not averaged over; add {name!r} to the names, or select a "
                    f"label of the mask"
                )
        return ranges

    def _reduced(
        self, ranges: Mapping[str, Range], where: Any, area: bool, *, is_mean: bool
    ) -> tuple[list[Marginal], xr.Dataset]:
        """Return the marginals of what is averaged over, and the other dimensions of a mask with their labels."""
        measure = Measure(self.space, area, self._steps, is_mean)
        names = [] if where is None else [name for name in self.space.names if name in where.dims]
        marginals = [measure.over(name, ends) for name, ends in ranges.items() if name not in names]
        if not names:
            return marginals, xr.Dataset()
        return [*marginals, measure.region(names, where, ranges)], _beside(where, names)

    @property
    def _neighbours(self) -> list[Any]:
        """What neighbours tell of each variable and member that has a fine field."""
        fine = [fit.whole for fit in self.fits.values() if fit.whole is not None]
        return [member for own in fine for member in own.members if member is not None]

    @property
    def _observed_ranges(self) -> Mapping[str, Range]:
        """The ranges of what was observed along coordinates whose bases have no domain.

        They are those of times beside a fine field, which has one, and of longitudes around the Earth the turn that
        holds the labels: from -180 or 0, or else from the first label.
        """
        members, fitted, ranges = self._neighbours, self.statistics._fitted or {}, dict[str, Range]()
        for j, name in enumerate(self.space.names):
            axis = self.space.axis(name)
            if axis.kind == "time" and members and self.space.basis(name).record(axis) is None:
                each = [member.coordinates[:, j] for member in members]
                ranges[name] = (min(float(x.min()) for x in each), max(float(x.max()) for x in each))
            if axis.wrap is not None and name in fitted and is_around(self.space, name):
                x = axis.to_float(in_units_of(self.space, fitted[name], name).values)
                low, high, half = float(np.nanmin(x)), float(np.nanmax(x)), axis.wrap / 2
                start = half * float(np.floor(low / half))
                start = start if high <= start + axis.wrap else low
                ranges[name] = (start, start + axis.wrap)
        return ranges

    @property
    def _steps(self) -> Mapping[str, float]:
        """Distances between nodes, where there is a fine field: of labels, or half of them where it is as short."""
        steps: dict[str, float] = {}
        for fit in self.fits.values():
            if fit.whole is not None and (first := fit.whole.first) is not None:
                length = fit.whole.scales(self.space)["fine_length_in_labels"].min("scale")
                nodes = dict.fromkeys(self.space.names, 1.0)
                nodes |= dict(zip(length.along.values, np.clip(length.values / 2, 0.5, 1.0), strict=True))
                for name, step in zip(self.space.names, first.steps, strict=True):
                    own = float(step * nodes[name])
                    steps[name] = min(steps.get(name, own), own)
        return steps

    def _resolved(
        self, at: Any, options: Mapping[str, Any], gone: Sequence[str], stderr: bool
    ) -> tuple[Target, Requested | None]:
        """Return the labels of what is left of the coordinates, and what errors are requested."""
        self._check_computed()
        own = {"method": None, "draws": None, "seed": 0, "smoothing_uncertainty": True}
        requested = requested_if(stderr, *({**own, **options}[key] for key in own))
        coords, once = {name: x for name, x in options.items() if name not in own}, {}
        if both := [name for name in gone if name in coords]:
            raise ValueError(
                f"{both[0]!r} is averaged over, and {both[0]}= names labels of it; leave it out, or pass a range "
                f"by name, {{{both[0]!r}: (lo, hi)}}"
            )
        if isinstance(at, xr.DataArray | xr.Dataset):
            at = at.drop_vars([name for name, c in at.coords.items() if {name, *c.dims} & set(gone)])
            gone_dims = {name: 0 for name in gone if name in at.dims}
            at = at.isel(gone_dims) if set(self.space.names) & set(at.coords) else None
        for name in gone:
            axis = self.space.axis(name)
            middle = np.mean(self.space.basis(name).integral_range(axis))
            once[name] = xr.DataArray(axis.to_label(np.asarray(middle)))
        return self._target(at, coords, None, once=once), requested

    def _made(
        self, marginals: Sequence[Marginal], target: Target, extra: xr.Dataset, gone: Sequence[str], kind: str
    ) -> Functional:
        """Return functionals with the values at the labels of all other coordinates."""
        known = {name for m in marginals for name in m.names}
        left = {name: c for name, c in target.coordinates.items() if name not in known}
        labels = [dim for c in target.coordinates.values() for dim in c.dims]
        batch = [dim for v in self.variables.values() for dim in v.batch_dims]
        if both := [dim for dim in extra.sizes if dim in (*labels, *batch)]:
            raise ValueError(
                f"{both[0]!r} is a dimension of the weights and of what is left of the field too; rename that of the "
                f"weights"
            )
        sizes = {dim: n for c in left.values() for dim, n in c.sizes.items()}
        groups: dict[Any, list[str]] = {}
        for name, span in arrange(tuple(sizes), left).spans.items():
            groups.setdefault(span or name, []).append(name)
        whole = list(marginals)
        for span, names in groups.items():
            dims = () if isinstance(span, str) else span
            columns = [np.asarray(target.floats(self.space, name, dims, sizes)) for name in names]
            whole.append(at_labels(self.space, names, columns, {dim: sizes[dim] for dim in dims}))
        suffix = "" if kind in ("mean", "regrid") else f"_{kind}"
        return Functional(tuple(whole), target, extra, tuple(gone), f"{{}}{suffix}", "{}", (), f"{kind}()")

    def _of(self, made: Functional, requested: Requested | None, covariance: bool) -> Any:
        """Return what functionals are of each variable."""
        if requested is None:
            return self._each(lambda fit: made.evaluated(fit, None)[0])
        # Only of a single variable are its attributes those of the Dataset.
        device, single = self._request.device, not self.statistics._is_dataset
        results = [
            result.drop_vars([result.name], errors="ignore").to_dataset(promote_attrs=single)
            for fit in self._solved.values()
            for result in made.evaluated(fit, requested, covariance=covariance, device=device)
        ]
        return merged(results)

    def _target(self, at: Any, coords: Any, chunks: Any, *where: Any, once: Any = None) -> Target:
        """Return what is evaluated at; `once` are labels in place of fitted ones."""
        s, batch = self.statistics, [dim for v in self.variables.values() for dim in v.batch_dims]
        fitted = {**(s._fitted or {}), **(once or {})} or None
        return resolve(self.space, fitted, s._chunks, batch, at, coords, chunks, *where)

    def _each(self, result_of: Callable[[Fit], xr.DataArray]) -> Any:
        """Return a Dataset named by variables for a Dataset's field, else the one DataArray."""
        results = [result_of(fit) for fit in self.fits.values()]
        return xr.Dataset({r.name: r for r in results}) if self.statistics._is_dataset else results[0]


def _is_area(space: Space, weights: Any, names: Iterable[str]) -> bool:
    """Return whether a cosine of latitude is the density."""
    if weights is not None and not (isinstance(weights, str) and weights == "area"):
        raise ValueError(
            f"weights={brief(weights)} is unknown; pass 'area', by the cosine of latitude, or None, as in the plane; "
            "weights of labels go to where="
        )
    return weights is not None and any(space.axis(name).role == "latitude" for name in names)


def _beside(weights: xr.DataArray, names: Iterable[str]) -> xr.Dataset:
    """Return the other dimensions of weights, with their labels."""
    first = weights.isel(dict.fromkeys(names, 0), drop=True)
    return first.drop_vars([name for name, c in first.coords.items() if not c.dims]).to_dataset(
        name="weights"
    )

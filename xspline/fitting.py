"""The walk: labels → Space → Sources → Sums → Statistics → Field."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from xspline import execution
from xspline.arguments import checked
from xspline.labels.checks.robust import reweighted, without_contradicted
from xspline.labels.errors import check_arguments, check_names, read_errors_name_labels
from xspline.labels.field import Field
from xspline.labels.field_base import FieldBase
from xspline.labels.fine.in_memory import BYTES_PER_VALUE, MOST_VALUES, beside, fine_of, windows_in
from xspline.labels.fine.tiles import as_one, fine_costs, is_large, is_tiled, tiled_of
from xspline.labels.fit import planned
from xspline.labels.read import defaults, stores
from xspline.labels.read.cells import bounds_of, has_cells, range_of_cells, warn_of_cut
from xspline.labels.read.cf import axis_of
from xspline.labels.read.coordinates import coordinate_of, space_over, warn_of_degrees
from xspline.labels.read.memory import AR1, check_errors
from xspline.labels.read.observations import (
    Observations,
    check_data,
    check_kind,
    check_lengths,
    fitted_variables,
    holders_of,
    observations_of,
    with_errors,
)
from xspline.labels.read.parts import part_of
from xspline.labels.read.sizes import SECONDS
from xspline.labels.read.stored.chunks import reusing
from xspline.labels.read.targets import target_chunks
from xspline.labels.statistics import Data, Statistics
from xspline.pde.discovery.discover import candidates_of
from xspline.pde.recovery import bases_for
from xspline.pde.text.equation import parse_all
from xspline.pde.text.symbols import Names, checked_known
from xspline.solve import as_penalty, penalises_roughness
from xspline.solve.errors import warn
from xspline.spaces import Basis, BSpline, Space, as_basis
from xspline.spaces.basis import coordinate_in_errors

TRIAL = 12  # functions of a space in which the names of an equation are looked up, of the highest degree


@checked
def fit(
    data: Data,
    space: Space | Mapping[str, Any] | None = None,
    *,
    penalty: Any = None,
    weights: xr.DataArray | None = None,
    holder: Any = None,
    solver: str | None = None,
    device: str | None = None,
    compute: bool = True,
    checkpoint: Any = None,
    missing_chunks: str = "warn",
    seconds: float | None = None,
    fine: bool | None = None,
    robust: bool = False,
    errors: AR1 | str | None = None,
    offsets: str | None = None,
    noise: Any = None,
    reference: str | None = None,
    support: Any = None,
    **bases: Any,
) -> Field[Data]:
    """Fit a smooth, differentiable field through gridded or scattered data, in one pass (paper, section 3.1).

    ``fit(data)`` chooses everything from the coordinates and the values, and each argument takes one of these choices
    over. The guide has a page on them, `docs/guide/fit.md`, with what happens where one is left out.

    Parameters
    ----------
    data : DataArray or Dataset
        Values in memory, chunked by Dask, or lazily indexed (opened with ``chunks=None``). NaN is missing. Of a
        Dataset, every numeric variable that has the fitted dimensions is fitted.
    space, **bases
        A basis for each coordinate to fit, as a mapping, as keywords, or as a Space: ``BSpline``, ``Fourier``,
        ``Polynomial``, ``Regressors``, a sum of these, or an integer n for ``BSpline(n)``. None pools a dimension.
        Dimensions that no coordinate spans get an independent fit each.
    penalty
        What keeps the field smooth: a number (the ridge λ‖c‖²), ``Ridge``, ``Roughness``, ``Sobolev``, ``SpaceTime``,
        ``Physics`` or a sum of them; 0 means none. "reml" (the default where there are B-splines), "gcv" and "holders"
        choose the strength from the data.
    weights : DataArray
        Relative precisions (1/se²) over some of the dimensions, with equal labels; zero leaves an observation out, and
        that of a missing value may be missing too.
    holder
        Name of the contributor; or labels that make one part for each in the same pass: a 1-D DataArray along a
        fitted or pooled dimension, the name of a 1-D coordinate, or ``"time.year"``, as in ``groupby``.
    solver
        "spectral", "separable", "nearly_separable", "banded", "dissection", "dense" or "iterative". None takes the
        cheapest that the structure of the data and the penalty allows; :func:`plan` shows which.
    device
        "cuda" computes sums, and factorises large dense systems, on a GPU where there is one.
    compute
        False returns a Field whose coefficients are still lazy.
    checkpoint
        Directory for partial sums, on a path that all workers see. An interrupted call that is made again goes on from
        there, to the same bits; `docs/guide/clusters.md` says of which data sums are kept.
    missing_chunks
        "warn", "raise" or "ignore" where chunks of the data or weights were never written to their Zarr store.
    seconds
        Where bases are chosen: about how long one core may take for that choice, 10 if you do not say.
    fine
        Whether a fine field is added: what the bases leave of the data, predicted from each place's neighbours. None is
        True where there are neither bases nor a penalty nor holders and the coefficients are computed.
    robust
        Whether gross errors are kept from the field; ``summary()`` counts the observations that it used.
    errors
        :class:`AR1` where errors remember along a coordinate, as those of most time series do; "auto" where what
        residuals show is to decide, over periods of time (`docs/guide/errors.md`). None: independent ones.
    offsets, noise, reference
        Whether the holders that `holder` names differ by offsets and by their noise, as for :meth:`Statistics.solve`.
    support
        "cells" takes values for means over the cells around their labels, whose ends are the CF bounds of the
        coordinates. By coordinate: {"time": "cells"}, "points", or a DataArray of the ends. None: values at points.

    Returns
    -------
    Field

    Raises
    ------
    ValueError
        Names, labels, weights or bounds do not fit the data; arguments do not go together; a value is infinite; nothing
        is determined; a checkpoint or chunks cannot be used.

    Warns
    -----
    FitWarning
        Something changed the answer that nobody asked for; :meth:`Field.check` shows all of that, with advice.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> x = np.linspace(0, 10, 200)
    >>> noisy = np.sin(x) + np.random.default_rng(0).normal(0, 0.1, x.size)
    >>> field = xs.fit(xr.DataArray(noisy, {"x": x}, "x", "u"), x=12)
    >>> field.predict(x=1.5).round(1).item()
    1.0

    Without bases the field between the labels is predicted from neighbours, and its error grows with their distance:

    >>> field = xs.fit(xr.DataArray(noisy, {"x": x}, "x", "u").where(abs(x - 4) > 1))
    >>> near, far = field.stderr(x=[2, 4])
    >>> float(far) > 3 * float(near)
    True

    Means over cells of width 2, and a gross error that is kept from the field:

    >>> means = np.sin(x) * np.sin(1.0)
    >>> ends = xr.DataArray(np.stack([x - 1, x + 1], axis=1), {"x": x}, ("x", "ends"))
    >>> cells = xr.Dataset({"u": ("x", means)}, {"x": ("x", x, {"bounds": "ends"}), "ends": ends})
    >>> xs.fit(cells, x=12, penalty=0, support="cells").predict(x=1.5).u.round(2).item()
    1.0
    >>> noisy[30] = 50.0
    >>> field = xs.fit(xr.DataArray(noisy, {"x": x}, "x", "u"), x=12, robust=True)
    >>> field.predict(x=1.5).round(1).item()
    1.0
    """
    check_errors(errors, compute=compute, checkpoint=checkpoint, fine=fine or None, robust=robust or None)
    fine = fine if errors is None else False
    levels = {"offsets": offsets, "noise": noise, "reference": reference}
    if not compute and (offsets is not None or noise is not None):
        raise ValueError(
            "offsets= and noise= follow from the sums, which have to be there: leave out compute=False, or these"
        )
    if robust and any(level is not None for level in levels.values()):
        raise ValueError(
            "robust=True weighs residuals as if all holders were alike: leave it out, or offsets= and noise="
        )
    agreed, observed, windows = _walk(
        data, space, bases, weights, holder, seconds, penalty, compute, fine, support
    )
    observed = with_errors(observed, errors, agreed, holder)
    if robust and not compute:
        raise ValueError(
            "a robust fit weighs residuals, which it has to compute: leave out compute=False, or robust=True"
        )
    if robust and windows and any(map(is_tiled, observed)):
        raise ValueError(
            f"robust=True looks at all observations, and there are more than {MOST_VALUES:,}: look at a part of them, "
            "or fit(..., fine=False, robust=True), which passes over all of them"
        )
    if windows or robust:  # What looks at single values runs on the host.
        observed = [o.on_host() for o in observed]
    # Residuals of data that are out of memory would take another pass: field.check(data) makes it.
    in_memory = all(isinstance(o.data.variable._data, np.ndarray) for o in observed)
    looks = compute and (windows > 0 or in_memory)

    def solved(own: list[Observations], neighbours: bool = True) -> Field[Data]:
        computed = _statistics(data, agreed, own, holder, device, compute, checkpoint, missing_chunks)
        present = execution.present(device)
        counts = {o.name: partial(as_one, o, computed) for o in own if windows}
        field = Field.from_statistics(
            computed, penalty, solver, present, warns=not (looks or robust), as_one=counts, **levels
        )
        if windows and neighbours:
            fits = {}
            for o in own:
                fit = field.fits[o.name]
                tells = tiled_of(o, fit, windows) if is_tiled(o) else fine_of(o, fit, windows)
                fits[o.name] = beside(fit, tells)
            field = replace(field, fits=fits)
        return field

    if robust:
        field, observed = (without_contradicted if windows else reweighted)(solved, observed)
    else:
        field = solved(observed)
    return field._looked_at({o.name: o for o in observed if looks}) if looks or robust else field


def _walk(
    data: Data,
    space: Space | Mapping[str, Any] | None,
    bases: Mapping[str, Any],
    weights: xr.DataArray | None,
    holder: Any,
    seconds: float | None,
    penalty: Any,
    compute: bool,
    fine: bool | None,
    support: Any,
) -> tuple[Space, list[Observations], int]:
    """Return what `_read` does, and the windows of the data that the choice of a fine field looks at; 0 without one."""
    check_kind(data)
    bare = space is None and all(basis is None for basis in bases.values()) and penalty is None
    by_default = fine is None
    if fine and not compute:
        raise ValueError(
            "a fine field is fitted to the values, at once: leave out compute=False, or fine=True"
        )
    if fine and holder is not None:
        raise ValueError(
            "a fine field takes values, which holders do not share: leave out holder=, or fine=True"
        )
    if fine and has_cells(support):
        raise ValueError("a fine field takes points, not means over cells: leave out support=, or fine=True")
    if by_default:
        fine = bare and compute and holder is None and not has_cells(support)
    read = partial(_read, data, space, bases, weights, holder, seconds, support=support, default_labels=True)
    smooth = penalises_roughness(penalty)
    agreed, observed = read(smooth, coarse=bool(fine and bare))
    if fine and by_default and not _fits_in(observed):
        fine, (agreed, observed) = False, read(smooth)
    budget = defaults.checked_seconds(SECONDS if seconds is None else seconds)
    return agreed, observed, windows_in(budget) if fine else 0


def _fits_in(observed: list[Observations]) -> bool:
    """Return whether a bare fit has a fine field, which very many values on no grid do without; warn where they do."""
    many = [o for o in observed if is_large(o) and not is_tiled(o)]
    if not many:
        return True
    batch = [str(dim) for dim in many[0].arrangement.batch if many[0].data.sizes[dim] > 1]
    alone = f"each {' and '.join(batch)} by itself" if batch else "a part of them"
    warn(
        f"a single field is fitted: {many[0].name} has {many[0].data.size:,} values, and more than {MOST_VALUES:,} are "
        f"too many for a fine field unless they are one grid. Fit {alone}, or means over some labels (data.coarsen), "
        f"or say fine=True, which takes about {BYTES_PER_VALUE} bytes of memory a value; fine=False fits the single "
        "field without this warning"
    )
    return False


@checked
def statistics(
    data: Data,
    space: Space | Mapping[str, Any] | None = None,
    *,
    weights: xr.DataArray | None = None,
    holder: Any = None,
    device: str | None = None,
    compute: bool = True,
    checkpoint: Any = None,
    missing_chunks: str = "warn",
    seconds: float | None = None,
    errors: AR1 | str | None = None,
    support: Any = None,
    **bases: Any,
) -> Statistics[Data]:
    """Compute the sufficient statistics of some data: G = ΦᵀWΦ, h = ΦᵀWy and sums (paper, equation 5).

    Parameters are those of :func:`fit`. Holders that want to merge agree on a Space first, by :func:`space`: bases that
    are left out would follow from each holder's own labels. `docs/guide/holders.md` shows the steps.

    Returns
    -------
    Statistics

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> x = np.linspace(0, 10, 200)
    >>> data = xr.DataArray(np.sin(x), {"x": x}, "x", "u")
    >>> west = xs.statistics(data, x=xs.BSpline(12, domain=(0, 10)), holder="west")
    >>> west.holders, west.count
    (('west',), 200)

    Statistics of means over cells are of the same space, and add to those of points:

    >>> cells = xr.DataArray(np.stack([x - 0.02, x + 0.02], axis=1), {"x": x}, ("x", "ends"))
    >>> east = xs.statistics(data[1:-1], west.space, holder="east", support={"x": cells[1:-1]})
    >>> (west + east).count
    398
    """
    check_errors(errors, compute=compute, checkpoint=checkpoint)
    agreed, observed = _read(
        data, space, bases, weights, holder, seconds, default_labels=False, support=support
    )
    observed = with_errors(observed, errors, agreed, holder)
    return _statistics(data, agreed, observed, holder, device, compute, checkpoint, missing_chunks)


@checked
def space(
    data: xr.DataArray | xr.Dataset,
    space: Space | Mapping[str, Any] | None = None,
    *,
    seconds: float | None = None,
    support: Any = None,
    **bases: Any,
) -> Space:
    """Return the Space of some bases, with the coordinates' ranges as the domains that were left out.

    Parameters are those of :func:`fit`.

    Returns
    -------
    Space

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> data = xr.DataArray(np.zeros(200), {"x": np.linspace(0, 10, 200)}, "x")
    >>> xs.space(data, x=12).code()
    'xs.Space({"x": xs.BSpline(12, domain=(0.0, 10.0))})'
    """
    return _read(data, space, bases, seconds=seconds, default_labels=False, support=support)[0]


@checked
def recover(
    data: Data,
    equation: str | Sequence[str],
    *,
    known: Mapping[str, Any] | None = None,
    vary: Mapping[str, Any] | None = None,
    dims: Mapping[str, str] | None = None,
    method: str | None = None,
    weights: xr.DataArray | None = None,
    holder: Any = None,
) -> xr.Dataset:
    """Estimate the constants of an equation from data, in a space that suits both.

    Along each coordinate a B-spline of two degrees more than the highest derivative of the equation, with as many knot
    cells as :func:`fit` without bases would take functions; fewer where there would be more functions than
    observations, or a search for the constants would take more than ten seconds. Where errors are withheld because the
    knots of a coordinate do not resolve the field, as at a shock, that coordinate has twice as many, up to one function
    a label. For another space write ``fit(data, x=..., t=...).recover(equation)``.

    Parameters
    ----------
    data, weights, holder
        As for :func:`fit`.
    equation, known, vary, dims, method
        As for :func:`xspline.pde.recover`. Durations are a coordinate too, where the equation has their letter.

    Returns
    -------
    Dataset
        As of :func:`xspline.pde.recover`; the attribute ``space`` is the line of code of the field.

    Raises
    ------
    ValueError
        As :func:`fit` and :meth:`Field.recover` do.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> x, t = np.linspace(0, 1, 40), np.linspace(0, 1, 30)
    >>> u = np.exp(-0.1 * np.pi**2 * t)[:, None] * np.sin(np.pi * x)
    >>> found = xs.recover(xr.DataArray(u, {"t": t, "x": x}, name="u"), "u_t = D * u_xx")
    >>> found.estimate.round(4).item(), found.space
    (0.1, 'fit({"x": xs.BSpline(28, degree=4), "t": xs.BSpline(21)})')
    """
    constants, line = _answered(
        data, "recover", equation, weights, holder, known=known, vary=vary, dims=dims, method=method
    )
    return constants.assign_attrs(space=line)


@checked
def constrain(
    data: Data,
    equation: str | Sequence[str],
    *,
    known: Mapping[str, Any] | None = None,
    vary: Mapping[str, Any] | None = None,
    dims: Mapping[str, str] | None = None,
    weights: xr.DataArray | None = None,
    holder: Any = None,
) -> Field[Data]:
    """Fit the field that obeys an equation and is nearest to data, in a space that suits both.

    Space and parameters are those of :func:`recover`; all constants may be known. For another space write ``fit(data,
    x=..., t=...).constrain(equation)``. It returns a ``ConstrainedField``, whose ``constants`` are those of `recover`.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> x, t = np.linspace(0, 1, 40), np.linspace(0, 1, 30)
    >>> u = np.exp(-0.1 * np.pi**2 * t)[:, None] * np.sin(np.pi * x)
    >>> noisy = u + np.random.default_rng(0).normal(0, 0.05, u.shape)
    >>> field = xs.constrain(xr.DataArray(noisy, {"t": t, "x": x}, name="u"), "u_t = D * u_xx")
    >>> field.constants.estimate.round(2).item()
    0.1
    """
    arguments = {"known": known, "vary": vary, "dims": dims}
    return _answered(data, "constrain", equation, weights, holder, **arguments)[0]


@checked
def discover(
    data: Data,
    response: str,
    *,
    terms: Sequence[str] | None = None,
    order: int | None = None,
    power: int | None = None,
    known: Mapping[str, Any] | None = None,
    dims: Mapping[str, str] | None = None,
    weights: xr.DataArray | None = None,
    holder: Any = None,
) -> xr.Dataset:
    """Find which terms the equation of data has, among candidates, in a space that suits both.

    The space is that of :func:`recover` for the equation that has all candidates. For another one write
    ``fit(data, x=..., t=...).discover(response)``. Candidates of a Dataset hold its other variables too: pass
    ``data[["u", "v"]]`` for some of them. Where no `terms` are given, all coordinates of one letter are fitted.

    Parameters
    ----------
    data, weights, holder
        As for :func:`fit`.
    response, terms, order, power, known, dims
        As for :func:`xspline.pde.discover`, whose results it returns, with the line of code of the field as attribute
        ``space``.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> x, t = np.linspace(0, 6, 40), np.linspace(0, 2, 30)
    >>> u = sum(np.exp(-0.1 * k**2 * t)[:, None] * np.sin(k * x + k) for k in (1, 2, 3))
    >>> u += 0.01 * np.random.default_rng(0).standard_normal(u.shape)
    >>> models = xs.discover(xr.DataArray(u, {"t": t, "x": x}, name="u"), "u_t", order=2, power=2)
    >>> models.attrs["recover"]
    'u_t = k1*u_xx'
    """
    arguments = {"terms": terms, "order": order, "power": power, "known": known, "dims": dims}
    models, line = _answered(data, "discover", response, weights, holder, **arguments)
    return models.assign_attrs(space=line)


def _answered(
    data: Data, what: str, text: Any, weights: xr.DataArray | None, holder: Any, **arguments: Any
) -> tuple[Any, str]:
    """Return what a method of a field says in a space that suits equations, and the line of code of the field.

    Where an answer is `limited_by` the knots of a coordinate, there are twice as many of it, as far as its labels and
    memory allow. Warnings are those of the last field.

    Parameters
    ----------
    data, weights, holder : as for :func:`fit`.
    what, text, arguments : a method of the field and its arguments; durations are those whose letter the text has.
    """
    if isinstance(data, FieldBase | Statistics):
        kind = type(data).__name__
        raise TypeError(f"xs.{what} takes data, and this is {kind}: call its method, .{what}({text!r})")
    check_kind(data)
    # Where nobody lists terms, candidates are derivatives along each dimension of one letter, and what x stands for.
    along_all = [f"u_{n}" for n in (*data.dims, "x") if len(str(n)) == 1] if what == "discover" else []
    written = " ".join([str(text), *map(str, arguments.get("terms") or along_all)])
    dims = arguments["dims"]
    default = defaults.single_for(data).bases
    extra = [*_requested(data, default, written, dims), *_durations(data, default, written, dims)]
    names = dict.fromkeys([*default, *extra])
    trial = fit(data, {n: BSpline(TRIAL, TRIAL - 1) for n in names}, penalty=0, compute=False)
    # As names are meant in a field; of `discover` the equation that has all candidates.
    known = arguments["known"]
    if what == "discover":
        asked = (arguments[name] for name in ("terms", "order", "power"))
        equations = [candidates_of(Names.of(trial, dims, checked_known(known)), text, *asked).equation]
    else:
        names_in = Names.of(trial, dims, checked_known(known), arguments["vary"])
        equations = [*parse_all(text, names_in, with_parameters=False)]
    # Season and trend are no test functions: such times get as many cells as their labels support.
    given = {n: b.size for n, b in default.items() if isinstance(b, BSpline) and b.size}
    cells = {n: given.get(n, data[n].size // 2) for n in names}
    observations = math.prod(data.sizes[dim] for dim in {dim for n in names for dim in data[n].dims})
    bases = bases_for(trial.space, cells, equations, observations)
    while True:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answer = getattr(fit(data, bases, weights=weights, holder=holder), what)(text, **arguments)
            constants = getattr(answer, "constants", answer)
        finer = bases
        if name := constants.attrs.get("limited_by", ""):
            cells = {**cells, name: min(2 * cells[name], data[name].size - bases[name].degree)}
            finer = bases_for(trial.space, cells, equations, observations)
        if not name or (finer[name].size or 0) <= (bases[name].size or 0):
            for own in caught:
                warnings.warn_explicit(own.message, own.category, own.filename, own.lineno)
            return answer, f"fit({defaults.code(bases)})"
        bases = finer


def _requested(
    data: Data, default: Iterable[str], equation: str, dims: Mapping[str, str] | None
) -> list[str]:
    """Return the dimensions that `dims` or an equation names beside those that are fitted anyway, whatever they are.

    A name of one letter stands for itself; x is also the only number that is left.
    """
    numbers = [str(n) for n, c in data.coords.items() if c.dims == (n,) and c.dtype.kind in "iuf"]
    left = [n for n in numbers if n not in default]
    letters = set("".join(re.findall(r"_([A-Za-z]+)", equation)))
    extra = [n for n in left if n in (dims or {}).values() or n in letters]
    taken = {*numbers, *(dims or {})} & {"x"} or any(axis_of(data[n]).role == "longitude" for n in default)
    others = [n for n in left if n not in extra]
    return [*extra, *others] if "x" in letters and not taken and len(others) == 1 else extra


def _durations(
    data: Data, default: Iterable[str], equation: str, dims: Mapping[str, str] | None
) -> list[str]:
    """Return the dimensions of durations whose letter the equation has: beside other coordinates they are batch.

    That is what `dims` says, a name of one letter, or t where there is no other time.
    """
    timed = any(axis_of(data[n]).kind != "number" or n.lower() in ("t", "time") for n in default)
    names = [str(n) for n, c in data.coords.items() if c.dtype.kind == "m" and c.dims == (n,)]
    letters = {n: n if len(n) == 1 else "" if timed else "t" for n in names}
    letters |= {name: re.escape(letter) for letter, name in (dims or {}).items() if name in names}
    return [n for n, a in letters.items() if a and re.search(rf"_\w*{a}|\b{a}\b", equation)]


@checked
def plan(
    data: xr.DataArray | xr.Dataset,
    space: Space | Mapping[str, Any] | None = None,
    *,
    penalty: Any = None,
    weights: xr.DataArray | None = None,
    holder: Any = None,
    solver: str | None = None,
    device: str | None = None,
    seconds: float | None = None,
    fine: bool | None = None,
    support: Any = None,
    **bases: Any,
) -> execution.Plan:
    """Say what a fit would cost: coefficients, bytes, tasks, solver, time and memory, from labels and chunks alone.

    Parameters are those of :func:`fit`. The plan has a row for each kind of gaps that the data may turn out to have,
    and the line of code that asks for its bases; of a Dataset it is that of the first fitted variable.
    `docs/guide/clusters.md` shows how to read it.

    Returns
    -------
    Plan

    Examples
    --------
    >>> import dask.array as da, numpy as np, xarray as xr, xspline as xs
    >>> x = np.linspace(0, 1, 400)
    >>> data = xr.DataArray(da.zeros((400, 400), chunks=100), {"a": x, "b": x}, ("a", "b"), "u")
    >>> cost = xs.plan(data, a=100, b=100, penalty=xs.Roughness(1e-3))
    >>> cost.code
    'fit({"a": xs.BSpline(100), "b": xs.BSpline(100)})'
    """
    agreed, observed, windows = _walk(
        data, space, bases, weights, holder, seconds, penalty, True, fine, support
    )
    requested = as_penalty(penalty, agreed)
    resources = execution.resources(execution.present(device))
    cost = execution.plan(
        observed[0].source(agreed),
        observed[0].in_cells(agreed),
        device=device,
        solver=lambda gram: planned(gram, requested, agreed, solver, resources),
    )
    if windows:
        own = [fine_costs(o, windows) for o in observed]
        cost = replace(cost, fine_seconds=sum(t for t, _ in own), fine_bytes=max(n for _, n in own))
    cells = f", support={dict.fromkeys(observed[0].bounds, 'cells')}" if observed[0].bounds else ""
    line = "fit()" if windows and space is None and not bases else f"fit({defaults.code(agreed)}{cells})"
    return replace(cost, code=line)


def _read(
    data: xr.DataArray | xr.Dataset,
    space: Any,
    bases: Mapping[str, Any],
    weights: Any = None,
    holder: Any = None,
    seconds: float | None = None,
    smooth: bool = True,
    *,
    default_labels: bool,
    coarse: bool = False,
    support: Any = None,
) -> tuple[Space, list[Observations]]:
    """Return the Space and, for each variable, its observations with weights and holders; reads coordinates only.

    Bases that are left out are those of a `coarse` field, or of a single one, `smooth` or not.
    """
    check_kind(data)
    _check_space(data, space, bases)
    by_name = bases if isinstance(space, Space) else {**(space or {}), **bases}
    pooled = tuple(name for name, basis in by_name.items() if basis is None)
    check_lengths(data)
    if isinstance(data, xr.DataArray):
        check_data(data)
    check_arguments(data, by_name, fit)
    others = data.data_vars if isinstance(data, xr.Dataset) else ()
    find = partial(coordinate_of, data, default_labels=default_labels, others=others)
    written = space.names if isinstance(space, Space) else [n for n in by_name if by_name[n] is not None]
    coordinates = {name: find(name) for name in map(str, written)}  # wrong names are said before wrong bases
    given: Space | dict[str, Basis] | None = space if isinstance(space, Space) else _bases(by_name) or None
    extents: dict[str, tuple[float, float]] = {}
    if given is None and coarse:
        given, extents = defaults.coarse_for(data, pooled)
    elif given is None:
        given, extents = defaults.single_for(data, pooled, seconds, smooth=smooth)
    elif seconds is not None:
        raise ValueError(
            f"seconds={seconds!r} is a budget for numbers of functions that are chosen, and these are given; leave out "
            'one of both. A coordinate called "seconds" goes into a mapping: fit({"seconds": 12})'
        )
    if not coordinates:
        coordinates = {name: find(name) for name in (given.names if isinstance(given, Space) else given)}
    axes = {name: axis_of(c) for name, c in coordinates.items()}
    variables: Iterable[xr.DataArray] = [data] if isinstance(data, xr.DataArray) else []
    if isinstance(data, xr.Dataset):
        check_names(pooled, data.dims, "dimension")
        dims = {d for c in coordinates.values() for d in c.dims} | set(pooled)
        variables = fitted_variables(data, dims).values()
    warn_of_degrees(coordinates, axes)
    holders, bounds = holders_of(holder, data), bounds_of(data, support, coordinates)
    if isinstance(given, Space):
        agreed = given.described_by(axes)
    else:
        extents = {name: ends for name, ends in extents.items() if name not in bounds}
        agreed = space_over(given, coordinates, axes, extents, partial(range_of_cells, bounds))
    observed = observations_of(variables, coordinates, agreed, pooled, weights, holders, bounds)
    agreed = agreed.coupling(observed[0].in_cells(agreed).coupled)
    # Where bases are defaults, what they do not span is batch.
    if space is None and not bases.keys() - set(pooled):
        own = given if isinstance(given, Mapping) else {}
        defaults.warn_of_batch(observed[0].data, observed[0].arrangement.batch, own)
    return agreed, observed


def _check_space(data: xr.DataArray | xr.Dataset, space: Any, bases: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError unless a Space, or a mapping of bases, and keywords go together."""
    if isinstance(space, int | Basis) and (bases or "space" in data.coords):
        rest = "".join(f', "{name}": {basis!r}' for name, basis in bases.items())
        raise TypeError(
            f"space={space!r} is no Space: it is an argument, and a coordinate of that name goes into a mapping, "
            f'fit({{"space": {space!r}{rest}}})'
        )
    if space is not None and any(basis is not None for basis in bases.values()):
        raise ValueError(
            f"bases given both as a mapping or Space ({space!r}) and as keywords ({', '.join(bases)}); "
            f"use one form (with a Space, only NAME=None, which pools a dimension, may be added)"
        )
    if space is not None and not isinstance(space, Space | Mapping):
        raise TypeError(
            f"space has to be a Space or a mapping of coordinate names to bases, not {type(space).__name__}"
        )
    if isinstance(space, Mapping) and not space:
        raise ValueError(
            "the mapping of bases is empty; leave it out, or name what to fit: fit(lat=13, lon=23)"
        )


def _bases(by_name: Mapping[Any, Any]) -> dict[str, Basis]:
    """Return the bases of a mapping; what is wrong with one is said with the name of its coordinate."""
    bases = {}
    for name, basis in by_name.items():
        if basis is not None:
            with coordinate_in_errors(str(name)):
                bases[str(name)] = as_basis(basis)
    return bases


def _statistics(
    data: Data,
    agreed: Space,
    observed: list[Observations],
    holder: Any,
    device: str | None,
    compute: bool,
    checkpoint: Any,
    missing_chunks: str,
) -> Statistics[Data]:
    """Walk from observations to Statistics; all variables and holders are computed in one pass."""
    execution.check_device(device)
    if checkpoint is not None and not compute:
        raise ValueError("a checkpoint is written and read while sums are computed; leave out compute=False")
    sources, own = [o.source(agreed) for o in observed], observed[0].in_cells(agreed)
    by_name = {o.name: o.data for o in observed}
    unwritten = _unwritten(observed, missing_chunks)
    # For each variable its Sums, lazy or not; a mapping by holder where there are several.
    computed: list[Any]
    if compute:
        with read_errors_name_labels(by_name):
            computed = execution.sums(
                sources, own, device=device, checkpoint=checkpoint, stamp=stores.stamp, reusing=reusing
            )
    else:
        computed = [execution.lazy_sums(source, own, device=device) for source in sources]
    holders = observed[0].holders
    if holders is None:
        parts = [part_of(by_name, computed, holder, data.sizes)]
    else:
        parts = []
        for code, name in enumerate(holders.names):
            sizes = {**data.sizes, holders.dim: int(np.count_nonzero(holders.holder_codes == code))}
            parts.append(part_of(by_name, [sums[code] for sums in computed], name, sizes))
    beside: dict[str, Any] = {"errors": "auto"} if observed[0].decides else {}
    if isinstance(holder, str):
        beside["holder"] = holder  # as it was asked for, also where it names labels
    if observed[0].bounds:
        beside["cells"] = sorted(observed[0].bounds)
        warn_of_cut(agreed, observed[0].cells(agreed))
    parts = [replace(part, provenance={**part.provenance, **beside}) for part in parts]
    if observed[0].decides and holders is not None and holders.periods:
        parts = [
            replace(part, provenance={**part.provenance, "period": list(own)})
            for part, own in zip(parts, holders.periods, strict=True)
        ]
    if unwritten:  # once, however many holders share the store
        parts[0] = replace(parts[0], provenance={**parts[0].provenance, "unwritten": unwritten})
    total: Statistics[Data] = Statistics(
        agreed,
        tuple(parts),
        {o.name: o.variable() for o in observed},
        _is_dataset=isinstance(data, xr.Dataset),
        _fitted=dict(observed[0].coordinates),
        _chunks=target_chunks(observed[0].data),
        _pending={} if compute else by_name,
    )
    if compute:
        total.warn_left_out()
    return total


def _unwritten(observed: list[Observations], missing_chunks: str) -> dict[str, str]:
    """Return for each variable what there is to say of chunks that the stores of values and weights lack."""
    texts = {}
    for o in observed:
        weights = [] if o.weights is None else [(o.weights, f"the weights of {o.name}")]
        told = [
            stores.unwritten_chunks(array, what, missing_chunks)
            for array, what in [(o.data, o.name), *weights]
        ]
        if any(told):
            texts[o.name] = "; ".join(filter(None, told))
    return texts

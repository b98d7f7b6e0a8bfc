"""What the parts of the statistics say of the fit of all of them: the fits without each, scored on what was left out.

Everything here reads sums and never the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from xspline import execution
from xspline.kernels import Group, Layout
from xspline.labels import operators
from xspline.solve import Penalty, Resources, SingularSystemError, solve
from xspline.sums import Sums, leave_one_out

if TYPE_CHECKING:
    from xspline.labels.field import Field
    from xspline.labels.statistics import Variable
    from xspline.spaces import Space

Array = NDArray[np.float64]


def cross_validate(field: Field) -> xr.Dataset:
    """Score the fit without each part on that part (Stone 1974; by groups: Geisser 1975).

    Parameters
    ----------
    field : Field
        Of statistics with at least two parts; its penalty is that of every fit.

    Returns
    -------
    Dataset
        Over ``holder``, the batch dimensions, and ``variable`` for a Dataset's field:

        - ``count``: observations of the part;
        - ``rmse``: √((s − 2hᵀc + cᵀGc)/Σw) with the sums of the part and the coefficients c of the fit without it,
          in the data's units; of the whole field, whatever terms of it are selected;
        - ``influence``: largest change of the field when the part is left out, in the data's units, over those Greville
          points that have observations within about a knot spacing (Fourier and polynomials: over their domain).

        NaN where the other parts do not determine the fit, and for the rmse of a part without observations.

    Raises
    ------
    ValueError
        There is only one part, the field is lazy, or no part can be spared (`SingularSystemError`).
    """
    fits = without(field)
    every = {name: _scores(field, name, fits[name]) for name in field.variables}
    if not field.statistics.is_dataset:
        return next(iter(every.values()))
    return xr.concat(list(every.values()), dim=xr.Variable("variable", list(every)), combine_attrs="override")


def leave_one_out_coefficients(field: Field, name: str) -> Array:
    """Coefficients of one variable's fits without each part; see `without`."""
    return without(field, [name])[name]


def jackknife_replicates(field: Field, name: str) -> Array:
    """Deviations whose squares add up to the delete-a-group jackknife's variance of everything linear in c.

    √((H − 1)/H) (c₋ₕ − mean of the c₋ₕ): with f the values of these coefficients at some point,
    the variance of the field there is Σₕ fₕ² (Quenouille 1956, Tukey 1958; Efron 1982, chapter 3). It assumes parts
    that are independent of each other, and nothing of the errors within them (Künsch 1989).

    Parameters
    ----------
    field : Field
        Of statistics with at least two parts; its selected terms are those of the replicates.
    name : str
        The variable.

    Returns
    -------
    ndarray, [K.., H, b..]
        Zero for a part without observations of a batch member, which does not count in its H. NaN for members that
        some part's removal leaves undetermined.

    Raises
    ------
    ValueError
        There is only one part, the field is lazy, or a part cannot be spared for any member
        (`SingularSystemError`).
    """
    fits, ndim = leave_one_out_coefficients(field, name), len(field.space.shape)
    used = np.stack([np.broadcast_to(s.count > 0, fits.shape[ndim + 1 :]) for s in _sums(field, name)])
    _check_spared(field, name, np.isnan(fits).any(axis=tuple(range(ndim))), used)
    parts = used.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        deviations = fits - np.sum(fits, axis=ndim, keepdims=True, where=used) / parts
        scaled = np.sqrt((parts - 1) / parts) * deviations
    return np.where(used, scaled * _selected(field, fits.ndim), 0.0)


def without(field: Field, names: Iterable[str] | None = None) -> dict[str, Array]:
    """Coefficients of the fits without each part, under the field's penalty.

    Parameters
    ----------
    field : Field
        Of statistics with at least two parts.
    names : iterable of str, optional
        Variables; all by default. Those with one G and one penalty share their factorisations.

    Returns
    -------
    dict of ndarray, [K.., H, b..]
        Parts in the order of the statistics; NaN where the other parts do not determine the fit.

    Raises
    ------
    ValueError
        There is only one part, the field is lazy, or no part of a variable can be spared (`SingularSystemError`).
    """
    _check_parts(field)
    wanted, frame = list(field.variables if names is None else names), field.space.frame
    remaining = {name: leave_one_out(_sums(field, name), frame) for name in wanted}
    fits: dict[str, list[Array]] = {name: [] for name in wanted}
    resources = execution.resources(execution.present(field.device))
    for number in range(len(field.statistics.parts)):
        solver = _Solver(field.space, resources)
        for name in wanted:
            c = solver.coefficients(remaining[name][number], field.penalties[name])
            fits[name].append(np.broadcast_to(c, (*frame.sizes, *field.variables[name].batch_shape)))
    for name, found in fits.items():
        if np.isnan(found).all():
            raise SingularSystemError(
                f"none of the {len(found)} parts of {name!r} can be spared: without it the others do not determine the "
                'field; take parts that overlap more (holder="time.year", say), or pass a penalty'
            )
    return {name: np.stack(found, axis=len(frame.sizes)) for name, found in fits.items()}


class _Solver:
    """Solves for one variable after another; those with one G and one penalty share a factorisation."""

    def __init__(self, space: Space, resources: Resources) -> None:
        self.space, self.resources = space, resources
        self.known: list[tuple[Sums, Penalty, Any]] = []

    def coefficients(self, sums: Sums, penalty: Penalty) -> Array:
        """c, [K.., b..]; NaN where nothing is determined."""
        known = (f for s, p, f in self.known if p == penalty and s.gram.equals(sums.gram))
        try:
            solution = solve(sums, self.space, penalty, None, next(known, None), self.resources)
        except SingularSystemError:
            return np.full((*self.space.shape, *(1 for _ in sums.batch)), np.nan)
        self.known.append((sums, penalty, solution.factorisation))
        return solution.coefficients


def _sums(field: Field, name: str) -> list[Sums]:
    return [part.sums[name] for part in field.statistics.parts]


def _check_parts(field: Field) -> None:
    if field.is_lazy:
        raise ValueError("this field is still lazy (compute=False); call .compute() first")
    parts = field.statistics.parts
    if len(parts) < 2:
        held = ", ".join(part.describe() for part in parts) or "none"
        why = ", into which others were collapsed" if field.statistics.collapsed else ""
        raise ValueError(
            f"there is nothing to leave out: the statistics have {len(parts)} part ({held}{why}); label the "
            'observations with holders, for example fit(..., holder="time.year"), or merge those of several'
        )


def _check_spared(field: Field, name: str, undetermined: Any, used: Any) -> None:
    """Raise unless every part that has observations can be left out for some member."""
    spared = (used & ~undetermined).reshape(len(used), -1).any(axis=1)
    needed = used.reshape(len(used), -1).any(axis=1) & ~spared
    if needed.any():
        part = field.statistics.parts[int(np.flatnonzero(needed)[0])]
        raise SingularSystemError(
            f"part {part.describe()} of {name!r} cannot be spared: without it the others do not determine the field, "
            "so its jackknife has no value; take parts that overlap more, or pass a penalty"
        )


def _selected(field: Field, ndim: int) -> Array:
    """1 for coefficients of the selected terms and 0 for others, [K.., 1..]."""
    keep = operators.selection(field.space, field.selected)
    return keep.reshape(keep.shape + (1,) * (ndim - keep.ndim))


# Scores


def _scores(field: Field, name: str, fits: Array) -> xr.Dataset:
    variable, frame = field.variables[name], field.space.frame
    sums, axis = _sums(field, name), len(frame.sizes)
    per_fit = zip(sums, np.moveaxis(fits, axis, 0), strict=True)
    values = {
        "count": [s.count for s in sums],
        "rmse": [_rmse(s, c, field) for s, c in per_fit],
        "influence": _influence(field, name, fits),
    }
    shape, dims = (len(sums), *variable.batch_shape), ("holder", *variable.batch_dims)
    arrays = {
        key: xr.DataArray(
            np.broadcast_to(np.asarray(v), shape).copy(), dims=dims, attrs=_attributes(key, variable)
        )
        for key, v in values.items()
    }
    coords = {"holder": list(field.statistics.holders), **variable.batch.coords}
    return xr.Dataset(arrays, coords, {"penalty": repr(field.penalties[name])})


def _attributes(key: str, variable: Variable) -> dict[str, str]:
    names = {
        "count": "observations with positive weight",
        "rmse": "root of the weighted mean squared difference from the fit without this holder",
        "influence": "largest change of the field without this holder",
    }
    own = {"units": variable.units} if key != "count" and variable.units else {}
    return {"long_name": names[key], **own}


def _rmse(sums: Sums, c: Array, field: Field) -> Array:
    frame = field.space.frame
    rss = np.maximum(sums.rss(sums.centred(c, frame), frame), 0.0)  # zero up to rounding where it is exact
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(rss / sums.weight))


def _influence(field: Field, name: str, fits: Array) -> Array:
    """Largest |change| of the field without each part, over the sample of every basis, [H, b..]."""
    space, axes = field.space, tuple(range(len(field.space.shape)))
    whole = np.expand_dims(field.solution[name].coefficients, len(axes))
    points = [features.sample() for features in space.features]
    grid = Layout(tuple(Group((k,), (k,)) for k in axes), tuple(range(len(axes), fits.ndim)))
    shape = (*(x.size for x in points), *fits.shape[len(axes) :])
    change = (fits - whole) * _selected(field, fits.ndim)
    values = np.abs(execution.evaluate(change, points, grid, space, (0,) * len(axes), shape))
    seen = np.expand_dims(_seen(field.statistics.total(name), space), len(axes))
    largest = np.max(values, axis=axes, where=seen, initial=0.0)
    return np.where(seen.any(axis=axes), largest, np.nan)


def _seen(total: Sums, space: Space) -> NDArray[np.bool_]:
    """Whether the field is observed around a Greville point, [K.., b..]; extent 1 along a global basis.

    Of the functions whose own points lie ⌊degree/2⌋ to either side, the product is positive over the cell that
    holds the point, or the two that meet in it, and zero elsewhere: G says whether there are observations.
    """
    apart = [2 * ((f.width - 1) // 2) if f.local else 0 for f in space.features]
    everywhere = tuple(axis for axis, f in enumerate(space.features) if not f.local)
    seen = np.any(total.gram.at(apart, space.frame) > 0, axis=everywhere, keepdims=True)
    return np.roll(seen, [offset // 2 for offset in apart], range(len(apart)))

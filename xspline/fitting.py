"""The walk: labels → Space → Sources → Sums → Statistics → Field."""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import xarray as xr

from xspline import execution
from xspline.labels import defaults
from xspline.labels.detect import axis_of, coordinate_of, extents_of
from xspline.labels.errors import both_forms, check_tally, naming, unknown_name
from xspline.labels.field import Field
from xspline.labels.holders import Holders, holders_of
from xspline.labels.observations import Observations, check_data, checked_weights, fitted_variables
from xspline.labels.statistics import Part, Statistics
from xspline.labels.target import target_chunks
from xspline.solve import as_penalty, choice_for
from xspline.spaces import Axis, Basis, Space, as_basis

Data = xr.DataArray | xr.Dataset


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
    **bases: Any,
) -> Field:
    """Fit a smooth, differentiable field through gridded or scattered data, in one pass (paper, section 3.1).

    Parameters
    ----------
    data : DataArray or Dataset
        Values in memory, chunked by Dask, or lazily indexed (opened with ``chunks=None``). NaN is missing. Of a
        Dataset, every numeric variable that has the fitted dimensions is fitted.
    space, **bases
        A basis for each coordinate to fit, as a mapping, as keywords, or as a Space: ``BSpline``, ``Fourier``,
        ``Polynomial``, a sum of these, or an integer n for ``BSpline(n)``. None pools a dimension: its entries are
        repeated observations. Dimensions that no coordinate spans are batch dimensions: one independent fit each.
        Without any basis, the axes X, Y, Z and T of the CF conventions get one each, by their number of labels
        (:func:`xspline.labels.defaults.bases_for`); :func:`plan` shows them.
    penalty
        A number (the paper's ridge λ‖c‖²), ``Ridge``, ``Roughness`` or a sum of them; 0 means none. "reml", "gcv" and
        "holders" choose the strengths of a ``Roughness`` by that criterion; None is "reml" where there are B-splines.
    weights : DataArray
        Relative precisions (1/se²) over some of the dimensions, with equal labels; zero leaves an observation out.
    holder
        Name of the contributor; or labels that make one part for each in the same pass: a 1-D DataArray along a
        fitted or pooled dimension, the name of a 1-D coordinate, or ``"time.year"``, as in ``groupby``.
    solver
        Name of a solver; None chooses one by structure.
    device
        "cuda" moves each block to a GPU inside its own task; iterations and large dense systems of the solve run there
        too where this process has one.
    compute
        False returns a Field whose coefficients are still lazy.
    checkpoint
        Directory for partial sums, on a path that all workers see. An interrupted call that is made again takes them
        from there, reads only the rest, and returns the same bits. Delete it when it is no longer needed.

    Returns
    -------
    Field

    Raises
    ------
    ValueError
        Names, labels or weights do not fit the data; a value is infinite; nothing is determined; the checkpoint is
        of other data or of another space.
    """
    found = _statistics(data, space, bases, weights, holder, device, compute, checkpoint, index=True)
    return found.solve(penalty, solver=solver, device=execution.present(device))


def statistics(
    data: Data,
    space: Space | Mapping[str, Any] | None = None,
    *,
    weights: xr.DataArray | None = None,
    holder: Any = None,
    device: str | None = None,
    compute: bool = True,
    checkpoint: Any = None,
    **bases: Any,
) -> Statistics:
    """Compute the sufficient statistics of some data: G = ΦᵀWΦ, h = ΦᵀWy and sums (paper, equation 5).

    Parameters are those of :func:`fit`. Holders that want to merge agree on a Space first: :func:`space`. Bases that
    are left out are those of the holder's own labels.
    """
    return _statistics(data, space, bases, weights, holder, device, compute, checkpoint, index=False)


def space(data: Data, space: Space | Mapping[str, Any] | None = None, **bases: Any) -> Space:
    """Return the Space of some bases, with the coordinates' ranges as the domains that were left out.

    Parameters are those of :func:`fit`.
    """
    return _request(data, space, bases, index=False)[0]


def plan(
    data: Data,
    space: Space | Mapping[str, Any] | None = None,
    *,
    penalty: Any = None,
    weights: xr.DataArray | None = None,
    holder: Any = None,
    solver: str | None = None,
    device: str | None = None,
    **bases: Any,
) -> execution.Plan:
    """Say what a fit would cost: coefficients, bytes, tasks, solver and peak memory, from labels and chunks alone.

    Parameters are those of :func:`fit`; the penalty has a say in the choice of the solver. Of a Dataset, the plan is
    that of its first fitted variable. The plan shows the line of code that asks for its bases.
    """
    agreed, observed = _request(data, space, bases, index=True)
    (first,) = _owned(observed[:1], weights, holders_of(holder, data))
    asked = as_penalty(penalty, agreed)
    resources = execution.resources(execution.present(device))
    cost = execution.plan(
        first.source(agreed),
        agreed,
        device=device,
        solver=lambda gram: choice_for(gram, asked, agreed, solver, resources),
    )
    return replace(cost, code=f"fit({defaults.code(agreed)})")


def _request(
    data: Data, space: Space | Mapping[str, Any] | None, bases: Mapping[str, Any], *, index: bool
) -> tuple[Space, list[Observations]]:
    """Return the Space and, for each variable, its observations; reads coordinates only."""
    given, pooled = _bases(space, bases)
    if isinstance(data, xr.DataArray):
        check_data(data)
    extents: dict[str, tuple[float, float]] = {}
    if given is None:
        given, extents = defaults.chosen(data, pooled)
    names = given.names if isinstance(given, Space) else tuple(given)
    others = data.data_vars if isinstance(data, xr.Dataset) else ()
    coordinates = {name: coordinate_of(data, name, index=index, others=others) for name in names}
    axes = {name: axis_of(c) for name, c in coordinates.items()}
    agreed = (
        given.described_by(axes) if isinstance(given, Space) else _bound(given, coordinates, axes, extents)
    )
    variables = _variables(data, coordinates, pooled)
    return agreed, [Observations(v, coordinates, pooled) for v in variables]


def _bases(
    space: Any, bases: Mapping[str, Any]
) -> tuple[Space | dict[str, Basis] | None, tuple[Hashable, ...]]:
    """Return bases by name or None, and the dimensions that are pooled, from whichever form was used."""
    if space is not None and any(basis is not None for basis in bases.values()):
        raise both_forms(space, bases)
    if isinstance(space, Space):
        return space, tuple(bases)
    if space is not None and not isinstance(space, Mapping):
        raise TypeError(
            f"space has to be a Space or a mapping of coordinate names to bases, not {type(space).__name__}"
        )
    every = {**(space or {}), **bases}
    chosen = {str(name): as_basis(basis) for name, basis in every.items() if basis is not None}
    if space is not None and not space:
        raise ValueError(
            "the mapping of bases is empty; leave it out, or name what to fit: fit(lat=13, lon=23)"
        )
    return chosen or None, tuple(name for name, basis in every.items() if basis is None)


def _bound(
    bases: Mapping[str, Basis],
    coordinates: Mapping[str, xr.DataArray],
    axes: Mapping[str, Axis],
    known: Mapping[str, tuple[float, float]],
) -> Space:
    """Return the Space over the coordinates' ranges; only those of bases without a domain are looked at."""
    needed = {n: c for n, c in coordinates.items() if bases[n].domain is None and c.ndim and n not in known}
    return Space(bases, axes=axes, extents={**known, **extents_of(needed, axes)})


def _variables(
    data: Data, coordinates: Mapping[str, xr.DataArray], pooled: tuple[Hashable, ...]
) -> list[xr.DataArray]:
    if isinstance(data, xr.Dataset):
        for dim in pooled:
            if dim not in data.dims:
                raise unknown_name(str(dim), "dimension", data.dims)
        dims = {d for c in coordinates.values() for d in c.dims} | set(pooled)
        return list(fitted_variables(data, dims).values())
    return [data]


def _statistics(
    data: Data,
    space: Any,
    bases: Mapping[str, Any],
    weights: Any,
    holder: Any,
    device: str | None,
    compute: bool,
    checkpoint: Any,
    *,
    index: bool,
) -> Statistics:
    """Walk from labels to Statistics; all variables and holders are computed in one pass."""
    execution.check_device(device)
    if checkpoint is not None and not compute:
        raise ValueError("a checkpoint is written and read while sums are computed; leave out compute=False")
    agreed, observed = _request(data, space, bases, index=index)
    holders = holders_of(holder, data)
    observed = _owned(observed, weights, holders)
    sources = [o.source(agreed) for o in observed]
    if compute:
        with naming({o.name: o.data for o in observed}):
            found = execution.sums(sources, agreed, device=device, checkpoint=checkpoint)
    else:
        found = [execution.lazy_sums(source, agreed, device=device) for source in sources]
    every = _by_holder(found, holder, holders, data)
    parts = tuple(_part(observed, own, name, sizes, lazy=not compute) for name, own, sizes in every)
    return Statistics(
        agreed,
        parts,
        {o.name: o.variable() for o in observed},
        is_dataset=isinstance(data, xr.Dataset),
        fitted=dict(observed[0].coordinates),
        chunks=target_chunks(observed[0].data),
        pending={} if compute else {o.name: o.data for o in observed},
    )


def _owned(observed: Sequence[Observations], weights: Any, holders: Holders | None) -> list[Observations]:
    """Return the observations with their weights and holders."""
    return [replace(o, weights=checked_weights(weights, o.data), holders=holders) for o in observed]


def _by_holder(
    found: list[Any], holder: str | None, holders: Holders | None, data: Data
) -> Iterator[tuple[str | None, list[Any], Mapping[Hashable, int]]]:
    """Yield each holder's name, its sums of every variable, and the lengths of its dimensions."""
    if holders is None:
        yield holder, found, data.sizes
        return
    for code, name in enumerate(holders.names):
        yield name, [shares[code] for shares in found], holders.sizes(code, data)


def _part(
    observed: Sequence[Observations],
    found: list[Any],
    holder: str | None,
    sizes: Mapping[Hashable, int],
    *,
    lazy: bool,
) -> Part:
    from xspline import __version__

    provenance = {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "xspline": __version__,
        "sizes": {str(d): int(n) for d, n in sizes.items()},
    }
    sums = {o.name: s for o, s in zip(observed, found, strict=True)}
    if lazy:
        return Part("", holder or "", sums, provenance)
    for o in observed:
        check_tally(sums[o.name].tally, o.data, o.name)
    return Part.of(sums, holder, provenance)

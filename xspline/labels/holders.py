"""Whose observations are whose: labels along a dimension, as in ``groupby``, numbered."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from xspline.execution import HolderCodes
from xspline.labels.errors import place


@dataclass(frozen=True, eq=False)
class Holders:
    """Holders that share some data.

    Attributes
    ----------
    names : of each, in the order of their labels.
    dim : dimension along which the observations are shared out.
    codes : along it, the number of the holder of each entry.
    """

    names: tuple[str, ...]
    dim: Hashable
    codes: NDArray[np.int32]

    def owners(self, data: xr.DataArray, batch: tuple[Hashable, ...]) -> HolderCodes:
        """Return the same in positions of the data's axes.

        Raises
        ------
        ValueError
            The data lack the dimension, or it is one of their batch dimensions.
        """
        if self.dim not in data.dims:
            raise _no_dimension(self.dim, data)
        if self.dim in batch:
            raise ValueError(
                f"the holder labels run along {self.dim!r}, but no fitted coordinate spans it: each of its members is "
                f"a fit of its own, which cannot be shared out; fit its coordinate, pool it ({self.dim}=None), or "
                "label another dimension"
            )
        return HolderCodes(data.dims.index(self.dim), self.codes, len(self.names))

    def sizes(self, code: int, data: xr.DataArray | xr.Dataset) -> dict[Hashable, int]:
        """Return the lengths of the dimensions of what one holder has."""
        return {**data.sizes, self.dim: int(np.count_nonzero(self.codes == code))}


def holders_of(holder: Any, data: xr.DataArray | xr.Dataset) -> Holders | None:
    """Return the holders that labels name; None if `holder` is the name of one, or None.

    Parameters
    ----------
    holder
        1-D labels along a dimension of the data; or the name of a 1-D coordinate of theirs, or of a component of
        one (``"time.year"``), as in ``groupby``; or any other name.

    Raises
    ------
    TypeError
        Neither a name nor 1-D labels.
    ValueError
        The labels do not fit the data, or some are missing.
    """
    labels = _coordinate(holder, data) if isinstance(holder, str) else holder
    if labels is None:
        return None
    if not isinstance(labels, xr.DataArray) or labels.ndim != 1:
        raise TypeError(
            "holder has to be a name or 1-D labels as a DataArray (for example ds.time.dt.year), "
            f"not {_kind(labels)}"
        )
    _check_aligned(labels, data)
    return _numbered(labels)


def _kind(labels: Any) -> str:
    dims = f" with the dimensions {labels.dims}" if isinstance(labels, xr.DataArray) else ""
    return f"{type(labels).__name__}{dims}"


def _coordinate(name: str, data: xr.DataArray | xr.Dataset) -> xr.DataArray | None:
    """Return the coordinate or component that a name means, None if it means neither."""
    if isinstance(data, xr.Dataset) and name in data.data_vars:
        raise ValueError(
            f"{name!r} is a data variable; to take holders from it, make it a coordinate first: "
            f"ds = ds.set_coords([{name!r}])"
        )
    if name in data.coords:
        return data.coords[name]
    base, dot, component = name.partition(".")
    return _component(base, component, data) if dot and base in data.coords else None


def _component(base: str, component: str, data: xr.DataArray | xr.Dataset) -> xr.DataArray:
    try:
        return getattr(data.coords[base].dt, component)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"coordinate {base!r} has no component {component!r} to take holders from; times have year, month, "
            f"season, dayofyear and the like, and any 1-D coordinate can be named by itself: holder={base!r}"
        ) from error


def _check_aligned(labels: xr.DataArray, data: xr.DataArray | xr.Dataset) -> None:
    (dim,) = labels.dims
    if dim not in data.dims:
        raise _no_dimension(dim, data)
    advice = f"select the labels as the data, for example labels.sel({dim}=data.{dim})"
    if labels.size != data.sizes[dim]:
        raise ValueError(
            f"the holder labels have {labels.size} entries along {dim!r} and the data {data.sizes[dim]}; {advice}"
        )
    mine, yours = labels.indexes.get(dim), data.indexes.get(dim)
    if mine is not None and yours is not None and not mine.equals(yours):
        i = int(np.flatnonzero(mine != yours)[0])
        raise ValueError(
            f"the holder labels are for {place(labels[dim], (i,))} where the data have {place(data[dim], (i,))}, at "
            f"position {i} along {dim!r}; {advice}"
        )


def _no_dimension(dim: Hashable, data: xr.DataArray | xr.Dataset) -> ValueError:
    what = "the data have" if isinstance(data, xr.Dataset) else f"{data.name or 'the data'!r} has"
    return ValueError(
        f"the holder labels run along {dim!r}, but {what} the dimensions {tuple(data.dims)}; label one of these"
    )


def _numbered(labels: xr.DataArray) -> Holders:
    (dim,) = labels.dims
    missing = np.flatnonzero(labels.isnull().values)
    if missing.size:
        raise ValueError(
            f"{missing.size} of {labels.size} holder labels along {dim!r} are missing, the first at "
            f"{place(labels, (int(missing[0]),))}, so these observations belong to nobody; name their holder "
            "(labels.fillna(...)) or leave them out of labels and data (.dropna and .sel)"
        )
    values = labels.values.astype(str) if labels.dtype.kind == "S" else labels.values
    try:
        found, codes = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise ValueError(
            f"the holder labels along {dim!r} cannot be sorted ({error}); make them all text: labels.astype(str)"
        ) from error
    return Holders(tuple(map(_text, found)), dim, codes.astype(np.int32))


def _text(label: Any) -> str:
    return np.datetime_as_string(label, "auto") if isinstance(label, np.datetime64) else str(label)

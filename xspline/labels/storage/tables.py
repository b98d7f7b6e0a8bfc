"""Tables of pandas as scattered observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from xspline.arguments import brief, checked
from xspline.labels.errors import check_names
from xspline.labels.read.cf import cf_axis
from xspline.labels.read.targets import HEADER, columns_without_units

OBSERVATION = "obs"  # the dimension of the rows
_AXES = "XYZT"


@checked
def from_dataframe(
    frame: Any, value: str | Sequence[str], coords: str | Sequence[str] | None = None
) -> xr.DataArray | xr.Dataset:
    """Return columns of a table as scattered observations, a row each, that ``.spline.fit()`` takes.

    Parameters
    ----------
    frame
        A pandas DataFrame, as argopy and erddapy give them. Levels of its index that have names count as columns. A
        header ``"TEMP (degree_C)"`` is a name and its units; ``frame.attrs`` may have attributes by the name of the
        column: ``frame.attrs = {name: variable.attrs for name, variable in dataset.variables.items()}``.
    value
        The column of the observations, with or without its units, or a list of several.
    coords
        Columns of the coordinates, or a single one, which a fit without bases then takes. None: those that are
        recognised as a longitude, latitude, depth, pressure or time.

    Returns
    -------
    DataArray or Dataset
        Along ``obs``, with units and attributes; a Dataset of several columns. The columns that remain are coordinates
        beside them, for ``holder=``, or for weights such as ``1 / data.TEMP_ERROR**2``; without those that a fit would
        take for coordinates although `coords` does not name them.

        Where there is no value it is NaN, which is missing, and the row stays. Texts of times are read as times, and
        times of a zone are UTC. Rows without a label stay too, and the fit leaves them out with a warning.

    Raises
    ------
    TypeError
        This is no DataFrame.
    ValueError
        A column is not there or is there twice, no coordinate is recognised, or a text is neither number nor time.

    Examples
    --------
    >>> import numpy as np, pandas as pd, xspline as xs
    >>> rng = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"longitude (degrees_east)": rng.uniform(0, 9, 300), "platform": 7})
    >>> frame["TEMP (degree_C)"] = np.sin(frame["longitude (degrees_east)"])
    >>> data = xs.from_dataframe(frame, "TEMP")
    >>> data.dims, data.units, list(data.coords)
    (('obs',), 'degree_C', ['longitude', 'platform'])
    >>> data.spline.fit(longitude=20, holder="platform").predict(longitude=[1.0, 2.0]).round(2).values
    array([0.84, 0.91])
    """
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(
            f"frame={brief(frame)} has to be a pandas DataFrame; other tables have a method to_pandas()"
        )
    has_names = any(name is not None for name in frame.index.names)
    columns, attrs = columns_without_units(frame.reset_index() if has_names else frame)
    if len(frame) == 0:
        raise ValueError("the table has no rows; look at how it was read or selected")
    wanted = [_named(name, columns) for name in ([value] if isinstance(value, str) else value)]
    named = [_named(name, columns) for name in ([coords] if isinstance(coords, str) else coords or ())]
    check_names([*wanted, *named], columns, "column")
    if not wanted or set(wanted) & set(named):
        raise ValueError(
            f"value={value!r} and coords={coords!r} have to name columns, of which none is both; the columns are "
            f"{', '.join(map(repr, columns))}"
        )
    values = {name: (OBSERVATION, _numbers(columns[name], name), attrs[name]) for name in wanted}
    labels = {}
    for name in [name for name in columns if name not in wanted]:
        labels[name] = _labels(columns[name], name, attrs[name], is_named=name in named)
    axes = {name: cf_axis(xr.DataArray(label, name=name))[0] for name, label in labels.items()}
    if coords is None and not any(axes.values()):
        raise ValueError(
            "no column is recognised as a longitude, latitude, depth or time; name those of the coordinates: "
            f"coords={list(labels)[:2]}, of {', '.join(map(repr, labels))}"
        )
    left = [axis for axis in _AXES if axis not in {axes[name] for name in named}]
    for name in [name for name in named if not axes[name] and left]:
        labels[name].attrs["axis"] = left.pop(0)  # so that a fit without bases takes it
    beside = [name for name, axis in axes.items() if coords is None or not axis]
    order = dict.fromkeys([*named, *sorted(beside, key=lambda name: not axes[name])])
    data = xr.Dataset(values, {name: labels[name] for name in order})
    return data[wanted[0]] if isinstance(value, str) else data


def _named(name: Any, columns: Mapping[str, Any]) -> Any:
    """Return the name of a column that a caller may have written with its units, as the table does."""
    split = HEADER.fullmatch(name) if isinstance(name, str) and name not in columns else None
    return split[1] if split and split[1] in columns else name


def _numbers(column: pd.Series, name: str) -> np.ndarray:
    """Return a column as floats, NaN where there is none."""
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = np.flatnonzero(numbers.isna() & column.notna())
    if wrong.size or numbers.dtype.kind not in "iufb" or column.dtype.kind in "Mm":
        what = f"{column.iloc[wrong[0]]!r} in row {wrong[0]}" if wrong.size else f"values of {column.dtype}"
        raise ValueError(
            f"column {name!r} has {what}, which is no number; leave that row out (as pandas.read_csv(..., "
            "skiprows=[1]) does with a row of units), or convert it: pandas.to_numeric(column, errors='coerce')"
        )
    return numbers.to_numpy(np.float64, na_value=np.nan)


def _labels(column: pd.Series, name: str, attrs: dict[str, Any], *, is_named: bool) -> xr.Variable:
    """Return a column as labels: instants in UTC, floats of a coordinate, or what it holds."""
    axis, _ = cf_axis(xr.DataArray(np.zeros(1), dims=OBSERVATION, name=name, attrs=attrs))
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    is_text, first = pd.api.types.is_string_dtype(column) or column.dtype == object, column.dropna().iloc[:1]
    is_date = is_text and not all(isinstance(label, str | Real) for label in first)  # such as those of cftime
    is_label, is_number = is_text and bool(axis or is_named) and not is_date, is_named
    if is_label:
        is_number = axis in ("X", "Y", "Z") or bool(pd.to_numeric(first, errors="coerce").notna().all())
    if isinstance(column.dtype, pd.DatetimeTZDtype) or (is_label and not is_number):
        times = pd.to_datetime(column, utc=True, errors="coerce", format="ISO8601")
        wrong = np.flatnonzero(times.isna() & column.notna())
        if wrong.size:
            raise ValueError(
                f"column {name!r} has {column.iloc[wrong[0]]!r} in row {wrong[0]}, which is neither a number nor a "
                "time such as '2010-01-31T12:00:00Z'; leave that row out, or convert the column: pandas.to_datetime"
            )
        return xr.Variable(OBSERVATION, times.dt.tz_localize(None).to_numpy(), attrs)
    if column.dtype.kind in "Mm" or is_date:
        return xr.Variable(OBSERVATION, column.to_numpy(), attrs)
    if is_number or (pd.api.types.is_numeric_dtype(column) and column.isna().any()):
        return xr.Variable(OBSERVATION, _numbers(column, name), attrs)
    if is_text:  # for holders; a missing one stays missing
        return xr.Variable(OBSERVATION, column.to_numpy(object if column.isna().any() else str), attrs)
    return xr.Variable(OBSERVATION, column.to_numpy(getattr(column.dtype, "numpy_dtype", None)), attrs)

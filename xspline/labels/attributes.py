"""Names, units and history of everything that is handed back."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import xarray as xr

UNNAMED = "field"
_WORDS = {1: "derivative", 2: "second derivative", 3: "third derivative"}


def derivative_name(name: str, orders: Mapping[str, int]) -> str:
    """Return ``dsst_dlat``, ``d2sst_dlon2``, ``d2sst_dlon_dtime``."""
    total = sum(orders.values())
    below = "_".join(f"d{c}{n if n > 1 else ''}" for c, n in orders.items() if n)
    return f"d{total if total > 1 else ''}{name}_{below}"


def per(units: str, *denominators: tuple[str, int]) -> str:
    """Return units divided by powers of others, as UDUNITS writes it: ``degC m-1``.

    >>> per("degC", ("s", 1), ("degrees_east", 2))
    'degC s-1 degrees_east-2'
    """
    below = [f"{unit}-{n}" for unit, n in denominators if unit and unit != "1" and n]
    return " ".join([units, *below] if units and units != "1" else below)


def derivative_long_name(long_name: str, orders: Mapping[str, int]) -> str:
    """Return ``second derivative of sea surface temperature with respect to lon``."""
    parts = [
        f"{_WORDS.get(n, f'derivative of order {n}')} with respect to {c}" for c, n in orders.items() if n
    ]
    return f"{parts[0].replace(' with', f' of {long_name} with', 1)}" + "".join(f", {p}" for p in parts[1:])


def history(previous: str, what: str) -> str:
    """Return a CF history with one line more, the newest first."""
    from xspline import __version__

    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    line = f"{now} xspline {__version__}: {what}"
    return f"{line}\n{previous}" if previous else line


def attributes(units: str, long_name: str, previous: str, what: str, **more: Any) -> dict[str, Any]:
    """Return the attributes of an output; empty ones are left out."""
    full = {"long_name": long_name, "units": units, **more, "history": history(previous, what)}
    return {key: value for key, value in full.items() if value not in ("", None)}


def of_error(result: xr.DataArray, attrs: Mapping[str, Any]) -> xr.DataArray:
    """Return a result as the standard error of what its attributes describe, with what it assumes."""
    return result.assign_attrs(long_name=f"standard error of {result.attrs['long_name']}", **attrs)


def without_encoding(result: xr.Dataset | xr.DataArray) -> Any:
    """Return the result with no trace of how its source was packed, chunked or compressed on disk."""
    return result.drop_encoding()

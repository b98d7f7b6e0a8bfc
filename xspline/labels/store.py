"""Files: statistics and fields as plain arrays plus one JSON attribute. Nothing in them is pickled or executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels.field import Field
from xspline.labels.statistics import Part, Statistics, Variable
from xspline.solve import penalty_from_dict
from xspline.spaces import Space
from xspline.sums import Sums

#: Version of the layout of the files; a reader refuses a later one.
SCHEMA = 2
_ATTRIBUTE = "xspline"


def statistics_to_dataset(statistics: Statistics) -> xr.Dataset:
    """Return statistics as a Dataset of plain arrays."""
    statistics._check_computed()
    arrays: dict[str, np.ndarray] = {}
    parts = [_part(part, f"part{i}", arrays) for i, part in enumerate(statistics.parts)]
    labels, variables = _label_variables(statistics)
    meta = {
        "schema": SCHEMA,
        "content": "statistics",
        "space": json.loads(statistics.space.to_json()),
        "parts": parts,
        "variables": variables,
        "is_dataset": statistics.is_dataset,
        "collapsed": statistics.collapsed,
        "fitted": sorted(n for n in labels if n.startswith("fitted__")),
    }
    plain = {name: ([f"{name}__{i}" for i in range(a.ndim)], a) for name, a in arrays.items()}
    return xr.Dataset({**plain, **labels}, attrs={_ATTRIBUTE: json.dumps(meta)})


def _part(part: Part, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Add a part's arrays under `prefix` and return what JSON says of it."""
    described = {}
    for k, (name, sums) in enumerate(part.sums.items()):
        own, meta = sums.to_arrays()
        arrays.update({f"{prefix}__{k}__{key}": np.asarray(a) for key, a in own.items()})
        described[name] = {"prefix": f"{prefix}__{k}__", "arrays": list(own), "meta": meta}
    return {
        "digest": part.digest,
        "holder": part.holder,
        "provenance": dict(part.provenance),
        "sums": described,
    }


def _label_variables(statistics: Statistics) -> tuple[dict[str, xr.Variable], list[dict[str, Any]]]:
    """Return label arrays by name, and the JSON of the variables that refer to them."""
    labels: dict[str, xr.Variable] = {}
    variables = []
    for k, variable in enumerate(statistics.variables.values()):
        kept = {n: c for n, c in variable.batch.coords.items() if set(c.dims) <= set(variable.batch_dims)}
        for name, coordinate in kept.items():
            labels[f"batch{k}__{name}"] = _renamed(coordinate, f"batch{k}__")
        variables.append({**_variable_to_dict(variable), "batch": [str(n) for n in kept]})
    for name, coordinate in (statistics.fitted or {}).items():
        if coordinate.dims in ((), (name,)):
            labels[f"fitted__{name}"] = _renamed(coordinate, "fitted__")
    return labels, variables


def _renamed(coordinate: xr.DataArray, prefix: str) -> xr.Variable:
    loaded = coordinate.variable.compute()
    return xr.Variable([f"{prefix}{d}" for d in loaded.dims], loaded.values, loaded.attrs)


def _variable_to_dict(v: Variable) -> dict[str, Any]:
    return {
        "name": v.name,
        "units": v.units,
        "long_name": v.long_name,
        "history": v.history,
        "dims": [str(d) for d in v.dims],
        "spans": [[str(d) for d in span] for span in v.spans],
        "batch_dims": [str(d) for d in v.batch_dims],
        "batch_shape": list(v.batch_shape),
    }


def statistics_from_dataset(dataset: xr.Dataset) -> Statistics:
    """Return the statistics in a Dataset that :func:`statistics_to_dataset` made, checking version and digests."""
    meta = _meta(dataset, "statistics")
    space = Space.from_json(json.dumps(meta["space"]))
    variables = {v["name"]: _variable_from_dict(v, k, dataset) for k, v in enumerate(meta["variables"])}
    parts = tuple(_read_part(p, dataset) for p in meta["parts"])
    fitted = {n.removeprefix("fitted__"): _restored(dataset, n, "fitted__") for n in meta["fitted"]}
    complete = len(fitted) == len(space.names)
    return Statistics(
        space, parts, variables, meta["is_dataset"], meta["collapsed"], fitted if complete else None
    )


def _read_part(described: Mapping[str, Any], dataset: xr.Dataset) -> Part:
    sums = {}
    for name, one in described["sums"].items():
        arrays = {key: dataset[one["prefix"] + key].values for key in one["arrays"]}
        sums[name] = Sums.from_arrays(arrays, one["meta"])
    part = Part.of(sums, described["holder"] or None, described["provenance"])
    if part.digest != described["digest"]:
        raise ValueError(
            f"part {described['holder']!r} has digest {part.digest[:12]}, but the file says "
            f"{described['digest'][:12]}: the file was changed or damaged; ask its holder for it again"
        )
    return part


def _variable_from_dict(v: Mapping[str, Any], k: int, dataset: xr.Dataset) -> Variable:
    batch = {name: _restored(dataset, f"batch{k}__{name}", f"batch{k}__") for name in v["batch"]}
    texts = (v["name"], v["units"], v["long_name"], v["history"])
    spans = tuple(tuple(span) for span in v["spans"])
    return Variable(
        *texts,
        tuple(v["dims"]),
        spans,
        xr.Dataset(coords=batch),
        tuple(v["batch_dims"]),
        tuple(v["batch_shape"]),
    )


def _restored(dataset: xr.Dataset, stored: str, prefix: str) -> xr.DataArray:
    variable = dataset[stored].variable.compute()
    name = stored.removeprefix(prefix)
    return xr.DataArray(
        variable.values,
        dims=[str(d).removeprefix(prefix) for d in variable.dims],
        name=name,
        attrs=variable.attrs,
    )


def field_to_dataset(field: Field) -> xr.Dataset:
    """Return a field as a Dataset: its statistics and its coefficients."""
    dataset = statistics_to_dataset(field.statistics)
    meta = json.loads(dataset.attrs[_ATTRIBUTE])
    meta |= {
        "content": "field",
        "asked": field.asked if isinstance(field.asked, str) else field.asked.to_dict(),
        "penalties": {name: penalty.to_dict() for name, penalty in field.penalties.items()},
        "choices": {name: dict(choice) for name, choice in field.choices.items()},
        "solver": field.solver,
        "selected": field.selected,
        "members": field.members,
    }
    arrays = {f"coefficients__{k}": a for k, a in enumerate(field.arrays.values())}
    plain = {name: ([f"{name}__{i}" for i in range(a.ndim)], a) for name, a in arrays.items()}
    return dataset.assign(plain).assign_attrs({_ATTRIBUTE: json.dumps(meta)})


def field_from_dataset(dataset: xr.Dataset) -> Field:
    """Return the field in a Dataset that :func:`field_to_dataset` made."""
    meta = _meta(dataset, "field")
    statistics = statistics_from_dataset(dataset)
    arrays = {name: dataset[f"coefficients__{k}"].values for k, name in enumerate(statistics.variables)}
    asked = meta["asked"] if "asked" in meta else meta["penalty"]  # schema 1: one penalty for all variables
    penalties = meta.get("penalties", dict.fromkeys(statistics.variables, asked))
    return Field(
        statistics.space,
        statistics,
        asked if isinstance(asked, str) else penalty_from_dict(asked),
        arrays,
        meta["solver"],
        {name: penalty_from_dict(penalty) for name, penalty in penalties.items()},
        meta.get("choices", {}),
        selected=meta["selected"],
        members=meta.get("members", ""),
    )


def _meta(dataset: xr.Dataset, content: str) -> dict[str, Any]:
    if _ATTRIBUTE not in dataset.attrs:
        raise ValueError(f"this is not a file of xspline {content}: it has no attribute {_ATTRIBUTE!r}")
    meta: dict[str, Any] = json.loads(dataset.attrs[_ATTRIBUTE])
    if meta["schema"] > SCHEMA:
        raise ValueError(
            f"the file has schema version {meta['schema']} and this xspline reads up to {SCHEMA}; upgrade xspline"
        )
    if meta["content"] != content and content == "field":
        raise ValueError(
            "the file holds statistics, not a field; read it with xspline.open_statistics and .solve() it"
        )
    return meta


def _open(path: Any, kwargs: dict[str, Any]) -> xr.Dataset:
    """Open a Zarr store or a NetCDF file, by what is there."""
    is_file = isinstance(path, str | Path) and Path(path).is_file() and not str(path).endswith(".zip")
    if is_file:
        with xr.open_dataset(path, **kwargs) as dataset:
            return dataset.load()
    with xr.open_zarr(path, **{"consolidated": False, "chunks": None, **kwargs}) as dataset:
        return dataset.load()


def open_statistics(path: Any, **kwargs: Any) -> Statistics:
    """Open statistics written by ``Statistics.to_zarr`` or ``to_netcdf``.

    Parameters
    ----------
    path : str, Path or Zarr store
    **kwargs
        As for :func:`xarray.open_zarr` or :func:`xarray.open_dataset`.

    Raises
    ------
    ValueError
        The file is of another kind, of a later version, or its contents do not match their digests.
    """
    return statistics_from_dataset(_open(path, kwargs))


def open_field(path: Any, **kwargs: Any) -> Field:
    """Open a field written by ``Field.to_zarr`` or ``to_netcdf``; parameters as for :func:`open_statistics`."""
    return field_from_dataset(_open(path, kwargs))

"""What a file of statistics holds (`xspline.labels.storage.files`), as a Dataset."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels.read.observations import Variable
from xspline.labels.read.parts import Part
from xspline.labels.storage import files
from xspline.spaces import Space
from xspline.sums import Sums


def to_dataset(statistics: Any) -> xr.Dataset:
    """Return statistics, without what is lazy, as arrays and one JSON attribute."""
    contents: dict[str, Any] = {}
    parts = [_stored_part(part, f"part{i}__", contents) for i, part in enumerate(statistics.parts)]
    variables = []
    for k, variable in enumerate(statistics.variables.values()):
        own = set(variable.batch_dims)
        levels = variable.levels  # a MultiIndex is stored as the coordinates that it is made of
        coords = variable.batch.coords.items()
        batch = {n: c for n, c in coords if set(c.dims) <= own and str(n) not in levels}
        contents |= {f"batch{k}__{n}": files.stored_coordinate(c, f"batch{k}__") for n, c in batch.items()}
        variables.append({**variable.to_dict(), "batch": [str(n) for n in batch]})
    fitted = {n: c for n, c in (statistics._fitted or {}).items() if c.dims in ((), (n,))}
    contents |= {f"fitted__{n}": files.stored_coordinate(c, "fitted__") for n, c in fitted.items()}
    meta = {
        "schema": files.SCHEMA,
        "content": "statistics",
        "space": json.loads(statistics.space.to_json()),
        "parts": parts,
        "variables": variables,
        "is_dataset": statistics._is_dataset,
        "collapsed": statistics._collapsed,
        "fitted": sorted(f"fitted__{n}" for n in fitted),
    }
    return xr.Dataset(contents, attrs={files.ATTRIBUTE: json.dumps(meta)})


def from_dataset(dataset: xr.Dataset) -> tuple[Any, ...]:
    """Return the attributes of statistics, checking version and digests; raises as `Statistics.from_dataset` does."""
    meta = files.read_meta(dataset, "statistics")
    space = Space.from_json(json.dumps(meta["space"]))
    parts: list[Part] = []
    for described in meta["parts"]:
        sums = {}
        for name, stored in described["sums"].items():
            named = {key: dataset[stored["prefix"] + key].values for key in stored["arrays"]}
            sums[name] = Sums.from_arrays(named, stored["meta"])
        part = Part.of(sums, described["holder"] or None, described["provenance"])
        if part.digest != described["digest"]:
            raise ValueError(
                f"part {described['holder']!r} has digest {part.digest[:12]}, but the file says "
                f"{described['digest'][:12]}: the file was changed or damaged; ask its holder for it again"
            )
        if part.digest in {p.digest for p in parts}:
            raise ValueError(
                f"the file lists part {part.describe()} twice; it was changed after it was written"
            )
        parts.append(part)
    variables = {}
    for k, described in enumerate(meta["variables"]):
        batch = {name: files.restored_coordinate(dataset, f"batch{k}__", name) for name in described["batch"]}
        variables[described["name"]] = Variable.from_dict(described, batch)
    names = [stored.removeprefix("fitted__") for stored in meta["fitted"]]
    fitted = {name: files.restored_coordinate(dataset, "fitted__", name) for name in names}
    complete = fitted if len(fitted) == len(space.names) else None
    return space, tuple(parts), variables, meta["is_dataset"], meta["collapsed"], complete


def _stored_part(part: Part, prefix: str, contents: dict[str, Any]) -> dict[str, Any]:
    """Add the arrays of a part to the contents; return what the JSON says of it."""
    described = {}
    for k, (name, sums) in enumerate(part.sums.items()):
        own = f"{prefix}{k}__"
        named, facts = sums.to_arrays()
        for key, a in named.items():
            dims = [f"{own}{key}__{axis}" for axis in range(np.ndim(a))]
            contents[own + key] = (dims, np.asarray(a))
        described[name] = {"prefix": own, "arrays": list(named), "meta": facts}
    identity = {"digest": part.digest, "holder": part.holder, "provenance": dict(part.provenance)}
    return {**identity, "sums": described}

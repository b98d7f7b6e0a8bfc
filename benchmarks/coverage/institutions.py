"""Institutions that differ by offsets and noise levels: each holds 600 values of a field of standard deviation 1.

Offsets are 0, 0.3 and -0.2, noise 1, 2 and 0.5. The first two see three quarters of the domain each, the third sees all
of it. RMSE is that against the truth at 500 places that nobody saw; shares are of places, offsets and noise levels that
intervals of 95 % hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure
from benchmarks.coverage import shares

OFFSETS = {"a": 0.0, "b": 0.3, "c": -0.2}
NOISE = {"a": 1.0, "b": 2.0, "c": 0.5}
SEEN = {"a": (0.0, 7.5), "b": (2.5, 10.0), "c": (0.0, 10.0)}
WAYS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "offsets": {"offsets": "holders"},
    "noise": {"noise": "holders"},
    "offsets and noise": {"offsets": "holders", "noise": "holders"},
}
HELD = ("field", "offsets", "noise")
SPACE = {"x": xs.BSpline(14, domain=(0, 10)), "y": xs.BSpline(14, domain=(0, 10))}


def truth(rng: np.random.Generator) -> Any:
    """Return a random field of standard deviation 1, of waves of length 4 and more."""
    k, phase = rng.uniform(-1.1, 1.1, (12, 2)), rng.uniform(0, 2 * np.pi, 12)
    return lambda x, y: np.cos(np.outer(x, k[:, 0]) + np.outer(y, k[:, 1]) + phase).sum(axis=1) / np.sqrt(6)


def replicate(seed: int, n: int = 600) -> tuple[xs.Statistics, xr.Dataset]:
    """Return the merged statistics of three institutions, and the truth at places that none of them saw."""
    rng = np.random.default_rng(seed)
    field, space, parts = truth(rng), xs.Space(SPACE), []
    for name in OFFSETS:
        x, y = rng.uniform(*SEEN[name], n), rng.uniform(0, 10, n)
        values = field(x, y) + OFFSETS[name] + NOISE[name] * rng.standard_normal(n)
        data = xr.DataArray(values, {"x": ("obs", x), "y": ("obs", y)}, "obs", "u")
        parts.append(xs.statistics(data, space, holder=name))
    x, y = rng.uniform(0, 10, (2, 500))
    places = {"x": ("at", x), "y": ("at", y)}
    return xs.merge(parts), xr.Dataset({"u": ("at", field(x, y))}, places)


def scores(seed: int, way: str) -> dict[str, float]:
    """Return RMSE and what intervals hold of one replicate."""
    merged, withheld = replicate(seed)
    wanted = WAYS[way]
    field = merged.solve(**wanted, reference="a" if wanted else None)
    found = field.predict(withheld, stderr=True)
    error = (found.u - withheld.u).values
    out = {"rmse": shares.rms(error), "field": shares.held(error, found.u_stderr.values)}
    if "offsets" in wanted:
        others = field.offsets.sel(holder=["b", "c"])
        out["offsets"] = shares.held(others.offset - [OFFSETS["b"], OFFSETS["c"]], others.stderr)
    if "noise" in wanted:
        out["noise"] = shares.held(field.noise.noise - list(NOISE.values()), field.noise.stderr)
    return out


def rows(replicates: int) -> Iterator[tuple[str, ...]]:
    for way in WAYS:
        each = [scores(seed, way) for seed in range(replicates)]
        held = (shares.text([one[key] for one in each]) if key in each[0] else "" for key in HELD)
        yield way, f"{shares.mean([one['rmse'] for one in each]):.3f}", *held


def tables(replicates: int, *, quick: bool = False) -> None:
    title = "Three institutions, solved with what they are taken to differ by"
    measure.table(title, ("differ by", "RMSE", *(f"{key} held" for key in HELD)), rows(replicates))

"""Calls that make no sense end in a sentence of ours, which says what to do, and never inside NumPy, Dask or Zarr."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import xspline as xs
from tests.never_wrong import odd_calls

X = np.linspace(0, 1, 40)
DATA = xr.DataArray(np.sin(X), {"x": X, "part": ("x", np.arange(40) // 10)}, "x", "u")


@pytest.fixture(scope="module")
def field() -> xs.Field:
    return DATA.spline.fit(x=8, penalty=0.01, holder="part")


CALLS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "a number in place of a name": (lambda f: f[0], ValueError, "no fitted variable 0"),
    "a number in place of a holder": (lambda f: f.statistics.only(5), ValueError, "no holder 5"),
    "chunks of nothing": (lambda f: f.predict(chunks=0), ValueError, "chunks=0: sizes are positive integers"),
    "chunks that are no number": (lambda f: f.predict(chunks=float("nan")), ValueError, "chunks=nan"),
    "chunks as a text": (lambda f: f.predict(chunks="x"), ValueError, "chunks='x'"),
    "chunks by name": (lambda f: f.predict(chunks={"x": 2.5}), ValueError, "chunks={'x': 2.5}"),
    "no path to open": (lambda f: xs.open_field(None), TypeError, "a path or a Zarr store is needed"),
    "an empty path": (lambda f: xs.open_field(""), ValueError, "the path is empty"),
    "a number as a path": (
        lambda f: f.to_netcdf(2.5),
        TypeError,
        "a path is needed to write NetCDF to, not 2.5",
    ),
    "numbers as dimensions": (lambda f: f.gradient(dims=(1, 2)), ValueError, "no fitted coordinate '1'"),
    "a text as a switch": (lambda f: f.predict(x=2.0, extrapolate="no"), TypeError, "True or False"),
    "draws without end": (
        lambda f: f.stderr(method="draws", draws=10**30),
        ValueError,
        "100,000 are the most",
    ),
    "samples without end": (lambda f: f.sample(10**30), ValueError, "100,000 draws are the most"),
    "a holder without a name": (lambda f: DATA.spline.fit(x=8, holder=""), ValueError, "names nobody"),
    "a table": (lambda f: xs.fit(pd.DataFrame({"u": [1.0]})), TypeError, "not DataFrame; rows become points"),
    "an array": (lambda f: xs.recover(np.zeros((3, 3)), "u_t = D*u_xx"), TypeError, "not ndarray; name its"),
    "an array to plan": (lambda f: xs.plan(np.zeros(3), x=8), TypeError, "not ndarray"),
    "a coordinate that has the name of an argument": (
        lambda f: DATA.rename(x="space").spline.fit(space=8, t=4),
        TypeError,
        'goes into a mapping, fit({"space": 8, "t": 4',
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_odd_call_is_refused_with_a_sentence(field: xs.Field, name: str) -> None:
    call, kind, text = CALLS[name]
    with pytest.raises(kind, match=text.replace("{", r"\{").replace("(", r"\(")):
        call(field)


@pytest.mark.slow
def test_independent_fits_over_measured_labels_are_told() -> None:
    """With the line that fits one field, which runs."""
    x = np.linspace(0, 1, 30)
    s = xr.DataArray(np.arange(5.0), dims="s", attrs={"units": "km"})
    data = xr.DataArray(np.sin(6 * x)[:, None] + 0 * s.values, {"x": x, "s": s}, ("x", "s"), "u")
    data = data + 0.1 * np.random.default_rng(0).standard_normal(data.shape)
    with pytest.warns(xs.FitWarning, match="5 independent fits are made over 's'") as told:
        data.spline.fit()
    line = str(told[0].message).split("too: ")[1]
    assert eval(f"data.spline.{line}", {"xs": xs, "data": data}).space.names == ("x", "s")


@pytest.mark.slow
def test_depths_that_drift_are_told_from_depths_of_the_sea() -> None:
    """Both lie along two dimensions, one of them along that of instruments."""
    rng, time = np.random.default_rng(0), np.arange("2019-03-01", "2019-04-01", dtype="M8[D]")
    depth = np.array([20.0, 50, 100, 150])[:, None] + rng.normal(size=(4, time.size))
    data = xr.DataArray(20 * np.exp(-depth / 180), {"time": time}, ("instrument", "time"), "temp")
    data = data.assign_coords(depth=(data.dims, depth, {"units": "m"}))
    text = r"4 independent fits over 'instrument'.* data\['depth'\].attrs\['positive'\]"
    with pytest.warns(xs.FitWarning, match=text):
        data.spline.fit()
    data.depth.attrs["positive"] = "down"
    assert data.spline.fit().space.names == ("depth", "time")
    sea = xr.DataArray(depth, {"lat": np.arange(4.0), "lon": np.arange(time.size)}, ("lat", "lon"), "temp")
    sea.assign_coords(depth=(sea.dims, depth, {"units": "m"})).spline.fit()


def test_a_collapsed_total_and_one_of_its_parts_are_not_merged(field: xs.Field) -> None:
    """The part would count twice, by whichever way it comes again."""
    s = field.statistics
    for a, b in (
        (s.collapse(), s.only("0")),
        (s.only("0"), s.collapse()),
        (s.collapse().collapse(), s.only("1")),
        (s.without("0").collapse(), s.without("1").collapse()),
    ):
        with pytest.raises(
            ValueError, match=r"both count the part .* merge the parts before they are collapsed"
        ):
            a + b
    both = s.without("0").collapse() + s.only("0")
    assert both.count == 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("calls", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_random_calls_end_in_an_answer_or_a_sentence(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = (odd_calls.call(0, number) for number in range(calls))
    results = {what: odd_calls.outcome(function) for what, function in made}
    assert {what: r for what, r in results.items() if r not in ("answered", "refused")} == {}

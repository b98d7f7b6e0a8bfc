"""Calls of all public functions with arguments that make no sense, drawn at random.

A call is drawn from seed and number alone: a function, and one or two of its arguments made odd.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import functools
import inspect
import itertools
import linecache
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr

import xspline as xs

PACKAGE = str(Path(xs.__file__).parent)
SECONDS = 60  # that a call may take
X, T = np.linspace(0, 1, 20), np.linspace(0, 2, 15)
# What Python says of a signature is a sentence too: it names the argument.
SIGNATURE = (
    "unexpected keyword argument",
    "positional argument",
    "missing 1 required",
    "multiple values for",
    "unsupported operand",
    "can only concatenate",
    ": could not convert string to float",  # after the name of a coordinate
)
# Arguments that no error names yet: wrong ones end in a sentence of Python's.
UNCHECKED = {"repeated_holders", "coupled", "from_data", "beside", "geometry"}


@functools.cache
def data() -> xr.DataArray:
    """A diffusing wave, with a label for each of two holders."""
    wave = np.exp(-0.3 * T)[:, None] * np.sin(6 * X) + 0.01 * np.random.default_rng(0).standard_normal(
        (15, 20)
    )
    return xr.DataArray(wave, {"t": T, "x": X, "part": ("t", np.arange(15) // 8)}, ("t", "x"), "u")


BASES = {"x": xs.BSpline(8, 5), "t": xs.BSpline(6, 5)}


@functools.cache
def field() -> xs.Field:
    return data().spline.fit(BASES, penalty=1e-6, holder="part")


@functools.cache
def bare() -> xs.Field:
    return data().spline.fit()


@functools.cache
def odd_values() -> dict[str, Callable[[], Any]]:
    """What no argument expects, by what it is; made anew for each call."""
    numbers = [np.nan, -np.inf, -1, 0, 1, 2.5, 1e300, 10**30, True, 1 + 2j, decimal.Decimal("0.1")]
    numbers += [fractions.Fraction(1, 3), np.float32(np.nan), np.int8(-1)]
    texts = ["", "x", "nonsense", "2000-01-01", "nan", b"x", Path("nonsense/x")]
    lists = [[], [1, 2], [np.nan], ["x"], [None], [[1, 2], [3]]]
    tuples = [(), (0.0, np.nan), (1, 0), {1, "x"}, range(3)]
    mappings = [{}, {"q": 1}, {1: 2}, *({"x": wrong} for wrong in (None, np.nan, "nonsense", [1, "a"], {}))]
    dates = [datetime.date(2000, 1, 1), datetime.timedelta(1), pd.Timestamp("2000"), pd.NaT]
    dates += [np.datetime64("NaT", "ns"), np.timedelta64(1, "D")]
    others = [None, ..., NotImplemented, slice(0, 1), int, object(), len, pd.NA]
    ours = [xs.Fourier, xs.BSpline(5), xs.Fourier(1, period=1), xs.Ridge(1.0), xs.Roughness()]
    arrays = [
        np.array([]),
        np.array(3.0),
        np.zeros((2, 3)),
        np.array(["a", "b"]),
        np.array([object()]),
        np.array([1j]),
        np.ma.masked_array([1.0], [True]),
        np.array(["2000-01-01"], "M8[ns]"),
        np.full(20, np.inf),
        np.zeros(20, "V3"),
        da.zeros(20, chunks=7),
        da.from_array(np.arange(20.0))[da.from_array(np.arange(20)) > 3],
        pd.DataFrame({"x": [0.1, 0.2]}),
        pd.MultiIndex.from_tuples([(1, 2)]),
        pd.period_range("2000", periods=2, freq="M"),
    ]
    plane = functools.partial(xr.DataArray, dims=("t", "x"))
    line = functools.partial(xr.DataArray, np.zeros(20), dims="x")
    labelled: list[Any] = [
        xr.DataArray(0.5),
        xr.DataArray("x"),
        xr.DataArray([0.1, 0.2]),
        line(),
        line(coords={"x": X[::-1]}),
        line(coords={"x": X + 1}),
        line(coords={"x": pd.date_range("2000", periods=20)}),
        line(coords={"x": list("abcdefghijklmnopqrst")}),
        line(coords={"x": np.full(20, np.nan)}),
        xr.DataArray([None, 1], dims="x"),
        plane(np.zeros((15, 20), complex), {"t": T, "x": X}),
        plane(np.full((15, 20), np.nan), {"t": T, "x": X}),
        plane(np.zeros((0, 20))),
        plane(np.full((15, 20), -1.0), {"t": T, "x": X}),
        xr.DataArray(np.zeros((20, 20)), dims=("x", "x")),
        xr.Dataset(),
        xr.Dataset({"u": ("x", ["a"] * 20)}),
        xr.Dataset(coords={"x": [0.1, 0.2]}),
        xr.DataTree(),
        xr.Variable("x", [0.1]),
    ]
    made: dict[str, Callable[[], Any]] = {
        "a generator": lambda: (i for i in range(3)),
        "an iterator of text": lambda: iter("xt"),
        "a field": field,
        "statistics": lambda: field().statistics,
        "a space": lambda: field().space,
        "an accessor": lambda: data().spline,
        "an open file": lambda: open(os.devnull),
        "a function of one": lambda: lambda x: x,
        "a function that fails": lambda: lambda *_: 1 / 0,
    }
    kinds = (numbers, texts, lists, tuples, mappings, dates, others, ours, arrays, labelled)
    for value in itertools.chain(*kinds):
        text = " ".join(repr(value).split())
        made[f"{type(value).__name__} {text[:120]}"] = functools.partial(lambda v: v, value)
    return made


@functools.cache
def functions() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Public functions by name, with what a call of them needs; further arguments are those of their signatures."""
    f, d, law = field(), data(), {"equation": "u_t = D*u_xx"}
    s, search = f.statistics, {"response": "u_t", "terms": ["u_xx", "u"]}
    return {
        "fit": (xs.fit, {"data": d, "penalty": 1e-6, "x": 8, "t": 6}),
        "da.spline.fit": (d.spline.fit, {"penalty": 1e-6, "x": 8, "t": 6}),
        "bare fit": (xs.fit, {"data": d[:, 0]}),
        "statistics": (xs.statistics, {"data": d, **BASES}),
        "space": (xs.space, {"data": d, "x": 8, "t": 6}),
        "plan": (xs.plan, {"data": d, "x": 8}),
        "recover": (xs.recover, {"data": d, **law}),
        "da.spline.recover": (d.spline.recover, law),
        "constrain": (xs.constrain, {"data": d, **law}),
        "discover": (xs.discover, {"data": d, **search}),
        "merge_models": (xs.merge_models, {"fields": [f, f]}),
        "open_field": (xs.open_field, {"path": "nothing.zarr"}),
        "open_statistics": (xs.open_statistics, {"path": "nothing.nc"}),
        "field.predict": (f.predict, {"x": [0.1, 0.2], "t": 1.0}),
        "field.derivative": (f.derivative, {"x": 1}),
        "field.gradient": (f.gradient, {}),
        "field.laplacian": (f.laplacian, {"dims": "x"}),
        "field.stderr": (f.stderr, {"x": [0.1, 0.2]}),
        "field.sample": (f.sample, {"n": 3, "seed": 0}),
        "field.select": (f.select, {"x": xs.BSpline}),
        "field.check": (f.check, {"data": d}),
        "field.plot": (f.plot, {"x": 0.5}),
        "field.recover": (f.recover, law),
        "field.constrain": (f.constrain, law),
        "field.discover": (f.discover, search),
        "field[…]": (f.__getitem__, {"name": "u"}),
        "field.to_zarr": (f.to_zarr, {"path": "field.zarr"}),
        "field.to_netcdf": (f.to_netcdf, {"path": "field.nc"}),
        "Field.from_dataset": (xs.Field.from_dataset, {"dataset": f.to_dataset()}),
        "draws.predict": (f.sample(2, seed=0).predict, {"x": [0.1]}),
        "bare.predict": (bare().predict, {"x": [0.1, 0.2]}),
        "bare.derivative": (bare().derivative, {"x": 1}),
        "statistics.solve": (s.solve, {"penalty": 1e-6}),
        "statistics.only": (lambda o: s.only(o), {"o": "0"}),
        "statistics.without": (lambda o: s.without(o), {"o": "0"}),
        "statistics[…]": (s.__getitem__, {"name": "u"}),
        "statistics +": (lambda o: s.only("0") + o, {"o": s.only("1")}),
        "statistics -": (lambda o: s - o, {"o": s.only("1")}),
        "Statistics.from_dataset": (xs.Statistics.from_dataset, {"dataset": s.to_dataset()}),
        "BSpline": (xs.BSpline, {"size": 8, "domain": (0, 1)}),
        "Fourier": (xs.Fourier, {"harmonics": 2, "period": 1.0}),
        "Polynomial": (xs.Polynomial, {"degree": 2, "domain": (0, 1)}),
        "basis +": (lambda o: xs.Polynomial(1) + o, {"o": xs.Fourier(1, period=1)}),
        "Axis": (xs.Axis, {"kind": "number", "units": "m"}),
        "Space": (xs.Space, {"bases": {"x": 8}, "extents": {"x": (0, 1)}}),
        "Space.from_json": (xs.Space.from_json, {"text": f.space.to_json()}),
        "space.extend": (f.space.extend, {"x": 2.0}),
        "Ridge": (xs.Ridge, {"strength": 1.0}),
        "Roughness": (xs.Roughness, {"strength": 1.0}),
        "Sobolev": (xs.Sobolev, {"orders": (1, 2)}),
        "SpaceTime": (xs.SpaceTime, {}),
        "Physics": (xs.Physics, {**law, "known": {"D": 0.1}, "strength": 1.0}),
        "penalty +": (lambda o: xs.Ridge(1.0) + o, {"o": xs.Roughness(1.0)}),
    }


def arguments(name: str) -> list[str]:
    """The names of what a function takes."""
    function, needed = functions()[name]
    parameters = inspect.signature(function).parameters.values()
    named = {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    return sorted(n for n in (named | set(needed)) - UNCHECKED if not n.startswith("_"))


def call(seed: int, number: int) -> tuple[str, Callable[[], Any]]:
    """The call of a number: what it is, and the call."""
    rng = np.random.default_rng((seed, number))
    names, odd = sorted(functions()), odd_values()
    name = names[number % len(names)]
    function, needed = functions()[name]
    known, count = arguments(name), int(rng.choice([1, 1, 1, 2]))
    chosen = rng.choice(known, min(len(known), count), replace=False)
    kinds = {str(argument): sorted(odd)[int(rng.integers(len(odd)))] for argument in chosen}
    changed = {**needed, **{argument: odd[kind]() for argument, kind in kinds.items()}}
    text = ", ".join(f"{argument}={kind}" for argument, kind in kinds.items())
    return f"{number}: {name}({text})", lambda: function(**changed)


def outcome(made: Callable[[], Any]) -> str:
    """What came of a call: "answered", "refused", or the error that is not ours."""

    def stop(*_: Any) -> None:
        raise TimeoutError("it takes too long")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made()
    except Exception as error:
        return "refused" if is_ours(error) else described(error)
    finally:
        signal.alarm(0)
    return "answered"


def is_ours(error: BaseException) -> bool:
    """Whether an error was raised in the package on purpose."""
    if isinstance(error, TypeError | ValueError) and any(text in str(error) for text in SIGNATURE):
        return True
    if isinstance(error, OSError) and error.errno and error.filename:
        return True  # of the system, about that path
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    ours = last.filename.startswith(PACKAGE) and line.startswith("raise")
    inner = error.__context__
    # Where a name is put before the text of another error, that one decides.
    if ours and inner is not None and str(inner) and str(error).endswith(str(inner)):
        return is_ours(inner)
    return ours


def described(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    places = [f"{Path(f.filename).name}:{f.lineno}" for f in (*own[-2:], frames[-1])]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]} [{' > '.join(places)}]"

"""Tables of pandas become scattered observations, as argopy and ERDDAP give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import xspline as xs


@pytest.fixture
def argo() -> pd.DataFrame:
    """A table as ``argopy.DataFetcher().to_dataframe()`` returns it."""
    rng, n = np.random.default_rng(0), 400
    frame = pd.DataFrame(
        {
            "PLATFORM_NUMBER": rng.integers(6_900_000, 6_900_004, n),
            "DIRECTION": "A",
            "LATITUDE": rng.uniform(30, 40, n),
            "LONGITUDE": rng.uniform(0, 20, n),
            "TIME": pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.uniform(0, 90, n), "D"),
            "PRES": rng.uniform(0, 100, n),
            "TEMP_ERROR": 0.002,
        },
        index=pd.RangeIndex(n, name="N_POINTS"),
    )
    return frame.assign(TEMP=np.sin(frame.LATITUDE) + 0.1 * frame.LONGITUDE)


def test_a_fit_of_the_table_is_the_fit_of_its_columns(argo: pd.DataFrame) -> None:
    bases = {"LATITUDE": 12, "LONGITUDE": xs.BSpline(6)}
    argo.loc[[3, 7], "TEMP"] = np.nan
    data = xs.from_dataframe(argo, "TEMP")
    by_hand = xr.DataArray(argo.TEMP.values, {n: ("row", argo[n].values) for n in bases}, "row", "TEMP")
    field = data.spline.fit(bases, penalty=0.1, holder="PLATFORM_NUMBER")
    assert field.statistics.count == 398 and len(field.statistics.holders) == 4
    expected = by_hand.spline.fit(bases, penalty=0.1).coefficients
    np.testing.assert_allclose(field.coefficients, expected, rtol=1e-12, atol=1e-12)


def test_bases_that_are_left_out_follow_from_the_coordinates_that_are_named(argo: pd.DataFrame) -> None:
    argo = argo.rename(columns={"PRES": "SIGMA"})
    named = xs.from_dataframe(argo, "TEMP", coords=["LATITUDE", "SIGMA"])
    assert set(named.spline.space().names) == {"LATITUDE", "SIGMA"}
    assert "LONGITUDE" not in named.coords and "PLATFORM_NUMBER" in named.coords
    assert set(xs.from_dataframe(argo, "TEMP", coords="SIGMA").spline.space().names) == {"SIGMA"}
    recognised = xs.from_dataframe(argo.rename(columns={"SIGMA": "PRES"}), "TEMP")
    assert set(recognised.spline.space().names) == {"LATITUDE", "LONGITUDE", "TIME", "PRES"}


def test_headers_of_erddap_are_names_and_units() -> None:
    frame = pd.DataFrame(
        {
            "time (UTC)": ["2010-01-01T00:00:00Z", "2010-02-01T12:00:00Z", None],
            "latitude (degrees_north)": [1, 2, 3],
            "station": ["a", None, "b"],
            "sst (degree_C)": pd.array([1, None, 3], "Int64"),
            "sal": [35.0, 35.1, 35.2],
        }
    )
    frame.attrs = {"sal": {"units": "1", "long_name": "salinity"}}
    both = xs.from_dataframe(frame, ["sst", "sal"])
    assert both.sst.units == "degree_C" and both.sal.attrs == frame.attrs["sal"]
    assert both.latitude.units == "degrees_north" and "units" not in both.time.attrs
    np.testing.assert_array_equal(both.sst, [1, np.nan, 3])
    xr.testing.assert_identical(xs.from_dataframe(frame, "sst (degree_C)").variable, both.sst.variable)
    assert both.time.values[1] == np.datetime64("2010-02-01T12:00") and np.isnat(both.time.values[2])
    assert both.station.isnull().values.tolist() == [False, True, False]
    with pytest.warns(xs.FitWarning, match="1 observations were left out because a label is NaN"):
        assert both.spline.statistics(time=xs.Polynomial(1))["sal"].count == 2


def test_levels_of_the_index_and_zones_of_times() -> None:
    times = pd.date_range("2010-01-01", periods=4, tz="America/New_York")
    frame = pd.DataFrame({"u": [1, 2, 3, 4.0]}, index=pd.MultiIndex.from_arrays([times, [0.0, 1, 2, 3]]))
    frame.index.names = ["time", "x"]
    data = xs.from_dataframe(frame, "u")
    assert data.dims == ("obs",) and data.time.values[0] == np.datetime64("2010-01-01T05:00")
    np.testing.assert_array_equal(data.x, [0, 1, 2, 3])


def test_numbers_and_dates_that_are_objects(argo: pd.DataFrame) -> None:
    """Numbers as texts or objects are numbers where a coordinate is named, dates of cftime stay what they are."""
    texts = argo.assign(LATITUDE=argo.LATITUDE.map(repr), SIGMA=argo.PRES.astype(object))
    texts.loc[0, "SIGMA"] = None
    data = xs.from_dataframe(texts, "TEMP", coords=["LATITUDE", "SIGMA"])
    np.testing.assert_array_equal(data.LATITUDE, argo.LATITUDE)
    np.testing.assert_array_equal(data.SIGMA, argo.PRES.where(argo.PRES.index > 0))
    months = xr.date_range("2001-01-01", periods=4, freq="MS", calendar="noleap", use_cftime=True)
    model = pd.DataFrame({"time": months, "u": [1.0, 2.0, 3.0, 4.0], "run": pd.Categorical(list("abab"))})
    data = xs.from_dataframe(model, "u")
    assert data.time.values[0] == months[0] and data.run.values.tolist() == list("abab")
    assert data.spline.fit(time=xs.Polynomial(1), penalty=0, holder="run").statistics.count == 4


REFUSED: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "no table": (
        lambda d: xs.from_dataframe(d.to_dict(), "TEMP"),
        r"frame=dict has to be a pandas DataFrame; other tables have a method to_pandas\(\)",
    ),
    "no rows": (lambda d: xs.from_dataframe(d[:0], "TEMP"), "the table has no rows"),
    "an unknown column": (lambda d: xs.from_dataframe(d, "TEMPS"), "no column 'TEMPS'; did you mean 'TEMP'?"),
    "an unknown coordinate": (
        lambda d: xs.from_dataframe(d, "TEMP", coords=["LAT"]),
        "no column 'LAT'; did you mean 'LATITUDE'?",
    ),
    "one column as both": (
        lambda d: xs.from_dataframe(d, "TEMP", coords=["TEMP"]),
        r"value='TEMP' and coords=\['TEMP'\] have to name columns, of which none is both",
    ),
    "no coordinate": (
        lambda d: xs.from_dataframe(d[["TEMP", "TEMP_ERROR"]], "TEMP"),
        "no column is recognised as a longitude, latitude, depth or time; name those of the coordinates: coords=",
    ),
    "a text": (
        lambda d: xs.from_dataframe(d.assign(TEMP=["degree_C", *d.TEMP[1:]]), "TEMP"),
        r"column 'TEMP' has 'degree_C' in row 0, which is no number; .* skiprows=\[1\]",
    ),
    "a text among latitudes": (
        lambda d: xs.from_dataframe(d.assign(LATITUDE=[*map(str, d.LATITUDE[1:]), "n/a"]), "TEMP"),
        "column 'LATITUDE' has 'n/a' in row 399, which is no number",
    ),
    "a date as a value": (
        lambda d: xs.from_dataframe(d, "TIME"),
        "column 'TIME' has values of datetime64.*, which is no number",
    ),
    "a text as a time": (
        lambda d: xs.from_dataframe(d.assign(TIME="yesterday"), "TEMP", coords=["TIME"]),
        "column 'TIME' has 'yesterday' in row 0, which is neither a number nor a time such as",
    ),
    "a name twice": (
        lambda d: xs.from_dataframe(pd.concat([d, d.TEMP], axis=1), "TEMP"),
        "the table has two columns 'TEMP'; rename or drop one of them",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_table_of_observations_is_refused(argo: pd.DataFrame, what: str) -> None:
    call, message = REFUSED[what]
    with pytest.raises((TypeError, ValueError), match=message):
        call(argo)

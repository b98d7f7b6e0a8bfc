"""What is said about input that cannot be meant: which argument or coordinate, what is wrong, what to do."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import xspline as xs


def line(n: int = 50, **labels: Any) -> xr.DataArray:
    """sin over x."""
    x = labels.get("x", np.linspace(0, 1, n))
    return xr.DataArray(np.sin(np.arange(n) / 9), {"x": x}, "x", "u")


def plane() -> xr.DataArray:
    """A function of lat and lon."""
    lat, lon = np.linspace(-20, 20, 21), np.linspace(0, 30, 31)
    return xr.DataArray(
        np.sin(lat / 9)[:, None] + np.cos(lon / 9), {"lat": lat, "lon": lon}, ("lat", "lon"), "sst"
    )


# --- select and merge


@pytest.mark.parametrize("term", [xs.Fourier(1, "year"), None, 3])
def test_select_takes_classes(term: Any) -> None:
    time = np.datetime64("2000-01-01", "ns") + np.arange(900) * np.timedelta64(1, "D")
    data = xr.DataArray(np.arange(900.0), {"time": time}, "time")
    field = data.spline.fit(time=xs.Fourier(1, "year") + xs.Polynomial(1), penalty=1e-6)
    with pytest.raises(
        TypeError, match=r"select\(time=.*\) takes the class of a term.*: select\(time=xs\.Fourier\)"
    ):
        field.select(time=term)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ([1, 2], r"merge takes Statistics, and item 0 is of type int; of data see xs\.statistics"),
        (
            "field",
            r"item 0 is of type Field; .* of a field pass its \.statistics, or merge models by xs\.merge_models",
        ),
        ("data", r"item 1 is of type DataArray; of data see xs\.statistics"),
        ("one", r"merge takes a list of Statistics, as in xs\.merge\(\[a, b\]\)"),
        (len, r"merge takes a list of Statistics, as in xs\.merge\(\[a, b\]\)"),
    ],
)
def test_merge_takes_statistics(what: Any, message: str) -> None:
    data = line()
    statistics = data.spline.statistics(x=10)
    given = {"field": [data.spline.fit(x=10, penalty=1e-6)], "data": [statistics, data], "one": statistics}
    with pytest.raises(TypeError, match=message):
        xs.merge(given[what] if isinstance(what, str) else what)


@pytest.mark.parametrize("given", [[1], "statistics"])
def test_merge_models_takes_fields(given: Any) -> None:
    given = [line().spline.statistics(x=10)] if given == "statistics" else given
    with pytest.raises(TypeError, match=r"merge_models takes Fields, and item 0 is of type (int|Statistics)"):
        xs.merge_models(given)


# --- labels and values of other libraries


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (
            pd.date_range("2000", periods=50, tz="-05:00"),
            r"'x' holds times of a time zone.*tz_convert\(\"UTC\"\)",
        ),
        (pd.period_range("2000-01", periods=50, freq="M"), r"'x' holds periods, .*\.to_timestamp\(\)"),
        (pd.interval_range(0, 50), r"'x' holds intervals; take their middles, .*ds\.indexes\['x'\]\.mid"),
        (np.full(50, "2000-01-31"), r"'x' holds texts of dates, .*ds\['x'\]\.astype\(\"datetime64\[ns\]\"\)"),
        (np.full(50, "20000131"), r"'x' holds texts of dates, .*=pandas\.to_datetime\(ds\.indexes\['x'\]\)"),
        (pd.CategoricalIndex(list("abcde") * 10), r"'x' .*(category|object|labels|label)"),
    ],
)
def test_labels_that_only_pandas_has(index: Any, message: str) -> None:
    data = line(x=index)
    with pytest.raises(TypeError, match=message):
        data.spline.fit(x=10)


def test_nullable_numbers_of_pandas() -> None:
    series = pd.Series([1.0, None, 2.0, 3.0, 4.0] * 10, dtype="Float64", index=pd.RangeIndex(50, name="x"))
    data = xr.DataArray(series.array, {"x": np.arange(50.0)}, "x", "u")
    if isinstance(data.dtype, np.dtype):
        pytest.skip("this xarray turns them into numbers or objects by itself")
    with pytest.raises(
        TypeError, match=r"u has the type Float64 of pandas, .* series\.to_numpy\(float, na_value"
    ):
        data.spline.fit(x=10)
    with pytest.raises(TypeError, match="u has the type Float64 of pandas"):
        data.to_dataset().spline.fit(x=10)


@pytest.mark.parametrize(("name", "chunks"), [("sparse", None), ("sparse", {"x": 10}), ("pint", None)])
def test_arrays_of_other_libraries(name: str, chunks: dict[str, int] | None) -> None:
    library, numbers = pytest.importorskip(name), np.arange(50.0)
    values = library.COO.from_numpy(numbers) if name == "sparse" else library.Quantity(numbers, "m")
    data = xr.DataArray(values, {"x": numbers}, "x", "u")
    with pytest.raises(TypeError, match=rf"u is an array of {name}; pass data\.as_numpy\(\)"):
        (data.chunk(chunks) if chunks else data).spline.fit(x=10)


@pytest.mark.parametrize("dataset", [False, True])
def test_chunks_of_unknown_length(dataset: bool) -> None:
    values = da.arange(60, chunks=20)
    values = values[values >= 10].astype(float)
    data = xr.DataArray(values, dims="x", name="u")
    with pytest.raises(ValueError, match=r"length of .*is (not known|unknown), .*compute_chunk_sizes\(\)"):
        (data.to_dataset() if dataset else data).spline.fit(x=10)


# --- targets


@pytest.mark.parametrize("method", ["predict", "stderr", "gradient", "derivative"])
def test_points_of_unequal_length(method: str) -> None:
    field = plane().spline.fit(lat=8, lon=8, penalty=1e-6)
    at = {"lat": xr.DataArray([0.0, 1.0, 2.0], dims="p"), "lon": xr.DataArray([1.0, 2.0, 3.0, 4.0], dims="p")}
    orders = {"orders": {"lat": 1}} if method == "derivative" else {}
    with pytest.raises(
        ValueError, match=r"coordinate 'lat' has 3 labels along 'p', where others have 4; .*points"
    ):
        getattr(field, method)(at, **orders)


# --- bases and arguments


@pytest.mark.parametrize("basis", [10**12, xs.BSpline(spacing=1e-12)])
def test_more_functions_than_any_memory_holds(basis: Any) -> None:
    for call in (plane().spline.fit, plane().spline.statistics, plane().spline.space):
        with pytest.raises(
            ValueError, match=r"lat: .* functions along one coordinate, and 10,000,000 is the most"
        ):
            call(lat=basis)


@pytest.mark.slow
def test_a_product_of_more_functions_than_memory_holds() -> None:
    with pytest.raises(
        MemoryError, match=r"sums .* need more memory than there is \(.*\); use fewer coefficients"
    ):
        plane().spline.fit(lat=150_000, lon=150_000)


def test_arguments_of_another_function() -> None:
    with pytest.raises(
        TypeError, match=r"'penalty' is no argument here .* fit takes it, this function does not"
    ):
        plane().spline.statistics(lat=8, penalty=1.0)


@pytest.mark.parametrize("method", ["reml", "gcv"])
def test_degrees_that_float64_does_not_carry(method: str) -> None:
    data = line(500)
    with pytest.raises(
        ValueError, match=r"x: .*BSpline\(28, degree=20.* too nearly dependent .* use a lower degree"
    ):
        data.spline.fit(x=xs.BSpline(28, degree=20), penalty=method)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"penalti": 0.1},
            TypeError,
            r"'penalti' is no argument here and no coordinate .* did you mean penalty=\?",
        ),
        ({"solvr": "banded"}, TypeError, "'solvr' is no argument .* did you mean solver="),
        ({"lat": 3.5}, TypeError, r"lat: expected a basis or an integer .*, got 3\.5"),
        ({"lat": "8"}, TypeError, "lat: expected a basis or an integer .*, got '8'"),
        (
            {"lat": xs.Polynomial},
            TypeError,
            r"lat: expected a basis .* the class: write Polynomial\(\.\.\.\)",
        ),
    ],
)
def test_arguments_and_coordinates_are_named(arguments: dict[str, Any], error: type, message: str) -> None:
    for call in (
        plane().spline.fit,
        plane().to_dataset().spline.fit,
        plane().spline.statistics,
        plane().spline.plan,
    ):
        with pytest.raises(error, match=message):
            call(**arguments)


# --- Datasets that follow the CF conventions


def conventional() -> xr.Dataset:
    """A Dataset with a grid mapping, bounds and a climatology."""
    data = plane().assign_attrs(grid_mapping="crs: lat lon", units="degC")
    ds = data.expand_dims(time=pd.date_range("2000", periods=4)).to_dataset()
    for name in ("lat", "lon", "time"):
        step = np.timedelta64(12, "h") if name == "time" else 0.5
        both = np.stack([ds[name].values - step, ds[name].values + step], axis=1)
        ds[f"{name}_bnds"] = ((name, "nv"), both)
        ds[name].attrs["bounds"] = f"{name}_bnds"
    ds["crs"] = ((), np.int32(0), {"grid_mapping_name": "latitude_longitude"})
    return ds


@pytest.mark.parametrize("bases", [{}, {"lat": 8, "lon": 8}, {"lat": 8}, {"time": 4}])
def test_conventional_datasets_fit_without_a_warning(bases: dict[str, int]) -> None:
    field = conventional().spline.fit(bases or None, penalty=1e-6)
    assert list(field.variables) == ["sst"]


def test_what_is_no_bound_and_no_grid_mapping_is_still_named() -> None:
    ds = conventional()
    ds["note"], ds["upper_bounds"] = ((), "text"), ("lat", np.zeros(21))
    with pytest.warns(
        UserWarning, match=r"not fitted, because not numeric .*: note \(\), upper_bounds \('lat',\)"
    ):
        ds.spline.fit(lat=8, lon=8, penalty=1e-6)


# --- names, sizes and lengths of time in texts


@pytest.mark.parametrize("name", ["lower", "upper"])
def test_ends_of_an_interval_are_named_apart_from_coordinates(name: str) -> None:
    field = line().rename(x=name).spline.fit({name: 8})
    with pytest.raises(ValueError, match=rf"'{name}' is a coordinate here; name the ends.*names=\(\"low\""):
        field.interval()
    assert set(field.interval(names=("low", "high"))) == {"low", "high"}


@pytest.mark.parametrize(("members", "which"), [(1, "unknown;"), (3, "unknown in 2 of 3 fields;")])
def test_it_is_the_size_of_errors_that_is_unknown(members: int, which: str) -> None:
    data = line(30).expand_dims(k=members).copy()
    data[0, 1:], data[1:2] = np.nan, np.nan
    field = (data if members > 1 else data[0]).spline.fit()
    (text,) = (f"{f.text};" for f in field.check().concerns["u"] if f.subject == "errors")
    assert text == f"their size is {which}"


def test_a_gross_error_is_at_a_length_of_time_as_pandas_writes_it() -> None:
    lead = pd.to_timedelta(np.arange(300), "h")
    data = line(300, x=lead).rename(x="lead")
    data[236] += 50.0
    with pytest.warns(xs.FitWarning, match="at lead=9 days 20:00:00;"):
        data.spline.fit(lead=20, penalty=1e-3)

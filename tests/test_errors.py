"""Bad input, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

from tests.products import BASES, sst


@pytest.fixture
def product() -> xr.DataArray:
    return sst(months=24)


def reports() -> xr.Dataset:
    return xr.Dataset({name: ("obs", np.arange(9.0)) for name in ("sst", "lat", "lon")})


def few(data: xr.DataArray) -> xr.DataArray:
    return data.isel(time=[0], lat=[8], lon=[8, 9, 10, 11])


# What is refused: the call, with the data as its argument; what it says.
REFUSED: dict[str, tuple[Callable[[xr.DataArray], Any], str]] = {
    "weights with other labels": (
        lambda d: d.spline.fit(BASES, weights=xr.ones_like(d.lat).assign_coords(lat=d.lat + 0.01)),
        r"different labels \(lat: -20\.0 and -19\.99 at position 0\)",
    ),
    "weights without names": (
        lambda d: d.spline.fit(BASES, weights=np.ones(24)),
        "weights have to be a DataArray, which says what its dimensions are, not ndarray",
    ),
    "an unknown coordinate": (
        lambda d: d.spline.fit(latitude=3),
        r"no coordinate 'latitude'; did you mean 'lat'\? Known: 'time', 'lat', 'lon'",
    ),
    "an unknown dimension": (
        lambda d: d.expand_dims(member=2).spline.fit(lat=6, membr=None),
        r"no dimension 'membr'; did you mean",
    ),
    "a data variable": (
        lambda d: d.to_dataset().assign(depth=("time", np.arange(24.0))).spline.fit(depth=6),
        r"'depth' is a data variable; make it a coordinate first: ds = ds.set_coords\(\['depth'\]\)",
    ),
    "positions that do not reach the DataArray": (
        lambda d: reports().sst.spline.fit(lat=4, lon=4),
        r"no coordinate 'lat'\. Known: 'obs'.*set_coords\(\['lat'\]\)",
    ),
    "bases twice": (
        lambda d: d.spline.fit({"lat": 6}, lon=8),
        r"both as a mapping or Space .* and as keywords \(lon\); use one form",
    ),
    "no bases": (
        lambda d: d.spline.fit({}),
        r"the mapping of bases is empty; leave it out, or name what to fit: fit\(lat",
    ),
    "a number for bases": (
        lambda d: d.spline.fit(13),
        "space has to be a Space or a mapping of coordinate names to bases, not int",
    ),
    "a pooled dimension that is fitted": (
        lambda d: d.assign_coords(y=("lat", np.arange(17.0))).spline.fit({"y": 6, "lat": None}),
        "'lat' is spanned by a fitted coordinate, so it cannot be pooled",
    ),
    "complex data": (
        lambda d: d.astype(complex).spline.fit(BASES),
        r"sst has dtype complex128, which is not a real number; fit its \.real and \.imag",
    ),
    "text": (
        lambda d: xr.full_like(d, "a", dtype="<U1").spline.fit(BASES),
        "sst has dtype <U1, which is not a real number",
    ),
    "labels that are text": (
        lambda d: d.assign_coords(name=("lat", list("abcdefghijklmnopq"))).spline.fit(name=6),
        "coordinate 'name' has dtype <U1, which is neither a number nor a time",
    ),
    "a scalar coordinate without a domain": (
        lambda d: d.isel(time=0).spline.fit({"lat": 6, "time": 5}),
        r"time.*domain=\(lo, hi\)",
    ),
    "an unknown criterion": (
        lambda d: d.spline.fit(BASES, penalty="smooth"),
        "penalty='smooth' is no criterion; use one of 'reml', 'gcv', 'holders'",
    ),
    "unknown missing_chunks": (
        lambda d: d.spline.fit(BASES, missing_chunks="quiet"),
        "missing_chunks='quiet' is unknown; use 'warn', 'raise' or 'ignore'",
    ),
    "a coordinate in at= and by name": (
        lambda d: d.spline.fit(BASES, penalty=0.1).predict({"lat": [0.0]}, lat=[1.0]),
        r"'lat' is given twice, in at= and as lat=\.\.\.; drop it from one",
    ),
    "an empty dimension": (
        lambda d: d.isel(time=slice(0, 0)).spline.fit(BASES),
        r"'time' has no valid labels, so it has no range; pass domain=",
    ),
    "no observations at all": (
        lambda d: d.isel(time=slice(0, 0)).spline.fit(d.spline.space(BASES), penalty=0.1),
        "no observations",
    ),
    "half of the domain without observations": (
        lambda d: d.where(d.lat > 5).spline.fit(BASES, penalty=0),
        r"coefficients have no observations.*penalty",
    ),
    "few values": (lambda d: few(d).spline.fit(d.spline.space(BASES), penalty=0), "penalty"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_right_is_refused_with_advice(product: xr.DataArray, what: str) -> None:
    call, message = REFUSED[what]
    with pytest.raises((TypeError, ValueError), match=message):
        call(product)


@pytest.mark.parametrize("chunks", [None, {"time": 5, "lat": 4}])
def test_an_infinity_is_named_by_its_place(product: xr.DataArray, chunks: dict[str, int] | None) -> None:
    product[7, 3, 20] = np.inf
    product[9, 2, 1] = -np.inf
    data = product if chunks is None else product.chunk(chunks)
    message = r"sst is infinite at time=2000-08-01.*, lat=-12\.5, lon=200\.0; mark missing"
    with pytest.raises(ValueError, match=message):
        data.spline.fit(BASES)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_bad_weights_are_named_by_their_place(product: xr.DataArray, bad: float) -> None:
    weights = xr.ones_like(product if np.isinf(bad) else product.lat)
    weights[{"lat": 3}] = bad
    message = (
        r"the weight of sst at .*lat=-12\.5.* is negative, infinite or NaN; weights are relative precisions"
    )
    with pytest.raises(ValueError, match=message):
        product.spline.fit(BASES, weights=weights)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [None, {"time": 5, "lat": 4}])
def test_weights_of_missing_values_may_be_missing(
    product: xr.DataArray, chunks: dict[str, int] | None
) -> None:
    product[:, 3] = np.nan
    data = product if chunks is None else product.chunk(chunks)
    points = data.stack(obs=product.dims).reset_index("obs")
    weights = (1 / (0.5 + np.cos(product.lat) ** 2)).where(product.notnull())
    by_point = weights.stack(obs=product.dims).reset_index("obs")
    for own, given in ((data, weights), (data, weights.max("time")), (points, by_point)):
        field, other = (own.spline.fit(BASES, weights=w, penalty=0.1) for w in (given, given.fillna(0.0)))
        xr.testing.assert_identical(field.summary(), other.summary())
        assert field.summary()["count"] == product.count()


def test_a_lazy_field_says_compute_first(product: xr.DataArray) -> None:
    lazy = product.chunk(time=6).spline.fit(BASES, penalty=0.1, compute=False)
    assert lazy.is_lazy and "lazy" in repr(lazy)
    for ask in (lazy.summary, lambda: lazy.statistics.total("sst")):
        with pytest.raises(ValueError, match=r"still lazy.*call \.compute\(\) first"):
            ask()
    np.testing.assert_allclose(lazy.predict(), product.spline.fit(BASES, penalty=0.1).predict(), rtol=1e-12)
    assert not lazy.compute().is_lazy and not lazy.persist().compute().is_lazy


def test_a_dimension_given_twice_is_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate dimension"):
        square = xr.DataArray(np.zeros((5, 5)), dims=("x", "x"))
    with pytest.raises(ValueError, match=r"\('x', 'x'\), of which \['x'\] repeat; give each axis a name"):
        square.spline.fit(x=4)

"""Indices, steps and broken lines as bases: values, records, text, identity, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import cftime
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import xspline as xs
from tests.spaces.cases import TIME, bound, dense_pairs, features_of
from xspline.spaces import Axis, Basis, Space

EXTENT = (0.0, 10.0)
T = np.array([0.0, 1.0, 2.5, 3.0, 7.0, 10.0])
RNG = np.random.default_rng(2)
INDEX = xr.DataArray(RNG.normal(size=T.size), {"t": T}, "t")
OTHER = xr.DataArray(RNG.normal(size=T.size), {"t": T}, "t")


def design(basis: Basis, x: Any, order: int = 0) -> np.ndarray:
    return features_of(basis, extent=EXTENT).design(np.asarray(x, dtype=float), order)


# --- values


def test_an_index_is_interpolated_linearly() -> None:
    x = np.append(np.linspace(0, 10, 101), T)
    basis = xs.Polynomial(1) + xs.Regressors(enso=INDEX, aod=OTHER)
    features = features_of(basis, extent=EXTENT)
    assert features.labels() == ["const", "x1", "aod", "enso"] and basis.count == features.size == 4
    np.testing.assert_allclose(design(basis, x)[:, 3], np.interp(x, T, INDEX), atol=1e-14)
    np.testing.assert_array_equal(design(basis, T)[:-1, 2], OTHER[:-1])  # exact at its labels
    slopes = np.diff(INDEX) / np.diff(T)
    np.testing.assert_allclose(design(basis, (T[:-1] + T[1:]) / 2, 1)[:, 3], slopes, rtol=1e-14)
    assert features_of(basis.terms[1]).max_order == 1 and features.max_order is None


def test_a_lag_moves_an_index_later() -> None:
    lagged = xs.Regressors(enso=INDEX, late=INDEX, lags={"late": 1.5})
    x = np.linspace(1.5, 10, 33)
    np.testing.assert_allclose(design(lagged, x)[:, 2], np.interp(x - 1.5, T, INDEX), atol=1e-14)
    assert features_of(lagged).domain == (1.5, 10.0)  # what both have
    early = xs.Regressors(enso=INDEX, lags={"enso": -1.5})
    assert features_of(early).domain == (-1.5, 8.5)
    time = np.array(["2000-01-01", "2000-03-01", "2000-07-01"], "M8[D]")
    seasonal = bound(
        xs.Regressors(soi=xr.DataArray([1.0, 2.0, 0.0], {"t": time}, "t"), lags={"soi": "90D"}), TIME
    )
    np.testing.assert_array_equal(
        seasonal.on(TIME).design(TIME.to_float(time) + 90 * 86400)[:, 1], [1.0, 2.0, 0.0]
    )
    assert bound(seasonal, TIME) == seasonal


def test_outside_the_record_there_are_no_values() -> None:
    wide = xs.Polynomial(1, domain=(-5, 20)) + xs.Regressors(enso=INDEX)
    features = features_of(wide)
    assert features.domain == (0.0, 10.0)
    x = np.array([-1.0, np.nextafter(0.0, -1), 5.0, 10.0, 11.0])
    assert np.isfinite(features.design(x)).all(axis=1).tolist() == [False, True, True, True, False]
    cell, z = features.locate_anywhere(x)
    assert np.isnan(features.features(cell, z)[[0, 4], 2]).all()  # where others are extrapolated
    narrow = features_of(xs.Fourier(1, 3.0) + xs.Regressors(enso=INDEX, domain=(1, 5)))
    assert narrow.domain == narrow.span == (1.0, 5.0)


def test_steps_and_broken_lines() -> None:
    x = np.linspace(0, 10, 41)
    np.testing.assert_array_equal(design(xs.Step(4.0), x), np.stack([x**0, x >= 4], 1))
    steps = xs.Step(10) + xs.Polynomial(1, domain=(0, 20)) + xs.Step(9)
    features = features_of(steps)
    assert features.labels() == ["const", "x1", "step", "step.2"]
    assert features.design(np.array([8.0, 9.0, 9.9, 10.0]))[:, 2:].tolist() == [
        [0, 0],
        [1, 0],
        [1, 0],
        [1, 1],
    ]
    assert not design(xs.Step(4.0), x, 1).any()
    broken = xs.PiecewiseLinear([2.0, 5.0])
    values = design(broken, x)
    for k, (low, high) in enumerate([(0, 2), (2, 5), (5, 10)], start=1):
        np.testing.assert_allclose(values[:, k] * 10, np.clip(x, low, high) - low, atol=1e-14)
    assert features_of(broken, extent=EXTENT).labels() == ["const", "trend1", "trend2", "trend3"]
    spline = xs.BSpline(degree=1, knots=[0, 0, 2, 5, 10, 10])  # spans the same
    fitted = np.linalg.lstsq(values, design(spline, x), rcond=None)[0]
    np.testing.assert_allclose(values @ fitted, design(spline, x), atol=1e-12)


def test_nothing_is_rough_but_what_others_are() -> None:
    """Functions with corners cost nothing along their coordinate, and have their integrals along others."""
    basis = xs.Fourier(1, 3.0) + xs.Step(5.0) + xs.Regressors(enso=INDEX)
    features = features_of(basis, extent=EXTENT)
    x = (np.arange(400_000) + 0.5) / 40_000
    values = features.design(x)
    mass = dense_pairs(features, features.roughness(0))
    np.testing.assert_allclose(mass, values.T @ values / x.size, atol=1e-5)
    rough = dense_pairs(features, features.roughness(2))
    assert rough[1, 1] > 0 and not rough[3:].any() and not rough[:, 3:].any()


def test_an_index_that_is_nearly_always_zero() -> None:
    aod = xr.DataArray(np.where(np.arange(1000) == 517, 1.0, 0.0), {"t": np.arange(1000.0)}, "t")
    features = features_of(xs.Polynomial(1, domain=(0, 999)) + xs.Regressors(aod=aod))
    assert features.design(np.array([517.0]))[0, 2] == 1.0


# --- text and identity


def test_spaces_with_an_index_survive_json_and_pickle() -> None:
    month = xr.date_range("1979-12", periods=14, freq="MS")
    enso = xr.DataArray(RNG.normal(size=14).astype("f4"), {"time": month}, "time")
    time = xs.Polynomial(1) + xs.Step("1980-05") + xs.Regressors(enso=enso, lags={"enso": "45D"})
    space = Space({"time": time}, extents={"time": (3.2e8, 3.4e8)})
    again = Space.from_json(space.to_json())
    assert again == space == pickle.loads(pickle.dumps(space)) and again.to_json() == space.to_json()
    x = np.linspace(3.2e8, 3.4e8, 7)
    np.testing.assert_array_equal(again.features[0].design(x), space.features[0].design(x))
    others = [
        (*time.terms[:2], xs.Regressors(enso=enso + np.eye(14)[3], lags={"enso": "45D"})),
        (*time.terms[:2], xs.Regressors(enso=enso, lags={"enso": "46D"})),
        (*time.terms[:2], xs.Regressors(nino=enso, lags={"nino": "45D"})),
    ]
    digests = {Space({"time": sum(o[1:], o[0])}, extents={"time": (3.2e8, 3.4e8)}).digest for o in others}
    assert len(digests | {space.digest}) == 4
    exact = enso.assign_coords(time=enso.time.astype("M8[s]")).astype(
        "f8"
    )  # the same numbers, held otherwise
    same = time.terms[0] + time.terms[1] + xs.Regressors(enso=exact, lags={"enso": "45D"})
    assert Space({"time": same}, extents={"time": (3.2e8, 3.4e8)}) == space


def test_code_and_text_name_an_index() -> None:
    basis = xs.Fourier(1, "year") + xs.Regressors(enso=INDEX, lags={"enso": 2.0})
    assert basis.code("xs.") == "xs.Fourier(1, period='year') + xs.Regressors(enso=enso, lags={'enso': 2.0})"
    assert repr(basis.terms[1]).startswith("Regressors(enso: 6 values 0.0 to 10.0, digest ")
    assert eval(basis.terms[1].code("xs."), {"xs": xs, "enso": INDEX}) == basis.terms[1]
    for plain in (xs.Step("1976-07-01"), xs.PiecewiseLinear(["1976", "1998-03"])):
        assert eval(repr(plain), {"Step": xs.Step, "PiecewiseLinear": xs.PiecewiseLinear}) == plain


def test_missing_values_at_the_ends_shorten_a_record() -> None:
    gaps = INDEX.where(INDEX.t.isin(T[1:5]))
    assert features_of(xs.Regressors(enso=gaps)).domain == (1.0, 7.0)


def test_labels_of_any_kind() -> None:
    noleap = [cftime.DatetimeNoLeap(2000, month, 1) for month in (1, 3, 9)]
    axis = Axis("time", calendar="noleap")
    basis = bound(xs.Regressors(enso=xr.DataArray([1.0, 0.0, 2.0], {"t": noleap}, "t")), axis)
    assert basis.on(axis).domain == tuple(axis.to_float([noleap[0], noleap[-1]]))
    km = xr.DataArray([1.0, 3.0, 2.0], {"x": ("x", [0.0, 1.0, 2.0], {"units": "km"})}, "x")
    assert features_of(xs.Regressors(height=km), Axis(units="m")).domain == (0.0, 2000.0)


def test_a_longer_domain_needs_a_longer_index() -> None:
    bases = {"t": xs.Polynomial(1, domain=(0, 8)) + xs.Step(3.0)}
    step = Space(bases, axes={"t": Axis(units="km")})
    metres = xr.DataArray(9000.0, attrs={"units": "m"})
    assert step.extend(t=9.0).basis("t").domain == step.extend(t=metres).basis("t").domain == (0.0, 9.0)
    with pytest.raises(
        ValueError, match=r"^t: its labels have units 'K', and the fitted coordinate has 'km'"
    ):
        step.extend(t=metres.assign_attrs(units="K"))
    space = Space({"t": xs.Polynomial(1, domain=(0, 8)) + xs.Regressors(enso=INDEX)})
    assert space.extend(t=9.0).features[0].domain == (0.0, 9.0)
    with pytest.raises(
        ValueError, match=r"^t: the record of Regressors\(enso: 6 values .* does not reach from 11"
    ):
        space.extend(t=11.0)
    with pytest.raises(ValueError, match=r"PiecewiseLinear\(.* cannot be extended: its functions"):
        Space({"t": xs.PiecewiseLinear([3.0], domain=(0, 8))}).extend(t=9.0)


# --- what is refused


@pytest.mark.parametrize(
    ("make", "kind", "match"),
    [
        (lambda: xs.Regressors(), ValueError, r"Regressors needs an index, as in Regressors\(enso=nino34\)"),
        (lambda: xs.Regressors(enso=[1, 2]), ValueError, r"index 'enso' is \[1, 2\]; pass a DataArray with one"),
        (
            lambda: xs.Regressors(enso=xr.DataArray([1.0, 2.0], dims="t")),
            ValueError,
            "index 'enso' is DataArray; pass a DataArray with one dimension and its labels",
        ),
        (
            lambda: xs.Regressors(enso=xr.DataArray([1, 2], {"t": pd.period_range("2000-01", "2000-02", freq="M")})),
            TypeError,
            r"labels of index 'enso' are periods, such as 2000-01, and no dates; .*indexes\['t'\].to_timestamp\(\)",
        ),
        (lambda: xs.Regressors(enso=INDEX.where(INDEX.t != 2.5)), ValueError, "'enso' is missing at 2.5, inside"),
        (lambda: xs.Regressors(enso=INDEX / (INDEX.t != 3)), ValueError, "index 'enso' is infinite at 3.0, inside"),
        (lambda: xs.Regressors(enso=INDEX * np.nan), ValueError, "index 'enso' needs at least two values"),
        (lambda: xs.Regressors(enso=INDEX.astype(str).str[:0] + "a"), TypeError, "'enso' has values that are no num"),
        (lambda: xs.Regressors(const=INDEX), ValueError, "an index cannot be called 'const'; give it another name"),
        (lambda: xs.Regressors(enso=INDEX, lags={"soi": 1}), ValueError, r"lags=\{'soi': 1\} has to .* are enso"),
        (lambda: xs.Regressors(enso=INDEX, domain=(3, 2)), ValueError, r"domain \(3, 2\) must have finite lo < hi"),
        (lambda: xs.Step(None), ValueError, r"Step takes the first label after the jump, as in .*, and not None"),
        (lambda: xs.Step(np.datetime64("NaT", "s")), ValueError, "Step takes the first label after the jump.*NaT"),
        (lambda: xs.PiecewiseLinear([]), ValueError, "PiecewiseLinear needs a break, as in PiecewiseLinear"),
        (lambda: xs.PiecewiseLinear([1.0], domain=5), ValueError, "domain 5 is not a pair"),
    ],
)  # fmt: skip
def test_arguments_that_make_no_basis_are_refused(make: Any, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        make()


@pytest.mark.parametrize(
    ("basis", "kind", "match"),
    [
        (xs.Regressors(enso=INDEX[::-1]), ValueError, r"^t: the labels of index 'enso' have to ascend.* not at 7.0"),
        (xs.Regressors(enso=INDEX, lags={"enso": "90D"}), TypeError, "the lag '90D' of 'enso' is on a coordinate of"),
        (xs.Regressors(enso=INDEX, domain=(1, 20)), ValueError, r"domain \(1.0, 20.0\) is not within the record"),
        (xs.Regressors(enso=INDEX, domain=("a", "b")), TypeError, "labels of type <U1 on a coordinate of numbers"),
        (
            xs.Regressors(enso=INDEX, late=INDEX, lags={"late": 20}),
            ValueError,
            r"the indices of Regressors\(enso: 6 values .* share no labels; pass longer ones",
        ),
        (
            xs.Regressors(enso=INDEX) + xs.Polynomial(1, domain=(20, 30)),
            ValueError,
            r"no label is in the records of both Polynomial\(1, .*\) \(20.0 to 30.0\) and Regressors\(.*; pass a ",
        ),
        (xs.Regressors(enso=0 * INDEX + 2), ValueError, "one of them is constant or a sum of the others; leave it out"),
        (xs.Regressors(enso=INDEX, twice=2 * INDEX), ValueError, "the constant and the indices of .* not independent"),
        (
            xs.Polynomial(1) + xs.Regressors(enso=INDEX, twice=2 * INDEX),
            ValueError,
            r"the functions of Regressors\(enso.* are not independent on .*: one of them is zero or a sum of",
        ),
        (
            xs.Regressors(time=INDEX.t) + xs.Polynomial(1),
            ValueError,
            r"Polynomial\(1, .* and Regressors\(time: .* are not independent on \(0.0, 10.0\)",
        ),
        (xs.Regressors(x1=INDEX) + xs.Polynomial(1), ValueError, "has two functions 'x1'; give the index another name"),
        (xs.Step(11.0), ValueError, r"the step at 11.0 is outside the domain \(0.0, 10.0\), where it is a constant"),
        (xs.PiecewiseLinear([5.0, 2.0]), ValueError, r"the breaks 5.0, 2.0 have to ascend inside the domain \(0.0, "),
        (xs.PiecewiseLinear([12.0]), ValueError, r"the breaks 12.0 have to ascend inside the domain"),
        (xs.PiecewiseLinear([5.0]) + xs.Polynomial(1), ValueError, "are not independent on"),
    ],
    ids=str,
)  # fmt: skip
def test_a_basis_that_does_not_fit_its_axis_is_refused(
    basis: Basis, kind: type[Exception], match: str
) -> None:
    with pytest.raises(kind, match=match):
        Space({"t": basis}, axes={"t": Axis()}, extents={"t": EXTENT})


@pytest.mark.parametrize(
    ("lag", "match"),
    [
        (90, '90 of \'enso\' is a bare number .* as in lags={"enso": "90D"}'),
        ("a while", "is no length of time; pass"),
    ],
)
def test_lags_of_times_have_a_unit(lag: Any, match: str) -> None:
    time = np.array(["2000-01", "2000-02"], "M8[ns]")
    with pytest.raises(TypeError, match=match):
        Space({"t": xs.Regressors(enso=xr.DataArray([1.0, 2.0], {"t": time}, "t"), lags={"enso": lag})})
    with pytest.raises(
        TypeError, match=r"^t: index 'enso': labels of type datetime64\[ns\] on a coordinate of num"
    ):
        Space({"t": xs.Regressors(enso=xr.DataArray([1.0, 2.0], {"t": time}, "t"))}, axes={"t": Axis()})

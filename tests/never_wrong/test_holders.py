"""Each holder counts once, however its data were cut up; and sums of nothing are no error where they mean nothing."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs

X = np.linspace(0.0, 10.0, 4000)
RECORD = xr.DataArray(np.sin(X) + 0.1 * np.random.default_rng(0).standard_normal(4000), {"x": X}, "x", "u")
SPACE = xs.Space({"x": xs.BSpline(12, domain=(0.0, 10.0))})


def of(data: xr.DataArray, holder: str | None = None) -> xs.Statistics:
    return data.spline.statistics(SPACE, holder=holder)


def test_one_name_counts_once_however_the_data_were_cut_up() -> None:
    whole, cut = of(RECORD, "2006"), of(RECORD.chunk(x=1000), "2006")
    refused = (
        r"holder '2006' is there twice with different sums \(4000 and 4000 observations.*repeated_holders"
    )
    for add in (lambda: whole + cut, lambda: xs.merge([whole, cut]), lambda: sum([whole, cut])):
        with pytest.raises(ValueError, match=refused):
            add()


def test_one_name_may_be_added_when_it_is_meant() -> None:
    halves = of(RECORD[:2000], "2006"), of(RECORD[2000:], "2006")
    with pytest.raises(ValueError, match=r"holder '2006' is there twice .*2000 and 2000 observations"):
        halves[0] + halves[1]
    both = xs.merge(halves, repeated_holders="add")
    assert both.count == 4000 and both.holders == ("2006", "2006")
    np.testing.assert_allclose(both.solve(0.1).coefficients, of(RECORD).solve(0.1).coefficients, rtol=1e-9)
    assert (both + of(RECORD[:10], "another")).count == 4010, "what was said once needs not be said again"
    with pytest.raises(ValueError, match=r"is there twice; each holder counts once"):
        xs.merge([halves[0], halves[0]], repeated_holders="add")
    with pytest.raises(ValueError, match=r"repeated_holders has to be 'error' or 'add', not 'sum'"):
        xs.merge(halves, repeated_holders="sum")


def test_models_of_one_holder_count_once() -> None:
    fields = [d.spline.fit(SPACE, penalty=0.1, holder="2006") for d in (RECORD, RECORD.chunk(x=1000))]
    with pytest.raises(ValueError, match=r"holder '2006' is there twice"):
        xs.merge_models(fields)


def test_parts_without_a_name_that_hold_the_same_data() -> None:
    with pytest.raises(
        ValueError, match=r"two parts without a name hold the same 4000 observations.*holder="
    ):
        of(RECORD) + of(RECORD.chunk(x=1000))
    assert (of(RECORD[::2]) + of(RECORD[1::2])).count == 4000
    assert (of(RECORD, "a") + of(RECORD.chunk(x=1000), "b")).count == 8000, "names say that they are two"


def test_equal_records_under_two_names_are_told(tmp_path: object) -> None:
    """Holders that share a record count it twice, and its error bars are 1.41 times too short."""
    noaa, met, other = of(RECORD, "NOAA"), of(RECORD, "Met Office"), of(RECORD[:10], "other")
    noaa.to_netcdf(f"{tmp_path}/noaa.nc")
    told = "holders 'Met Office' and 'NOAA' hold the same 4000 observations.*Merge only one of them"
    for listed in ((noaa, met), (met, noaa), (other, met, xs.open_statistics(f"{tmp_path}/noaa.nc"))):
        with pytest.warns(xs.FitWarning, match=told):
            both = xs.merge(listed)
    assert (both + of(RECORD[:20], "more")).count == 8030, "it is told once"
    assert both.without("NOAA").count == 4010
    with pytest.warns(xs.FitWarning, match=told):
        xs.merge_models([part.solve(0.1) for part in (noaa, met)])
    with pytest.warns(xs.FitWarning, match="'unnamed' and 'NOAA' hold the same 4000"):
        of(RECORD) + noaa


def test_equal_sums_of_other_places_or_of_nothing_are_no_copies() -> None:
    dry = xr.zeros_like(RECORD)
    assert (of(dry[::2], "even") + of(dry[1::2], "odd")).count == 4000
    assert xs.merge([of(RECORD[:0], "a"), of(RECORD[:0], "b"), of(RECORD.where(False), "c")]).count == 0


def test_statistics_of_nothing_add_nothing() -> None:
    empty = [of(RECORD[:0]), of(RECORD[:0]), of(RECORD.where(False))]
    filled = of(RECORD)
    total = sum([*empty, filled])
    assert total.count == 4000
    np.testing.assert_array_equal(total.solve(0.1).coefficients, filled.solve(0.1).coefficients)
    assert (total - empty[0]).count == 4000
    named = [of(RECORD[:0], "west"), of(RECORD.where(False), "west"), of(RECORD, "west")]
    assert xs.merge(named).count == 4000


def test_a_solve_of_nothing_says_so() -> None:
    s = of(RECORD, "west")
    for use in (lambda: (s - s).solve(0.1), lambda: s.only().solve("reml"), lambda: (s - s).collapse()):
        with pytest.raises(ValueError, match=r"no part is left in these statistics.*merge"):
            use()
    assert (s - s).count == 0 and "0 observations" in repr(s - s)


def test_files_keep_what_was_added(tmp_path: object) -> None:
    both = xs.merge([of(RECORD[:2000], "2006"), of(RECORD[2000:], "2006")], repeated_holders="add")
    both.to_netcdf(f"{tmp_path}/s.nc")
    assert xs.open_statistics(f"{tmp_path}/s.nc").count == 4000

"""What statistics tell of single observations, in words; and that it is true."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs


def wave(n: int = 200) -> xr.DataArray:
    x = np.linspace(0, 10, n)
    return xr.DataArray(np.sin(x), {"x": x}, "x", "u")


def lines(report: xs.Disclosure, name: str = "u") -> dict[str, str]:
    """Return what a report says of each subject, and what to do."""
    return {f.subject: f"{f.text}; {f.advice}" for f in report.findings[name]}


def test_even_data_show_nothing_but_their_releases() -> None:
    report = xs.statistics(wave(), x=12).disclosure()
    assert [finding.subject for finding in report.concerns["u"]] == ["releases"]
    assert "what a later release of a holder has more than this one are the sums" in repr(report).replace(
        "\n", ""
    )
    assert "1 to look at" in report._repr_html_()


def test_cells_with_few_observations_are_named() -> None:
    data = wave().where(lambda u: (u.x < 5) | (u.x > 7) | (abs(u.x - 6) < 0.03))
    said = lines(xs.statistics(data, x=xs.BSpline(23)).disclosure(k=5))
    assert "fewer than about 5, the least at x 5.75" in said["cells"], said
    assert said["gaps"].startswith("3 of 20 cells hold no observations inside, and G shows which; mask")


def test_knots_as_fine_as_labels_give_the_values_away() -> None:
    data = wave()
    mine = xs.statistics(data, x=220)
    with pytest.warns(xs.FitWarning, match=r"220 functions for 200 .* as the labels; the values thems"):
        said = lines(mine.disclosure())
    assert "take fewer than 100 functions" in said["functions"]
    # And so it is: from the sums and the labels, which everybody knows.
    total, space = mine.total("u"), mine.space
    rows = space.features[0].design(data.x.values)
    values = np.linalg.lstsq(rows.T, total.full_moment(space.frame), rcond=None)[0] + float(total.reference)
    np.testing.assert_allclose(values, data, atol=1e-12)
    nearly = lines(xs.statistics(data, x=120).disclosure())
    assert "nearly as many: take fewer than 100 functions" in nearly["functions"]


@pytest.mark.parametrize("size", [4, 5, 192])
def test_of_three_observations_no_number_of_functions_is_advised(size: int) -> None:
    statistics = xs.statistics(wave(3), x=xs.BSpline(size))
    with pytest.warns(xs.FitWarning, match="of so few observations any sums tell much, so add up more"):
        assert "fewer than 1 f" not in lines(statistics.disclosure())["functions"]


def test_means_at_few_places_are_values_too() -> None:
    data = wave(20).expand_dims(year=np.arange(50))
    with pytest.warns(xs.FitWarning, match="24 functions for 1000 observations at 20 places"):
        xs.statistics(data, x=24, year=None).disclosure()


def test_parts_can_be_read_by_themselves() -> None:
    data = wave()
    space = xs.space(data, x=12)
    parts = [xs.statistics(own, space, holder=h) for h, own in (("many", data), ("few", data[::20]))]
    with pytest.warns(xs.FitWarning, match="12 functions for 10 observations"):
        said = lines(xs.merge(parts).disclosure())
    assert said["parts"].startswith("2 parts, each of which can be read by itself; the above is of 'few'")
    assert "parts" not in lines(xs.merge(parts).collapse().disclosure())


@pytest.mark.parametrize("order", [1, -1])
def test_two_parts_of_one_holder_are_both_looked_at(order: int) -> None:
    data = wave()
    space = xs.space(data, x=12)
    parts = [xs.statistics(own, space, holder="mine") for own in (data[1::2], data[::20])][::order]
    with pytest.warns(xs.FitWarning, match="12 functions for 10 observations"):
        xs.merge(parts, repeated_holders="add").disclosure()


def test_each_variable_and_no_data() -> None:
    data = xr.Dataset({"u": wave(), "v": wave() * np.nan})
    report = xs.statistics(data, x=12).disclosure()
    assert lines(report, "v") == {"cells": "there are no observations; "}
    assert "u" in report.findings


def test_bounds_that_mean_nothing_are_refused() -> None:
    mine = xs.statistics(wave(), x=12)
    with pytest.raises(ValueError, match=r"\(k=0\): the fewest observations of a cell are 1 or more"):
        mine.disclosure(0)
    with pytest.raises(TypeError, match=r"k=1.5 has to be an integer"):
        mine.disclosure(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="still lazy"):
        xs.statistics(wave().chunk(), x=12, compute=False).disclosure()

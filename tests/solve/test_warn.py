"""Warnings point at the line of the user, whatever lies between."""

from __future__ import annotations

import functools

import pytest

import xspline as xs
from xspline.solve.errors import warn


def test_a_warning_of_a_property_that_is_remembered_points_at_who_asks_for_it() -> None:
    """Up to Python 3.11 `functools.cached_property` is a frame of its own."""
    ours = {"__name__": "xspline.example", "functools": functools, "warn": warn}
    exec(
        "class Example:\n"
        "    @functools.cached_property\n"
        "    def value(self):\n"
        "        warn('as an example')\n",
        ours,
    )
    with pytest.warns(xs.FitWarning, match="as an example") as caught:
        _ = ours["Example"]().value  # type: ignore[operator]
    assert caught[0].filename == __file__

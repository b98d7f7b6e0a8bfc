"""The space: identity, text, longitudes and windows."""

from __future__ import annotations

import json
import pickle
import re

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xspline as xs
from tests.spaces.cases import splines
from xspline.spaces import Axis, Basis, BSpline, Fourier, Polynomial, Space


def sst() -> Space:
    season = Fourier(2, period="365.2425D") + Polynomial(2, domain=("1982", "2020"))
    return Space({"lat": BSpline(13, domain=(-30, 30)), "lon": BSpline(23, period=360), "time": season})


def test_shape_offsets_and_roles_are_those_of_the_coordinates() -> None:
    space = sst()
    assert space.names == ("lat", "lon", "time") and space.shape == (13, 23, 7) and space.size == 2093
    assert space.offsets == (4, 4, 7) and space.periodic == (False, True, False) and space.has_constant
    frame = space.frame
    assert (frame.sizes, frame.offsets, frame.periodic) == (space.shape, space.offsets, space.periodic)
    assert [e.tolist() for e in frame.constant] == [[1.0] * 13, [1.0] * 23, [1.0, 0, 0, 0, 0, 0, 0]]
    assert [axis.role for axis, _ in space.axes.values()] == ["latitude", "longitude", "time"]
    assert [f.size for f in space.features] == list(space.shape)
    assert Space({"x": 5}, extents={"x": (0, 1)}).shape == (5,)


def test_a_space_is_immutable_and_has_coordinates() -> None:
    with pytest.raises(AttributeError, match="Space is immutable; make a new one instead of setting names"):
        sst().names = ()
    with pytest.raises(ValueError, match="a space needs at least one coordinate"):
        Space({})


# --- identity


@pytest.mark.parametrize(
    "time",
    [
        Fourier(1, period="year"),
        Polynomial(1, domain=("2000-01-01T00:00:00", "2001-02")),
        BSpline(degree=1, knots=["2000", "2000", "2001", "2002", "2002"]),
        Fourier(1, "day") + Fourier(2, "year"),
        BSpline(
            spacing="10D", domain=(cftime.Datetime360Day(2000, 2, 30), cftime.Datetime360Day(2001, 2, 30))
        ),
        BSpline(5, domain=(np.timedelta64(0, "h"), np.timedelta64(7, "D"))),
        Fourier(2, 24.0),
    ],
    ids=repr,
)
def test_spaces_survive_json_pickle_and_code(time: Basis) -> None:
    space = Space(
        {"lat": BSpline(5, domain=(-1.5, 0.1)), 'odd "name"': 7, "time": time},
        extents={'odd "name"': (0.1, 3)},
    )
    text = space.to_json()
    for again in (Space.from_json(text), pickle.loads(pickle.dumps(space)), eval(space.code(), {"xs": xs})):
        assert again == space and hash(again) == hash(space) and again.digest == space.digest
        assert again.axes["time"] == space.axes["time"]
    assert Space.from_json(text).to_json() == text and json.loads(text)["schema"] == 1
    assert Space.from_json(text).from_data == space.from_data == ('odd "name"',)
    assert len(pickle.dumps(space)) < 2000


@given(splines())
def test_drawn_spaces_survive_json(basis: BSpline) -> None:
    space = Space({"x": basis})
    assert Space.from_json(space.to_json()) == space
    assert eval(space.code(), {"xs": xs}) == space


def test_equal_definitions_have_one_digest() -> None:
    calendars = [Axis("time", calendar=name) for name in ("standard", "gregorian", "proleptic_gregorian")]
    periods = ["year", "365.2425D", np.timedelta64(31556952, "s"), "8765.82h"]
    starts = ["2000", np.datetime64("2000-01-01", "ns"), cftime.DatetimeGregorian(2000, 1, 1)]
    digests = {
        Space(
            {"time": Fourier(2, period) + Polynomial(1, domain=(start, "2010"))}, axes={"time": axis}
        ).digest
        for axis in calendars
        for period in periods
        for start in starts
    }
    assert len(digests) == 1
    assert Space({"x": BSpline(5, domain=(0, 1))}) == Space(
        {"x": BSpline(5, 3, domain=(-0.0, np.float32(1)))}
    )
    assert Space({"x": 5}, extents={"x": (0, 1)}) == Space({"x": BSpline(5, domain=(0, 1))})


def test_the_digest_stays_what_it_was() -> None:
    """Files hold digests: a change here needs a new schema."""
    assert sst().digest == "ba4c328100d72a2da292e49b5d5d4d28865e5f2596e48e6da5d8cbd13cd29530"


def test_text_of_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no space of schema 1 \(it says 2\)"):
        Space.from_json('{"schema": 2}')
    with pytest.raises(ValueError, match=r"no space of schema 1 \(it says None\)"):
        Space.from_json("[]")


# --- axes and messages


def test_axes_are_inferred_from_what_was_written() -> None:
    axes = Space(
        {
            "a": Fourier(1, "year"),
            "b": BSpline(5, domain=("0s", "6h")),
            "c": Fourier(1, 3.0),
            "lon": BSpline(5, period=360),
        }
    ).axes
    assert [(axis.kind, axis.wrap) for axis, _ in axes.values()] == [
        ("time", None), ("timedelta", None), ("number", None), ("number", 360.0)
    ]  # fmt: skip
    assert Space({"t": BSpline(spacing="1D")}, extents={"t": (0, 864000)}).axes["t"][0].kind == "time"


def test_messages_name_the_coordinate() -> None:
    with pytest.raises(
        ValueError,
        match=r"^lat: BSpline\(13\) has no domain; pass domain=\(lo, hi\), or build the space from",
    ):
        Space({"lat": 13})
    with pytest.raises(TypeError, match=r"^lat: expected a basis or an integer"):
        Space({"lat": "13"})
    with pytest.raises(ValueError, match=r"^lat: BSpline size 2 must be greater than its degree 3"):
        Space({"lat": 2})
    with pytest.raises(TypeError, match=r"^time: period=365.25 is a bare number"):
        Space({"time": Fourier(2, 365.25)}, axes={"time": Axis("time")})
    with pytest.raises(TypeError, match=r"^lat: labels of type .* pass numbers"):
        sst().to_float("lat", ["a"])
    with pytest.raises(KeyError, match="'depth' is not a coordinate of the space, which has lat, lon, time"):
        sst().to_float("depth", [1])
    with pytest.raises(TypeError, match=r"^x: 'north' is not a coordinate label"):
        Space({"x": BSpline(5, domain=("north", "south"))})


def test_difference_shows_both() -> None:
    space = sst()
    assert space.difference(sst()) == ""
    fewer = Space({"lat": BSpline(13, domain=(-30, 30))})
    assert (
        space.difference(fewer)
        == "the spaces have different coordinates: ('lat', 'lon', 'time') and ('lat',); name the bases of both, or "
        "agree on one space beforehand"
    )
    other = Space(
        {**{name: basis for name, (_, basis) in space.axes.items()}, "lat": BSpline(12, domain=(-30, 30))}
    )
    assert (
        space.difference(other)
        == "lat: BSpline(13, domain=(-30.0, 30.0)) and BSpline(12, domain=(-30.0, 30.0))"
    )
    noleap = Space({"t": Fourier(1, "365D")}, axes={"t": Axis("time", calendar="noleap")})
    message = noleap.difference(Space({"t": Fourier(1, "365D")}))
    assert message == "t: time (noleap calendar) and time (standard calendar) coordinates"


@pytest.mark.parametrize(
    ("basis", "west", "east", "agreed"),
    [
        (BSpline(8), (0, 5), (3, 9), BSpline(8, domain=(0, 9))),
        (Polynomial(2) + Fourier(1, 3.0), (0, 5), (3, 9), Polynomial(2, domain=(0, 9)) + Fourier(1, 3.0)),
        (BSpline(spacing=1.0), (0, 5), (3, 9), BSpline(9, domain=(0, 9))),
    ],
)
def test_difference_of_learned_domains_says_how_to_agree(
    basis: Basis, west: tuple[float, float], east: tuple[float, float], agreed: Basis
) -> None:
    a, b = (Space({"x": basis}, extents={"x": extent}) for extent in (west, east))
    assert a.from_data == ("x",) and Space({"x": agreed}).from_data == ()
    message = a.difference(b)
    assert repr(a.axes["x"][1]) in message and repr(b.axes["x"][1]) in message and "\n" not in message
    assert "the domain of x was taken from the data: agree on one beforehand" in message
    code = re.search(r"space = (.*)$", message)
    assert code is not None and eval(code[1], {"xs": xs}) == Space({"x": agreed})


# --- longitudes


@pytest.mark.parametrize("domain", [(0, 360), (-180, 180), (20, 380), (150, 300), (-30, 60)])
def test_longitudes_fall_into_the_domain(domain: tuple[float, float]) -> None:
    space = Space({"lon": BSpline(9, domain=domain)})
    lo, hi = domain
    places = np.arange(0, 360, 7.5)
    for shift in (-720.0, -360.0, -180.0, 0.0, 360.0):
        x = space.to_float("lon", places + shift)
        assert np.all(np.mod(x - places - shift, 360) == 0)
        assert np.all((x >= lo) & (x < lo + 360) | ((x == hi) & (places + shift == hi)))


def test_both_conventions_are_one_place() -> None:
    pacific = Space({"lon": BSpline(9, domain=(150, 210))})
    np.testing.assert_array_equal(
        pacific.to_float("lon", [-180.0, -170.0, 170.0, -150.0]), [180.0, 190.0, 170.0, 210.0]
    )
    atlantic = Space({"lon": Polynomial(3, domain=(-60, 20))})
    np.testing.assert_array_equal(atlantic.to_float("lon", [300, 350, 10, 380]), [-60.0, -10.0, 10.0, 20.0])


@given(st.floats(-180, 179), st.floats(1, 359), st.integers(-2, 2), st.sampled_from(["lo", "hi"]))
def test_the_ends_are_inside_in_any_turn(lo: float, length: float, turns: int, end: str) -> None:
    hi = lo + length
    space = Space({"lon": BSpline(9, domain=(lo, hi))})
    label = np.array([{"lo": lo, "hi": hi}[end] + 360.0 * turns])
    x = space.to_float("lon", label)
    assert space.features[0].locate(x)[0][0] in (0, 5)
    assert abs(x[0] - {"lo": lo, "hi": hi}[end]) <= 2 * np.spacing(1000.0)


def test_labels_inside_stay_bit_for_bit() -> None:
    space = Space({"lon": BSpline(9, domain=(-179.9, 180.1))})
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            rng.uniform(-179.9, 180.1, 100),
            [-179.9, 180.1, np.nextafter(-179.9, -np.inf), np.nextafter(180.1, np.inf)],
        ]
    )
    np.testing.assert_array_equal(space.to_float("lon", x), x)
    missing = space.to_float("lon", [np.nan, np.inf])
    assert np.isnan(missing[0]) and np.isinf(missing[1])
    assert space.to_float("lon", 200.0).shape == ()

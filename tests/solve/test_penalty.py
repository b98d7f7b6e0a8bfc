"""Penalties as descriptions, and as the integrals and norms that they stand for."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import xspline as xs
from tests.reference import gauss
from xspline.solve import Penalty, Ridge, Roughness, Sobolev, SpaceTime, as_penalty
from xspline.spaces import Axis, BSpline, Fourier, Polynomial, Space

from .cases import close, dense_penalty, kron, space_of

NAMES = {"xs": xs, "Ridge": Ridge, "Roughness": Roughness, "Sobolev": Sobolev, "SpaceTime": SpaceTime}
EXAMPLES = [
    Ridge(0.1),
    Ridge(0),
    Roughness(1e-4),
    Roughness({"b": 2, "a": 0.5}, order=1),
    Roughness("holders", order=1),
    Roughness(0.5, geometry="sphere"),
    Sobolev((1, 3), criterion="gcv"),
    Sobolev({1: 0.5, 2: 1e-3}, {"a": 1.0, "b": 3.0}),
    SpaceTime(Sobolev((1, 3)), Roughness(order=1)),
    SpaceTime(Sobolev({1: 0.5}), Roughness({"t": 0.1}) + Roughness({"t": 2.0}, 0)),
    Ridge(0.1) + Roughness(0.2),
    Ridge(0.1) + Roughness(0.2) + Roughness({"a": 1}, order=1),
]


@pytest.mark.parametrize("penalty", EXAMPLES, ids=repr)
def test_round_trips(penalty: Penalty) -> None:
    stored = json.loads(json.dumps(penalty.to_dict()))
    for other in (Penalty.from_dict(stored), pickle.loads(pickle.dumps(penalty)), eval(repr(penalty), NAMES)):
        assert other == penalty
        assert hash(other) == hash(penalty)


CUBIC = space_of("cubic")


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), Fraction(1, 2), np.float64(0.5)])
def test_a_number_is_a_ridge(value: Any) -> None:
    assert as_penalty(value, CUBIC) == Ridge(0.5)


def test_no_penalty_is_a_ridge_of_nothing() -> None:
    assert as_penalty(0, CUBIC) == Ridge(0.0)
    assert Ridge(0).gram(CUBIC).terms == ()
    assert as_penalty(EXAMPLES[-1], CUBIC) is EXAMPLES[-1]


def test_the_default_is_chosen_where_there_is_roughness() -> None:
    assert as_penalty(None, CUBIC) == "reml"
    assert as_penalty(None, Space({"t": Polynomial(2, domain=(0, 1))})) == Ridge(0.0)
    assert as_penalty(None, Space({"x": BSpline(4, degree=0, domain=(0, 1))})) == Ridge(0.0)
    assert as_penalty(None, Space({"x": BSpline(4, degree=1, domain=(0, 1))})) == "reml"


@pytest.mark.parametrize("name", ["gcv", "reml", "holders"])
def test_criteria_go_by_name(name: str) -> None:
    assert as_penalty(name, CUBIC) == name
    with pytest.raises(
        ValueError, match="penalty='REML' is no criterion; use one of 'reml', 'gcv', 'holders'"
    ):
        as_penalty("REML", CUBIC)


@pytest.mark.parametrize("value", [True, [1.0], {"lat": 1.0}])
def test_other_things_are_not_penalties(value: Any) -> None:
    with pytest.raises(TypeError, match=r"is not a penalty; pass a number for a ridge \(penalty=1e-3\)"):
        as_penalty(value, CUBIC)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_strengths_are_finite_and_not_negative(value: float) -> None:
    with pytest.raises(ValueError, match="Ridge: the strength is finite and not negative"):
        Ridge(value)
    with pytest.raises(ValueError, match="Roughness of 'lat': the strength is finite and not negative"):
        Roughness({"lat": value})


def test_malformed_penalties() -> None:
    with pytest.raises(TypeError, match="Ridge: the strength is a number, got 'a'"):
        Ridge("a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the mapping of names to strengths is empty"):
        Roughness({})
    for order in (-1, 1.5, True):
        with pytest.raises(ValueError, match="integer order of a derivative, at least 0"):
            Roughness(1, order=order)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown kind of penalty 'lasso'"):
        Penalty.from_dict({"kind": "lasso"})
    with pytest.raises(TypeError, match="abstract"):
        Penalty()  # type: ignore[abstract]


def test_roughness_names_what_does_not_fit() -> None:
    space = space_of("linear", "season")
    with pytest.raises(ValueError, match="no coordinate 'lat' in this space, which has a, b"):
        Roughness({"lat": 1.0}).gram(space)
    with pytest.raises(ValueError, match="basis of 'a' has derivatives up to order 1, not 2; pass order=1"):
        Roughness(1.0).gram(space)
    with pytest.raises(ValueError, match=r"none of a has one; name some, as in Roughness\(\{'a': 1.0\}\)"):
        Roughness(1.0).gram(space_of("season"))


def test_a_number_means_every_bspline() -> None:
    space = space_of("cubic", "season", "union")
    assert Roughness(0.5).strengths(space) == {"a": 0.5, "c": 0.5}
    assert Roughness({"b": 0.5, "a": 0}).strengths(space) == {"b": 0.5}
    assert len(Roughness(0.5).gram(space).terms) == 2


def test_roughness_is_the_integral() -> None:
    """Against the trapezoidal and Gauss rules on an evaluated function, in the units of the coordinates."""
    space = Space(
        {
            "x": BSpline(7, domain=(-20.0, 40.0)),
            "y": BSpline(5, degree=2, domain=(0.0, 0.1)),
            "t": Fourier(1, period=3.0) + Polynomial(1, domain=(2.0, 5.0)),
        },
        axes={name: Axis() for name in "xyt"},
    )
    c = np.random.default_rng(0).normal(size=space.size)
    spans = {"x": (-20.0, 40.0), "y": (0.0, 0.1), "t": (2.0, 5.0)}
    numbers = zip(spans.items(), (4, 3, 3), strict=True)
    rules = {name: gauss(np.linspace(*span, cells + 1)) for (name, span), cells in numbers}  # knots are edges
    weights = kron([(rules[n][1] / (spans[n][1] - spans[n][0]))[:, None] for n in spans])[:, 0]
    for strengths, order in (({"x": 2.0, "y": 0.5}, 2), ({"x": 1.0, "t": 3.0}, 1)):
        expected = 0.0
        for j, name in enumerate(spans):
            orders = [order if i == j else 0 for i in range(3)]
            designs = [
                f.design(rules[n][0], o) for n, f, o in zip(spans, space.features, orders, strict=True)
            ]
            scale = (spans[name][1] - spans[name][0]) ** order
            expected += strengths.get(name, 0.0) * np.sum(weights * (scale * kron(designs) @ c) ** 2)
        assert close(c @ dense_penalty(Roughness(strengths, order), space) @ c, expected, 1e-10)

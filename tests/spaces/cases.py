"""Definitions by SciPy and by formulas, and drawn bases, for the tests of the room."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from scipy.interpolate import BSpline as SciPySpline

from xspline.spaces import Axis, Basis, BSpline, Features, Fourier, Polynomial

NUMBER = Axis()
TIME = Axis("time")


def bound(basis: Basis, axis: Axis = NUMBER, extent: tuple[float, float] | None = None) -> Basis:
    return basis.bind(axis, extent, name="x")


def features_of(basis: Basis, axis: Axis = NUMBER, extent: tuple[float, float] | None = None) -> Features:
    return bound(basis, axis, extent).on(axis)


def full_knots(basis: BSpline) -> np.ndarray:
    """Knot vector of a bound number basis, from its definition."""
    (lo, hi), p = basis.domain, basis.degree
    if basis.knots is not None and basis.period is None:
        return np.array(basis.knots)
    if basis.period is None:
        intervals = basis.size - p
        return lo + (hi - lo) / intervals * np.arange(-p, intervals + p + 1)
    one = np.linspace(lo, hi, basis.size + 1) if basis.knots is None else np.array(basis.knots)
    turns = np.concatenate([one[:-1] + turn * (hi - lo) for turn in range(-p - 1, p + 3)])
    start = (p + 1) * (one.size - 1)
    return turns[start - p : start + one.size + p]


def scipy_design(basis: BSpline, x: np.ndarray, order: int = 0) -> np.ndarray:
    """[n, K] of a bound basis by SciPy, inside the domain; periodic functions are sums around the circle."""
    knots, p = full_knots(basis), basis.degree
    elements = SciPySpline(knots, np.eye(knots.size - p - 1), p)(x, nu=order)
    if basis.period is None:
        return elements
    size = basis.count
    out = np.zeros((x.size, size))
    np.add.at(out, (slice(None), np.arange(elements.shape[1]) % size), elements)
    return out


def inside(lo: float, hi: float, count: int = 57) -> np.ndarray:
    """Positions inside a range, hardly ever on a knot."""
    return lo + (hi - lo) * (np.arange(count) + 0.37) / count


def dense_pairs(features: Features, pairs: np.ndarray) -> np.ndarray:
    """[K, K] of a pair array: entries add, indices modulo K if periodic."""
    size = features.size
    out = np.zeros((size, size))
    for k, o in np.ndindex(pairs.shape):
        other = (k + o) % size if features.periodic else k + o
        if other < size:
            out[k, other] += pairs[k, o]
            if o:
                out[other, k] += pairs[k, o]
        else:
            assert pairs[k, o] == 0.0
    return out


@st.composite
def splines(draw: st.DrawFn, highest: int = 5) -> BSpline:
    """Bound B-splines of numbers: uniform, with knots, with repeated knots, periodic, short."""
    degree = draw(st.integers(0, highest))
    lo = draw(st.sampled_from([0.0, -3.0, 0.1, 1.5e9, -1e-3]))
    hi = lo + draw(st.sampled_from([1.0, 8.0, 360.0, 3.15e7]))
    kind = draw(st.sampled_from(["uniform", "knots", "circle", "circle knots"]))
    if kind == "uniform":
        return bound(BSpline(degree + draw(st.integers(1, 9)), degree, domain=(lo, hi)))
    if kind == "circle":
        return bound(BSpline(draw(st.integers(1, 14)), degree, period=hi - lo, domain=(lo, hi)))
    count = draw(st.integers(1, 7))
    repeats = draw(st.lists(st.integers(1, degree + 1), min_size=count, max_size=count))
    places = draw(st.lists(st.integers(1, 99), min_size=count, max_size=count, unique=True))
    inner = lo + (hi - lo) * np.repeat(np.sort(places) / 100, repeats)
    if kind == "circle knots":
        return bound(BSpline(degree=degree, knots=[lo, *inner, hi], period=hi - lo))
    step = (hi - lo) / 5
    before, after = lo - step * np.arange(degree, -1, -1), hi + step * np.arange(degree + 1)
    ends = draw(st.booleans())
    before, after = (np.full(degree + 1, lo), np.full(degree + 1, hi)) if ends else (before, after)
    return bound(BSpline(degree=degree, knots=[*before, *inner, *after]))


UNIONS = [
    Polynomial(2) + Fourier(2, 3.0),
    Fourier(3, 2.0) + Fourier(1, 0.7),
    Fourier(2, 3.0) + BSpline(7),
    Polynomial(1) + Fourier(1, 3.0) + BSpline(9, 2, period=5.0),
    BSpline(4, period=5.0) + Polynomial(2),
    Polynomial(3) + BSpline(4, 0),
]
GLOBALS: list[Basis] = [
    Fourier(3, 2.5),
    Polynomial(4),
    Polynomial(0),
    Fourier(1, 2.0, domain=(0, 7)),
    *UNIONS,
]
SPLINES: list[Basis] = [
    BSpline(9),
    BSpline(6, 1),
    BSpline(5, 0),
    BSpline(11, 5),
    BSpline(9, period=10.0),
    BSpline(3, period=10.0),
    BSpline(5, 2, period=10.0),
    BSpline(degree=2, knots=[-1, -1, -1, 0.5, 0.5, 2, 3, 9, 9, 9]),
    BSpline(degree=3, knots=[0, 1, 1, 4, 7, 7, 7, 8, 9, 10], period=10),
]
EXTENT = (-1.0, 9.0)


def named(bases: list[Basis]) -> dict[str, Basis]:
    """Bases bound to the numbers of EXTENT, by their text."""
    return {repr(basis): bound(basis, extent=EXTENT) for basis in bases}


ALL = named([*GLOBALS, *SPLINES])

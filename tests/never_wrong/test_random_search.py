"""Random fits through the public API, each held to a dense reference in long double.

There are 50 cases, or as many as XSPLINE_CASES says, each drawn from its number alone. The reference forms all rows of
Φ, adds them up in long double, and knows nothing of blocks, masks, layouts or solvers.
"""

from __future__ import annotations

import functools
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests import products
from xspline.solve.select import NEARLY_SEPARABLE, SOLVERS

EPS = float(np.finfo(np.float64).eps)
LONG = 1e-17  # rounding errors of long double, and some
SLACK = 200.0  # times the rounding errors that a first-order bound allows
MOST = 90  # coefficients
CERTAIN, SINGULAR = 1e-10, 1e-15  # least eigenvalue of the scaled system: surely determined, surely not
ITERATED = 1e-7  # relative, of what iterations give
NAMES = ("a", "b", "c")
NAMED = [name for name in SOLVERS if name != NEARLY_SEPARABLE]  # that is for a penalty that is not drawn here
# What a solver asked for by name says where the structure does not admit it.
REFUSALS = ("needs one product", "takes up to", "does not know the inverse", "did not converge", "residual")


@dataclass(frozen=True, eq=False)
class Case:
    """One call of `fit`.

    Attributes
    ----------
    data : DataArray
    bases : by coordinate; None pools a dimension.
    batch : dimensions that no coordinate spans.
    weights, penalty, solver : arguments of `fit`.
    what : in words.
    """

    data: xr.DataArray
    bases: dict[str, Any]
    batch: tuple[str, ...]
    weights: xr.DataArray | None
    penalty: Any
    solver: str | None
    what: str

    def fit(self, solver: str | None) -> tuple[xs.Field[Any], bool]:
        """The field, and whether a warning says that it is nearly singular; members of a batch that are so are NaN."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)  # others are advice on fits that are meant to be odd
            field = xs.fit(self.data, self.bases, penalty=self.penalty, weights=self.weights, solver=solver)
        return field, any("nearly singular" in str(w.message) for w in caught)


# --- what is drawn


def draw(number: int) -> Case:
    """The case of a number."""
    rng = np.random.default_rng((0, number))
    count = int(rng.choice([1, 2, 3], p=[0.4, 0.4, 0.2]))
    ranges = [_range(rng) for _ in range(count)]
    while True:
        bases = {n: _basis(rng, *ends) for n, ends in zip(NAMES, ranges, strict=False)}
        space = xs.Space(bases, extents=dict(zip(NAMES, ranges, strict=False)))
        if space.size <= MOST:
            break
    layout = str(rng.choice(["grid", "points", "mixed", "curvilinear"][: 2 if count == 1 else 4]))
    data, batch, pooled = _data(rng, space, ranges, layout)
    weights = _weights(rng, data)
    data, weights, mask = _masked(rng, data, weights, batch)
    penalty = _penalty(rng, space)
    solver = str(rng.choice(NAMED)) if rng.random() < 0.4 else None
    chunked = rng.random() < 0.3
    if chunked:
        data = data.chunk({d: int(rng.integers(1, n + 1)) for d, n in data.sizes.items()})
    what = (
        f"{layout} {dict(data.sizes)} {data.dtype}{' chunked' * chunked}, batch {batch}, pooled {pooled}, mask {mask}, "
        f"weights {None if weights is None else weights.dims}, penalty {penalty!r}, solver {solver}, {bases}"
    )
    return Case(data, {**bases, **dict.fromkeys(pooled)}, batch, weights, penalty, solver, what)


def _range(rng: np.random.Generator) -> tuple[float, float]:
    return ((0.0, 1.0), (-180.0, 180.0), (1e3, 1.2e3), (-1e-3, 2e-3))[int(rng.integers(4))]


def _basis(rng: np.random.Generator, low: float, high: float) -> Any:
    degree, extra, length = int(rng.integers(1, 6)), int(rng.integers(0, 6)), high - low
    inner = np.sort(rng.uniform(low, high, extra))
    uniform = functools.partial(xs.BSpline, degree + 1 + extra, degree=degree, domain=(low, high))
    match str(rng.choice(["uniform", "uneven", "circle", "uneven circle", "fourier", "polynomial", "sum"])):
        case "uniform":
            return uniform()
        case "uneven":
            before = low - (
                np.zeros(degree) if rng.random() < 0.5 else np.sort(rng.uniform(0, length, degree))[::-1]
            )
            after = high + (
                np.zeros(degree) if rng.random() < 0.5 else np.sort(rng.uniform(0, length, degree))
            )
            knots = np.concatenate([before, [low], inner, [high], after])
            return xs.BSpline(knots=knots.tolist(), degree=degree, domain=(low, high))
        case "circle":
            return uniform(period=length)
        case "uneven circle":
            degree = min(degree, 3)
            edges = np.linspace(low, high, degree + 3 + extra)
            edges[1:-1] += rng.uniform(-0.3, 0.3, len(edges) - 2) * (edges[1] - edges[0])
            return xs.BSpline(knots=edges.tolist(), degree=degree, period=length)
        case "fourier":
            return xs.Fourier(
                int(rng.integers(1, 4)), period=length * float(rng.choice([1.0, 1.3])), domain=(low, high)
            )
        case "polynomial":
            return xs.Polynomial(int(rng.integers(0, 5)), domain=(low, high))
        case _:
            wave = xs.Fourier(int(rng.integers(1, 3)), period=length / 2, domain=(low, high))
            line = xs.Polynomial(int(rng.integers(1, 3)), domain=(low, high))
            return (wave + line, line + uniform(period=length), wave + uniform())[int(rng.integers(3))]


def _data(
    rng: np.random.Generator, space: xs.Space, ranges: Sequence[tuple[float, float]], layout: str
) -> tuple[xr.DataArray, tuple[str, ...], tuple[str, ...]]:
    """Values of a random field of the space and noise, with coordinates; dimensions of the batch, and pooled ones."""
    names, dims = space.names, {}
    lengths = {
        n: int(rng.integers(max(1, k - 1), 2 * k + 4)) for n, k in zip(names, space.shape, strict=True)
    }
    points = int(rng.integers(max(2, space.size // 2), 4 * space.size + 6))
    match layout:
        case "grid":
            dims = {n: {n: lengths[n]} for n in names}
        case "points":
            dims = {n: {"p": points} for n in names}
        case "mixed":
            dims = {
                n: {"p": points // space.shape[0] + 2} if j else {n: lengths[n]} for j, n in enumerate(names)
            }
        case _:
            dims = {
                n: {"i": lengths[names[0]], "j": lengths[names[1]]} if j < 2 else {n: lengths[n]}
                for j, n in enumerate(names)
            }
    coords = {}
    for n, (low, high) in zip(names, ranges, strict=True):
        margin = 0.1 * (high - low) * (rng.random() < 0.15)  # some observations are outside the domain
        x = rng.uniform(low - margin, high + margin, tuple(dims[n].values()))
        if layout == "grid" and rng.random() < 0.7:
            x = np.linspace(low, high, x.size)[:: int(rng.choice([-1, 1]))]
        coords[n] = (tuple(dims[n]), x)
    sizes = {d: m for own in dims.values() for d, m in own.items()}
    batch = tuple(d for d in ("m", "n") if rng.random() < 0.25)
    pooled = ("r",) if rng.random() < 0.1 else ()
    sizes |= {d: int(rng.integers(1, 5)) for d in (*batch, *pooled)}
    rows = products.rows(xr.DataArray(np.zeros(tuple(sizes.values())), coords, tuple(sizes)), space)
    truth = np.nan_to_num(rows @ rng.normal(size=space.size)).reshape(tuple(sizes.values()))
    values = truth + 0.1 * rng.normal(size=truth.shape)
    dtype = str(rng.choice(["float64", "float64", "float32", "int32", "int16"]))
    values = values * float(rng.choice([1.0, 100.0, 1e-5] if dtype.startswith("float") else [20.0])) + float(
        rng.choice([0.0, -273.0, 1e4])
    )
    order = rng.permutation(list(sizes)).tolist()
    return xr.DataArray(values.astype(dtype), coords, tuple(sizes), "u").transpose(*order), batch, pooled


def _weights(rng: np.random.Generator, data: xr.DataArray) -> xr.DataArray | None:
    if rng.random() < 0.5:
        return None
    dims = [d for d in data.dims if rng.random() < 0.6]
    w = np.exp(rng.normal(size=[data.sizes[d] for d in dims]))
    w = w * (rng.random(w.shape) < 0.9) if rng.random() < 0.3 else w
    return xr.DataArray(w * float(rng.choice([1.0, 1e4])), dims=dims)


def _masked(
    rng: np.random.Generator, data: xr.DataArray, weights: xr.DataArray | None, batch: tuple[str, ...]
) -> tuple[xr.DataArray, xr.DataArray | None, str]:
    """Data with gaps, as NaN or as weights of zero, and what kind."""
    kind = str(
        rng.choice(
            ["none", "product", "static", "random", "few", "empty"], p=[0.3, 0.15, 0.15, 0.2, 0.15, 0.05]
        )
    )
    keep = xr.DataArray(np.ones(data.shape, dtype=bool), dims=data.dims)
    share = float(rng.choice([0.95, 0.8, 0.5]))
    if kind == "product":
        for d in data.dims:
            keep = keep & xr.DataArray(rng.random(data.sizes[d]) < share, dims=d)
    elif kind == "static":
        dims = [d for d in data.dims if d not in batch][:2]
        keep = keep & xr.DataArray(rng.random([data.sizes[d] for d in dims]) < share, dims=dims)
    elif kind == "random":
        keep = keep.copy(data=rng.random(data.shape) < share)
    elif kind == "few":  # members that differ in one or two places
        flat = np.ones(data.size, dtype=bool)
        flat[rng.choice(data.size, min(3, data.size), replace=False)] = False
        keep = keep.copy(data=flat.reshape(data.shape))
    elif kind == "empty":  # one member, or all
        keep = keep & (xr.DataArray(np.arange(data.sizes[batch[0]]) > 0, dims=batch[0]) if batch else False)
    keep = keep.transpose(*data.dims)
    if data.dtype.kind == "f":
        return data.where(keep), weights, kind
    if kind != "none":
        weights = (keep * (1.0 if weights is None else weights)).transpose(*data.dims)
    return data, weights, kind


def _penalty(rng: np.random.Generator, space: xs.Space) -> Any:
    strength = float(10 ** rng.uniform(-6, 1))
    degrees = {n: _degree(space.basis(n)) for n in space.names}
    splines = {n: d for n, d in degrees.items() if d is not None}
    choices: list[Any] = [0, strength, strength, xs.Ridge(strength)]
    if splines:
        order = int(rng.integers(1, min(2, *splines.values()) + 1))
        rough = xs.Roughness(strength * 1e-3, order=order)
        some = {n: float(10 ** rng.uniform(-8, -1)) for n in splines if rng.random() < 0.7}
        choices += [
            rough,
            rough + xs.Ridge(1e-4),
            rough + xs.Roughness(some or {next(iter(splines)): 1e-5}, order=1),
        ]
        if some:
            choices += [xs.Roughness(some, order=order)]
    return choices[int(rng.integers(len(choices)))]


def _degree(basis: Any) -> int | None:
    terms = getattr(basis, "terms", (basis,))
    return min((t.degree for t in terms if isinstance(t, xs.BSpline)), default=None)


# --- the reference


@dataclass(frozen=True, eq=False)
class Reference:
    """The fit of one batch member.

    Attributes
    ----------
    determined : None where rounding errors decide.
    count, edf, rss, weight
    c : ndarray, [P]
    inverse : (G + Λ)⁻¹, [P, P]
    error : ndarray, [P]
        What rounding errors may do to c.
    loss : float
        The same, relative, to entries of the inverse.
    pull : float
        The same, to the residual sum of squares.
    """

    determined: bool | None
    count: int = 0
    edf: float = math.nan
    rss: float = math.nan
    weight: float = math.nan
    c: Any = None
    inverse: Any = None
    error: Any = None
    loss: float = math.nan
    pull: float = 0.0


def reference(phi: np.ndarray, y: np.ndarray, w: np.ndarray, penalty: np.ndarray) -> Reference:
    """The penalised fit of values [N] with weights [N] to rows [N, P], in long double."""
    used = np.isfinite(y) & (w > 0) & np.isfinite(phi).all(axis=1)
    phi, y, w = (x[used].astype(np.longdouble) for x in (phi, y, w))
    penalised = bool(np.any(penalty))
    if not len(y) or (not penalised and len(y) < phi.shape[1]):
        return Reference(False, len(y))
    gram = phi.T @ (phi * w[:, None])
    matrix = gram + penalty
    if not (np.diagonal(matrix) > 0).all():
        return Reference(False, len(y))
    scale = np.sqrt(np.diagonal(matrix))
    values = np.linalg.eigvalsh((matrix / scale / scale[:, None]).astype(float))
    least = float(values[0] / values[-1])
    if least < CERTAIN:
        return Reference(False if least < SINGULAR and not penalised else None, len(y))
    shift = y[0]  # as little as possible is left to cancel
    inverse = _inverse(matrix / scale / scale[:, None]) / scale / scale[:, None]
    c = inverse @ (phi.T @ (w * y))
    residual = y - phi @ c
    largest = float(np.sqrt(np.sum(w * (y - shift) ** 2)) + np.sqrt(np.sum(w)) * np.abs(y).max() * 1e-3)
    loss = SLACK * EPS / least
    error = loss * (largest + float(np.linalg.norm(scale * c))) / scale.astype(float)
    # By c; by functions that add up to one but for rounding errors; by long double; by what cancels.
    rss, total, top = float(np.sum(w * residual**2)), float(w.sum()), float(np.abs(y).max())
    apart = 30 * EPS * top * math.sqrt(total)
    pull = 2 * float(np.abs(penalty @ c) @ error) + apart * (apart + 2 * math.sqrt(rss))
    centred = scale * (inverse @ (phi.T @ (w * (y - shift))))
    pull += total * (LONG * top / least) ** 2 + SLACK * EPS * float(centred @ centred)
    edf, c, inverse = float(np.sum(inverse * gram)), c.astype(float), inverse.astype(float)
    return Reference(True, len(y), edf, rss, total, c, inverse, error, loss, pull)


def _inverse(a: np.ndarray) -> np.ndarray:
    """Of a positive definite matrix in long double, by Gauss-Jordan elimination."""
    a = a.copy()
    for j in range(len(a)):
        pivot, row = a[j, j], a[j].copy()
        column = a[:, j].copy()
        row[j] = column[j] = 0.0
        a -= np.outer(column, row / pivot)
        a[j], a[:, j], a[j, j] = row / pivot, -column / pivot, 1 / pivot
    return a


# --- the comparison


def check(case: Case, rng: np.random.Generator) -> str:
    """What came of a case: how the library and the reference agree. AssertionError where they do not."""
    space = xs.space(case.data, case.bases)
    data = case.data.compute()
    weights = xr.ones_like(data, dtype=float) if case.weights is None else case.weights.broadcast_like(data)
    batched = data.stack(_member=case.batch) if case.batch else data.expand_dims("_member")
    batched_weights = weights.stack(_member=case.batch) if case.batch else weights.expand_dims("_member")
    dims = [d for d in data.dims if d not in case.batch]
    matrix = _dense_penalty(case.penalty, space)
    members = []
    for i in range(batched.sizes["_member"]):
        own, w = (x.isel(_member=i, drop=True).transpose(*dims) for x in (batched, batched_weights))
        phi = products.rows(own, space)
        members.append(reference(phi, own.values.ravel().astype(float), w.values.ravel(), matrix))
    try:
        (field, told), outcome = case.fit(case.solver), "agrees"
    except xs.SingularSystemError:
        assert not any(m.determined for m in members), "an error, but the reference is determined"
        return "nothing determined"
    except ValueError as error:
        if case.solver is None or not any(text in str(error) for text in REFUSALS):
            raise
        try:
            (field, told), outcome = case.fit(None), "agrees, solver refused"
        except xs.SingularSystemError:
            assert not any(m.determined for m in members), "an error, but the reference is determined"
            return "nothing determined"
    assert any(m.determined is not False for m in members), "a fit, but nothing is determined"
    try:
        _compare(case, field, told, members, rng)
    except xs.ConvergenceError:  # iterations that were asked for by name say so of a nearly singular system
        assert not any(m.determined for m in members), "no convergence, but the reference is determined"
    return outcome if any(m.determined for m in members) else "rounding errors decide"


def _dense_penalty(penalty: Any, space: xs.Space) -> np.ndarray:
    if isinstance(penalty, int | float):
        return float(penalty) * np.eye(space.size)
    gram = penalty.gram(space)
    return gram.to_dense(space.frame) if gram.terms else np.zeros((space.size, space.size))


def _compare(
    case: Case, field: xs.Field[Any], told: bool, members: list[Reference], rng: np.random.Generator
) -> None:
    """Coefficients, predictions, derivatives, error bars and the summary of each member."""
    space = field.space
    iterated = any(not s.factorisation.choice.exact for s in field.solution.values())

    def by_member(x: xr.DataArray, *first: str) -> np.ndarray:
        flat = x.transpose(*first, *case.batch).values
        return flat.reshape(*flat.shape[: len(first)], -1)

    count = 6
    labels = {
        n: rng.uniform(*f.domain, count) if f.domain else rng.uniform(0, 1, count)
        for n, f in zip(space.names, space.features, strict=True)
    }
    at = xr.Dataset(coords={n: ("target", x) for n, x in labels.items()})
    target = xr.DataArray(np.zeros(count), at.coords, "target")
    order = {
        n: 0 if f.max_order is None else min(1, f.max_order)
        for n, f in zip(space.names, space.features, strict=True)
    }
    along = next((n for n in space.names if order[n]), None)
    c = by_member(field.coefficients, *(f"{n}_basis" for n in space.names)).reshape(space.size, -1)
    answers: list[tuple[np.ndarray, np.ndarray]] = [
        (products.rows(target, space), by_member(field.predict(at, extrapolate=True), "target"))
    ]
    if along is not None:
        rows = products.rows(target, space, orders=[int(n == along) for n in space.names])
        answers.append((rows, by_member(field.derivative(at, {along: 1}, extrapolate=True), "target")))
    found = field.summary()
    summary = {k: by_member(found[k]) for k in ("count", "edf", "rmse")}
    spread = float(case.data.max() - case.data.min())
    errors = None if iterated else by_member(field.stderr(at, extrapolate=True), "target")
    for i, m in enumerate(members):
        known = bool(np.isfinite(c[:, i]).all())
        assert m.determined is None or m.determined == known or (told and not known), (
            f"member {i}: determined {m.determined}, found {known}"
        )
        assert int(summary["count"][i]) == m.count, f"member {i}: count {summary['count'][i]} of {m.count}"
        if not (m.determined and known) or (told and not case.batch):
            continue
        slack = m.error + (ITERATED * (np.abs(m.c) + m.error / m.loss) if iterated else 0.0)
        _close(c[:, i], m.c, slack, f"member {i}: coefficients")
        for what, (rows, values) in zip(("prediction", "derivative"), answers, strict=False):
            _close(values[:, i], rows @ m.c, np.abs(rows) @ slack, f"member {i}: {what}")
        if iterated:
            continue
        size = space.size
        _close(summary["edf"][i], m.edf, m.loss * size, f"member {i}: edf")
        floor = m.loss * m.rss + SLACK * EPS * m.weight * spread**2 + m.pull
        _close(summary["rmse"][i] ** 2 * m.weight, m.rss, floor, f"member {i}: squares")
        left = m.count - m.edf
        if left > 1e-3 * m.count and m.rss > 10 * floor:
            variance = np.einsum("np,pq,nq->n", answers[0][0], m.inverse, answers[0][0]) * m.rss / left
            allowed = variance.max() * (m.loss * (1 + size / left) + floor / m.rss)
            assert errors is not None
            _close(errors[:, i] ** 2, variance, allowed, f"member {i}: error bars")


def _close(found: Any, expected: Any, allowed: Any, what: str) -> None:
    wrong = np.abs(np.asarray(found) - expected) - allowed
    if not (wrong <= 0).all():
        worst = np.nanmax(np.abs(np.asarray(found) - expected))
        raise AssertionError(
            f"{what}: off by {worst:.3g}, allowed {np.max(allowed):.3g}, of {np.max(np.abs(expected)):.3g}"
        )


@pytest.mark.slow
@pytest.mark.parametrize("number", range(int(os.environ.get("XSPLINE_CASES", "50"))))
def test_a_random_fit_is_that_of_the_reference(number: int) -> None:
    case = draw(number)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # advice on fits that are meant to be odd
            assert check(case, np.random.default_rng((0, number, 1)))
    except Exception as error:
        error.add_note(f"case {number}: {case.what}")
        raise

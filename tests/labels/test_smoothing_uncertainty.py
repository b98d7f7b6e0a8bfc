"""What the choice of λ leaves open is in the error bars: V + J Cov(log λ) Jᵀ with J = ∂c/∂log λ, densely."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
import xarray as xr
from scipy import linalg

import xspline as xs
from tests import reference_reml as reference
from tests import scatter
from tests.products import stderr_of
from xspline.labels.storage import files
from xspline.sums import Gram

PRIOR = 10.0  # variance of log λ where REML says nothing
SMOOTH = xs.Roughness("reml", order=2)
INCLUDED = "assumes independent errors; includes what the choice of lambda leaves open"
LEFT_OUT = "assumes independent errors; takes the chosen lambda as known"


def line(members: int = 1) -> tuple[xr.DataArray, dict[str, int]]:
    rng, x = np.random.default_rng(1), np.linspace(0, 1, 90)
    y = np.sin(8 * x) + 0.4 * rng.standard_normal((members, x.size))
    y[:, 30:55] = np.nan
    y[-1, :5] = np.nan
    data = xr.DataArray(y, {"x": x}, ("member", "x"), "v")
    return data if members > 1 else data.isel(member=0), {"x": 14}


def plane() -> tuple[xr.DataArray, dict[str, int]]:
    rng = np.random.default_rng(4)
    x, y = rng.random((2, 150))
    values = 20 + np.sin(6 * x) * np.cos(5 * y) + 0.3 * rng.standard_normal(150)
    return xr.DataArray(values, {"x": ("o", x), "y": ("o", y)}, ("o",), "v"), {"x": 8, "y": 7}


CASES = {"line": line(), "plane": plane(), "batch": line(3)}


def design(space: xs.Space, at: xr.Dataset) -> np.ndarray:
    """Rows of Φ, [n, P]."""
    phi = np.ones((at[space.names[0]].size, 1))
    for name, features in zip(space.names, space.features, strict=True):
        along = features.design(space.to_float(name, at[name].values))
        phi = np.einsum("nk,nl->nkl", phi, along).reshape(len(phi), -1)
    return phi


def systems(field: xs.Field, data: xr.DataArray) -> list[reference.Rows]:
    """Observations of each member, with the matrices of the penalty's terms at their strengths."""
    space = field.space
    terms = [Gram((term,)) for term in field.penalty.gram(space).terms]
    penalties = [term.to_dense(space.frame) for term in terms]
    phi = design(space, xr.Dataset({name: data[name].variable for name in space.names}))
    each = data.values.reshape(-1, len(phi))
    return [reference.Rows(phi, np.nan_to_num(y), np.isfinite(y) * 1.0, penalties) for y in each]


def differences(function: object, rho: np.ndarray, step: float) -> np.ndarray:
    """Central first differences of a function by ρ, along the last axis."""
    shifts = step * np.eye(len(rho))
    return np.stack([(function(rho + s) - function(rho - s)) / (2 * step) for s in shifts], axis=-1)


def covariance_of_strengths(rows: Sequence[reference.Rows], by_parameter: np.ndarray) -> np.ndarray:
    """The inverse of the Hessian of REML and of a normal prior, by the logarithms of the strengths, [T, T].

    These are a matrix [T, J] times the parameters; all are zero where the strengths are those of the fit. The prior is
    one of the strengths of derivatives along one coordinate.
    """

    def score(r: np.ndarray) -> float:
        return reference.score(rows, by_parameter @ r)

    zero = np.zeros(by_parameter.shape[1])
    hessian = differences(lambda r: differences(score, r, 1e-3), zero, 1e-3)
    own = (
        by_parameter[np.arange(len(by_parameter)) != 3] if len(by_parameter) == len(SEVERAL) else by_parameter
    )
    # eigenvalues of the Hessian beside the prior
    values, vectors = linalg.eigh((hessian + hessian.T) / 2, own.T @ own / PRIOR)
    along = by_parameter @ vectors
    return (along / (np.maximum(values, 0.0) + 1.0)) @ along.T


def variances(
    field: xs.Field, data: xr.DataArray, at: xr.Dataset, by_parameter: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of the field with λ known, and what the choice of λ adds, [member, n]."""
    rows, phi = systems(field, data), design(field.space, at)
    zero = np.zeros(len(by_parameter))
    spread, known, added = covariance_of_strengths(rows, by_parameter), [], []
    for own in rows:
        gram = (own.phi * own.w[:, None]).T @ own.phi
        inverse = np.linalg.inv(gram + reference.total(own, zero))
        sigma = reference.fit(own, zero).sigma
        known.append(sigma**2 * np.einsum("ni,ij,nj->n", phi, inverse, phi))
        shift = phi @ differences(lambda r, own=own: reference.fit(own, r).coefficients, zero, 1e-4)
        added.append(np.einsum("ni,ij,nj->n", shift, spread, shift))
    return np.array(known), np.array(added)


def targets(space: xs.Space) -> xr.Dataset:
    rng = np.random.default_rng(0)
    return xr.Dataset({name: ("p", rng.uniform(0.05, 0.95, 40)) for name in space.names})


# Terms (1, 0), (0, 1), (2, 0), (1, 1), (0, 2) by the strengths of both orders and the metric of the second coordinate.
SEVERAL = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 1, 1], [0, 1, 2]])


@pytest.mark.parametrize(
    ("case", "penalty", "by_parameter"),
    [
        ("line", SMOOTH, np.eye(1)),
        ("batch", SMOOTH, np.eye(1)),
        ("plane", SMOOTH, np.eye(2)),
        ("plane", xs.Sobolev(), SEVERAL),
    ],
)
def test_errors_include_what_the_choice_leaves_open(
    case: str, penalty: xs.Penalty, by_parameter: np.ndarray
) -> None:
    data, bases = CASES[case]
    field = data.spline.fit(bases, penalty=penalty)
    at = targets(field.space)
    known, added = variances(field, data, at, by_parameter)
    errors = field.stderr(at).transpose(..., "p")
    np.testing.assert_allclose(errors.values.reshape(known.shape), np.sqrt(known + added), rtol=1e-5)
    assert float((added / known).max()) > 0.03  # it is something
    assert errors.attrs["comment"] == INCLUDED
    plain = field.stderr(at, smoothing_uncertainty=False).transpose(..., "p")
    np.testing.assert_allclose(plain.values.reshape(known.shape), np.sqrt(known), rtol=1e-6)
    assert plain.attrs["comment"] == LEFT_OUT


def test_derivatives_and_gradients_include_it_too() -> None:
    data, bases = CASES["plane"]
    field = data.spline.fit(bases, penalty=SMOOTH)
    at = targets(field.space)
    slope, plain = (
        stderr_of(field.derivative(at, x=1, smoothing_uncertainty=u, stderr=True)) for u in (True, False)
    )
    assert float((slope - plain).min()) >= 0 and float((slope / plain).max()) > 1.01
    np.testing.assert_array_equal(field.gradient(at, stderr=True).dv_dx_stderr, slope)
    np.testing.assert_array_equal(field.derivative(at, x=1, stderr=True).dv_dx_stderr, slope)


@pytest.mark.parametrize("case", ["line", "batch"])
def test_draws_have_the_same_errors(case: str) -> None:
    data, bases = CASES[case]
    field = data.spline.fit(bases)
    at = targets(field.space)
    exact = field.stderr(at)
    drawn = field.stderr(at, method="draws")
    own = drawn.attrs["relative_error"]
    assert drawn.attrs["comment"] == INCLUDED and float(abs(drawn / exact - 1).max()) < scatter.FIVE * own
    tolerance = scatter.FIVE * scatter.of_deviation(4000)
    for option in (True, False):
        spread = field.sample(4000, seed=0, smoothing_uncertainty=option).predict(at).std("sample")
        expected = field.stderr(at, smoothing_uncertainty=option)
        np.testing.assert_allclose(spread, expected, rtol=tolerance)


@pytest.mark.parametrize(
    ("penalty", "comment"),
    [(xs.Roughness(1e-3), "assumes independent errors"), ("gcv", LEFT_OUT), ("holders", LEFT_OUT)],
)
def test_what_is_given_or_chosen_by_no_likelihood_is_taken_as_known(
    penalty: str | xs.Penalty, comment: str
) -> None:
    data, bases = CASES["line"]
    holder = xr.DataArray(np.arange(data.x.size) % 3, dims="x")
    field = data.spline.fit(bases, penalty=penalty, holder=holder)
    both = [field.stderr(x=[0.2, 0.5], smoothing_uncertainty=u) for u in (True, False)]
    np.testing.assert_array_equal(*both)
    assert {error.attrs["comment"] for error in both} == {comment}


def test_strengths_on_a_bound_add_nothing() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 300))
    values = np.sin(9 * x) + 0.3 * rng.standard_normal(300)
    data = xr.DataArray(values, {"x": ("o", x), "y": ("o", y)}, ("o",), "v")
    with pytest.warns(xs.FitWarning, match="lambda of 'y' is at its upper bound"):
        field = data.spline.fit(x=9, y=7, penalty=SMOOTH)
    covariance = np.array(field.fits["v"].choice["covariance"])
    assert covariance[0, 0] > 0
    np.testing.assert_array_equal(covariance[1], 0.0)
    np.testing.assert_array_equal(covariance[:, 1], 0.0)


def test_files_keep_it_and_older_ones_are_read_as_before() -> None:
    data, bases = CASES["plane"]
    field = data.spline.fit(bases)
    at, stored = targets(field.space), field.to_dataset()
    opened = xs.Field.from_dataset(stored)
    np.testing.assert_allclose(opened.stderr(at), field.stderr(at), rtol=1e-12)
    meta = json.loads(stored.attrs[files.ATTRIBUTE])
    del meta["choices"]["v"]["covariance"]
    older = xs.Field.from_dataset(stored.assign_attrs({files.ATTRIBUTE: json.dumps(meta)}))
    np.testing.assert_allclose(older.stderr(at), field.stderr(at, smoothing_uncertainty=False), rtol=1e-12)
    assert older.stderr(at).attrs["comment"] == LEFT_OUT


def test_smoothing_uncertainty_is_true_or_false() -> None:
    data, bases = CASES["line"]
    with pytest.raises(TypeError, match="smoothing_uncertainty='no' has to be True or False"):
        data.spline.fit(bases).stderr(x=0.5, smoothing_uncertainty="no")

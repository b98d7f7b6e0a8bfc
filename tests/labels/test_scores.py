"""Errors by scores of parts: the dense sandwich, the jackknife where parts are many, and what `errors="auto"` takes."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.labels.test_uncertainty import BASES, GRID, PENALTY, design
from tests.products import rows, sst, stderr_of

MONTHS = np.arange("1990-01", "2002-01", dtype="datetime64[M]").astype("datetime64[ns]")


@pytest.fixture(scope="module")
def product() -> xr.DataArray:
    return sst(months=60, gaps=0.2)


@pytest.fixture(scope="module")
def field(product: xr.DataArray) -> xs.Field:
    return product.spline.fit(BASES, penalty=PENALTY, holder="time.year")


def sandwich(field: xs.Field, data: xr.DataArray, labels: np.ndarray) -> np.ndarray:
    """Return (B − 1)/B Σ x_b x_bᵀ, [P, P], from rows of Φ: x_b = (A − G_b − π_bΛ)⁻¹ g_b."""
    space, matrix = field.space, field.penalty.gram(field.space).to_dense(field.space.frame)
    phi, y = rows(data, space, slice(None)), data.values.astype(float).ravel() - 290
    shape = [-1 if dim == "time" else 1 for dim in data.dims]
    labels = np.broadcast_to(labels.reshape(shape), data.shape).ravel()
    seen = np.isfinite(y)
    phi, y, labels = phi[seen], y[seen], labels[seen]
    c = np.linalg.solve(phi.T @ phi + matrix, phi.T @ y)
    total, parts = np.zeros_like(matrix), np.unique(labels)
    for own in (labels == label for label in parts):
        gone, share = ~own, np.mean(own)
        g = phi[own].T @ (y - phi @ c)[own] - share * matrix @ c
        x = np.linalg.solve(phi[gone].T @ phi[gone] + (1 - share) * matrix, g)
        total += np.outer(x, x)
    return total * (len(parts) - 1) / len(parts)


def test_scores_are_the_dense_sandwich(field: xs.Field, product: xr.DataArray) -> None:
    dense = sandwich(field, product, product.time.dt.year.values)
    for orders in ({}, {"lon": 1}):
        phi = design(field, GRID, **orders)
        expected = np.sqrt(np.einsum("...i,ij,...j->...", phi, dense, phi))
        own = {"method": "scores", "stderr": True}
        error = field.predict(GRID, **own) if not orders else field.derivative(GRID, **orders, **own)
        found = stderr_of(error).transpose("time", "lat", "lon")
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * expected.max())
    assert found.attrs["degrees_of_freedom"] == 4 and "between the 5 parts" in found.attrs["comment"]


def test_scores_are_near_the_jackknife(field: xs.Field) -> None:
    scores, jackknife = (field.stderr(GRID, method=m) for m in ("scores", "jackknife"))
    np.testing.assert_allclose(scores, jackknife, rtol=0.05)

"""Metric terms on a sphere: from derivatives per degree to gradients and Laplacians per metre.

With latitude φ and longitude λ in degrees and d = π/180:

    northward   ∂u/∂y = 1/(R d) ∂u/∂φ                   eastward   ∂u/∂x = 1/(R d cos φ) ∂u/∂λ
    ∇²u = 1/(R d)² [ ∂²u/∂φ² + 1/cos² φ ∂²u/∂λ² ] − tan φ/(R² d) ∂u/∂φ
"""

from __future__ import annotations

import numpy as np
import xarray as xr

#: Mean radius of the Earth in metres (IUGG R1).
EARTH_RADIUS = 6_371_008.8
_METRE_PER_DEGREE = EARTH_RADIUS * np.pi / 180


def cos_lat(latitude: xr.DataArray) -> xr.DataArray:
    """Return cos φ of a latitude in degrees, NaN at the poles, where east has no direction."""
    phi = latitude.astype(np.float64)
    return xr.where(np.abs(phi) >= 90, np.nan, np.cos(np.deg2rad(phi)))


def northward(d_dlat: xr.DataArray) -> xr.DataArray:
    """Return 1/R ∂u/∂φ per metre from the derivative per degree of latitude."""
    return d_dlat / _METRE_PER_DEGREE


def eastward(d_dlon: xr.DataArray, latitude: xr.DataArray) -> xr.DataArray:
    """Return 1/(R cos φ) ∂u/∂λ per metre from the derivative per degree of longitude; NaN at the poles."""
    return d_dlon / (cos_lat(latitude) * _METRE_PER_DEGREE)


def laplacian(
    d_dlat: xr.DataArray, d2_dlat2: xr.DataArray, d2_dlon2: xr.DataArray, latitude: xr.DataArray
) -> xr.DataArray:
    """Return ∇²u per square metre from derivatives per degree; NaN at the poles."""
    cos_phi = cos_lat(latitude)
    tan_phi_d_dlat = np.sin(np.deg2rad(latitude.astype(np.float64))) / cos_phi * d_dlat * np.deg2rad(1.0)
    return (d2_dlat2 + d2_dlon2 / cos_phi**2 - tan_phi_d_dlat) / _METRE_PER_DEGREE**2

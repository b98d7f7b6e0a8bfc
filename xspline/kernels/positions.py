"""Positions on a device: `LocalSpline.locate` in the words of the array namespace, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import clipped
from .layout import Array

if TYPE_CHECKING:
    from xspline.spaces.bspline import LocalSpline


def locate(spline: LocalSpline, x: Array, xp: Any, device: Any) -> tuple[Array, Array]:
    """Cell [n] (-1 outside the domain) and local coordinate z [n] of positions x [n] on the device."""
    y = _wrapped(spline, x, xp) if spline.periodic else _clean(spline, x, xp)
    known = xp.logical_not(xp.isnan(y))
    y = xp.where(known, y, xp.full_like(y, spline.ends[0]))
    edges, lengths = (xp.asarray(np.array(a), device=device) for a in (spline.edges, spline.lengths))
    cell = _cell(spline, y, edges, xp)
    z = _within(spline, y, cell, edges, lengths, xp)
    return xp.where(known, cell, xp.full_like(cell, -1)), xp.where(known, z, xp.zeros_like(z))


def _clean(spline: LocalSpline, x: Array, xp: Any) -> Array:
    """One ulp outside is on the end; NaN elsewhere outside."""
    lo, hi = spline.ends
    below, above = float(np.nextafter(lo, -np.inf)), float(np.nextafter(hi, np.inf))
    nan = xp.full_like(x, np.nan)
    inside = xp.where(xp.logical_and(x >= below, x <= above), x, nan)
    return clipped(inside, lo, hi, xp)


def _wrapped(spline: LocalSpline, x: Array, xp: Any) -> Array:
    lo, hi = spline.ends
    x = xp.where(xp.isfinite(x), x, xp.full_like(x, np.nan))
    turned = xp.remainder(x - lo, xp.full_like(x, hi - lo)) + lo
    y = xp.where(xp.logical_and(x >= lo, x < hi), x, turned)
    return xp.where(y >= hi, xp.full_like(y, lo), y)


def _cell(spline: LocalSpline, y: Array, edges: Array, xp: Any) -> Array:
    last = spline.cells - 1
    if not spline.uniform:
        place = xp.astype(xp.searchsorted(edges, y, side="right"), xp.int64) - 1
        return clipped(place, 0, last, xp)
    first, step = float(spline.edges[0]), float(spline.lengths[0])
    cell = xp.astype(clipped(xp.floor((y - first) / step), 0, last, xp), xp.int64)
    # The quotient may round across a knot; the knots themselves decide.
    cell = cell - xp.astype(y < xp.take(edges, cell), xp.int64)
    beyond = xp.logical_and(y >= xp.take(edges, cell + 1), cell < last)
    return cell + xp.astype(beyond, xp.int64)


def _within(spline: LocalSpline, y: Array, cell: Array, edges: Array, lengths: Array, xp: Any) -> Array:
    if spline.uniform:
        turns = (y - float(spline.edges[0])) / float(spline.lengths[0]) - xp.astype(cell, xp.float64)
    else:
        turns = (y - xp.take(edges, cell)) / xp.take(lengths, cell)
    return clipped(2.0 * turns - 1.0, -1.0, 1.0, xp)

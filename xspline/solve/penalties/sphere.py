"""Roughness on the sphere, as sums of products of a factor along latitude and one along longitude.

With latitude φ and longitude λ in radians, on the sphere of radius 1, the roughness is ∫ |∇∇u|² + |∇u|² dA, the Hessian
being that of the sphere:

    |∇∇u|² = u_φφ² + 2 (u_φλ + tan φ u_λ)² / cos²φ + (u_λλ / cos²φ − tan φ u_φ)²        dA = cos φ dφ dλ

Over the whole sphere it is ∫ (Δu)² dA (Bochner's formula), so that a harmonic Y_l costs (l (l + 1))² ∫ Y_l² dA.
Over a part of it constants alone cost nothing, where ∫ (Δu)² lets all harmonic functions go free. The product of
u_λλ and u_φ is not symmetric along each coordinate: around a circle it is ∫ u_λ u_φλ, by parts; elsewhere it is
left out, which changes the roughness of what is as long as the distance from a pole, no more.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import legendre
from scipy.special import roots_jacobi

from xspline.spaces import BSpline, Fourier, Space
from xspline.spaces.bspline import LocalSpline
from xspline.spaces.conversions import degrees_in
from xspline.spaces.features import Floats
from xspline.sums import Factor, Gram
from xspline.sums.integrals import factor_of, integral

NAME = "sphere"  # latitude and longitude together, among the names of strengths


class Sphere(NamedTuple):
    """Latitude and longitude of a space."""

    latitude: int  # the axis
    longitude: int
    radians: float  # in a unit of the labels of latitude
    width: float  # of the longitudes, in radians
    closed: bool  # whether these are a circle

    @property
    def axes(self) -> tuple[int, int]:
        """The axes of latitude and longitude."""
        return self.latitude, self.longitude

    def poles(self, space: Space) -> list[float]:
        """Labels of the poles that the domain reaches."""
        ends = space.features[self.latitude].domain or ()
        return [x for x in ends if abs(abs(x) * self.radians - math.pi / 2) <= 4 * np.finfo(float).eps]


def sphere_of(space: Space, what: str) -> Sphere:
    """Return latitude and longitude of a space.

    It raises ValueError, starting with `what`, where they are not recognised, or their domains or bases are none of a
    sphere.
    """
    names_of = {}
    for role in ("latitude", "longitude"):
        names = [name for name in space.names if space.axis(name).role == role]
        if len(names) != 1:
            raise ValueError(
                f"{what}: {len(names) or 'none'} of the coordinates {', '.join(space.names)} is a {role}, and a sphere "
                f"has one; name it {role[:3]!r}, or give it the attribute standard_name={role!r} before the fit"
            )
        names_of[role] = names[0]
    lat, lon = names_of.values()
    degrees = {name: degrees_in(space.axis(name).units) for name in (lat, lon)}
    for name, scale in degrees.items():
        if scale is None:
            raise ValueError(
                f"{what}: the units of {name!r} are {space.axis(name).units!r}, no angle; give it degrees or radians"
            )
    per_lat, per_lon = (math.radians(abs(scale or 1.0)) for scale in degrees.values())
    features = space.features[space.names.index(lat)]
    if not isinstance(features, LocalSpline) or features.periodic:
        raise ValueError(
            f"{what}: the basis of {lat!r} is {space.basis(lat)!r}; along latitude it takes a B-spline that is not "
            "periodic, as in xs.BSpline(24)"
        )
    farthest = max(map(abs, features.ends))
    if farthest * per_lat > math.pi / 2 * (1 + 4 * np.finfo(float).eps):
        raise ValueError(
            f"{what}: the domain of {lat!r} reaches {farthest!r}, beyond the pole at "
            f"{round(math.pi / 2 / per_lat, 6)}; end it there"
        )
    basis = space.basis(lon)
    if not isinstance(basis, BSpline | Fourier):
        raise ValueError(
            f"{what}: the basis of {lon!r} is {basis!r}; along longitude it takes a B-spline or a Fourier series alone"
        )
    low, high = _range(space, lon)
    width = (high - low) * per_lon
    closed = basis.period is not None
    off = abs(width - 2 * math.pi) > 1e-9 if closed else width > 2 * math.pi * (1 + 1e-9)
    if off:
        raise ValueError(
            f"{what}: the longitudes of {lon!r} are {math.degrees(width):.6g}° long, and a circle has 360°; pass "
            f"{'a period of' if closed else 'a domain of at most'} 360°"
        )
    axes = space.names.index(lat), space.names.index(lon)
    return Sphere(*axes, per_lat, width, closed)


def _range(space: Space, lon: str) -> tuple[float, float]:
    """Return the ends of the longitudes that integrals go over."""
    features = space.features[space.names.index(lon)]
    return features.ends if isinstance(features, LocalSpline) else features.span  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=64)  # needed again at every strength that is tried
def factors(space: Space, sphere: Sphere) -> tuple[tuple[tuple[Factor, Factor], ...], Factor]:
    """Return the products of the roughness, along latitude and longitude, and the mass along latitude: means over both.

    Gauss nodes lie off a pole, where roughness is finite. In the last cell they are those of the weight cos φ, exact
    for what is regular there: Legendre's come so near to the pole that what is not costs a hundred times more, and
    rounding errors with it.
    """
    lat, lon = sphere.axes
    features: Any = space.features[sphere.latitude]  # a B-spline, as `sphere_of` has seen
    nodes, weights = (np.tile(x, (features.cells, 1)) for x in legendre.leggauss(features.degree + 2))
    z, w = roots_jacobi(features.degree + 2, 0, 1)
    for pole in sphere.poles(space):
        end, sign = (0, 1) if pole == features.ends[0] else (-1, -1)
        nodes[end], weights[end] = sign * z, w / (1 + z)
    radius = np.diff(features.edges)[:, None] / 2
    x = (features.edges[:-1, None] + radius * (1 + nodes)).ravel()
    b, b1, b2 = (features.design(x, order) / sphere.radians**order for order in range(3))
    low, high = (end * sphere.radians for end in features.ends)
    area = math.sin(high) - math.sin(low)
    weight = (radius * weights).ravel() * sphere.radians / area
    cos, tan = np.cos(x * sphere.radians), np.tan(x * sphere.radians)

    def form(u: Floats, v: Floats, density: Floats) -> Floats:
        product = (u * (weight * density)[:, None]).T @ v
        return np.asarray((product + product.T) / 2)

    slanted = b1 + tan[:, None] * b
    constant = form(b2, b2, cos) + form(b1, b1, cos * (1 + tan**2))
    first = form(slanted, slanted, 2 / cos) + form(b, b, 1 / cos)
    second = form(b, b, cos**-3)
    if sphere.closed:
        first += 2 * form(b, b1, tan / cos)

    around = [integral(space, lon, order).scaled(sphere.width ** (-2 * order)) for order in range(3)]
    rough = [_along(space, lat, m, f"order {k}", sphere) for k, m in enumerate((constant, first, second))]
    return tuple(zip(rough, around, strict=True)), _along(space, lat, form(b, b, cos), "mass", sphere)


@functools.lru_cache(maxsize=64)
def at_poles(space: Space, sphere: Sphere) -> tuple[tuple[Factor, Factor], ...]:
    """Return the products of what values and slopes cost at the poles where these are not single-valued.

    Beside observations of weight Σw they are taken times Σw, whatever the strength of the roughness: they stand for a
    constraint on the functions. Along longitude what goes around otherwise than the functions of `_single` costs |c|²/K
    or more, and these cost nothing: each B-spline and its neighbours have one combination that vanishes for them, as a
    difference does for constants. Along latitude values and slopes cost 10,000 times the least mass with which a
    function has them. Measured beside an exact constraint, values are off by .002 of their errors where data know of
    no tangent plane. Rounding errors are 2e-9 of 36 functions of longitude, 5e-6 of 360 and 5e-5 of 720; with 100,000
    the last are nearly dependent.
    """
    if not (poles := sphere.poles(space)):
        return ()
    lat, lon = sphere.axes
    features = space.features[lon]
    mass = integral(space, lat, 0).to_dense(space.frame)
    products = []
    for order, basis in enumerate(_single(space, sphere)):
        rows = np.stack([_at_pole(space, sphere, pole)[order] for pole in poles])
        spread = np.sum(rows * np.linalg.solve(mass, rows.T).T, axis=1)
        own = 1e4 * (rows.T / spread) @ rows
        n = basis.shape[1]
        if features.offsets == features.size:
            around = np.eye(features.size) - basis @ np.linalg.pinv(basis)
        else:
            stencils = np.zeros((features.size, features.size))
            for k in range(features.size if space.frame.periodic[lon] else features.size - n):
                near = np.arange(k, k + n + 1) % features.size
                stencils[k, near] = np.linalg.svd(basis[near].T)[2][-1]
            around = stencils.T @ stencils
        around /= features.size * np.linalg.eigvalsh(around)[n]
        what = f"pole, order {order}"
        products.append((_along(space, lat, own, what, sphere), _along(space, lon, around, what, sphere)))
    return tuple(products)


def weight_of(gram: Gram, space: Space) -> float:
    """Return Σw as the functions of a space see it, the largest of a batch: tr G / tr M; 1 without observations."""
    masses = Gram((tuple(integral(space, j, 0) for j in range(len(space.names))),))
    axes = tuple(range(len(space.names)))
    seen = np.max(gram.diagonal(space.frame).sum(axis=axes), initial=0.0)
    return float(seen / masses.diagonal(space.frame).sum()) if seen > 0 else 1.0


def _along(space: Space, axis: int, matrix: Floats, what: str, sphere: Sphere) -> Factor:
    """Return a banded matrix of one coordinate as a factor."""
    size = len(matrix)
    pairs = np.zeros((size, space.features[axis].offsets))
    for o in range(pairs.shape[1]):
        first, second = space.frame.pairs_at(axis, o)
        pairs[first, o] = matrix[np.arange(size)[first], second]
    return factor_of(axis, pairs, f"sphere {what}", repr(sphere), repr(space.basis(space.names[axis])))


def single_valued(c: Floats, space: Space, sphere: Sphere) -> Floats:
    """Return coefficients, [K.., b..], whose values and slopes at the poles that the domain reaches are single-valued.

    There values become their mean around the circle, and slopes along meridians the cosine and sine of longitude that
    are nearest to them: those of one tangent plane, as exactly as the functions of longitude know a cosine. The
    functions that a pole sees take the difference, by the shortest change: what `at_poles` leaves is small.
    """
    if not (poles := sphere.poles(space)):
        return c
    lat, lon = sphere.axes
    moved = np.moveaxis(c, (lat, lon), (0, 1))
    flat = moved.reshape(*moved.shape[:2], -1).copy()
    values = _around(space, sphere)[1]
    bases = _single(space, sphere)
    nearest = [basis @ np.linalg.pinv(values @ basis) @ values for basis in bases]
    for pole in poles:
        both = np.stack(_at_pole(space, sphere, pole))
        for row, column, projection in zip(both, np.linalg.pinv(both).T, nearest, strict=True):
            seen = np.tensordot(row, flat, axes=1)
            flat += column[:, None, None] * (projection @ seen - seen)
    return np.moveaxis(flat.reshape(moved.shape), (0, 1), (lat, lon))


def _single(space: Space, sphere: Sphere) -> list[Floats]:
    """Return what values at a pole, and slopes there, may be: the functions of longitude next to 1; cosine and sine."""
    turn, values = _around(space, sphere)
    waves = [np.ones_like(turn)], [np.cos(turn), np.sin(turn)]
    return [np.linalg.lstsq(values, np.stack(own, axis=1))[0] for own in waves]


def _around(space: Space, sphere: Sphere) -> tuple[Floats, Floats]:
    """Return longitudes from the first one on, in radians, and the values of all functions there."""
    features, ends = space.features[sphere.longitude], _range(space, space.names[sphere.longitude])
    shares = np.linspace(0.0, 1.0, 8 * features.size, endpoint=not sphere.closed)
    return shares * sphere.width, features.design(ends[0] + shares * (ends[1] - ends[0]))


def _at_pole(space: Space, sphere: Sphere, pole: float) -> tuple[Floats, Floats]:
    """Return values at a pole and slopes by radians of the functions of latitude, [K] each."""
    value, slope = (space.features[sphere.latitude].design(np.array([pole]), order)[0] for order in (0, 1))
    return value, slope / sphere.radians

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
from xspline.sums import Factor
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

    Of a domain that reaches a pole they hold what keeps values and slopes there single-valued: those that go m times
    around the circle cost m² and (m² − 1)². Gauss nodes lie off the pole, where roughness is finite. In the last
    cell they are those of the weight cos φ, exact for what is regular there: Legendre's come so near to the pole that
    what is not costs a hundred times more, and rounding errors with it. Measured, the factors 10,000 and 100 leave a
    hundredth of the noise of data to be corrected (`single_valued`), and a system no worse conditioned than without
    them; 100,000 would smooth what the functions of longitude take for a cosine.
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
    for pole in sphere.poles(space):
        value, slope = _at_pole(space, sphere, pole)
        cell = (features.lengths[0] if pole == features.ends[0] else features.lengths[-1]) * sphere.radians
        first += 1e4 / area / cell**2 * np.outer(value, value)
        if sphere.closed:
            tilted = 1e2 / area * np.outer(slope, slope)
            constant += tilted
            first -= 2 * tilted
            second += tilted

    def along_latitude(matrix: Floats, what: str) -> Factor:
        pairs = np.zeros((features.size, features.offsets))
        for o in range(features.offsets):
            pairs[: features.size - o, o] = np.diagonal(matrix, o)
        return factor_of(lat, pairs, f"sphere {what}", repr(sphere), repr(space.basis(space.names[lat])))

    around = [integral(space, lon, order).scaled(sphere.width ** (-2 * order)) for order in range(3)]
    rough = [along_latitude(m, f"order {k}") for k, m in enumerate((constant, first, second))]
    return tuple(zip(rough, around, strict=True)), along_latitude(form(b, b, cos), "mass")


def single_valued(c: Floats, space: Space, sphere: Sphere) -> Floats:
    """Return coefficients, [K.., b..], whose values and slopes at the poles that the domain reaches are single-valued.

    There values become their mean around the circle, and slopes along meridians the cosine and sine of longitude that
    are nearest to them: those of one tangent plane, as exactly as the functions of longitude know a cosine. The
    functions that a pole sees take the difference, by the shortest change.
    """
    if not (poles := sphere.poles(space)):
        return c
    lat, lon = sphere.axes
    moved = np.moveaxis(c, (lat, lon), (0, 1))
    flat = moved.reshape(*moved.shape[:2], -1).copy()
    features = space.features[lon]
    turn = np.linspace(0.0, sphere.width, 8 * features.size + 1)
    values = features.design(np.linspace(*_range(space, space.names[lon]), turn.size))
    nearest = []  # what values and slopes become
    for waves in ([np.ones_like(turn)], [np.cos(turn), np.sin(turn)]):
        basis = np.linalg.lstsq(values, np.stack(waves, axis=1))[0]
        nearest.append(basis @ np.linalg.pinv(values @ basis) @ values)
    for pole in poles:
        both = np.stack(_at_pole(space, sphere, pole))
        for row, column, projection in zip(both, np.linalg.pinv(both).T, nearest, strict=True):
            seen = np.tensordot(row, flat, axes=1)
            flat += column[:, None, None] * (projection @ seen - seen)
    return np.moveaxis(flat.reshape(moved.shape), (0, 1), (lat, lon))


def _at_pole(space: Space, sphere: Sphere, pole: float) -> tuple[Floats, Floats]:
    """Return values at a pole and slopes by radians of the functions of latitude, [K] each."""
    value, slope = (space.features[sphere.latitude].design(np.array([pole]), order)[0] for order in (0, 1))
    return value, slope / sphere.radians

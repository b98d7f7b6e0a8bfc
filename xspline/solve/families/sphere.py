"""The family of roughness on the sphere: one strength for latitude and longitude, one for each further coordinate."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from scipy import linalg

from xspline.solve.costs import Resources
from xspline.solve.direct.cholesky import Array, tolerance
from xspline.solve.families.base import STIFFEST, WEAKEST, Bounds, Family
from xspline.solve.families.determinant import Known, Spectrum, axis_spectrum
from xspline.solve.kronecker.product import dense_of
from xspline.solve.penalties.roughness import Roughness
from xspline.solve.penalties.sphere import NAME, Sphere, factors, sphere_of
from xspline.spaces import Space
from xspline.sums import Factor, Gram


class OnSphere(Family):
    """`Roughness` with the geometry of the sphere, whose roughness has three terms of one strength."""

    def __init__(self, space: Space, names: Sequence[str]) -> None:
        self.sphere = sphere_of(space, "Roughness(geometry='sphere')")
        both = [space.names[j] for j in self.sphere.axes]
        super().__init__(space, [name for name in space.names if name in names or name in both])
        self.others = [name for name in self.names if name not in both]
        self.parameters = (NAME, *self.others)
        orders = [dict(zip(both, own, strict=True)) for own in ((2, 0), (1, 1), (0, 2))]
        orders += [{name: 2} for name in self.others]
        self.alphas = tuple(tuple(own.get(name, 0) for name in self.names) for own in orders)
        owners = [0, 0, 0, *range(1, len(self.parameters))]
        self.design = np.eye(len(self.parameters))[owners]
        own, log_mass = spectrum_on_sphere(space, self.sphere)
        axes = [
            axis_spectrum(space, j, 2 if name in self.others else 0) for j, name in enumerate(space.names)
        ]
        beside = [axis for j, axis in enumerate(axes) if j not in self.sphere.axes]
        smooth = [axis for axis, name in zip(axes, space.names, strict=True) if name in self.others]
        self.softest = [own[1], *(axis.values[axis.values > 0].min() for axis in smooth)]
        grids = np.broadcast_arrays(*np.ix_(own, *(axis.values for axis in smooth)))
        values = np.array([grid.ravel() for grid in grids])
        masses = [(len(own), log_mass), *((len(axis.values), axis.log_mass) for axis in beside)]
        constant = sum(space.size / count * log for count, log in masses) + self.log_null
        varying, copies = values[:, values.any(axis=0)], space.size // values.shape[1]
        self.spectrum = Spectrum(varying, copies, constant)

    @cached_property
    def free(self) -> list[Array]:
        space = self.alone
        constants = dict(zip(space.names, space.frame.constant, strict=True))
        return [
            axis_spectrum(space, j, 2).smooth if name in self.others else constants[name][:, None]
            for j, name in enumerate(space.names)
        ]

    def on(self, space: Space, gram: Gram) -> OnSphere:
        return OnSphere(space, self.names)

    def penalty(self, rho: Array) -> Roughness:
        strengths = dict(zip(self.parameters, (float(x) for x in np.exp(rho)), strict=True))
        return Roughness(strengths, geometry=NAME)

    def log_determinant(self, rho: Array, resources: Resources) -> Known:
        """Return log|Λ|₊; its derivatives by the strength of the sphere are those of its first term."""
        value, first, second = self.spectrum.at(rho)
        lifted = np.zeros_like(self.design)
        lifted[[0, *range(3, len(lifted))], range(len(rho))] = 1.0
        return Known(value, lifted @ first, lifted @ second @ lifted.T)

    def bounds(self, typical: float, weight: float) -> Bounds:
        terms = [Gram((term,)).diagonal(self.space.frame).sum() for term in self.unit.gram(self.space).terms]
        rough = self.design.T @ np.array(terms)
        wall = weight / (16 * tolerance(self.space.size) * rough)
        start = np.log(typical / rough)
        upper = np.maximum(np.log(np.minimum(STIFFEST * weight / np.array(self.softest), wall)), start + 1.0)
        return Bounds(start, start + WEAKEST, upper, np.full(len(terms), np.inf))

    def stopped(self, sides: Mapping[str, str]) -> dict[str, str]:
        both = [name for name in self.names if name not in self.others]
        named = dict.fromkeys(both, sides[NAME]) if NAME in sides else {}
        return named | {name: side for name, side in sides.items() if name != NAME}

    def wiggly(self, v: Array, term: int, space: Space | None = None) -> Array:
        """Return what a term sees of v: of the sphere v without its mean there."""
        if term >= 3:
            return super().wiggly(v, term, space)
        space = space or self.space
        mean = v
        for axis in self.sphere.axes:
            along = axis_spectrum(space, axis, 1).projection[0]
            constant = space.frame.constant[axis]
            share = np.tensordot(along / (along @ constant), mean, axes=(0, axis))
            mean = np.moveaxis(np.multiply.outer(constant, share), 0, axis)
        return v - mean


@functools.lru_cache(maxsize=32)
def spectrum_on_sphere(space: Space, sphere: Sphere) -> tuple[Array, float]:
    """Return the eigenvalues of the roughness in the metric of the mass, ascending, 0 first; and log|M|.

    Around a circle of equal steps the matrices of longitude have common eigenvectors, and each of these has a problem
    along latitude alone. Elsewhere there is one problem of all functions.
    """
    terms, weighted = factors(space, sphere)
    lat, lon = sphere.axes

    def dense(factor: Factor) -> Array:
        return dense_of((factor,), factor.axes, space.frame)

    rough = [dense(first) for first, _ in terms]
    around = [dense(second) for _, second in terms]
    mass = dense(weighted)
    vectors = linalg.eigh(around[1] + around[2], around[0])[1]
    images = [vectors.T @ matrix @ vectors for matrix in around]
    weights = np.array([np.diag(image) for image in images])  # [3, K]
    apart = [np.abs(image - np.diag(np.diag(image))).max() for image in images]
    values = np.zeros((len(vectors), len(mass)))
    if all(x <= 1e-8 * np.abs(w).max() for x, w in zip(apart, weights, strict=True)):
        for k, own in enumerate(weights.T):
            if k and np.allclose(own, weights[:, k - 1], rtol=1e-9):  # cosine and sine of one wave
                values[k] = values[k - 1]
            else:
                values[k] = _eigenvalues(np.tensordot(own, rough, axes=1), mass)
    elif len(vectors) * len(mass) > 3000:
        raise ValueError(
            f"{space.names[lat]} and {space.names[lon]} have {len(mass)} × {len(vectors)} functions on a part of a "
            "circle, too many to choose the strength of their roughness on the sphere; use up to 3,000, a circle of "
            "360° with knots at equal distances, or pass strengths, as in xs.Roughness({'sphere': 1e-6}, "
            "geometry='sphere')"
        )
    else:
        whole = np.sum([np.kron(r, a) for r, a in zip(rough, around, strict=True)], axis=0)
        values = _eigenvalues(whole, np.asarray(np.kron(mass, around[0])))
    values = np.sort(values.ravel())
    values[0] = 0.0
    log_mass = sum(
        n * float(np.linalg.slogdet(m)[1]) for n, m in ((len(vectors), mass), (len(mass), around[0]))
    )
    return values, log_mass


def _eigenvalues(rough: Array, mass: Array) -> Array:
    """Return the eigenvalues of the pencil (R, M), ascending, the smallest of 1/(1 + x) of the pencil (M, R + M).

    At a pole the largest are so large that their rounding errors exceed the smallest.
    """
    values: Array = linalg.eigh(rough, mass, eigvals_only=True)
    inverse = linalg.eigh(mass, rough + mass, eigvals_only=True)[::-1]
    small = values < math.sqrt(values[-1])
    values[small] = np.maximum(1.0 / inverse[small] - 1.0, 0.0)
    return values

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
from xspline.solve.penalties.roughness import Roughness
from xspline.solve.penalties.sphere import NAME, Sphere, at_poles, factors, sphere_of, weight_of
from xspline.spaces import Space
from xspline.sums import Gram


class OnSphere(Family):
    """`Roughness` with the geometry of the sphere, whose roughness has three terms of one strength.

    Terms at the poles have no strength: they go with the weight of the observations, `weight`.
    """

    def __init__(self, space: Space, names: Sequence[str], weight: float = 1.0) -> None:
        self.weight = weight
        self.sphere = sphere_of(space, "Roughness(geometry='sphere')")
        both = [space.names[j] for j in self.sphere.axes]
        super().__init__(space, [name for name in space.names if name in names or name in both])
        self.others = [name for name in self.names if name not in both]
        self.parameters = (NAME, *self.others)
        poles = len(at_poles(space, self.sphere))
        self.of_sphere = 3 + poles  # terms
        shared = ((2, 0), (1, 1), (0, 2), *[(1, 1)] * poles)
        orders = [dict(zip(both, own, strict=True)) for own in shared]
        orders += [{name: 2} for name in self.others]
        self.alphas = tuple(tuple(own.get(name, 0) for name in self.names) for own in orders)
        owners = [*[0] * self.of_sphere, *range(1, len(self.parameters))]
        self.design = np.eye(len(self.parameters))[owners]
        self.design[3 : self.of_sphere] = 0.0
        own, log_mass = spectrum_on_sphere(space, self.sphere)
        axes = [
            axis_spectrum(space, j, 2 if name in self.others else 0) for j, name in enumerate(space.names)
        ]
        beside = [axis for j, axis in enumerate(axes) if j not in self.sphere.axes]
        smooth = [axis for axis, name in zip(axes, space.names, strict=True) if name in self.others]
        self.softest = [own[0][1], *(axis.values[axis.values > 0].min() for axis in smooth)]
        grids = np.broadcast_arrays(*np.ix_(np.arange(own.shape[1]), *(axis.values for axis in smooth)))
        first, *others = (grid.ravel() for grid in grids)
        rough, mass, strict = own[:, first.astype(np.intp)]
        values = np.array([rough, *(mass * other for other in others), strict])
        masses = [(own.shape[1], log_mass), *((len(axis.values), axis.log_mass) for axis in beside)]
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
        return OnSphere(space, self.names, weight_of(gram, space))

    def penalty(self, rho: Array) -> Roughness:
        strengths = dict(zip(self.parameters, (float(x) for x in np.exp(rho)), strict=True))
        return Roughness(strengths, geometry=NAME).at(self.weight)

    def log_determinant(self, rho: Array, resources: Resources) -> Known:
        """Return log|Λ|₊; its derivatives by the strength of the sphere are those of its first term."""
        value, first, second = self.spectrum.at(np.append(rho, math.log(self.weight)))
        lifted = np.zeros_like(self.design)
        lifted[[0, *range(self.of_sphere, len(lifted))], range(len(rho))] = 1.0
        first, second = first[:-1], second[:-1, :-1]
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
        if term >= self.of_sphere:
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
    """Return the shares of roughness, mass and pole terms in eigenvalues of Λ, [3, K], and the logarithm of the rest.

    Those of functions that are single-valued at the poles come first: r, ascending from 0, of the roughness in the
    metric of the mass, 1 and 0. Of the others, the roughness and the mass that remain when these have done their best,
    in the metric of the pole terms, and 1: exact where there is one strength or one of the three is by far the largest.

    Around a circle of equal steps the matrices of longitude have common eigenvectors, and each of these has a problem
    along latitude alone. Elsewhere there is one problem of all functions.
    """
    terms, weighted = factors(space, sphere)
    terms += at_poles(space, sphere)
    lat, lon = sphere.axes
    along, around = ([own.to_dense(space.frame) for own in both] for both in zip(*terms, strict=True))
    mass = weighted.to_dense(space.frame)
    vectors = linalg.eigh(around[1] + around[2], around[0])[1]
    vectors /= np.linalg.norm(vectors, axis=0)
    images = [vectors.T @ matrix @ vectors for matrix in around]
    weights = np.array([np.diag(image) for image in images])  # [T, K]
    apart = [np.abs(image - np.diag(np.diag(image))).max() for image in images]
    if all(x <= 1e-8 * np.abs(w).max() for x, w in zip(apart, weights, strict=True)):
        weights[np.abs(weights) < tolerance(len(mass)) * np.abs(weights).max(axis=1, keepdims=True)] = 0.0
        problems = [(list(own), own[0] * mass) for own in weights.T]
    elif len(vectors) * len(mass) > 3000:
        raise ValueError(
            f"{space.names[lat]} and {space.names[lon]} have {len(mass)} × {len(vectors)} functions on a part of a "
            "circle, too many to choose the strength of their roughness on the sphere; use up to 3,000, a circle of "
            "360° with knots at equal distances, or pass strengths, as in xs.Roughness({'sphere': 1e-6}, "
            "geometry='sphere')"
        )
    else:
        problems = [(around, np.kron(mass, around[0]))]
    norms = (np.linalg.norm(m, 2) * np.linalg.norm(w, 2) for m, w in zip(along, around, strict=True))
    largest = float(sum(list(norms)[3:]))
    solved = list[tuple[Array, Array, float]]()
    for k, (own, whole) in enumerate(problems):
        if k and np.allclose(own, problems[k - 1][0], rtol=1e-9):  # cosine and sine of one wave
            solved.append(solved[-1])
            continue
        products = np.stack([np.kron(m, w) for m, w in zip(along, own, strict=True)])
        solved.append(_shares(products[:3].sum(axis=0), whole, products[3:].sum(axis=0), largest))
    single = np.sort(np.concatenate([own for own, _, _ in solved]))
    single[0] = 0.0
    shares = np.stack([single, np.ones_like(single), np.zeros_like(single)])
    others = [held for _, held, _ in solved]
    return np.concatenate([shares, *others], axis=1), sum(log for *_, log in solved)


def _shares(rough: Array, mass: Array, strict: Array, largest: float) -> tuple[Array, Array, float]:
    """Return r, shares of the other functions, and the logarithm, of one problem, see `spectrum_on_sphere`.

    `largest` is the norm of the pole terms of all problems.
    """
    held, vectors = linalg.eigh(strict)
    many = int(np.sum(held <= tolerance(len(held)) * largest))
    rough, mass = (vectors.T @ matrix @ vectors for matrix in (rough, mass))
    free = slice(many)
    single = _eigenvalues(rough[free, free], mass[free, free])
    log_rest = float(np.linalg.slogdet(mass[free, free])[1] + np.sum(np.log(held[many:])))
    if many == len(held):
        return single, np.zeros((3, 0)), log_rest
    least = [
        m[many:, many:] - m[many:, free] @ np.linalg.pinv(m[free, free], hermitian=True) @ m[free, many:]
        for m in (rough, mass)
    ]
    values, turned = linalg.eigh(least[0], np.diag(held[many:]))
    masses = np.sum(turned * (least[1] @ turned), axis=0)
    return single, np.stack([values, masses, np.ones_like(values)]), log_rest


def _eigenvalues(rough: Array, mass: Array) -> Array:
    """Return the eigenvalues of the pencil (R, M), ascending, the smallest of 1/(1 + x) of the pencil (M, R + M).

    At a pole the largest are so large that their rounding errors exceed the smallest.
    """
    values: Array = linalg.eigh(rough, mass, eigvals_only=True)
    inverse = linalg.eigh(mass, rough + mass, eigvals_only=True)[::-1]
    small = values < math.sqrt(values[-1])
    values[small] = np.maximum(1.0 / inverse[small] - 1.0, 0.0)
    return values

"""Small systems on random spaces: their sums in every structure, and the dense definition of the solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from xspline.solve import Penalty, Resources, Roughness
from xspline.solve.costs import CostModel
from xspline.solve.select import candidates
from xspline.solve.system import Choice
from xspline.spaces import Axis, Basis, BSpline, Fourier, Polynomial, Space
from xspline.sums import Factor, Gram, Sums, digest_key

SCATTERED_KNOTS = [-0.4, -0.1, 0.0, 0.1, 0.3, 0.8, 1.0, 1.2, 1.3]

BASES: dict[str, Basis] = {
    "cubic": BSpline(5, domain=(0, 1)),
    "linear": BSpline(4, degree=1, domain=(0, 1)),
    "circle": BSpline(6, degree=2, period=1.0, domain=(0, 1)),
    "short circle": BSpline(4, degree=3, period=1.0, domain=(0, 1)),
    "uneven": BSpline(knots=SCATTERED_KNOTS, degree=2),
    "season": Fourier(1, period=1.0) + Polynomial(1, domain=(0, 1)),
    "trend": Polynomial(2, domain=(0, 1)),
    "arrow": Fourier(1, period=0.4) + BSpline(8, degree=1, domain=(0, 1)),
    "union": Polynomial(1, domain=(0, 1)) + BSpline(5, degree=2, period=1.0, domain=(0, 1)),
}
NAMES = ("a", "b", "c", "d")


@lru_cache
def space_of(*kinds: str) -> Space:
    """A space over the coordinates a, b, .. in [0, 1] with the named bases."""
    named = dict(zip(NAMES, kinds, strict=False))
    return Space({n: BASES[kind] for n, kind in named.items()}, axes={n: Axis() for n in named})


def cube(*sizes: int) -> Space:
    """B-splines along several coordinates of [0, 1]."""
    bases = {name: BSpline(k, domain=(0, 1)) for name, k in zip(NAMES, sizes, strict=False)}
    return Space(bases, axes={name: Axis() for name in bases})


spaces = (
    st.lists(st.sampled_from(sorted(BASES)), min_size=1, max_size=3)
    .map(lambda kinds: space_of(*kinds))
    .filter(lambda space: space.size <= 120)
)
rngs = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@dataclass(frozen=True, eq=False)
class Case:
    """Observations y [n.., b..] with weights w, broadcast to the same shape, on a grid of coordinates."""

    space: Space
    coordinates: tuple[np.ndarray, ...]
    y: np.ndarray
    w: np.ndarray

    @property
    def batch(self) -> tuple[int, ...]:
        return self.y.shape[len(self.coordinates) :]

    def designs(self) -> list[np.ndarray]:
        return [f.design(x) for f, x in zip(self.space.features, self.coordinates, strict=True)]

    def factor(self, axes: Sequence[int], weights: np.ndarray) -> Factor:
        """Contract weights [n.. of the axes, b..] with the pair designs."""
        frame, designs, pairs = self.space.frame, self.designs(), weights
        for axis in axes:
            # Products of the two functions of each pair (k, o) at each point: [n, K, O].
            table = np.zeros((len(designs[axis]), frame.sizes[axis], frame.offsets[axis]))
            for o in range(frame.offsets[axis]):
                first, second = frame.pairs_at(axis, o)
                table[:, first, o] = designs[axis][:, first] * designs[axis][:, second]
            pairs = np.tensordot(pairs, table, axes=(0, 0))
        count, batch = len(axes), weights.ndim - len(axes)
        order = [*range(batch, batch + 2 * count, 2), *range(batch + 1, batch + 2 * count, 2), *range(batch)]
        window = tuple((0, frame.sizes[axis]) for axis in axes)
        return Factor(tuple(axes), window, pairs.transpose(order), digest_key(str(axes), weights))

    def sums(self, gram: Gram, reference: float | np.ndarray = 0.0) -> Sums:
        """Sums with the given G, which has to be that of the weights."""
        r = np.broadcast_to(np.asarray(reference, dtype=float), self.batch)
        w, phi = self.flat(self.w), self.phi
        centred = self.flat(self.y) - r
        moment = np.tensordot(phi, w * centred, axes=(0, 0)).reshape(*self.space.shape, *self.batch)
        window = tuple((0, size) for size in self.space.shape)
        power, weight, count = (np.sum(x, axis=0) for x in (w * centred**2, w, w > 0))
        return Sums(window, gram, moment, power, weight, count, r.copy())

    def flat(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(-1, *self.batch)

    @cached_property
    def phi(self) -> np.ndarray:
        """Rows of the design, [N, P]."""
        return kron(self.designs())

    def general(self) -> Gram:
        """One factor over all coordinates, with the batch."""
        axes = range(len(self.coordinates))
        w = self.w.reshape(*self.w.shape[: len(axes)], *self.batch)
        return Gram(((self.factor(axes, w),),), len(self.batch))

    @cached_property
    def dense(self) -> np.ndarray:
        """ΦᵀWΦ, [P, P, b..]."""
        phi, w = self.phi, self.flat(self.w).reshape(len(self.phi), -1)
        members = [phi.T @ (phi * w[:, b, None]) for b in range(w.shape[1])]
        return np.stack(members, axis=-1).reshape(phi.shape[1], phi.shape[1], *self.batch)

    def expected(self, penalty: Penalty) -> np.ndarray:
        """Coefficients from the dense normal equations, [P, b..]."""
        ridge = dense_penalty(penalty, self.space)
        matrix, phi = self.dense, self.phi
        moment = np.tensordot(phi, self.flat(self.w * self.y), axes=(0, 0))
        out = np.empty_like(moment)
        for b in np.ndindex(*self.batch):
            at = (slice(None), *b)
            out[at] = np.linalg.solve(matrix[(slice(None), *at)] + ridge, moment[at])
        return out

    def edf(self, penalty: Penalty) -> np.ndarray:
        """tr((G + Λ)⁻¹ G), [b..]."""
        ridge, matrix = dense_penalty(penalty, self.space), self.dense
        batch = np.moveaxis(matrix, (0, 1), (-2, -1))
        return np.trace(np.linalg.solve(batch + ridge, batch), axis1=-2, axis2=-1)


def kron(designs: Sequence[np.ndarray]) -> np.ndarray:
    out = np.ones((1, 1))
    for design in designs:
        out = np.kron(out, design)
    return out


@lru_cache
def dense_penalty(penalty: Penalty, space: Space) -> np.ndarray:
    return penalty.gram(space).to_dense(space.frame)


def coordinates_of(space: Space, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Enough positions along each coordinate to determine it."""
    return tuple((np.arange(k + 3) + rng.random(k + 3)) / (k + 3) for k in space.shape)


def weights_of(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return np.asarray(np.exp(0.5 * rng.normal(size=shape)))


def grid(space: Space, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> tuple[Case, Gram]:
    """A full grid, weights a product over the coordinates."""
    xs = coordinates_of(space, rng)
    parts = [weights_of((len(x),), rng) for x in xs]
    return product(space, xs, [((j,), part) for j, part in enumerate(parts)], rng, batch)


def static(space: Space, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> tuple[Case, Gram]:
    """A mask over the first two coordinates, weights along the others."""
    xs = coordinates_of(space, rng)
    mask = (rng.random((len(xs[0]), len(xs[1]))) < 0.8) * weights_of((len(xs[0]), len(xs[1])), rng)
    others = [((j,), weights_of((len(xs[j]),), rng)) for j in range(2, len(xs))]
    return product(space, xs, [((0, 1), mask), *others], rng, batch)


def gaps(space: Space, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> tuple[Case, Gram]:
    """Random gaps and weights everywhere, other ones for each member of the batch."""
    xs = coordinates_of(space, rng)
    shape = (*map(len, xs), *batch)
    w = (rng.random(shape) < 0.8) * weights_of(shape, rng)
    case = Case(space, xs, rng.normal(size=shape), w)
    return case, case.general()


def product(
    space: Space,
    xs: tuple[np.ndarray, ...],
    parts: list[tuple[tuple[int, ...], np.ndarray]],
    rng: np.random.Generator,
    batch: tuple[int, ...] = (),
) -> tuple[Case, Gram]:
    """Weights that are a product of parts, each over some coordinates; shared by the batch."""
    shape = tuple(map(len, xs))
    w = np.ones(shape)
    for axes, part in parts:
        w = w * np.expand_dims(part, tuple(j for j in range(len(xs)) if j not in axes))
    y = rng.normal(size=(*shape, *batch))
    case = Case(space, xs, y, np.broadcast_to(w.reshape(shape + (1,) * len(batch)), y.shape))
    factors = tuple(case.factor(axes, part).with_batch_axes(len(batch)) for axes, part in parts)
    return case, Gram((factors,), len(batch))


def with_multiplicity(case: Case, gram: Gram, v: np.ndarray) -> tuple[Case, Gram]:
    """The same weights times one number for each member of the batch."""
    factor = Factor((), (), v, digest_key("multiplicity", v))
    return replace(case, w=case.w * v), Gram(((*gram.terms[0], factor),), gram.batch_ndim)


def moment_of(case: Case) -> np.ndarray:
    """Φᵀ W y of a grid, one coordinate after the other."""
    moment = case.w * case.y
    for design in case.designs():
        moment = np.tensordot(moment, design, axes=(0, 0))
    return moment


def roughness(space: Space, gram: Gram, share: float) -> Roughness:
    """λ_j = share · tr G / (n tr R_j) for n smoothed coordinates."""
    names = [n for n, f in zip(space.names, space.features, strict=True) if f.local]
    trace = float(np.sum(gram.diagonal(space.frame)))
    each = {n: float(np.sum(Roughness({n: 1.0}).gram(space).diagonal(space.frame))) for n in names}
    return Roughness({n: share * trace / (len(names) * x) for n, x in each.items()})


def close(a: np.ndarray, b: np.ndarray, tolerance: float = 1e-9) -> bool:
    """Equal up to a share of the largest value; NaN nowhere."""
    scale = float(np.max(np.abs(b), initial=1e-300))
    return bool(np.max(np.abs(np.asarray(a) - b), initial=0.0) <= tolerance * scale)


def on(gpu: Any = None, memory: float | None = None, cores: int | None = None, **costs: float) -> Resources:
    """The resources of this machine with a GPU, and perhaps another memory, other cores and costs."""
    here = Resources.here()
    return Resources(cores or here.cores, here.memory if memory is None else memory, gpu, CostModel(**costs))


def select(*args: Any, **kwargs: Any) -> Choice:
    """The first of the solvers that `candidates` proposes."""
    return candidates(*args, **kwargs)[0]

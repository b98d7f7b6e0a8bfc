"""Means of functions over cells: what an observation with CF bounds sees, where one without sees values at a point.

A cell is a complex number, its ends as real and imaginary part, so that cells go where labels of points go: into
blocks, keys and digests. A B-spline is integrated between knots, where it is a polynomial, and so are all others by
Gauss quadrature that is exact to rounding; a mean of harmonics is their value in the middle times sin(x)/x.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from xspline.spaces.bspline import Arrow, LocalSpline, SplineTerm
from xspline.spaces.conversions import degrees_in
from xspline.spaces.features import (
    Features,
    Floats,
    Global,
    Harmonics,
    Integers,
    SizesOfSupport,
    Support,
    TermFunctions,
    frozen,
)
from xspline.spaces.space import Space

Complexes = NDArray[np.complex128]


def as_cells(lower: Any, upper: Any) -> Complexes:
    """Cells as complex numbers."""
    out = np.empty(np.shape(lower), dtype=np.complex128)
    out.real, out.imag = lower, upper
    return out


def middle(x: Any) -> Floats:
    """Labels, or the middles of cells."""
    return np.asarray((x.real + x.imag) / 2 if np.iscomplexobj(x) else x)


def _spline_of(features: Features) -> LocalSpline | None:
    """The B-spline in cells that a basis is or holds."""
    if isinstance(features, Arrow):
        return features.spline
    return features if isinstance(features, LocalSpline) else None


def neighbours(features: Features, cells: Any) -> int:
    """How many functions of a B-spline one of some cells touches at most; those active everywhere are not counted."""
    spline, cells = _spline_of(features), np.asarray(cells).ravel()
    if spline is None:
        return features.size
    first, last = (spline.locate(x)[0] for x in (cells.real, np.nextafter(cells.imag, -np.inf)))
    used = (first >= 0) & (last >= 0)
    steps = (spline.first[last] - spline.first[first])[used]
    if spline.periodic:
        around = np.ptp(spline.ends) - np.diff(spline.edges).min()
        steps = np.where((cells.imag - cells.real)[used] > around, spline.size, steps % spline.size)
    return int(min(spline.width + np.max(steps, initial=0), spline.size))


@dataclass(frozen=True, eq=False)
class CellMeans(SizesOfSupport):
    """Features of cells: means of the functions of a basis, at most `near` neighbours of a B-spline at a time.

    A "cell" of these is a first function, and a local coordinate the cell of the data. Only what lies wholly in the
    domain is inside. Along latitude, whose unit is so many `degrees`, means are by area, as CF has them: the density is
    the cosine of latitude. With 0 they are plain.
    """

    own: Features
    near: int
    degrees: float = 0.0

    local: bool = False  # no Legendre series of the place in a knot cell
    max_order: ClassVar[int | None] = 0
    domain: tuple[float, float] | None = None  # `locate` alone tells what is inside

    @property
    def size(self) -> int:
        return self.own.size

    @property
    def periodic(self) -> bool:
        return self.own.periodic

    @property
    def support(self) -> Support:
        return Support(self.near, self.own.support.everywhere)

    @property
    def cells(self) -> int:
        if self.periodic:
            return self.size
        return self.size - self.support.everywhere - self.near + 1

    @cached_property
    def first(self) -> Integers:
        return frozen(np.arange(self.cells, dtype=np.int64))

    def locate(self, x: Any) -> tuple[Integers, Any]:
        known = np.isfinite(x)
        inside = known & (self.own.locate(x.real)[0] >= 0) & (self.own.locate(x.imag)[0] >= 0)
        first = np.zeros(x.shape, dtype=np.int64)
        if (spline := _spline_of(self.own)) is not None:
            first = spline.first[np.maximum(spline.locate(x.real)[0], 0)]
            first = first % self.size if self.periodic else np.minimum(first, self.cells - 1)
        return np.where(inside, first, -1), np.where(inside, x, as_cells(0.0, 1.0))

    locate_anywhere = locate

    def features(self, cell: Integers, z: Any, order: int = 0) -> Floats:
        if order:
            raise ValueError(f"means over cells have no derivative of order {order}")
        out, inside = np.zeros((self.width, cell.size)), np.flatnonzero(cell >= 0)
        spline, everywhere = _spline_of(self.own), self.own
        low, high = z.real[inside], z.imag[inside]
        if spline is not None:
            for part, lower, upper in _batches(low, high):
                own = self._of_spline(spline, cell[inside[part]], lower, upper)
                out[: self.near, inside[part]] = own
            everywhere = self.own.others if isinstance(self.own, Arrow) else Global((), (0.0, 1.0))
        terms = getattr(everywhere, "terms", ())
        row = self.width - sum(len(term.names) for term in terms)
        for term in terms:
            for part, lower, upper in _batches(low, high):
                out[row : row + len(term.names), inside[part]] = self._of_term(term, lower, upper)
            row += len(term.names)
        return out.T

    def _of_spline(self, spline: LocalSpline, first: Integers, lower: Floats, upper: Floats) -> Floats:
        """[near, n] means of neighbours from the first one on."""
        edges = SplineTerm(spline).panels(lower.min(initial=np.inf), upper.max(initial=-np.inf))
        owner, x, weights = self._nodes(lower, upper, edges, spline.degree + 1)
        cell, z = spline.locate(x.ravel())
        values = spline.features(cell, z) * weights.ravel()[:, None]
        owners, base = np.repeat(owner, x.shape[1]), spline.first[cell]
        out = np.zeros((self.near, lower.size))
        for a in range(spline.width):
            place = base + a - first[owners]
            place = place % spline.size if spline.periodic else place
            flat = np.bincount(place * lower.size + owners, values[:, a], minlength=out.size)
            out += flat[: out.size].reshape(out.shape)
        return out

    def _of_term(self, term: TermFunctions, lower: Floats, upper: Floats) -> Floats:
        """[k, n] means of the functions of a term."""
        if isinstance(term, Harmonics) and not self.degrees:
            values = term.values(lower + (upper - lower) / 2, 0).T
            turns = (upper - lower) / term.period
            for k in range(1, term.harmonics + 1):
                waves = slice(
                    len(values) - 2 * (term.harmonics - k + 1), len(values) - 2 * (term.harmonics - k)
                )
                values[waves] *= np.sinc(k * turns)
            return values
        edges = term.panels(lower.min(initial=np.inf), upper.max(initial=-np.inf))
        owner, x, weights = self._nodes(lower, upper, edges, term.nodes)
        values = term.values(x.ravel(), 0).reshape(*x.shape, -1) * weights[:, :, None]
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        return np.add.reduceat(values.sum(axis=1), starts, axis=0).T if starts.size else np.zeros((0, 0)).T

    def _nodes(
        self, lower: Floats, upper: Floats, edges: Floats, count: int
    ) -> tuple[Integers, Floats, Floats]:
        """Pieces of cells between edges: whose each is [m], nodes [m, q], and weights that add up to 1 for a cell."""
        first = np.searchsorted(edges, lower, "right")
        last = np.searchsorted(edges, upper, "left")
        pieces = last - first + 1
        owner = np.repeat(np.arange(lower.size), pieces)
        number = np.arange(owner.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        at, final = first[owner] + number, edges.size - 1
        left = np.where(number == 0, lower[owner], edges[np.clip(at - 1, 0, final)])
        right = np.where(number == pieces[owner] - 1, upper[owner], edges[np.clip(at, 0, final)])
        # A cosine between two poles takes 14 nodes more, for an error below 1e-16.
        z, w = legendre.leggauss(count + (14 if self.degrees else 0))
        half = (right - left)[:, None] / 2
        x = left[:, None] + half * (1 + z)
        weights = half * w * (np.cos(np.deg2rad(x * self.degrees)) if self.degrees else 1.0)
        return owner, x, weights / np.bincount(owner, weights.sum(axis=1))[owner, None]

    def design(self, x: Any, order: int = 0) -> Floats:
        cell, z = self.locate(x)
        values, rows = self.features(cell, z, order), np.arange(cell.size)
        if _spline_of(self.own) is None:
            out = values
        else:
            m, out = self.support.everywhere, np.zeros((cell.size, self.size))
            for a in range(self.near):
                out[rows, (m + cell + a) % self.size] += values[:, a]
            out[:, :m] = values[:, self.near :]
        out[cell < 0] = np.nan
        return out

    def constant(self) -> Floats:
        return self.own.constant()

    def roughness(self, order: int) -> Floats:
        return self.own.roughness(order)

    def labels(self) -> list[str] | Floats:
        return self.own.labels()

    def sample(self) -> Floats:
        return self.own.sample()

    def count_touched(self, lo: Any, hi: Any) -> Integers:
        touched = self.own.count_touched(lo.real, hi.imag)
        return np.minimum(touched + np.where(touched > 0, self.width - self.own.width, 0), self.size)


def _batches(lower: Floats, upper: Floats) -> Iterator[tuple[slice, Floats, Floats]]:
    """Some cells at a time, which bounds the memory of their nodes."""
    for start in range(0, lower.size, 1 << 12):
        part = slice(start, start + (1 << 12))
        yield part, lower[part], upper[part]


class CellSpace(Space):
    """A space whose functions are means over cells along some coordinates.

    It is equal to the space of points, has its digest and coefficients, and is for sums and values alone.

    Parameters
    ----------
    space : the one of points.
    near : by coordinate that has cells, how many neighbours among its functions a cell touches at most.
    """

    own: Space
    near: Mapping[str, int]

    def __init__(self, space: Space, near: Mapping[str, int]) -> None:
        object.__setattr__(self, "axes", space.axes)
        object.__setattr__(self, "from_data", space.from_data)
        object.__setattr__(self, "coupled", space.coupled)
        object.__setattr__(self, "own", space)
        object.__setattr__(self, "near", dict(near))

    @cached_property
    def features(self) -> tuple[Features, ...]:
        return tuple(
            self._means(name, f) if name in self.near else f
            for name, f in zip(self.names, self.own.features, strict=True)
        )

    def _means(self, name: str, features: Features) -> CellMeans:
        axis = self.axis(name)
        degrees = (degrees_in(axis.units) or 1.0) if axis.role == "latitude" else 0.0
        return CellMeans(features, self.near[name], degrees)

    @staticmethod
    def over(space: Space, coordinates: Sequence[Any]) -> Space:
        """The space of means along those coordinates, one per coefficient axis, that are cells; else the same."""
        own = space.own if isinstance(space, CellSpace) else space
        known = zip(own.names, own.features, coordinates, strict=True)
        near = {name: neighbours(f, x) for name, f, x in known if np.iscomplexobj(x)}
        return CellSpace(own.coupling(near), near) if near else space

    def __reduce__(self) -> tuple[Any, ...]:
        return CellSpace, (self.own, self.near)

"""The part of the domain that a roughness is integrated over: the cells of a mask, between which land is a wall."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from xspline.arguments import brief
from xspline.spaces import Axis, Space
from xspline.spaces.basis import coordinate_in_errors
from xspline.spaces.bspline import LocalSpline
from xspline.spaces.conversions import converted, units_of
from xspline.sums import Factor, Gram, digest_key, observed_cells
from xspline.sums.integrals import integral

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sea:
    """The cells of a mask that are True, over some coordinates.

    `text` is JSON: ``dims`` in the order of the alphabet, ascending ``labels`` of each, and the lengths of ``runs`` of
    cells in row-major order that are False and True in turn; and ``units`` of labels that have some.
    """

    text: str

    # What land counts of what sea does, so that coefficients there are determined: the share of a roughness of order 1
    # with as large a diagonal. Measured: it moves values by 1e-4 of their jump at a wall; below 1e-8 rounding shows.
    land: ClassVar[float] = 1e-7

    @staticmethod
    def of(where: Any) -> Sea:
        """Return the sea of a boolean DataArray; a label's cell reaches half-way to the next ones."""
        if isinstance(where, Sea):
            return where
        if not hasattr(where, "dims") or getattr(where, "dtype", None) != np.bool_ or not where.dims:
            raise ValueError(
                f"where={brief(where)} has to be a DataArray of bool, True where there is sea, over fitted "
                "coordinates; compare a mask of numbers first, as in where=(mask > 0)"
            )
        dims = sorted(map(str, where.dims))
        values = np.asarray(where.transpose(*dims).values)
        labels = {}
        units = {name: unit for name in dims if (unit := units_of(where[name]))}
        for j, name in enumerate(dims):
            if name not in where.coords:
                raise ValueError(
                    f"dimension {name!r} of where= has no labels; assign them: .assign_coords({name}=...)"
                )
            own = np.asarray(where[name].values)
            axis = Axis.infer(name, own)
            x = axis.to_float(own)
            order = np.argsort(x)
            if x.size < 2 or not (np.diff(x[order]) > 0).all():
                raise ValueError(
                    f"the labels of {name!r} of where= have to be two or more, all different and none missing, and are "
                    f"{brief(own.tolist())}; drop_duplicates({name!r}) first"
                )
            values = np.take(values, order, axis=j)
            labels[name] = [float(v) if axis.kind == "number" else axis.text(v) for v in x[order]]
        if not values.any():
            raise ValueError(
                "where= is True nowhere: there is no sea to be smoothed; is it the mask of land?"
            )
        flat = values.ravel()
        ends = np.flatnonzero(np.diff(flat, prepend=False)).tolist()
        runs = np.diff([0, *ends, flat.size]).tolist()
        data = {"dims": dims, "labels": labels, "runs": runs}
        return Sea.from_dict({**data, "units": units} if units else data)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Sea:
        """Inverse of `to_dict`."""
        return Sea(json.dumps(data, sort_keys=True))

    def to_dict(self) -> dict[str, Any]:
        """Dims, labels and runs."""
        return dict(json.loads(self.text))

    @cached_property
    def _parsed(self) -> tuple[tuple[str, ...], dict[str, Any], NDArray[np.bool_]]:
        """Names, labels and the mask [L..]."""
        data = self.to_dict()
        labels = {name: data["labels"][name] for name in data["dims"]}
        flat = np.repeat(np.arange(len(data["runs"])) % 2 == 1, data["runs"])
        return tuple(labels), labels, flat.reshape([len(own) for own in labels.values()])

    def __repr__(self) -> str:
        names, _, mask = self._parsed
        return f"<{' × '.join(map(str, mask.shape))} cells of {', '.join(names)}, {mask.mean():.0%} True>"

    # --- on a space

    def on(self, space: Space) -> Sea:
        """Return the same with labels in the units of a space, which equal spaces may not share."""
        data = self.to_dict()
        given = data.pop("units", {})
        for name in given.keys() & set(space.names):
            with coordinate_in_errors(f"{name} of where="):
                x = converted(np.array(data["labels"][name]), given[name], space.axis(name).units)
            data["labels"][name] = x.tolist()
        return Sea.from_dict(data) if given else self

    def axes(self, space: Space) -> tuple[int, ...]:
        """Return the axes of its coordinates in a space, ascending; raise ValueError where it does not fit."""
        return tuple(sorted(space.names.index(name) for name in _pieces(self.on(space), space)))

    def factor(self, space: Space, along: int, order: int) -> Factor:
        """Return the roughness along one axis over the sea, as a factor of all axes of the sea.

        Along an axis that it does not have it is the mass, of order 0. Land adds next to nothing, see `land`.
        """
        return _factor(self.on(space), space, along, order)

    def straddling(self, space: Space) -> tuple[int, int, dict[str, float]]:
        """Return how many functions reach over land from one water to another, of how many in the sea, and where.

        Of the cells in the support of a function, the number of parts less that of islands is an alternating sum over
        blocks of cells (Euler's characteristic). Where it is above 1 there are several parts.
        """
        axes, mask = self.axes(space), self._mask(space)
        touched = [self._integrals(space, j, 0)[..., 0] > 0 for j in axes]
        parts: Any = 0.0
        for ahead in itertools.product((False, True), repeat=len(axes)):
            blocks, active = mask, list(touched)
            for i in np.flatnonzero(ahead):
                blocks = blocks & np.roll(blocks, -1, axis=i)
                active[i] = active[i] & np.roll(active[i], -1, axis=0)
                if space.axis(space.names[axes[i]]).wrap is None:
                    active[i][-1] = False
            parts = parts + (-1) ** sum(ahead) * _contracted(blocks, active)
        worst = np.unravel_index(np.argmax(parts), parts.shape)
        place = {
            space.names[j]: float(space.features[j].sample()[k]) for j, k in zip(axes, worst, strict=True)
        }
        return int((parts > 1.5).sum()), int((_contracted(mask, touched) > 0).sum()), place

    def ashore(self, gram: Gram, space: Space) -> tuple[int, int]:
        """Return how many cells between knots with observations hold no sea, of how many."""
        axes, observed, touched = self.axes(space), observed_cells(gram, space), []
        for j in axes:
            breaks, owner = _pieces(self.on(space), space)[space.names[j]]
            f: Any = space.features[j]
            touched.append(np.zeros((len(self._parsed[1][space.names[j]]), f.cells)))
            touched[-1][owner, f.locate((breaks[1:] + breaks[:-1]) / 2)[0]] = 1.0
            observed = np.take(observed, range(1, 2 * f.cells, 2), axis=j)
        others = tuple(a for a in range(observed.ndim) if a not in axes)
        count = observed.sum(axis=others)
        return int(count[_contracted(self._mask(space), touched) == 0].sum()), int(count.sum())

    def _mask(self, space: Space) -> NDArray[np.bool_]:
        """Return the mask with its coordinates in the order of the space."""
        names, _, mask = self._parsed
        return mask.transpose([names.index(space.names[j]) for j in self.axes(space)])

    def _integrals(self, space: Space, j: int, order: int) -> Array:
        """∫ D^order B_k D^order B_{k+o} dξ over each cell of axis j, ξ in [0, 1] over the domain: [L, K, O]."""
        breaks, owner = _pieces(self.on(space), space)[space.names[j]]
        f: Any = space.features[j]
        width = float(np.ptp(f.ends))
        nodes, weights = legendre.leggauss(f.degree + 1)
        radius = np.diff(breaks) / 2
        cell = f.locate(breaks[:-1] + radius)[0]
        many = np.repeat(cell, nodes.size)
        x = breaks[:-1, None] + radius[:, None] * (1 + nodes)
        values = f.features(many, f.local_coordinate(many, x.ravel()), order).reshape(*x.shape, f.width)
        out = np.zeros((len(self._parsed[1][space.names[j]]), f.size, f.offsets))
        for a, o in zip(*f.support.index(pairs=True), strict=True):
            own = np.einsum("cn,cn,n->c", values[..., a], values[..., a + o], weights)
            np.add.at(out, (owner, (f.first[cell] + a) % f.size, o), own * radius * width ** (2 * order - 1))
        return out


def _contracted(given: NDArray[Any], parts: Sequence[NDArray[Any]]) -> Array:
    """Return Σ_l given[l..] Π_j parts_j[l_j, k_j..], [k_1.., k_2..]."""
    for part in parts:
        given = np.tensordot(given, part.astype(np.float64), axes=(0, 0))
    return given


@functools.lru_cache(maxsize=64)  # needed again at every strength that is tried
def _factor(sea: Sea, space: Space, along: int, order: int) -> Factor:
    axes = sea.axes(space)
    total = _contracted(sea._mask(space), [sea._integrals(space, j, order * (j == along)) for j in axes])
    # On land gradients along all axes count alike, so that strengths which are far apart determine it as well.
    whole = np.zeros(total.shape)
    for slope in axes if order else (-1,):
        pairs = [integral(space, j, int(j == slope)).pairs for j in axes]
        whole += functools.reduce(np.multiply.outer, pairs)
    diagonal = (slice(None), 0) * len(axes)
    total += Sea.land * float(total[diagonal].sum() / whole[diagonal].sum()) * whole
    pairs_last = total.transpose([*range(0, total.ndim, 2), *range(1, total.ndim, 2)])
    window = tuple((0, space.shape[j]) for j in axes)
    return Factor(axes, window, pairs_last, digest_key(str(axes), f"{order} along {along}", sea.text))


@functools.lru_cache(maxsize=64)
def _pieces(sea: Sea, space: Space) -> dict[str, tuple[Array, NDArray[np.int64]]]:
    """Return, by coordinate, the ends of pieces between knots and borders of cells, and the cell that each is in."""
    out = {}
    for name, labels in sea._parsed[1].items():
        if name not in space.names:
            raise ValueError(
                f"where= has the dimension {name!r}, which is no fitted coordinate (these are "
                f"{', '.join(space.names)}); select one of its labels, .isel({name}=0), or rename it"
            )
        features = space.features[space.names.index(name)]
        if not isinstance(features, LocalSpline):
            raise ValueError(
                f"where= masks {name!r}, whose basis {space.basis(name)!r} is no B-spline with functions in one place "
                f"each; take a BSpline along {name!r}"
            )
        axis, (lo, hi) = space.axis(name), features.ends
        lower, upper, which = _cells(axis.to_float(labels), axis.wrap, lo)
        breaks = np.unique(np.concatenate([features.edges, np.clip([*lower, *upper], lo, hi)]))
        # One that was rounded twice is one.
        breaks = breaks[np.append(True, np.diff(breaks) > 1e-9 * (hi - lo))]
        middle = (breaks[1:] + breaks[:-1]) / 2
        at = np.searchsorted(lower, middle) - 1
        if ((at < 0) | (middle > upper[at])).any():
            raise ValueError(
                f"the cells of where= reach from {axis.text(lower.min())} to {axis.text(upper.max())} along {name!r} "
                f"and do not cover its domain, {axis.text(lo)} to {axis.text(hi)}; give the mask labels there, or fit "
                "a smaller domain"
            )
        out[name] = breaks, which[at]
    return out


def _cells(x: Array, wrap: float | None, start: float) -> tuple[Array, Array, NDArray[np.int64]]:
    """Return the ends of the cells around labels, ascending, and their labels; on a circle of three turns."""
    x = x if wrap is None else (x - start) % wrap + start
    which = np.argsort(x)
    x = x[which]
    gaps = np.diff(x)
    around = np.inf if wrap is None else x[0] + wrap - x[-1]
    first, last = (around, around) if around <= 2 * gaps.max() else (gaps[0], gaps[-1])
    lower, upper = x - np.append(first, gaps) / 2, x + np.append(gaps, last) / 2
    turns = np.array([0.0] if wrap is None else [-wrap, 0.0, wrap])[:, None]
    return (turns + lower).ravel(), (turns + upper).ravel(), np.tile(which, turns.size)

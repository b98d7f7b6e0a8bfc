"""The part of the domain that a roughness is integrated over: the cells of a mask, between which land is a wall."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from xspline.arguments import brief
from xspline.spaces import Axis, Space
from xspline.spaces.bspline import LocalSpline
from xspline.sums import Factor, digest_key
from xspline.sums.integrals import integral

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Region:
    """The cells of a mask that are True, over some coordinates.

    `text` is JSON: ``dims`` in the order of the alphabet, ascending ``labels`` of each, and the lengths of ``runs`` of
    cells in row-major order that are False and True in turn.
    """

    text: str

    # What land counts of what sea does, so that coefficients there are determined: the share of a roughness of order 1
    # with as large a diagonal. Beside a basin alone it moves values by 4e-4 of a jump of 5; of 1e-8 rounding errors show.
    land: ClassVar[float] = 1e-7

    @staticmethod
    def of(where: Any) -> Region:
        """Return the region of a boolean DataArray; a label's cell reaches half-way to the next ones."""
        if isinstance(where, Region):
            return where
        if not hasattr(where, "dims") or getattr(where, "dtype", None) != np.bool_ or not where.dims:
            raise ValueError(
                f"where={brief(where)} has to be a DataArray of bool, True where there is sea, over fitted "
                "coordinates; compare a mask of numbers first, as in where=(mask > 0)"
            )
        dims = sorted(map(str, where.dims))
        values = np.asarray(where.transpose(*dims).values)
        labels = {}
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
            raise ValueError("where= is True nowhere: there is no sea to be smoothed; is it the mask of land?")
        flat = values.ravel()
        ends = np.flatnonzero(np.diff(flat, prepend=False)).tolist()
        runs = np.diff([0, *ends, flat.size]).tolist()
        return Region.from_dict({"dims": dims, "labels": labels, "runs": runs})

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Region:
        """Inverse of `to_dict`."""
        return Region(json.dumps(data, sort_keys=True))

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

    def axes(self, space: Space) -> tuple[int, ...]:
        """Return the axes of its coordinates in a space, ascending; raise ValueError where it does not fit."""
        return tuple(sorted(space.names.index(name) for name in _cells(self, space)))

    def factor(self, space: Space, along: int, order: int) -> Factor:
        """Return the roughness along one axis over the sea, [K.., O..] over all axes of the region.

        Along an axis that it does not have, or of order 0, it is the mass. Land adds next to nothing, see `land`.
        """
        return _factor(self, space, along, order)

    def straddling(self, space: Space) -> tuple[int, int, dict[str, float]]:
        """Return how many functions reach over land from one water to another, of how many in the sea, and where.

        Of the cells in the support of a function, the number of parts less that of islands is an alternating sum over
        blocks of cells (Euler's characteristic). Where it is above 1 there are several parts.
        """
        mask, own = self._on(space)
        names = [space.names[j] for j in own]
        touched = [own[j][..., 0] > 0 for j in own]
        parts = np.zeros([space.shape[j] for j in own])
        for ahead in itertools.product((False, True), repeat=len(own)):
            blocks = mask
            active = []
            for i, (j, is_next) in enumerate(zip(own, ahead, strict=True)):
                cells = touched[i]
                if is_next:
                    blocks = blocks & np.roll(blocks, -1, axis=i)
                    cells = cells & np.roll(cells, -1, axis=0)
                    if space.axis(space.names[j]).wrap is None:
                        cells[-1] = False
                active.append(cells.astype(np.float64))
            parts += (-1) ** sum(ahead) * contracted(blocks.astype(np.float64), active)
        sea = contracted(mask.astype(np.float64), [t.astype(np.float64) for t in touched]) > 0
        worst = np.unravel_index(np.argmax(parts), parts.shape)
        place = {n: float(space.features[j].sample()[k]) for n, j, k in zip(names, own, worst, strict=True)}
        return int((parts > 1.5).sum()), int(sea.sum()), place

    def _on(self, space: Space, order: int = 0, along: int = -1) -> tuple[NDArray[np.bool_], dict[int, Array]]:
        """Return the mask in the order of the space, and integrals over each of its cells by axis, [L, K, O]."""
        names, _, mask = self._parsed
        cells = _cells(self, space)
        axes = {space.names.index(name): name for name in names}
        own = {}
        for j in sorted(axes):
            count = mask.shape[names.index(axes[j])]
            own[j] = cell_pairs(space, j, cells[axes[j]], count, order if j == along else 0)
        return mask.transpose([names.index(axes[j]) for j in sorted(axes)]), own


def contracted(given: Array, parts: list[Array]) -> Array:
    """Return Σ_l given[l..] Π_j parts_j[l_j, k_j..], [k_1.., k_2..]."""
    for part in parts:
        given = np.tensordot(given, part, axes=(0, 0))
    return given


def _ordered(pairs: Array) -> Array:
    """[K_1, O_1, K_2, ..] to [K.., O..]."""
    return pairs.transpose([*range(0, pairs.ndim, 2), *range(1, pairs.ndim, 2)])


@functools.lru_cache(maxsize=64)
def _factor(region: Region, space: Space, along: int, order: int) -> Factor:
    mask, own = region._on(space, order, along)
    count = len(own)
    pairs = _ordered(contracted(mask.astype(np.float64), list(own.values())))
    # On land gradients along all axes count alike, so that strengths which are far apart determine it as well.
    slopes = list(own) if order and along in own else [-1]
    whole = sum(
        _ordered(functools.reduce(np.multiply.outer, [integral(space, j, int(j == slope)).pairs for j in own]))
        for slope in slopes
    )
    diagonal = (..., *(0,) * count)
    pairs = pairs + Region.land * float(pairs[diagonal].sum() / whole[diagonal].sum()) * whole
    window = tuple((0, k) for k in pairs.shape[:count])
    return Factor(tuple(own), window, pairs, digest_key(str(tuple(own)), str(along), str(order), region.text))


@functools.lru_cache(maxsize=64)
def _cells(region: Region, space: Space) -> dict[str, tuple[Array, NDArray[np.int64]]]:
    """Return by coordinate what `_pieces` does."""
    out = {}
    _, labels, _ = region._parsed
    for name, own in labels.items():
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
        x = space.axis(name).to_float(own)
        out[name] = _pieces(space, name, features, x)
    return out


def _pieces(space: Space, name: str, features: LocalSpline, x: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return the ends [n + 1] of pieces of a domain between knots and borders of cells, and the cell of each [n]."""
    lo, hi = features.ends
    axis = space.axis(name)
    which = np.arange(x.size)
    gaps = np.diff(x)
    outer = gaps[0], gaps[-1]
    if axis.wrap is not None:
        x = (x - lo) % axis.wrap + lo
        which = np.argsort(x)
        x = x[which]
        gaps = np.diff(x)
        around = x[0] + axis.wrap - x[-1]
        outer = (around, around) if around <= 2 * gaps.max() else (gaps[0], gaps[-1])
    lower = x - np.append(outer[0], gaps) / 2
    upper = x + np.append(gaps, outer[1]) / 2
    if axis.wrap is not None:
        turns = np.array([-axis.wrap, 0.0, axis.wrap])[:, None]
        lower, upper = ((turns + end).ravel() for end in (lower, upper))
        which = np.tile(which, 3)
    breaks = np.unique(np.concatenate([features.edges, np.clip(lower, lo, hi), np.clip(upper, lo, hi)]))
    breaks = breaks[np.append(True, np.diff(breaks) > 1e-9 * (hi - lo))]
    middle = (breaks[1:] + breaks[:-1]) / 2
    at = np.searchsorted(lower, middle) - 1
    outside = (at < 0) | (middle > upper[at])
    if outside.any():
        raise ValueError(
            f"the cells of where= reach from {axis.text(lower.min())} to {axis.text(upper.max())} along {name!r} and do "
            f"not cover its domain, {axis.text(lo)} to {axis.text(hi)}; give the mask labels there, or fit a smaller "
            "domain"
        )
    return breaks, which[at]


def cell_pairs(
    space: Space, j: int, cells: tuple[Array, NDArray[np.int64]], count: int, order: int
) -> Array:
    """∫ D^order B_k D^order B_{k+o} dξ over each cell, ξ in [0, 1] over the domain: [L, K, O]."""
    breaks, owner = cells
    f = space.features[j]
    assert isinstance(f, LocalSpline)
    lo, hi = f.ends
    nodes, weights = legendre.leggauss(f.degree + 1)
    half = np.diff(breaks) / 2
    cell = f.locate(breaks[:-1] + half)[0]
    x = breaks[:-1, None] + half[:, None] * (1 + nodes)
    z = f.local_coordinate(np.repeat(cell, nodes.size), x.ravel())
    values = f.features(np.repeat(cell, nodes.size), z, order).reshape(*x.shape, f.width)
    scale = half / (hi - lo) * (hi - lo) ** (2 * order)
    out = np.zeros((count, f.size, f.offsets))
    for a, o in zip(*f.pair_index(), strict=True):
        own = np.einsum("cn,cn,n->c", values[..., a], values[..., a + o], weights) * scale
        np.add.at(out, (owner, (f.first[cell] + a) % f.size, o), own)
    return out

"""A block apart by holder: read once, then the rows of each along one axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from xspline.execution.source import axes_of_coordinates
from xspline.kernels import Block, Layout
from xspline.sums import Sums

Rows = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Share:
    """What one holder has of a block.

    Attributes
    ----------
    code : number of the holder.
    block : its rows; they start where the first of them lies.
    axis : data axis along which they are rows.
    places : index of each row in the whole data, ascending.
    """

    code: int
    block: Block
    axis: int
    places: Rows

    def placed(self, sums: Sums) -> Sums:
        """Return the sums of `block` with the places in their tally counted in the whole data."""
        infinity, bad_weight = (self._place(i) for i in (sums.tally.infinity, sums.tally.bad_weight))
        return replace(sums, tally=replace(sums.tally, infinity=infinity, bad_weight=bad_weight))

    def _place(self, index: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if index is None:
            return None
        row = int(self.places[index[self.axis] - int(self.places[0])])
        return (*index[: self.axis], row, *index[self.axis + 1 :])


def apart(block: Block, layout: Layout, axis: int, codes: NDArray[np.integer[Any]]) -> Iterator[Share]:
    """Yield the share of each holder that has rows in the block, by ascending code.

    Parameters
    ----------
    block, layout : the data, and which of their axes the coordinates span.
    axis : data axis that is shared out.
    codes : whose each row is, along that axis of the block.
    """
    order = np.argsort(codes, kind="stable")
    found, first = np.unique(codes[order], return_index=True)
    start = (block.start or (0,) * block.values.ndim)[axis]
    for code, rows in zip(found, np.split(order, first)[1:], strict=True):
        yield Share(int(code), _taken(block, layout, axis, rows), axis, start + rows)


def _taken(block: Block, layout: Layout, axis: int, rows: Rows) -> Block:
    """Return the block of some rows along one axis, with the coordinates and weights that span it."""
    start = list(block.start or (0,) * block.values.ndim)
    start[axis] += int(rows[0])
    spans = zip(axes_of_coordinates(layout), block.coordinates, strict=True)
    return replace(
        block,
        values=_take(block.values, axis, rows),
        coordinates=tuple(_take(x, a.index(axis), rows) if axis in a else x for a, x in spans),
        weights=tuple((a, _take(w, a.index(axis), rows) if axis in a else w) for a, w in block.weights),
        start=tuple(start),
    )


def _take(array: Any, axis: int, rows: Rows) -> Any:
    """Return some rows along one axis; a view where they follow each other."""
    if rows[-1] - rows[0] == len(rows) - 1:
        return array[(*(slice(None),) * axis, slice(int(rows[0]), int(rows[-1]) + 1), ...)]
    xp, device = array_api_compat.array_namespace(array), array_api_compat.device(array)
    return xp.take(array, xp.asarray(rows, device=device), axis=axis)

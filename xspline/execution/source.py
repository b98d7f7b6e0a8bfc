"""What there is to accumulate: values in memory, in Dask blocks or in their store; how to cut a block out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import dask.array as da
import numpy as np
from dask.sizeof import sizeof

from xspline.execution.retry import retrying
from xspline.kernels import Block, Layout

Slices = tuple[slice, ...]


@runtime_checkable
class Reader(Protocol):
    """An array that is still in its store: read a box of it at a time.

    Attributes
    ----------
    shape, dtype : as of an array.
    chunks : shape of the storage chunks, counted from index 0, or None where that is not known.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    chunks: tuple[int, ...] | None

    def read(self, slices: Slices) -> Any:
        """Return the array over the box `slices` (one slice of step 1 per axis)."""
        ...


class Opaque:
    """A Reader for Dask to carry: its size is never asked, so nothing is loaded to find it out."""

    __slots__ = ("reader",)

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    @property
    def shape(self) -> tuple[int, ...]:
        return self.reader.shape

    @property
    def ndim(self) -> int:
        return len(self.reader.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.reader.dtype

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return self.reader.chunks

    def read(self, slices: Slices) -> Any:
        return self.reader.read(slices)

    __getitem__ = read  # for Dask's own tasks, which are tried again as a whole


@sizeof.register(Opaque)
def _sizeof_opaque(_: Opaque) -> int:
    return 64


@dataclass(frozen=True, eq=False)
class Source:
    """One variable with its coordinates and weights, as arrays.

    Attributes
    ----------
    values : [data axes..] NumPy, CuPy or Dask array, or a Reader.
    coordinates : per coefficient axis (Space order) floats of its axis, shape = its group's data axes.
    weights : (data axes, array over exactly those axes) pairs; their product is the weight.
    layout : which data axes go to which coefficient axes.
    label : what errors call this variable.
    """

    values: Any
    coordinates: tuple[Any, ...]
    weights: tuple[tuple[tuple[int, ...], Any], ...]
    layout: Layout
    label: str = "values"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.values.dtype)

    @property
    def is_lazy(self) -> bool:
        """Whether the values, or anything else, must be computed or read first."""
        return not in_memory(self.values) or any(is_dask(a) for _, a in self.parts)

    @property
    def consumed(self) -> tuple[int, ...]:
        """Data axes that the fit sums over."""
        return tuple(sorted(a for group in self.layout.groups for a in group.data_axes))

    @property
    def parts(self) -> tuple[tuple[tuple[int, ...], Any], ...]:
        """(data axes, array) of the coordinates, then of the weights."""
        return (*zip(axes_of_coordinates(self.layout), self.coordinates, strict=True), *self.weights)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The values, then the arrays of `parts`."""
        return (self.values, *(array for _, array in self.parts))

    def with_parts(self, values: Any, arrays: Sequence[Any]) -> Source:
        """Return the same with other arrays, in the order of `parts`."""
        n = len(self.coordinates)
        weights = tuple((axes, a) for (axes, _), a in zip(self.weights, arrays[n:], strict=True))
        return Source(values, tuple(arrays[:n]), weights, self.layout, self.label)

    def block(self, slices: Slices) -> Block:
        """Return the Block over a box of the data, coordinates and weights cut alike."""
        arrays = [cut(array, axes, slices) for axes, array in self.parts]
        return as_block(self, cut(self.values, tuple(range(len(slices))), slices), arrays, slices)


def as_block(source: Source, values: Any, arrays: Sequence[Any], slices: Slices) -> Block:
    """Return the Block of these values and parts, which lie at `slices` of the whole."""
    n = len(source.coordinates)
    coordinates = tuple(np.asarray(a, dtype=np.float64) for a in arrays[:n])
    weights = tuple((axes, a) for (axes, _), a in zip(source.weights, arrays[n:], strict=True))
    return Block(values, coordinates, weights, tuple(s.start for s in slices), None)


def cut(array: Any, axes: tuple[int, ...], slices: Slices) -> Any:
    """Return the part of `array`, over the data axes `axes`, that lies in the box `slices` of the data."""
    box = tuple(slices[a] for a in axes)
    return retrying(array.read, box) if is_reader(array) else array[(*box, ...)]


def whole(shape: Sequence[int]) -> Slices:
    """Return the box that holds everything."""
    return tuple(slice(0, n) for n in shape)


def axes_of_coordinates(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Return the data axes of each coefficient axis, in Space order."""
    found = {k: group.data_axes for group in layout.groups for k in group.coefficient_axes}
    return tuple(found[k] for k in sorted(found))


def is_dask(array: Any) -> bool:
    return isinstance(array, da.Array)


def is_reader(array: Any) -> bool:
    return isinstance(array, Reader)


def in_memory(array: Any) -> bool:
    return not is_dask(array) and not is_reader(array)


def nbytes(array: Any) -> int:
    """Return the bytes of an array, read or not, without touching it."""
    return math.prod(array.shape) * np.dtype(array.dtype).itemsize

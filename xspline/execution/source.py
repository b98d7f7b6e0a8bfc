"""What there is to accumulate: values in memory, in Dask blocks or in their store; how to cut a block out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
class Owners:
    """Whose the entries along one data axis are.

    Attributes
    ----------
    axis : the data axis; it is not a batch axis.
    codes : along it, integers from 0 to count - 1, NumPy or Dask; None where they come by the block.
    count : number of holders.
    """

    axis: int
    codes: Any
    count: int


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
    owners : whose the observations are, where several holders share the data; None for one.
    """

    values: Any
    coordinates: tuple[Any, ...]
    weights: tuple[tuple[tuple[int, ...], Any], ...]
    layout: Layout
    label: str = "values"
    owners: Owners | None = None

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
        """(data axes, array) of the coordinates, then of the weights, then of the codes of holders."""
        coordinates = zip(axes_of_coordinates(self.layout), self.coordinates, strict=True)
        codes = () if self.owners is None else (((self.owners.axis,), self.owners.codes),)
        return (*coordinates, *self.weights, *codes)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The values, then the arrays of `parts`."""
        return (self.values, *(array for _, array in self.parts))

    def with_parts(self, values: Any, arrays: Sequence[Any]) -> Source:
        """Return the same with other arrays, in the order of `parts`."""
        n = len(self.coordinates)
        owners = None if self.owners is None else replace(self.owners, codes=arrays[-1])
        return replace(
            self, values=values, coordinates=tuple(arrays[:n]), weights=_weights(self, arrays), owners=owners
        )


def as_block(source: Source, values: Any, arrays: Sequence[Any], slices: Slices) -> Block:
    """Return the Block of these values and parts, which lie at `slices` of the whole."""
    coordinates = tuple(np.asarray(a, dtype=np.float64) for a in arrays[: len(source.coordinates)])
    return Block(values, coordinates, _weights(source, arrays), tuple(s.start for s in slices), None)


def _weights(source: Source, arrays: Sequence[Any]) -> tuple[tuple[tuple[int, ...], Any], ...]:
    """Return weights with other arrays, in the order of `Source.parts`."""
    n = len(source.coordinates)
    found = arrays[n : n + len(source.weights)]
    return tuple((axes, a) for (axes, _), a in zip(source.weights, found, strict=True))


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

"""What there is to sum: values in memory, in Dask blocks or in their store; how a box of it is read or split."""

from __future__ import annotations

import io
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import array_api_compat
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from xspline.execution.limits import LIMITS
from xspline.kernels import Block, Layout
from xspline.sums import Sums
from xspline.sums.memory import Series

Slices = tuple[slice, ...]
T = TypeVar("T")


@runtime_checkable
class Reader(Protocol):
    """An array that is still in its store: read a box of it at a time."""

    shape: tuple[int, ...]
    dtype: np.dtype
    # the shape of the storage chunks, counted from index 0, or None where that is not known
    chunks: tuple[int, ...] | None

    def read(self, slices: Slices) -> Any:
        """Return the array over the box `slices` (one slice of step 1 per axis)."""


class Opaque:
    """A Reader for Dask to carry: its size is never asked, so nothing is loaded to find it out."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.shape, self.ndim = reader.shape, len(reader.shape)
        self.dtype, self.chunks = reader.dtype, reader.chunks

    def read(self, slices: Slices) -> Any:
        return self.reader.read(slices)

    __getitem__ = read  # for Dask's own tasks, which are tried again as a whole


@dataclass(frozen=True, eq=False)
class HolderCodes:
    """Whose the entries along one data axis are."""

    axis: int  # a data axis and no batch axis
    codes: Any  # integers from 0 to count - 1 along it, NumPy or Dask; None where they come by the block
    count: int


@dataclass(frozen=True, eq=False)
class Source:
    """One variable with its coordinates and weights, as arrays."""

    values: Any  # [data axes..] NumPy, CuPy or Dask array, or a Reader
    # per coefficient axis (Space order) floats of its axis, shape = its group's data axes
    coordinates: tuple[Any, ...]
    # (data axes, array over exactly those axes) pairs; their product is the weight
    weights: tuple[tuple[tuple[int, ...], Any], ...]
    layout: Layout  # which data axes go to which coefficient axes
    label: str = "values"  # what errors call this variable
    # whose the observations are, where several holders share the data; None for one
    holders: HolderCodes | None = None
    series: Series | None = None  # along which axis errors remember, if they do
    engine: str | None = None  # which twin of the contraction sums its blocks; None: by the array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.values.dtype)

    @property
    def is_lazy(self) -> bool:
        """Whether the values, or anything else, must be computed or read first."""
        return not in_memory(self.values) or any(is_dask(a) for _, a in self.auxiliary)

    @property
    def consumed(self) -> tuple[int, ...]:
        """Data axes that the fit sums over."""
        return tuple(sorted(a for group in self.layout.groups for a in group.data_axes))

    @property
    def auxiliary(self) -> tuple[tuple[tuple[int, ...], Any], ...]:
        """(data axes, array) of the coordinates, then of the weights, then of the codes of holders."""
        coordinates = zip(self.layout.spans, self.coordinates, strict=True)
        codes = () if self.holders is None else (((self.holders.axis,), self.holders.codes),)
        return (*coordinates, *self.weights, *codes)

    def with_arrays(self, values: Any, auxiliary: Sequence[Any]) -> Source:
        """Return the same with other arrays, in the order of `auxiliary`."""
        coordinates, weights = self._split(auxiliary)
        holders = None if self.holders is None else replace(self.holders, codes=auxiliary[-1])
        return replace(self, values=values, coordinates=coordinates, weights=weights, holders=holders)

    def block(self, values: Any, auxiliary: Sequence[Any], slices: Slices) -> Block:
        """Return the Block of these values and auxiliary arrays, which lie at `slices` of the whole."""
        coordinates, weights = self._split(auxiliary)
        weights = tuple((axes, unmasked(array)) for axes, array in weights)
        start = tuple(s.start for s in slices)
        return Block(unmasked(values), tuple(map(as_floats, coordinates)), weights, start)

    def _split(self, auxiliary: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return coordinates and weights out of `auxiliary`."""
        own = iter(auxiliary)
        coordinates = tuple(next(own) for _ in self.coordinates)
        return coordinates, tuple((axes, next(own)) for axes, _ in self.weights)


def as_floats(x: Any) -> NDArray[Any]:
    """Return a coordinate on the host as floats as they are stored; the ends of cells as complex numbers."""
    x = np.asarray(x)
    return x if x.dtype.kind in "cf" else x.astype(np.float64)


def unmasked(array: Any) -> Any:
    """Return an array as it is; one with a mask with NaN where that hides an entry."""
    if not isinstance(array, np.ma.MaskedArray):
        return array
    kind = array.dtype if array.dtype.kind == "f" else np.float64
    return np.ma.filled(array.astype(kind), np.nan)


def is_dask(array: Any) -> bool:
    return isinstance(array, da.Array)


def is_reader(array: Any) -> bool:
    return isinstance(array, Reader)


def in_memory(array: Any) -> bool:
    return not is_dask(array) and not is_reader(array)


def nbytes(array: Any) -> int:
    """Return the bytes of an array, read or not, without touching it."""
    return math.prod(array.shape) * np.dtype(array.dtype).itemsize


# Reading


# These say that the request is wrong, not that the store is busy: the next try would fail the same way.
PERMANENT = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    io.UnsupportedOperation,
)


def retrying(read: Callable[..., T], *args: object, pauses: Sequence[float] = LIMITS.retry_pauses) -> T:
    """Return ``read(*args)``, tried again after each of the pauses, in seconds, while it fails with a passing OSError.

    Timeouts, resets and interrupted transfers are OSErrors. Anything else, and the errors of `PERMANENT`,
    goes through at once.
    """
    for pause in pauses:
        try:
            return read(*args)
        except PERMANENT:
            raise
        except OSError:
            time.sleep(pause)
    return read(*args)


@contextmanager
def read_noted(label: str, box: Slices) -> Iterator[None]:
    """Note on an error, which keeps its type, what was being read when it happened."""
    try:
        yield
    except Exception as error:
        bounds = tuple((s.start, s.stop) for s in getattr(error, "chunk", box))
        error.read = (label, bounds)  # type: ignore[attr-defined]  # for those who know labels; it is pickled too
        error.add_note(f"while reading {label}[{', '.join(f'{a}:{b}' for a, b in bounds)}]")
        raise


def cut(
    array: Any, axes: tuple[int, ...], slices: Slices, pauses: Sequence[float] = LIMITS.retry_pauses
) -> Any:
    """Return the part of `array`, over the data axes `axes`, that lies in the box `slices` of the data."""
    box = tuple(slices[a] for a in axes)
    if not is_reader(array):
        return array[(*box, ...)]
    try:
        return retrying(array.read, box, pauses=pauses)
    except (ConnectionError, TimeoutError, MemoryError):
        raise
    except Exception:
        chunks = list(_chunks_in(box, array.chunks))
        if len(chunks) == 1:
            raise
        return _by_chunk(array, box, chunks, pauses)


def _by_chunk(array: Any, box: Slices, chunks: Sequence[Slices], pauses: Sequence[float]) -> Any:
    """Return a box that failed as a whole, from its storage chunks, each with its own tries.

    Of very many requests some fail each time that all are made, to a busy server. And it shows which chunk is damaged.
    """
    whole = None
    for chunk in chunks:
        try:
            part = retrying(array.read, chunk, pauses=pauses)
        except Exception as error:
            error.chunk = chunk  # type: ignore[attr-defined]  # for the note
            raise
        if whole is None:
            xp, device = array_api_compat.array_namespace(part), array_api_compat.device(part)
            whole = xp.empty(tuple(s.stop - s.start for s in box), dtype=part.dtype, device=device)
        whole[tuple(slice(c.start - b.start, c.stop - b.start) for c, b in zip(chunk, box, strict=True))] = (
            part
        )
    return whole


def _chunks_in(box: Slices, chunks: Sequence[int] | None) -> Iterator[Slices]:
    """Return the parts of a box that lie in one storage chunk each; itself where these are not known."""
    steps = zip(box, chunks or [s.stop + 1 for s in box], strict=True)
    bounds = [[s.start, *range((s.start // n + 1) * n, s.stop, n), s.stop] for s, n in steps]
    return (
        tuple(slice(*pair) for pair in ends) for ends in itertools.product(*map(itertools.pairwise, bounds))
    )


# Rows of several holders


def split_by_holder(
    block: Block, layout: Layout, axis: int, codes: NDArray[np.integer[Any]]
) -> Iterator[tuple[int, Block, NDArray[np.intp]]]:
    """Yield (code, block, rows) of each holder that has rows in a block, by ascending code.

    Its block starts where the first of its rows lies; `rows` are their indices in the whole data, ascending. `layout`
    tells which axes of the block the coordinates span. `axis` is the data axis along which holders differ, and `codes`
    tell whose each row is, along that axis of the block.
    """
    order = np.argsort(codes, kind="stable")
    present, first = np.unique(codes[order], return_index=True)
    start = block.start or (0,) * block.values.ndim
    for code, rows in zip(present, np.split(order, first)[1:], strict=True):

        def taken(array: Any, axes: tuple[int, ...], rows: NDArray[np.intp] = rows) -> Any:
            return _take(array, axes.index(axis), rows) if axis in axes else array

        own = replace(
            block,
            values=_take(block.values, axis, rows),
            coordinates=tuple(
                taken(x, axes) for axes, x in zip(layout.spans, block.coordinates, strict=True)
            ),
            weights=tuple((axes, taken(w, axes)) for axes, w in block.weights),
            start=(*start[:axis], start[axis] + int(rows[0]), *start[axis + 1 :]),
        )
        yield int(code), own, start[axis] + rows


def located(sums: Sums, axis: int, rows: NDArray[np.intp]) -> Sums:
    """Return the sums of such a block with the indices in their tally counted in the whole data."""

    def in_whole(index: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if index is None:
            return None
        row = int(rows[index[axis] - int(rows[0])])
        return (*index[:axis], row, *index[axis + 1 :])

    tally = sums.tally
    infinity, bad_weight = in_whole(tally.infinity), in_whole(tally.bad_weight)
    return replace(sums, tally=replace(tally, infinity=infinity, bad_weight=bad_weight))


def _take(array: Any, axis: int, rows: NDArray[np.intp]) -> Any:
    """Return some rows along one axis; a view where they follow each other."""
    if rows[-1] - rows[0] == len(rows) - 1:
        return array[(*(slice(None),) * axis, slice(int(rows[0]), int(rows[-1]) + 1), ...)]
    xp, device = array_api_compat.array_namespace(array), array_api_compat.device(array)
    return xp.take(array, xp.asarray(rows, device=device), axis=axis)

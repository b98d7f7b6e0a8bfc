"""Sources, stores and schedulers that the tests of this room share."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client

from xspline import execution
from xspline.execution import Limits, Source
from xspline.kernels import Group, Layout
from xspline.spaces import BSpline, Fourier, Polynomial, Space
from xspline.sums import Sums

GRID = Layout((Group((0,), (0,)), Group((1,), (1,)), Group((2,), (2,))))
SHAPE = (30, 14, 12)


SPACE = Space(
    {
        "a": BSpline(8, domain=(0.0, 1.0)),
        "b": BSpline(9, period=1.0, domain=(0.0, 1.0)),
        "c": Fourier(1, period=0.5) + Polynomial(1, domain=(0.0, 1.0)),
    }
)
"""A local, a local periodic and a global axis."""
LINE = Space({"t": BSpline(6, domain=(0.0, 1.0))})
BATCH = Layout((Group((0,), (0,)),), (1, 2))


def limits(read_bytes: int | None = None, **sizes: Any) -> Limits:
    """The default without pauses between tries, with reads of some bytes and with other sizes."""
    if read_bytes is not None:
        sizes["read_bytes"] = read_bytes
    return Limits(retry_pauses=(0.0, 0.0), **sizes)


def use_limits(monkeypatch: pytest.MonkeyPatch, sizes: Limits) -> None:
    """Let the methods that users call, which have no such argument, pass these limits on."""
    monkeypatch.setattr(execution, "sums", partial(execution.sums, limits=sizes))


def positions(shape: Sequence[int]) -> tuple[np.ndarray, ...]:
    return tuple((np.arange(n) + 0.5) / n for n in shape)


def values(shape: Sequence[int] = SHAPE, gaps: str = "any", seed: int = 0) -> np.ndarray:
    """Smooth values with noise; gaps "none", "static" (along the first axis) or "any"."""
    rng = np.random.default_rng(seed)
    y = 280.0 + sum(np.ix_(*(np.sin(3 * x) for x in positions(shape)))) + 0.1 * rng.normal(size=shape)
    hidden = {"none": 0.0, "static": rng.random((1, *shape[1:])), "any": rng.random(shape)}[gaps]
    return np.where(np.broadcast_to(np.asarray(hidden) > 0.7, shape), np.nan, y)


def grid(data: Any = None, *, weights: Any = ()) -> Source:
    """A grid over the coordinates of `SPACE`, the values in whatever form."""
    data = values() if data is None else data
    return Source(data, positions(data.shape), weights, GRID, "sst")


class Array:
    """A Reader over an array in memory that counts what is read."""

    def __init__(self, array: np.ndarray, chunks: tuple[int, ...] | None) -> None:
        self.array, self.chunks = array, chunks
        self.shape, self.dtype = array.shape, array.dtype
        self.reads: list[tuple[slice, ...]] = []

    def __dask_tokenize__(self) -> object:
        return self.array, self.chunks

    def read(self, slices: tuple[slice, ...]) -> np.ndarray:
        self.reads.append(slices)
        return self.array[slices]


class Endless:
    """A Reader of a constant over any shape, which holds nothing."""

    def __init__(self, shape: tuple[int, ...], chunks: tuple[int, ...] | None, dtype: str = "f4") -> None:
        self.shape, self.chunks, self.dtype = shape, chunks, np.dtype(dtype)

    def read(self, slices: tuple[slice, ...]) -> np.ndarray:
        return np.ones([s.stop - s.start for s in slices], self.dtype)


class Flaky:
    """A Reader whose box fails `times` times before it can be read; it counts in files, across processes."""

    def __init__(self, array: np.ndarray, directory: Path, times: int, error: type[Exception]) -> None:
        self.array, self.directory, self.times, self.error = array, directory, times, error
        self.shape, self.dtype, self.chunks = array.shape, array.dtype, array.shape

    def read(self, slices: tuple[slice, ...]) -> np.ndarray:
        name = "-".join(f"{s.start}.{s.stop}" for s in slices)
        tried = len(list(self.directory.glob(f"{name}_*")))
        (self.directory / f"{name}_{tried}").touch()
        if tried < self.times:
            raise self.error(f"read {name} failed")
        return self.array[slices]


@contextmanager
def counted_computes(allowed: int) -> Iterator[list[Any]]:
    """Count how often Dask is asked to compute; more than `allowed` times fails at once."""
    calls: list[Any] = []

    def get(dsk: Any, keys: Any, **kwargs: Any) -> Any:
        calls.append(keys)
        if len(calls) > allowed:
            raise AssertionError(f"{len(calls)} computes, {allowed} allowed")
        return dask.get(dsk, keys, **kwargs)

    with dask.config.set(scheduler=get):
        yield calls


def assert_same(actual: Sums, expected: Sums, where: Space, tolerance: float = 1e-12) -> None:
    """Hold two Sums equal in what they mean: dense G, moment and scalars about one reference."""
    frame = where.frame
    np.testing.assert_array_equal(np.broadcast_to(actual.count, expected.batch), expected.count)
    actual = actual.recentred(expected.reference, frame)
    pairs = [
        (actual.gram.to_dense(frame), expected.gram.to_dense(frame)),
        (actual.full_moment(frame), expected.full_moment(frame)),
        (actual.power, expected.power),
        (actual.weight, expected.weight),
    ]
    for mine, yours in pairs:
        scale = np.abs(yours).max() or 1.0
        np.testing.assert_allclose(np.broadcast_to(mine, yours.shape), yours, rtol=0, atol=tolerance * scale)


def chunked(array: np.ndarray, chunks: Any) -> da.Array:
    return da.from_array(array, chunks=chunks)


# Peak memory of a worker process, measured (Linux)

RESET = Path("/proc/self/clear_refs")


def reset_peak() -> None:
    gc.collect()
    RESET.write_text("5")


def resident() -> tuple[int, int]:
    """Peak since the reset, and now, in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(1024 * int(lines[name].split()[0]) for name in ("VmHWM", "VmRSS"))  # type: ignore[return-value]


def peak_of(worker: Client, run: Callable[[], Any]) -> int:
    """Bytes that the one worker of a cluster needs for `run` above what it holds before."""
    worker.run(reset_peak)
    ((_, idle),) = worker.run(resident).values()
    run()
    ((peak, _),) = worker.run(resident).values()
    return peak - idle

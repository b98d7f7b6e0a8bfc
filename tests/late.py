"""A stand-in for a GPU, in NumPy, that does everything as late as it may: code that forgets to wait gets wrong numbers.

A stream does its work only when somebody waits for it: copies read and write their buffers then, not when they are
queued. New memory still belongs to work that its stream has yet to do, and which overwrites it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.duck import Duck

SCRIBBLE = 0x7F


class Event:
    """A place in the work of a stream."""

    def __init__(self, stream: Stream, place: int) -> None:
        self.stream, self.place = stream, place

    def synchronize(self) -> None:
        self.stream.run(self.place)


class Stream:
    """Work that is waiting; one lock for all streams, as there is one GPU."""

    def __init__(self, lock: threading.RLock) -> None:
        self.lock, self.waiting, self.given, self.done = lock, deque[Callable[[], None]](), 0, 0

    def give(self, work: Callable[[], None]) -> None:
        with self.lock:
            self.waiting.append(work)
            self.given += 1

    def run(self, place: int) -> None:
        with self.lock:
            while self.done < place:
                work = self.waiting.popleft()
                self.done += 1
                work()

    def wait_event(self, event: Event) -> None:
        self.give(event.synchronize)

    def synchronize(self) -> None:
        self.run(self.given)


class OnGpu(Duck):
    """An array whose numbers are looked at in the order of the thread's stream, as a kernel does."""

    def __init__(self, gpu: Late, array: np.ndarray) -> None:
        self.gpu, self.memory = gpu, array

    @property
    def _array(self) -> np.ndarray:
        self.gpu.current().synchronize()
        return self.memory


class Late:
    """A stand-in for `transfer.Cuda`: its arrays are ducks, its default stream is every thread's.

    Attributes
    ----------
    moved : shapes of the arrays that were created here, in turn.
    pinned_bytes : of all buffers.
    """

    number = 0

    def __init__(self, cupy: Any = None) -> None:
        self.lock, self.local = threading.RLock(), threading.local()
        self.default = self.stream()
        self.moved: list[tuple[int, ...]] = []
        self.pinned_bytes = 0

    def pinned(self, nbytes: int) -> np.ndarray:
        self.pinned_bytes += nbytes
        return np.full(nbytes, SCRIBBLE, np.uint8)

    def stream(self) -> Stream:
        return Stream(self.lock)

    def current(self) -> Stream:
        return getattr(self.local, "stream", self.default)

    @contextmanager
    def on(self, stream: Stream | None) -> Iterator[None]:
        before, self.local.stream = self.current(), stream or self.current()
        try:
            yield
        finally:
            self.local.stream = before

    def plain(self, array: np.ndarray) -> OnGpu:
        self.moved.append(array.shape)
        return OnGpu(self, array.copy(order="C"))

    def contiguous(self, array: Duck) -> OnGpu:
        return OnGpu(self, np.ascontiguousarray(array._array))

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> OnGpu:
        self.moved.append(shape)
        array = np.empty(shape, dtype)
        _bytes(array)[:] = SCRIBBLE
        self.current().give(lambda: _bytes(array).fill(SCRIBBLE))
        return OnGpu(self, array)

    def record(self, stream: Stream) -> Event:
        return Event(stream, stream.given)

    def up(self, room: np.ndarray, array: OnGpu, offset: int, stream: Stream) -> None:
        there = _bytes(array.memory)[offset : offset + room.nbytes]
        stream.give(lambda: np.copyto(there, _bytes(room)))

    def down(self, array: OnGpu, offset: int, room: np.ndarray, stream: Stream) -> None:
        there = _bytes(array.memory)[offset : offset + room.nbytes]
        stream.give(lambda: np.copyto(_bytes(room), there))


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)

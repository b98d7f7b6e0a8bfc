"""Large arrays to a GPU and back, through a ring of pinned buffers that several threads fill.

A GPU takes some 50 GB/s from page-locked memory, one thread fills it with 10. So a transfer is cut into pieces; a
few threads copy each into a pinned buffer, in native byte order and C order whatever the array was, and start an
asynchronous copy on that buffer's own stream. Events order what follows, and tell when a buffer is free again.
"""

from __future__ import annotations

import itertools
import math
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from xspline.execution.cuts import Cuts, read_shape, runs
from xspline.execution.source import Slices
from xspline.solve.parallel import cores

PIECE = 2 * 2**20
"""Bytes of a pinned buffer: a copy takes several times what starting it does, and all of them fit in a cache."""

LANES = 12
"""Pinned buffers of a process for each GPU: some are filled while others are on their way."""

RING = LANES * PIECE
"""Bytes of all of them."""

MAX_THREADS = 8
"""Threads that fill them, or empty them, where there are as many cores: these copy as fast as the bus takes it."""

Step = Callable[["Lane", int, Slices], None]
"""What is done with one piece: a buffer, where the piece begins in the array on the GPU in bytes, its box."""


class Stream(Protocol):
    """A stream of a GPU, as in CuPy."""

    def wait_event(self, event: Any) -> None: ...

    def synchronize(self) -> None: ...


class Mover(Protocol):
    """What the ring needs of a GPU."""

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return page-locked bytes."""

    def stream(self) -> Stream:
        """Return a new stream that waits for no other."""

    def current(self) -> Stream:
        """Return the stream of this thread."""

    def on(self, stream: Stream | None) -> AbstractContextManager[Any]:
        """Return a context on this GPU, with `stream` as that of the thread, or as it is."""

    def plain(self, array: np.ndarray) -> Any:
        """Return a small array on the GPU, whole for what the stream of this thread does next."""

    def contiguous(self, array: Any) -> Any:
        """Return an array of the GPU in C order."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return a new array of the GPU in C order; memory comes and goes in the order of the thread's stream."""

    def record(self, stream: Stream) -> Any:
        """Return an event that has passed once all that `stream` was given has been done."""

    def up(self, room: np.ndarray, array: Any, offset: int, stream: Stream) -> None:
        """Start copying pinned bytes into an array of the GPU, from a byte on."""

    def down(self, array: Any, offset: int, room: np.ndarray, stream: Stream) -> None:
        """Start copying bytes of an array of the GPU, in C order, into pinned ones."""


class Cuda:
    """The current GPU, in the words of CuPy."""

    def __init__(self, cupy: Any) -> None:
        self._cupy, self._gpu = cupy, cupy.cuda.Device()

    @property
    def number(self) -> int:
        return int(self._gpu.id)

    def pinned(self, nbytes: int) -> np.ndarray:
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)

    def stream(self) -> Any:
        return self._cupy.cuda.Stream(non_blocking=True)

    def current(self) -> Any:
        return self._cupy.cuda.get_current_stream()

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self._gpu)
            if stream is not None:
                stack.enter_context(stream)
            yield

    def plain(self, array: np.ndarray) -> Any:
        return self._cupy.asarray(array)

    def contiguous(self, array: Any) -> Any:
        return self._cupy.ascontiguousarray(array)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        return self._cupy.empty(shape, dtype)

    def record(self, stream: Any) -> Any:
        return stream.record(self._cupy.cuda.Event(block=True, disable_timing=True))

    def up(self, room: np.ndarray, array: Any, offset: int, stream: Any) -> None:
        (array.data + offset).copy_from_host_async(room.ctypes.data, room.nbytes, stream)

    def down(self, array: Any, offset: int, room: np.ndarray, stream: Any) -> None:
        (array.data + offset).copy_to_host_async(room.ctypes.data, room.nbytes, stream)


@dataclass(eq=False)
class Lane:
    """A pinned buffer and its stream.

    Attributes
    ----------
    room : its bytes.
    stream : on which they are copied.
    last : event after the last copy from it; None where nobody has to wait.
    """

    room: np.ndarray
    stream: Stream
    last: Any = None

    def wait(self) -> None:
        """Wait until the bytes may be written."""
        if self.last is not None:
            self.last.synchronize()
            self.last = None

    def bytes_of(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return as much of the buffer as an array of this shape and type takes, as that array."""
        return self.room[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


class Ring:
    """Pinned buffers of one GPU, and the threads that fill and empty them; any thread may call, and many at once.

    Parameters
    ----------
    mover : the GPU.
    lanes, piece : number of buffers, bytes of each.
    """

    def __init__(self, mover: Mover, lanes: int, piece: int) -> None:
        self.mover, self.piece = mover, piece
        self._threads = min(cores(), MAX_THREADS, lanes)
        self._pool = ThreadPoolExecutor(self._threads, "xspline-transfer")
        self._lanes: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        with mover.on(None):
            self._aside = mover.stream()
            for _ in range(lanes):
                self._lanes.put(Lane(mover.pinned(piece), mover.stream()))

    def put(self, array: np.ndarray) -> Any:
        """Return a host array on the GPU, whole for what the stream of this thread does next.

        The host array has been read when this returns, and may be written again.
        """
        dtype = array.dtype.newbyteorder("=")
        if not self._worth(array):
            return self.mover.plain(array.astype(dtype, copy=False))
        moved, flat = self.mover.empty(array.shape, dtype), _flat(array)
        here, sent = self.mover.current(), list[Any]()
        ready = self.mover.record(here)  # until then this memory may belong to what the stream did before

        def send(lane: Lane, offset: int, box: Slices) -> None:
            part = flat[box]
            room = lane.bytes_of(part.shape, dtype)
            np.copyto(room, part)
            lane.stream.wait_event(ready)
            self.mover.up(room, moved, offset, lane.stream)
            lane.last = self.mover.record(lane.stream)
            sent.append(lane.last)

        try:
            self._each(flat, send)
        finally:  # also where the array is given up: its memory is another's next
            for event in sent:
                here.wait_event(event)
        return moved

    def load(self, array: np.ndarray) -> Any:
        """Return a host array on the GPU, whole for any stream of any thread when this returns.

        It waits for nothing that the GPU was given before, and so runs beside kernels. In return, nobody may let go of
        the array before what reads it is done (`settle`): the next one may have its memory.
        """
        with self.mover.on(self._aside):
            moved = self.put(array)
            self._aside.synchronize()
        return moved

    def get(self, array: Any) -> np.ndarray:
        """Return the host copy of an array that the stream of this thread made."""
        if not self._worth(array):
            return array.get()
        array = self.mover.contiguous(array)
        found = np.empty(array.shape, array.dtype)
        flat = found.reshape(-1)
        self.settle()  # here, so that the threads are free for others meanwhile

        def fetch(lane: Lane, offset: int, box: Slices) -> None:
            part = flat[box]
            room = lane.bytes_of(part.shape, part.dtype)
            self.mover.down(array, offset, room, lane.stream)
            lane.stream.synchronize()
            np.copyto(part, room)

        self._each(flat, fetch)
        return found

    def settle(self) -> None:
        """Wait until all that this thread gave its stream is done."""
        self.mover.current().synchronize()

    def _worth(self, array: Any) -> bool:
        """Return whether an array has two pieces; a smaller one goes as CuPy moves it."""
        return bool(array.nbytes >= 2 * self.piece)

    def _each(self, array: np.ndarray, step: Step) -> None:
        """Do a step for every piece of an array; no thread is at any of them when this returns or raises."""
        pieces = _pieces(array, self.piece)
        shared = iter(pieces)  # of a list, so that threads may share it
        jobs = [self._pool.submit(self._some, shared, step) for _ in pieces[: self._threads]]
        try:
            wait(jobs)
        finally:  # where the wait is interrupted, what is left is not begun
            for _ in shared:
                pass
            wait(jobs)
        for job in jobs:
            job.result()

    def _some(self, pieces: Iterator[tuple[int, Slices]], step: Step) -> None:
        with self.mover.on(None):
            for offset, box in pieces:
                lane = self._lanes.get()
                try:
                    lane.wait()
                    step(lane, offset, box)
                finally:
                    self._lanes.put(lane)


def _flat(array: np.ndarray) -> np.ndarray:
    """Return the numbers along one axis, where that takes no copy: its pieces are of one size."""
    return array.reshape(-1) if array.flags.c_contiguous else array


def _pieces(array: np.ndarray, most: int) -> list[tuple[int, Slices]]:
    """Return boxes of at most `most` bytes that follow each other in C order, and where each begins there, in bytes."""
    step = read_shape(array.shape, None, array.itemsize, most)
    cuts = Cuts(tuple(runs(0, n, k) for n, k in zip(array.shape, step, strict=True)))
    boxes = [cuts.box(index) for index in cuts]
    sizes = [array.itemsize * math.prod(s.stop - s.start for s in box) for box in boxes]
    return list(zip(itertools.accumulate(sizes, initial=0), boxes, strict=False))


_RINGS: dict[int, Ring] = {}
_LOCK = threading.Lock()


def ring(cupy: Any) -> Ring:
    """Return the ring of the current GPU, one for the process."""
    mover = Cuda(cupy)
    with _LOCK:
        if mover.number not in _RINGS:
            _RINGS[mover.number] = Ring(mover, LANES, PIECE)
        return _RINGS[mover.number]

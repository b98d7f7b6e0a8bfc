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
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.system import CPU_COUNT

from xspline.execution.cuts import Cuts, read_shape
from xspline.execution.limits import LIMITS, Limits
from xspline.execution.source import Slices

Step = Callable[["PinnedBuffer", int, Slices], None]
"""What is done with one piece: a buffer, where the piece begins in the array on the GPU in bytes, its box."""


class Cuda:
    """The current GPU through CuPy: all that the ring needs of it."""

    def __init__(self, cupy: Any) -> None:
        self._cupy, self._gpu = cupy, cupy.cuda.Device()

    @property
    def number(self) -> int:
        return int(self._gpu.id)

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return page-locked bytes."""
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)

    def stream(self) -> Any:
        """Return a new stream that waits for no other."""
        return self._cupy.cuda.Stream(non_blocking=True)

    def current(self) -> Any:
        """Return the stream of this thread."""
        return self._cupy.cuda.get_current_stream()

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Be on this GPU, with `stream` as that of the thread, or as it is for None."""
        with self._gpu, nullcontext() if stream is None else stream:
            yield

    def plain(self, array: np.ndarray) -> Any:
        """Return a small array on the GPU, complete for what the stream of this thread does next."""
        return self._cupy.asarray(array)

    def contiguous(self, array: Any) -> Any:
        """Return an array of the GPU in C order."""
        return self._cupy.ascontiguousarray(array)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return a new array of the GPU in C order; memory comes and goes in the order of the thread's stream."""
        return self._cupy.empty(shape, dtype)

    def record(self, stream: Any) -> Any:
        """Return an event that has passed once all that `stream` was given has been done."""
        return stream.record(self._cupy.cuda.Event(block=True, disable_timing=True))

    def up(self, buffer: np.ndarray, array: Any, offset: int, stream: Any) -> None:
        """Start copying pinned bytes into an array of the GPU, from a byte on."""
        (array.data + offset).copy_from_host_async(buffer.ctypes.data, buffer.nbytes, stream)

    def down(self, array: Any, offset: int, buffer: np.ndarray, stream: Any) -> None:
        """Start copying bytes of an array of the GPU, in C order, into pinned ones."""
        (array.data + offset).copy_to_host_async(buffer.ctypes.data, buffer.nbytes, stream)


@dataclass(eq=False)
class PinnedBuffer:
    """A pinned buffer and its stream.

    Attributes
    ----------
    memory : its bytes.
    stream : on which they are copied.
    last : event after the last copy from it; None where nobody has to wait.
    """

    memory: np.ndarray
    stream: Any
    last: Any = None

    def wait(self) -> None:
        """Wait until the bytes may be written."""
        if self.last is not None:
            self.last.synchronize()
            self.last = None

    def as_array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return as much of the buffer as an array of this shape and type takes, as that array."""
        return self.memory[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


class Ring:
    """Pinned buffers of one GPU, and the threads that fill and empty them; any thread may call, and many at once.

    Parameters
    ----------
    mover : the GPU.
    limits : number of buffers, bytes of each, threads.
    """

    def __init__(self, mover: Cuda, limits: Limits = LIMITS) -> None:
        self.mover, self.limits = mover, limits
        self._threads = min(CPU_COUNT, limits.transfer_threads, limits.pinned_buffers)
        self._pool = ThreadPoolExecutor(self._threads, "xspline-transfer")
        self._buffers: queue.SimpleQueue[PinnedBuffer] = queue.SimpleQueue()
        with mover.on(None):
            self._aside = mover.stream()
            for _ in range(limits.pinned_buffers):
                self._buffers.put(PinnedBuffer(mover.pinned(limits.pinned_bytes), mover.stream()))

    def put(self, array: np.ndarray) -> Any:
        """Return a host array on the GPU, complete for what the stream of this thread does next.

        The host array has been read when this returns, and may be written again.
        """
        dtype = array.dtype.newbyteorder("=")
        if not self._worth(array):
            return self.mover.plain(array.astype(dtype, copy=False))
        moved = self.mover.empty(array.shape, dtype)
        # One axis, where that takes no copy: the pieces are of one size.
        flat = array.reshape(-1) if array.flags.c_contiguous else array
        here, sent = self.mover.current(), list[Any]()
        ready = self.mover.record(here)  # until then this memory may belong to what the stream did before

        def send(pinned: PinnedBuffer, offset: int, box: Slices) -> None:
            part = flat[box]
            buffer = pinned.as_array(part.shape, dtype)
            np.copyto(buffer, part)
            pinned.stream.wait_event(ready)
            self.mover.up(buffer, moved, offset, pinned.stream)
            pinned.last = self.mover.record(pinned.stream)
            sent.append(pinned.last)

        try:
            self._each(flat, send)
        finally:  # also where the array is given up: its memory is another's next
            for event in sent:
                here.wait_event(event)
        return moved

    def load(self, array: np.ndarray) -> Any:
        """Return a host array on the GPU, complete for any stream of any thread when this returns.

        It waits for nothing that the GPU was given before, and so runs beside kernels. In return, nobody may let go of
        the array before what reads it is done (`settle`): the next one may have its memory.
        """
        with self.mover.on(self._aside):
            moved = self.put(array)
            self._aside.synchronize()
        return moved

    def get(self, array: Any) -> np.ndarray:
        """Return the host copy of an array that the stream of this thread computed."""
        if not self._worth(array):
            return array.get()
        array = self.mover.contiguous(array)
        host = np.empty(array.shape, array.dtype)
        flat = host.reshape(-1)
        self.settle()  # here, so that the threads are free for others meanwhile

        def fetch(pinned: PinnedBuffer, offset: int, box: Slices) -> None:
            part = flat[box]
            buffer = pinned.as_array(part.shape, part.dtype)
            self.mover.down(array, offset, buffer, pinned.stream)
            pinned.stream.synchronize()
            np.copyto(part, buffer)

        self._each(flat, fetch)
        return host

    def settle(self) -> None:
        """Wait until all that this thread gave its stream is done."""
        self.mover.current().synchronize()

    def _worth(self, array: Any) -> bool:
        """Return whether an array has two pieces; a smaller one goes as CuPy moves it."""
        return bool(array.nbytes >= 2 * self.limits.pinned_bytes)

    def _each(self, array: np.ndarray, step: Step) -> None:
        """Do a step for every piece of an array; no thread is at any of them when this returns or raises."""
        # Boxes that follow each other in C order, and where each begins there, in bytes.
        shape = read_shape(array.shape, None, array.itemsize, self.limits.pinned_bytes)
        cuts = Cuts.in_steps(array.shape, shape)
        boxes = [cuts.box(index) for index in cuts]
        sizes = [array.itemsize * math.prod(s.stop - s.start for s in box) for box in boxes]
        pieces = list(zip(itertools.accumulate(sizes, initial=0), boxes, strict=False))
        shared = iter(pieces)  # of a list, so that threads may share it

        def work() -> None:
            with self.mover.on(None):
                for offset, box in shared:
                    pinned = self._buffers.get()
                    try:
                        pinned.wait()
                        step(pinned, offset, box)
                    finally:
                        self._buffers.put(pinned)

        jobs = [self._pool.submit(work) for _ in pieces[: self._threads]]
        try:
            wait(jobs)
        finally:  # where the wait is interrupted, what is left is not begun
            for _ in shared:
                pass
            wait(jobs)
        for job in jobs:
            job.result()


_RINGS: dict[int, Ring] = {}
_LOCK = threading.Lock()


def ring(cupy: Any, limits: Limits = LIMITS) -> Ring:
    """Return the ring of the current GPU, one for the process; the first caller's limits hold."""
    mover = Cuda(cupy)
    with _LOCK:
        if mover.number not in _RINGS:
            _RINGS[mover.number] = Ring(mover, limits)
        return _RINGS[mover.number]

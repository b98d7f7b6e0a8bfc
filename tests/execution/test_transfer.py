"""Large arrays to a GPU and back: a stand-in that is late wherever it may be, and a GPU where there is one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import late
from tests.duck import Duck
from tests.late import Late
from xspline.execution import LIMITS, Limits
from xspline.execution.device import transfer
from xspline.execution.device.transfer import Cuda, Ring

SMALL = Limits(pinned_bytes=4096, pinned_buffers=3, transfer_threads=2)


def mover(name: str) -> Any:
    if name == "late":
        return Late()
    import cupy

    return Cuda(cupy)


@pytest.fixture(params=["late", pytest.param("GPU", marks=pytest.mark.gpu)])
def ring(request: pytest.FixtureRequest) -> Iterator[Ring]:
    """A ring of three small buffers, so that each is used many times, and threads for two of them."""
    small = Ring(mover(request.param), SMALL)
    yield small
    small._pool.shutdown()


def host(array: Any) -> np.ndarray:
    """What is on the GPU once the stream of this thread has done its work."""
    return array.get()


def arrived(ring: Ring, array: Any) -> np.ndarray:
    ring.mover.current().synchronize()
    return host(array)


def numbers(shape: tuple[int, ...], dtype: str = "f4", seed: int = 0) -> np.ndarray:
    array = 1000 * np.random.default_rng(seed).normal(size=shape)
    return array > 0 if dtype == "?" else array.astype(dtype)


SHAPE = (37, 20, 30)  # 22 pieces of a float32


def read_only() -> np.ndarray:
    array = numbers(SHAPE)
    array.flags.writeable = False
    return array


ARRAYS: dict[str, Callable[[], np.ndarray]] = {
    "float32": lambda: numbers(SHAPE),
    "float64": lambda: numbers(SHAPE, "f8"),
    "int16": lambda: numbers(SHAPE, "i2"),
    "bool": lambda: numbers(SHAPE, "?"),
    "big-endian": lambda: numbers(SHAPE, ">f4"),
    "big-endian, strided": lambda: numbers((74, 20, 30), ">f8")[::2],
    "Fortran order": lambda: np.asfortranarray(numbers(SHAPE)),
    "moved axes": lambda: np.moveaxis(numbers(SHAPE), 0, 1),
    "backwards": lambda: numbers(SHAPE)[::-1, :, ::-1],
    "window": lambda: numbers((60, 50, 60))[3:40, 20:40, 7:37],
    "repeated": lambda: np.broadcast_to(numbers((20, 1)), SHAPE),
    "long rows": lambda: numbers((3, 5000), "f8").T.copy().T,
    "one row": lambda: numbers((1, 20_001)),
    "read-only": read_only,
    "no rows": lambda: numbers((0, 20, 30)),
    "small": lambda: numbers((4, 5), ">f4"),
    "one number": lambda: numbers(()) + np.zeros(()),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_what_arrives_is_what_was_sent(ring: Ring, name: str) -> None:
    array = np.asarray(ARRAYS[name]())
    moved = ring.put(array)
    array_back = arrived(ring, moved)
    assert moved.dtype == array.dtype.newbyteorder("=") and moved.dtype.isnative
    np.testing.assert_array_equal(array_back, array)
    assert array_back.flags.c_contiguous


@pytest.mark.parametrize("name", ["float32", "int16", "bool", "one row", "no rows", "small"])
def test_what_comes_back_is_what_is_there(ring: Ring, name: str) -> None:
    array = ARRAYS[name]()
    array = array.astype(array.dtype.newbyteorder("="))
    moved = ring.put(array)
    ring.mover.current().synchronize()
    np.testing.assert_array_equal(ring.get(moved), array)
    np.testing.assert_array_equal(ring.get(moved.T), array.T)


def test_what_comes_back_was_computed_before() -> None:
    gpu = Late()
    ring, array = Ring(gpu, SMALL), numbers(SHAPE)
    moved = ring.load(array)
    gpu.current().give(lambda: np.negative(moved._array, out=moved._array))
    np.testing.assert_array_equal(ring.get(moved), -array)


def test_a_file_is_sent(ring: Ring, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", numbers(SHAPE))
    array = np.load(tmp_path / "a.npy", mmap_mode="r")
    np.testing.assert_array_equal(arrived(ring, ring.put(array)), numbers(SHAPE))


def test_what_was_sent_may_be_written_again(ring: Ring) -> None:
    array = numbers(SHAPE)
    moved = ring.put(array)
    array[:] = -1
    np.testing.assert_array_equal(arrived(ring, moved), numbers(SHAPE))


def test_what_was_loaded_is_there_for_every_stream(ring: Ring) -> None:
    for dtype in ("f4", "f8", ">i4"):
        moved = ring.load(numbers(SHAPE, dtype))
        with ring.mover.on(ring.mover.stream()):
            np.testing.assert_array_equal(host(moved), numbers(SHAPE, dtype))


def test_loading_waits_for_nothing_that_the_gpu_does() -> None:
    """Neither what the thread's stream was given before is run, nor what another thread's was."""
    gpu = Late()
    ring, ran = Ring(gpu, SMALL), []
    gpu.current().give(lambda: ran.append("kernel"))
    moved = ring.load(numbers(SHAPE))
    assert not ran
    np.testing.assert_array_equal(host(moved), numbers(SHAPE))
    ring.settle()
    assert ran == ["kernel"]


def test_threads_share_the_ring(ring: Ring) -> None:
    """Each has a stream of its own or the common one; some load, some put, some get."""
    gate = threading.Barrier(6)

    def task(number: int) -> None:
        gate.wait()
        for seed in range(4 * number, 4 * number + 4):
            array = numbers(SHAPE, ("f4", ">f8", "i2")[seed % 3], seed)
            if number % 2:
                array_back = ring.load(array)
            else:
                with ring.mover.on(ring.mover.stream()):
                    array_back = ring.put(array)
                    ring.mover.current().synchronize()
            np.testing.assert_array_equal(ring.get(array_back), array)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(task, range(6)))


def test_the_buffers_are_made_once_and_are_all_there_is() -> None:
    gpu = Late()
    ring = Ring(gpu, SMALL)
    for _ in range(3):
        arrived(ring, ring.put(numbers((100, 20, 30))))
    assert gpu.pinned_bytes == SMALL.ring_bytes
    assert LIMITS.ring_bytes <= 64 * 2**20


class Broken(Late):
    """A GPU that fails at some of the copies, which are counted."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.copies, self.fails, self.made = 0, fails, list[Duck]()

    def _count(self) -> None:
        with self.lock:
            self.copies += 1
            if self.copies == self.fails:
                raise RuntimeError("the bus is on fire")

    def empty(self, *args: Any) -> Duck:
        self.made.append(super().empty(*args))
        return self.made[-1]

    def up(self, *args: Any) -> None:
        self._count()
        super().up(*args)

    def down(self, *args: Any) -> None:
        self._count()
        super().down(*args)


@pytest.mark.parametrize("fails", [1, 2, 7, 22])
def test_after_a_failure_all_is_as_before(fails: int) -> None:
    gpu = Broken(fails)
    ring = Ring(gpu, SMALL)
    with pytest.raises(RuntimeError, match="the bus is on fire"):
        ring.put(numbers(SHAPE))
    assert ring._buffers.qsize() == SMALL.pinned_buffers
    gpu.current().synchronize()
    before = gpu.made[0].get()
    for _ in range(SMALL.pinned_buffers):
        pinned = ring._buffers.get()
        pinned.stream.synchronize()
        ring._buffers.put(pinned)
    np.testing.assert_array_equal(gpu.made[0].get(), before)  # nothing still writes to what was given up
    for seed in range(3):
        array_back = arrived(ring, ring.put(numbers(SHAPE, seed=seed)))
        np.testing.assert_array_equal(array_back, numbers(SHAPE, seed=seed))


def test_a_failure_on_the_way_back() -> None:
    gpu = Broken(30)
    ring = Ring(gpu, SMALL)
    moved = ring.put(numbers(SHAPE))
    with pytest.raises(RuntimeError, match="the bus is on fire"):
        ring.get(moved)
    assert ring._buffers.qsize() == SMALL.pinned_buffers
    np.testing.assert_array_equal(ring.get(moved), numbers(SHAPE))


@pytest.mark.parametrize(
    "forgets", ["the thread's stream", "the buffer", "the memory", "the way back", "the load"]
)
def test_the_stand_in_notices_what_is_forgotten(forgets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait of the ring is needed: without it, numbers are wrong."""
    gpu = Late()
    ring, array = Ring(gpu, SMALL), numbers(SHAPE)
    if forgets == "the buffer":
        monkeypatch.setattr(transfer.PinnedBuffer, "wait", _nothing)
    if forgets == "the thread's stream":
        monkeypatch.setattr(gpu, "current", lambda stream=gpu.default: _Deaf(stream))
    if forgets == "the memory":
        monkeypatch.setattr(gpu, "record", lambda s: late.Event(s, 0 if s is gpu.default else s.given))
    if forgets == "the way back":
        moved = ring.load(array)
        monkeypatch.setattr(late.Stream, "run", _nothing)
        assert not np.array_equal(ring.get(moved), array)
        return
    if forgets == "the load":
        monkeypatch.setattr(ring._aside, "synchronize", _nothing)
        assert not np.array_equal(host(ring.load(array)), array)
        return
    moved = ring.put(array)
    gpu.default.synchronize()
    assert not np.array_equal(host(moved), array)


def _nothing(*args: Any) -> None:
    pass


class _Deaf:
    """A stream that waits for no other."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def wait_event(self, event: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def test_one_ring_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = iter([0, 1, 0, 1, 1])

    class Numbered(Late):
        def __init__(self, cupy: Any) -> None:
            super().__init__()
            self.number = next(gpus)

    monkeypatch.setattr(transfer, "Cuda", Numbered)
    monkeypatch.setattr(transfer, "_RINGS", {})
    a, b, c, d, e = (transfer.ring(None, SMALL) for _ in range(5))
    assert a is c and b is d is e and a is not b


@pytest.mark.gpu
def test_memory_that_kernels_have_just_left() -> None:
    """Arrays of one size, so that each has the memory of one that a product of matrices was written to."""
    import cupy

    ring, n = transfer.ring(cupy), 2048
    x = cupy.random.default_rng(0).random((n, n))
    for seed in range(8):
        array = np.random.default_rng(seed).random((n, n))
        for _ in range(4):
            busy = x @ x
        del busy
        moved = ring.put(array)
        assert float(cupy.abs(moved - cupy.asarray(array)).max()) == 0.0
        np.testing.assert_array_equal(ring.get(moved.T), array.T)


@pytest.mark.gpu
def test_loads_beside_kernels() -> None:
    """One thread loads while the GPU multiplies what the load before it brought."""
    import cupy

    ring, n = transfer.ring(cupy), 2048
    arrays = [np.random.default_rng(seed).random((n, n)) for seed in range(8)]
    expected = [np.trace(a @ a) for a in arrays]
    traces = []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ring.load, arrays[0])
        for following in [*arrays[1:], arrays[0]]:
            moved = waiting.result()
            waiting = pool.submit(ring.load, following)
            traces.append(cupy.trace(moved @ moved))
            ring.settle()
            del moved
    np.testing.assert_allclose([float(x) for x in traces], expected, rtol=1e-12)

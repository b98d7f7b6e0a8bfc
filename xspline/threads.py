"""Threads whose results do not depend on their number, and those of BLAS.

Work is split so that no two pieces write to one place.

What is added where, and in which order, depends on the split alone, and BLAS takes one thread wherever a room calls it
between: the same bits on any number of threads, and whatever else runs in the process.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from threadpoolctl import LibController, ThreadpoolController

MAX_THREADS = 16


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


_granted: ContextVar[int | None] = ContextVar("cores that work may take", default=None)


def threads() -> int:
    """Return how many threads work may take here."""
    return min(_granted.get() or cores(), MAX_THREADS)


def run(
    piece: Callable[[int, int], Any], rounds: Sequence[Sequence[tuple[int, int]]], *, split: bool = True
) -> None:
    """Call piece(first, last) for all ranges: round after round, those of one round at the same time."""
    number = threads()
    for ranges in rounds:
        if split and len(ranges) > 1 and number > 1:
            list(_pool(os.getpid(), number).map(lambda span: piece(*span), ranges))
        else:
            for first, last in ranges:
                piece(first, last)


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Within it `run` takes so many threads, not as many as there are cores."""
    token = _granted.set(count)
    try:
        yield
    finally:
        _granted.reset(token)


def on_one_core(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns within `on_cores(1)`, as a task among many of a scheduler."""
    with on_cores(1):
        return function(*arguments)


@functools.lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of a process; they serve this module alone, so that their own limits stay as they are set."""
    return ThreadPoolExecutor(threads, thread_name_prefix="xspline", initializer=_limit_this_thread)


def rounds_of(places: Sequence[Sequence[int]]) -> list[list[int]]:
    """Pieces, each with the places it writes to, in as few rounds as a greedy choice finds without overlap."""
    rounds: list[tuple[set[int], list[int]]] = []
    for number, written in enumerate(places):
        free = next((r for r in rounds if r[0].isdisjoint(written)), None)
        if free is None:
            free = (set(), [])
            rounds.append(free)
        free[0].update(int(place) for place in written)
        free[1].append(number)
    return [pieces for _, pieces in rounds]


def ranges(length: int, pieces: int = 4 * MAX_THREADS) -> list[tuple[int, int]]:
    """About equal ranges of 0 … length."""
    count = min(pieces, length)
    return [(i * length // count, (i + 1) * length // count) for i in range(count)]


# --- threads of BLAS
#
# A product on two threads has other bits than on one, so BLAS takes one thread, also for the largest systems: threads
# that share a core with other work wait for each other besides (a choice of smoothing of 1e11 flops took 41 s on one
# thread, 61 s on two). Most libraries have one number of threads for the whole process; OpenMP has one for each thread
# that calls it.

_lock = threading.Lock()
_own = threading.local()
_users = 0  # threads within `single_threaded_blas`
_before: list[int] = []  # numbers of threads that the first of them found


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Within it, or in a function that it decorates, and in the pieces that `run` calls, BLAS takes one thread.

    Threads that overlap share the limit of the process: the last one to leave restores what the first one found.
    A second one within it in the same thread changes nothing.
    """
    global _users, _before
    if getattr(_own, "inside", False):
        yield
        return
    of_process, of_thread = _libraries()
    before = _set_threads(of_thread, [1] * len(of_thread))
    with _lock:
        if _users == 0:
            _before = _set_threads(of_process, [1] * len(of_process))
        _users += 1
    _own.inside = True
    try:
        yield
    finally:
        _own.inside = False
        with _lock:
            _users -= 1
            if _users == 0:
                _set_threads(of_process, _before)
        _set_threads(of_thread, before)


def _limit_this_thread() -> None:
    """Give a thread of the pool one OpenMP thread, for good; other libraries are limited by who calls `run`."""
    of_thread = _libraries()[1]
    _set_threads(of_thread, [1] * len(of_thread))


def _set_threads(libraries: Sequence[LibController], numbers: Sequence[int]) -> list[int]:
    """Set the numbers of threads of some libraries; those that they had."""
    before = [library.num_threads for library in libraries]
    for library, number in zip(libraries, numbers, strict=True):
        # From 3.8 on threadpoolctl lets only the first thread that set a number change it, and ignores others without
        # a word; callers of ours may be any threads, and hold the lock.
        release = getattr(library, "clear_controlling_thread", lambda force: None)
        release(force=True)
        library.set_num_threads(number)
        release(force=True)
    return before


@functools.lru_cache(maxsize=1)
def _libraries() -> tuple[list[LibController], list[LibController]]:
    """Libraries with one limit for the process, and those with one for each thread that calls them.

    They are found once, after NumPy and SciPy have loaded theirs. OpenBLAS over OpenMP takes as many threads as OpenMP
    gives to the thread that calls it, whatever it was told itself.
    """
    loaded = ThreadpoolController().lib_controllers
    over_openmp = [x for x in loaded if getattr(x, "threading_layer", None) == "openmp"]
    of_process = [
        x for x in loaded if x.user_api == "blas" and not (x.internal_api == "openblas" and x in over_openmp)
    ]
    return of_process, [x for x in loaded if x.user_api == "openmp"]

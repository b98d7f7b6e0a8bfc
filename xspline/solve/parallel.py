"""Work that is split so that no two pieces write to one place, and how many threads BLAS takes beside it.

What is added where, and in which order, depends on the split alone: the same bits on any number of threads.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from xspline.solve.device.gpu import Gpu

MAX_THREADS = 16


@dataclass(frozen=True)
class Resources:
    """What a solve may use.

    Parameters
    ----------
    cores : int
        Processor cores.
    memory : float
        Bytes of memory on the host.
    gpu : Gpu, optional
        Device of the iterative solver, and of dense systems that fit there and are worth the transfer; all others,
        which are small or have structure, stay on the host.
    """

    cores: int
    memory: float
    gpu: Gpu | None = None

    @staticmethod
    def here() -> Resources:
        """The cores of this process and the memory of this machine, no GPU."""
        return Resources(cores(), physical_memory())


def physical_memory() -> float:
    """Bytes of memory of this machine; infinity where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@functools.lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(cores(), MAX_THREADS), thread_name_prefix="xspline")


def run(
    piece: Callable[[int, int], Any], rounds: Sequence[Sequence[tuple[int, int]]], *, split: bool = True
) -> None:
    """Call piece(first, last) for all ranges: round after round, those of one round at the same time."""
    for ranges in rounds:
        if split and len(ranges) > 1 and cores() > 1:
            list(_pool(os.getpid()).map(lambda span: piece(*span), ranges))
        else:
            for first, last in ranges:
                piece(first, last)


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
    edges = np.unique(np.linspace(0, length, min(pieces, length) + 1).astype(int))
    return [(int(a), int(b)) for a, b in itertools.pairwise(edges)]


# Operations from which all threads are worth their while: a choice of smoothing at 1e11 took 41 s on one, 61 s on two.
MANY = 1e12


def threads_for(operations: float) -> AbstractContextManager[Any]:
    """Within it BLAS takes one thread, unless there are many operations; 15 microseconds."""
    return nullcontext() if operations >= MANY else _controller().limit(limits=1, user_api="blas")


@functools.lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    """The BLAS libraries of this process; found once, after NumPy and SciPy have loaded theirs."""
    return ThreadpoolController()

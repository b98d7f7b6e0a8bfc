"""How many threads BLAS takes: one for small systems, where waiting for each other costs more than it saves."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from threadpoolctl import ThreadpoolController

# Operations from which all threads are worth their while: a choice of smoothing at 1e11 took 41 s on one, 61 s on two.
MANY = 1e12


def threads_for(operations: float) -> AbstractContextManager[Any]:
    """Within it BLAS takes one thread, unless there are many operations; 15 microseconds."""
    return nullcontext() if operations >= MANY else _controller().limit(limits=1, user_api="blas")


@functools.lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    """The BLAS libraries of this process; found once, after NumPy and SciPy have loaded theirs."""
    return ThreadpoolController()

"""The decorators of compiled functions, for all rooms.

Importing this module imports numba (0.3 s), so modules of compiled functions are imported inside the functions that
first need them, never by `import xspline`.

Rules for such modules: a compiled function calls only compiled functions of its own file, because numba's cache
on disk does not notice when a callee elsewhere changes; arguments are C-contiguous and native, so that each
function has one specialisation; and what takes long to compile is avoided: copies of one slice to another (2 s: numba
compiles the text of an error with them), `np.searchsorted`, `np.prod` and `np.sum` (0.3 s).

The cache is a help, not a need: where its files are damaged or its disk is full, functions are compiled again.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numba

from xspline.arguments import warn_caller

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {
    "nogil": True,  # threads run side by side: parallelism belongs to the scheduler
    "error_model": "numpy",  # no test for zero before each division, which would prevent vector instructions
    # Neither "nnan" nor "ninf": NaN and infinities keep their meaning.
    "fastmath": {"contract", "nsz", "arcp"},
}
# The same, where sums may be added in any order, without which dot products take no vector instructions. Each sum is
# that of one thread, in an order that the compiled code fixes: bits do not depend on the number of threads.
REORDERING: dict[str, Any] = {**OPTIONS, "fastmath": OPTIONS["fastmath"] | {"reassoc"}}


def compiled(function: F) -> F:
    """Compile a function on its first call, with a cache on disk where there is a place for one.

    The first one of a process that is not in the cache makes the logger "xspline" say what takes so long. It gives a
    RuntimeWarning once in a process and for each reason, if the cache cannot be written, or not read: its disk is full,
    a file is damaged. The functions are then compiled again.
    """
    return _compile(function, OPTIONS)


def compiled_sums(function: F) -> F:
    """Compile a function as `compiled` does, with sums that may be added in any order."""
    return _compile(function, REORDERING)


def internal(function: F) -> F:
    """Compile what only compiled functions of its own file call: there is no way in from Python, and none on disk."""
    njit: Any = numba.njit
    out: F = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)(function)
    return out


def _compile(function: F, options: dict[str, Any]) -> F:
    njit: Any = numba.njit
    try:
        out: F = njit(cache=True, **options)(function)
    except RuntimeError as error:  # "cannot cache function ...: no locator available"
        _warn_once(str(error))
        out = njit(**options)(function)
    dispatcher: Any = out
    if hasattr(dispatcher, "_cache"):  # not where numba is told to compile nothing
        dispatcher._cache = _DispensableCache(dispatcher._cache)
    return out


class _DispensableCache:
    """The files of one function in numba's cache, without which it is compiled."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return what was compiled for a signature, or None."""
        try:
            loaded = self._cache.load_overload(signature, context)
            if loaded is not None and tuple(loaded.signature.args) != tuple(signature):
                raise TypeError("of other arguments")  # two processes may have taken one name for their files
        except Exception as error:  # a truncated file raises whatever reading its content as an object does
            with suppress(OSError):
                self._cache.flush()  # or the function could not be saved again
            _warn_once(_described(error))
            loaded = None
        if loaded is None:
            _announce()
        return loaded

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep what was compiled."""
        try:
            self._cache.save_overload(signature, compiled)
        except Exception as error:
            _warn_once(_described(error))


def _described(error: Exception) -> str:
    """Return the reason without the names of files, which differ: one warning for one reason."""
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or f"a file of its cache is damaged: {type(error).__name__}"


@functools.cache
def _warn_once(reason: str) -> None:
    """Warn once in a process for each reason."""
    warn_caller(
        f"numba cannot cache compiled functions ({reason}); each process compiles them again. "
        "Set NUMBA_CACHE_DIR to a directory that can be written",
        RuntimeWarning,
    )


@functools.cache
def _announce() -> None:
    """Say once in a process what takes so long."""
    logging.getLogger("xspline").warning(
        "xspline compiles its loops at their first use, which takes about ten seconds; later processes find them in "
        "numba's cache"
    )

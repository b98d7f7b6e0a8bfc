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
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, overload

import numba
from numba.core import event

QUIET_SECONDS = 2.0  # of compilation in a process, after which it says what takes so long
_PASSED_BY = ("xspline", "numba", "contextlib", "functools")  # in a search for the line of the user

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {
    "nogil": True,  # threads run side by side: parallelism belongs to the scheduler
    "error_model": "numpy",  # no test for zero before each division, which would prevent vector instructions
    # Neither "nnan" nor "ninf": NaN and infinities keep their meaning.
    "fastmath": {"contract", "nsz", "arcp"},
}


@overload
def compiled(function: F, /) -> F: ...
@overload
def compiled(**options: Any) -> Callable[[F], F]: ...


def compiled(function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
    """Compile a function on its first call, with a cache on disk where there is a place for one.

    After two seconds of compilation in a process the logger "xspline" says what takes so long, once.

    Parameters
    ----------
    function : callable
        What is decorated, in `@compiled`.
    **options
        Of `numba.njit`, in `@compiled(...)`; they replace those of `OPTIONS`.

    Warns
    -----
    RuntimeWarning
        Once in a process and for each reason, if the cache cannot be written, or not read: its disk is full, a file
        is damaged. The functions are then compiled again.
    """
    if function is None:
        return lambda given: _compile(given, {**OPTIONS, **options})
    return _compile(function, OPTIONS)


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
            return loaded
        except Exception as error:  # a truncated file raises whatever reading its content as an object does
            with suppress(OSError):
                self._cache.flush()  # or the function could not be saved again
            _warn_once(_described(error))
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep what was compiled."""
        try:
            self._cache.save_overload(signature, compiled)
        except Exception as error:
            _warn_once(_described(error))


def _described(error: Exception) -> str:
    """Without the names of files, which differ: one warning for one reason."""
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or f"a file of its cache is damaged: {type(error).__name__}"


@functools.cache
def _warn_once(reason: str) -> None:
    """Warn at the line outside the package and numba that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_BY:
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"numba cannot cache compiled functions ({reason}); each process compiles them again. "
        "Set NUMBA_CACHE_DIR to a directory that can be written",
        RuntimeWarning,
        stacklevel=level,
    )


class _Announcer(event.Listener):
    """Says once in a process what takes so long, while functions of the package are compiled."""

    def __init__(self) -> None:
        self.depth, self.spent, self.began = 0, 0.0, 0.0
        self.timer = threading.Timer(0.0, _announce)

    def on_start(self, compilation: Any) -> None:
        """A function is being compiled, maybe for the one that calls it."""
        if not _is_ours(compilation):
            return
        self.depth += 1
        if self.depth == 1 and self.spent < QUIET_SECONDS:
            self.began = time.perf_counter()
            self.timer = threading.Timer(QUIET_SECONDS - self.spent, _announce)
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, compilation: Any) -> None:
        """It is compiled, or could not be."""
        if not _is_ours(compilation):
            return
        self.depth -= 1
        if self.depth == 0 and self.spent < QUIET_SECONDS:
            self.timer.cancel()
            self.spent += time.perf_counter() - self.began


def _is_ours(compilation: Any) -> bool:
    return str(compilation.data["dispatcher"].py_func.__module__).startswith("xspline.")


def _announce() -> None:
    logging.getLogger("xspline").warning(
        "xspline compiles its loops at their first use, which takes about ten seconds; later processes find them in "
        "numba's cache"
    )


register: Any = event.register
register("numba:compile", _Announcer())

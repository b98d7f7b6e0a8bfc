"""The decorator of compiled functions, for all rooms.

Importing this module imports numba (0.3 s), so modules of compiled functions are imported inside the functions that
first need them, never by `import xspline`.

Two rules for such modules: a compiled function calls only compiled functions of its own file, because numba's cache
on disk does not notice when a callee elsewhere changes; and arguments are C-contiguous and native, so that each
function has one specialisation.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, overload

import numba

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

    Parameters
    ----------
    function : callable
        What is decorated, in `@compiled`.
    **options
        Of `numba.njit`, in `@compiled(...)`; they replace those of `OPTIONS`.

    Warns
    -----
    RuntimeWarning
        Once in a process, if the cache can be written nowhere: each process then compiles again.
    """
    if function is None:
        return lambda given: _compile(given, {**OPTIONS, **options})
    return _compile(function, OPTIONS)


def _compile(function: F, options: dict[str, Any]) -> F:
    njit: Any = numba.njit
    try:
        out: F = njit(cache=True, **options)(function)
    except RuntimeError as error:  # "cannot cache function ...: no locator available"
        _warn_once(str(error))
        out = njit(**options)(function)
    return out


@functools.cache
def _warn_once(reason: str) -> None:
    warnings.warn(
        f"numba cannot cache compiled functions ({reason}); each process compiles them again. "
        "Set NUMBA_CACHE_DIR to a directory that can be written",
        RuntimeWarning,
        stacklevel=4,
    )

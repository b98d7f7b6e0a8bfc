"""Reads that fail in passing are tried again, inside the task, so with and without a cluster."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSES = (0.1, 0.5)
"""Seconds before the second and the third try."""

# These say that the request is wrong, not that the store is busy: the next try would fail the same way.
PERMANENT = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    io.UnsupportedOperation,
)


def retrying(read: Callable[..., T], *args: object) -> T:
    """Return ``read(*args)``, tried up to three times while it fails with a passing OSError.

    Timeouts, resets and interrupted transfers are OSErrors. Anything else, and the errors of `PERMANENT`,
    goes through at once.
    """
    for pause in PAUSES:
        try:
            return read(*args)
        except PERMANENT:
            raise
        except OSError:
            time.sleep(pause)
    return read(*args)

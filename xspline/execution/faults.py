"""What can go wrong outside of the sums: reads that fail, workers that die, clusters that go away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class WorkerMemoryError(RuntimeError, MemoryError):
    """Workers were killed, most likely for want of memory; the text says what was projected."""


class ClusterLostError(ConnectionError):
    """The cluster went away, or the connection to it, while it computed; nothing was kept."""


_MEMORY = (
    "Workers were killed again and again, most likely for want of memory. See the projected memory per thread "
    "in .plan(); give workers more memory or fewer threads, or use smaller chunks."
)
_LOST = (
    "nothing was kept or written. Connect a new Client and run this again; with statistics(..., checkpoint=path) "
    "or fit(..., checkpoint=path) it goes on where it stopped."
)


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of a cluster into ours, which say what to do.

    Raises
    ------
    WorkerMemoryError
        Workers were killed again and again.
    ClusterLostError
        Client, scheduler or all of the cluster went away.
    """
    try:
        yield
    except Exception as error:
        name = type(error).__name__  # distributed need not be installed
        if name == "KilledWorker":
            raise WorkerMemoryError(f"{error}\n{_MEMORY}") from error
        if name in ("FutureCancelledError", "CancelledError"):
            raise ClusterLostError(
                f"the cluster was lost while it computed ({_reason(error)}); {_LOST}"
            ) from error
        raise


def _reason(error: Exception) -> str:
    found = (str(getattr(error, name, None) or "") for name in ("reason", "msg"))
    return (
        ": ".join(text for text in found if text and text != "unknown") or "its client or its workers closed"
    )


@contextmanager
def reading(label: str, box: Sequence[slice]) -> Iterator[None]:
    """Note on an error, which keeps its type, what was being read when it happened."""
    try:
        yield
    except Exception as error:
        place = tuple((s.start, s.stop) for s in box)
        error.read = (label, place)  # type: ignore[attr-defined]  # for those who know labels; it is pickled too
        error.add_note(f"while reading {label}[{', '.join(f'{a}:{b}' for a, b in place)}]")
        raise

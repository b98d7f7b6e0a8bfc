"""Reads that fail in passing are tried again, wherever they happen; what cannot succeed is not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.execution.cases import SHAPE, values
from xspline.execution.source import cut, retrying

NO_PAUSES = (0.0, 0.0)


class Failing:
    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error, self.calls = times, error, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return "read"


@pytest.mark.parametrize("error", [OSError("reset"), TimeoutError("slow"), ConnectionResetError("gone")])
def test_passing_errors_are_tried_three_times(error: Exception) -> None:
    assert retrying(Failing(2, error), pauses=NO_PAUSES) == "read"
    hopeless = Failing(3, error)
    with pytest.raises(type(error), match=str(error)):
        retrying(hopeless, pauses=NO_PAUSES)
    assert hopeless.calls == 3


LASTING = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ValueError,
    KeyError,
    MemoryError,
)


@pytest.mark.parametrize("kind", LASTING)
def test_lasting_errors_are_not_tried_again(kind: type[Exception]) -> None:
    read = Failing(1, kind("wrong"))
    with pytest.raises(kind, match="wrong"):
        retrying(read, pauses=NO_PAUSES)
    assert read.calls == 1


class Busy:
    """A store of chunks that refuses every request for several of them, and the first one for each."""

    shape, dtype, chunks = SHAPE, np.dtype(float), (10, 7, 12)

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()

    def read(self, slices: tuple[slice, ...]) -> np.ndarray:
        several = any(s.stop - s.start > n for s, n in zip(slices, self.chunks, strict=True))
        self.tries[str(slices)] += 1
        if several or self.tries[str(slices)] == 1:
            raise OSError("please reduce your request rate")
        return values()[slices]


def test_a_region_that_fails_each_time_is_read_by_its_chunks() -> None:
    """Of a thousand chunks at once some fail nearly always, although few requests fail."""
    box = (slice(0, SHAPE[0]), slice(3, SHAPE[1]), slice(0, SHAPE[2]))
    reader = Busy()
    result = cut(reader, (0, 1, 2), box, NO_PAUSES)
    np.testing.assert_array_equal(result, values()[box])
    assert reader.tries[str(box)] == 3 and len(reader.tries) > 4

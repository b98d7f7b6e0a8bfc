"""Sums apart by holder: of a block that several of them share, and of all but one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from .sums import Sums, check_parts

if TYPE_CHECKING:
    from xspline.spaces import Frame


@dataclass(frozen=True, eq=False, repr=False)
class Shares(Mapping[int, Sums]):
    """Sums by holder, that a block or a merge of blocks holds at once; they add holder by holder.

    Parameters
    ----------
    by_code : mapping of int to Sums
        Holders are numbered; those without a row in the block are left out.
    """

    by_code: Mapping[int, Sums]

    def __getitem__(self, code: int) -> Sums:
        return self.by_code[code]

    def __iter__(self) -> Iterator[int]:
        return iter(self.by_code)

    def __len__(self) -> int:
        return len(self.by_code)

    @staticmethod
    def merge(parts: Sequence[Shares], frame: Frame) -> Shares:
        """Shares of all the data of all parts, deterministic in their order."""
        return Shares({code: Sums.merge(found, frame) for code, found in _by_code(parts)})

    @staticmethod
    def concatenate(parts: Sequence[Shares], axis: int, frame: Frame) -> Shares:
        """Blocks that differ along batch axis `axis`, side by side; all have the same holders."""
        return Shares({code: Sums.concatenate(found, axis, frame) for code, found in _by_code(parts)})

    @property
    def nbytes(self) -> int:
        """Bytes of all sums."""
        return sum(sums.nbytes for sums in self.values())


def _by_code(parts: Sequence[Shares]) -> Iterator[tuple[int, list[Sums]]]:
    """For each holder, in ascending order, its Sums in those parts that have some."""
    for code in sorted({code for part in parts for code in part}):
        yield code, [part[code] for part in parts if code in part]


def leave_one_out(parts: Sequence[Sums], frame: Frame) -> list[Sums]:
    """Sums of the data of all parts but one, for each of them in turn.

    They are added up from the first parts and from the last ones, 3 merges a part; nothing is subtracted, so that
    what remains is as exact as a merge of its own, and separable where that is.

    Parameters
    ----------
    parts : sequence of Sums
        At least one. What is left of a single one is `Sums.zero`.
    frame : Frame

    Returns
    -------
    list of Sums
        As many as there are parts, in their order; each is deterministic in it.

    Raises
    ------
    ValueError
        There are no parts, or they have different coefficient or batch axes.
    """
    check_parts(parts)
    if len(parts) == 1:
        return [Sums.zero(frame, parts[0].batch)]
    after = list(accumulate(parts[:0:-1], lambda done, part: Sums.merge([part, done], frame)))
    before = accumulate(parts[:-1], lambda done, part: Sums.merge([done, part], frame))
    first = after.pop()
    return [first, *(Sums.merge([done, after.pop()], frame) if after else done for done in before)]

"""Sums apart by holder: all but one of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from .sums import Sums, check_parts

if TYPE_CHECKING:
    from xspline.spaces import Frame


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

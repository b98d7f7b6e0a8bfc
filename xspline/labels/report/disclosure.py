"""What statistics tell of the observations that went into them: to be read before they are shared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from xspline.labels.read.parts import Part
from xspline.labels.report.check import Finding, FitCheck
from xspline.solve.errors import warn
from xspline.spaces import Space
from xspline.spaces.bspline import LocalSpline
from xspline.sums import Sums, cell_weights


class Disclosure(FitCheck):
    """What :meth:`Statistics.disclosure` looked at; its text is what to read.

    Attributes
    ----------
    findings : for each variable, each with ``subject``, ``text``, and ``advice``, which is empty where all is fine.
    """


def disclosure(parts: Sequence[Part], names: Iterable[str], space: Space, places: int, k: int) -> Disclosure:
    """Return what the parts of statistics disclose of some variables; see :meth:`Statistics.disclosure`.

    `places` is at how many there can be observations on a grid; 0 where that is not known.
    """
    if k < 1:
        raise ValueError(f"disclosure(k={k}): the fewest observations of a cell are 1 or more")
    report: dict[str, tuple[Finding, ...]] = {}
    for name in names:
        own = [(part.holder, part.sums[name]) for part in parts if part.sums[name].has_weight]
        if not own:
            report[name] = (Finding("cells", "there are no observations"),)
            continue
        counts = [_counts(sums, space) for _, sums in own]
        worst = max(range(len(own)), key=lambda i: int((counts[i] < k - 0.5).sum()))
        holder, sums = own[worst]
        told = [*_of_sums(space, sums, counts[worst], places, k), *_of_parts(len(parts), holder)]
        for finding in told:
            if finding.warns:
                warn(f"{name}: {finding.text}; {finding.advice}")
        report[name] = tuple(told)
    return Disclosure(report)


def _counts(sums: Sums, space: Space) -> np.ndarray:
    """Return about how many observations each cell holds, [m.., b..]; NaN where none does."""
    with np.errstate(invalid="ignore", divide="ignore"):
        counts = cell_weights(sums.gram.with_batch_axes(sums.batch_ndim), space) * (sums.count / sums.weight)
    return np.where(counts > 0, counts, np.nan)


def _of_sums(space: Space, sums: Sums, counts: np.ndarray, places: int, k: int) -> Iterator[Finding]:
    held, few = int(np.isfinite(counts).sum()), int((counts < k - 0.5).sum())
    cells = math.prod(f.cells for f in space.features) * (
        counts.size // math.prod(counts.shape[: len(space.names)])
    )
    least = np.unravel_index(int(np.nanargmin(counts)), counts.shape) if held else ()
    if few:
        text = f"{few} of {held} cells with observations hold fewer than about {k}, the least at {_place(space, least)}"
        yield Finding(
            "cells", text, "take fewer functions, or leave such places out: so few show in the sums"
        )
    else:
        low = f"about {np.nanmin(counts):.0f} or more" if held else "observations on their knots alone"
        yield Finding("cells", f"{held} cells hold {low}")
    count = int(np.min(sums.count, where=sums.count > 0, initial=np.iinfo(np.int64).max))
    places, size = min(count, places or count), space.size
    text = f"{size} functions for {count} observations at {places} places"
    fewer = f"take fewer than {places // 2} functions"
    if places < 4:  # half as many are one function, whose sums of so few tell about as much
        fewer = "of so few observations any sums tell much, so add up more of them first"
    if places <= size:
        advice = f"the values themselves follow from the sums, up to rounding: {fewer}"
        yield Finding("functions", f"{text}, knots as fine as the labels", advice, warns=True)
    elif 2 * size > places:
        yield Finding("functions", text, f"nearly as many: {fewer}, else values follow")
    else:
        yield Finding("functions", text)
    if held < cells:
        text = f"{cells - held} of {cells} cells hold no observations inside, and G shows which"
        yield Finding(
            "gaps", text, "mask the data alike for all holders first, if where they are is not public"
        )
    else:
        yield Finding("gaps", "all cells hold observations, so that G shows no gap of their size")


def _of_parts(n: int, worst: str) -> Iterator[Finding]:
    if n > 1:
        text = (
            f"{n} parts, each of which can be read by itself; the above is of {worst!r}, which shows the most"
        )
        yield Finding(
            "parts",
            text,
            "pass on .collapse(periods=False), the total alone, where nobody has to be taken out again",
        )
    text = "what a later release of a holder has more than this one are the sums of what came between"
    yield Finding(
        "releases", text, "look at these by themselves first: disclosure() of the new observations alone"
    )


def _place(space: Space, index: tuple[Any, ...]) -> str:
    """Return the middle of a cell in labels."""
    texts = []
    for name, f, i in zip(space.names, space.features, index, strict=False):
        if isinstance(f, LocalSpline):
            middle, axis = float((f.edges[i] + f.edges[i + 1]) / 2), space.axis(name)
            texts.append(f"{name} {f'{middle:.5g}' if axis.kind == 'number' else axis.text(round(middle))}")
    return ", ".join(texts) or "all labels"

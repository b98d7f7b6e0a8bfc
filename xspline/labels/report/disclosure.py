"""What statistics tell of the observations that went into them: to be read before they are shared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from xspline.labels.report.findings import Finding, FitCheck
from xspline.labels.statistics import Statistics
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


def disclosure(statistics: Statistics[Any], k: int) -> Disclosure:
    """Return what statistics disclose; see :meth:`Statistics.disclosure`."""
    if k < 1:
        raise ValueError(f"disclosure(k={k}): the fewest observations of a cell are 1 or more")
    statistics._check_computed()
    report: dict[str, tuple[Finding, ...]] = {}
    for name in statistics.variables:
        parts = {part.holder: part.sums[name] for part in statistics.parts if part.sums[name].has_weight}
        if not parts:
            report[name] = (Finding("cells", "there are no observations"),)
            continue
        fewest = {holder: _counts(sums, statistics.space) for holder, sums in parts.items()}
        worst = max(parts, key=lambda holder: int((fewest[holder] < k - 0.5).sum()))
        told = [*_of_sums(statistics, parts[worst], fewest[worst], k), *_of_parts(statistics, worst)]
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


def _of_sums(statistics: Statistics[Any], sums: Sums, counts: np.ndarray, k: int) -> Iterator[Finding]:
    space, size = statistics.space, statistics.space.size
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
    places = min(count, _places(statistics) or count)
    text = f"{size} functions for {count} observations at {places} places"
    if places <= size:
        advice = f"the values themselves follow from the sums, up to rounding: take fewer than {places // 2} functions"
        yield Finding("functions", f"{text}, knots as fine as the labels", advice, warns=True)
    elif 2 * size > places:
        yield Finding(
            "functions", text, f"nearly as many: take fewer than {places // 2} functions, else values follow"
        )
    else:
        yield Finding("functions", text)
    if held < cells:
        text = f"{cells - held} of {cells} cells hold no observations inside, and G shows which"
        yield Finding(
            "gaps", text, "mask the data alike for all holders first, if where they are is not public"
        )
    else:
        yield Finding("gaps", "all cells hold observations, so that G shows no gap of their size")


def _of_parts(statistics: Statistics[Any], worst: str) -> Iterator[Finding]:
    if (n := len(statistics.parts)) > 1:
        text = (
            f"{n} parts, each of which can be read by itself; the above is of {worst!r}, which shows the most"
        )
        yield Finding(
            "parts", text, "pass on .collapse(), the total alone, where nobody has to be taken out again"
        )
    text = "what a later release of a holder has more than this one are the sums of what came between"
    yield Finding(
        "releases", text, "look at these by themselves first: disclosure() of the new observations alone"
    )


def _places(statistics: Statistics[Any]) -> int:
    """Return at how many places there can be observations on a grid; 0 where that is not known."""
    fitted = statistics._fitted or {}
    sizes = {dim: n for labels in fitted.values() for dim, n in labels.sizes.items()}
    return math.prod(sizes.values()) if sizes else 0


def _place(space: Space, index: tuple[Any, ...]) -> str:
    """Return the middle of a cell in labels."""
    texts = []
    for name, f, i in zip(space.names, space.features, index, strict=False):
        if isinstance(f, LocalSpline):
            middle, axis = float((f.edges[i] + f.edges[i + 1]) / 2), space.axis(name)
            texts.append(f"{name} {f'{middle:.5g}' if axis.kind == 'number' else axis.text(round(middle))}")
    return ", ".join(texts) or "all labels"

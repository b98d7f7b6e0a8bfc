"""The lines of a block along a series, and what pairs of their observations add up to, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from xspline.kernels.block import Block, Floats, Integers
from xspline.spaces.features import Features, pair_products
from xspline.spaces.means import middle
from xspline.sums.memory import Series


@dataclass(frozen=True, eq=False)
class Lines:
    """Values along a series, a line for each place, and the functions of their labels."""

    values: Any  # [n, C]
    used: Integers  # [rows], those inside the domain, in order
    position: Integers  # [rows], in steps
    phi: Floats  # [rows, K], functions of the series' coordinate
    lags: int  # steps between two observations, at most, that make a pair
    reference: float  # what is subtracted from values
    rest: tuple[int, ...]  # lengths of the other axes of the data, whose product is C

    @staticmethod
    def of(block: Block, series: Series, features: Features, reference: float) -> Lines:
        """Return the lines of a block on the host, whose `features` are those of the series' coordinate."""
        x, values = block.coordinates[series.coefficient], np.moveaxis(block.values, series.axis, 0)
        flat = np.require(values.reshape(len(x), -1), requirements="C").view()
        flat.flags.writeable = False  # as stores hand them out: one specialisation
        used = np.flatnonzero(features.locate(x)[0] >= 0)
        steps = np.rint(np.diff(middle(x)) / series.step).astype(np.int64)
        position = np.append(0, np.cumsum(steps))[used]
        phi = np.ascontiguousarray(features.design(x[used]))
        return Lines(flat, used, position, phi, series.lags, reference, values.shape[1:])

    def along(self, line: int) -> Lines:
        """Return one of the lines."""
        values = np.ascontiguousarray(self.values[:, line : line + 1])
        values.flags.writeable = False
        return Lines(values, self.used, self.position, self.phi, self.lags, self.reference, ())

    def summed(self, weight: Floats, cut: int | None, *, grams: bool) -> tuple[Floats, Floats]:
        """Return the sums of each line in the slots of `Memory.lagged`, for weights [C] of the lines.

        They are moments, and the upper triangle of G if `grams`, [S, C, K + Q]; and s, Σw and n, [S, C, 3]. With a
        `cut` there are those pairs alone that reach over this row.
        """
        size, lines = self.phi.shape[1], self.values.shape[1]
        width = size + (size * (size + 1) // 2 if grams else 0)
        totals = np.zeros((3 * self.lags, lines, width))
        scalars = np.zeros((3 * self.lags, lines, 3))
        if cut is None:
            self._add_all(weight, totals, scalars, grams=grams)
        else:
            self._add_over(cut, weight, totals, scalars, grams=grams)
        return totals, scalars

    def _add_all(self, weight: Floats, totals: Floats, scalars: Floats, *, grams: bool) -> None:
        from xspline.kernels.compiled import series as loops  # imports numba

        # Functions change by so much from the row before, if that is one step away; else by nothing.
        follows = np.diff(self.position, prepend=self.position[:1]) == 1
        steps = np.diff(self.phi, axis=0, prepend=self.phi[:1]) * follows[:, None]
        after = np.append(steps[1:], np.zeros_like(steps[:1]), axis=0)
        events = ([_in_lanes(part) for part in parts] for parts in self._events(steps, after, grams))
        table = np.ascontiguousarray([np.concatenate(parts, axis=1) for parts in events])
        second = np.pad(steps - after, ((0, 3), (0, 0)))
        given = self.values, weight, self.used, self.position, second, table, self.reference
        loops.pairs(*given, totals.reshape(-1), scalars.reshape(-1))

    def _events(self, steps: Floats, after: Floats, grams: bool) -> Iterator[list[list[Floats]]]:
        """Yield what the compiled loop takes of ends of runs and of gaps, see `pairs` there.

        The moment of neighbours is made for runs without an end: what it has of pairs that are not there is taken out.
        """
        phi, n = self.phi, len(self.phi)

        def products(rows: Floats) -> Floats:
            return pair_products(rows if grams else rows[:, :0])

        before = np.cumsum(products(steps), axis=0)  # G of all pairs up to a row
        own = products(phi)
        none, no_gram = np.zeros_like(phi), np.zeros_like(own)
        yield [[none, none, none], [-steps, none, phi], [-before, no_gram, own]]
        yield [[after, none, phi], [none, none, none], [before, no_gram, own]]
        for lag in range(2, self.lags + 1):
            other = np.minimum(np.searchsorted(self.position, self.position + lag), n - 1)
            apart = phi[other] - phi
            both = [before - before[other], products(apart), own + own[other]]
            yield [[after, -apart, phi], [-steps[other], apart, phi[other]], both]

    def _add_over(self, cut: int, weight: Floats, totals: Floats, scalars: Floats, *, grams: bool) -> None:
        e = self.values[self.used].astype(np.float64) - self.reference
        rows, known = np.arange(len(e))[:, None], np.isfinite(e) & (weight > 0)
        is_before = (self.used < cut)[:, None]
        last = np.where(known & is_before, rows, -1).max(axis=0)
        first = np.where(known & ~is_before, rows, len(e)).min(axis=0)

        def add(slot: int, lines: Integers, row: Floats, errors: Floats) -> None:
            w = weight[lines]
            pairs = pair_products(row[None] if grams else row[None, :0])[0]
            totals[slot, lines] += np.concatenate([np.outer(w * errors, row), np.outer(w, pairs)], axis=1)
            scalars[slot, lines] += np.stack([w * errors * errors, w, np.ones_like(w)], axis=1)

        for a, b in np.argwhere(is_before & ~is_before.T):
            lag = self.position[b] - self.position[a]
            lines = np.flatnonzero((last == a) & (first == b))
            if lag <= self.lags and lines.size:
                add(lag - 1, lines, self.phi[b] - self.phi[a], e[b, lines] - e[a, lines])
                for row in (a, b):
                    add(self.lags + lag - 1, lines, self.phi[row], e[row, lines])


def _in_lanes(parts: list[Floats]) -> Floats:
    """Return columns side by side, and zeros after them up to a whole number of lanes."""
    from xspline.kernels.compiled.lanes import LANES

    own = np.concatenate(parts, axis=1)
    return np.pad(own, ((0, 0), (0, -own.shape[1] % LANES)))

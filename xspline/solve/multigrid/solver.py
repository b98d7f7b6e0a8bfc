"""Iterative solver for any Gram and penalty: conjugate gradients with a multigrid V-cycle.

Memory and time grow like P: the pair array and the inverses of the windows of `schwarz`, about twice as large, and some
ten to forty iterations of eight products with each. What needs the inverse itself is estimated from fixed random
probes: z with entries ±1 has E[zᵀ M z] = tr M (Hutchinson 1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xspline.solve.device.gpu import Gpu
from xspline.solve.device.multigrid import DeviceMultigrid
from xspline.solve.errors import NEEDS_DIRECT, ConvergenceError
from xspline.solve.krylov import (
    MAX_ITERATIONS,
    PROBE_TOLERANCE,
    TOLERANCE,
    conjugate_gradients,
    probes,
)
from xspline.solve.multigrid.spaces import COARSEST, MAX_AXES, Line
from xspline.solve.multigrid.vcycle import Multigrid, Terms
from xspline.solve.structure import distinct, systems_between
from xspline.solve.system import IterativeSystem
from xspline.sums import Gram

if TYPE_CHECKING:
    from xspline.spaces import Frame, Space

Array = NDArray[np.float64]

AT_ONCE = 8  # right-hand sides


class Iterative(IterativeSystem):
    """Multigrid preconditioners of the distinct members of G + Λ.

    Parameters
    ----------
    gram, penalty : Gram
        G, and Λ without batch axes.
    space : Space
        At most four coordinates.
    tolerance : float
        ‖(G + Λ) c − h‖ / ‖h‖ at which a solve ends.
    coarsest : int
        Coefficients that are solved for directly.
    most : int
        Iterations.
    gpu : Gpu, optional
        Device on which systems are set up and solved; None: the host.

    Raises
    ------
    ValueError
        More than four coordinates.
    """

    def __init__(
        self,
        gram: Gram,
        penalty: Gram,
        space: Space,
        *,
        tolerance: float = TOLERANCE,
        coarsest: int = COARSEST,
        most: int = MAX_ITERATIONS,
        gpu: Gpu | None = None,
    ) -> None:
        self.gpu = gpu
        self.frame, self.tolerance, self.most = space.frame, tolerance, most
        self.layout = Layout.of(space)
        self.gram, self.index = distinct(gram)
        self.penalty = penalty
        count = int(self.index.max(initial=0)) + 1
        self.parts = [self._part(i, coarsest) for i in range(count)]
        self.at_once = AT_ONCE

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        """Whether every coefficient has an entry on the diagonal and the coarsest level is positive definite, [b..]."""
        determined = np.array([part is not None and part.base.determined for part in self.parts])
        return np.asarray(determined[self.index])

    @property
    def nbytes(self) -> int:
        """Bytes of the levels of all systems."""
        return sum(part.nbytes for part in self.parts if part is not None)

    def _part(self, i: int, coarsest: int) -> Multigrid | None:
        """The levels of one member; None if a coefficient has nothing that determines it."""
        whole = Gram((*systems_between(self.gram, i, i + 1).terms, *self.penalty.with_batch_axes(1).terms), 1)
        if not (whole.diagonal(self.frame) > 0).all():
            return None
        terms = self.layout.terms(self.penalty, self.frame)
        if self.gpu is None:
            return Multigrid(self._pairs(whole), self.layout.lines, terms, coarsest)
        alone = Gram(systems_between(self.gram, i, i + 1).terms, 1) if terms else whole
        return DeviceMultigrid(self._pairs(alone), self.layout.lines, terms, coarsest, gpu=self.gpu)

    def _pairs(self, gram: Gram) -> Array:
        """Pair array of one member over the four axes."""
        return self.layout.pairs(gram.one_factor(self.frame).pairs[..., 0])

    @cached_property
    def weakest(self) -> int:
        """Flat index of the coefficient that depends most on the others, as far as the coarsest level shows it."""
        found = [part for part in self.parts if part is not None]
        if not found:
            diagonal = self.gram.diagonal(self.frame)[..., 0] + self.penalty.diagonal(self.frame)
            return int(np.argmin(diagonal))
        best = max(found, key=lambda part: part.base.pivot)
        return self.layout.original(best.weakest)

    # --- solving

    def _solve_rows(self, rows: Array, which: NDArray[np.intp], tolerance: float) -> Array:
        """A⁻¹ rows, [m, K..], all of one system."""
        part = self.parts[int(which[0])]
        if part is None:
            return np.full_like(rows, np.nan)
        x = self._columns(part, self.layout.into(np.moveaxis(rows, 0, -1)), tolerance)
        return np.moveaxis(self.layout.back(x), -1, 0)

    def _columns(self, part: Multigrid, rhs: Array, tolerance: float) -> Array:
        """A⁻¹ rhs, [m, K..], some columns at a time."""
        out = np.empty_like(rhs)
        for start in range(0, len(rhs), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            x, iterations, residual = conjugate_gradients(
                part.operator.matvec, part.cycle, part.put(rhs[some]), tolerance, self.most
            )
            out[some] = part.get(x)
            self._record(iterations, residual)
        return out

    # --- estimates

    def probes(self) -> tuple[Array, Array, Array]:
        """a = S z, w = S⁻¹ z and b = A⁻¹ w of the only member, [K.., m] each.

        Raises
        ------
        ConvergenceError
            There are several members, or it is not determined.
        """
        found = self._probed[0]
        if len(self._probed) != 1 or found is None:
            raise ConvergenceError("probes of several systems " + NEEDS_DIRECT)
        a, b = (self.layout.back(x) for x in found)
        return a, 1.0 / a, b  # z are ±1, so S⁻¹ z and S z are reciprocal

    @cached_property
    def _probed(self) -> list[tuple[Array, Array] | None]:
        """Of each member scaled probes S z and the solutions A⁻¹ S⁻¹ z, S the inverse roots of the diagonal.

        Then xᵀ B (S z) estimates tr(A⁻¹ B) as well as zᵀ A⁻¹ B z does, with less scatter where A has steep contrasts.
        """
        out: list[tuple[Array, Array] | None] = []
        for part in self.parts:
            if part is None or not part.base.determined:
                out.append(None)
                continue
            scale = part.operator.scale()
            z = probes(part.operator.sizes)
            out.append((z * scale, self._columns(part, z / scale, PROBE_TOLERANCE)))
        return out

    def edf_samples(self) -> list[Array]:
        return [self._samples(i, systems_between(self.gram, i, i + 1)) for i in range(len(self.parts))]

    def _samples(self, i: int, gram: Gram) -> Array:
        """Estimates of tr(A⁻¹ B) of one member, [probes]."""
        found = self._probed[i]
        if found is None:
            return np.full(1, np.nan)
        scaled, solved = (self.layout.back(x) for x in found)
        image = gram.matvec(scaled, self.frame)
        axes = tuple(range(len(self.frame.sizes)))
        return np.asarray(np.sum(solved * image, axis=axes), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Layout:
    """The coordinates as four axes: the longest local one last, the next longest first, axes of one to fill up.

    Parameters
    ----------
    order : tuple of int
        For each of the four the axis of the Space; −1 where it is filled up.
    lines : tuple of Line
    """

    order: tuple[int, ...]
    lines: tuple[Line, ...]

    @staticmethod
    def of(space: Space) -> Layout:
        """The layout of a space."""
        lines = [Line.of(f) for f in space.features]
        if len(lines) > MAX_AXES:
            raise ValueError(
                f"the iterative solver is made for up to {MAX_AXES} coordinates, this space has {len(lines)}; "
                "pass solver='banded'"
            )
        ranked = sorted(
            range(len(lines)), key=lambda j: (lines[j].knots is not None, lines[j].size), reverse=True
        )
        last, first, others = ranked[:1], ranked[1:2], sorted(ranked[2:])
        fill = [-1] * (MAX_AXES - len(lines))
        order = (*first, *fill, *others, *last)
        return Layout(order, tuple(Line(1, 1) if j < 0 else lines[j] for j in order))

    @property
    def axes(self) -> list[int]:
        """Axes of the Space in their order here."""
        return [j for j in self.order if j >= 0]

    def pairs(self, pairs: Array) -> Array:
        """[K.., O..] of the Space over the four axes."""
        count = len(self.axes)
        moved = pairs.transpose(*self.axes, *(count + j for j in self.axes))
        shape = [line.size for line in self.lines] + [line.offsets for line in self.lines]
        return np.ascontiguousarray(moved).reshape(shape)

    def into(self, v: Array) -> Array:
        """[K.., m] of the Space to [m, K..] over the four axes."""
        moved = v.transpose(v.ndim - 1, *self.axes)
        return np.ascontiguousarray(moved).reshape(-1, *(line.size for line in self.lines))

    def back(self, v: Array) -> Array:
        """Inverse of `into`."""
        kept = [line.size for j, line in zip(self.order, self.lines, strict=True) if j >= 0]
        back = np.argsort(self.axes) + 1
        return v.reshape(len(v), *kept).transpose(*back.tolist(), 0)

    def original(self, place: Sequence[int]) -> int:
        """Flat index in the Space of a place on the four axes."""
        at = {j: (k, line.size) for j, k, line in zip(self.order, place, self.lines, strict=True) if j >= 0}
        indices, sizes = zip(*(at[j] for j in sorted(at)), strict=True)
        return int(np.ravel_multi_index(indices, sizes))

    def terms(self, penalty: Gram, frame: Frame) -> Terms:
        """Terms of a penalty as pairs of each of the four axes; none if a factor spans several."""
        if any(len(f.axes) != 1 for term in penalty.terms for f in term):
            return ()
        found = ({f.axes[0]: f.full(frame).pairs for f in term} for term in penalty.terms)
        return [[term[j] if j >= 0 else np.ones((1, 1)) for j in self.order] for term in found]

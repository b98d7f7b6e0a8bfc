"""The interface of all solvers: a factorised system G + Λ, its solves, traces, draws and inverse.

A `DirectSystem` knows the inverse, an `IterativeSystem` estimates traces from random probes. A `Factorisation` sits on
top of either: it knows which batch members are determined, and says what iterations cannot answer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.solve.costs import CostModel
from xspline.solve.errors import NEEDS_DIRECT, ConvergenceError
from xspline.solve.krylov import DRAW_TOLERANCE
from xspline.spaces import Frame
from xspline.sums import Gram
from xspline.threads import single_threaded_blas

Array = NDArray[np.float64]
Draw: TypeAlias = Callable[[tuple[int, ...]], Array]
"""A function of extents (n, b..) that returns independent draws, [K.., n, b..], of covariance (G + Λ)⁻¹."""

CoupledDraw: TypeAlias = Callable[[tuple[int, ...]], tuple[Array, Array]]

# By how much a variance may be wrong, as a share of it: errors are then wrong by 2.5 %, half of what 200 draws scatter.
MAX_BIAS = 0.05


@dataclass(frozen=True)
class Choice:
    """A solver, the reason for it, and what its factorisation costs: bytes and operations (estimates)."""

    name: str
    reason: str
    nbytes: int
    operations: float  # of what is factorised on a GPU those that the host does in the time
    # whether it knows the inverse; others iterate, estimate traces and have draws for error bars
    exact: bool = True
    # whether it factorises on a GPU; then `nbytes` are those that the host needs to say why it is singular
    on_gpu: bool = False
    # whether λ is searched for; then `nbytes` are those of the search, `operations` of one factorisation
    searched: bool = False
    # why there is no memory for an exact solver in its place; empty where memory did not decide
    memory_refusal: str = ""
    # operations of the entries of the inverse, in the time that they take; 0 where it is twice `operations`
    inverse: float = 0.0
    # how many times the usual steps a search takes: those of a family with more parameters take more
    searches: float = 1.0

    @property
    def searching(self) -> float:
        """Operations of a step of a search: of a factorisation and an inverse."""
        return self.operations + (self.inverse or 2 * self.operations)

    def seconds(self, frame: Frame, systems: int, costs: CostModel) -> float:
        """About how long one core takes to solve so many systems, and first to choose λ where that is searched for."""
        size = math.prod(frame.sizes)
        factorising = systems * self.operations / costs.flops_per_second
        if not self.searched:
            pairs = systems * size * math.prod(frame.offsets)
            return costs.step_seconds + pairs / costs.pairs_per_second + factorising
        if not self.exact:
            return costs.estimated_solves * factorising
        # A factor of a band has √(P · operations) entries; a column takes four operations with each of them.
        entries = systems * math.sqrt(size * self.operations)
        # Of each draw there are three: itself, what a solve makes of it, and what it is multiplied by before.
        columns = 4.0 * 3 * costs.draws(size) * entries / costs.column_flops_per_second
        step = systems * self.searching / costs.flops_per_second
        # Large problems start where coarser ones end, which takes half of the steps.
        large = self.operations >= costs.coarse_start_flops
        steps = costs.search_steps * self.searches / (2 if large else 1)
        return steps * (costs.step_seconds + step + columns)


def columns_of(
    rhs: Array, sizes: tuple[int, ...], index: NDArray[np.intp]
) -> tuple[Array, NDArray[np.intp], tuple[int, ...]]:
    """Right-hand sides [K.., b..] as columns [K.., n], the system of each from those of the batch, and their shape."""
    batch = np.broadcast_shapes(rhs.shape[len(sizes) :], index.shape)
    columns = np.broadcast_to(rhs, sizes + batch).reshape(*sizes, -1)
    return columns, np.broadcast_to(index, batch).ravel(), sizes + batch


class System(ABC):
    """G + Λ, prepared for any number of right-hand sides."""

    frame: Frame

    @property
    @abstractmethod
    def determined(self) -> NDArray[np.bool_]:
        """Which batch members are positive definite beyond rounding errors, [b..]."""

    @property
    @abstractmethod
    def weakest(self) -> int:
        """Flat index (C order of the Space) of the coefficient that depends most on the others."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of what is kept."""

    @abstractmethod
    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..]; batch extents of 1 broadcast on both sides.

        `tolerance` is the relative residual at which iterations end, if not the usual one; direct solvers are exact.
        """

    @abstractmethod
    def draws(self, rng: np.random.Generator) -> Draw:
        """A function that returns independent draws of mean 0 and covariance (G + Λ)⁻¹."""

    @abstractmethod
    def edf(self) -> Array:
        """tr((G + Λ)⁻¹ G), [b..]."""


class DirectSystem(System):
    """A system whose inverse is known."""

    @abstractmethod
    def logdet(self) -> Array:
        """log|G + Λ|, [b..]."""

    @abstractmethod
    def traces(self, grams: Sequence[Gram]) -> Array:
        """tr((G + Λ)⁻¹ S) of Grams S without batch axes, [len, b..]."""

    @abstractmethod
    def inverse_pairs(self) -> Array:
        """Pair form of (G + Λ)⁻¹, [K.., O.., b..]."""

    @abstractmethod
    def apply_inverse_sqrt(self, z: Array) -> Array:
        """x with E[x xᵀ] = (G + Λ)⁻¹ for independent standard normal z, [K.., b..]; extents as in `solve`."""

    def draws(self, rng: np.random.Generator) -> Draw:
        return lambda extents: self.apply_inverse_sqrt(rng.standard_normal((*self.frame.sizes, *extents)))


class IterativeSystem(System):
    """A system that is solved by iterations, several right-hand sides side by side."""

    index: NDArray[np.intp]  # [b..], which of the different systems each batch member is
    tolerance: float  # ‖(G + Λ) c − h‖ / ‖h‖ at which a solve ends
    at_once: int  # right-hand sides that are solved for side by side
    mixes_systems = False  # whether right-hand sides of different systems may be solved for side by side
    near: DirectSystem | None = None  # a system that knows its inverse and differs little from this one
    iterations = 0  # of the last solve, the most of any right-hand side

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..], up to a relative residual; NaN for members that are not determined.

        It raises ConvergenceError where the residual did not fall to the tolerance.
        """
        columns, which, shape = columns_of(rhs, self.frame.sizes, self.index)
        rows = np.moveaxis(columns, -1, 0)
        batch = shape[len(self.frame.sizes) :]
        usable = np.flatnonzero(np.broadcast_to(self.determined, batch).ravel())
        systems = [None] if self.mixes_systems else np.unique(which[usable])
        out = np.full(rows.shape, np.nan)
        self.iterations = 0
        for system in systems:
            own = usable if system is None else usable[which[usable] == system]
            for start in range(0, len(own), self.at_once):
                some = own[start : start + self.at_once]
                some_rows = np.ascontiguousarray(rows[some])
                out[some] = self._solve_rows(some_rows, which[some], tolerance or self.tolerance)
        return np.moveaxis(out, 0, -1).reshape(shape)

    def edf(self) -> Array:
        """tr((G + Λ)⁻¹ G), [b..], the mean of estimates from fixed random probes; NaN where not determined."""
        means = np.array([float(np.mean(samples)) for samples in self.edf_samples()])
        return np.where(self.determined, means[self.index], np.nan)

    @abstractmethod
    def probes(self) -> tuple[Array, Array, Array]:
        """Random a and w with E[w aᵀ] = I, and b = (G + Λ)⁻¹ w, [K.., m] each, of the only system.

        It raises ConvergenceError where there are several systems, or the only one is not determined.
        """

    @abstractmethod
    def _solve_rows(self, rows: Array, which: NDArray[np.intp], tolerance: float) -> Array:
        """Solutions [m, K..] of right-hand sides [m, K..] of the systems `which` [m], all determined."""

    @abstractmethod
    def edf_samples(self) -> Sequence[Array]:
        """Estimates of tr((G + Λ)⁻¹ G) of each of the different systems, [probes]; `edf` is their mean."""

    def _counted(self, found: tuple[Array, int]) -> Array:
        """Return a solution; the iterations that it took are kept."""
        x, iterations = found
        self.iterations = max(self.iterations, iterations)
        return x


class PerturbedSystem(IterativeSystem):
    """A system that is solved by iterations, with draws by perturbed right-hand sides."""

    def draws(self, rng: np.random.Generator) -> Draw:
        """Draws by perturbed right-hand sides: A⁻¹r has the covariance A⁻¹ where r has A (Papandreou and Yuille 2010).

        Then E rᵀA⁻¹r = P, which is looked at: the root of a nearly singular G may not be exact enough beside a weak Λ.
        The draws raise ConvergenceError where a solve did not converge, or their variances are off by more than
        `MAX_BIAS`.
        """
        perturbations = self._perturbations(rng)
        size = math.prod(self.frame.sizes)

        def draw(extents: tuple[int, ...]) -> Array:
            rows = perturbations(np.broadcast_to(self.index, extents).ravel())
            rhs = np.moveaxis(rows, 0, -1).reshape(*self.frame.sizes, *extents)
            x = self.solve(rhs, DRAW_TOLERANCE)
            squares = np.sum(rhs * x, axis=tuple(range(len(self.frame.sizes))))
            squares = squares[np.isfinite(squares)]
            excess = float(np.mean(squares)) / size - 1 if squares.size else 0.0
            if abs(excess) > MAX_BIAS + 5 * math.sqrt(2 / (max(squares.size, 1) * size)):
                raise ConvergenceError(
                    f"draws of the coefficients have {1 + excess:.3g} times the variance that they should have: "
                    "observations are few for so weak a penalty. Pass a larger penalty, use fewer coefficients, or "
                    "pass solver='banded', if its memory suffices"
                )
            return x

        return draw

    @abstractmethod
    def _perturbations(self, rng: np.random.Generator) -> Callable[[NDArray[np.intp]], Array]:
        """A function of systems `which` [m] that returns random rows [m, K..] of mean 0 and covariance G + Λ of each.

        It may hold large arrays; rows of systems that are not determined are of no account.
        """


@dataclass(frozen=True, eq=False)
class Factorisation:
    """G + Λ, factorised: solves for any number of right-hand sides.

    `choice` is the solver and why. `determined`, [b..], tells which batch members the data and the penalty determine;
    one without observations is not, whatever the penalty. Extents are those of G: 1 where it is shared. Whatever is
    asked is NaN for members that are not determined.
    """

    choice: Choice
    system: System
    determined: NDArray[np.bool_]

    def __repr__(self) -> str:
        return f"{self.choice.name} solver, {self.system.nbytes / 1e6:.3g} MB kept ({self.choice.reason})"

    @single_threaded_blas()
    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..]; where the solver iterates up to a relative residual, or the usual one."""
        return np.where(self.determined, self.system.solve(rhs, tolerance), np.nan)

    @single_threaded_blas()
    def edf(self) -> Array:
        """Effective degrees of freedom tr((G + Λ)⁻¹ G), [b..]; where the solver iterates from fixed random probes."""
        return np.where(self.determined, self.system.edf(), np.nan)

    @single_threaded_blas()
    def probes(self) -> tuple[Array, Array, Array]:
        """Random a and w with E[w aᵀ] = I, and b = (G + Λ)⁻¹ w, [K.., m] each, of a solver that iterates."""
        system: Any = self.system
        drawn: tuple[Array, Array, Array] = system.probes()
        return drawn

    @single_threaded_blas()
    def logdet(self) -> Array:
        """log|G + Λ|, [b..]."""
        return np.where(self.determined, self._direct("determinants").logdet(), np.nan)

    @single_threaded_blas()
    def inverse_pairs(self) -> Array:
        """Pair form Z of (G + Λ)⁻¹, [K.., O.., b..], on the frame of the Space.

        Only the entries of the inverse that pairs of features meet in are computed: tr((G + Λ)⁻¹ B) = Σ Z B for a
        pair array B, and φᵀ (G + Λ)⁻¹ φ = Σ_{k,o} Z[k,o] Π_j φ_{k_j} φ_{k_j + o_j}.
        """
        pairs = self._direct("variances of the coefficients").inverse_pairs()
        return np.where(self.determined, pairs, np.nan)

    @single_threaded_blas()
    def traces(self, grams: Sequence[Gram]) -> Array:
        """tr((G + Λ)⁻¹ S) of Grams S without batch axes, [len, b..]."""
        return np.where(self.determined, self._direct("exact traces").traces(grams), np.nan)

    @single_threaded_blas()
    def apply_inverse_sqrt(self, z: Array) -> Array:
        """x with E[x xᵀ] = (G + Λ)⁻¹ for independent standard normal z, [K.., b..]; extents as in `solve`."""
        draws = self._direct("draws of the coefficients").apply_inverse_sqrt(z)
        return np.where(self.determined, draws, np.nan)

    @property
    def knows_inverse(self) -> bool:
        """Whether entries of the inverse are known; else there are draws."""
        return isinstance(self.system, DirectSystem)

    @property
    def near(self) -> Factorisation | None:
        """A system that knows its inverse and whose draws go with those of this one, if there is one."""
        near = self.system.near if isinstance(self.system, IterativeSystem) else None
        return None if near is None else replace(self, system=near)

    def coupled_draws(self, rng: np.random.Generator) -> CoupledDraw:
        """A function of extents (n,) that returns draws of this system, and those of `near` that they are made of."""
        system: Any = self.system
        draw: CoupledDraw = single_threaded_blas()(system.coupled_draws(rng))
        return draw

    def draws(self, rng: np.random.Generator) -> Draw:
        """A function of extents (n, b..) that returns n draws of covariance (G + Λ)⁻¹ for each batch member.

        They are [K.., n, b..]. The function may hold as much memory as the system.
        """
        draw = self.system.draws(rng)
        return single_threaded_blas()(lambda extents: np.where(self.determined, draw(extents), np.nan))

    def _direct(self, answers: str) -> DirectSystem:
        """The system, if it knows its inverse; else the error that says which answers need that."""
        if not isinstance(self.system, DirectSystem):
            raise ConvergenceError(f"{answers} {NEEDS_DIRECT}")
        return self.system

"""What a solve may use, and the cost model by which a solver is chosen, each constant with its unit and its source."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from xspline.threads import cores


@dataclass(frozen=True)
class CostModel:
    """Costs by which a solver is chosen, and sizes at which one way of working becomes faster than another.

    A flop is one floating-point operation as LAPACK does them in large blocks, some 2.5e10 in a second on one core.
    Costs are estimates of orders of magnitude; where a number was measured, its field says how.
    """

    # flops that knowing the inverse is worth: some 20 seconds, after which iterations are preferred. Chosen.
    iterative_handicap_flops: float = 5e11
    # flops, some minutes, of a solver that takes over unasked where iterations do not converge. Chosen.
    max_fallback_flops: float = 5e12
    # iterations that a solve is expected to take. Measured (`python -m benchmarks solve`): 9 to 22; of what is nearly a
    # product 10 where single values are missing, 60 with blocks.
    expected_iterations: int = 20
    # time of a flop of the iterative solvers, which wait for memory, over that of a flop of LAPACK. Estimate.
    flop_penalty: float = 5.0
    # flops that the host does in the time in which a system travels to a GPU and back. Estimate, not measured.
    transfer_flops: float = 1e9
    # products of matrices in double precision on a GPU of a data centre over those of 16 cores. Estimate from the
    # specifications of both; one core is further behind.
    gpu_speedup: float = 50.0
    # share of the memory of a GPU for dense systems; the rest is for sums and for what others run there. Chosen.
    gpu_memory_share: float = 0.75
    # vectors of P numbers that conjugate gradients and products hold, about. Counted in the code.
    iterative_vectors: int = 18
    # flops in the time that each small matrix of nested dissection takes beside its own, some 0.06 ms, for calls
    # and for entries that are moved. Measured against bands, as the next two (16 x 32 to 150 x 250 and 8 x 8 x 8
    # to 20 x 20 x 20 cubic splines).
    front_flops: float = 1.2e6
    # time of the entries of the inverse over that of the factorisation, by fronts: 1.4 to 1.8
    front_inverse: float = 1.6
    band_inverse: float = 4.0  # likewise of a band: 2.9 to 5.2
    # vectors of P numbers that multigrid solves for at a time, with their residuals and directions, and its
    # probes. Measured: some 180 over 48 x 96 coefficients.
    probing_vectors: int = 200
    # matrices beside the root that a dense solver works with: a system, its inverse, both
    dense_matrices: int = 3
    # vectors of P numbers beside a solver: right-hand sides, solutions, residuals. Counted in the code.
    result_vectors: int = 12
    # solvers that a search for the smoothing holds at a time: of its last two points and of a trial
    searched_solvers: int = 3
    # flops from which several factorisations side by side are worth their threads. Measured: subtrees of 6e8
    # flops take 1 to 8 % more processor time on two threads than on one.
    threaded_flops: float = 5e8
    # bytes of factorisations that a single solve keeps for later questions; a search for the smoothing, which
    # uses them again and again, keeps a quarter of the memory. Chosen.
    kept_bytes: float = 2**28
    # numbers that stay in a cache: one batched factorisation takes so many at once (of large systems more, as many
    # systems as the square root of this), members of a batch are compared so many at a time, and loops over more of
    # them are worth their threads. Estimate.
    slab_numbers: int = 1 << 18
    # P (u + 1) of the largest systems that are faster factorised many at a time than one by one in LAPACK. Estimate.
    max_batched_numbers: int = 64 * 64
    min_batch: int = 32  # systems from which they are factorised many at a time. Estimate.
    # flops of LAPACK in a second of one core. Measured: choices by REML with bands, P = 50 to 11,008 (Xeon, 2.5
    # GHz); so are the next four.
    flops_per_second: float = 2.2e10
    # those of solves with some dozens of columns, which wait for memory
    column_flops_per_second: float = 2.5e9
    # entries of G that a solve with λ given multiplies out, brings into a band and takes residuals with: 3e6 to 8e6
    pairs_per_second: float = 4.5e6
    step_seconds: float = 0.006  # what a step of a search takes whatever the size
    search_steps: int = 6  # how many steps a search takes: 4 to 7
    # solves whose time an estimated search takes. Measured (`python -m benchmarks smoothing`): 13.5 at P =
    # 10,648, 14.4 at 195,112.
    estimated_solves: float = 14.0
    # values of a grid that one core sums in a second. Measured: 0.9e8 to 4e8.
    values_per_second: float = 1.5e8
    # rows of a coordinate that it locates, one for each point. Measured: 0.8e7 to 1.3e7.
    rows_per_second: float = 1e7
    # flops of a factorisation, some tenths of a second, from which a problem with fewer knots gives the start of a
    # search for the smoothing. Chosen.
    coarse_start_flops: float = 1e9
    # flops of a factorisation, some seconds, from which iterations estimate REML where that is faster. Measured:
    # over 29 x 29 x 23 cubic splines, 5e10 flops, a search takes 19 CPU seconds either way; over 30 x 70 x 23,
    # 2e11 flops, 71 to 77, and 47 by iterations.
    max_exact_reml_flops: float = 3e10
    # P² times the number of systems up to which traces of products of inverses, which take P solves a system, are
    # exact. Chosen.
    exact_entries: int = 150**2
    # draws from which these traces are estimated beyond, over all systems: the most, as many as GCV takes. Chosen.
    most_draws: int = 32
    least_draws: int = 4  # the fewest of REML, where they only steer. Chosen.
    # numbers that those of REML have together, and probes: the more coefficients, the less each draw scatters, as
    # 1 / √(draws · P), and log λ by some 0.003. Chosen.
    drawn_numbers: int = 200_000

    def draws(self, size: int, steering: bool = True) -> int:
        """Draws of P numbers for the second derivatives of a score, which steer a search or enter its gradient."""
        fewest = self.least_draws if steering else self.most_draws
        return min(self.most_draws, max(fewest, self.drawn_numbers // size))


COSTS = CostModel()
DeviceArray = Any  # of the array namespace of a GPU


class Gpu(Protocol):
    """A GPU and its array namespace."""

    @property
    def xp(self) -> Any: ...

    def put(self, array: NDArray[Any]) -> DeviceArray:
        """A host array on the GPU."""

    def get(self, array: DeviceArray) -> NDArray[Any]:
        """An array of the GPU on the host."""

    @property
    def memory(self) -> float:
        """Bytes of memory of the GPU."""

    def cholesky(self, matrix: DeviceArray) -> DeviceArray:
        """L with L Lᵀ = A, [P, P]; zeros above the diagonal. LinAlgError where A is not positive definite."""

    def triangular(self, root: DeviceArray, rhs: DeviceArray, transposed: bool) -> DeviceArray:
        """L⁻¹ or, transposed, L⁻ᵀ times [P, m]."""


@dataclass(frozen=True)
class Resources:
    """What a solve may use."""

    cores: int
    memory: float  # bytes, on the host
    # the device of dense systems that fit there and are worth the transfer; small or structured ones stay on the host
    gpu: Gpu | None = None
    costs: CostModel = COSTS  # what solvers cost here

    def bytes_kept(self, again: bool) -> float:
        """Bytes of factorisations that are kept: much where they are used again and again; the rest is made again."""
        return self.memory / 4 if again else self.costs.kept_bytes

    @staticmethod
    def here() -> Resources:
        """The cores of this process and the memory of this machine, infinite where it does not say; no GPU."""
        try:
            memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        except (AttributeError, ValueError, OSError):
            memory = math.inf
        return Resources(cores(), memory)

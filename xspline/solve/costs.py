"""What solvers cost, as far as one is weighed against another: every constant with its unit and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True)
class CostModel:
    """Costs by which a solver is chosen, and sizes at which one way of working becomes faster than another.

    A flop is one floating-point operation as LAPACK does them in large blocks, some 2.5e10 in a second on one core.
    Costs are estimates of orders of magnitude; where a number was measured, its field says how.

    Parameters
    ----------
    iterative_handicap_flops : float
        Flops that knowing the inverse is worth: some 20 seconds, after which iterations are preferred. Chosen.
    max_fallback_flops : float
        Flops, some minutes, of a solver that takes over unasked where iterations do not converge. Chosen.
    fallback_iterations : int
        Iterations after which another solver, if there is one, takes over. Measured (`python -m benchmarks solve`):
        systems that converge at all take 2 to 51.
    expected_iterations : int
        Iterations that a solve is expected to take. Measured (`python -m benchmarks solve`): 9 to 22.
    flop_penalty : float
        Time of a flop of the iterative solvers, which wait for memory, over that of a flop of LAPACK. Estimate.
    transfer_flops : float
        Flops that the host does in the time in which a system travels to a GPU and back. Estimate, not measured.
    gpu_speedup : float
        Products of matrices in double precision on a GPU of a data centre over those of 16 cores. Estimate from the
        specifications of both; one core is further behind.
    gpu_memory_share : float
        Share of the memory of a GPU for dense systems; the rest is for sums and for what others run there. Chosen.
    max_gpu_coefficients : int
        Coefficients of a dense system on a GPU: 31 bits count the entries of its matrix.
    spectral_vectors : int
        Vectors of P numbers that a direct spectral solve holds. Counted in the code.
    iterative_vectors : int
        Vectors of P numbers that conjugate gradients and products hold, about. Counted in the code.
    dense_matrices : int
        Matrices that a dense solver works with: a system, its root and its inverse.
    searched_solvers : int
        Solvers that a search for the smoothing holds at a time: of its last two points and of a trial.
    threaded_flops : float
        Flops from which several factorisations side by side are worth their threads. Estimate.
    parallel_bytes : float
        Bytes of bands that are factorised side by side at most. Chosen.
    kept_bytes : float
        Bytes of factorisations that a single solve keeps for later questions; a search for the smoothing, which
        uses them again and again, keeps a quarter of the memory. Chosen.
    slab_numbers, slab_systems : int
        Numbers that one batched factorisation takes at once, to stay in a cache, and the fewest systems. Estimate.
    max_batched_numbers : int
        P (u + 1) of the largest systems that are faster factorised many at a time than one by one in LAPACK. Estimate.
    min_batch : int
        Systems from which they are factorised many at a time. Estimate.
    serial_product_flops : float
        Flops of a matrix along one axis of a grid that are not worth a second thread. Estimate.
    coarse_start_flops : float
        Flops of a factorisation, some tenths of a second, from which problems with fewer knots give the start of a
        search for the smoothing. Chosen.
    close_search_flops : float
        Flops of a factorisation from which a search for the smoothing ends at a step of 2 % in λ, which leaves an
        error of its square and saves one or two factorisations. Chosen.
    lattice_flops : float
        Flops, about a second, that looking at a score here and there may take before a search for its minimum. Chosen.
    max_exact_reml_flops : float
        Flops of a factorisation, some ten seconds, from which iterations estimate REML. Measured
        (`python -m benchmarks error_bars --large`): an estimate of P = 127,500 costs less than that.
    max_coarse_flops : float
        Flops of an exact factorisation with fewer knots, a second, that may still give the start of an estimated
        search. Chosen.
    exact_reml_entries, exact_gcv_entries : int
        P² times the number of systems up to which traces of products of inverses, which take P solves a system, are
        exact: for REML, whose Hessian alone needs them, and for GCV, whose gradient does. Chosen.
    """

    iterative_handicap_flops: float = 5e11
    max_fallback_flops: float = 5e12
    fallback_iterations: int = 100
    expected_iterations: int = 20
    flop_penalty: float = 5.0
    transfer_flops: float = 1e9
    gpu_speedup: float = 50.0
    gpu_memory_share: float = 0.75
    max_gpu_coefficients: int = 46_340
    spectral_vectors: int = 9
    iterative_vectors: int = 18
    dense_matrices: int = 3
    searched_solvers: int = 3
    threaded_flops: float = 1e9
    parallel_bytes: float = 1.5 * GIB
    kept_bytes: float = 2**28
    slab_numbers: int = 1 << 18
    slab_systems: int = 512
    max_batched_numbers: int = 64 * 64
    min_batch: int = 32
    serial_product_flops: float = 1e7
    coarse_start_flops: float = 1e9
    close_search_flops: float = 3e10
    lattice_flops: float = 2e10
    max_exact_reml_flops: float = 3e11
    max_coarse_flops: float = 3e10
    exact_reml_entries: int = 150**2
    exact_gcv_entries: int = 1500**2


COSTS = CostModel()

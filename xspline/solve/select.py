"""Which solver a system gets: chosen by the structure of G and Λ alone, with a sentence that says why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from xspline.solve.costs import GIB
from xspline.solve.direct.band import Ordering, narrowest
from xspline.solve.errors import TooLargeError
from xspline.solve.multigrid.schwarz import inverse_costs
from xspline.solve.multigrid.spaces import MAX_AXES
from xspline.solve.parallel import Resources
from xspline.solve.structure import Product, describe, distinct, product_of, ridge_of, split, subframe
from xspline.sums import Gram

if TYPE_CHECKING:
    from xspline.spaces import Frame

ITERATIVE = "iterative"
SOLVERS = {
    "spectral": "G is one product of single-coordinate factors (a full grid): direct with a ridge or no penalty, else "
    "the eigenvectors precondition conjugate gradients",
    "separable": "G is one product, with factors on whose coordinates all terms of the penalty agree, and others (a "
    "static mask): eigenvectors of the former, banded Cholesky factorisations over the latter",
    "banded": "any system: a Cholesky factorisation of a band",
    "dense": "any system: a Cholesky factorisation of a full matrix",
    ITERATIVE: f"any system over up to {MAX_AXES} coordinates: conjugate gradients with multigrid, no error bars",
}
"""The names of the solvers, with what each is for."""

LEVELS = (
    8 / 7
)  # work on all levels of multigrid over that on the finest: a level has an eighth of the coefficients


@dataclass(frozen=True)
class Choice:
    """A solver, the reason for it, and what its factorisation costs: bytes and operations (estimates).

    Parameters
    ----------
    name, reason : str
    nbytes : int
    operations : float
        Of what is factorised on a GPU those that the host does in the time.
    exact : bool
        Whether it knows the inverse; others iterate, estimate traces and give no error bars.
    on_gpu : bool
        Whether it factorises on a GPU; then `nbytes` are those that the host needs to say why it is singular.
    memory_refusal : str
        Why there is no memory for an exact solver in its place; empty where memory did not decide.
    """

    name: str
    reason: str
    nbytes: int
    operations: float
    exact: bool = True
    on_gpu: bool = False
    memory_refusal: str = ""


def select(
    gram: Gram,
    penalty: Gram,
    frame: Frame,
    solver: str | None = None,
    *,
    exact: bool = False,
    resources: Resources | None = None,
) -> Choice:
    """Choose a solver for (G + Λ) c = h: the fastest that the structure admits and the memory holds.

    Parameters
    ----------
    gram, penalty : Gram
        G, and Λ without batch axes.
    frame : Frame
    solver : str, optional
        One of `SOLVERS`, to have that one.
    exact : bool
        Only solvers that know the inverse: iterations estimate traces, and give no error bars.
    resources : Resources, optional
        Cores, memory, and a GPU for dense systems that fit there, where it is faster than any solver on the host; those
        of this process and machine if they are not given.

    Raises
    ------
    ValueError
        An unknown solver, or one that the structure does not admit.
    TooLargeError
        More bytes than there is memory.
    """
    return candidates(gram, penalty, frame, solver, exact=exact, resources=resources)[0]


def candidates(
    gram: Gram,
    penalty: Gram,
    frame: Frame,
    solver: str | None = None,
    *,
    exact: bool = False,
    resources: Resources | None = None,
) -> list[Choice]:
    """The solver of `select`, and those that take over, one after the other, where iterations do not converge."""
    if solver is not None and solver not in SOLVERS:
        raise ValueError(
            f"unknown solver {solver!r}: choose one of {', '.join(SOLVERS)}, or None for the best"
        )
    resources = resources or Resources.here()
    costs, kept = resources.costs, bytes_kept(resources, exact)
    structure = _Structure(gram, product_of(gram, frame), penalty, frame, kept, resources)
    proposals = [_PROPOSALS[name](structure) for name in (SOLVERS if solver is None else (solver,))]
    admitted = (c for c in proposals if c is not None and (c.exact or not exact))
    handicap = costs.iterative_handicap_flops
    choices = sorted(admitted, key=lambda c: c.operations + (0.0 if c.exact else handicap))
    if not choices:
        raise ValueError(_inadmissible(str(solver), structure, admitted=any(proposals)))
    fitting = [choice for choice in choices if choice.nbytes <= resources.memory]
    if not fitting:
        raise _too_large(choices[0], structure, exact)
    if solver is not None:
        return [replace(fitting[0], reason="asked for by name")]
    first, *others = fitting
    return [first, *(c for c in others if not first.exact and c.operations <= costs.max_fallback_flops)]


def iterating(
    gram: Gram,
    penalty: Gram,
    frame: Frame,
    solver: str | None = None,
    resources: Resources | None = None,
) -> Choice | None:
    """The first candidate that iterates, if it is worth it or asked for; None for several different systems."""
    try:
        choices = candidates(gram, penalty, frame, solver, resources=resources)
    except ValueError:
        return None
    one_system = int(distinct(gram)[1].max(initial=0)) == 0
    return next((c for c in choices if not c.exact and one_system), None)


# --- what each solver proposes


@dataclass(frozen=True, eq=False)
class _Structure:
    """What a proposal looks at.

    Parameters
    ----------
    gram : Gram
    product : Product or None
        G as one product, if it is one.
    penalty : Gram
    frame : Frame
    kept : float
        Bytes of factorisations that are kept.
    resources : Resources
    """

    gram: Gram
    product: Product | None
    penalty: Gram
    frame: Frame
    kept: float
    resources: Resources

    @cached_property
    def ordering(self) -> Ordering:
        return narrowest(self.frame)

    @cached_property
    def systems(self) -> int:
        """Number of different systems."""
        return int(distinct(self.gram)[1].max(initial=0)) + 1

    @cached_property
    def has_ridge(self) -> bool:
        """Whether the penalty is a ridge or nothing."""
        return ridge_of(self.penalty) is not None

    @property
    def is_product(self) -> bool:
        """Whether G is a product of several factors, all shared by the batch."""
        return self.product is not None and len(self.product.factors) > 1

    @property
    def general_reason(self) -> str:
        """Why a system does not fall into smaller ones."""
        if len(self.gram.terms) > 1:
            return f"a sum of {len(self.gram.terms)} products has no common eigenvectors"
        if sum(bool(f.axes) for f in self.gram.terms[0]) == 1:
            return "one factor spans all coordinates"
        if self.product is not None:
            return "the penalty does not share the eigenvectors of the factors"
        return "weights or gaps differ within the batch"

    def band_bytes(self, systems: int, ordering: Ordering) -> int:
        """Of bands and of the pairs of their inverses, as far as they are kept, and of those in the making."""
        band = 8 * ordering.size * (ordering.bandwidth + 1)
        pairs = 8 * ordering.size * math.prod(ordering.frame.offsets)
        working = side_by_side(systems, ordering, self.resources) * (band + 2 * pairs)
        return int(min(systems * (band + pairs), self.kept)) + working


def _spectral(structure: _Structure) -> Choice | None:
    """Eigenvectors that diagonalise the system; with roughness they do not decouple it but leave little."""
    product, sizes, costs = structure.product, structure.frame.sizes, structure.resources.costs
    if product is None or any(len(f.axes) != 1 for f in product.factors):
        return None
    size, operations, eigenvectors = math.prod(sizes), _eigen_operations(sizes), 2 * sum(k * k for k in sizes)
    if structure.has_ridge:
        reason = "the eigenvectors of a factor for each coordinate diagonalise the system"
        return Choice("spectral", reason, 8 * (eigenvectors + costs.spectral_vectors * size), operations)
    terms = structure.penalty.terms
    if not structure.is_product or any(len(f.axes) != 1 for term in terms for f in term):
        return None
    reason = (
        "the eigenvectors of data and roughness along each coordinate nearly diagonalise the system; conjugate "
        "gradients do the rest"
    )
    vectors, products = costs.iterative_vectors, (len(terms) + 2) * 2 * sum(sizes)
    operations += costs.expected_iterations * size * (products + costs.flop_penalty * vectors)
    nbytes = 8 * (eigenvectors + vectors * size)
    return Choice("spectral", reason, nbytes, structure.systems * operations, exact=False)


def _separable(structure: _Structure) -> Choice | None:
    frame = structure.frame
    parts = None if structure.product is None else split(structure.product, structure.penalty, frame)
    if parts is None:
        return None
    ordering = narrowest(subframe(frame, parts.axes))
    others = [math.prod(frame.sizes[axis] for axis in group.axes) for group in parts.others]
    systems = math.prod(others) * structure.systems if structure.penalty.terms else 1
    reason = (
        f"{'one banded system' if systems == 1 else f'{systems} banded systems'} over {len(parts.axes)} of "
        f"{len(frame.sizes)} coordinates ({ordering.size} coefficients, bandwidth {ordering.bandwidth}) and the "
        "eigenvalues of the other factors"
    )
    operations = _eigen_operations(others) + systems * _band_operations(ordering)
    nbytes = 8 * 2 * sum(k * k for k in others) + structure.band_bytes(systems, ordering)
    return Choice("separable", reason, nbytes, operations)


def _banded(structure: _Structure) -> Choice:
    ordering, systems = structure.ordering, structure.systems
    reason = f"{structure.general_reason}; bandwidth {ordering.bandwidth} of {ordering.size} coefficients"
    nbytes = structure.band_bytes(systems, ordering)
    return Choice("banded", reason, nbytes, systems * _band_operations(ordering))


def _dense(structure: _Structure) -> Choice:
    """A full matrix; on a GPU if it fits there and is worth the transfer."""
    ordering, systems, resources = structure.ordering, structure.systems, structure.resources
    size, costs = ordering.size, resources.costs
    reason = f"a bandwidth of {ordering.bandwidth} is wide for {size} coefficients"
    nbytes = int(min(systems * 8 * size**2, structure.kept)) + costs.dense_matrices * 8 * size**2
    choice = Choice("dense", f"{structure.general_reason}; {reason}", nbytes, systems * size**3 / 3)
    operations = systems * costs.transfer_flops + choice.operations / costs.gpu_speedup
    if gpu_room(resources, size) < 8 * size**2 or operations >= choice.operations:
        return choice
    reason = f"a dense matrix of {size} coefficients is soon factorised on the GPU"
    reason = f"{structure.general_reason}; {reason}"
    return replace(choice, reason=reason, operations=operations, on_gpu=True)


def _iterative(structure: _Structure) -> Choice | None:
    frame, systems, costs = structure.frame, structure.systems, structure.resources.costs
    if len(frame.sizes) > MAX_AXES:
        return None
    size, axes = math.prod(frame.sizes), list(zip(frame.sizes, frame.offsets, frame.periodic, strict=True))
    numbers, operations = inverse_costs(
        frame.sizes, frame.offsets, [o < k or circle for k, o, circle in axes]
    )
    pairs = size * math.prod(frame.offsets)
    products = size * math.prod(min(2 * o - 1, k) for k, o, _ in axes)
    operations += costs.expected_iterations * 8 * (2 * numbers + products)
    reason = (
        f"{structure.general_reason}; a bandwidth of {structure.ordering.bandwidth} over {size} coefficients would "
        "take longer than iterations"
    )
    nbytes = int(LEVELS * systems * (4 * numbers + 8 * pairs)) + 3 * 8 * pairs
    return Choice(ITERATIVE, reason, nbytes, costs.flop_penalty * LEVELS * systems * operations, exact=False)


_PROPOSALS = {
    "spectral": _spectral,
    "separable": _separable,
    "banded": _banded,
    "dense": _dense,
    ITERATIVE: _iterative,
}


def _eigen_operations(sizes: Sequence[int]) -> float:
    return 10.0 * sum(k**3 for k in sizes)


def _band_operations(ordering: Ordering) -> float:
    return float(ordering.size) * (ordering.bandwidth + 1) ** 2


def side_by_side(systems: int, ordering: Ordering, resources: Resources) -> int:
    """How many bands are factorised at the same time: as many as there are cores, as far as memory is set aside."""
    costs = resources.costs
    if systems * _band_operations(ordering) < costs.threaded_flops:
        return 1
    fitting = int(costs.parallel_bytes // (8 * ordering.size * (ordering.bandwidth + 1)))
    return min(resources.cores, systems, max(1, fitting))


def bytes_kept(resources: Resources, again: bool) -> float:
    """Bytes of factorisations that are kept: much where they are used again and again; the rest is made again."""
    return resources.memory / 4 if again else resources.costs.kept_bytes


def gpu_room(resources: Resources, size: int) -> float:
    """Bytes of the GPU for the factorisations that one dense solver keeps; less than one of them where none fits."""
    costs = resources.costs
    if resources.gpu is None or size > costs.max_gpu_coefficients:
        return 0.0
    room = costs.gpu_memory_share * resources.gpu.memory - 8.0 * costs.dense_matrices * size**2
    return room / costs.searched_solvers


# --- errors


def _inadmissible(solver: str, structure: _Structure, *, admitted: bool) -> str:
    if admitted:
        return (
            f"solver={solver!r} does not know the inverse of the system, from which this smoothing is chosen; leave "
            "solver out, or pass strengths, as in xs.Roughness(1e-4), or penalty='reml', which it estimates"
        )
    if solver == ITERATIVE:
        count = len(structure.frame.sizes)
        return f"solver='iterative' takes up to {MAX_AXES} coordinates, not {count}; leave solver out"
    needs = {
        "spectral": "one product of a factor for each coordinate (a full grid)",
        "separable": "one product of a factor over several coordinates and others (a static mask) and a ridge or no "
        "penalty, or any product and a penalty that smooths the coordinates of some factors only",
    }[solver]
    what = describe(structure.gram)
    if structure.is_product and not structure.has_ridge and solver == "separable":
        what += " but the penalty is on all of them"
    return f"solver={solver!r} needs {needs}; of these statistics {what}; leave solver out, or pass solver='banded'"


def _too_large(choice: Choice, structure: _Structure, exact: bool) -> TooLargeError:
    remedy = "use fewer coefficients along some coordinate, or a machine with more memory"
    if structure.is_product and not structure.has_ridge:
        remedy += ", or a ridge (a number as penalty), under which this system falls into small ones"
    if exact:
        remedy += ", or pass strengths, as in xs.Roughness(1e-4), or penalty='reml': iterations solve or estimate these"
    article = "an" if choice.name == ITERATIVE else "a"
    cause = (
        f"{article} {choice.name} solve for P = {structure.ordering.size} coefficients needs about {choice.nbytes} "
        f"bytes ({choice.nbytes / GIB:.1f} GiB), more than the {structure.resources.memory / GIB:.1f} GiB of this "
        "machine"
    )
    error = TooLargeError(f"{cause} ({choice.reason}); {remedy}")
    error.cause = cause
    return error

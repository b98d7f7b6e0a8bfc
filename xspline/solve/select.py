"""The choice of a solver, by the structure of G and Λ alone, with a sentence that gives the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from xspline.solve.batch import distinct
from xspline.solve.costs import Resources
from xspline.solve.direct.band import Ordering, band_operations, narrowest
from xspline.solve.direct.cholesky import PANEL
from xspline.solve.direct.device import gpu_room
from xspline.solve.direct.dissection import LEAF, cost_of, dissection_operations, dissects
from xspline.solve.direct.solver import side_by_side
from xspline.solve.errors import TooLargeError
from xspline.solve.kronecker.product import Product, nearly_split, product_of, ridge_of, split
from xspline.solve.multigrid.schwarz import inverse_costs
from xspline.solve.system import Choice
from xspline.spaces import Frame
from xspline.sums import Gram

ITERATIVE = "iterative"
NEARLY_SEPARABLE = "nearly_separable"
SOLVERS = {
    "spectral": "G is one product of single-coordinate factors (a full grid): as `separable` with a ridge or no "
    "penalty, else the eigenvectors precondition conjugate gradients",
    "separable": "G is one product, with factors on whose coordinates all terms of the penalty agree, or that some of "
    "them carry (`SpaceTime`), and others (a static mask): eigenvectors of the former, Cholesky factorisations over "
    "the latter",
    NEARLY_SEPARABLE: "season, trend and events, where G is nearly a product (a grid with a few gaps that change): "
    "conjugate gradients with the solver of that product; error bars from draws",
    "banded": "any system: a Cholesky factorisation of a band",
    "dissection": "any system: a Cholesky factorisation by nested dissection, where a band would be wide",
    "dense": "any system: a Cholesky factorisation of a full matrix, on a GPU if there is one",
    ITERATIVE: "any system but of unions with a long B-spline and of where=: conjugate gradients with multigrid; error "
    "bars from draws",
}
"""The names of the solvers, with what each is for."""


def candidates(
    gram: Gram,
    penalty: Gram,
    frame: Frame,
    solver: str | None = None,
    *,
    exact: bool = False,
    resources: Resources | None = None,
) -> list[Choice]:
    """Choose a solver for (G + Λ) c = h: the fastest that the structure admits and the memory holds.

    After it come those that take over, one after the other, where iterations do not converge. `gram` and `penalty` are
    G, and Λ without batch axes. `solver` is one of `SOLVERS`, to have that one; with `exact` only solvers that know the
    inverse come, as iterations estimate traces. `resources` are cores, memory, and a GPU for dense systems that fit
    there, where it is faster than any solver on the host; those of this process and machine if they are not given. It
    raises ValueError for an unknown solver, or one that the structure does not admit, and TooLargeError where more
    bytes are needed than there is memory.
    """
    if solver is not None and solver not in SOLVERS:
        raise ValueError(
            f"unknown solver {solver!r}: choose one of {', '.join(SOLVERS)}, or None for the best"
        )
    resources = resources or Resources.here()
    costs = resources.costs
    kept = resources.bytes_kept(exact)
    # Whoever needs the inverse searches for the smoothing, and holds the solvers of several strengths at a time.
    held = costs.searched_solvers if exact else 1
    structure = _Structure(gram, product_of(gram, frame), penalty, frame, kept, held, resources)
    proposals: list[Choice | None] = [
        getattr(structure, name)() for name in (SOLVERS if solver is None else (solver,))
    ]
    admitted = (c for c in proposals if c is not None and (c.exact or not exact))
    handicap = costs.iterative_handicap_flops

    def cost(choice: Choice) -> float:
        return choice.searching if exact else choice.operations + (0.0 if choice.exact else handicap)

    choices = sorted(admitted, key=cost)
    if not choices:
        raise ValueError(_inadmissible(str(solver), structure, admitted=any(proposals)))
    fitting = [choice for choice in choices if choice.nbytes <= resources.memory]
    if not fitting:
        raise _too_large(choices[0], structure, exact)
    if solver is not None:
        return [replace(fitting[0], reason="asked for by name")]
    first, *others = fitting
    return [first, *(c for c in others if not first.exact and c.operations <= costs.max_fallback_flops)]


@dataclass(frozen=True, eq=False)
class _Structure:
    """What is known of a system, and what each solver would cost."""

    gram: Gram
    product: Product | None  # G as one product, if it is one
    penalty: Gram
    frame: Frame
    kept: float  # bytes of factorisations that a solver keeps
    held: int  # solvers that exist at a time
    resources: Resources

    @cached_property
    def ordering(self) -> Ordering:
        return narrowest(self.frame)

    @cached_property
    def systems(self) -> int:
        """The number of different systems."""
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
        if not self.gram.terms:
            return "there are no observations"
        if len(self.gram.terms) > 1:
            return f"a sum of {len(self.gram.terms)} products has no common eigenvectors"
        if sum(bool(f.axes) for f in self.gram.terms[0]) == 1:
            return "one factor spans all coordinates"
        if self.product is not None:
            return "the penalty does not share the eigenvectors of the factors"
        return "weights or gaps differ within the batch"

    def band_bytes(self, systems: int, ordering: Ordering) -> int:
        """Return the bytes of bands and pairs of their inverses, of those that are kept and those in the making."""
        size = ordering.size
        band = 8 * size * (ordering.bandwidth + 1)
        pairs = 8 * size * math.prod(ordering.frame.offsets)
        stripes = 4 * size * (math.prod(2 * s + 1 for s in ordering.spans) + 1)
        # A single band is factorised where it is kept; of several some may be in the making beside those that are. What
        # an inverse takes besides is a window of two bandwidths, its stripes, and pairs in either order.
        making = side_by_side(systems, ordering, self.resources)
        window = 8 * (2 * ordering.bandwidth + PANEL[1]) ** 2
        working = making * (2 * stripes + 5 * pairs + window + (band if systems > 1 else 0))
        return self.kept_bytes(systems, band + 2 * pairs) + working + self.search_bytes(size)

    def dissection_bytes(self, systems: int, frame: Frame, leaf: int = LEAF) -> int:
        """Return the same of systems by nested dissection."""
        cost = cost_of(frame, leaf)
        size = math.prod(frame.sizes)
        pairs = 8 * size * math.prod(frame.offsets)
        entries = size * (math.prod(2 * o - 1 for o in frame.offsets) + 1) // 2
        # Beside L: pairs, index arrays of the entries and their sorting, what waits for its parents, one more L.
        threads = min(self.resources.cores, max(systems, cost.fronts))
        more = 8 * cost.numbers * (systems > 1)
        working = 8 * threads * cost.waiting + 5 * pairs + 40 * entries + more + self.search_bytes(size)
        return self.kept_bytes(systems, 8 * cost.numbers + 2 * pairs) + working

    def kept_bytes(self, systems: int, nbytes: int) -> int:
        """Return the bytes of what is kept, of so many bytes a system; one system always is kept."""
        return self.held * int(min(systems * nbytes, max(self.kept, nbytes)))

    def search_bytes(self, size: int) -> int:
        """Return the bytes of draws from which second derivatives are estimated, and of their images by each term."""
        draws = self.resources.costs.draws(size) if self.held > 1 else 0
        return 8 * size * draws * (4 + 4 * len(self.penalty.terms))

    # --- what each solver of `SOLVERS` proposes; None where it does not take the system

    def spectral(self) -> Choice | None:
        """Propose eigenvectors that split the system, or with roughness leave little beside the diagonal."""
        if self.product is None or not 1 < len(self.product.factors) == len(self.frame.sizes):
            return None
        if self.has_ridge:
            split_up = self.separable()
            return None if split_up is None else replace(split_up, name="spectral")
        terms = self.penalty.terms
        if any(len(f.axes) != 1 for term in terms for f in term):
            return None
        reason = (
            "the eigenvectors of data and roughness along each coordinate nearly diagonalise the system; conjugate "
            "gradients do the rest"
        )
        sizes = self.frame.sizes
        size = math.prod(sizes)
        costs = self.resources.costs
        vectors = costs.iterative_vectors
        products = (len(terms) + 2) * 2 * sum(sizes)
        operations = costs.expected_iterations * size * (products + costs.flop_penalty * vectors)
        operations += _eigen_operations(sizes)
        nbytes = 8 * (2 * sum(k * k for k in sizes) + vectors * size)
        return Choice("spectral", reason, nbytes, self.systems * operations, exact=False)

    def separable(self) -> Choice | None:
        """Propose eigenvectors of all factors that the penalty shares but the main one."""
        frame = self.frame
        parts = None if self.product is None else split(self.product, self.penalty, frame)
        if parts is None:
            return None
        ordering = narrowest(frame.along(parts.axes))
        others = [math.prod(frame.sizes[axis] for axis in group.axes) for group in parts.others]
        systems = math.prod(others) * self.systems if self.penalty.terms else 1
        cut = dissects(ordering.frame, self.resources.costs)
        noun = "system" if cut else "banded system"
        kind = "by nested dissection" if cut else f"bandwidth {ordering.bandwidth}"
        reason = (
            f"{f'one {noun}' if systems == 1 else f'{systems} {noun}s'} over {len(parts.axes)} of "
            f"{len(frame.sizes)} coordinates ({ordering.size} coefficients, {kind}) and the eigenvalues of the other "
            "factors"
        )
        costs = self.resources.costs
        each = dissection_operations(ordering.frame, costs) if cut else band_operations(ordering)
        own = self.dissection_bytes(systems, ordering.frame) if cut else self.band_bytes(systems, ordering)
        operations = _eigen_operations(others) + systems * each
        nbytes = 8 * 2 * sum(k * k for k in others) + own
        return Choice("separable", reason, nbytes, operations)

    def nearly_separable(self) -> Choice | None:
        """Propose iterations with the solver of the product that G nearly is."""
        if (nearly := nearly_split(self.gram, self.penalty, self.frame)) is None:
            return None
        near = replace(self, product=nearly[0]).separable()
        costs = self.resources.costs
        if near is None:
            return None
        products = math.prod(self.frame.sizes) * math.prod(2 * o - 1 for o in self.frame.offsets)
        operations = near.operations + costs.expected_iterations * costs.flop_penalty * 2 * products
        reason = f"nearly a product: iterations with {near.reason}"
        pairs = 8 * math.prod((*self.frame.sizes, *self.frame.offsets))
        nbytes = near.nbytes + 3 * pairs  # G multiplied out, in the order of its products, and in the making
        return replace(
            near, name=NEARLY_SEPARABLE, reason=reason, nbytes=nbytes, operations=operations, exact=False
        )

    def banded(self) -> Choice:
        ordering = self.ordering
        reason = f"{self.general_reason}; bandwidth {ordering.bandwidth} of {ordering.size} coefficients"
        operations = self.systems * band_operations(ordering)
        inverse = self.resources.costs.band_inverse * operations
        return Choice("banded", reason, self.band_bytes(self.systems, ordering), operations, inverse=inverse)

    def dissection(self) -> Choice:
        fronts = cost_of(self.frame).fronts
        cut = f"nested dissection of {self.ordering.size} coefficients takes {fronts} small matrices"
        operations = self.systems * dissection_operations(self.frame, self.resources.costs)
        inverse = self.resources.costs.front_inverse * operations
        nbytes = self.dissection_bytes(self.systems, self.frame)
        return Choice("dissection", f"{self.general_reason}; {cut}", nbytes, operations, inverse=inverse)

    def dense(self) -> Choice:
        """Propose a full matrix, on a GPU if it fits there and is worth the transfer."""
        size = self.ordering.size
        costs = self.resources.costs
        reason = f"a bandwidth of {self.ordering.bandwidth} is wide for {size} coefficients"
        nbytes = self.dissection_bytes(self.systems, self.frame, size) + costs.dense_matrices * 8 * size**2
        choice = Choice("dense", f"{self.general_reason}; {reason}", nbytes, self.systems * size**3 / 3)
        operations = self.systems * costs.transfer_flops + choice.operations / costs.gpu_speedup
        roomy = gpu_room(self.resources, size) >= 8 * size**2 and not any(self.frame.everywhere)
        if not roomy or operations >= choice.operations:
            return choice
        reason = f"{self.general_reason}; a dense matrix of {size} coefficients is soon factorised on the GPU"
        return replace(choice, reason=reason, operations=operations, on_gpu=True)

    def iterative(self) -> Choice | None:
        frame = self.frame
        costs = self.resources.costs
        # Draws take roots of the penalty, which are known of factors over one coordinate.
        walls = any(len(f.axes) > 1 for term in self.penalty.terms for f in term)
        if any(frame.everywhere) or walls:
            return None
        size = math.prod(frame.sizes)
        pairs = size * math.prod(frame.offsets)
        axes = list(zip(frame.sizes, frame.offsets, frame.periodic, strict=True))
        numbers, operations = inverse_costs([(k, o, o < k or circle) for k, o, circle in axes])
        products = size * math.prod(min(2 * o - 1, k) for k, o, _ in axes)
        operations += costs.expected_iterations * 8 * (2 * numbers + products)
        reason = (
            f"{self.general_reason}; a bandwidth of {self.ordering.bandwidth} over {size} coefficients would "
            "take longer than iterations"
        )
        # All levels have 8/7 of the work of the finest: each has an eighth of the coefficients.
        nbytes = int(8 / 7 * self.systems * (4 * numbers + 8 * pairs)) + 8 * (
            3 * pairs + costs.probing_vectors * size
        )
        operations *= costs.flop_penalty * 8 / 7 * self.systems
        return Choice(ITERATIVE, reason, nbytes, operations, exact=False)


def _eigen_operations(sizes: Sequence[int]) -> float:
    return 10.0 * sum(k**3 for k in sizes)


# --- errors


def _inadmissible(solver: str, structure: _Structure, *, admitted: bool) -> str:
    if admitted:
        return (
            f"solver={solver!r} does not know the inverse of the system, from which this smoothing is chosen; leave "
            "solver out, or pass strengths, as in xs.Roughness(1e-4), or penalty='reml', which it estimates"
        )
    if solver == ITERATIVE:
        return "solver='iterative' takes neither unions with a long B-spline nor where=: leave solver out"
    needs = {
        "spectral": "one product of a factor for each of several coordinates (a full grid)",
        "separable": "one product of several factors, and none or a ridge, a penalty that smooths the coordinates of "
        "some factors only, or SpaceTime",
        NEARLY_SEPARABLE: "what is nearly a product, and none, with a SpaceTime penalty along season, trend and events",
    }[solver]
    reason = structure.general_reason
    if solver == "spectral" and structure.is_product:
        reason = "a factor of the data or of the penalty spans several coordinates"
    return f"solver={solver!r} needs {needs}; here {reason}; leave solver out, or pass solver='banded'"


def _too_large(choice: Choice, structure: _Structure, exact: bool) -> TooLargeError:
    remedy = "use fewer coefficients along some coordinate, or a machine with more memory"
    if structure.is_product and not structure.has_ridge:
        remedy += ", or a ridge (a number as penalty), under which this system falls into small ones"
    if exact:
        remedy += ", or pass strengths, as in xs.Roughness(1e-4), or penalty='reml': iterations solve or estimate these"
    article = "an" if choice.name == ITERATIVE else "a"
    cause = (
        f"{article} {choice.name} solve for P = {structure.ordering.size} coefficients needs about {choice.nbytes} "
        f"bytes ({choice.nbytes / 2**30:.1f} GiB), more than the {structure.resources.memory / 2**30:.1f} GiB of this "
        "machine"
    )
    error = TooLargeError(f"{cause} ({choice.reason}); {remedy}")
    error.cause = cause
    return error

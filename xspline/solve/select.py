"""Which solver a system gets: chosen by the structure of G and Λ alone, with a sentence that says why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from xspline.solve.direct.band import Ordering, narrowest
from xspline.solve.multigrid.spaces import MAX_AXES
from xspline.solve.multigrid.subdomains import inverses
from xspline.solve.parallel import MANY, Resources
from xspline.solve.structure import Product, describe, distinct, product_of, ridge_of, split, subframe
from xspline.sums import Gram

if TYPE_CHECKING:
    from xspline.solve.device.gpu import Gpu
    from xspline.spaces import Frame

NAMES = ("spectral", "separable", "banded", "dense", "iterative")
ITERATIVE = "iterative"
ITERATIONS = 20  # that are expected of it
SLOWER = 5.0  # its operations than those of LAPACK
LEVELS = 8 / 7  # a level has an eighth of the coefficients of the next finer one
ROTATED = 9  # vectors that a direct spectral solve takes
VECTORS = 18  # that conjugate gradients and products take, about
PATIENCE = 5e11  # operations, some 20 seconds, that the inverse of a direct solver is worth
FARTHEST = 5e12  # operations, minutes, of a solver that takes over unasked where iterations do not converge
GIB = 2**30
SMALL = 1e9  # operations that are not worth a second thread
ABREAST = 1.5 * GIB  # bytes of bands that are factorised at the same time
ROOM = 2**28  # bytes of factorisations that a solve keeps for later questions
MATRICES = 3  # that a dense solver works with: a system, its root and its inverse
SEARCHED = 3  # solvers that a search for the smoothing holds at a time: of its last two points and of a trial
# Of the memory of a GPU, for dense systems: the rest is that of sums, and of what others run there.
SHARE = 0.75
WIDEST = 46_340  # coefficients of a dense system on a GPU: 31 bits count the entries of its matrix
# Products of matrices in double precision on a GPU of a data centre against 16 cores; one core is further behind.
FASTER = 50.0
AWAY = 1e9  # operations that the host does in the time that a system takes to a GPU and back


@dataclass(frozen=True)
class Choice:
    """A solver, the reason for it, and what its factorisation costs: bytes and operations (estimates).

    `exact` ones know the inverse; others iterate, estimate traces and give no error bars. What is factorised `on_gpu`
    counts the operations that the host does in the time, and the bytes that the host needs to say why it is singular.
    """

    name: str
    reason: str
    nbytes: int
    operations: float
    exact: bool = True
    on_gpu: bool = False


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
        "spectral": one product of single-axis factors; direct with a ridge or no penalty, else the eigenvectors
        precondition conjugate gradients. "separable": one product with factors on whose axes all terms of the penalty
        agree, and others. "banded", "dense": anything. "iterative": conjugate gradients with multigrid, anything over
        up to four coordinates.
    exact : bool
        Only solvers that know the inverse: iterations estimate traces, and give no error bars.
    resources : Resources, optional
        Cores, memory, and a GPU for dense systems that fit there, where it is faster than any solver on the host; those
        of this process and machine if they are not given.

    Raises
    ------
    ValueError
        An unknown solver, one that the structure does not admit, or more bytes than there is memory.
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
    if solver is not None and solver not in NAMES:
        raise ValueError(f"unknown solver {solver!r}: choose one of {', '.join(NAMES)}, or None for the best")
    resources = resources or Resources.here()
    found = _Structure(gram, product_of(gram, frame), penalty, frame, room_for(resources, exact), resources)
    proposals = [_PROPOSALS[name](found) for name in (NAMES if solver is None else (solver,))]
    admitted = (c for c in proposals if c is not None and (c.exact or not exact))
    choices = sorted(admitted, key=lambda c: c.operations + (0.0 if c.exact else PATIENCE))
    if not choices:
        raise ValueError(_inadmissible(str(solver), found, admitted=any(proposals)))
    fitting = [choice for choice in choices if choice.nbytes <= resources.memory]
    if not fitting:
        raise ValueError(_too_large(choices[0], found, exact))
    if solver is not None:
        return [replace(fitting[0], reason="asked for by name")]
    first, *others = fitting
    return [first, *(c for c in others if not first.exact and c.operations <= FARTHEST)]


def iterating(
    gram: Gram, penalty: Gram, frame: Frame, solver: str | None = None, resources: Resources | None = None
) -> Choice | None:
    """The first candidate that iterates, if it is worth it or asked for; None for several different systems."""
    try:
        choices = candidates(gram, penalty, frame, solver, resources=resources)
    except ValueError:
        return None
    one = int(distinct(gram)[1].max(initial=0)) == 0
    return next((c for c in choices if not c.exact and one), None)


@dataclass(frozen=True, eq=False)
class _Structure:
    """What a proposal looks at."""

    gram: Gram
    product: Product | None
    penalty: Gram
    frame: Frame
    room: float
    resources: Resources

    @cached_property
    def ordering(self) -> Ordering:
        return narrowest(self.frame)

    @cached_property
    def members(self) -> int:
        """Number of different systems."""
        return int(distinct(self.gram)[1].max(initial=0)) + 1

    @cached_property
    def ridge(self) -> bool:
        """Whether the penalty is a ridge or nothing."""
        return ridge_of(self.penalty) is not None

    @property
    def one_product(self) -> bool:
        """Whether G is a product of several factors, all shared by the batch."""
        return self.product is not None and len(self.product.factors) > 1


def _spectral(found: _Structure) -> Choice | None:
    product, sizes = found.product, found.frame.sizes
    if product is None or any(len(f.axes) != 1 for f in product.factors):
        return None
    if not found.ridge:
        return _preconditioned(found)
    reason = "the eigenvectors of a factor for each coordinate diagonalise the system"
    nbytes = 8 * (2 * sum(k * k for k in sizes) + ROTATED * math.prod(sizes))
    return Choice("spectral", reason, nbytes, _eigen_operations(sizes))


def _preconditioned(found: _Structure) -> Choice | None:
    """Spectral where eigenvectors do not decouple the system but leave little."""
    sizes, terms = found.frame.sizes, found.penalty.terms
    if not found.one_product or any(len(f.axes) != 1 for term in terms for f in term):
        return None
    reason = (
        "the eigenvectors of data and roughness along each coordinate nearly diagonalise the system; conjugate "
        "gradients do the rest"
    )
    size, products = math.prod(sizes), (len(terms) + 2) * 2 * sum(sizes)
    operations = _eigen_operations(sizes) + ITERATIONS * size * (products + SLOWER * VECTORS)
    nbytes = 8 * (2 * sum(k * k for k in sizes) + VECTORS * size)
    return Choice("spectral", reason, nbytes, found.members * operations, exact=False)


def _separable(found: _Structure) -> Choice | None:
    frame = found.frame
    parts = split(found.product, found.penalty, frame) if found.product is not None else None
    if parts is None:
        return None
    own = subframe(frame, parts.axes)
    ordering = narrowest(own)
    others = [math.prod(frame.sizes[axis] for axis in block.axes) for block in parts.others]
    systems = math.prod(others) * found.members if found.penalty.terms else 1
    reason = (
        f"{_counted(systems)} over {len(parts.axes)} of {len(frame.sizes)} coordinates ({ordering.size} coefficients, "
        f"bandwidth {ordering.bandwidth}) and the eigenvalues of the other factors"
    )
    operations = _eigen_operations(others) + systems * _band_operations(ordering)
    nbytes = 8 * 2 * sum(k * k for k in others) + _kept(systems, ordering, own, found)
    return Choice("separable", reason, nbytes, operations)


def _banded(found: _Structure) -> Choice:
    ordering, count = found.ordering, found.members
    reason = f"{_general(found)}; bandwidth {ordering.bandwidth} of {ordering.size} coefficients"
    nbytes = _kept(count, ordering, found.frame, found)
    return Choice("banded", reason, nbytes, count * _band_operations(ordering))


def _dense(found: _Structure) -> Choice:
    ordering, count = found.ordering, found.members
    band = f"a bandwidth of {ordering.bandwidth} is wide for {ordering.size} coefficients"
    matrix = 8 * ordering.size**2
    nbytes = int(min(count * matrix, found.room)) + MATRICES * matrix
    choice = Choice("dense", f"{_general(found)}; {band}", nbytes, count * ordering.size**3 / 3)
    gpu = found.resources.gpu
    return choice if gpu is None else _moved(choice, found, gpu)


def _moved(choice: Choice, found: _Structure, gpu: Gpu) -> Choice:
    """A dense system on a GPU, if it fits there and is worth the way."""
    size, operations = found.ordering.size, found.members * AWAY + choice.operations / FASTER
    if room_on(gpu, size) < 8 * size**2 or operations >= choice.operations:
        return choice
    reason = f"{_general(found)}; a dense matrix of {size} coefficients is soon factorised on the GPU"
    return replace(choice, reason=reason, operations=operations, on_gpu=True)


def _iterative(found: _Structure) -> Choice | None:
    frame, count = found.frame, found.members
    size = math.prod(frame.sizes)
    if len(frame.sizes) > MAX_AXES:
        return None
    axes = list(zip(frame.sizes, frame.offsets, frame.periodic, strict=True))
    numbers, operations = inverses(frame.sizes, frame.offsets, [o < k or circle for k, o, circle in axes])
    pairs = size * math.prod(frame.offsets)
    products = size * math.prod(min(2 * o - 1, k) for k, o, _ in axes)
    operations += ITERATIONS * 8 * (2 * numbers + products)
    reason = (
        f"{_general(found)}; a bandwidth of {found.ordering.bandwidth} over {size} coefficients would take longer "
        "than iterations"
    )
    nbytes = int(LEVELS * count * (4 * numbers + 8 * pairs)) + 3 * 8 * pairs
    return Choice(ITERATIVE, reason, nbytes, SLOWER * LEVELS * count * operations, exact=False)


_PROPOSALS = {
    "spectral": _spectral,
    "separable": _separable,
    "banded": _banded,
    "dense": _dense,
    ITERATIVE: _iterative,
}


def _general(found: _Structure) -> str:
    """Why a system does not fall into smaller ones."""
    if len(found.gram.terms) > 1:
        return f"a sum of {len(found.gram.terms)} products has no common eigenvectors"
    if sum(bool(f.axes) for f in found.gram.terms[0]) == 1:
        return "one factor spans all coordinates"
    if found.product is not None:
        return "the penalty does not share the eigenvectors of the factors"
    return "weights or gaps differ within the batch"


def _counted(systems: int) -> str:
    return "one banded system" if systems == 1 else f"{systems} banded systems"


def _eigen_operations(sizes: Sequence[int]) -> float:
    return 10.0 * sum(k**3 for k in sizes)


def _band_operations(ordering: Ordering) -> float:
    return float(ordering.size) * (ordering.bandwidth + 1) ** 2


def _kept(systems: int, ordering: Ordering, frame: Frame, found: _Structure) -> int:
    """Bytes of the bands and of the pairs of their inverses, as far as they are kept, and of those being made."""
    one, pairs = 8 * ordering.size * (ordering.bandwidth + 1), 8 * ordering.size * math.prod(frame.offsets)
    return int(min(systems * (one + pairs), found.room)) + abreast(
        systems, ordering, found.resources.cores
    ) * (one + 2 * pairs)


def abreast(systems: int, ordering: Ordering, cores: int) -> int:
    """How many bands are factorised at the same time: as many as there are cores, within `ABREAST` bytes."""
    if not SMALL <= systems * _band_operations(ordering) < systems * MANY:
        return 1
    return min(cores, systems, max(1, int(ABREAST // (8 * ordering.size * (ordering.bandwidth + 1)))))


def _inadmissible(solver: str, found: _Structure, *, admitted: bool) -> str:
    if admitted:
        return (
            f"solver={solver!r} does not know the inverse of the system, from which this smoothing is chosen; leave "
            "solver out, or pass strengths, as in xs.Roughness(1e-4), or penalty='reml', which it estimates"
        )
    if solver == ITERATIVE:
        return f"solver='iterative' takes up to {MAX_AXES} coordinates, not {len(found.frame.sizes)}; leave solver out"
    needs = {
        "spectral": "one product of a factor for each coordinate (a full grid)",
        "separable": "one product of a factor over several coordinates and others (a static mask) and a ridge or no "
        "penalty, or any product and a penalty that smooths the coordinates of some factors only",
    }[solver]
    what = describe(found.gram)
    if found.one_product and not found.ridge and solver == "separable":
        what += " but the penalty is on all of them"
    return f"solver={solver!r} needs {needs}; of these statistics {what}; leave solver out, or pass solver='banded'"


def _too_large(choice: Choice, found: _Structure, exact: bool) -> str:
    available = found.resources.memory
    remedy = "use fewer coefficients along some coordinate, or a machine with more memory"
    if found.one_product and not found.ridge:
        remedy += ", or a ridge (a number as penalty), under which this system falls into small ones"
    if exact:
        remedy += ", or pass strengths, as in xs.Roughness(1e-4), or penalty='reml': iterations solve or estimate these"
    article = "an" if choice.name == ITERATIVE else "a"
    return (
        f"{article} {choice.name} solve for P = {found.ordering.size} coefficients needs about {choice.nbytes} bytes "
        f"({choice.nbytes / GIB:.1f} GiB), more than the "
        f"{available / GIB:.1f} GiB of this machine ({choice.reason}); {remedy}"
    )


def room_for(resources: Resources, again: bool) -> float:
    """Bytes of factorisations that are kept: much where they are used again and again; the rest is made again."""
    return resources.memory / 4 if again else ROOM


def room_on(gpu: Gpu, size: int) -> float:
    """Bytes of a GPU for the factorisations that one dense solver keeps; less than one of them where none fits."""
    room = SHARE * gpu.memory - 8.0 * MATRICES * size**2
    return room / SEARCHED if size <= WIDEST else 0.0

"""Which solver a system gets: chosen by the structure of G and Λ alone, with a sentence that says why."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xspline.sums import Factor, Gram

from .band import Ordering, narrowest
from .structure import Product, describe, distinct, product_of, ridge_of, subframe

if TYPE_CHECKING:
    from xspline.spaces import Frame

NAMES = ("spectral", "separable", "banded", "dense")
GIB = 2**30


@dataclass(frozen=True)
class Choice:
    """A solver, the reason for it, and what its factorisation costs: bytes and operations (estimates)."""

    name: str
    reason: str
    nbytes: int
    operations: float


def select(gram: Gram, penalty: Gram, frame: Frame, solver: str | None = None) -> Choice:
    """Choose a solver for (G + Λ) c = h: the fastest that the structure admits and the memory holds.

    Parameters
    ----------
    gram, penalty : Gram
        G, and Λ without batch axes.
    frame : Frame
    solver : str, optional
        "spectral": one product of single-axis factors, ridge or no penalty. "separable": one product with a
        factor over several axes and others, ridge or no penalty. "banded", "dense": anything.

    Raises
    ------
    ValueError
        An unknown solver, one that the structure does not admit, or more bytes than the machine has.
    """
    if solver is not None and solver not in NAMES:
        raise ValueError(f"unknown solver {solver!r}: choose one of {', '.join(NAMES)}, or None for the best")
    product = product_of(gram, frame) if ridge_of(penalty) is not None else None
    proposals = [_PROPOSALS[name](gram, product, frame) for name in (NAMES if solver is None else (solver,))]
    choices = sorted((c for c in proposals if c is not None), key=lambda choice: choice.operations)
    if not choices:
        raise ValueError(_inadmissible(str(solver), gram, product))
    fitting = [choice for choice in choices if choice.nbytes <= physical_memory()]
    if not fitting:
        raise ValueError(_too_large(choices[0], gram, product, frame))
    return fitting[0] if solver is None else replace(fitting[0], reason="asked for by name")


def _spectral(gram: Gram, product: Product | None, frame: Frame) -> Choice | None:
    if product is None or any(len(f.axes) != 1 for f in product.factors):
        return None
    reason = "the eigenvectors of a factor for each coordinate diagonalise the system"
    nbytes = 8 * (2 * sum(k * k for k in frame.sizes) + 2 * math.prod(frame.sizes))
    return Choice("spectral", reason, nbytes, _eigen_operations(frame.sizes))


def _separable(gram: Gram, product: Product | None, frame: Frame) -> Choice | None:
    if product is None or len(product.factors) < 2 or all(len(f.axes) == 1 for f in product.factors):
        return None
    main = main_factor(product)
    ordering = narrowest(subframe(frame, main.axes))
    others = [math.prod(f.sizes(frame)) for f in product.factors if f is not main]
    count = math.prod(others)
    reason = (
        f"{count} banded systems, one for each eigenvalue of the other factors: a factor spans "
        f"{len(main.axes)} coordinates ({ordering.size} coefficients, bandwidth {ordering.bandwidth})"
    )
    systems = count * _members(gram)
    nbytes = int(min(systems * _band_bytes(ordering), cache_bytes())) + 2 * _band_bytes(ordering)
    operations = _eigen_operations(others) + systems * _band_operations(ordering)
    return Choice("separable", reason, 8 * 2 * sum(k * k for k in others) + nbytes, operations)


def _banded(gram: Gram, product: Product | None, frame: Frame) -> Choice:
    ordering = narrowest(frame)
    reason = f"{_general(gram, product)}; bandwidth {ordering.bandwidth} of {ordering.size} coefficients"
    pairs, count = 8 * ordering.size * math.prod(frame.offsets), _members(gram)
    nbytes = count * _band_bytes(ordering) + 2 * pairs
    return Choice("banded", reason, nbytes, count * _band_operations(ordering))


def _dense(gram: Gram, product: Product | None, frame: Frame) -> Choice:
    ordering = narrowest(frame)
    band = f"a bandwidth of {ordering.bandwidth} is wide for {ordering.size} coefficients"
    reason = f"{_general(gram, product)}; {band}"
    count = _members(gram)
    return Choice("dense", reason, (count + 2) * 8 * ordering.size**2, count * ordering.size**3 / 3)


_PROPOSALS = {"spectral": _spectral, "separable": _separable, "banded": _banded, "dense": _dense}


def _general(gram: Gram, product: Product | None) -> str:
    """Why a system does not fall into smaller ones."""
    if len(gram.terms) > 1:
        return f"a sum of {len(gram.terms)} products has no common eigenvectors"
    if len(_spanning(gram)) == 1:
        return "one factor spans all coordinates"
    if product is None and _shared(gram):
        return "the penalty does not share the eigenvectors of the factors"
    return "weights or gaps differ within the batch"


def _spanning(gram: Gram) -> list[Factor]:
    """The factors of the only term that span coordinates."""
    return [f for f in gram.terms[0] if f.axes]


def _shared(gram: Gram) -> bool:
    return all(math.prod(f.batch) == 1 for f in _spanning(gram))


def _ridge_would_do(gram: Gram, product: Product | None) -> bool:
    """Whether it is the penalty alone that keeps a product from falling into smaller systems."""
    return product is None and len(gram.terms) == 1 and len(_spanning(gram)) > 1 and _shared(gram)


def main_factor(product: Product) -> Factor:
    """The factor that keeps its band: the largest of those over most axes."""
    return max(product.factors, key=lambda f: (len(f.axes) > 1, f.nbytes))


def _eigen_operations(sizes: Sequence[int]) -> float:
    return 10.0 * sum(k**3 for k in sizes)


def _band_operations(ordering: Ordering) -> float:
    return float(ordering.size) * (ordering.bandwidth + 1) ** 2


def _band_bytes(ordering: Ordering) -> int:
    return 8 * ordering.size * (ordering.bandwidth + 1)


def _members(gram: Gram) -> int:
    return int(distinct(gram)[1].max(initial=0)) + 1


def _inadmissible(solver: str, gram: Gram, product: Product | None) -> str:
    needs = {
        "spectral": "one product of a factor for each coordinate (a full grid)",
        "separable": "one product of a factor over several coordinates and others (a static mask)",
    }[solver]
    found = describe(gram)
    if _ridge_would_do(gram, product):
        found += " but the penalty is not a ridge"
    return (
        f"solver={solver!r} needs {needs} and a ridge or no penalty; of these statistics {found}; "
        "leave solver out, or pass solver='banded'"
    )


def _too_large(choice: Choice, gram: Gram, product: Product | None, frame: Frame) -> str:
    available = physical_memory()
    remedy = "use fewer coefficients along some coordinate, or a machine with more memory"
    if _ridge_would_do(gram, product):
        remedy += ", or a ridge (a number as penalty), under which this system falls into small ones"
    return (
        f"a {choice.name} solve for P = {math.prod(frame.sizes)} coefficients needs about "
        f"{choice.nbytes} bytes ({choice.nbytes / GIB:.1f} GiB), more than the "
        f"{available / GIB:.1f} GiB of this machine ({choice.reason}); {remedy}"
    )


def physical_memory() -> float:
    """Bytes of memory of this machine; infinity where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def cache_bytes() -> float:
    """Bytes of factorisations that a separable solve keeps; those beyond are made again for each solve."""
    return physical_memory() / 4

"""Kronecker structure of G and Λ: whether G is one product of factors, and which factors the penalty shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from xspline.solve.direct.band import band, narrowest
from xspline.solve.direct.cholesky import Array, BandCholesky, tolerance, unit_scale
from xspline.spaces import Frame
from xspline.sums import Factor, Gram, digest_key, join_overlapping, outer_pairs

Term: TypeAlias = tuple[Factor, ...]
# Share of the squares of the diagonal of G that its marginals explain, at nine tenths of the times or more, where their
# product stands for G. Measured: 0.93 and more where a tenth is missing in blocks; 0.13 of moorings that were set up
# one after the other, for which iterations do not converge.
NEARLY = 0.8


@dataclass(frozen=True, eq=False)
class Product:
    """G_b = v_b F_1 ⊗ F_2 ⊗ …, the factors shared by the whole batch."""

    factors: tuple[Factor, ...]  # over the coefficient axes, all coefficients of them, without batch axes
    multiplicity: Array  # [b..], v


def product_of(gram: Gram, frame: Frame) -> Product | None:
    """The Gram as one product with shared factors; None if it is not one."""
    if len(gram.terms) != 1:
        return None
    spanning = [f for f in gram.terms[0] if f.axes]
    if any(math.prod(f.batch) != 1 for f in spanning):
        return None
    factors = (replace(f, pairs=f.pairs.reshape(f.pairs.shape[: 2 * len(f.axes)])) for f in spanning)
    v = math.prod((f.pairs for f in gram.terms[0] if not f.axes), start=np.ones((1,) * gram.batch_ndim))
    return Product(tuple(f.full(frame) for f in factors), np.asarray(v))


def expected(gram: Gram, frame: Frame, axis: int, least: float = NEARLY) -> Product | None:
    """G as it would be if labels along one axis were observed independently of places over the others.

    G_x ⊗ G_t / n of its marginals, those of all observations without regard to the axis and to the other axes, as in a
    table of counts; n is the weight of all. It is G where that is such a product. None where they have less than that
    share in common, where there is a batch, or an axis without the constant.
    """
    known = _expected.setdefault(gram, {})
    if axis not in known:
        known[axis] = _independent(gram, frame, axis)
    product, common = known[axis]
    return product if common >= least else None


_expected: WeakKeyDictionary[Gram, dict[int, tuple[Product | None, float]]] = WeakKeyDictionary()


def _independent(gram: Gram, frame: Frame, axis: int) -> tuple[Product | None, float]:
    """The product, and what nearly all functions along the axis see in common."""
    axes = range(len(frame.sizes))
    # A plan has NaN for the numbers of factors that labels do not determine.
    unknown = any(np.isnan(f.pairs[(0,) * f.pairs.ndim]) for term in gram.terms for f in term if f.axes)
    large = math.prod((*frame.sizes, *frame.offsets)) > 2**27  # 1 GiB of a G of one factor
    if gram.batch_ndim or unknown or large or not all(e.any() for e in frame.constant):
        return None, 0.0
    pairs = gram.one_factor(frame).pairs.reshape(*frame.sizes, *frame.offsets)
    # [K, O] of each axis: what sums the pairs of functions up to those of the constant.
    whole = [outer_pairs(frame.constant[j][:, None], frame.along((j,))) for j in axes]
    places = np.tensordot(pairs, whole[axis], axes=((axis, len(axes) + axis), (0, 1)))
    along, others = pairs, [j for j in axes if j != axis]
    for j in reversed(others):
        along = np.tensordot(along, whole[j], axes=((j, along.ndim // 2 + j), (0, 1)))
    weight = float(np.sum(along * whole[axis]))
    if not weight > 0:
        return None, 0.0
    # How much of what each function along the axis sees of places is what all see, as the square of a correlation.
    seen = np.moveaxis(gram.diagonal(frame), axis, -1).reshape(-1, frame.sizes[axis])
    usual = places.reshape(*places.shape[: len(others)], -1)[..., 0].ravel()
    squares = np.sum(seen**2, axis=0) * float(usual @ usual)
    common = (usual @ seen[:, squares > 0]) ** 2 / squares[squares > 0]
    least = float(np.quantile(common, 0.1))
    if not least >= NEARLY:
        return None, least
    key = [f.key for term in gram.terms for f in term]
    factors = [
        Factor(
            group, tuple((0, frame.sizes[j]) for j in group), p, digest_key("expected", str(group), str(key))
        )
        for group, p in ((tuple(others), places / weight), ((axis,), along))
    ]
    return Product(tuple(factors), np.ones(())), least


@dataclass(frozen=True, eq=False)
class AxisGroup:
    """Axes on which terms of the penalty agree: the factors of G there, and the penalty's, if there is one."""

    axes: tuple[int, ...]
    factors: tuple[Factor, ...]
    mass: tuple[Factor, ...]


@dataclass(frozen=True, eq=False)
class Split:
    """G_b = v_b F ⊗ F_1 ⊗ F_2 ⊗ …, Λ = S ⊗ M_1 ⊗ M_2 ⊗ … + S' ⊗ F_1 ⊗ M_2 ⊗ ….

    The M_j are positive definite; M_1, where there is S', is so with F_1 added.
    """

    axes: tuple[int, ...]  # the main axes, of F and S
    factors: tuple[Factor, ...]  # those of F
    penalty: Gram  # S over the main axes alone, numbered from 0; no terms without a penalty
    others: tuple[AxisGroup, ...]  # F_j and M_j
    multiplicity: Array  # [b..], v
    # S', of terms that carry the factor of G along the first of the others; no terms where there are none
    beside: Gram


def split(product: Product, penalty: Gram, frame: Frame) -> Split | None:
    """Tell the axes on which the terms of a penalty differ from those on which they agree; None if there are none.

    They agree too along one axis where some carry the factor of G and all others one matrix more. Where all agree on
    every axis, the main axes are those of the largest factor over several axes.
    """
    terms = [tuple(f.full(frame) for f in term) for term in penalty.terms]
    spans = (f.axes for factors in (product.factors, *terms) for f in factors)
    groups = [
        AxisGroup(axes, within(product.factors, axes), within(terms[0], axes) if terms else ())
        for axes in sorted(tuple(sorted(axes)) for axes in join_overlapping(spans))
    ]
    others = [group for group in groups if _agree(terms, group, frame)]
    if len(others) == len(groups):
        main = max(others, key=lambda group: (len(group.axes) > 1, sum(f.nbytes for f in group.factors)))
        others = [group for group in others if group is not main]
    apart = {axis for group in others for axis in group.axes}
    reduced = [
        scaled_term(
            [f for f in term if not apart.intersection(f.axes)],
            math.prod(_multiple(term, terms[0], group.axes) or 0.0 for group in others),
        )
        for term in terms
    ]
    left, beside = [group for group in groups if group not in others], list[Term]()
    if len(left) > 1:
        for group in left:
            if len(group.axes) == 1 and (both := _beside(reduced, group, left, frame)) is not None:
                reduced, beside, pencil = both
                others = [pencil, *others]
                apart.update(group.axes)
                break
    if not others:
        return None
    axes = tuple(axis for axis in range(len(frame.sizes)) if axis not in apart)
    factors = tuple(f for f in product.factors if not apart.intersection(f.axes))
    main_terms, beside_terms = (
        Gram(tuple(alone(term, axes).terms[0] for term in x)) for x in (reduced, beside)
    )
    return Split(axes, factors, main_terms, tuple(others), product.multiplicity, beside_terms)


def nearly_split(
    gram: Gram, penalty: Gram, frame: Frame, least: float = NEARLY
) -> tuple[Product, Split] | None:
    """The product that G nearly is, and its split, where Λ falls into modes of season, trend and events.

    None where G is a product, or far from one.
    """
    own = product_of(gram, frame)
    if len(frame.sizes) < 2 or not penalty.terms or (own is not None and len(own.factors) > 1):
        return None
    for axis, (size, offsets, m) in enumerate(zip(frame.sizes, frame.offsets, frame.everywhere, strict=True)):
        union = m or (offsets == size and not frame.periodic[axis])
        if union:
            product = expected(gram, frame, axis, least)
            parts = None if product is None else split(product, penalty, frame)
            if product is not None and parts is not None and parts.beside.terms:
                return product, parts
    return None


def _agree(terms: Sequence[Term], group: AxisGroup, frame: Frame) -> bool:
    """Whether all terms are multiples of the first on a group of axes, and that is well conditioned."""
    if any(_multiple(term, terms[0], group.axes) is None for term in terms):
        return False
    pivot = 1.0  # the smallest, relative, of the mass matrices
    for factor in group.mass:
        ordering = narrowest(frame.along(factor.axes))
        pivot *= BandCholesky(band(factor.pairs[..., None], ordering)[..., 0]).pivot
    return pivot > 1e-6  # an inverse magnifies rounding errors by the reciprocal


def _beside(
    terms: Sequence[Term], group: AxisGroup, groups: Sequence[AxisGroup], frame: Frame
) -> tuple[list[Term], list[Term], AxisGroup] | None:
    """Terms that carry R along the axis of a group, terms that carry F there, both on the other axes alone; F and R.

    None where it is not so, or F and R together are nearly singular.
    """
    multiples = [_multiple(term, group.factors, group.axes) for term in terms]
    carriers = [term for term, x in zip(terms, multiples, strict=True) if x is None]
    if not carriers or len(carriers) == len(terms):
        return None

    def main(term: Term, scale: float) -> Term:
        return scaled_term([f for f in term if f.axes != group.axes], scale)

    first, elsewhere = carriers[0], [other.axes for other in groups if other is not group]
    (rough,) = within(first, group.axes)
    scales = [[_multiple(term, first, axes) for axes in elsewhere] for term in carriers]
    if all(None not in x for x in scales):
        products = [math.prod(y or 0.0 for y in x) for x in scales]
        own = (within(term, group.axes)[0].pairs for term in carriers)
        pairs = sum((x * y for x, y in zip(products, own, strict=True)), np.zeros(rough.pairs.shape))
        rough, rest = replace(rough, pairs=pairs), [main(first, 1.0)]
    else:
        along = [_multiple(term, first, group.axes) for term in carriers]
        if None in along:
            return None
        rest = [main(term, x or 0.0) for term, x in zip(carriers, along, strict=True)]
    pencil = AxisGroup(group.axes, group.factors, (rough,))
    data, other = (dense_of(factors, group.axes, frame) for factors in (pencil.factors, pencil.mass))
    both = balanced(data, other)[1]
    scale = unit_scale(np.diagonal(both))
    if np.linalg.eigvalsh(both / scale / scale[:, None])[0] <= tolerance(len(both)):
        return None
    observed = [main(t, x) for t, x in zip(terms, multiples, strict=True) if x is not None]
    return rest, observed, pencil


def balanced(data: Array, other: Array) -> tuple[Array, Array]:
    """F times a number that makes it weigh as much as R on the diagonal, and the sum of that and R."""
    whole = float(np.trace(data))
    scaled = data * (float(np.trace(other)) / whole if whole else 0.0)
    return scaled, scaled + other


def scaled_term(factors: Sequence[Factor], x: float) -> Term:
    """One term times a number, which the first factor carries."""
    first, *others = factors
    return (first.scaled(x), *others)


def within(factors: Sequence[Factor], axes: Sequence[int]) -> tuple[Factor, ...]:
    """The factors over no other axes than these."""
    return tuple(f for f in factors if set(f.axes) <= set(axes) and f.axes)


def _multiple(term: Sequence[Factor], first: Sequence[Factor], axes: Sequence[int]) -> float | None:
    """x if a term is x times another on some axes, factor by factor and up to rounding; None if it is not."""
    mine, theirs = within(term, axes), within(first, axes)
    if [f.axes for f in mine] != [f.axes for f in theirs]:
        return None
    quotients = []
    for a, b in zip((f.pairs for f in mine), (f.pairs for f in theirs), strict=True):
        largest = int(np.argmax(np.abs(b)))
        x = float(a.flat[largest] / b.flat[largest]) if b.flat[largest] else math.nan
        rounding = 8.0 * float(np.finfo(np.float64).eps)
        if not (np.abs(a - x * b) <= rounding * np.abs(a)).all():
            return None
        quotients.append(x)
    return math.prod(quotients) if all(map(math.isfinite, quotients)) else None


def alone(factors: Sequence[Factor], axes: Sequence[int]) -> Gram:
    """A product of factors as a Gram over its own axes, which are numbered from 0."""
    return Gram((tuple(replace(f, axes=tuple(axes.index(a) for a in f.axes)) for f in factors),))


def dense_of(factors: Sequence[Factor], axes: Sequence[int], frame: Frame) -> Array:
    """The matrix of a product of factors without batch axes, over its own axes: [P, P]."""
    return alone(factors, axes).to_dense(frame.along(axes))


def ridge_of(penalty: Gram) -> float | None:
    """λ if the penalty is λ times the identity, 0 if there is none; else None."""
    total = 0.0
    for term in penalty.terms:
        for factor in term:
            diagonal = factor.diagonal()
            first = float(diagonal.flat[0])
            # Entries beside the diagonal are all 0 when there are no more non-zeros than the diagonal has.
            if (diagonal != first).any() or np.count_nonzero(factor.pairs) > diagonal.size:
                return None
        total += math.prod(float(factor.diagonal().flat[0]) for factor in term)
    return total

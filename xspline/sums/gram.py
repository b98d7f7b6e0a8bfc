"""Gram: the matrix G = Φᵀ W Φ as a sum of products of factors, closed under +.

A term is a product of factors over a partition of the coefficient axes, and at most one factor without axes,
a multiplicity over batch dimensions. A full grid is one term of single-axis factors; a static mask is one
term with a two-axis factor; anything is one term of one factor; no terms are zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xspline.spaces import Frame
from xspline.sums.factor import KEY_MODULUS, Factor, multiply_factors, outer
from xspline.sums.terms import Term, concatenate_terms, image_of, ordered, term_window, tidy
from xspline.sums.window import Array, Window, add_into, lengths, take, whole


@dataclass(frozen=True, eq=False)
class Gram:
    """Sum of products of factors.

    The factors of each term partition all coefficient axes, with at most one more without axes; they are kept with
    ascending axes, the multiplicity last. `batch_ndim` is the number of batch axes that end every pair array.
    """

    terms: tuple[Term, ...]
    batch_ndim: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", tuple(ordered(term) for term in self.terms))

    @staticmethod
    def merge(grams: Sequence[Gram], frame: Frame) -> Gram:
        """Sum of Grams, deterministic in their order.

        The terms of all operands are collected and swept position by position: terms that agree on every key
        but one merge by adding that factor, so complementary blocks of a grid become one term again. If the
        list is then larger than one term on the union window, it is multiplied out to the coarsest common
        partition.
        A Gram without batch axes takes those of the others.
        """
        batch_ndim = max(gram.batch_ndim for gram in grams)
        terms = [term for gram in grams for term in gram.with_batch_axes(batch_ndim).terms]
        return Gram(tidy(terms, batch_ndim, frame), batch_ndim)

    @staticmethod
    def concatenate(grams: Sequence[Gram], axis: int, sizes: Sequence[int], frame: Frame) -> Gram:
        """Blocks that differ along one batch axis, side by side.

        There is one Gram per block, with equal numbers of batch axes, among which `axis` is counted. `sizes` are the
        extents of each block along it; the pair arrays of a block may have extent 1 there.

        A factor stays shared (extent 1) where the keys of all blocks agree. Terms of different blocks with
        the same partition join factor by factor; a block that lacks a term gets a multiplicity of zeros.
        """
        batch_ndim = max(gram.batch_ndim for gram in grams)
        blocks = [gram.with_batch_axes(batch_ndim).terms for gram in grams]
        return Gram(tidy(concatenate_terms(blocks, axis, sizes, frame), batch_ndim, frame), batch_ndim)

    @property
    def nbytes(self) -> int:
        """Bytes of all pair arrays."""
        return sum(factor.nbytes for term in self.terms for factor in term)

    @property
    def batch(self) -> tuple[int, ...]:
        """Extents of the batch axes, 1 where all factors are shared."""
        factors = [factor.batch for term in self.terms for factor in term]
        return np.broadcast_shapes((1,) * self.batch_ndim, *factors)

    def with_batch_axes(self, count: int) -> Gram:
        """The same Gram with `count` batch axes, of extent 1, where it had none."""
        if self.batch_ndim == count:
            return self
        return Gram(tuple(tuple(f.with_batch_axes(count) for f in term) for term in self.terms), count)

    def scaled(self, x: float) -> Gram:
        """The Gram times a number."""
        return Gram(tuple((term[0].scaled(x), *term[1:]) for term in self.terms), self.batch_ndim)

    def matvec(self, v: Array, frame: Frame) -> Array:
        """Product with vectors, factor after factor: [K.., b..].

        Batch axes of v, [K.., b..], of extent 1 broadcast against those of the pairs. If the Gram has fewer batch axes
        than `v`, they are the last of `v`.
        """
        sizes = frame.sizes
        lifted = (1,) * (v.ndim - self.batch_ndim) + self.batch
        out = np.zeros(np.broadcast_shapes(v.shape, lifted))
        for term in self.terms:
            window = term_window(term)
            part = take(v, window, sizes)
            for factor in term:
                part = factor.apply(part, frame, factor.axes)
            add_into(out, whole(sizes), part, window, sizes)
        return out

    def form(self, v: Array, frame: Frame, slab: int = 1 << 17) -> Array:
        """Quadratic form vᵀGv of vectors [K.., b..], with as many batch axes as the Gram: [b..].

        A large batch is taken a slice at a time, about `slab` numbers, since a product takes several arrays as large
        as its vectors.
        """
        axes = tuple(range(len(frame.sizes)))
        batch = np.broadcast_shapes(v.shape[len(axes) :], self.batch)
        if not batch:
            return np.asarray(np.sum(v * self.matvec(v, frame)))
        v, out = np.broadcast_to(v, (*frame.sizes, *batch)), np.empty(batch)
        longest = int(np.argmax(batch))
        step = max(1, slab * batch[longest] // max(v.size, 1))
        for first in range(0, batch[longest], step):
            span = slice(first, first + step)
            own = v[(slice(None),) * (len(axes) + longest) + (span,)]
            product = self.batch_slice(longest, span).matvec(own, frame)
            out[(slice(None),) * longest + (span,)] = np.sum(own * product, axis=axes)
        return out

    def batch_slice(self, axis: int, span: slice) -> Gram:
        """The Gram of a slice of one batch axis, as views; what is shared along it stays whole."""
        terms = (tuple(factor.batch_slice(axis, span) for factor in term) for term in self.terms)
        return Gram(tuple(terms), self.batch_ndim)

    def image(self, vectors: Sequence[Array], window: Window, frame: Frame) -> Array:
        """Product with the outer product of a vector per axis, [k.., b..] on `window`, which holds those of all terms.

        The vectors are [K_j].
        """
        out = np.zeros((*lengths(window), *self.batch))
        for term in self.terms:
            product = outer([image_of(factor, vectors, frame) for factor in term], [f.axes for f in term])
            add_into(out, window, product, term_window(term), frame.sizes)
        return out

    def diagonal(self, frame: Frame) -> Array:
        """Entries with i = j: [K.., b..]."""
        return self.at((0,) * len(frame.sizes), frame)

    def at(self, offset: Sequence[int], frame: Frame) -> Array:
        """Entries of the pairs (k, k + offset), axis by axis, by k: [K.., b..]; zero where there is no such pair."""
        out = np.zeros((*frame.sizes, *self.batch))
        for term in self.terms:
            parts = [f.padded(frame).at(tuple(offset[a] for a in f.axes)) for f in term]
            product = outer(parts, [f.axes for f in term])
            add_into(out, whole(frame.sizes), product, term_window(term), frame.sizes)
        return out

    def one_factor(self, frame: Frame) -> Factor:
        """Everything multiplied out: one factor over all axes and coefficients, pairs [K.., O.., b..]."""
        sizes, axes = frame.sizes, tuple(range(len(frame.sizes)))
        pairs = np.zeros((*sizes, *frame.offsets, *self.batch))
        key = 0
        for term in self.terms:
            product = multiply_factors(term).padded(frame)
            add_into(pairs, whole(sizes), product.pairs, product.window, sizes)
            key = (key + product.key) % KEY_MODULUS
        return Factor(axes, whole(sizes), pairs, key)

    def to_dense(self, frame: Frame) -> Array:
        """The matrix, [P, P, b..]; for tests and for a dense solver only."""
        count = math.prod(frame.sizes)
        out = np.zeros((*frame.sizes, *frame.sizes, *self.batch))
        for term in self.terms:
            out += outer([factor.to_dense(frame) for factor in term], [f.axes for f in term], copies=2)
        return out.reshape(count, count, *self.batch)

    def equals(self, other: Gram) -> bool:
        """Same terms, windows, keys and numbers, bit for bit."""
        mine, theirs = self.to_arrays(), other.to_arrays()
        same = (np.array_equal(array, theirs[0].get(name, ())) for name, array in mine[0].items())
        return mine[1] == theirs[1] and all(same)

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Plain arrays by name, and a JSON-able description, for files."""
        arrays, terms = {}, []
        for i, term in enumerate(self.terms):
            described = []
            for j, factor in enumerate(term):
                arrays[f"pairs_{i}_{j}"] = factor.pairs
                window = [list(span) for span in factor.window]
                described.append({"axes": list(factor.axes), "window": window, "key": f"{factor.key:032x}"})
            terms.append(described)
        return arrays, {"batch_ndim": self.batch_ndim, "terms": terms}

    @staticmethod
    def from_arrays(arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Gram:
        """Inverse of `to_arrays`; other arrays in the mapping are left alone."""
        terms = []
        for i, term in enumerate(meta["terms"]):
            factors = []
            for j, factor in enumerate(term):
                name = f"pairs_{i}_{j}"
                window = tuple((int(start), int(length)) for start, length in factor["window"])
                pairs = np.asarray(arrays[name], dtype=np.float64)
                factors.append(Factor(tuple(factor["axes"]), window, pairs, int(factor["key"], 16)))
            terms.append(tuple(factors))
        return Gram(tuple(terms), int(meta["batch_ndim"]))

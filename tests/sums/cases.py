"""Random frames, factors, Grams and data, with their dense definitions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from xspline.spaces import Frame
from xspline.sums import Factor, Gram, digest_key
from xspline.sums.window import lengths

LOCAL, CIRCLE, GLOBAL, ARROW = "local", "circle", "global", "arrow"
EVERYWHERE = 2  # functions of an arrow axis that are active everywhere


def frame_of(*axes: tuple[str, int, int]) -> Frame:
    """A frame from (kind, number of coefficients, degree) per axis; a global axis ignores the degree."""
    constants = {GLOBAL: lambda k: np.eye(k)[0], ARROW: lambda k: (np.arange(k) >= EVERYWHERE).astype(float)}
    return Frame(
        sizes=tuple(k for _, k, _ in axes),
        offsets=tuple(k if kind == GLOBAL else p + 1 + EVERYWHERE * (kind == ARROW) for kind, k, p in axes),
        periodic=tuple(kind == CIRCLE for kind, _, _ in axes),
        constant=tuple(constants.get(kind, np.ones)(k) for kind, k, _ in axes),
        everywhere=tuple(EVERYWHERE * (kind == ARROW) for kind, _, _ in axes),
    )


@st.composite
def axes(draw: st.DrawFn) -> tuple[str, int, int]:
    kind = draw(st.sampled_from([LOCAL, CIRCLE, GLOBAL, ARROW]))
    degree = draw(st.integers(0, 2))
    least = {LOCAL: degree + 1, CIRCLE: 2 * degree + 1, GLOBAL: 1, ARROW: EVERYWHERE + degree + 1}[kind]
    return kind, draw(st.integers(least, least + 3)), degree


def frames(most: int = 3) -> st.SearchStrategy[Frame]:
    return st.lists(axes(), min_size=1, max_size=most).map(lambda drawn: frame_of(*drawn))


rngs = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def partner(frame: Frame, axis: int, k: int, o: int) -> int | None:
    """The second member of the pair (k, o); None if there is no such pair."""
    size, m = frame.sizes[axis], frame.everywhere[axis]
    near = frame.offsets[axis] - m
    if m and o >= near:
        return o - near if o - near < k else None
    if frame.periodic[axis]:
        return (k + o) % size
    return k + o if k + o < size and (k >= m or not o) else None


def random_factor(
    rng: np.random.Generator, frame: Frame, axes: Sequence[int], batch: tuple[int, ...] = ()
) -> Factor:
    """A factor on a random window, with zeros where the second member of a pair leaves it."""
    window = []
    for axis in axes:
        size = frame.sizes[axis]
        # Whether every observation touches all coefficients, or some of them as every other does.
        is_global = frame.offsets[axis] == size or frame.everywhere[axis]
        length = size if is_global else int(rng.integers(1, size + 1))
        room = size if frame.periodic[axis] else size - length + 1
        window.append((0 if length == size else int(rng.integers(room)), length))
    pairs = rng.normal(size=(*lengths(window), *(frame.offsets[a] for a in axes), *batch))
    for place, axis in enumerate(axes):
        length = window[place][1]
        if frame.periodic[axis] and length == frame.sizes[axis]:
            continue
        k, o = np.ogrid[:length, : frame.offsets[axis]]
        inside = k + o < length
        if frame.everywhere[axis]:
            inside = [[partner(frame, axis, i, j) is not None for j in o[0]] for i in range(length)]
        shape = [1] * pairs.ndim
        shape[place], shape[len(axes) + place] = length, frame.offsets[axis]
        pairs *= np.reshape(inside, shape)
    return Factor(tuple(axes), tuple(window), pairs, digest_key(rng.bytes(16)))


def random_gram(
    rng: np.random.Generator, frame: Frame, terms: int | None = None, batch: tuple[int, ...] = ()
) -> Gram:
    """Terms over random partitions, extents of the batch axes shared at random, some with a multiplicity."""
    made = []
    for _ in range(int(rng.integers(3)) if terms is None else terms):
        label = rng.integers(len(frame.sizes), size=len(frame.sizes))
        partition = [tuple(int(a) for a in np.flatnonzero(label == x)) for x in np.unique(label)]
        if rng.integers(2) and batch:
            partition.append(())
        some = [tuple(int(rng.choice([1, n])) for n in batch) for _ in partition]
        made.append(tuple(random_factor(rng, frame, a, b) for a, b in zip(partition, some, strict=True)))
    return Gram(tuple(made), len(batch))


def dense(factor: Factor, frame: Frame) -> np.ndarray:
    """The definition, entry by entry: [K.., K.., b..]."""
    sizes = [frame.sizes[a] for a in factor.axes]
    out = np.zeros((*sizes, *sizes, *factor.batch))
    for place in np.ndindex(*lengths(factor.window)):
        k = [(start + p) % n for (start, _), p, n in zip(factor.window, place, sizes, strict=True)]
        for offset in np.ndindex(*factor.offsets):
            second = [partner(frame, axis, a, o) for axis, a, o in zip(factor.axes, k, offset, strict=True)]
            if None in second:
                continue
            for i, j in orientations(k, second):
                out[i + j] += factor.pairs[place + offset]
    return out


def orientations(first: Sequence[int], second: Sequence[int]) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All (i, j) with {i_a, j_a} = {first_a, second_a} along every axis, each once."""
    choices = [{(a, b), (b, a)} for a, b in zip(first, second, strict=True)]
    return {(tuple(i for i, _ in c), tuple(j for _, j in c)) for c in itertools.product(*choices)}


def partitions(gram: Gram) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """For each term the axes of its factors."""
    return tuple(tuple(factor.axes for factor in term) for term in gram.terms)


def close(a: np.ndarray, b: np.ndarray, tolerance: float = 1e-12) -> bool:
    scale = max(float(np.max(np.abs(b), initial=0.0)), 1.0)
    return bool(np.max(np.abs(a - b), initial=0.0) <= tolerance * scale)

"""Nested dissection: the elimination tree of a tensor grid of coefficients, which leaves a direct solver little work.

A coefficient meets those at most O − 1 away along each axis, so a slab of that thickness separates a box of them in
two that do not meet (George 1973). Eliminated last, it is one small dense matrix; so are the slabs of the two halves,
and so on. In two dimensions P log P numbers and P^1.5 operations take the place of the P^1.5 and P² of a band.

Functions that are active everywhere along an axis (`spaces.Arrow`) meet all others of it: they belong to the first
separator across it, and to the boundary of every box below.

A tree of nodes says it: the pivots of a leaf are a box, those of any other node a separator, and its boundary are the
coefficients around the box that are eliminated later. The dense matrix of a node is its front, pivots first.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xspline.solve.costs import CostModel
from xspline.solve.direct.band import band_operations, narrowest
from xspline.spaces import Frame
from xspline.sums import matrix_entries

Index = NDArray[np.integer]
LEAF = 96  # coefficients of a box that is not cut: fewer make more fronts, which take time by number


class Extent(NamedTuple):
    """A box along one axis."""

    length: int  # neighbours
    before: int  # neighbours that it meets before its start
    after: int  # neighbours that it meets beyond its end
    circle: bool  # whether it is a circle not yet cut
    everywhere: int = 0  # how many functions of the axis are active everywhere
    inside: bool = False  # whether these are in the box

    @property
    def own(self) -> int:
        """Coefficients in the box."""
        return self.length + self.everywhere * self.inside

    @property
    def met(self) -> int:
        """Coefficients in the box and those that it meets."""
        return self.before + self.length + self.after + self.everywhere


Box: TypeAlias = tuple[Extent, ...]


class Rule(NamedTuple):
    """How boxes are cut: the thickness of a separator along each axis, and the size of a box that is not cut."""

    thickness: tuple[int, ...]
    leaf: int


class Cut(NamedTuple):
    """Slabs that separate a box, and the boxes that are left, along one axis: starts in the box, lengths, extents.

    Functions active everywhere belong to the slabs too.
    """

    slabs: tuple[tuple[int, int], ...]
    boxes: tuple[tuple[int, Extent], ...]


class Cost(NamedTuple):
    """What a factorisation takes: operations, numbers of L, fronts, and numbers that wait for their parents at most."""

    operations: float
    numbers: int
    fronts: int
    waiting: int


def cost_of(frame: Frame, leaf: int = LEAF) -> Cost:
    """What factorising a system over a frame costs, from the sizes alone; a box of `leaf` coefficients is not cut."""
    return _cost(_whole(frame), Rule(_thickness(frame), leaf))


@functools.lru_cache(maxsize=4096)
def _cost(box: Box, rule: Rule) -> Cost:
    children = [child for _, child in _children(box, rule)]
    parts = [_cost(child, rule) for child in children]
    pivots, boundary = _size(box) - sum(map(_size, children)), _around(box)
    own, held, waiting = pivots * (pivots + boundary), 0, 0
    for child, part in zip(children, parts, strict=True):
        waiting = max(waiting, held + part.waiting)
        held += _around(child) ** 2
    operations = pivots**3 / 3 + pivots**2 * boundary + pivots * boundary**2
    return Cost(
        operations + sum(part.operations for part in parts),
        own + sum(part.numbers for part in parts),
        1 + sum(part.fronts for part in parts),
        max(waiting, held + own + boundary**2),
    )


def _size(box: Box) -> int:
    return math.prod(extent.own for extent in box)


def _around(box: Box) -> int:
    """How many coefficients beyond a box it meets."""
    return math.prod(extent.met for extent in box) - _size(box)


def _whole(frame: Frame) -> Box:
    axes = zip(frame.sizes, frame.periodic, frame.everywhere, strict=True)
    return tuple(Extent(k - m, 0, 0, p, m, m > 0) for k, p, m in axes)


def _thickness(frame: Frame) -> tuple[int, ...]:
    return tuple(o - m - 1 for o, m in zip(frame.offsets, frame.everywhere, strict=True))


def _own(extent: Extent, start: int) -> Index:
    """Indices of the coefficients in a box along one axis."""
    own = np.arange(start, start + extent.length)
    return np.concatenate([np.arange(extent.everywhere), own]) if extent.inside else own


def _met(extent: Extent, start: int) -> Index:
    """Indices of the coefficients in a box and of those that it meets along one axis; on a circle beyond its ends."""
    met = np.arange(start - extent.before, start + extent.length + extent.after)
    return np.concatenate([np.arange(extent.everywhere), met]) if extent.everywhere else met


def _cut(extent: Extent, thickness: int) -> Cut | None:
    """The middle of a box along one axis; None where nothing is left on one side. A circle is cut in two places."""
    length, before, after, circle, everywhere, _ = extent
    slabs = 2 if circle else 1
    left = (length - slabs * thickness) // 2
    right = length - slabs * thickness - left
    if min(left, right) < 1:
        return None
    if circle:
        ends = Extent(left, thickness, thickness, False), Extent(right, thickness, thickness, False)
        return Cut(
            ((0, thickness), (thickness + left, thickness)),
            ((thickness, ends[0]), (2 * thickness + left, ends[1])),
        )
    halves = (
        Extent(left, before, thickness, False, everywhere),
        Extent(right, thickness, after, False, everywhere),
    )
    return Cut(((left, thickness),), ((0, halves[0]), (left + thickness, halves[1])))


@functools.lru_cache(maxsize=4096)
def _best(box: Box, rule: Rule) -> tuple[int, Cut] | None:
    """The axis with the smallest separator, and the cut; None for a leaf."""
    cuts = [(axis, _cut(extent, rule.thickness[axis])) for axis, extent in enumerate(box)]
    shares = [
        ((box[axis].own - sum(part.own for _, part in cut.boxes)) / box[axis].own, -box[axis].own, axis, cut)
        for axis, cut in cuts
        if cut is not None
    ]
    if _size(box) <= rule.leaf or not shares:
        return None
    share, _, axis, cut = min(shares, key=lambda x: x[:3])
    return (axis, cut) if share < 0.5 else None


def _children(box: Box, rule: Rule) -> list[tuple[int, Box]]:
    """The boxes that a cut leaves: where they start along the axis of the cut, and their extents."""
    best = _best(box, rule)
    if best is None:
        return []
    axis, cut = best
    return [(start, (*box[:axis], part, *box[axis + 1 :])) for start, part in cut.boxes]


# --- the tree


class Run(NamedTuple):
    """Neighbours in a child's boundary that are neighbours in the front of its parent: starts and length."""

    own: int
    front: int
    length: int


@dataclass(eq=False)
class Node:
    """Pivots `first` to `stop` in the order of elimination, and their front."""

    first: int
    stop: int
    boundary: Index  # [b], numbers of the coefficients around the box, ascending
    children: tuple[int, ...]  # in the order in which they are added up
    runs: list[list[Run]] = field(default_factory=list)  # where the boundary of each child is in the front
    entries: slice = field(default_factory=lambda: slice(0))  # which of the tree the front takes

    @property
    def pivots(self) -> int:
        """Their number."""
        return self.stop - self.first

    @property
    def front(self) -> Index:
        """Numbers of all coefficients of the front, in its order."""
        return np.concatenate([np.arange(self.first, self.stop), self.boundary])


class Tree:
    """The order of elimination of the coefficients of a frame, and the fronts; children before parents.

    A box of `leaf` coefficients is not cut. `order` [P] is the flat index, in the order of the Space, of each
    coefficient in the order of elimination; `rounds` are tasks, each of some nodes: those of one round do not depend
    on each other. For each entry of the lower triangle, front by front, `source` is its flat index in the pair array,
    `target` that in the columns of the pivots of the front, [n, p] in Fortran order, and `column` and `row` are its
    place in the order of elimination. `repeats` says whether several pairs may be one entry, as around a short
    circle.
    """

    def __init__(self, frame: Frame, leaf: int = LEAF) -> None:
        self.frame, self._rule = frame, Rule(_thickness(frame), leaf)
        # The number of each coefficient in the order of elimination.
        self.number = np.full(frame.sizes, -1, dtype=np.int64)
        self.nodes: list[Node] = []
        around: list[list[Index]] = []  # of each node the indices of its box and what it meets, by axis
        self._add(_whole(frame), frame.everywhere, around)
        self.order = np.argsort(self.number, axis=None)
        for node, ranges in zip(self.nodes, around, strict=True):
            near = self.number[np.ix_(*ranges)].ravel()
            node.boundary = np.sort(near[near >= node.stop])
            node.runs = [_runs(node, self.nodes[child].boundary) for child in node.children]
        self.rounds = self._rounds()
        self.source, self.target, self.column, self.row = self._entries()
        circles = zip(frame.sizes, self._rule.thickness, frame.periodic, strict=True)
        self.repeats = any(circle and size <= 2 * thickness for size, thickness, circle in circles)

    @property
    def nbytes(self) -> int:
        """Bytes of the index arrays."""
        arrays = self.source, self.target, self.column, self.row, self.order, self.number
        return sum(array.nbytes for array in arrays)

    def _add(self, box: Box, starts: tuple[int, ...], around: list[list[Index]]) -> int:
        """Number the coefficients of a box, its separator last; the node."""
        best, children = _best(box, self._rule), []
        ranges = [_own(extent, start) for start, extent in zip(starts, box, strict=True)]
        axis, slabs = 0, [ranges[0]]
        if best is not None:
            axis, cut = best
            slabs = [np.arange(starts[axis] + first, starts[axis] + first + n) for first, n in cut.slabs]
            slabs.append(np.arange(box[axis].everywhere * box[axis].inside))
        for start, child in _children(box, self._rule):
            beginning = (*starts[:axis], starts[axis] + start, *starts[axis + 1 :])
            children.append(self._add(child, beginning, around))
        first = self.nodes[-1].stop if self.nodes else 0
        stop = first
        for slab in slabs:
            ranges[axis] = slab
            # Across a slab first: the part beside a smaller box is then one run. A box that is not cut keeps the order.
            axes = list(range(len(ranges)))
            if best is not None:
                axes.sort(key=lambda a: (a == axis, -len(ranges[a])))
            shape = [len(ranges[a]) for a in axes]
            numbers = np.arange(stop, stop + math.prod(shape)).reshape(shape)
            self.number[np.ix_(*ranges)] = numbers.transpose(np.argsort(axes))
            stop += numbers.size
        boxes = zip(starts, box, self.frame.sizes, strict=True)
        around.append([_met(extent, start) % size for start, extent, size in boxes])
        self.nodes.append(Node(first, stop, np.empty(0, dtype=np.int64), tuple(children)))
        return len(self.nodes) - 1

    def _rounds(self) -> list[list[list[int]]]:
        """The largest subtrees first, then what lies above them, level by level."""
        sizes: list[int] = []  # nodes of each subtree, which come one after the other
        for node in self.nodes:
            sizes.append(1 + sum(sizes[child] for child in node.children))
        roots, above = [(0, len(self.nodes) - 1)], []
        while len(roots) < 16:  # subtrees that are eliminated side by side, before what lies above them
            depth, largest = max(roots, key=lambda root: (sizes[root[1]], root[1]))
            if not self.nodes[largest].children:
                break
            roots.remove((depth, largest))
            above.append((depth, largest))
            roots += [(depth + 1, child) for child in self.nodes[largest].children]
        levels = sorted({depth for depth, _ in above}, reverse=True)
        return [
            [
                list(range(root - sizes[root] + 1, root + 1))
                for _, root in sorted(roots, key=lambda root: root[1])
            ],
            *([[node] for at, node in above if at == level] for level in levels),
        ]

    def _entries(self) -> tuple[Index, Index, Index, Index]:
        """`source`, `target`, `column` and `row`; each node is told its own."""
        source, column, row = (np.concatenate(x) for x in zip(*_pairs(self.frame, self.number), strict=True))
        owners = np.repeat(np.arange(len(self.nodes)), [node.pivots for node in self.nodes])
        # A matrix by rows sorts its entries in linear time, and keeps their order within a row.
        ones, places = np.ones(len(source), dtype=np.int8), (owners[column], np.arange(len(source)))
        grouped = sparse.csr_array((ones, places), (len(self.nodes), len(source)))
        order, place = grouped.indices, np.empty(self.number.size, dtype=np.int64)
        source, column, row = source[order], column[order], row[order]
        target = np.empty(len(source), dtype=np.int64)
        for node, start, stop in zip(self.nodes, grouped.indptr, grouped.indptr[1:], strict=False):
            node.entries = slice(int(start), int(stop))
            front = node.front
            place[front] = np.arange(len(front))
            own = column[start:stop].astype(np.int64) - node.first
            target[start:stop] = own * len(front) + place[row[start:stop]]
        return source, _small(target), column, row


_trees: weakref.WeakValueDictionary[tuple[object, ...], Tree] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def tree_of(frame: Frame, leaf: int = LEAF) -> Tree:
    """The tree of a frame, shared by all that use it at the time."""
    key = (frame.sizes, frame.offsets, frame.periodic, frame.everywhere, leaf)
    with _lock:
        tree = _trees.get(key)
        if tree is None:
            tree = _trees[key] = Tree(frame, leaf)
        return tree


def _runs(parent: Node, boundary: Index) -> list[Run]:
    """Where a child's boundary is in the front of its parent: runs that are pivots there, or boundary."""
    beyond = parent.pivots + np.searchsorted(parent.boundary, boundary)
    places = np.where(boundary < parent.stop, boundary - parent.first, beyond)
    new = np.flatnonzero((np.diff(places) != 1) | (places[1:] == parent.pivots)) + 1
    edges = [0, *new.tolist(), len(places)] if len(places) else []
    return [Run(a, int(places[a]), b - a) for a, b in itertools.pairwise(edges)]


def _pairs(frame: Frame, number: Index) -> Iterator[tuple[Index, Index, Index]]:
    """Entries of the lower triangle: flat index in a pair array [K.., O..]; column and row, as they are eliminated."""
    extents = (*frame.sizes, *frame.offsets)
    places = np.arange(math.prod(extents)).reshape(extents)
    for place, rows, columns in matrix_entries(frame, once=True):
        first, second = number[rows].ravel(), number[columns].ravel()
        yield (
            _small(places[place].ravel()),
            _small(np.minimum(first, second)),
            _small(np.maximum(first, second)),
        )


def _small(index: Index) -> Index:
    """Return an index as 32-bit integers, where these hold it."""
    return index.astype(np.int32) if index.max(initial=0) < 2**31 else index


def dissection_operations(frame: Frame, costs: CostModel) -> float:
    """Operations of the Cholesky factorisation by nested dissection, and those in the time of its many calls."""
    cost = cost_of(frame)
    return cost.operations + costs.front_flops * cost.fronts


def dissects(frame: Frame, costs: CostModel) -> bool:
    """Whether a system over a frame is factorised by nested dissection, not as a band."""
    return dissection_operations(frame, costs) < band_operations(narrowest(frame))

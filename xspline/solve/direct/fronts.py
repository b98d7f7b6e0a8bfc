"""Multifrontal Cholesky factorisation by nested dissection, with solves and the selected inverse.

There is a dense matrix, a front, for each node of the elimination tree; children are eliminated before parents.

With the front [[F_pp, ·], [F_bp, F_bb]] of a node, p its pivots and b its boundary, F_pp = L_pp L_ppᵀ and
L_bp = F_bp L_pp⁻ᵀ give columns of L, and F_bb − L_bp L_bpᵀ is what the parent adds to its front (Duff and Reid 1983).
The inverse comes down the same tree: with Z_bb from the parent and Y = L_bp L_pp⁻¹ it is Z_bp = −Z_bb Y and
Z_pp = L_pp⁻ᵀ L_pp⁻¹ − Yᵀ Z_bp, as for a band.

What is added in which order depends on the tree alone: the same bits on any number of threads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy.linalg import lapack

from xspline.solve.direct.band import Ordering
from xspline.solve.direct.cholesky import Array, Cholesky, Which, unit_scale
from xspline.solve.direct.dissection import Node, Run, Tree
from xspline.solve.direct.lapack import divide, downdate, potrf
from xspline.threads import run


class DissectionCholesky(Cholesky):
    """The factorisation of the matrix of a pair array [K.., O..]; right-hand sides are in the order of the Space.

    If `threaded`, subtrees are eliminated side by side.
    """

    def __init__(self, pairs: Array, tree: Tree, *, threaded: bool = True) -> None:
        count = len(tree.frame.sizes)
        self.tree, self.threaded = tree, threaded
        scale = unit_scale(pairs[(slice(None),) * count + (0,) * count].ravel()[tree.order])
        self.inverse_scale = 1.0 / scale
        panels: list[Array] = [np.empty((0, 0))] * len(tree.nodes)
        updates: dict[int, Array] = {}
        failed: list[int] = []  # numbers, from 1, of pivots that are not positive

        flat = pairs.ravel()

        def eliminate(i: int) -> None:
            node = tree.nodes[i]
            below = [updates.pop(child, None) for child in node.children]
            if node.first < min(failed, default=len(scale) + 1):
                panels[i], updates[i], info = self._eliminate(node, flat, below)
                if info:
                    failed.append(node.first + info)

        self._walk(eliminate, tree.rounds)
        diagonals = np.concatenate([np.diagonal(panel) for panel in panels])
        super().__init__(panels, scale, diagonals, min(failed, default=0))
        self.weakest = int(tree.order[self.weakest])

    @property
    def nbytes(self) -> int:
        """Bytes of L and of the tree."""
        return int(sum(panel.nbytes for panel in self.factor)) + self.tree.nbytes

    def solve(self, rhs: Array, which: Which | None = None) -> Array:
        x = np.take(rhs, self.tree.order, axis=0)
        x /= self.scale[:, None]
        for node, panel in zip(self.tree.nodes, self.factor, strict=True):
            if node.pivots:
                own = x[node.first : node.stop]
                divide(own.T, panel[: node.pivots], transposed=True)
                if len(node.boundary):
                    x[node.boundary] -= panel[node.pivots :] @ own
        return self._backward(x)

    def apply_inverse_sqrt(self, z: Array, which: Which | None = None) -> Array:
        return self._backward(np.take(z, self.tree.order, axis=0))

    def _backward(self, x: Array) -> Array:
        """S⁻¹ L⁻ᵀ x in the order of the Space; x [P, n], in the order of elimination, is overwritten."""
        for node, panel in zip(reversed(self.tree.nodes), reversed(self.factor), strict=True):
            if node.pivots:
                own = x[node.first : node.stop]
                if len(node.boundary):
                    own -= panel[node.pivots :].T @ x[node.boundary]
                divide(own.T, panel[: node.pivots], transposed=False)
        x /= self.scale[:, None]
        out = np.empty_like(x)
        out[self.tree.order] = x
        return out

    def inverse_pairs(self, ordering: Ordering) -> Array:
        """Pair form of A⁻¹, [K.., O.., 1], front by front from the root."""
        tree, frame = self.tree, self.tree.frame
        values = np.empty(len(tree.source))
        waiting = {len(tree.nodes) - 1: np.empty((0, 0))}

        def invert(i: int) -> None:
            node, beyond = tree.nodes[i], waiting.pop(i)
            columns = _inverse_columns(self.factor[i], beyond)
            own = columns.reshape(-1, order="F")[tree.target[node.entries]]
            values[node.entries] = self._scaled(node, own)
            for child, runs in zip(node.children, node.runs, strict=True):
                waiting[child] = _part(columns, beyond, runs)

        self._walk(invert, [[task[::-1] for task in tasks] for tasks in reversed(tree.rounds)])
        shape = (*frame.sizes, *frame.offsets)
        pairs: Array = (
            np.bincount(tree.source, values, math.prod(shape)).astype(np.float64, copy=False).reshape(shape)
        )
        diagonal = (slice(None),) * len(frame.sizes) + (0,) * len(frame.sizes)
        pairs *= 2.0  # an entry and its transpose
        pairs[diagonal] /= 2.0
        return pairs[..., None]

    def _walk(self, visit: Callable[[int], None], rounds: Iterable[Sequence[Sequence[int]]]) -> None:
        """Visit all nodes, tasks of one round side by side."""
        for tasks in rounds:

            def piece(first: int, last: int, tasks: Sequence[Sequence[int]] = tasks) -> None:
                for node in itertools.chain(*tasks[first:last]):
                    visit(node)

            run(piece, [[(i, i + 1) for i in range(len(tasks))]], split=self.threaded)

    def _eliminate(self, node: Node, flat: Array, below: Sequence[Array | None]) -> tuple[Array, Array, int]:
        """Columns of L of a node, what it leaves to its parent, and what LAPACK says."""
        size, pivots = node.pivots + len(node.boundary), node.pivots
        panel = np.zeros((size, pivots), order="F")
        update = np.zeros((size - pivots,) * 2, order="F")
        entries = self._scaled(node, flat[self.tree.source[node.entries]])
        flat_panel, target = panel.reshape(-1, order="F"), self.tree.target[node.entries]
        if self.tree.repeats:
            np.add.at(flat_panel, target, entries)
        else:
            flat_panel[target] = entries
        for runs, addition in zip(node.runs, below, strict=True):
            if addition is not None:
                _extend(panel, update, addition, runs)
        info = potrf(panel[:pivots]) if pivots else 0
        if pivots and size > pivots and not info:
            divide(panel[pivots:], panel[:pivots], transposed=True)
            downdate(update, panel[pivots:])
        return panel, update, info

    def _scaled(self, node: Node, entries: Array) -> Array:
        """Entries of a front, each times the inverse scales of its row and its column."""
        scale, tree = self.inverse_scale, self.tree
        return np.asarray(entries * scale[tree.column[node.entries]] * scale[tree.row[node.entries]])


def _extend(panel: Array, update: Array, addition: Array, runs: Sequence[Run]) -> None:
    """Add what a child leaves to the lower triangle of a front: to the columns of its pivots, or to those beyond."""
    pivots = panel.shape[1]
    for i, column in enumerate(runs):
        into, back = (panel, 0) if column.front < pivots else (update, pivots)
        columns = slice(column.front - back, column.front - back + column.length)
        for row in runs[i:]:
            rows = slice(row.front - back, row.front - back + row.length)
            into[rows, columns] += addition[
                row.own : row.own + row.length, column.own : column.own + column.length
            ]


def _inverse_columns(panel: Array, beyond: Array) -> Array:
    """The columns of the inverse at the pivots of a front, [n, p], from L there and the inverse at its boundary."""
    pivots = panel.shape[1]
    out, step = np.empty_like(panel), panel[pivots:].copy(order="F")
    if panel.size:
        if len(step):
            divide(step, panel[:pivots], transposed=False)
        root, _ = lapack.dtrtri(panel[:pivots], lower=1)
        beside = (step.T @ beyond).T  # Z_bb Y, in Fortran order
        block = root.T @ root
        del root
        if len(step):
            block += step.T @ beside
        # Only the symmetric part of a rounding error dies out; the rest would grow from front to front.
        out[:pivots] = block
        out[:pivots] += block.T
        out[:pivots] /= 2
        out[pivots:] = -beside
    return out


def _part(columns: Array, beyond: Array, runs: Sequence[Run]) -> Array:
    """The inverse at the boundary of a child, from that of its parent: the columns of its pivots, and the rest."""
    size, pivots = sum(r.length for r in runs), columns.shape[1]
    out = np.empty((size, size), order="F")
    for i, column in enumerate(runs):
        of, back = (columns, 0) if column.front < pivots else (beyond, pivots)
        across = slice(column.own, column.own + column.length)
        for row in runs[i:]:
            down = slice(row.own, row.own + row.length)
            block = of[
                row.front - back : row.front - back + row.length,
                column.front - back : column.front - back + column.length,
            ]
            out[down, across] = block
            if row is not column:
                out[across, down] = block.T
    return out

"""What a fit will cost, before any data move: from coordinates, shapes and chunks alone."""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from dask.utils import format_bytes

from xspline.execution.chunked import cuts_of, prepare, read_of, steps_of
from xspline.execution.cuts import Cuts
from xspline.execution.device import check_device, present, resources
from xspline.execution.footprint import Component, Sizes, gram_bytes, joined, most_holders, sums_bytes
from xspline.execution.source import Source, in_memory, is_dask, is_reader
from xspline.execution.transfer import RING
from xspline.solve.select import Choice, select
from xspline.spaces import Space
from xspline.sums import Factor, Gram

SLAB = 24 * 2**20
"""Bytes that the kernels use beside a block: slabs in float64 and tables of features."""

COMPILER = 240 * 2**20
"""Bytes that the first block adds once to each process: kernels compiled, libraries that read imported."""

WORKSPACE = 4
"""Copies of its own sums that a block holds while it contracts: total, slab, transposed, result."""

DECODE = 2
"""Copies of a block while it is read: as decoded, and as scaled and masked."""

MASKS = ("none", "static", "any")


@dataclass(frozen=True)
class Row:
    """What one structure of the mask would cost.

    Attributes
    ----------
    mask : "none" (a full grid), "static" (gaps that do not change along one group) or "any".
    gram_bytes : of the final G.
    statistics_bytes : of the final Sums.
    partial_bytes : of the Sums of one block, at most.
    moved_bytes : of all partial sums that one task hands to another.
    memory_bytes : projected peak per worker thread, above an idle worker whose kernels are compiled.
    solver, reason, solver_bytes : of the solve, which runs where `fit` was called.
    """

    mask: str
    gram_bytes: int
    statistics_bytes: int
    partial_bytes: int
    moved_bytes: int
    memory_bytes: int
    solver: str
    reason: str
    solver_bytes: int


@dataclass(frozen=True)
class Plan:
    """What a fit would cost; one row for each structure that the mask may turn out to have.

    Attributes
    ----------
    label : the variable.
    coefficients : number of them per coordinate.
    shape, dtype : of the data.
    batch : number of independent fits.
    holders : parts that the statistics will have.
    tier : "in memory", "Dask blocks" or "regions of a store".
    chunks : largest block, region read at once, or the whole.
    tasks : of accumulation and merging; those of a chunked input that are not taken in come on top.
    fan_in : partial sums merged by one task, level by level.
    compile_bytes : once per process, for the first block: compiled kernels, and the pinned buffers of a GPU.
    device : where blocks are processed.
    rows : costs by structure of the mask.
    code : the call that asks for these coefficients, if there is one.
    """

    label: str
    coefficients: dict[str, int]
    shape: tuple[int, ...]
    dtype: str
    batch: int
    holders: int
    tier: str
    chunks: tuple[int, ...]
    tasks: int
    fan_in: tuple[int, ...]
    compile_bytes: int
    device: str | None
    rows: tuple[Row, ...]
    code: str = ""

    @property
    def size(self) -> int:
        """Number of coefficients of each fit."""
        return math.prod(self.coefficients.values())

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def memory_bytes(self) -> int:
        """Projected peak per worker thread, whatever the mask."""
        return max(row.memory_bytes for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return asdict(self)

    def __repr__(self) -> str:
        body = _text_table([_HEAD, *map(_cells, self.rows)])
        return "\n".join(
            ["<xspline.Plan>", *(f"  {k:<13}{v}" for k, v in self._facts()), "", *body, "", _NOTE]
        )

    def _repr_html_(self) -> str:
        facts = "".join(_html_row((k, v), "td") for k, v in self._facts())
        rows = _html_row(_HEAD, "th") + "".join(_html_row(_cells(row), "td") for row in self.rows)
        return f"<b>xspline.Plan</b><table>{facts}</table><table>{rows}</table><p>{html.escape(_NOTE)}</p>"

    def _facts(self) -> list[tuple[str, str]]:
        each = " × ".join(f"{name} {n}" for name, n in self.coefficients.items())
        data = f"{self.label}: {_times(self.shape)} {self.dtype}, {format_bytes(self.nbytes)}"
        tasks = f"{self.tasks}" + (
            f", merged {' then '.join(map(str, self.fan_in))} at a time" if self.fan_in else ""
        )
        found = [
            ("data", data),
            ("read", f"{self.tier}, {_times(self.chunks)} at a time"),
            ("coefficients", f"{self.size} = {each}"),
            *([("code", self.code)] if self.code else []),
            ("fits", f"{self.batch} independent ones") if self.batch > 1 else ("fits", "1"),
            *([("parts", f"{self.holders}, one for each holder")] if self.holders > 1 else []),
            ("tasks", tasks),
            ("device", self.device or "where the data are"),
            ("compiling", f"{format_bytes(self.compile_bytes)} more, once per process"),
        ]
        return found


_HEAD = ("mask", "G", "statistics", "moved", "memory per thread", "solver", "solver memory")
_NOTE = (
    "Moved: sums that tasks hand to tasks. Memory: above an idle worker; the solve runs where fit was called."
)


def plan(
    source: Source,
    space: Space,
    *,
    device: str | None = None,
    solver: Callable[[Gram], Choice] | None = None,
) -> Plan:
    """Say what accumulating `source` and solving in `space` would cost. Computes and reads nothing.

    Parameters
    ----------
    source : the variable.
    space : where it is fitted.
    device : None or "cuda".
    solver : the solver for a Gram; None for that of least squares.
    """
    check_device(device)
    source = prepare(source)
    cuts = cuts_of(source)
    steps = steps_of(source, space, cuts)
    choose = solver or functools.partial(
        select, penalty=Gram(()), frame=space.frame, resources=resources(present(device))
    )
    return Plan(
        source.label,
        dict(zip(space.names, space.shape, strict=True)),
        source.shape,
        str(source.dtype),
        _batch(source),
        _holders(source),
        _tier(source),
        _read(source, cuts, device),
        _tasks(cuts, steps, source),
        tuple(math.prod(step) for step in steps),
        COMPILER + (0 if device is None else RING),
        device,
        tuple(_row(mask, source, space, cuts, steps, choose, device) for mask in MASKS),
    )


def _batch(source: Source) -> int:
    return math.prod(source.shape[a] for a in source.layout.batch_axes)


def _holders(source: Source) -> int:
    return 1 if source.owners is None else source.owners.count


def _tier(source: Source) -> str:
    if is_reader(source.values):
        return "regions of a store"
    return "Dask blocks" if is_dask(source.values) else "in memory"


def _read(source: Source, cuts: Cuts, device: str | None) -> tuple[int, ...]:
    """Return the largest piece that one task holds of the data."""
    return cuts.largest if in_memory(source.values) else read_of(source, cuts, device)


def _tasks(cuts: Cuts, steps: Sequence[Sequence[int]], source: Source) -> int:
    """Return the number of tasks: leaves, merges of the tree, batch blocks set side by side, hand-over."""
    if in_memory(source.values):
        return 0
    total, left = math.prod(cuts.blocks), cuts.blocks
    for step in steps:
        total += _merges(left, step)
        left = tuple(-(-n // f) for n, f in zip(left, step, strict=True))
    return total + (math.prod(left) > 1) + 1


def _merges(left: Sequence[int], step: Sequence[int]) -> int:
    """Return the tasks of one level; a box of one block is handed on as it is."""
    pairs = list(zip(left, step, strict=True))
    alone = math.prod(n if f == 1 else int(n % f == 1) for n, f in pairs)
    return math.prod(-(-n // f) for n, f in pairs) - alone


def _row(
    mask: str,
    source: Source,
    space: Space,
    cuts: Cuts,
    steps: Sequence[Sequence[int]],
    choose: Callable[[Gram], Choice],
    device: str | None,
) -> Row:
    parts, batch = components(mask, source, space), _batch(source)
    whole, holders = dict(enumerate(space.shape)), _holders(source)
    sizes = Sizes.of(source, space, cuts)
    partial, merging, moved = _merging(sizes, steps, parts)
    together = most_holders(source, cuts, [1] * len(cuts.blocks))  # of which one is contracted at a time
    solver, reason, solver_bytes = _solver(parts, space, batch, choose)
    return Row(
        mask,
        gram_bytes(whole, space, parts, batch),
        sums_bytes(whole, space, parts, batch) * holders,
        partial,
        moved if source.is_lazy else 0,
        _reading(source, cuts, device) + SLAB + partial + (WORKSPACE - 1) * partial // together + merging,
        solver,
        reason,
        solver_bytes,
    )


def _reading(source: Source, cuts: Cuts, device: str | None) -> int:
    """Return the bytes of one read while it is decoded: copies, a mask of bools, the weights beside it."""
    shape = _read(source, cuts, device)
    lazy = [(tuple(range(len(shape))), source.values), *source.weights]
    sizes = [(math.prod(shape[a] for a in axes), array) for axes, array in lazy]
    return (
        sum(n * (DECODE * np.dtype(a.dtype).itemsize + 1) for n, a in sizes if not in_memory(a)) + sizes[0][0]
    )


def _merging(
    sizes: Sizes, steps: Sequence[Sequence[int]], parts: Sequence[Component]
) -> tuple[int, int, int]:
    """Return the bytes of one block's Sums, the most that waits for merges and is made by them, all that moves."""
    blocks = sizes.cuts.blocks
    done, largest, total, waiting = (1,) * len(blocks), [], [], 0
    for step in [*steps, done]:
        largest.append(sizes.largest(done, parts))
        total.append(sizes.total(done, parts))
        # One level is merged while a full set waits on each level above; the result is made beside its parts.
        waiting += min(math.prod(step) * largest[-1], total[-1])
        done = tuple(d * f for d, f in zip(done, step, strict=True))
    one = all(n <= d for n, d in zip(blocks, done, strict=True))  # the last sums are all of them
    return largest[0], waiting + largest[-1], sum(total[:-1]) if one else sum(total)


def components(mask: str, source: Source, space: Space) -> list[Component]:
    """Return the factors that G falls into: coefficient axes, and whether they differ within the batch.

    A static mask leaves one group apart, that of the time coordinate or else of the first axis of the data. Groups
    and batch dimensions that a weight spans together are one factor.
    """
    layout = source.layout
    sites: list[set[Any]] = [
        set(group.data_axes) | {("c", k) for k in group.coefficient_axes} for group in layout.groups
    ]
    sites += [set(layout.batch_axes)] if layout.batch_axes else []
    links: list[set[Any]] = [set(axes) for axes, _ in source.weights]
    if mask == "any":
        return joined(space)
    if mask == "static":
        apart = _apart(sites, space)
        links.append(set().union(*(site for site in sites if site is not apart)))
    return _components(_linked(sites, links), layout.batch_axes)


def _apart(sites: Sequence[set[Any]], space: Space) -> set[Any]:
    """Return the site along which a static mask is constant."""
    times = {
        ("c", k)
        for k, (axis, _) in enumerate(space.axes.values())
        if axis.role == "time" or axis.kind == "time"
    }
    return next((s for s in sites if s & times), next((s for s in sites if 0 in s), sites[0]))


def _linked(sites: Iterable[set[Any]], links: Iterable[set[Any]]) -> list[set[Any]]:
    """Return the sites with those that a link touches made one."""
    out = list(sites)
    for link in links:
        touched = [site for site in out if site & link]
        if touched:
            out = [site for site in out if site not in touched] + [set().union(*touched)]
    return out


def _components(sites: Iterable[set[Any]], batch_axes: Sequence[int]) -> list[Component]:
    found = [
        (tuple(sorted(k[1] for k in s if isinstance(k, tuple))), bool(s & set(batch_axes))) for s in sites
    ]
    return sorted(component for component in found if component[0] or component[1])


def _solver(
    parts: Sequence[Component], space: Space, batch: int, choose: Callable[[Gram], Choice]
) -> tuple[str, str, int]:
    """Return (name, reason, bytes) of the solver for G of this structure, from arrays that hold no memory."""
    term = tuple(Hollow.of(axes, space, number + 2) for number, (axes, _) in enumerate(parts) if axes)
    members = batch if any(varies and axes for axes, varies in parts) else 1
    try:
        choice = choose(Gram((term,)))
    except ValueError as error:
        return "none", str(error), 0
    return choice.name, choice.reason, choice.nbytes * members


class Hollow(Factor):
    """A factor of the right shape whose numbers are all one number, and stay so."""

    @classmethod
    def of(cls, axes: tuple[int, ...], space: Space, key: int) -> Hollow:
        sizes, offsets = (tuple(t[k] for k in axes) for t in (space.shape, space.offsets))
        return cls(
            axes, tuple((0, n) for n in sizes), np.broadcast_to(np.float64(1), (*sizes, *offsets)), key
        )

    def full(self, frame: Any) -> Hollow:
        return self


def _cells(row: Row) -> tuple[str, ...]:
    each = (row.gram_bytes, row.statistics_bytes, row.moved_bytes, row.memory_bytes)
    sizes = map(format_bytes, each)
    return (row.mask, *sizes, row.solver, format_bytes(row.solver_bytes))


def _times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "one value"


def _text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _html_row(cells: Iterable[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

"""What a fit will cost, before any data move: from coordinates, shapes and chunks alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from dask.utils import format_bytes

from xspline import notebook
from xspline.execution.cuts import (
    Cuts,
    FactorShape,
    Sizes,
    cuts_of,
    gram_bytes,
    inseparable,
    prepare,
    read_of,
    steps_of,
    sums_bytes,
)
from xspline.execution.device.gpu import check_device, present, resources, to_host
from xspline.execution.limits import LIMITS, Limits
from xspline.execution.source import Source, in_memory, is_reader
from xspline.kernels import Block, Group, Layout, accumulate
from xspline.solve import Choice
from xspline.solve.costs import COSTS
from xspline.solve.select import candidates
from xspline.spaces import Space
from xspline.spaces.means import CellSpace
from xspline.spaces.space import only
from xspline.sums import Factor, Gram, join_overlapping
from xspline.sums.window import whole

MASKS = ("none", "static", "any")


@dataclass(frozen=True)
class MaskCosts:
    """What one structure of the mask would cost."""

    mask: str  # "none" (a full grid), "static" (gaps that do not change along one group) or "any"
    gram_bytes: int  # bytes of the final G
    statistics_bytes: int  # bytes of the final Sums
    moved_bytes: int  # bytes of all partial sums that one task hands to another
    memory_bytes: int  # projected peak of a worker thread, above an idle worker whose kernels are compiled
    solver: str  # which solver is chosen; it runs where `fit` was called
    reason: str  # why this solver is chosen
    solver_bytes: int  # memory of the solver
    # about how long one core takes for the sums, the choice of the penalty and the solve; reading and compiling
    # come on top
    seconds: float

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        sizes = (self.statistics_bytes, self.moved_bytes, self.memory_bytes)
        seconds = f"{self.seconds:.2g} s" if self.seconds < 100 else f"{self.seconds / 60:.0f} min"
        texts = (*map(format_bytes, sizes), self.solver, format_bytes(self.solver_bytes), seconds)
        return (_GAPS[self.mask], *texts)


@dataclass(frozen=True)
class Plan:
    """What a fit would cost; one row for each structure that the mask may turn out to have.

    Attributes
    ----------
    label : the variable.
    coefficients : number of coefficients per coordinate.
    shape, dtype : shape and type of the data.
    batch : number of independent fits.
    holders : number of parts that the statistics will have.
    tier : "in memory", "Dask blocks" or "regions of a store".
    chunks : shape of the largest block, of the region that is read at once, or of the whole.
    tasks : number of tasks that sum and merge; tasks of a chunked input that stay by themselves come on top.
    fan_in : number of partial sums that one task merges, level by level.
    compile_bytes : memory that compiled kernels take, once per process.
    device : where blocks are processed.
    rows : the costs for each structure that the mask may have.
    code : the call that asks for these coefficients, if there is one.
    fine_seconds, fine_bytes : the time of one core, and the memory where `fit` was called, that a fine field adds.
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
    rows: tuple[MaskCosts, ...]
    code: str = ""
    fine_seconds: float = 0.0
    fine_bytes: int = 0

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

    @property
    def seconds(self) -> float:
        """About how long the call takes one core, whatever the mask; reading and compiling are not in it."""
        return max(row.seconds for row in self.rows) + self.fine_seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return asdict(self)

    def __repr__(self) -> str:
        rows = [_HEAD, *(row.cells for row in self.rows)]
        widths = [max(len(cells[i]) for cells in rows) for i in range(len(_HEAD))]
        body = [
            "  " + "  ".join(cell.ljust(w) for cell, w in zip(cells, widths, strict=True)).rstrip()
            for cells in rows
        ]
        return "\n".join(
            ["<xspline.Plan>", *(f"  {k:<13}{v}" for k, v in self._facts()), "", *body, "", _NOTE]
        )

    def _repr_html_(self) -> str:
        costs = notebook.table((row.cells for row in self.rows), _HEAD) + notebook.note(_NOTE)
        contents = {"Data and tasks": notebook.table(self._facts()), "Costs": costs}
        return notebook.page("xspline.Plan", f"of {self.label}", contents, repr(self))

    def _facts(self) -> list[tuple[str, str]]:
        sizes = " × ".join(f"{name} {n}" for name, n in self.coefficients.items())
        merged = f", merged {' then '.join(map(str, self.fan_in))} at a time" if self.fan_in else ""
        fine = f"of neighbours: {self.fine_seconds:.2g} s and {format_bytes(self.fine_bytes)} more where fit was called"
        return [
            ("data", f"{self.label}: {_times(self.shape)} {self.dtype}, {format_bytes(self.nbytes)}"),
            ("read", f"{self.tier}, {_times(self.chunks)} values at a time"),
            ("coefficients", f"{self.size} = {sizes}"),
            *([("code", self.code)] if self.code else []),
            *([("fine field", fine)] if self.fine_bytes else []),
            ("fits", f"{self.batch} independent fits" if self.batch > 1 else "one"),
            *([("parts", f"{self.holders}, one for each holder")] if self.holders > 1 else []),
            ("tasks", f"{self.tasks} of Dask{merged}" if self.tasks else "none, computed here at once"),
            ("device", self.device or "where the data are"),
            ("first call", f"{format_bytes(self.compile_bytes)} more, to compile, once per process"),
        ]


def _times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "one value"


_GAPS = {"none": "none", "static": "static (land)", "any": "any (clouds)"}
_HEAD = ("missing data", "statistics", "sent", "memory a thread", "solver", "its memory", "time")
_NOTE = "\n".join(
    [
        "A row for each kind of gaps that data may have. Statistics: what is kept of the data; sent: between tasks.",
        "Memory: above an idle worker; the solve runs where fit was called.",
        "Time: of one core, to sum the values, choose the penalty and solve; reading and compiling come on top.",
    ]
)


def plan(
    source: Source,
    space: Space,
    *,
    device: str | None = None,
    solver: Callable[[Gram], Choice] | None = None,
    limits: Limits = LIMITS,
) -> Plan:
    """Say what accumulating `source` and solving in `space` would cost. Computes and reads nothing.

    The device is None or "cuda"; `solver` returns the solver for a Gram, None stands for that of least squares; and
    `limits` are sizes of regions, reads and merges.
    """
    check_device(device)
    source = prepare(source, limits)
    cuts = cuts_of(source, limits)
    steps = steps_of(source, space, cuts, limits)
    sizes = Sizes(source, space, cuts, limits)
    own = resources(present(device))
    choose = solver or (lambda gram: candidates(gram, Gram(()), space.frame, resources=own)[0])
    # The largest box of the data that one task holds.
    read = cuts.largest if in_memory(source.values) else read_of(source, cuts, device, limits)
    lazy = "regions of a store" if is_reader(source.values) else "Dask blocks"
    return Plan(
        source.label,
        dict(zip(space.names, space.shape, strict=True)),
        source.shape,
        str(source.dtype),
        math.prod(source.shape[a] for a in source.layout.batch_axes),
        1 if source.holders is None else source.holders.count,
        "in memory" if in_memory(source.values) else lazy,
        read,
        0 if in_memory(source.values) else _tasks(cuts, steps),
        tuple(math.prod(step) for step in steps),
        limits.compiler_bytes,
        device,
        tuple(_row(mask, sizes, steps, read, choose) for mask in MASKS),
    )


def _tasks(cuts: Cuts, steps: Sequence[Sequence[int]]) -> int:
    """Return the number of tasks: leaves, merges of the tree, batch blocks set side by side, hand-over."""
    total, left = math.prod(cuts.blocks), cuts.blocks
    for step in steps:
        pairs = list(zip(left, step, strict=True))
        alone = math.prod(n if f == 1 else int(n % f == 1) for n, f in pairs)  # handed on as they are
        left = tuple(-(-n // f) for n, f in pairs)
        total += math.prod(left) - alone
    return total + (math.prod(left) > 1) + 1


def _row(
    mask: str,
    sizes: Sizes,
    steps: Sequence[Sequence[int]],
    read: Sequence[int],
    choose: Callable[[Gram], Choice],
) -> MaskCosts:
    """Return the costs with a mask of one structure, of data of which one task holds the shape `read`."""
    source, space, limits = sizes.source, sizes.space, sizes.limits
    structure = components(mask, source, space)
    batch = math.prod(source.shape[a] for a in source.layout.batch_axes)
    holders = 1 if source.holders is None else source.holders.count
    lengths = dict(enumerate(space.shape))
    # For each level of the tree the bytes of its largest sum, and of all; then the most that waits for merges.
    done, largest, total, waiting = (1,) * len(read), [], [], 0
    for step in [*steps, done]:
        largest.append(sizes.largest(done, structure))
        total.append(sizes.total(done, structure))
        # One level is merged while a full set waits on each level above; the result stands beside its parts.
        waiting += min(math.prod(step) * largest[-1], total[-1])
        done = tuple(d * f for d, f in zip(done, step, strict=True))
    # The last sums are all of them.
    single = all(n <= d for n, d in zip(sizes.cuts.blocks, done, strict=True))
    moved, partial = sum(total[:-1]) if single else sum(total), largest[0]
    # Of the sums of several holders one is contracted at a time.
    workspace = (limits.workspace_copies - 1) * partial // sizes.most_holders([1] * len(read))
    # A read while it is decoded: copies, a mask of bools, the weights beside it.
    arrays = [(tuple(range(len(read))), source.values), *source.weights]
    reading = math.prod(read) + sum(
        math.prod(read[a] for a in axes) * (limits.decode_copies * np.dtype(array.dtype).itemsize + 1)
        for axes, array in arrays
        if not in_memory(array)
    )
    systems = batch if any(varies and axes for axes, varies in structure) else 1
    # Seconds that one core takes for the sums of a source in memory, about.
    rows = sum(
        math.prod(source.shape[a] for a in g.data_axes) * len(g.coefficient_axes)
        for g in source.layout.groups
    )
    summing = math.prod(source.shape) / COSTS.values_per_second + rows / COSTS.rows_per_second
    try:
        choice = choose(_expected_gram((axes for axes, _ in structure if axes), source, space))
        solver, reason = choice.name, choice.reason
        solver_bytes = choice.nbytes * systems + 8 * COSTS.result_vectors * space.size * batch
        seconds = summing + choice.seconds(space.frame, systems, COSTS)
    except ValueError as error:
        solver, reason, solver_bytes, seconds = "none", str(error), 0, math.nan
    return MaskCosts(
        mask,
        gram_bytes(lengths, space, structure, batch),
        sums_bytes(lengths, space, structure, batch) * holders,
        moved if source.is_lazy else 0,
        reading + limits.kernel_bytes + partial + workspace + waiting + largest[-1],
        solver,
        reason,
        solver_bytes,
        seconds,
    )


def components(mask: str, source: Source, space: Space) -> list[FactorShape]:
    """Return the factors that G falls into: coefficient axes, and whether they differ within the batch.

    A static mask leaves one group apart, that of the time coordinate or else of the first axis of the data. Groups
    and batch dimensions that a weight spans together are one factor.
    """
    if mask == "any":
        return inseparable(space)
    layout = source.layout
    # Sets of data axes (numbers) and coefficient axes ("c", number) that are one factor.
    sets: list[set[Any]] = [
        set(group.data_axes) | {("c", k) for k in group.coefficient_axes} for group in layout.groups
    ]
    sets += [set(layout.batch_axes)] if layout.batch_axes else []
    links: list[set[Any]] = [set(axes) for axes, _ in source.weights]
    if mask == "static":
        times = {
            ("c", k)
            for k, (axis, _) in enumerate(space.axes.values())
            if axis.role == "time" or axis.kind == "time"
        }
        apart = next((s for s in sets if s & times), next((s for s in sets if 0 in s), sets[0]))
        links.append(set().union(*(s for s in sets if s is not apart)))
    factors = [
        (tuple(sorted(k[1] for k in s if isinstance(k, tuple))), bool(s & set(layout.batch_axes)))
        for s in join_overlapping([*sets, *links])
    ]
    return sorted(component for component in factors if component[0] or component[1])


def _expected_gram(groups: Iterable[tuple[int, ...]], source: Source, space: Space) -> Gram:
    """Return G as far as labels tell: a factor over each group of coefficient axes.

    A factor of one coordinate is that of its labels, each observed once. Those of several coordinates have NaN for
    numbers, in no memory: the choice of a solver needs their shapes alone.
    """
    factors: list[Factor] = []
    for key, axes in enumerate(groups, 2):
        if len(axes) == 1:
            factors.append(replace(_factor_of_labels(source, space, axes[0]), axes=axes))
            continue
        lengths, offsets = (tuple(t[k] for k in axes) for t in (space.shape, space.offsets))
        unknown = np.broadcast_to(np.float64(math.nan), (*lengths, *offsets))
        factors.append(Factor(axes, whole(lengths), unknown, key))
    return Gram((tuple(factors),))


def _factor_of_labels(source: Source, space: Space, axis: int) -> Factor:
    """Return the factor of one coordinate with one observation at each label; at even labels where they are lazy."""
    name, labels = space.names[axis], source.coordinates[axis]
    own = only(space, [name])
    if isinstance(space, CellSpace) and name in space.near:
        near = {name: space.near[name]}
        own = CellSpace(own.coupling(near), near)
    if not in_memory(labels):
        labels = np.linspace(*space.basis(name).integral_range(space.axis(name)), max(labels.shape))
    labels = to_host(labels).ravel()
    block = Block(np.ones(labels.size), (labels,))
    (factor,) = accumulate(block, Layout((Group((0,), (0,)),)), own).gram.terms[0]
    return factor.full(own.frame)

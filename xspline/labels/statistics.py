"""Statistics: everything a fit needs to know of the data, kept as the parts that its holders contributed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from xspline import execution
from xspline.labels import writing
from xspline.labels.errors import check_tally, naming, unknown_name
from xspline.spaces import Space
from xspline.sums import Sums

if TYPE_CHECKING:
    from xspline.labels.field import Field


@dataclass(frozen=True, eq=False)
class Variable:
    """What the labels say of one fitted variable.

    Attributes
    ----------
    name, units, long_name, history : of the data.
    dims : dimensions of the data, in stored order.
    spans : for each fitted coordinate, its own dimensions.
    batch : coordinates over batch dimensions, as a Dataset without variables.
    batch_dims, batch_shape : batch dimensions and their lengths, in the order of the last axes of the sums.
    """

    name: str
    units: str
    long_name: str
    history: str
    dims: tuple[Hashable, ...]
    spans: tuple[tuple[Hashable, ...], ...]
    batch: xr.Dataset
    batch_dims: tuple[Hashable, ...]
    batch_shape: tuple[int, ...]

    def check_matches(self, other: Variable) -> None:
        """Raise ValueError unless units and batch labels agree."""
        if self.units != other.units:
            raise ValueError(
                f"{self.name!r} has units {self.units!r} in one part and {other.units!r} in the other; "
                "convert one of them"
            )
        if (self.batch_dims, self.batch_shape) != (other.batch_dims, other.batch_shape):
            mine, yours = (dict(zip(v.batch_dims, v.batch_shape, strict=True)) for v in (self, other))
            raise ValueError(
                f"{self.name!r} has batch dimensions {mine} in one part and {yours} in the other; "
                "select the same members first"
            )
        for dim in self.batch_dims:
            a, b = (v.batch.coords[dim].values if dim in v.batch.coords else None for v in (self, other))
            if (a is None) != (b is None) or (a is not None and b is not None and not np.array_equal(a, b)):
                raise ValueError(
                    f"batch dimension {dim!r} of {self.name!r} has labels {_brief(a)} in one part and {_brief(b)} "
                    "in the other; select the same members first"
                )


def _brief(labels: np.ndarray | None) -> str:
    if labels is None:
        return "none"
    ends = f"{labels[0]}…{labels[-1]}" if len(labels) else "empty"
    return f"{ends} ({len(labels)})"


@dataclass(frozen=True, eq=False)
class Part:
    """One holder's contribution: a Sums for each variable, named by the digest of contents and holder."""

    digest: str
    holder: str
    sums: Mapping[str, Sums]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, sums: Mapping[str, Sums], holder: str | None, provenance: Mapping[str, Any]) -> Part:
        """Make a part, computing its digest."""
        name = "" if holder is None else str(holder)
        return cls(digest_of(name, sums), name, dict(sums), dict(provenance))

    def describe(self) -> str:
        """Return ``'west' (3f2a…)`` for messages."""
        return f"{self.holder or 'unnamed'!r} ({self.digest[:12]})"


def digest_of(holder: str, sums: Mapping[str, Sums]) -> str:
    """Return the SHA-256 of a holder's name and of the contents of its sums."""
    import hashlib

    text = "\n".join([holder, *(f"{name} {s.digest()}" for name, s in sorted(sums.items()))])
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Statistics:
    """The sufficient statistics of a fit in one Space (paper, equation 5 and section 2.4), as a list of parts.

    ``a + b`` concatenates parts and ``a - b`` takes them away again, so that ``(a + b) - b`` is ``a`` bit for bit;
    totals are folded in the order of the parts' digests, so that ``a + b`` and ``b + a`` are one.

    Attributes
    ----------
    space : the Space that every part was computed in.
    parts : the contributions, in the order they were added.
    variables : labels of each variable.
    is_dataset : whether outputs are Datasets.
    collapsed : whether parts were melted together, so that single ones can no longer be removed.
    fitted : labels of the fitted coordinates, if all parts share one set of them.
    chunks : chunks of the data that these labels come from, if they were lazy.
    pending : the data behind sums that are not computed yet, to name places in errors.
    """

    space: Space
    parts: tuple[Part, ...]
    variables: Mapping[str, Variable]
    is_dataset: bool = False
    collapsed: bool = False
    fitted: Mapping[str, xr.DataArray] | None = None
    chunks: Mapping[Hashable, Any] | None = None
    pending: Mapping[str, xr.DataArray] = field(default_factory=dict)

    @property
    def is_lazy(self) -> bool:
        """Whether the sums are still to be computed."""
        return any(not isinstance(s, Sums) for part in self.parts for s in part.sums.values())

    @property
    def holders(self) -> tuple[str, ...]:
        """Names of the holders, in the order they were added."""
        return tuple(part.holder for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all sums."""
        return sum(s.nbytes for part in self.parts for s in part.sums.values())

    @property
    def count(self) -> int:
        """Observations with positive weight, over all parts and variables."""
        return sum(int(s.count.sum()) for part in self.parts for s in part.sums.values())

    @property
    def outside(self) -> int:
        """Observations left out because they lie outside the domain, over all parts and variables."""
        return sum(s.tally.outside for part in self.parts for s in part.sums.values())

    def require_inside(self) -> Statistics:
        """Return these statistics, or raise ValueError if any observation lay outside the domain."""
        if self.outside:
            raise ValueError(
                f"{self.outside} observations lie outside the domain and were left out; widen it or select the data "
                f"first. The space is {self.space.code()}"
            )
        return self

    @functools.cached_property
    def _total_cache(self) -> dict[str, Sums]:
        return {}

    def total(self, name: str) -> Sums:
        """Return the sum over parts of one variable, folded in the order of their digests."""
        self._check_computed()
        if name not in self._total_cache:
            ordered = sorted(self.parts, key=lambda part: part.digest)
            self._total_cache[name] = Sums.merge([part.sums[name] for part in ordered], self.space.frame)
        return self._total_cache[name]

    def _check_computed(self) -> None:
        if self.is_lazy:
            raise ValueError("these statistics are still lazy (compute=False); call .compute() first")

    def compute(self) -> Statistics:
        """Return the same with every lazy sum computed, all in one pass."""
        if not self.is_lazy:
            return self
        names = list(self.variables)
        with naming(self.pending):
            computed = iter(execution.compute([part.sums[name] for part in self.parts for name in names]))
        sums = [{name: next(computed) for name in names} for _ in self.parts]
        for one in sums:
            for name, s in one.items():
                check_tally(s.tally, self.pending[name], name)
        parts = (Part.of(s, p.holder, p.provenance) for s, p in zip(sums, self.parts, strict=True))
        return replace(self, parts=tuple(parts), pending={})

    def persist(self) -> Statistics:
        """Return the same with lazy sums being computed on the workers and kept there."""
        kept = iter(execution.persist([s for part in self.parts for s in part.sums.values()]))
        parts = (replace(part, sums={name: next(kept) for name in part.sums}) for part in self.parts)
        return replace(self, parts=tuple(parts))

    def __add__(self, other: Any) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        return merge([self, other])

    def __radd__(self, other: Any) -> Statistics:
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: Any) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        _check_compatible(self, other)
        if self.collapsed:
            raise ValueError(
                "these statistics were collapsed into one part, so no holder can be taken out again; "
                "keep the parts and subtract there"
            )
        mine = {part.digest for part in self.parts}
        if strangers := [part.describe() for part in other.parts if part.digest not in mine]:
            held = ", ".join(part.describe() for part in self.parts) or "none"
            raise ValueError(f"part {', '.join(strangers)} was never added here; the parts are {held}")
        gone = {part.digest for part in other.parts}
        return replace(self, parts=tuple(part for part in self.parts if part.digest not in gone))

    def only(self, *holders: str) -> Statistics:
        """Return the parts of some holders, by their names; :attr:`holders` lists them.

        Raises
        ------
        ValueError
            A holder is unknown, or the parts were collapsed into one.
        """
        return self._kept(holders, lambda part: part.holder in holders)

    def without(self, *holders: str) -> Statistics:
        """Return the parts of all holders but some, by their names; raises as :meth:`only` does."""
        return self._kept(holders, lambda part: part.holder not in holders)

    def _kept(self, named: tuple[str, ...], keep: Callable[[Part], bool]) -> Statistics:
        if self.collapsed:
            raise ValueError(
                f"these statistics were collapsed into one part, so the holders {named} cannot be told apart; keep "
                "the parts and select there"
            )
        for name in named:
            if name not in self.holders:
                raise unknown_name(name, "holder", self.holders)
        return replace(self, parts=tuple(part for part in self.parts if keep(part)))

    def collapse(self, holder: str | None = None) -> Statistics:
        """Return the total as one part: smaller, but no holder can be removed any more; `collapsed` records it."""
        sums = {name: self.total(name) for name in self.variables}
        one = Part.of(
            sums, holder or "+".join(sorted(self.holders)), {"collapsed from": [p.digest for p in self.parts]}
        )
        return replace(self, parts=(one,), collapsed=True)

    def __getitem__(self, name: str) -> Statistics:
        """Return the statistics of one variable of a Dataset."""
        if name not in self.variables:
            raise unknown_name(name, "fitted variable", self.variables)
        parts = tuple(Part.of({name: p.sums[name]}, p.holder, p.provenance) for p in self.parts)
        return replace(self, parts=parts, variables={name: self.variables[name]}, is_dataset=False)

    def solve(self, penalty: Any = None, *, solver: str | None = None, device: str | None = None) -> Field:
        """Solve (G + Λ) c = h for the coefficients (paper, equation 8).

        Parameters
        ----------
        penalty
            A number (ridge λ‖c‖²), ``xs.Ridge``, ``xs.Roughness`` or a sum of them, or "reml", "gcv" or "holders";
            see :func:`xspline.fit`.
        solver
            Name of a solver; None chooses one by structure.
        device
            "cuda" runs iterations, and dense systems that are worth the way, on a GPU; all others, which are small or
            have structure, stay on the host.

        Returns
        -------
        Field

        Raises
        ------
        SingularSystemError
            Nothing is determined; the message names the empty cells.
        """
        from xspline.labels.field import Field

        return Field.from_statistics(self, penalty, solver, device)

    def to_dataset(self) -> xr.Dataset:
        """Return everything as plain arrays and one JSON attribute (the form of the files)."""
        from xspline.labels import store

        return store.statistics_to_dataset(self)

    def to_zarr(self, path: Any, **kwargs: Any) -> None:
        """Write to a Zarr store; `kwargs` as for :meth:`xarray.Dataset.to_zarr`."""
        writing.write_zarr(self.to_dataset(), path, **kwargs)

    def to_netcdf(self, path: Any, **kwargs: Any) -> None:
        """Write to a NetCDF file; `kwargs` as for :meth:`xarray.Dataset.to_netcdf`."""
        writing.write_netcdf(self.to_dataset(), path, **kwargs)

    def __repr__(self) -> str:
        names, shape = ", ".join(self.variables), " x ".join(map(str, self.space.shape))
        head = f"<xspline.Statistics of {names} in {shape} = {self.space.size} coefficients"
        if self.is_lazy:
            return f"{head}, not computed yet>"
        outside = f" ({self.outside} more outside the domain)" if self.outside else ""
        lines = [f"{head}, {self.count} observations{outside}, {self.nbytes / 1e6:.3g} MB>"]
        for part in self.parts:
            counts = sum(int(s.count.sum()) for s in part.sums.values())
            lines.append(
                f"    {part.holder or '(unnamed)'}: {counts} observations, digest {part.digest[:12]}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from xspline.labels.html import preformatted

        return preformatted(repr(self))


def _check_compatible(a: Statistics, b: Statistics) -> None:
    if a.space != b.space:
        raise ValueError(f"the two statistics live in different spaces: {a.space.difference(b.space)}")
    if list(a.variables) != list(b.variables):
        raise ValueError(
            f"the two statistics hold different variables: {list(a.variables)} and {list(b.variables)}"
        )
    for name, variable in a.variables.items():
        variable.check_matches(b.variables[name])
    a._check_computed()
    b._check_computed()


def merge(statistics: Iterable[Statistics]) -> Statistics:
    """Merge the statistics of several holders: exactly those of all their data together (paper, equation 7).

    Parameters
    ----------
    statistics
        At least one; all in one Space, with equal variables, units and batch labels.

    Raises
    ------
    ValueError
        They do not fit together (both sides are shown), or the same part is there twice.
    """
    every = list(statistics)
    if not every:
        raise ValueError("merge needs at least one Statistics; the list is empty")
    first = every[0]
    for other in every[1:]:
        _check_compatible(first, other)
    parts = [part for one in every for part in one.parts]
    seen: set[str] = set()
    for part in parts:
        if part.digest in seen:
            raise ValueError(
                f"part {part.describe()} is there twice; each holder counts once. If two holders do have equal "
                f"records, give them names: statistics(space, holder=...)"
            )
        seen.add(part.digest)
    alone = len(every) == 1
    return replace(
        first,
        parts=tuple(parts),
        collapsed=any(one.collapsed for one in every),
        fitted=first.fitted if alone else None,
        chunks=first.chunks if alone else None,
    )

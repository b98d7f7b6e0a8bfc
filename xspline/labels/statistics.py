"""Statistics: all that a fit needs to know of the data, kept as the parts that holders contributed; their files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import xarray as xr

from xspline import execution, notebook
from xspline.arguments import NotAnArray, checked
from xspline.kernels.series.lags import begins, closed
from xspline.labels.errors import read_errors_name_labels, unknown_name
from xspline.labels.read.coordinates import warn_left_out
from xspline.labels.read.observations import Variable
from xspline.labels.read.parts import Merged, Part, checked_part
from xspline.labels.report.disclosure import Disclosure, disclosure
from xspline.labels.storage import files
from xspline.solve.errors import warn
from xspline.spaces import Space
from xspline.spaces.conversions import are_one
from xspline.sums import Sums, Tally
from xspline.sums.extension import moved, moves_between
from xspline.sums.memory import Series

if TYPE_CHECKING:
    from xspline.labels.field import Field

#: What came in, a DataArray or a Dataset, and so what fields hand back.
Data = TypeVar("Data", bound=xr.DataArray | xr.Dataset)


@dataclass(frozen=True, eq=False)
class Statistics(NotAnArray, files.Stored, Generic[Data]):
    """The sufficient statistics of a fit in one Space (paper, equation 5 and section 2.4), as a list of parts.

    ``a + b`` concatenates parts and ``a - b`` takes them away again, so that ``(a + b) - b`` is ``a`` bit for bit;
    totals are folded in the order of the parts' digests, so that ``a + b`` and ``b + a`` are one.

    Attributes
    ----------
    space : the Space that every part was computed in.
    parts : the contributions, in the order they were added, with ``holder``, ``digest``, ``count`` and ``provenance``.
    variables : labels of each variable.
    """

    space: Space
    parts: tuple[Part, ...]
    variables: Mapping[str, Variable]
    # Whether outputs are Datasets.
    _is_dataset: bool = False
    # Whether parts were added up to one, so that single ones can no longer be removed.
    _collapsed: bool = False
    # Labels of the fitted coordinates, if all parts share one set of them, and the chunks that these had.
    _fitted: Mapping[str, xr.DataArray] | None = None
    _chunks: Mapping[Hashable, Any] | None = None
    # The data behind sums that are not computed yet, to name places in errors.
    _pending: Mapping[str, xr.DataArray] = field(default_factory=dict)
    # Sums that were asked for: totals by the variable and whether the edges of parts are joined, and `_cumulated`.
    _totals: dict[tuple[str, bool], Sums] = field(default_factory=dict, init=False)
    _cumulated_sums: dict[str, list[Sums]] = field(default_factory=dict, init=False)

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
        self._check_computed()
        return sum(s.nbytes for part in self.parts for s in part.sums.values())

    @property
    def count(self) -> int:
        """Observations with positive weight, over all parts and variables."""
        self._check_computed()
        return sum(part.count for part in self.parts)

    @property
    def outside(self) -> int:
        """Observations left out because they lie outside the domain, over all parts and variables."""
        self._check_computed()
        return sum(s.tally.outside for part in self.parts for s in part.sums.values())

    def require_inside(self) -> Statistics[Data]:
        """Return these statistics, or raise ValueError if any observation lay outside the domain."""
        if self.outside:
            raise ValueError(
                f"{self.outside} observations lie outside the domain and were left out; widen it or select the data "
                f"first. The space is {self.space.code()}"
            )
        return self

    def total(self, name: str) -> Sums:
        """Return the sum over parts of one variable, folded in the order of their digests."""
        self._check_computed()
        if not self.parts:
            raise ValueError(
                "no part is left in these statistics: all of them were taken out again, so there is nothing to fit; "
                "keep one, or merge statistics of some data first"
            )
        if (name, False) not in self._totals:
            several = len(self.parts) > 1
            ordered = sorted(self.parts, key=lambda part: part.digest) if several else self.parts
            parts = [part.sums[name] for part in ordered]
            self._totals[name, False] = Sums.merge(parts, self.space.frame) if several else parts[0]
        return self._totals[name, False]

    def _complete(self, name: str) -> Sums:
        """Return the total of one variable with the edges of all parts joined, where errors remember."""
        if (name, True) not in self._totals:
            many = len(self.periods) > 1
            total = self._cumulated(name)[-1] if many else closed(self.total(name), self.space)
            self._totals[name, True] = total
        return self._totals[name, True]

    @property
    def _decides(self) -> bool:
        """Whether error bars follow from what residuals show, as ``errors="auto"`` asks for."""
        return bool(self.parts) and all(part.provenance.get("errors") == "auto" for part in self.parts)

    def _cumulated(self, name: str) -> list[Sums]:
        """Return the sums of the first part, of the first two, and so on; parts of one period, by "auto", are one."""
        self._check_several()
        if name not in self._cumulated_sums:
            groups: dict[Any, list[Sums]] = {}
            for part in self.parts:
                key = tuple(part.provenance["period"]) if self._is_in_periods else part.digest
                groups.setdefault(key, []).append(part.sums[name])
            in_order = sorted(groups, key=lambda key: min(map(begins, groups[key])))
            keys, sums = self.periods or in_order, list[Sums]()
            for key in keys:
                merged = Sums.merge([*sums[-1:], *groups[key]], self.space.frame)
                sums.append(closed(merged, self.space, is_last=key == keys[-1]))
            self._cumulated_sums[name] = sums
        return self._cumulated_sums[name]

    @property
    def periods(self) -> list[tuple[float, float, str, str]]:
        """The periods that nobody named which parts are: the first and the last number and label of each, in order."""
        if not self._is_in_periods:
            return []
        return sorted({tuple(part.provenance["period"]) for part in self.parts})

    @property
    def _is_in_periods(self) -> bool:
        """Whether parts are periods that nobody named."""
        return all("period" in part.provenance for part in self.parts)

    @property
    def _kinds(self) -> list[tuple[str, ...]]:
        """Along which coordinates observations are means over cells, for each kind of them; none is points."""
        own = (part.provenance.get("kinds", [part.provenance.get("cells", [])]) for part in self.parts)
        return sorted({tuple(kind) for kinds in own for kind in kinds})

    @property
    def _series(self) -> Series | None:
        """Along what errors remember, which is the same for all parts; None for independent ones."""
        sums = (own for part in self.parts for own in part.sums.values() if isinstance(own, Sums))
        return next((own.memory.series for own in sums if own.memory is not None), None)

    @property
    def _errors(self) -> str:
        """What ``errors=`` said, as Python with ``import xspline as xs``; empty for independent ones."""
        series = self._series
        return '"auto"' if self._decides else "" if series is None else f"xs.{series.text}"

    def _check_several(self) -> None:
        """Raise ValueError unless there are two parts, of which one can be left out."""
        if len(self.parts) < 2:
            held = ", ".join(part.describe() for part in self.parts) or "none"
            why = ", into which others were collapsed" if self._collapsed else ""
            raise ValueError(
                f"there is nothing to leave out: the statistics have {len(self.parts)} part ({held}{why}); label the "
                'observations with holders, for example fit(..., holder="time.year"), or merge those of several'
            )

    def _check_independent(self, what: str) -> None:
        """Raise ValueError where errors remember, which `what` does not know of."""
        if self._series is not None:
            raise ValueError(
                f"{what} takes errors as independent, and these statistics have errors=AR1(...); compute them without "
                "errors=, or solve them with Roughness or 'reml'"
            )

    def _check_computed(self) -> None:
        if self.is_lazy:
            raise ValueError("these statistics are still lazy (compute=False); call .compute() first")

    def compute(self) -> Statistics[Data]:
        """Return the same with every lazy sum computed, all in one pass."""
        if not self.is_lazy:
            return self
        names = list(self.variables)
        with read_errors_name_labels(self._pending):
            computed = iter(execution.compute([part.sums[name] for part in self.parts for name in names]))
        parts = []
        for part in self.parts:
            sums = {name: next(computed) for name in names}
            parts.append(checked_part(self._pending, sums, part.holder, part.provenance))
        computed_parts = replace(self, parts=tuple(parts), _pending={})
        computed_parts.warn_left_out()
        return computed_parts

    def warn_left_out(self) -> None:
        """Warn of observations that were left out without anyone having said so."""
        parts = {name: [part.sums[name].tally for part in self.parts] for name in self.variables}
        warn_left_out({n: Tally.merge(own) for n, own in parts.items()}, self.space, self._fitted)

    def persist(self) -> Statistics[Data]:
        """Return the same with lazy sums being computed on the workers and kept there."""
        kept = iter(execution.persist([s for part in self.parts for s in part.sums.values()]))
        parts = (replace(part, sums={name: next(kept) for name in part.sums}) for part in self.parts)
        return replace(self, parts=tuple(parts))

    def __add__(self, other: Any) -> Statistics[Data]:
        if not isinstance(other, Statistics):
            raise self.unlike(other)
        return merge([self, other])

    def __radd__(self, other: Any) -> Statistics[Data]:
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: Any) -> Statistics[Data]:
        if not isinstance(other, Statistics):
            raise self.unlike(other)
        _check_compatible(self, other)
        if self._collapsed:
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

    def only(self, *holders: str) -> Statistics[Data]:
        """Return the parts of some holders, by their names; :attr:`holders` lists them.

        Raises
        ------
        ValueError
            A holder is unknown, or the parts were collapsed into one.
        """
        return self._kept(holders, lambda part: part.holder in holders)

    def without(self, *holders: str) -> Statistics[Data]:
        """Return the parts of all holders but some, by their names; raises as :meth:`only` does."""
        return self._kept(holders, lambda part: part.holder not in holders)

    def _kept(self, named: tuple[str, ...], keep: Callable[[Part], bool]) -> Statistics[Data]:
        if self._collapsed:
            raise ValueError(
                f"these statistics were collapsed into one part, so the holders {named} cannot be told apart; keep "
                "the parts and select there"
            )
        for name in named:
            if not (isinstance(name, str) and name in self.holders):
                raise unknown_name(name, "holder", self.holders)
        return replace(self, parts=tuple(part for part in self.parts if keep(part)))

    @checked
    def collapse(self, holder: str | None = None, *, periods: bool = True) -> Statistics[Data]:
        """Return the total as one part: smaller, but no holder can be removed any more.

        Parameters
        ----------
        holder
            Name of the total; None joins those of the parts.
        periods
            Whether each period that ``errors="auto"`` takes apart stays a part, the total over holders: error bars
            follow from them. False: the total alone, whose error bars take errors as independent.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> time = np.datetime64("2000-01-01", "ns") + np.arange(2000) * np.timedelta64(5, "D")
        >>> u = np.random.default_rng(0).normal(size=(2000, 4))
        >>> pixels = xr.DataArray(u, {"time": time, "lat": np.arange(4.0)}, ("time", "lat"), "u")
        >>> bases = {"time": xs.Polynomial(1), "lat": xs.Polynomial(1)}
        >>> statistics = pixels.spline.statistics(bases, errors="auto")
        >>> len(statistics.collapse().parts) == len(statistics.periods)
        True
        >>> len(statistics.collapse(periods=False).parts)
        1
        """
        kinds = {"kinds": self._kinds} if any(self._kinds) else {}
        if not (periods and self.periods):
            if periods and self._decides and len(self.parts) > 1:
                warn(
                    "errors='auto' asks the parts how far errors are alike, and the total has none: error bars of its "
                    "fields take errors as independent. Keep the parts, or pass periods=False to say so"
                )
            sums = {name: self.total(name) for name in self.variables}
            digests = sorted(set().union(*(part.digests for part in self.parts)))
            provenance = {"collapsed from": digests, **kinds}
            total = Part.of(sums, holder or "+".join(sorted(self.holders)), provenance)
            return replace(self, parts=(total,), _collapsed=True)
        parts = []
        for period in self.periods:
            own = [part for part in self.parts if tuple(part.provenance["period"]) == period]
            own.sort(key=lambda part: part.digest)
            sums = {n: Sums.merge([part.sums[n] for part in own], self.space.frame) for n in self.variables}
            digests = sorted(set().union(*(part.digests for part in own)))
            kept = {"collapsed from": digests, "errors": "auto", "period": list(period), **kinds}
            parts.append(Part.of(sums, f"{holder or ''} {period[2]} to {period[3]}".strip(), kept))
        return replace(self, parts=tuple(parts), _collapsed=True)

    def extend(self, **ranges: Any) -> Statistics[Data]:
        """Return the same sums in the space of longer domains that :meth:`Space.extend` gives, exactly.

        To these the sums of further labels are added, of data that nobody has to read again. Observations that were
        left out, as they were outside the domain, stay so.

        Parameters
        ----------
        **ranges
            As for :meth:`Space.extend`.

        Raises
        ------
        ValueError
            As :meth:`Space.extend` does; the sums are still to be computed.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x = np.linspace(0, 10, 200)
        >>> data = xr.DataArray(np.sin(x), {"x": x}, "x", "u")
        >>> first = xs.statistics(data[:150], x=xs.BSpline(12), holder="first")
        >>> longer = first.extend(x=10)
        >>> second = xs.statistics(data[150:], longer.space, holder="second")
        >>> (longer + second).count
        200
        """
        if self.is_lazy:
            raise ValueError("these statistics are still to be computed; call .compute() on them first")
        space = self.space.extend(**ranges)
        moves = moves_between(self.space, space)
        parts = []
        for part in self.parts:
            sums = {name: moved(own, moves) for name, own in part.sums.items()}
            parts.append(Part.of(sums, part.holder, {**part.provenance, "extended from": part.digest}))
        return replace(self, space=space, parts=tuple(parts))

    def __getitem__(self, name: str) -> Statistics[xr.DataArray]:
        """Return the statistics of one variable of a Dataset."""
        if not (isinstance(name, str) and name in self.variables):
            raise unknown_name(name, "fitted variable", self.variables)
        parts = tuple(Part.of({name: p.sums[name]}, p.holder, p.provenance) for p in self.parts)
        variables = {name: self.variables[name]}
        return replace(self, parts=parts, variables=variables, _is_dataset=False)  # type: ignore[return-value]

    @checked
    def solve(
        self,
        penalty: Any = None,
        *,
        solver: str | None = None,
        device: str | None = None,
        offsets: str | None = None,
        noise: Any = None,
        reference: str | None = None,
    ) -> Field[Data]:
        """Solve (G + Λ) c = h for the coefficients (paper, equation 8).

        Parameters
        ----------
        penalty
            A number (ridge λ‖c‖²), ``xs.Ridge``, ``xs.Roughness``, ``xs.Sobolev``, ``xs.SpaceTime``, ``xs.Physics``,
            a sum of them, or "reml", "gcv" or "holders"; see :func:`xspline.fit`.
        solver
            Name of a solver; None chooses one by structure.
        device
            "cuda" factorises dense systems that are worth the way on a GPU; all others stay on the host: those that are
            small, have structure, or are solved by iterations.
        offsets
            "holders": the observations of each holder differ from the field by a number of their own, as those of an
            instrument that reads too high do. ``field.offsets`` has them with their errors, which those of the field
            include.
        noise
            "holders": the noise of each holder's observations has a standard deviation of its own, found by REML, and
            they are weighed by it: ``field.noise``. A mapping gives the standard deviations, of which ratios count.
        reference
            The holder whose offset is 0, and whose observations keep their weights. None: the one with the most
            observations, of equal ones the first by name.

        Returns
        -------
        Field
            With `offsets` or `noise` its statistics are those of observations without offsets, weighed by their noise.

        Raises
        ------
        SingularSystemError
            Nothing is determined; the message names the empty cells. Nothing tells offsets from the field, or the
            noise of a holder.
        ValueError
            Offsets or noise of a single holder, of functions that do not add up to one, or with ``errors=AR1(...)``.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x, rng = np.linspace(0, 10, 400), np.random.default_rng(0)
        >>> good = xr.DataArray(np.sin(x) + rng.normal(0, 0.1, 400), {"x": x}, "x", "u")
        >>> poor = xr.DataArray(np.sin(x) + 0.5 + rng.normal(0, 0.3, 400), {"x": x}, "x", "u")
        >>> space = xs.space(good, x=12)
        >>> parts = [xs.statistics(u, space, holder=h) for h, u in {"good": good, "poor": poor}.items()]
        >>> field = xs.merge(parts).solve(offsets="holders", noise="holders", reference="good")
        >>> field.offsets.offset.round(1).values, field.noise.noise.round(1).values
        (array([0. , 0.5]), array([0.1, 0.3]))
        """
        # Late, so that a chain of calls may end here: everything else of fields is built on statistics.
        from xspline.labels.field import Field

        return Field.from_statistics(
            self, penalty, solver, device, offsets=offsets, noise=noise, reference=reference
        )

    @checked
    def disclosure(self, k: int = 10) -> Disclosure:
        """Say what these statistics tell of single observations: to be read before they are shared.

        Sums are no promise of privacy. The report says which knot cells hold fewer than `k` observations, whether there
        are nearly as many functions as observations, what gaps G shows, and what parts and later releases add.

        Parameters
        ----------
        k
            The fewest observations that a cell is to hold. How many it holds is told from G, so about.

        Returns
        -------
        Disclosure
            To be read: a line for each thing, "fine" or "look", with advice. Of several parts it is that which shows
            the most.

        Raises
        ------
        ValueError
            A `k` that is no integer from 1 on; sums that are still to be computed.

        Warns
        -----
        FitWarning
            There are as many functions as places with observations, so that their values follow from the sums.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x = np.linspace(0, 10, 200)
        >>> mine = xs.statistics(xr.DataArray(np.sin(x), {"x": x}, "x", "u"), x=12, holder="mine")
        >>> mine.disclosure()
        <xspline.Disclosure of u: 1 to look at>
          fine  cells      9 cells hold about 22 or more
          fine  functions  12 functions for 200 observations at 200 places
          fine  gaps       all cells hold observations, so that G shows no gap of their size
          look  releases   what a later release of a holder has more than this one are the sums of what came
                           between; look at these by themselves first: disclosure() of the new observations
                           alone
        """
        self._check_computed()
        sizes = {dim: n for labels in (self._fitted or {}).values() for dim, n in labels.sizes.items()}
        places = math.prod(sizes.values()) if sizes else 0
        return disclosure(self.parts, self.variables, self.space, places, k)

    def recover(self, equation: str | Sequence[str], **options: Any) -> xr.Dataset:
        """Estimate the constants of an equation from these sums alone: :meth:`Field.recover` of ``solve()``.

        Merged statistics give what all data together give; no holder shows a record.
        """
        return self.solve().recover(equation, **options)

    def discover(self, response: str, **options: Any) -> xr.Dataset:
        """Find which terms an equation has from these sums alone: :meth:`Field.discover` of ``solve("reml")``."""
        return self.solve("reml").discover(response, **options)

    def constrain(self, equation: str | Sequence[str], **options: Any) -> Field[Data]:
        """Return the field that obeys an equation: :meth:`Field.constrain` of ``solve()``."""
        return self.solve().constrain(equation, **options)

    def to_dataset(self) -> xr.Dataset:
        """Return everything as arrays and one JSON attribute (in files: and a digest of both)."""
        self._check_computed()
        contents: dict[str, Any] = {}
        parts = [_stored_part(part, f"part{i}__", contents) for i, part in enumerate(self.parts)]
        variables = []
        for k, variable in enumerate(self.variables.values()):
            own = set(variable.batch_dims)
            levels = variable.levels  # a MultiIndex is stored as the coordinates that it is made of
            coords = variable.batch.coords.items()
            batch = {n: c for n, c in coords if set(c.dims) <= own and str(n) not in levels}
            contents |= {
                f"batch{k}__{n}": files.stored_coordinate(c, f"batch{k}__") for n, c in batch.items()
            }
            variables.append({**variable.to_dict(), "batch": [str(n) for n in batch]})
        fitted = {n: c for n, c in (self._fitted or {}).items() if c.dims in ((), (n,))}
        contents |= {f"fitted__{n}": files.stored_coordinate(c, "fitted__") for n, c in fitted.items()}
        meta = {
            "schema": files.SCHEMA,
            "content": "statistics",
            "space": json.loads(self.space.to_json()),
            "parts": parts,
            "variables": variables,
            "is_dataset": self._is_dataset,
            "collapsed": self._collapsed,
            "fitted": sorted(f"fitted__{n}" for n in fitted),
        }
        return xr.Dataset(contents, attrs={files.ATTRIBUTE: json.dumps(meta)})

    @classmethod
    def from_dataset(cls, dataset: xr.Dataset) -> Statistics[Any]:
        """Return the statistics in a Dataset that `to_dataset` returned, checking version and digests.

        Raises
        ------
        ValueError
            It is of another kind, of a later version, or its contents do not match their digests.
        """
        meta = files.read_meta(dataset, "statistics")
        space = Space.from_json(json.dumps(meta["space"]))
        parts: list[Part] = []
        for described in meta["parts"]:
            sums = {}
            for name, stored in described["sums"].items():
                named = {key: dataset[stored["prefix"] + key].values for key in stored["arrays"]}
                sums[name] = Sums.from_arrays(named, stored["meta"])
            part = Part.of(sums, described["holder"] or None, described["provenance"])
            if part.digest != described["digest"]:
                raise ValueError(
                    f"part {described['holder']!r} has digest {part.digest[:12]}, but the file says "
                    f"{described['digest'][:12]}: the file was changed or damaged; ask its holder for it again"
                )
            if part.digest in {p.digest for p in parts}:
                raise ValueError(
                    f"the file lists part {part.describe()} twice; it was changed after it was written"
                )
            parts.append(part)
        variables = {}
        for k, described in enumerate(meta["variables"]):
            batch = {
                name: files.restored_coordinate(dataset, f"batch{k}__", name) for name in described["batch"]
            }
            variables[described["name"]] = Variable.from_dict(described, batch)
        names = [stored.removeprefix("fitted__") for stored in meta["fitted"]]
        fitted = {name: files.restored_coordinate(dataset, "fitted__", name) for name in names}
        complete = fitted if len(fitted) == len(space.names) else None
        return cls(space, tuple(parts), variables, meta["is_dataset"], meta["collapsed"], complete)

    def __repr__(self) -> str:
        names, shape = ", ".join(self.variables), " x ".join(map(str, self.space.shape))
        head = f"<xspline.Statistics of {names} in {shape} = {self.space.size} coefficients"
        if self.is_lazy:
            return f"{head}, not computed yet>"
        outside = f" ({self.outside} more outside the domain)" if self.outside else ""
        errors = f", errors={self._errors}" if self._errors else ""
        lines = [f"{head}, {self.count} observations{outside}{errors}, {self.nbytes / 1e6:.3g} MB>"]
        for part in self.parts:
            lines.append(
                f"    {part.holder or '(unnamed)'}: {part.count} observations, digest {part.digest[:12]}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        text, bases = repr(self), [(name, basis) for name, (_, basis) in self.space.axes.items()]
        parts = (
            [] if self.is_lazy else [(p.holder or "(unnamed)", p.count, p.digest[:12]) for p in self.parts]
        )
        listed = notebook.table(parts, ("holder", "observations", "digest"))
        contents = {f"Parts ({len(parts)})": listed, f"Bases ({len(bases)})": notebook.table(bases)}
        detail = text.partition("\n")[0].partition(" of ")[2].rstrip(">")
        return notebook.page("xspline.Statistics", detail, contents, text)


def _stored_part(part: Part, prefix: str, contents: dict[str, Any]) -> dict[str, Any]:
    """Add the arrays of a part to the contents; return what the JSON says of it."""
    described = {}
    for k, (name, sums) in enumerate(part.sums.items()):
        own = f"{prefix}{k}__"
        named, facts = sums.to_arrays()
        for key, a in named.items():
            dims = [f"{own}{key}__{axis}" for axis in range(np.ndim(a))]
            contents[own + key] = (dims, np.asarray(a))
        described[name] = {"prefix": own, "arrays": list(named), "meta": facts}
    identity = {"digest": part.digest, "holder": part.holder, "provenance": dict(part.provenance)}
    return {**identity, "sums": described}


def open_statistics(path: Any, **kwargs: Any) -> Statistics[Any]:
    """Open statistics written by ``Statistics.to_zarr`` or ``to_netcdf``.

    Parameters
    ----------
    path : str, Path or Zarr store
    **kwargs
        As for :func:`xarray.open_zarr` or :func:`xarray.open_dataset`.

    Raises
    ------
    ValueError
        The file is of another kind or a later version, damaged, or its contents do not match their digests.
    FileNotFoundError
        There is none.
    """
    return files.read(path, Statistics.from_dataset, **kwargs)


def _check_compatible(a: Statistics[Any], b: Statistics[Any]) -> None:
    if a.space != b.space:
        raise ValueError(f"the two statistics live in different spaces: {a.space.difference(b.space)}")
    if list(a.variables) != list(b.variables):
        raise ValueError(
            f"the two statistics hold different variables: {list(a.variables)} and {list(b.variables)}"
        )
    for name in a.space.names:
        mine, yours = a.space.axis(name).units, b.space.axis(name).units
        if not are_one(mine, yours):
            raise ValueError(
                f"the labels of {name!r} were read as {mine!r} in one part and as {yours!r} in the other, in one space "
                "whose definition names no units, so they do not fit together; compute them in a space that has units "
                "(xs.space(data, ...)), which converts the labels of the other"
            )
    for name, variable in a.variables.items():
        variable.check_matches(b.variables[name])
    a._check_computed()
    b._check_computed()
    if (series := a._series or b._series) is not None and a.parts and b.parts:
        series.check_matches(b._series if a._series else None)


def merge(statistics: Iterable[Statistics[Data]], *, repeated_holders: str = "error") -> Statistics[Data]:
    """Merge the statistics of several holders: exactly those of all their data together (paper, equation 7).

    Parameters
    ----------
    statistics
        At least one; all in one Space, with equal variables, units and batch labels.
    repeated_holders
        "error" refuses a holder's name that comes twice with different observations, since data that were cut up
        otherwise give other bits of the same sums. "add" says that they are different observations of one holder.

    Returns
    -------
    Statistics

    Raises
    ------
    ValueError
        They do not fit together (both sides are shown), or a part, or a holder's name, is there twice.

    Warns
    -----
    FitWarning
        Two holders hold the same observations, which then count twice.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> x = np.linspace(0, 10, 200)
    >>> data = xr.DataArray(np.sin(x), {"x": x}, "x", "u")
    >>> space = xs.space(data, x=12)
    >>> parts = [xs.statistics(data[k::2], space, holder=h) for k, h in enumerate(["even", "odd"])]
    >>> merged = xs.merge(parts)
    >>> merged.holders, merged.count
    (('even', 'odd'), 200)
    >>> np.allclose(merged.solve(0.1).coefficients, xs.fit(data, space, penalty=0.1).coefficients)
    True
    """
    if repeated_holders not in ("error", "add"):
        raise ValueError(f"repeated_holders has to be 'error' or 'add', not {repeated_holders!r}")
    if isinstance(statistics, Statistics) or not isinstance(statistics, Iterable):
        raise TypeError("merge takes a list of Statistics, as in xs.merge([a, b]); one alone needs no merge")
    listed = list(statistics)
    for i, other in enumerate(listed):
        if not isinstance(other, Statistics):
            raise TypeError(
                f"merge takes Statistics, and item {i} is of type {type(other).__name__}; of data see xs.statistics, "
                "of a field pass its .statistics, or merge models by xs.merge_models"
            )
    if not listed:
        raise ValueError("merge needs at least one Statistics; the list is empty")
    first = listed[0]
    for other in listed[1:]:
        _check_compatible(first, other)
    alone, space = len(listed) == 1, first.space
    merged = Merged(may_repeat=repeated_holders == "add")
    for contribution in listed if not alone else ():  # which needs no digests
        merged.add(contribution.parts)
    for other in listed[1:]:
        space = space.coupling(other.space.coupled)
    return replace(
        first,
        space=space,
        parts=first.parts if alone else tuple(merged.parts),
        _collapsed=any(contribution._collapsed for contribution in listed),
        _fitted=first._fitted if alone else None,
        _chunks=first._chunks if alone else None,
    )

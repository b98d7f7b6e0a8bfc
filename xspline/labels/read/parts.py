"""Part: what one holder contributed to statistics, named by the digest of its contents."""

from __future__ import annotations

import datetime
import functools
import hashlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import xarray as xr

from xspline.labels.errors import check_sums
from xspline.solve.errors import warn
from xspline.sums import Sums


@dataclass(frozen=True, eq=False)
class Part:
    """One holder's contribution: a Sums for each variable, named by the digest of contents and holder."""

    holder: str
    sums: Mapping[str, Sums]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, sums: Mapping[str, Sums], holder: str | None, provenance: Mapping[str, Any]) -> Part:
        """Make a part with contents of its own."""
        return cls("" if holder is None else str(holder), dict(sums), dict(provenance))

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the holder's name and of the contents of its sums, empty while these are lazy.

        It is made once asked for: a fit needs none.
        """
        if not all(isinstance(s, Sums) for s in self.sums.values()):
            return ""
        return hashlib.sha256("\n".join([self.holder, *self.contents]).encode()).hexdigest()

    @functools.cached_property
    def contents(self) -> tuple[str, ...]:
        """The digest of each variable's sums, whoever holds them."""
        return tuple(f"{variable} {s.digest()}" for variable, s in sorted(self.sums.items()))

    def describe(self) -> str:
        """Return ``'west' (3f2a…)`` for messages."""
        return f"{self.holder or 'unnamed'!r} ({self.digest[:12]})"

    @functools.cached_property
    def digests(self) -> set[str]:
        """Its digest, and those of the parts that were added up to it."""
        return {self.digest, *self.provenance.get("collapsed from", ())}

    @functools.cached_property
    def count(self) -> int:
        """Observations with positive weight, over all variables."""
        return sum(int(s.count.sum()) for s in self.sums.values())


def part_of(
    data: Mapping[str, xr.DataArray], sums: list[Any], holder: str | None, sizes: Mapping[Hashable, int]
) -> Part:
    """Return one holder's sums of all variables as a part, with where they come from; unchecked while they are lazy."""
    from xspline import __version__

    provenance = {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "xspline": __version__,
        "sizes": {str(d): int(n) for d, n in sizes.items()},
    }
    by_name = dict(zip(data, sums, strict=True))
    if not all(isinstance(s, Sums) for s in sums):
        return Part(holder or "", by_name, provenance)
    return checked_part(data, by_name, holder, provenance)


def checked_part(
    data: Mapping[str, xr.DataArray],
    sums: Mapping[str, Sums],
    holder: str | None,
    provenance: Mapping[str, Any],
) -> Part:
    """Return a part of sums without infinities and bad weights, else ValueError with the labels of the first."""
    for name, s in sums.items():
        check_sums(s, data[name], name)
    return Part.of(sums, holder, provenance)


class Merged:
    """Parts that are merged, found again by what they count: a new one costs no look at each of them."""

    def __init__(self, may_repeat: bool) -> None:
        self.parts: list[Part] = []
        self._may_repeat = may_repeat
        self._counting: dict[str, Part] = {}  # by their digests
        self._holding: dict[tuple[str, ...], Part] = {}  # by their contents, those with observations
        self._of_holder: dict[str, list[Part]] = {}  # those with observations

    def add(self, parts: Iterable[Part]) -> None:
        """Add the parts of one contribution, or raise ValueError where the others count what one of them does."""
        # Nothing, twice, is nothing.
        new = [part for part in parts if part.count or part.digest not in self._counting]
        if self.parts:
            for part in new:
                self._check_digests(part)
                if part.count:
                    self._check_holder(part)
            self._warn_of_copies(new)
        for part in new:
            self.parts.append(part)
            for digest in part.digests:
                self._counting[digest] = part
            if part.count:
                self._holding.setdefault(part.contents, part)
                self._of_holder.setdefault(part.holder, []).append(part)

    def _check_digests(self, part: Part) -> None:
        if (other := self._counting.get(part.digest)) and part.digest == other.digest:
            raise ValueError(
                f"part {part.describe()} is there twice; each holder counts once. If two holders do have equal "
                f"records, give them names: statistics(space, holder=...)"
            )
        if twice := sorted(digest for digest in part.digests if digest in self._counting):
            other = self._counting[twice[0]]
            raise ValueError(
                f"parts {part.describe()} and {other.describe()} both count the part {twice[0][:12]}, which one of "
                "them holds in a collapsed total; each holder counts once: merge the parts before they are collapsed, "
                "or leave one of both out"
            )

    def _check_holder(self, part: Part) -> None:
        others = [] if self._may_repeat else self._of_holder.get(part.holder, [])
        if part.holder and others:
            other = others[0]
            raise ValueError(
                f"holder {part.holder!r} is there twice with different sums ({other.count} and {part.count} "
                f"observations, digests {other.digest[:12]} and {part.digest[:12]}), and each holder counts once. If "
                "these are different observations of one holder, say so: "
                "xs.merge([...], repeated_holders='add'); else leave one out, or give them names of their own"
            )
        for other in others:
            if all(part.sums[name].resembles(s) for name, s in other.sums.items()):
                raise ValueError(
                    f"two parts without a name hold the same {part.count} observations ({other.digest[:12]} and "
                    f"{part.digest[:12]}), and each counts once. If two holders do have equal records, give them "
                    "names: statistics(space, holder=...)"
                )

    def _warn_of_copies(self, new: Iterable[Part]) -> None:
        """Warn of observations that are there under the name of another holder too."""
        known = [(self._holding[part.contents], part) for part in new if part.contents in self._holding]
        if known:
            names = " and ".join(repr(name or "unnamed") for name in sorted(part.holder for part in known[0]))
            others = f", and so do {len(known) - 1} more pairs" if len(known) > 1 else ""
            warn(
                f"holders {names} hold the same {known[0][1].count} observations{others}, as their sums are equal bit "
                "for bit: these count twice, and error bars are too short. Merge only one of them; where both did "
                "observe the same, this is no error"
            )

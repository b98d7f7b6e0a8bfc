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
        contents = (f"{variable} {s.digest()}" for variable, s in sorted(self.sums.items()))
        return hashlib.sha256("\n".join([self.holder, *contents]).encode()).hexdigest()

    def describe(self) -> str:
        """Return ``'west' (3f2a…)`` for messages."""
        return f"{self.holder or 'unnamed'!r} ({self.digest[:12]})"

    @property
    def digests(self) -> set[str]:
        """Its digest, and those of the parts that were added up to it."""
        return {self.digest, *self.provenance.get("collapsed from", ())}

    @property
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


def check_new(part: Part, known: Iterable[Part], may_repeat: bool) -> None:
    """Raise ValueError where what a part counts is in the others already, by its digest, its name or its sums."""
    for other in known:
        if part.digest == other.digest:
            raise ValueError(
                f"part {part.describe()} is there twice; each holder counts once. If two holders do have equal "
                f"records, give them names: statistics(space, holder=...)"
            )
        if twice := sorted(part.digests & other.digests):
            raise ValueError(
                f"parts {part.describe()} and {other.describe()} both count the part {twice[0][:12]}, which one of "
                "them holds in a collapsed total; each holder counts once: merge the parts before they are collapsed, "
                "or leave one of both out"
            )
        if may_repeat or part.holder != other.holder or not (part.count and other.count):
            continue
        if part.holder:
            raise ValueError(
                f"holder {part.holder!r} is there twice with different sums ({other.count} and {part.count} "
                f"observations, digests {other.digest[:12]} and {part.digest[:12]}), and each holder counts once. If "
                "these are different observations of one holder, say so: "
                "xs.merge([...], repeated_holders='add'); else leave one out, or give them names of their own"
            )
        if all(part.sums[name].resembles(s) for name, s in other.sums.items()):
            raise ValueError(
                f"two parts without a name hold the same {part.count} observations ({other.digest[:12]} and "
                f"{part.digest[:12]}), and each counts once. If two holders do have equal records, give them names: "
                "statistics(space, holder=...)"
            )

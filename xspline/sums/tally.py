"""Tally: what kernels met in the data and left out; they never raise on data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

Index: TypeAlias = tuple[int, ...] | None


@dataclass(frozen=True)
class Tally:
    """Counts of what was left out, and where the first bad numbers are.

    Parameters
    ----------
    missing : int
        Values that are NaN.
    outside : int
        Values with a coordinate outside the domain of a basis.
    infinity, bad_weight : tuple of int, optional
        Global index of the first infinite value, and of the first weight that is negative or NaN, in C order.
    """

    missing: int = 0
    outside: int = 0
    infinity: Index = None
    bad_weight: Index = None

    @staticmethod
    def merge(tallies: Iterable[Tally]) -> Tally:
        """Counts added, first places kept."""
        members = list(tallies)
        return Tally(
            sum(tally.missing for tally in members),
            sum(tally.outside for tally in members),
            _earliest(tally.infinity for tally in members),
            _earliest(tally.bad_weight for tally in members),
        )

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists, for JSON."""
        return {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(self).items()}

    @staticmethod
    def from_dict(d: Mapping[str, Any]) -> Tally:
        """Inverse of `to_dict`."""
        return Tally(int(d["missing"]), int(d["outside"]), _index(d["infinity"]), _index(d["bad_weight"]))


def _earliest(indices: Iterable[Index]) -> Index:
    return min((index for index in indices if index is not None), default=None)


def _index(value: Any) -> Index:
    return None if value is None else tuple(int(i) for i in value)

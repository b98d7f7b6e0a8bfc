"""Sums: what a kernel returns for a block of data and what every tree and holder adds.

    G = Φᵀ W Φ      h = Φᵀ W (y − r)      s = (y − r)ᵀ W (y − r)      Σw      n        r: a reference value

All are additive over observations once they have the same r; moving r needs only the sums themselves, because
the constant function has known coefficients e: Φ e = 1.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xspline.spaces import Frame
from xspline.sums.gram import Gram
from xspline.sums.memory import Memory
from xspline.sums.window import Array, Window, add_into, embed, lengths, take, union

Index: TypeAlias = tuple[int, ...] | None

_PER_MEMBER = ("power", "weight", "count", "reference")


@dataclass(frozen=True)
class Tally:
    """Counts of what was left out, and where the first bad numbers are.

    `missing` values are NaN, or have such a label; `unlabelled` ones of these have a value, but no label: NaN, NaT or
    infinite. `outside` counts values with a coordinate outside the domain of a basis. `infinity` and `bad_weight` are
    the global index, in C order, of the first infinite value, and of the first weight that is negative or NaN.
    """

    missing: int = 0
    outside: int = 0
    infinity: Index = None
    bad_weight: Index = None
    unlabelled: int = 0

    @staticmethod
    def merge(tallies: Iterable[Tally]) -> Tally:
        """Counts added, first places kept."""
        parts = list(tallies)
        infinities = [tally.infinity for tally in parts if tally.infinity is not None]
        bad_weights = [tally.bad_weight for tally in parts if tally.bad_weight is not None]
        return Tally(
            sum(tally.missing for tally in parts),
            sum(tally.outside for tally in parts),
            min(infinities, default=None),
            min(bad_weights, default=None),
            sum(tally.unlabelled for tally in parts),
        )

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists, for JSON."""
        described = {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(self).items()}
        if not self.unlabelled:  # as files had it that did not count them, whose digests go on to hold
            del described["unlabelled"]
        return described

    @staticmethod
    def from_dict(d: Mapping[str, Any]) -> Tally:
        """Inverse of `to_dict`."""
        infinity, bad = (None if d[k] is None else tuple(map(int, d[k])) for k in ("infinity", "bad_weight"))
        return Tally(int(d["missing"]), int(d["outside"]), infinity, bad, int(d.get("unlabelled", 0)))


@dataclass(frozen=True, eq=False)
class Sums:
    """Additive sums of weighted observations.

    Parameters
    ----------
    window : coefficients that the data touch; it holds the windows of all factors.
    gram : G.
    moment : [k.., b..], h, on the window.
    power, weight : [b..], s and Σw.
    count : [b..], number of observations with w > 0.
    reference : [b..], r. Batch extents are 1 (shared) or n everywhere; without batch axes these have shape ().
    tally : what was left out.
    memory : sums over pairs, where errors remember.
    """

    window: Window
    gram: Gram
    moment: Array
    power: Array
    weight: Array
    count: NDArray[np.int64]
    reference: Array
    tally: Tally = field(default_factory=Tally)
    memory: Memory | None = None

    def __post_init__(self) -> None:
        for name in ("moment", *_PER_MEMBER):
            dtype = np.int64 if name == "count" else np.float64
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=dtype))

    @staticmethod
    def zero(frame: Frame, batch: tuple[int, ...] = ()) -> Sums:
        """Sums of no data."""
        window = tuple((0, 0) for _ in frame.sizes)
        nothing = np.zeros(batch)
        moment = np.zeros((*lengths(window), *batch))
        gram = Gram((), len(batch))
        return Sums(window, gram, moment, nothing, nothing, np.zeros(batch, dtype=np.int64), nothing)

    @staticmethod
    def merge(parts: Sequence[Sums], frame: Frame) -> Sums:
        """Sums of all the data of all parts, deterministic in their order.

        Every part moves to the reference of the first one that holds any weight. Batch extents of 1
        broadcast.
        """
        moved = [part.recentred(_common_reference(parts), frame) for part in parts]
        window = union([part.window for part in moved], frame.sizes, frame.periodic)
        batch = np.broadcast_shapes(*(part.moment.shape[len(window) :] for part in moved))
        moment = np.zeros((*lengths(window), *batch))
        for part in moved:
            add_into(moment, window, part.moment, part.window, frame.sizes)
        power, weight, count = (
            functools.reduce(np.add, (getattr(part, name) for part in moved)) for name in _PER_MEMBER[:3]
        )
        gram = Gram.merge([part.gram for part in moved], frame)
        tally = Tally.merge(part.tally for part in moved)
        first, *others = sorted((part.memory for part in parts), key=lambda memory: memory is None)
        memory = None if first is None else first.merge(others, frame)
        return Sums(window, gram, moment, power, weight, count, moved[0].reference, tally, memory)

    @staticmethod
    def concatenate(parts: Sequence[Sums], axis: int, frame: Frame) -> Sums:
        """Blocks that differ along batch axis `axis`, side by side. Shared factors of G stay shared."""
        if len(parts) == 1:
            return parts[0]
        # A part without weight is zero at any reference; that of its neighbours keeps later merges centred.
        # Of one member along the axis: the others may be more than a part has.
        held = [part for part in parts if part.batch[axis]] or parts[:1]
        common = _common_reference(held)[(slice(None),) * axis + (slice(1),)]
        parts = [part if part.has_weight else replace(part, reference=common) for part in parts]
        window = union([part.window for part in parts], frame.sizes, frame.periodic)
        extents = [part.batch[axis] for part in parts]
        # Batch shapes after broadcasting all axes but `axis`.
        common_shape = np.broadcast_shapes(
            *((*part.batch[:axis], 1, *part.batch[axis + 1 :]) for part in parts)
        )
        shapes = [(*common_shape[:axis], extent, *common_shape[axis + 1 :]) for extent in extents]
        moments = [embed(part.moment, part.window, frame.sizes, window) for part in parts]
        spread = [np.broadcast_to(m, lengths(window) + own) for m, own in zip(moments, shapes, strict=True)]
        moment = np.concatenate(spread, axis=len(window) + axis)
        power, weight, count, reference = (
            np.concatenate(
                [np.broadcast_to(getattr(p, name), shape) for p, shape in zip(parts, shapes, strict=True)],
                axis,
            )
            for name in _PER_MEMBER
        )
        gram = Gram.concatenate([part.gram for part in parts], axis, extents, frame)
        tally = Tally.merge(part.tally for part in parts)
        first, *others = (part.memory for part in parts)
        beside = [memory for memory in others if memory is not None]
        memory = None if first is None else first.concatenate(beside, axis, extents, frame)
        return Sums(window, gram, moment, power, weight, count, reference, tally, memory)

    @property
    def batch_ndim(self) -> int:
        """Number of batch axes."""
        return self.power.ndim

    @property
    def batch(self) -> tuple[int, ...]:
        """Extents of the batch axes."""
        per_member = (getattr(self, name).shape for name in _PER_MEMBER)
        return np.broadcast_shapes(self.moment.shape[len(self.window) :], self.gram.batch, *per_member)

    @property
    def has_weight(self) -> bool:
        """Whether any observation counts."""
        return bool(np.any(self.weight > 0))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        per_member = self.power.nbytes + self.weight.nbytes + self.count.nbytes + self.reference.nbytes
        pairs = 0 if self.memory is None else self.memory.nbytes
        return self.gram.nbytes + self.moment.nbytes + per_member + pairs

    def recentred(self, reference: ArrayLike, frame: Frame) -> Sums:
        """The same data with another reference r.

        With δ = r_old − r_new:  s += 2δ·eᵀh + δ²Σw,  then  h += δ·G e. The reference, [b..], has extents 1 or n, and is
        0 where the space does not contain the constant.
        """
        target = np.asarray(reference, dtype=np.float64)
        delta = self.reference - target
        if not np.any(delta):
            return self
        along = self.moment  # eᵀh: [b..]
        for vector, span, size in zip(frame.constant, self.window, frame.sizes, strict=True):
            # Not a product of BLAS, whose last bits depend on its threads.
            along = np.einsum("k,k...->...", take(vector, (span,), (size,)), along)
        power = self.power + 2 * delta * along + delta**2 * self.weight
        moment = self.moment + delta * self.gram.image(frame.constant, self.window, frame)
        return replace(self, power=power, moment=moment, reference=target)

    def full_moment(self, frame: Frame) -> Array:
        """h over all coefficients: [K.., b..]."""
        return embed(self.moment, self.window, frame.sizes)

    def centred(self, c: Array, frame: Frame) -> Array:
        """Coefficients of the field minus r: c − r·e, [K.., b..]."""
        constant = functools.reduce(np.multiply, np.ix_(*frame.constant))
        lifted: Array = constant.reshape(constant.shape + (1,) * self.batch_ndim) * self.reference
        return c - lifted

    def rss(self, c: Array, frame: Frame) -> Array:
        """Weighted residual sum of squares s − 2h·c + c·Gc, [b..].

        c, [K.., b..], are coefficients of the field minus r, see `centred`.
        """
        axes = tuple(range(len(self.window)))
        linear = np.sum(self.moment * take(c, self.window, frame.sizes), axis=axes)
        quadratic = self.gram.with_batch_axes(self.batch_ndim).form(c, frame)
        return np.asarray(self.power - 2 * linear + quadratic)

    def resembles(self, other: Sums) -> bool:
        """Whether both are of the same observations up to rounding: r and n are equal, Σw, s and h nearly so."""
        alike = self.window == other.window and np.array_equal(self.reference, other.reference)
        return alike and all(  # the small arrays first
            a.shape == b.shape and np.abs(a - b).max(initial=0) <= 1e-9 * np.abs(a).max(initial=0)
            for a, b in (
                (getattr(self, n), getattr(other, n)) for n in ("count", "weight", "power", "moment")
            )
        )

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Plain numeric arrays by name, and a JSON-able description, for files."""
        pairs, gram = self.gram.to_arrays()
        arrays = {name: getattr(self, name) for name in ("moment", *_PER_MEMBER)}
        window = [list(span) for span in self.window]
        meta = {"window": window, "gram": gram, "tally": self.tally.to_dict()}
        if self.memory is not None:
            lagged, meta["memory"] = self.memory.to_arrays()
            pairs |= lagged
        return {**arrays, **pairs}, meta

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Sums:
        """Inverse of `to_arrays`."""
        moment, power, weight, count, reference = (arrays[name] for name in ("moment", *_PER_MEMBER))
        window = tuple((int(start), int(length)) for start, length in meta["window"])
        gram = Gram.from_arrays(arrays, meta["gram"])
        tally = Tally.from_dict(meta["tally"])
        memory = Memory.from_arrays(arrays, meta["memory"], Sums) if "memory" in meta else None
        return Sums(window, gram, moment, power, weight, count, reference, tally, memory)

    def digest(self) -> str:
        """SHA-256 of the contents, in hexadecimal; the same on every machine."""
        arrays, meta = self.to_arrays()
        digest = hashlib.sha256(json.dumps(meta, sort_keys=True, separators=(",", ":")).encode())
        for name, array in sorted(arrays.items()):
            digest.update(f"{name}{array.dtype.kind}{array.dtype.itemsize}{array.shape}".encode())
            little = array if sys.byteorder == "little" else array.byteswap()
            digest.update(np.ascontiguousarray(little).data)
        return digest.hexdigest()


def _common_reference(parts: Sequence[Sums]) -> Array:
    """Return the reference of the first part with weight; a part without any does not decide it."""
    return next((part for part in parts if part.has_weight), parts[0]).reference


class HolderSums(UserDict[int, Sums]):
    """Sums by holder, that a block or a merge of blocks holds at once; they add holder by holder.

    A mapping of int to Sums: holders are numbered; those without a row in the block are left out.
    """

    @staticmethod
    def merge(parts: Sequence[HolderSums], frame: Frame) -> HolderSums:
        """Sums of all the data of all parts, by holder, deterministic in their order."""
        return HolderSums({code: Sums.merge(own, frame) for code, own in _by_holder(parts)})

    @staticmethod
    def concatenate(parts: Sequence[HolderSums], axis: int, frame: Frame) -> HolderSums:
        """Blocks that differ along batch axis `axis`, side by side; all have the same holders."""
        return HolderSums({code: Sums.concatenate(own, axis, frame) for code, own in _by_holder(parts)})

    @property
    def nbytes(self) -> int:
        """Bytes of all sums."""
        return sum(sums.nbytes for sums in self.values())


def _by_holder(parts: Sequence[HolderSums]) -> Iterator[tuple[int, list[Sums]]]:
    """For each holder, in ascending order, its Sums in those parts that have some."""
    for code in sorted({code for part in parts for code in part}):
        yield code, [part[code] for part in parts if code in part]


def leave_one_out(
    parts: Sequence[Sums], frame: Frame, finish: Callable[[Sums], Sums] = lambda sums: sums
) -> list[Sums]:
    """Sums of the data of all parts but one, for each of them in turn; each is deterministic in the order of the parts.

    They are added up from the first parts and from the last ones, 3 merges a part; nothing is subtracted, so that
    what remains is as exact as a merge of its own, and separable where that is. `finish` is done to what a merge
    gives. There are two parts or more.
    """

    def both(done: Sums, part: Sums) -> Sums:
        return finish(Sums.merge([done, part], frame))

    after = list(accumulate(parts[:0:-1], lambda done, part: both(part, done)))
    before = accumulate(parts[:-1], both)
    first = after.pop()
    return [first, *(both(done, after.pop()) if after else done for done in before)]

"""From positions in arrays to messages in the user's own names and labels."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from xspline.arguments import brief
from xspline.execution import WorkerMemoryError
from xspline.solve.errors import warn
from xspline.sums import Sums, Tally

_FLOAT = np.finfo(np.float64)
#: Of mean squares, about 1e276, as squares of rounding errors are counted too: values above 1e138 or below 1e-138.
_EXTREME = float(_FLOAT.eps**2 / _FLOAT.tiny)


def unknown_name(name: str, kind: str, known: Iterable[Any], advice: str = "") -> ValueError:
    """Return the error for a name that does not exist, with the nearest one that does, and advice if there is some."""
    choices = list(dict.fromkeys(str(k) for k in known))
    close = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return ValueError(
        f"no {kind} {brief(name)}{hint} Known: {', '.join(map(repr, choices)) or 'none'}{advice}"
    )


def check_names(
    names: Iterable[Any], known: Iterable[Any], kind: str = "fitted coordinate", advice: str = ""
) -> None:
    """Raise ValueError for the first of some names that does not exist, as `unknown_name` says it."""
    known = list(known)
    for name in names:
        if name not in known:
            raise unknown_name(name, kind, known, advice)


class Labels(NamedTuple):
    """What names places of an array, without the array: a task carries it to a worker."""

    dims: tuple[Hashable, ...]
    coords: Mapping[Hashable, xr.DataArray]

    @classmethod
    def of(cls, data: xr.DataArray) -> Labels:
        """Return the labels along the dimensions of an array."""
        return cls(data.dims, {dim: data.coords[dim] for dim in data.dims if dim in data.coords})


def place(data: xr.DataArray | Labels, index: tuple[int, ...]) -> str:
    """Return where a position of the array lies, in labels: ``time=2010-03-01, lat=10.0``."""
    return ", ".join(f"{dim}={_label(data, dim, i)}" for dim, i in zip(data.dims, index, strict=True))


def _label(data: xr.DataArray | Labels, dim: Any, i: int) -> str:
    return label_text(data.coords[dim].values[i]) if dim in data.coords else str(i)


def label_text(label: Any) -> str:
    """Return a label as text; a date without the zeros of its time, a length of time as pandas writes it."""
    if isinstance(label, np.timedelta64):
        return str(pd.Timedelta(label))
    return np.datetime_as_string(label, "auto") if isinstance(label, np.datetime64) else str(label)


def check_tally(tally: Tally, data: xr.DataArray | Labels, what: str) -> None:
    """Raise ValueError with labels where the data hold an infinity, or the weights a negative or missing value."""
    if tally.infinity is not None:
        raise ValueError(
            f"{what} is infinite at {place(data, tally.infinity)}; mark missing values as NaN, for example "
            f"data.where(np.isfinite(data))"
        )
    if tally.bad_weight is not None:
        raise ValueError(
            f"the weight of {what} at {place(data, tally.bad_weight)} is negative, infinite or NaN; weights are "
            f"relative precisions (1/se**2), and zero leaves an observation out"
        )


def check_sums(sums: Sums, data: xr.DataArray, what: str) -> None:
    """Turn what the kernels counted, and squares that leave the range of float64, into errors with names and labels.

    It raises ValueError where :func:`check_tally` does, or all squares leave that range; where those of some fits do,
    it warns.
    """
    check_tally(sums.tally, data, what)
    # Beyond the range coefficients would be right, and all that rests on residuals (standard errors, the choice of a
    # penalty) wrong. The largest value is named with its labels, as it may be a damaged one.
    axes = tuple(range(len(sums.window)))
    observed = np.broadcast_to(np.any(sums.moment != 0, axis=axes), sums.power.shape)
    mean = sums.power / np.maximum(sums.count, 1)
    wrong = observed & ~((mean > 1 / _EXTREME) & (mean < _EXTREME))
    if not wrong.any():
        # Values may be alike up to their last digits, so that rounding errors are a hundredth of what varies.
        spread = np.sqrt(sums.power / np.where(sums.weight > 0, sums.weight, 1.0))
        rounding = np.abs(sums.reference) * _FLOAT.eps
        if ((spread > 0) & (rounding > 0.01 * spread)).any():
            about = float(np.max(np.abs(sums.reference)))
            warn(
                f"the values of {what} vary by {spread.max():.2g} about {about:.4g}, where float64 tells "
                f"{rounding.max():.2g} apart; subtract a constant from the data, as exact integers"
            )
        return
    size = "small" if (mean[wrong] < 1).any() else "large"
    heavy = (sums.weight > _EXTREME**0.5 * sums.count).any()
    at = ""
    if size == "large" and not heavy:  # arrays out of memory take another pass over the data
        values = data if data.variable._in_memory else data.chunk("auto")
        found = abs(values.astype(np.float64)).fillna(0.0).argmax([*data.dims])
        index = {dim: int(i.compute()) for dim, i in found.items()}
        at = f"; the largest is {float(data.isel(index)):.3g} at {place(data, tuple(index.values()))}"
    cause = f"the values of {what} are so {size} that their weighted squares leave the range of float64"
    advice = "mend it where it is wrong, or " if at else ""
    advice += "scale the data (or the weights) by a power of ten, and the field back"
    if np.all(wrong | ~observed):
        raise ValueError(f"{cause}{at}; {advice}")
    warn(f"{cause} in {int(wrong.sum())} of {wrong.size} fits, whose standard errors are wrong{at}; {advice}")


@contextmanager
def read_errors_name_labels(data: Mapping[str, xr.DataArray]) -> Iterator[None]:
    """Note on an error of a read, which keeps its type, the labels of that piece of the data and its store.

    A want of memory is said in one sentence with what to do.
    """
    try:
        yield
    except WorkerMemoryError:  # says so by itself
        raise
    except MemoryError as error:
        raise MemoryError(
            f"the sums of this fit need more memory than there is ({error}); use fewer coefficients, or smaller "
            "chunks: xs.plan(...) says what they need"
        ) from error
    except Exception as error:
        name, box = getattr(error, "read", ("", ()))
        if name in data:
            array = data[name]
            ends = zip(array.dims, box, strict=True)
            labels = ", ".join(f"{d}={_label(array, d, a)}…{_label(array, d, b - 1)}" for d, (a, b) in ends)
            store = store_of(array)
            error.add_note(
                f"that is {name} at {labels}{f' of {store}' if store else ''}: this piece cannot be read. Where the "
                "store is out of reach, try again later; where the piece is damaged, write it again or select data "
                "without it"
            )
        raise


def store_of(data: xr.DataArray) -> str:
    """Return where the values of an opened file or store are, for messages; empty where that cannot be told."""
    if source := data.encoding.get("source"):
        return str(source)
    lazy: Any = data.variable._data
    if data.chunks is not None:
        layers = [layer for name, layer in data.data.dask.layers.items() if name.startswith("original-")]
        lazy = next(iter(layers[0].values())) if len(layers) == 1 else None
    while hasattr(lazy, "array"):  # xarray's lazy indexing, layer by layer
        lazy = lazy.array
    return str(getattr(getattr(lazy, "_array", None), "store_path", ""))


def check_arguments(
    data: xr.DataArray | xr.Dataset, names: Iterable[Any], function: Callable[..., Any]
) -> None:
    """Raise TypeError for a keyword that is no coordinate and the name of an argument of `fit`, or nearly one."""
    known = {*data.coords, *data.dims, *(data.data_vars if isinstance(data, xr.Dataset) else ())}
    arguments = [name for name in inspect.signature(function).parameters if name not in ("data", "bases")]
    for name in names:
        close = [] if name in known else difflib.get_close_matches(str(name), arguments, n=1, cutoff=0.75)
        if close:
            mine = close[0] == name  # as plan(checkpoint=...)
            hint = "fit takes it, this function does not" if mine else f"did you mean {close[0]}=?"
            raise TypeError(
                f"{name!r} is no argument here and no coordinate of the data; {hint}. Coordinates: "
                f"{', '.join(map(str, data.coords)) or 'none'}"
            )

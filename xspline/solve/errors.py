"""Errors and warnings of solves, and the message of a singular system in terms of the user's coordinates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xspline.arguments import warn_caller
from xspline.spaces import Axis, Space

PLAIN = "pass a penalty (penalty=1e-3, say) or use fewer coefficients"
PENALISED = "pass a larger penalty, add a ridge to it (penalty + xs.Ridge(1e-3)), or use fewer coefficients"

NEEDS_DIRECT = (
    "are not available from iterations: pass solver='banded', if memory suffices, or use fewer coefficients"
)


class FitWarning(UserWarning):
    """Something about data or fit that is worth a look; the message says what to do."""


class SingularSystemError(ValueError):
    """The data and the penalty do not determine the coefficients."""


class ConvergenceError(ValueError):
    """An iterative solve did not reach its tolerance, or cannot give what was requested."""


class TooLargeError(ValueError):
    """A solver needs more memory than there is.

    Attributes
    ----------
    cause : which solver needs how much; the message goes on with the reason for it and what to do.
    """

    cause = ""


def warn(message: str) -> None:
    """Warn at the line of code outside xspline that led here."""
    warn_caller(message, FitWarning)


def nothing_determined(
    space: Space,
    observed: NDArray[np.bool_],
    weakest: int = 0,
    *,
    penalised: bool = False,
    observations: int | None = None,
) -> SingularSystemError:
    """The error of a solve of which nothing is determined.

    `observed`, [K.., batch members], tells whether a coefficient has observations, and `weakest` is the flat index (C
    order) of the one that depends most on the others. `observations` is the number of them, if known: the largest of
    any member.
    """
    batch_size = observed.shape[-1]
    touched: NDArray[np.bool_] = np.asarray(observed.any(axis=-1))
    lead = "" if batch_size == 1 else f"none of the {batch_size} batch members is determined: "
    if not touched.any():
        domains = []
        for name, features in zip(space.names, space.features, strict=True):
            axis, domain = space.axis(name), features.domain
            ends = "unbounded" if domain is None else " to ".join(_text(axis, x) for x in domain)
            domains.append(f"{name} {ends}")
        return SingularSystemError(
            f"{lead}there are no observations: every value is missing, outside the domains or has zero weight; "
            f"compare the coordinates of the data with the domains of the space: {', '.join(domains)}"
        )
    empty = np.argwhere(~touched)
    if len(empty):
        parts = []  # ranges of the coordinates of empty coefficients; one over a whole coordinate is left out
        for j, name in enumerate(space.names):
            indices = np.unique(empty[:, j])
            if indices[0] > 0 or indices[-1] < space.shape[j] - 1:
                labels = _labels(space, j)
                first, last = labels[indices[0]], labels[indices[-1]]
                parts.append(f"{name} {first}" if first == last else f"{name} {first} to {last}")
        verb = "has" if len(empty) == 1 else "have"
        place = f"around {', '.join(parts)}" if parts else "scattered over the whole domain"
        cause = f"{len(empty)} of {space.size} coefficients {verb} no observations, {place}"
    elif observations is not None and observations < space.size:
        cause = f"{observations} observations do not determine {space.size} coefficients"
    else:
        names = enumerate(zip(space.names, np.unravel_index(weakest, space.shape), strict=True))
        place = ", ".join(f"{name} {_labels(space, j)[i]}" for j, (name, i) in names)
        cause = f"the {space.size} coefficients are nearly dependent, most of all the one at {place}"
    return SingularSystemError(f"{lead}{cause}; {PENALISED if penalised else PLAIN}")


def _labels(space: Space, j: int) -> list[str]:
    """Where each coefficient of a coordinate sits: its Greville point inside the domain, or its name."""
    axis, features = space.axis(space.names[j]), space.features[j]
    points = features.labels()
    if isinstance(points, np.ndarray) and points.dtype.kind == "f":
        low, high = features.domain or (-np.inf, np.inf)
        return [_text(axis, float(x)) for x in np.clip(points, low, high)]
    return [str(label) for label in points]


def _text(axis: Axis, x: float) -> str:
    """A label to read, not to compute with: five digits, or whole seconds."""
    return f"{x:.5g}" if axis.kind == "number" else axis.text(float(round(x)))

"""The error of a system that has no unique solution, in the words of the user's coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from xspline.spaces import Axis, Features, Space

NEXT_STEP = "pass a penalty (penalty=1e-3, say) or use fewer coefficients"


class SingularSystemError(ValueError):
    """The data and the penalty do not determine the coefficients."""


def nothing_determined(
    space: Space, observed: NDArray[np.bool_], weakest: int, observations: int | None = None
) -> SingularSystemError:
    """The error of a solve of which nothing is determined.

    Parameters
    ----------
    space : Space
    observed : ndarray of bool, [K.., members]
        Whether a coefficient has observations.
    weakest : int
        Flat index (C order) of the coefficient that depends most on the others.
    observations : int, optional
        Number of observations, if known: the largest of any member.
    """
    members = observed.shape[-1]
    touched: NDArray[np.bool_] = np.asarray(observed.any(axis=-1))
    lead = "" if members == 1 else f"none of the {members} batch members is determined: "
    return SingularSystemError(lead + _cause(space, touched, weakest, observations))


def _cause(space: Space, observed: NDArray[np.bool_], weakest: int, observations: int | None) -> str:
    if not observed.any():
        return (
            "there are no observations: every value is missing, outside the domains or has zero weight; "
            f"compare the coordinates of the data with the domains of the space: {_domains(space)}"
        )
    empty = np.argwhere(~observed)
    if len(empty):
        where = _box(space, empty)
        verb = "coefficient has" if len(empty) == 1 else "coefficients have"
        return f"{len(empty)} of {space.size} {verb} no observations{where}; {NEXT_STEP}"
    if observations is not None and observations < space.size:
        return f"{observations} observations do not determine {space.size} coefficients; {NEXT_STEP}"
    place = ", ".join(
        f"{name} {_labels(space, j)[i]}"
        for j, (name, i) in enumerate(zip(space.names, np.unravel_index(weakest, space.shape), strict=True))
    )
    return f"the {space.size} coefficients are nearly dependent, most of all the one at {place}; {NEXT_STEP}"


def _box(space: Space, empty: NDArray[np.intp]) -> str:
    """Ranges of the coordinates of empty coefficients; a coordinate that is empty throughout is left out."""
    parts = []
    for j, name in enumerate(space.names):
        indices = np.unique(empty[:, j])
        if len(indices) < space.shape[j]:
            labels = _labels(space, j)
            first, last = labels[indices[0]], labels[indices[-1]]
            parts.append(f"{name} {first}" if first == last else f"{name} {first} to {last}")
    return f", around {', '.join(parts)}" if parts else ", scattered over the whole domain"


def _labels(space: Space, j: int) -> list[str]:
    """Where each coefficient of a coordinate sits: its Greville point inside the domain, or its name."""
    axis, features = space.axes[space.names[j]][0], space.features[j]
    points = features.labels()
    if isinstance(points, np.ndarray) and points.dtype.kind == "f":
        low, high = features.domain or (-np.inf, np.inf)
        return [_text(axis, float(x)) for x in np.clip(points, low, high)]
    return [str(label) for label in points]


def _text(axis: Axis, x: float) -> str:
    """A label to read, not to compute with: five digits, or whole seconds."""
    return f"{x:.5g}" if axis.kind == "number" else axis.text(float(round(x)))


def _domains(space: Space) -> str:
    named = zip(space.names, space.features, strict=True)
    return ", ".join(_domain(name, space.axes[name][0], f) for name, f in named)


def _domain(name: str, axis: Axis, features: Features) -> str:
    if features.domain is None:
        return f"{name} unbounded"
    return f"{name} {_text(axis, features.domain[0])} to {_text(axis, features.domain[1])}"

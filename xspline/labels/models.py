"""The paper's second merge: fields that were fitted already, matched in their predictions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from xspline.labels.field import Field
from xspline.labels.statistics import Part, Statistics, merge
from xspline.sums import Sums


def merge_models(fields: Iterable[Field], penalty: Any = 0.0, *, solver: str | None = None) -> Field:
    """Merge fitted fields: c = (Σ G_s + Λ)⁻¹ Σ G_s c_s (paper, section 2.4, the prediction-matching merge).

    The field that is nearest to the predictions of every model at that model's own observations. It needs no moments
    of the data, and is the data merge where each model is at its unregularised optimum, G_s c_s = h_s.

    Parameters
    ----------
    fields
        Fields in one Space, each with its own statistics.
    penalty
        As for :meth:`Statistics.solve`; none by default, since the models are smooth already.
    solver
        As for :meth:`Statistics.solve`.

    Returns
    -------
    Field
        Its statistics hold predictions in place of observations: residuals are those against the models.

    Raises
    ------
    ValueError
        There is no field, the fields live in different spaces, or one does not determine all its coefficients.
    """
    return merge([_predictions(f) for f in fields]).solve(penalty, solver=solver)


def _predictions(field: Field) -> Statistics:
    """Return the statistics of a field's own predictions at its observations."""
    computed = field.compute()
    parts = (_melted(computed, name) for name in computed.variables)
    sums = dict(zip(computed.variables, parts, strict=True))
    holder = "+".join(sorted(computed.statistics.holders))
    one = Part.of(sums, holder, {"predictions of": [p.digest for p in computed.statistics.parts]})
    return replace(computed.statistics, parts=(one,), collapsed=True)


def _melted(field: Field, name: str) -> Sums:
    """Return one variable's sums with Φᵀ W y replaced by G c and yᵀ W y by cᵀ G c, about the same reference."""
    frame, sums = field.space.frame, field.statistics.total(name)
    if not np.isfinite(field.arrays[name]).all():
        raise ValueError(
            f"a model of {name!r} has coefficients that its data do not determine; fit it with a penalty first"
        )
    centred = sums.centred(field.arrays[name], frame)
    moment = sums.gram.matvec(centred, frame)
    axes = tuple(range(len(frame.sizes)))
    window = tuple((0, k) for k in frame.sizes)
    return replace(sums, window=window, moment=moment, power=(centred * moment).sum(axis=axes))

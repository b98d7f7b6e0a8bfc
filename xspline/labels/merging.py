"""The merge of fields that were fitted already, without their data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from xspline.arguments import brief
from xspline.labels.field import Field
from xspline.labels.fit import Fit
from xspline.labels.read.parts import Part
from xspline.labels.statistics import Data, merge
from xspline.sums import Sums


def merge_models(
    fields: Iterable[Field[Data]], penalty: Any = 0.0, *, solver: str | None = None
) -> Field[Data]:
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
        There is no field, the fields live in different spaces, two carry the name of one holder, or one does not
        determine all its coefficients.
    """
    predictions = []  # the statistics of each field's own predictions at its observations
    if not isinstance(fields, Iterable) or hasattr(fields, "dtype"):
        raise TypeError(f"merge_models takes a list of Fields, not {brief(fields)}")
    for i, field in enumerate(fields):
        if not isinstance(field, Field):
            raise TypeError(
                f"merge_models takes Fields, and item {i} is of type {type(field).__name__}; of statistics see xs.merge"
            )
        if field._knows_equation:
            raise TypeError(
                f"merge_models takes fields that least squares and a penalty give, and item {i} knows an equation, "
                "which the merged field would not; merge the statistics (xs.merge) and constrain or solve these"
            )
        computed = field.compute()
        origin = computed.statistics
        provenance = {"predictions of": [part.digest for part in origin.parts], "kinds": origin._kinds}
        sums = {name: _with_predictions(fit) for name, fit in computed.fits.items()}
        part = Part.of(sums, "+".join(sorted(origin.holders)), provenance)
        predictions.append(replace(origin, parts=(part,), _collapsed=True))
    return merge(predictions).solve(penalty, solver=solver)


def _with_predictions(fit: Fit) -> Sums:
    """Return one variable's sums with Φᵀ W y replaced by G c and yᵀ W y by cᵀ G c, about the same reference."""
    frame, sums = fit.space.frame, fit.total
    if not np.isfinite(fit.coefficients).all():
        raise ValueError(
            f"a model of {fit.name!r} has coefficients that its data do not determine; fit it with a penalty first"
        )
    centred = sums.centred(fit.coefficients, frame)
    moment = sums.gram.matvec(centred, frame)
    axes = tuple(range(len(frame.sizes)))
    window = tuple((0, k) for k in frame.sizes)
    return replace(sums, window=window, moment=moment, power=(centred * moment).sum(axis=axes))

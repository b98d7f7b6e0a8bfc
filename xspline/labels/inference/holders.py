"""Holders that differ, as they are asked for: which offsets and noise levels, and the fits with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from xspline import execution
from xspline.arguments import brief, is_number
from xspline.labels.errors import check_names
from xspline.labels.fit import Fit, Request, SolvedApart, batch_labels, solution_of, solve_variables
from xspline.labels.inference.levels import Border, Levels
from xspline.labels.read.parts import Part
from xspline.labels.statistics import Statistics
from xspline.solve import Penalty, SingularSystemError, criterion_of, solve
from xspline.solve.errors import warn
from xspline.sums import Sums


@dataclass(frozen=True)
class Differing:
    """How holders are to differ."""

    names: tuple[str, ...]  # of the holders, in ascending order
    reference: str  # the one that others are compared with
    offsets: bool  # whether offsets are to be estimated
    noise: bool  # whether noise levels are to be estimated
    given: tuple[float, ...] = ()  # standard deviations that were given, else none

    def start(self, batch: tuple[int, ...]) -> Levels:
        """Return levels of no offsets and of the noise that was given, or of equal noise."""
        shape = (len(self.names), *batch)
        ratio = np.ones(shape)
        if self.given:
            square = np.square(self.given) / self.given[self.names.index(self.reference)] ** 2
            ratio = np.broadcast_to(square.reshape(-1, *(1 for _ in batch)), shape).copy()
        return Levels(self.names, self.reference, np.zeros(shape), ratio, self.offsets, self.noise)


def differing(statistics: Statistics[Any], offsets: Any, noise: Any, reference: Any) -> Differing | None:
    """Return how holders are to differ, None where they are not.

    Raises
    ------
    ValueError : arguments that mean nothing; holders cannot be told apart, or offsets not be known from sums.
    """
    if offsets is None and noise is None:
        if reference is not None:
            raise ValueError(
                f"reference={reference!r} is what offsets are against: pass offsets='holders' too"
            )
        return None
    if offsets not in (None, "holders"):
        raise ValueError(f"offsets={brief(offsets)} has to be 'holders', one for each, or None")
    if not (noise in (None, "holders") if isinstance(noise, str | None) else isinstance(noise, Mapping)):
        raise ValueError(
            f"noise={brief(noise)} has to be 'holders', or standard deviations by holder, such as "
            "{'west': 0.5, 'east': 1.0}"
        )
    statistics._check_computed()
    statistics._check_independent("offsets= and noise=")
    names = tuple(sorted(set(statistics.holders)))
    if statistics._collapsed or len(names) < 2:
        why = "were collapsed into one part" if statistics._collapsed else f"are of {len(names)} holder"
        raise ValueError(
            f"these statistics {why} ({', '.join(map(repr, names))}), and offsets and noise levels are of several; "
            "merge those of each, with names: statistics(space, holder=...)"
        )
    counts = {name: sum(part.count for part in statistics.parts if part.holder == name) for name in names}
    reference = max(names, key=counts.__getitem__) if reference is None else reference
    check_names([reference, *(noise if isinstance(noise, Mapping) else ())], names, "holder")
    if offsets is not None and not statistics.space.has_constant:
        raise ValueError(
            f"offsets='holders' needs functions that add up to one, and those of {statistics.space.code()} do not: "
            "sums of each holder's own level are not among theirs; take a basis with a constant along each coordinate"
        )
    given: tuple[float, ...] = ()
    if isinstance(noise, Mapping):
        if missing := [name for name in names if name not in noise]:
            raise ValueError(
                f"noise= has no level of {', '.join(map(repr, missing))}; give one for each holder"
            )
        for name, level in noise.items():
            if not (is_number(level) and 0 < level < np.inf):
                raise ValueError(
                    f"noise={{{name!r}: {brief(level)}}}: a standard deviation is a number above 0"
                )
        given = tuple(float(noise[name]) for name in names)
    return Differing(names, reference, offsets is not None, noise == "holders", given)


def solve_differing(
    statistics: Statistics[Any], wanted: Differing, request: Request
) -> tuple[Statistics[Any], dict[str, Fit]]:
    """Return statistics without the offsets, weighed by the noise of each holder, and the fits to them.

    Levels and strengths are found in turn, so that strengths are chosen as if levels were known.
    """
    if isinstance(request.penalty, SolvedApart):
        raise ValueError(
            "offsets= and noise= are found with penalties that are a matrix, not with Physics; solve without it first, "
            "and constrain that field"
        )
    if wanted.offsets and criterion_of(request.penalty) == "holders":
        raise ValueError(
            "penalty='holders' predicts each holder from the others, which do not know its offset; pass penalty='reml'"
        )
    settled = {name: _settled(statistics, name, wanted, request) for name in statistics.variables}
    frame = statistics.space.frame
    of = [wanted.names.index(part.holder) for part in statistics.parts]
    sums = {
        name: levels.applied([part.sums[name] for part in statistics.parts], of, frame)
        for name, (levels, *_) in settled.items()
    }
    parts = [
        Part.of(
            {name: own[i] for name, own in sums.items()}, part.holder, {**part.provenance, "of": part.digest}
        )
        for i, part in enumerate(statistics.parts)
    ]
    applied = replace(statistics, parts=tuple(parts))
    penalties = {name: penalty for name, (_, penalty, _) in settled.items()}
    fits = solve_variables(applied, penalties, request.solver, request.device)
    own = {name: replace(fit, choice=settled[name][2], levels=settled[name][0]) for name, fit in fits.items()}
    return applied, own


def _settled(
    statistics: Statistics[Any], name: str, wanted: Differing, request: Request, rounds: int = 100
) -> tuple[Levels, Any, dict[str, Any]]:
    """Return the likeliest levels of one variable, the penalty, and how that was chosen.

    The choice follows the levels until these move by a hundredth of their error, and stays then.
    """
    space = statistics.space
    parts = sorted(
        statistics.parts, key=lambda part: part.digest
    )  # the same bits, in whatever order they were merged
    sums = [part.sums[name] for part in parts]
    of = [wanted.names.index(part.holder) for part in parts]
    levels = wanted.start(np.broadcast_shapes(*(s.batch for s in sums)))
    resources = execution.resources(request.device)
    penalty, chosen = request.penalty, criterion_of(request.penalty) is None
    choice: dict[str, Any] = {}
    for round_ in range(rounds):
        applied = levels.applied(sums, of, space.frame)
        total = Sums.merge(applied, space.frame)
        if chosen and isinstance(penalty, Penalty):
            solution = solve(total, space, penalty, request.solver, resources=resources)
        else:
            solution, penalty, choice = solution_of(
                total, space, request.penalty, request.solver, applied, resources
            )
        border = Border(levels, applied, of, solution.factorisation, space.frame)
        if wanted.offsets and not round_:
            levels = replace(levels, ratio=_told(border, name))
            if np.isinf(levels.ratio).any():
                continue
        levels, change = border.improved(solution.coefficients, noise=wanted.noise)
        if change < 1e-6:
            break
        chosen |= change < 0.01
    else:
        warn(
            f"{name}: levels of holders still move after {rounds} rounds, by {change:.2g} of their errors; "
            "give noise={name: standard deviation, ...}"
        )
    return levels, penalty, choice


def _told(border: Border, name: str) -> np.ndarray:
    """Return the ratios, infinite for members whose offsets nothing tells; an error where these are all."""
    levels, determined = border.levels, border.determined
    if not determined.any():
        if not border.weight[levels.names.index(levels.reference)].any():
            raise SingularSystemError(
                f"the reference {levels.reference!r} has no observations of {name!r}, which others could be compared "
                "with; name another one, reference=..."
            )
        free = ", ".join(repr(levels.names[h]) for h in levels.free)
        raise SingularSystemError(
            f"nothing tells the offsets of {free} from the field: the "
            f"observations of {name!r} have to lie beside each other's, or a penalty has to join them; pass a "
            "penalty, such as xs.Roughness(1e-3), or leave a holder out, .without(...)"
        )
    return np.where(determined, levels.ratio, np.inf)


def stored_levels(dataset: xr.Dataset, meta: Mapping[str, Any], name: str, number: int) -> Levels | None:
    """Return the levels of a variable in a Dataset that `Field.to_dataset` returned, if it has some."""
    if (described := meta.get("levels", {}).get(name)) is None:
        return None
    levels = {key: dataset[f"{key}__{number}"].values for key in ("offset", "ratio")}
    return Levels(**described | levels | {"names": tuple(described["names"])})


def levels_of(fit: Fit, what: str) -> xr.Dataset:
    """Return the "offsets" of a solved fit, or the "noise", with their errors, over ``holder``."""
    levels, border = fit.levels, fit.border
    if levels is None or border is None or not (what == "noise" or levels.offsets):
        raise ValueError(
            f"this field has no {what} of holders; merged statistics know them: (a + b).solve({what}='holders')"
        )
    v, dims = fit.variable, ("holder", *fit.variable.batch_dims)
    units = {"units": v.units} if v.units else {}
    sigma = np.broadcast_to(fit.sigma(), border.batch)
    seen = np.where(np.isfinite(levels.ratio) & (border.count > 0), 1.0, np.nan)
    taken = ("holder", "other", "offset", "noise", "stderr", "covariance")
    coords = {"holder": list(levels.names), **batch_labels(v, taken)}
    if what == "noise":
        level = sigma * np.sqrt(levels.ratio) * seen
        error = level / np.sqrt(2 * (border.count - border.edf_of)) if levels.noise else np.zeros(level.shape)
        named = {"long_name": "standard deviation of an observation of weight 1", **units}
        rows = {
            "noise": (dims, level, named),
            "stderr": (dims, error, {"long_name": "its standard error", **units}),
        }
        return xr.Dataset(rows, coords, {"reference": levels.reference})
    covariance = np.zeros((len(levels.names), *levels.offset.shape))
    covariance[np.ix_(levels.free, levels.free)] = border.inverse * sigma**2
    covariance = covariance * seen * seen[:, None]
    named = {"long_name": f"what observations are larger by than those of {levels.reference}", **units}
    error = np.sqrt(np.einsum("ii...->i...", covariance))
    rows = {
        "offset": (dims, levels.offset * seen, named),
        "stderr": (dims, error, {"long_name": "its standard error", **units}),
        "covariance": (
            ("holder", "other", *dims[1:]),
            covariance,
            {"long_name": "covariance of their errors"},
        ),
    }
    return xr.Dataset(rows, coords | {"other": list(levels.names)}, {"reference": levels.reference})


def levels_in_summary(fit: Fit) -> dict[str, xr.DataArray]:
    """Return the rows of a summary that say what holders differ by."""
    if fit.levels is None:
        return {}
    noise = levels_of(fit, "noise")
    rows = {"noise": noise.noise, "noise_stderr": noise.stderr}
    if fit.levels.offsets:
        offsets = levels_of(fit, "offsets").drop_dims("other").drop_vars("other", errors="ignore")
        rows |= {"offset": offsets.offset, "offset_stderr": offsets.stderr}
    return rows

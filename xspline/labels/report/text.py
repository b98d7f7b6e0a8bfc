"""What a field says of itself: its penalty, the line of code that asks for it, its text, its look in a notebook."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from xspline import notebook
from xspline.labels.fit import Fit, Request
from xspline.labels.read import defaults
from xspline.labels.read.observations import Variable
from xspline.labels.report import findings
from xspline.labels.statistics import Statistics
from xspline.solve import penalty_code, rounded
from xspline.spaces import Space


class FieldText:
    """What is told of statistics and the fits that they gave."""

    statistics: Statistics[Any]
    fits: Mapping[str, Fit]
    _request: Request
    _members: ClassVar[str] = ""  # the dimension along which there are draws

    @property
    def space(self) -> Space:
        """The features and their domains."""
        return self.statistics.space

    @property
    def variables(self) -> Mapping[str, Variable]:
        """Labels of each variable."""
        return self.statistics.variables

    @property
    def penalty(self) -> Any:
        """The penalty; by variable where they differ; the name of a criterion while that has not chosen yet."""
        penalties = {name: fit.penalty for name, fit in self.fits.items()}
        first, *others = penalties.values()
        if first is None:
            return self._request.penalty
        return first if all(penalty == first for penalty in others) else penalties

    @property
    @abstractmethod
    def coefficients(self) -> Any:
        """Coefficients with labels."""

    @property
    def is_lazy(self) -> bool:
        """Whether the coefficients are still to be computed."""
        return any(fit.is_lazy for fit in self.fits.values())

    def _check_computed(self) -> None:
        if self.is_lazy:
            raise ValueError("this field is still lazy (compute=False); call .compute() first")

    def code(self) -> str:
        """Return the line of code that asks for this fit, with ``import xspline as xs``.

        What was chosen is spelt out; of a penalty for each of several variables only the criterion. Weights that were
        given, and several holders, are ``...``, to be filled in.
        """
        return self._code(self.penalty)

    def _code(self, penalty: Any) -> str:
        own = self._request.penalty if isinstance(penalty, dict) else penalty
        fine = ", fine=True" if any(fit.whole is not None for fit in self.fits.values()) else ""
        kinds = self.statistics._kinds  # the coordinates along which all observations are means over cells
        cells = ", ".join(f'"{name}": "cells"' for name in kinds[0]) if len(kinds) == 1 else ""
        support = f", support={{{cells}}}" if cells else ""
        variable = next(iter(self.variables.values()))
        spanned = set(variable.batch_dims).union(*variable.spans)
        pooled = "".join(f", {json.dumps(str(d))}: None" for d in variable.dims if d not in spanned)
        bases = f"{defaults.code(self.space)[:-1]}{pooled}}}"
        return f"fit({bases}, penalty={penalty_code(own)}{fine}{support}{self._of_observations})"

    @property
    def _of_observations(self) -> str:
        """The arguments that say what observations are."""
        statistics, fits = self.statistics, self.fits.values()
        holders = {part.provenance.get("holder") for part in statistics.parts}
        robust = any(fit.robust for fit in fits)  # whose weights are its own
        known = not robust and not self.is_lazy and all(fit.levels is None for fit in fits)
        totals = [statistics.total(name) for name in self.variables] if known else []
        weighed = any((total.weight != total.count).any() for total in totals)
        holder = "..." if len(holders) > 1 else json.dumps(*holders, ensure_ascii=False)
        said = {
            "weights": "..." * weighed,
            "robust": "True" * robust,
            "holder": holder if any(holders) else "",
        }
        said["errors"] = statistics._errors
        if levels := next((fit.levels for fit in fits if fit.levels is not None), None):
            said |= {name: '"holders"' * getattr(levels, name) for name in ("offsets", "noise")}
            said["reference"] = json.dumps(levels.reference, ensure_ascii=False)
        return "".join(f", {name}={text}" for name, text in said.items() if text)

    def __repr__(self) -> str:
        bases, (what, value) = [f"{n}: {b!r}" for n, (_, b) in self.space.axes.items()], self._beside_data
        code = self._code(self._rounded_penalty)
        lines = [*bases, *self._fine, *self._notes, f"{what}: {value!r}{self._chosen_by}", f"= {code}"]
        return "\n    ".join([f"<{self._head}>", *lines])

    def _repr_html_(self) -> str:
        space, (what, value) = self.space, self._beside_data
        values = value if isinstance(value, dict) else {", ".join(self.variables): value}
        contents = {
            f"Coefficients ({space.size})": self.coefficients._repr_html_(),
            f"Bases ({len(space.axes)})": notebook.table((n, basis) for n, (_, basis) in space.axes.items()),
            f"{what.capitalize()}{self._chosen_by}": notebook.table(values.items()),
            **({"Fine field": notebook.table((line,) for line in self._fine)} if self._fine else {}),
            "Notes": notebook.table((note,) for note in self._notes),
            "Code": notebook.code(self._code(self._rounded_penalty)),
        }
        kind, _, detail = self._head.partition(" of ")
        return notebook.page(kind, detail, contents, repr(self), closed=tuple(contents)[:1])

    @property
    def _head(self) -> str:
        shape = " x ".join(map(str, self.space.shape))
        state = "lazy" if self.is_lazy else f"{self.statistics.count} observations"
        kind = f"xspline.{type(self).__name__} of {', '.join(self.variables)}"
        fine = " and a fine field" if self._fine else ""
        return f"{kind}: {shape} = {self.space.size} coefficients{fine}, {state}"

    @property
    def _fine(self) -> list[str]:
        """A line for each scale of the fine field of each variable."""
        lines = []
        for name, fit in self.fits.items():
            if fit.whole is not None:
                of = f" of {name}" if len(self.fits) > 1 else ""
                own = fit.whole.text(self.space, fit.variable.units)
                lines += [f"fine field{of}: {line}" for line in own]
        return lines

    @property
    def _beside_data(self) -> tuple[str, Any]:
        """What decides beside the data, to be read: what it is, and its value, or those of several variables."""
        return "penalty", self._rounded_penalty

    @property
    def _chosen_by(self) -> str:
        return f" (by {self._request.penalty!r})" if any(fit.choice for fit in self.fits.values()) else ""

    @property
    def _rounded_penalty(self) -> Any:
        penalty = self.penalty
        if isinstance(penalty, dict):
            return {name: rounded(own) for name, own in penalty.items()}
        return penalty if isinstance(penalty, str) else rounded(penalty)

    @property
    def _notes(self) -> list[str]:
        """What a user may not have expected: the batch, what was left out, and what is worth a look."""
        selected = [f"only {kind} of {n!r}" for f in self.fits.values() for n, kind in f.selected.items()]
        batches = [findings.batch_text(fit, self._members) for fit in self.fits.values()]
        concerns = [
            f"{name}: {finding.text}" if len(self.fits) > 1 else finding.text
            for name, fit in self.fits.items()
            for finding in findings.concerns(fit)
        ]
        levels = [fit.levels.text for fit in self.fits.values() if fit.levels is not None]
        return [text for text in dict.fromkeys([*selected, *batches, *levels, *concerns]) if text]

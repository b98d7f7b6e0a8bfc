"""``xs.Physics``: an equation with known constants as a penalty, and the fit under it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NoReturn

import numpy as np
from scipy.special import chdtri

from xspline.labels.fit import Fit, Request, SolvedApart
from xspline.labels.report import findings
from xspline.labels.statistics import Statistics
from xspline.pde.known import at_nodes
from xspline.pde.physics.constrained import ConstrainedSystem, EquationField
from xspline.pde.physics.prior import EquationPrior
from xspline.pde.profile.axes import Array
from xspline.pde.profile.constraint import Constraints
from xspline.pde.profile.estimate import adequacy_of
from xspline.pde.profile.gauss_newton import ConstrainedLeastSquares
from xspline.pde.profile.problem import order_of
from xspline.pde.profile.scaled_sums import ScaledSums
from xspline.pde.results import ENOUGH, of_the_space, units_of_names
from xspline.pde.text import expression, unit_powers
from xspline.pde.text.equation import Equation, parse
from xspline.pde.text.symbols import Names, Value, arguments_code, checked_known
from xspline.residuals.assumptions import CHANCE
from xspline.solve import Choice, Factorisation, Penalty, Roughness, Solution
from xspline.solve.direct.cholesky import TINY
from xspline.solve.errors import nothing_determined, warn
from xspline.solve.penalties.roughness import spline_degrees
from xspline.solve.progress import told
from xspline.solve.smoothing.fit import centred
from xspline.spaces import Space
from xspline.sums import Gram
from xspline.threads import single_threaded_blas

REML, HARD = "reml", "hard"


@dataclass(frozen=True, eq=False, repr=False)
class Physics(SolvedApart):
    """λ times the mean over the domain of an equation's squared residual, as knots resolve it; constants are known.

    A field that is nearly a solution costs little, whatever its shape: what data leave open, as in a gap, the equation
    decides. With a roughness beside it, ``xs.Roughness() + xs.Physics(...)``, initial and boundary values that no
    observation tells are smooth. The residual is projected on splines of degree p − m on the same knots, as that of
    :func:`xspline.pde.recover`, and the equation has to be linear in the field, unless it holds exactly.

    Parameters
    ----------
    equation : str
        Without unknown constants, for example ``"u_t = D*(u_xx + u_yy) + S"``; see :func:`xspline.pde.recover`.
    strength : float or {"reml", "hard"}
        λ ≥ 0, whatever the grid of the data: the weight of so many observations of the residual, which were all zero,
        each as exact as one of the field of weight 1; in units of the field's over those of the residual, squared. A
        residual that varies faster than the knots resolve counts less, down to not at all: with more knots the same λ
        leaves the field more freedom, so that a number is one of a space. "reml": restricted likelihood chooses it, and
        so how far the field departs from the equation. "hard": the field obeys the equation against all test
        functions, as from :meth:`Field.constrain`: exactly on average over a few knot cells, not at each point, and
        least at the ends of the domain.
    known, dims : mapping, optional
        The constants, sources and coefficients by name, and what letters mean; as for :func:`xspline.pde.recover`.
    beside : Penalty, optional
        What ``+`` adds: penalties of given strength, or one ``Roughness`` by "reml".

    Notes
    -----
    A penalty is a prior: residuals are normal, of standard deviation σ/√λ on average over the domain. Error bars take
    the chosen strengths as known, and a wrong constant for right: one that is off by more than the data bear makes
    "reml" choose a small λ, and takes the error bars from "hard", with a warning. They leave out what the knots do not
    follow, which those of :meth:`Field.constrain` hold. Solved as a band of its own, of one variable without batch
    dimensions.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> x, t = np.linspace(0, 1, 40), np.linspace(0, 1, 30)
    >>> u = np.exp(-0.1 * np.pi**2 * t)[:, None] * np.sin(np.pi * x)
    >>> seen = np.random.default_rng(0).random(u.shape) < 0.2
    >>> data = xr.DataArray(np.where(seen, u, np.nan), {"t": t, "x": x}, name="u")
    >>> diffusion = xs.Physics("u_t = D * u_xx", known={"D": 0.1})
    >>> field = xs.fit(data, x=xs.BSpline(14, 5), t=xs.BSpline(10, 5), penalty=xs.Roughness() + diffusion)
    >>> float(abs(field.predict(x=x, t=t) - u).max()) < 1e-3
    True
    """

    equation: str
    strength: float | str = REML
    known: Mapping[str, Any] | None = None
    dims: Mapping[str, str] | None = None
    beside: Penalty | None = None

    def __post_init__(self) -> None:
        own = self.strength
        checked_known(self.known)
        if isinstance(own, str):
            if own not in (REML, HARD):
                raise ValueError(f"Physics: strength={own!r} is unknown; pass a number, {REML!r} or {HARD!r}")
        elif isinstance(own, bool) or not isinstance(own, Real) or not 0 <= own < math.inf:
            raise ValueError(
                f"Physics: strength={own!r} is not finite and not negative; pass such a number, {REML!r} or {HARD!r}"
            )
        if self.beside is not None and self.beside.criterion:
            rough = self.beside if isinstance(self.beside, Roughness) else None
            if rough is None or rough.criterion != REML or rough.geometry or rough.where:
                raise ValueError(
                    f"{self.beside!r} + Physics: beside an equation restricted likelihood chooses the strengths of a "
                    "Roughness alone, on no sphere and without where=; pass xs.Roughness(), or strengths as numbers"
                )

    @property
    def criterion(self) -> str | None:
        """Reml where it is to choose a strength."""
        return REML if self.strength == REML or (self.beside is not None and self.beside.criterion) else None

    @property
    def parts(self) -> tuple[Penalty, ...]:
        """What is beside it, and the equation."""
        return (*(self.beside.parts if self.beside is not None else ()), replace(self, beside=None))

    def elements(self, space: Space) -> tuple[Penalty, ...]:
        """The same, with those that a part is made of in its place."""
        return (*(self.beside.elements(space) if self.beside is not None else ()), replace(self, beside=None))

    def __add__(self, other: Penalty) -> Physics:  # type: ignore[override]
        if not isinstance(other, Penalty):
            return NotImplemented
        if isinstance(other, Physics):
            raise ValueError(f"{self!r} + {other!r}: a fit takes one equation; constrain holds several")
        return replace(self, beside=other if self.beside is None else self.beside + other)

    __radd__ = __add__

    def gram(self, space: Space) -> NoReturn:
        """Raise ValueError: the matrix couples functions that pair arrays do not hold."""
        raise ValueError(
            f"the matrix of {self!r} is no sum of products over coordinates; pass it to fit or to statistics.solve, "
            "and ask what else there is to know of the statistics (field.statistics)"
        )

    def to_dict(self) -> dict[str, Any]:
        """``{"kind": "physics", "equation": text, "strength": λ, ...}``, for the same program: knowns as they are."""
        beside = None if self.beside is None else self.beside.to_dict()
        known = None if self.known is None else tuple(self.known.items())
        own = {"equation": self.equation, "strength": self.strength, "known": known, "dims": self.dims}
        return {"kind": "physics", **own, "beside": beside}

    def __repr__(self) -> str:
        strength = "" if self.strength == REML else f", {self.strength!r}"
        own = f"Physics({self.equation!r}{strength}{arguments_code(self.known, self.dims)})"
        return own if self.beside is None else f"{self.beside!r} + {own}"

    def choice(self, space: Space) -> Choice:
        """Return the band of its normal equations, at most."""
        widths = []  # at most: a test function meets p + q + 1 functions of the field
        for size, offsets, periodic in zip(space.shape, space.offsets, space.frame.periodic, strict=True):
            widths.append(min((2 * offsets - 1) * (2 if periodic else 1), size) * space.size // size)
        reason = "an equation as a penalty couples functions that no other solver holds"
        band, searched = space.size * min(widths), self.criterion is not None
        held = _bands(space) if searched else 2
        return Choice("equation", reason, 8 * held * band, float(band * min(widths)), searched=searched)

    @single_threaded_blas()
    def field(self, statistics: Statistics[Any], request: Request) -> Any:
        """Return the field under it; see the class for what is refused."""
        name, equation = self._read(statistics, request)
        if not _is_linear(equation):
            if self.strength != HARD or self.beside is not None:
                raise ValueError(
                    f"{equation.text!r} is not linear in the field, and a penalty on its residual would not be "
                    f"quadratic; pass Physics(..., strength={HARD!r}) alone, which holds it exactly"
                )
            return statistics.solve().constrain(equation.text, known=self.known, dims=self.dims)
        if not self.strength:
            return statistics.solve(0 if self.beside is None else self.beside)
        units = units_of_names(equation, self.known or {}, statistics)
        remarks = of_the_space((equation,), statistics, ENOUGH)
        for remark in [*remarks, *unit_powers.of_parameters(equation, units)[1]]:
            warn(f"Physics({equation.text!r}): {remark}")
        with told(f"solving for {statistics.space.size} coefficients under an equation"):
            fit, doubt = _solved(self, equation, statistics, name)
        findings.warn_of({name: fit})
        if doubt:
            warn(doubt)
        return EquationField(statistics, {name: fit}, request, doubt=doubt)

    def _read(self, statistics: Statistics[Any], request: Request) -> tuple[str, Equation]:
        """Return the variable, and the equation with the meaning of its names; raises where it cannot be a penalty."""
        if statistics.is_lazy:
            raise ValueError(
                "a fit with Physics is solved at once, but these statistics are still lazy; leave out "
                "compute=False, or solve statistics.compute()"
            )
        if request.solver is not None:
            raise ValueError(
                f"solver={request.solver!r}: a fit with Physics has a solver of its own; leave it out"
            )
        names = list(statistics.variables)
        if len(names) > 1:
            raise ValueError(
                f"Physics is a penalty of one variable, and there are {', '.join(names)}; solve statistics[name] of "
                "each, or hold a system of them with field.constrain([...])"
            )
        if dims := statistics.variables[names[0]].batch_dims:
            listed = ", ".join(map(str, dims))
            raise ValueError(
                f"Physics is a penalty of one field, and there are independent ones along {listed}; select one "
                f"({dims[0]}=...), fit {listed} too, or pool with {dims[0]}=None"
            )
        equation = parse(
            self.equation, Names.of(statistics, self.dims, self.known or {}), with_parameters=False
        )
        if unknown := [power.parameter for power in equation.terms]:
            raise ValueError(
                f"Physics({self.equation!r}): {', '.join(unknown)} is not known; pass known={{{unknown[0]!r}: ...}}, "
                "or estimate it with field.recover or field.constrain"
            )
        return names[0], equation


Penalty.kinds["physics"] = lambda data: Physics(
    data["equation"],
    data["strength"],
    None if data["known"] is None else dict(data["known"]),
    data["dims"],
    None if data["beside"] is None else Penalty.from_dict(data["beside"]),
)


def _solved(physics: Physics, equation: Equation, statistics: Statistics[Any], name: str) -> tuple[Fit, str]:
    """Return the fit, and why it cannot be believed, which is empty where nothing says so.

    It raises SingularSystemError where data and penalty do not determine the field.
    """
    prior = _prior(physics, equation, statistics, name)
    penalty, remark, doubt = physics, "", ""
    chosen: dict[str, Any] = {}
    strengths = np.array([prior.strongest if isinstance(physics.strength, str) else float(physics.strength)])
    if physics.criterion:
        strengths, penalty, chosen, remark, doubt = _searched(prior, physics, strengths[-1], statistics.space)
    if physics.strength == HARD:
        doubt = _inadequate(prior, statistics.space)
    factor, row = prior.obeying(strengths) if penalty.strength == HARD else prior.solve(strengths)
    space, total = statistics.space, statistics.total(name)
    if not factor.determined:
        observed = total.gram.diagonal(space.frame) > 0
        weakest = int(np.flatnonzero(prior.data.order.index[0].ravel() == factor.weakest)[0])
        raise nothing_determined(space, observed.reshape(*space.shape, 1), weakest, penalised=True)
    doubtful = doubt and physics.strength == HARD
    rss = np.asarray(np.nan if doubtful else max(prior.data.rss(row), 0.0))
    none = np.zeros((len(row), 0))
    system = ConstrainedSystem(prior.data, factor, 0, none, none)
    reason = f"the equation is a penalty, whose normal equations are a band of their own{remark}"
    choice = Choice("equation", reason, system.nbytes, 0.0)
    yes = np.ones((), dtype=np.bool_)
    coefficients = prior.data.with_reference(row)[name]
    solution = Solution(coefficients, rss, yes, Factorisation(choice, system, yes))
    return Fit(statistics, name, coefficients, penalty, chosen, solution), doubt


def _terms(order: int, space: Space) -> list[Gram]:
    """Return a roughness of strength one for each coordinate that has B-splines."""
    names = spline_degrees(space)
    unit = Roughness(dict.fromkeys(names, 1.0), order).gram(space).terms if names else ()
    return [Gram((term,)) for term in unit]


def _bands(space: Space) -> int:
    """Return how many bands a search holds: a roughness along each coordinate, and six others.

    These are G, JᵀJ, a roughness of known strength, their sum, its factor and its inverse.
    """
    return len(spline_degrees(space)) + 6


def _prior(physics: Physics, equation: Equation, statistics: Statistics[Any], name: str) -> EquationPrior:
    space = statistics.space
    names = Names.of(statistics, physics.dims, physics.known or {})

    def known_at(space: Space, coordinates: Any) -> dict[str, Any]:
        own = (physics.known or {}).items()
        return {n: at_nodes(n, value, space, coordinates, names.letters) for n, value in own}

    sums = centred(statistics.total(name), space)
    constraints = Constraints.of(space, (equation,), known_at)
    data = ScaledSums(order_of(constraints, bands=_bands(space)), {name: sums}, {name: 1.0}, {name: 1.0})
    beside, given, terms = physics.beside, Gram(()), []
    if isinstance(beside, Roughness) and beside.criterion:
        terms = _terms(beside.order, space)
    elif beside is not None:
        given = beside.bound(sums.gram, space).gram(space)
    return EquationPrior(data, constraints, given, terms)


def _searched(
    prior: EquationPrior, physics: Physics, fixed: float, space: Space
) -> tuple[Array, Physics, dict[str, Any], str, str]:
    """Return the strengths of the largest restricted likelihood, the penalty with them, and what there is to say."""
    chosen = prior.search(None if physics.strength == REML else fixed)
    names = [n for n in space.names if n in spline_degrees(space)] if prior.terms else []
    beside = physics.beside
    if isinstance(beside, Roughness) and beside.criterion:
        beside = Roughness(dict(zip(names, chosen.strengths[:-1].tolist(), strict=True)), beside.order)
    own, ends, remark, doubt, departure = physics.strength, {-1: "lower", 1: "upper"}, "", "", 0.0
    if own == REML:
        if not chosen.sides[-1]:
            obeying = prior.search(prior.strongest, [chosen.strengths])
            departure = 2 * (obeying.score - chosen.score)
        own = HARD if chosen.sides[-1] > 0 else float(chosen.strengths[-1])
        if chosen.sides[-1] > 0:
            remark = "; the data show no departure from it, and so it holds exactly"
        if chosen.sides[-1] < 0:
            doubt = (
                f"{physics.equation!r} tells nothing of these data, and its strength is at its lower bound: a known is "
                "wrong, or a term or source is missing; look at recover or discover"
            )
    choice = {
        "method": REML,
        "score": chosen.score,
        "factorisations": chosen.evaluations,
        "at_bounds": {n: ends[s] for n, s in zip(names, chosen.sides.tolist(), strict=False) if s},
        "converged": chosen.settled,
        "departure": departure if departure > chdtri(1, CHANCE) else 0.0,  # for one strength more
    }
    return chosen.strengths, replace(physics, strength=own, beside=beside), choice, remark, doubt


def _inadequate(prior: EquationPrior, space: Space) -> str:
    """Return that a field which obeys the equation misses the data by more than noise; empty where none says so.

    By the F ratio against the free fit; where data do not determine that, by the likelihood of a smooth field that may
    depart from the equation.
    """
    search = ConstrainedLeastSquares(prior.data, prior.constraints)
    free = search.data.free
    if free is not None:
        alone = replace(prior, given=Gram(()), terms=())
        factor, row = alone.obeying(alone.even)
        rss = prior.data.rss(row)
        ratio, probability = adequacy_of(search, rss)
        slight = rss - free < TINY * prior.data.power
        told = f"F = {ratio:.3g}, probability {probability:.1g}"
        doubtful = factor.determined and not slight and probability < CHANCE
    else:
        order = min((2, *spline_degrees(space).values()))
        smooth = replace(prior, given=Gram(()), terms=_terms(order, space))
        if not (order and smooth.terms):
            return ""
        free_to_depart = smooth.search()
        obeying = smooth.search(prior.strongest, [free_to_depart.strengths])
        gain = 2 * (obeying.score - free_to_depart.score)
        told = f"twice the gain in log-likelihood of one that need not is {gain:.3g}"
        doubtful = gain > chdtri(1, CHANCE)  # for one strength more
    if not doubtful:
        return ""
    return (
        f"a field that obeys the equation misses the data by more than their noise ({told}): a known is wrong, a term "
        "or source is missing, or the knots do not resolve the field. The field has no error bars; with "
        f"strength={REML!r} it may depart from the equation"
    )


def _is_linear(equation: Equation) -> bool:
    """Whether no derivative of the equation by a value of the field holds one."""
    values = {name for name, symbol in equation.symbols.items() if isinstance(symbol, Value)}
    slopes = [expression.differentiate(equation.response, name) for name in values]
    return not any(expression.names_in(slope) & values for slope in slopes if slope is not None)

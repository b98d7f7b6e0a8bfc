"""The family of penalties that a criterion chooses from, and the solver that its search uses."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from xspline.solve.batch import distinct
from xspline.solve.errors import TooLargeError
from xspline.solve.families.base import Family
from xspline.solve.families.modes import SpaceTimes, space_times
from xspline.solve.families.orders import SeveralOrders, SingleOrder, several_orders, smoothed
from xspline.solve.kronecker.product import VERY_NEARLY, nearly_split
from xspline.solve.parallel import Resources
from xspline.solve.penalties.roughness import Penalty, Roughness, criterion_of, spline_degrees
from xspline.solve.penalties.sobolev import Sobolev
from xspline.solve.penalties.space_time import SpaceTime
from xspline.solve.select import ITERATIVE, NEARLY_SEPARABLE, candidates
from xspline.solve.system import Choice
from xspline.spaces import Space
from xspline.sums import Gram
from xspline.sums.integrals import with_events

ORDER = 2  # of the derivatives that measure roughness, where there is one and the degree allows it


def family_for(
    gram: Gram,
    requested: str | Penalty,
    space: Space,
    solver: str | None = None,
    resources: Resources | None = None,
) -> Family:
    """The family that a penalty is chosen from.

    "reml" chooses among `SpaceTime` penalties where there is a coordinate of season, trend and events, and statistics
    have a factor of its own; else among `Sobolev` penalties of the orders 1 and 2 where a solver that knows the inverse
    takes them in some seconds and all degrees are 2 or more; else, as "gcv" and "holders", a `Roughness` of order 2.

    Parameters
    ----------
    gram : Gram
    requested : {"reml", "gcv", "holders"} or Penalty
    space : Space
    solver, resources
        See `candidates`.
    """
    method, resources = criterion_of(requested) or "", resources or Resources.here()
    names = smoothed(space, method)
    if isinstance(requested, Sobolev):
        requested.metric(space)  # has these derivatives
        if 1 not in requested.orders:
            raise ValueError(
                f"{requested!r}: without order 1 straight lines cost nothing, and no strength of them is to be chosen; "
                f"pass xs.Sobolev({(1, *requested.orders)}), or xs.Roughness({method!r}, order={min(requested.orders)})"
            )
        if (family := several_orders(space, names, tuple(requested.orders))) is None:
            raise ValueError(
                f"{requested!r}: at some knots the field falls apart, so that more than constants cost nothing; pass "
                f"xs.Roughness({method!r})"
            )
        return family
    if isinstance(requested, SpaceTime):
        return space_times(gram, space, names, requested)
    if isinstance(requested, Roughness):
        Roughness(dict.fromkeys(names, 1.0), requested.order).strengths(space)  # has these derivatives
        return SingleOrder(space, names, requested.order)
    single = SingleOrder(space, names, min(ORDER, *spline_degrees(space).values()))
    if requested == "reml" and with_events(space):
        by_modes = _by_modes(gram, single, solver, resources)
        if by_modes is not None:
            return by_modes
    if method == "reml" and (wide := several_orders(space, names)) is not None:
        with suppress(ValueError):
            if (
                solver_for(gram, wide, method, solver, resources).operations
                <= resources.costs.max_exact_reml_flops
            ):
                return wide
    return single


def _by_modes(gram: Gram, other: Family, solver: str | None, resources: Resources) -> SpaceTimes | None:
    """The family that splits by modes of time; None where there is none, or another is searched sooner by far."""
    space, costs = other.space, resources.costs
    with suppress(ValueError):  # some structure is missing
        modes = space_times(gram, space, other.names, SpaceTime())
        choice = solver_for(gram, modes, "reml", solver, resources)
        if choice.name not in ("separable", NEARLY_SEPARABLE):  # modes would save nothing
            return None
        with suppress(ValueError):  # the other one is too large
            rival = solver_for(gram, other, "reml", solver, resources)
            own, theirs = (_worth(c.seconds(space.frame, 1, costs), c, resources) for c in (choice, rival))
            if choice.operations > costs.max_exact_reml_flops and theirs < own:
                return None
        return modes
    return None


def choice_for(
    gram: Gram,
    penalty: Penalty | str,
    space: Space,
    solver: str | None = None,
    resources: Resources | None = None,
) -> Choice:
    """The solver of a fit with a penalty, or with one whose strengths a criterion chooses.

    Parameters
    ----------
    gram : Gram
    penalty : Penalty or {"reml", "gcv", "holders"}
    space : Space
    solver : str, optional
    resources : Resources, optional
        See `candidates`.
    """
    method, resources = criterion_of(penalty), resources or Resources.here()
    if method is None and isinstance(penalty, Penalty):
        matrix = penalty.bound(gram, space).gram(space)
        return candidates(gram, matrix, space.frame, solver, resources=resources)[0]
    family = family_for(gram, penalty, space, solver, resources)
    return solver_for(gram, family, method or "", solver, resources)


def solver_for(gram: Gram, family: Family, method: str, solver: str | None, resources: Resources) -> Choice:
    """The solver of a search: one that knows the inverse; for REML one that iterates, where that would take minutes."""
    matrix, frame = family.unit.gram(family.space), family.space.frame
    single = (
        method == "reml" and int(distinct(gram)[1].max(initial=0)) == 0 and isinstance(family, SingleOrder)
    )

    def iterating(name: str | None) -> Choice | None:
        """The first that does, if it is worth it or asked for, and there is one system only."""
        with suppress(ValueError):
            proposed = candidates(gram, matrix, frame, name, resources=resources) if single else []
            held = resources.costs.searched_solvers
            return next((replace(c, nbytes=held * c.nbytes) for c in proposed if not c.exact), None)
        return None

    if isinstance(family, SpaceTimes) and (nearly := _nearly(gram, matrix, family, solver, resources)):
        return nearly
    iterative = iterating(solver)
    try:
        exact = candidates(gram, matrix, frame, solver, exact=True, resources=resources)[0]
        if isinstance(family, SeveralOrders):  # Λ is factorised too
            alone = family.unit.gram(family.alone)
            own = candidates(alone, Gram(()), family.alone.frame, exact=True, resources=resources)[0]
            nbytes, operations = exact.nbytes + own.nbytes, exact.operations + own.operations
            inverse = exact.searching + own.searching - operations
            exact = replace(exact, nbytes=nbytes, operations=operations, inverse=inverse, searches=2.0)
        if isinstance(family, SpaceTimes) and exact.name == "separable":  # Λ mode by mode as G + Λ is
            inverse, operations = 2 * (exact.searching - exact.operations), 2 * exact.operations
            exact = replace(
                exact, nbytes=2 * exact.nbytes, operations=operations, inverse=inverse, searches=3.0
            )
    except ValueError as error:
        if iterative is None and solver is None:  # one solve would fit in memory, the search does not
            iterative = iterating(ITERATIVE)
        if iterative is None:
            raise
        refusal = error.cause if isinstance(error, TooLargeError) else ""
        return replace(iterative, memory_refusal=refusal, searched=True)
    exact = replace(exact, searched=True)
    if exact.operations <= resources.costs.max_exact_reml_flops:
        return exact
    if iterative is None and solver is None:
        # One solve is faster by a factorisation; a search may be faster by iterations.
        other = iterating(ITERATIVE)
        choices = [exact] if other is None else [exact, replace(other, searched=True)]
        return min(choices, key=lambda c: _worth(c.seconds(frame, 1, resources.costs), c, resources))
    return exact if iterative is None else replace(iterative, searched=True)


def _nearly(
    gram: Gram, matrix: Gram, family: Family, solver: str | None, resources: Resources
) -> Choice | None:
    """The solver where G is nearly a product: one that knows the inverse, if that is sooner; None where it is not."""
    frame, costs = family.space.frame, resources.costs
    if solver not in (None, NEARLY_SEPARABLE) or nearly_split(gram, matrix, frame) is None:
        return None
    choices = [candidates(gram, matrix, frame, NEARLY_SEPARABLE, resources=resources)[0]]
    if solver is None:
        with suppress(ValueError):
            choices += candidates(gram, matrix, frame, exact=True, resources=resources)[:1]
    searched = [replace(choice, searched=True, searches=3.0) for choice in choices]
    if searched[-1].exact and searched[-1].operations <= costs.max_exact_reml_flops:
        if nearly_split(gram, matrix, frame, VERY_NEARLY) is None:  # iterations would take many steps
            return searched[-1]
    return min(searched, key=lambda choice: choice.seconds(frame, 1, costs))


def _worth(seconds: float, choice: Choice, resources: Resources) -> float:
    """Seconds of a search, less what exact answers are worth."""
    costs = resources.costs
    return seconds - costs.iterative_handicap_flops / costs.flops_per_second if choice.exact else seconds

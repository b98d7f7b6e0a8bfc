"""The family of penalties that a criterion chooses from, and the solver that its search uses."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from xspline.solve.batch import distinct
from xspline.solve.costs import Resources
from xspline.solve.errors import TooLargeError
from xspline.solve.families.base import Family
from xspline.solve.families.modes import SpaceTimes, space_times
from xspline.solve.families.orders import OverSea, SeveralOrders, SingleOrder, several_orders, smoothed
from xspline.solve.families.sphere import OnSphere
from xspline.solve.kronecker.product import nearly_split
from xspline.solve.penalties.roughness import Penalty, Roughness, criterion_of, spline_degrees
from xspline.solve.penalties.sobolev import Sobolev
from xspline.solve.penalties.space_time import SpaceTime
from xspline.solve.penalties.sphere import sphere_of, weight_of
from xspline.solve.select import ITERATIVE, NEARLY_SEPARABLE, candidates
from xspline.solve.system import Choice
from xspline.spaces import Space
from xspline.sums import Gram
from xspline.sums.integrals import with_events


def family_for(
    gram: Gram,
    requested: str | Penalty,
    space: Space,
    solver: str | None = None,
    resources: Resources | None = None,
) -> Family:
    """Return the family that a penalty is chosen from.

    "reml" chooses among `SpaceTime` penalties where there is a coordinate of season, trend and events, and statistics
    have a factor of its own; else among `Sobolev` penalties of the orders 1 and 2 where a solver that knows the inverse
    takes them in some seconds and all degrees are 2 or more; else, as "gcv" and "holders", a `Roughness` of order 2.
    For `solver` and `resources` see `candidates`.
    """
    method = criterion_of(requested) or ""
    resources = resources or Resources.here()
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
        if requested.geometry:
            sphere_of(space, repr(requested))
        Roughness(1.0, requested.order, requested.geometry).strengths(space)  # has these derivatives
        if requested.geometry:
            return OnSphere(space, names, weight_of(gram, space))
        if requested.where is not None:
            return OverSea(space, names, requested.order, requested.where)
        return SingleOrder(space, names, requested.order)
    single = SingleOrder(space, names, min(Roughness().order, *spline_degrees(space).values()))
    if requested == "reml" and with_events(space):
        with suppress(ValueError):  # some structure is missing
            modes = space_times(gram, space, names, SpaceTime())
            if solver_for(gram, modes, requested, solver, resources).name in ("separable", NEARLY_SEPARABLE):
                return modes  # which would save nothing elsewhere
    if method == "reml" and (wide := several_orders(space, names)) is not None:
        with suppress(ValueError):
            choice = solver_for(gram, wide, method, solver, resources)
            if choice.operations <= resources.costs.max_exact_reml_flops:
                return wide
    return single


def choice_for(
    gram: Gram,
    penalty: Penalty | str,
    space: Space,
    solver: str | None = None,
    resources: Resources | None = None,
) -> Choice:
    """Return the solver of a fit with a penalty, or with one whose strengths a criterion chooses.

    A criterion is "reml", "gcv" or "holders"; for `resources` see `candidates`.
    """
    method = criterion_of(penalty)
    resources = resources or Resources.here()
    if method is None and isinstance(penalty, Penalty):
        matrix = penalty.bound(gram, space).gram(space)
        return candidates(gram, matrix, space.frame, solver, resources=resources)[0]
    family = family_for(gram, penalty, space, solver, resources)
    return solver_for(gram, family, method or "", solver, resources)


def solver_for(gram: Gram, family: Family, method: str, solver: str | None, resources: Resources) -> Choice:
    """Return the solver of a search for the strengths of a family.

    It is one that knows the inverse. For REML it is one that iterates, where the other would take minutes. The method
    is "reml", "gcv" or "holders"; for `solver` and `resources` see `candidates`.
    """
    matrix = family.unit.gram(family.space)
    frame = family.space.frame
    costs = resources.costs
    if isinstance(family, SpaceTimes) and (nearly := _nearly(gram, matrix, family, solver, resources)):
        return nearly
    iterative = _iterative(gram, matrix, family, method, solver, resources)
    try:
        exact = _exact(gram, matrix, family, solver, resources)
    except ValueError as error:
        if iterative is None:
            raise
        return replace(iterative, memory_refusal=error.cause if isinstance(error, TooLargeError) else "")
    if iterative is None or exact.operations <= costs.max_exact_reml_flops:
        return exact
    # What knows the inverse is worth some seconds more.
    worth = costs.iterative_handicap_flops / costs.flops_per_second
    slower = exact.seconds(frame, 1, costs) > iterative.seconds(frame, 1, costs) + worth
    return iterative if slower else exact


def _iterative(
    gram: Gram, matrix: Gram, family: Family, method: str, solver: str | None, resources: Resources
) -> Choice | None:
    """Return the solver that iterates and estimates REML from probes; None where there is none.

    Probes are those of one system, and log|Λ|₊ is one of eigenvalues: large penalties are not factorised.
    """
    of_eigenvalues = isinstance(family, SingleOrder | OnSphere) and not isinstance(family, OverSea)
    if method != "reml" or not of_eigenvalues or int(distinct(gram)[1].max(initial=0)) > 0:
        return None
    frame = family.space.frame
    for name in (solver,) if solver else (None, ITERATIVE):
        with suppress(ValueError):
            for choice in candidates(gram, matrix, frame, name, resources=resources):
                if not choice.exact:
                    nbytes = resources.costs.searched_solvers * choice.nbytes
                    return replace(choice, nbytes=nbytes, searched=True)
    return None


def _exact(gram: Gram, matrix: Gram, family: Family, solver: str | None, resources: Resources) -> Choice:
    """Return the solver that knows the inverse of G + Λ, with what log|Λ|₊ costs beside it."""
    choice = candidates(gram, matrix, family.space.frame, solver, exact=True, resources=resources)[0]
    nbytes = choice.nbytes
    operations = choice.operations
    inverse = choice.searching - choice.operations
    searches = 1.0
    if isinstance(family, SeveralOrders | OverSea):  # Λ is factorised too, over the smoothed coordinates
        alone = family.unit.gram(family.alone)
        own = candidates(alone, Gram(()), family.alone.frame, exact=True, resources=resources)[0]
        nbytes += own.nbytes
        operations += own.operations
        inverse += own.searching - own.operations
        searches = 2.0
    if isinstance(family, SpaceTimes) and choice.name == "separable":  # Λ falls into modes as G + Λ does
        nbytes *= 2
        operations *= 2
        inverse *= 2
        searches = 3.0
    return replace(
        choice, nbytes=nbytes, operations=operations, inverse=inverse, searches=searches, searched=True
    )


def _nearly(
    gram: Gram, matrix: Gram, family: Family, solver: str | None, resources: Resources
) -> Choice | None:
    """Return the solver where G is nearly a product; None where it is not.

    That is one which knows the inverse, where it is sooner, or where iterations would take many steps.
    """
    frame = family.space.frame
    costs = resources.costs
    if solver not in (None, NEARLY_SEPARABLE) or nearly_split(gram, matrix, frame) is None:
        return None
    choices = candidates(gram, matrix, frame, NEARLY_SEPARABLE, resources=resources)[:1]
    if solver is None:
        with suppress(ValueError):
            choices += candidates(gram, matrix, frame, exact=True, resources=resources)[:1]
    *_, last = searched = [replace(choice, searched=True, searches=3.0) for choice in choices]
    if last.exact and last.operations <= costs.max_exact_reml_flops:
        # Where single values are missing, not months, iterations take some 10 steps, not 100.
        if nearly_split(gram, matrix, frame, 0.95) is None:
            return last
    return min(searched, key=lambda choice: choice.seconds(frame, 1, costs))

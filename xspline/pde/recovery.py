"""``field.recover``: from an equation's text to a Dataset of its constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from xspline.labels.field import Field
from xspline.labels.field_base import FieldBase
from xspline.labels.fit import batch_labels
from xspline.labels.read.sizes import SECONDS
from xspline.pde.over_domain import over_domain
from xspline.pde.physics.constrained import ConstrainedField, constrained
from xspline.pde.points.over_points import over_points
from xspline.pde.profile.axes import Unsuitable
from xspline.pde.results import ENOUGH, RESERVED, highest_orders
from xspline.pde.text.equation import Equation, parse_all
from xspline.pde.text.symbols import Names, arguments_code, checked_known
from xspline.solve import TooLargeError
from xspline.solve.costs import COSTS
from xspline.spaces import BSpline, Space

METHODS = ("profile", "weak", "pointwise", "differences")


def recover(
    field: FieldBase[Any],
    equation: str | Sequence[str],
    *,
    known: Mapping[str, Any] | None = None,
    vary: Mapping[str, Any] | None = None,
    dims: Mapping[str, str] | None = None,
    method: str | None = None,
    at: Any = None,
) -> xr.Dataset:
    """Estimate the constants of an equation that a field obeys.

    Parameters
    ----------
    field : Field or Draws
        Its variables go by their names, a single one also by ``u``; ``u_xx`` and ``u_xt`` are derivatives.
    equation : str or sequence of str
        For example ``"u_t + u*u_x = D*(u_xx + u_yy) + S"``: linear in its parameters, which are all names that mean
        nothing else. A parameter may be to a fixed power (``c**2``); that power is what is estimated, and `c` is its
        root. Functions: sin, cos, tan, exp, log, sqrt, tanh, abs. Brackets may have derivatives, ``(u**2/2)_x``.
        Several equations hold at once, such as a system of the variables of a Dataset ("profile" and "weak").
    known : mapping, optional
        What is known, by name: a number; a DataArray; a field, which takes labels in the units of its own fit; a
        function whose arguments are named after coordinates (``lambda x, t: ...``). A DataArray has the labels of the
        points or covers them exactly; for "profile" and "weak", which need it between labels, it is drawn through by
        splines, over fitted coordinates and all of the domain.
    vary : mapping, optional
        Constants that vary in space or time, which the equation writes with their coordinates: ``"u_t = (D(x)*u_x)_x"``
        and ``vary={"D": 6}``. What each is a sum of: a basis or a number of cubic B-splines along each of its
        coordinates, or a mapping of coordinates to these; on the domain of the field, and round its circles. The fewer,
        the surer; too few are found by ``adequacy``.
    dims : mapping, optional
        The fitted coordinate that each letter means. By default coordinates of one letter mean themselves, ``t`` is
        time, ``x`` longitude and ``y`` latitude. Dates are seconds since 1970, also as ``t`` of a known function.
    method : {"profile", "weak", "pointwise", "differences"}, optional
        "profile" takes, of all fields that obey the equation on the whole domain, the one that is nearest to the data,
        from the statistics alone: errors of the constants reach the Cramér-Rao bound, and intervals hold. Where noise
        hides part of the field they are those of a score test, longer to one side, or withheld; the checks say so.
        "weak" is one least squares of the fitted field's residual on smooth test functions, in closed form: errors are
        two to three times the bound; for spaces too large for "profile", and where that does not converge.
        "pointwise" takes exact derivatives of the fitted functions at points, "differences" the paper's central
        differences on the interior of a regular grid: for comparison with the paper, for equations without derivatives
        and where the equation holds at some points only. The noise of derivatives biases both, and they do not know.
        None: "profile" where the equation has derivatives and no `at` is given, else "pointwise"; also where a basis
        or what is known does not suit "profile", which the checks say.
    at : optional
        The points of "pointwise" and "differences", as for ``predict``; None means the fitted labels.

    Returns
    -------
    Dataset
        Over ``parameter`` and the batch dimensions: ``estimate``, ``stderr``, ``lower``, ``upper`` (95 %), and for
        parameters that enter as powers ``raw`` and ``raw_stderr``, those of the power itself; a power that is negative
        where it has no root leaves the estimate NaN. Coordinates: ``units``. Attributes: method, equation, checks and
        assumptions in words. Of points: points, residual_rms, condition_number (variables if there are batch
        dimensions). Of "profile": ``covariance``; ``weak`` and ``weak_stderr``, the weak form for comparison;
        ``resolution``, the error that the knots leave, which is part of stderr (the checks name coordinates of too few
        knots to know); ``sigma``; ``adequacy`` (an F ratio against the fit without the equation) with its
        ``probability``; ``converged``; the attribute ``limited_by``, the coordinate of which errors ask for more knots
        before they are given (empty otherwise); and of several holders
        ``holder_stderr``, which errors that are correlated within a holder leave as it is: of the independent
        contributions of H holders, with H − 1 degrees of freedom. Of a constant D that varies: ``D``, ``D_stderr``,
        ``D_lower`` and ``D_upper`` over evenly spaced labels of its coordinates (pointwise intervals); its coefficients
        are the parameters ``D[0]``, ``D[1]`` and on.

    Raises
    ------
    ValueError
        The equation cannot be read or is not linear in its parameters, a name means nothing, a derivative is above the
        degree, what is known does not cover the points, or nothing is left to estimate from.
    TooLargeError
        "profile" in a space whose band is larger than memory.

    Notes
    -----
    "profile" writes the equation as constraints on the coefficients, its residual on test splines of degree p − m on
    the same knots, m the highest derivative, and minimises the sum of squares of the data under them and the constants
    by Gauss-Newton steps of the method of multipliers (Nocedal and Wright 2006, chapter 17). It knows no initial or
    boundary values and needs none. Standard errors come from the profile information, the Schur complement of the
    constants, and are withheld (NaN), with what to do, where the equation does not fit the data, the knots do not
    resolve the field, or the search does not converge. Where noise in the field adds more than 5 % to that information,
    or a standard error is a quarter of a constant, the ends of an interval are sought by fits with the constant held:
    the Gauss-Newton step that leaves its true value, in its own standard errors, has the t distribution whatever the
    noise, exactly so where the equation is linear in the field (Kleibergen 2002); ``stderr`` is then half the interval
    over Student's t, and the interval is withheld where the data leave it open.

    Degrees of B-splines should exceed the order of derivatives along their coordinate by 2 or more, of which there is a
    warning; ``xs.recover(data, equation)`` chooses a space.

    "pointwise" and "differences" add 1e-8 to the diagonal of the normal equations, as the paper does, or 1e-8 of the
    diagonal where that is less.

    Examples
    --------
    A diffusivity that varies: ``x**2 + 4*x*t + 2*t**2`` solves u_t = (x u_x)_x.

    >>> import numpy as np, xarray as xr, xspline as xs
    >>> x, t = np.linspace(1, 3, 40), np.linspace(0, 1, 30)[:, None]
    >>> u = xr.DataArray(x**2 + 4 * x * t + 2 * t**2, {"t": t[:, 0], "x": x}, ("t", "x"), "u")
    >>> field = xs.fit(u, {"x": xs.BSpline(12, 5), "t": xs.BSpline(8, 5)}, penalty=1e-9)
    >>> found = field.recover("u_t = (D(x)*u_x)_x", vary={"D": 4})
    >>> found.D.interp(x=[1, 2, 3]).round(3).values
    array([1., 2., 3.])
    """
    if method not in (None, *METHODS):
        raise ValueError(
            f"method={method!r} is unknown; use {', '.join(map(repr, METHODS[:-1]))} or {METHODS[-1]!r}"
        )
    field._check_computed()
    given = checked_known(known)
    names = _names(field, dims, given, vary)
    parsed = parse_all(equation, names)
    for variable in {value.variable for each in parsed for value in each.values}:
        batch_labels(field.variables[variable], RESERVED)
    for name, value in given.items() if method is None and at is None else ():
        # An equation that holds everywhere needs what is known everywhere.
        if isinstance(value, xr.DataArray) and bool(value.isnull().any()):
            raise ValueError(
                f"known {name!r} has missing values; fit a field to it and pass that ({name}.spline.fit(...)), or pass "
                "method='pointwise', which leaves such points out"
            )
    if method in ("profile", "weak"):
        if at is not None:
            raise ValueError(
                f"method={method!r} holds the equation on all of the domain and takes no at=; for some points pass "
                "method='pointwise'"
            )
        return over_domain(_fitted(field), parsed, names, given, method)
    reason = ""
    derived = any(value.orders for equation in parsed for value in equation.values)
    if method is None and at is None and derived and isinstance(field, Field):
        try:
            return over_domain(_fitted(field), parsed, names, given, "profile")
        except TooLargeError as error:
            return over_domain(_fitted(field), parsed, names, given, "weak", f"method='weak': {error}")
        except Unsuitable as error:
            reason = f"method='pointwise': {error}"
    if len(parsed) > 1:
        raise ValueError(
            f"a system of {len(parsed)} equations takes method='profile' or 'weak'{'; ' + reason if reason else ''}"
        )
    return over_points(field, parsed[0], names, given, method or "pointwise", at, reason)


def constrain(
    field: Field[Any],
    equation: str | Sequence[str],
    *,
    known: Mapping[str, Any] | None = None,
    vary: Mapping[str, Any] | None = None,
    dims: Mapping[str, str] | None = None,
) -> ConstrainedField[Any]:
    """Return the field that obeys an equation and is nearest to the data.

    It obeys against test functions, as many as the equation determines: on average over a few knot cells.

    Its errors are those of initial and boundary values and of the constants, which the data have to tell; all else
    the equation does. No smoothness is asked of these values, so that errors are large at the very edges.

    Parameters
    ----------
    field : Field
        Without batch dimensions.
    equation, known, vary, dims
        As for :func:`recover`; all constants may be known.

    Returns
    -------
    ConstrainedField
        With ``constants``, as of ``recover``. It has no error bars, and there is a warning, where those of the
        constants are withheld. It is not stored in files.

    Raises
    ------
    ValueError
        As ``recover`` of method "profile".
    """
    given = checked_known(known)
    names = _names(field, dims, given, vary)
    field._check_computed()
    text = equation if isinstance(equation, str) else list(equation)
    call = f"constrain({text!r}{arguments_code(known, dims, vary)})"
    return constrained(_fitted(field), parse_all(equation, names, with_parameters=False), names, given, call)


def bases_for(
    space: Space, cells: Mapping[str, int], equations: Sequence[Equation], observations: int
) -> dict[str, BSpline]:
    """Return B-splines in which the constants of equations can be found.

    Each has two degrees more than the highest derivative along its coordinate, at least 3, and as many cells as are
    requested. Where there would be more functions than observations, so that noise passes for initial and boundary
    values, or a search in a band that wide would take more than `SECONDS` on one core, all coordinates have fewer cells
    by one factor. The number of cells is even, so that every second knot can be left out. `space` has the
    coordinates of the data, whatever its bases, and `cells` are the knot cells that the labels of each coordinate
    support.
    """
    variables = len({value.variable for e in equations for value in e.values})
    orders = {name: highest_orders(equations).get(name, 0) for name in space.names}
    degrees = {name: max(order + ENOUGH, 3) for name, order in orders.items()}
    factor, fewest = 1.0, 4
    while True:
        own = {n: max(2 * round(cells[n] * factor / 2), fewest) for n in space.names}
        sizes = {
            n: max(k, degrees[n] + 1) if goes_round else k + degrees[n]
            for (n, k), goes_round in zip(own.items(), space.frame.periodic, strict=True)
        }
        size = variables * math.prod(sizes.values())
        widths = [  # what a test of degree p − m reaches, twice that on a circle
            min(2 * degrees[n] - orders[n] + 1, sizes[n]) * (1 + goes_round) * size // sizes[n]
            for n, goes_round in zip(space.names, space.frame.periodic, strict=True)
        ]
        flops = COSTS.search_steps * size * min(widths) ** 2
        few = math.prod(sizes.values()) <= observations
        if (few and flops <= SECONDS * COSTS.flops_per_second) or max(own.values()) == fewest:
            return {n: BSpline(sizes[n], degrees[n]) for n in space.names}
        factor *= 0.95


def _names(
    field: FieldBase[Any],
    dims: Mapping[str, str] | None,
    known: Mapping[str, Any] | None,
    vary: Mapping[str, Any] | None,
) -> Names:
    """Return what names mean; those of constants that vary are variables of the result too."""
    names = Names.of(field, dims, known or {}, vary)
    for name in names.vary:
        if name in RESERVED | names.batch:
            raise ValueError(f"{name} in vary= is what a result calls something else; choose another name")
    return names


def _fitted(field: FieldBase[Any]) -> Field[Any]:
    """Return the field; draws have no statistics of their own. They raise TypeError."""
    if not isinstance(field, Field):
        raise TypeError(
            "draws have no observations of their own; ask the field that they were drawn from, or pass "
            "method='pointwise'"
        )
    return field

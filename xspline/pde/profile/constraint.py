"""Equations as constraints on coefficients: residuals on test functions, and their derivatives by all unknowns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from xspline.pde.profile.axes import Array, Pairs, ProjectedCoordinate
from xspline.pde.text import expression
from xspline.pde.text.equation import Equation, Power
from xspline.pde.text.symbols import CoordinateSymbol, Shape, Value
from xspline.solve.multigrid.spaces import times_axis
from xspline.spaces import Space


@dataclass(frozen=True, eq=False)
class Constraint:
    """One equation as a residual on test functions, r = ∫ψ (response − Σ_k τ_k term_k).

    `parameters` are those of all equations; τ_k is the power in which a parameter enters. `names` and `coordinates` are
    in Space order, and `known` has the values at the nodes of what is known and of coordinates, by name. With `smooth`
    the test functions are those of a weak form, which are few and smooth.
    """

    equation: Equation
    parameters: tuple[Power, ...]
    names: tuple[str, ...]
    coordinates: tuple[ProjectedCoordinate, ...]
    known: Mapping[str, Any]
    smooth: bool = False

    @cached_property
    def pairs(self) -> tuple[Pairs, ...]:
        """The test functions and the functions of the field along each coordinate."""
        highest = [max(dict(value.orders).get(n, 0) for value in self.equation.values) for n in self.names]
        both = list(zip(self.coordinates, highest, strict=True))
        return tuple(Pairs(c, c.smooth_tests(m) if self.smooth else c.tests(m)) for c, m in both)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of test functions along each coordinate."""
        return tuple(len(pairs.tests) for pairs in self.pairs)

    @cached_property
    def fields(self) -> dict[str, Value]:
        """The names that stand for the field or a derivative of it."""
        return {n: s for n, s in self.equation.symbols.items() if isinstance(s, Value)}

    @cached_property
    def _symbolic(self) -> dict[str, tuple[Any, list[Any]]]:
        """The derivatives of the response and of each term by each value of the field."""
        terms = [self.equation.terms.get(power) for power in self.parameters]
        return {
            name: (
                expression.differentiate(self.equation.response, name),
                [None if term is None else expression.differentiate(term, name) for term in terms],
            )
            for name in self.fields
        }

    def orders(self, value: Value) -> tuple[int, ...]:
        """Return the order of a derivative along each coordinate."""
        by_name = dict(value.orders)
        return tuple(by_name.get(name, 0) for name in self.names)

    def environment(self, coefficients: Mapping[str, Array]) -> dict[str, Any]:
        """Return what each name of the equation is at the nodes."""
        values = dict(self.known)
        for name, value in self.fields.items():
            values[name] = self.derivative(coefficients, value)
        return values

    def derivative(self, coefficients: Mapping[str, Array], value: Value) -> Array:
        """Return a variable, or a derivative of it, at the nodes."""
        array = coefficients[value.variable]
        for axis, order in enumerate(self.orders(value)):
            array = times_axis(self.coordinates[axis].values(order), array, axis)
        return array

    def project(self, values: Any) -> Array:
        """Return the integrals of values at the nodes with all test functions, [I..]."""
        nodes = tuple(c.nodes.size for c in self.coordinates)
        out = np.broadcast_to(np.asarray(values, np.float64), nodes)
        for axis, pairs in enumerate(self.pairs):
            out = times_axis(pairs.tests, out, axis)
        return out

    def residual(self, coefficients: Mapping[str, Array], tau: Array) -> Array:
        """Return the residuals r, [I..]."""
        return self.residual_of(self.environment(coefficients), tau)

    def residual_of(self, values: Mapping[str, Any], tau: Array) -> Array:
        """Return the residuals r, [I..], from what the names are at the nodes."""
        return self.project(
            self._combined(self.equation.response, list(self.equation.terms.items()), tau, values)
        )

    def by_parameter(self, values: Mapping[str, Any]) -> Array:
        """Return ∂r/∂τ, [k, I..]."""
        rows = np.zeros((len(self.parameters), *self.shape))
        for k, power in enumerate(self.parameters):
            if power in self.equation.terms:
                rows[k] = -self.project(_evaluate(self.equation.terms[power], values))
        return rows

    def by_value(self, values: Mapping[str, Any], tau: Array) -> dict[str, Any]:
        """Return the derivative of the equation by each value of the field, as a number or at the nodes."""
        out = {}
        for name in self.fields:
            response, terms = self._symbolic[name]
            known = [(p, term) for p, term in zip(self.parameters, terms, strict=True) if term is not None]
            out[name] = self._combined(response, known, tau, values)
        return out

    def pulled_back(self, by_value: Mapping[str, Any], rows: Array) -> dict[str, Array]:
        """Return rows of numbers [I..] times ∂r/∂c, by variable: [K..]."""
        at_nodes = rows
        for axis, pairs in enumerate(self.pairs):
            at_nodes = times_axis(pairs.tests.T, at_nodes, axis)
        # By variable and the orders along the axes that are left: what shares these is summed first.
        parts: dict[tuple[str, tuple[int, ...]], Array] = {}
        for name, value in self.fields.items():
            key = value.variable, self.orders(value)
            parts[key] = parts.get(key, 0.0) + at_nodes * by_value[name]
        for axis, coordinate in enumerate(self.coordinates):
            before, parts = parts, {}
            for (variable, (order, *left)), array in before.items():
                key = variable, tuple(left)
                parts[key] = parts.get(key, 0.0) + times_axis(coordinate.values(order).T, array, axis)
        return {variable: array for (variable, _), array in parts.items()}

    def by_coefficient(self, by_value: Mapping[str, Any]) -> dict[str, Array]:
        """Return ∂r/∂c by variable, for the pairs of test and function that meet: [pairs..]."""
        out: dict[str, Array] = {}
        for name, value in self.fields.items():
            entries = self._integrals(by_value[name], self.orders(value))
            previous = out.get(value.variable)
            out[value.variable] = entries if previous is None else np.add(previous, entries, out=previous)
        return out

    def _combined(
        self, response: Any, terms: Sequence[tuple[Power, Any]], tau: Array, values: Mapping[str, Any]
    ) -> Any:
        total = 0.0 if response is None else _evaluate(response, values)
        for power, term in terms:
            total = total - tau[self.parameters.index(power)] * _evaluate(term, values)
        return total

    def _integrals(self, factor: Any, orders: tuple[int, ...]) -> Array:
        """Return the integrals of each test times a factor times a derivative of its function."""
        if np.size(factor) == 1:
            vectors = [pairs.integrals(order) for pairs, order in zip(self.pairs, orders, strict=True)]
            return np.asarray(float(np.ravel(factor)[0]) * math.prod(np.ix_(*vectors)))
        out = np.broadcast_to(factor, tuple(c.nodes.size for c in self.coordinates))
        for axis, (pairs, order) in enumerate(zip(self.pairs, orders, strict=True)):
            out = times_axis(pairs.weights(order), out, axis)
        return np.ascontiguousarray(out)


@dataclass(frozen=True, eq=False)
class Constraints:
    """Equations that hold at once, over the coefficients of one or several variables.

    Unknown are the coefficients of `variables`, over one space.
    """

    space: Space
    variables: tuple[str, ...]
    parameters: tuple[Power, ...]
    each: tuple[Constraint, ...]

    @staticmethod
    def of(
        space: Space,
        equations: Sequence[Equation],
        known_at: Callable[[Space, Sequence[ProjectedCoordinate]], Mapping[str, Any]],
    ) -> Constraints:
        """Return the constraints of equations; `known_at` gives what is known at the nodes, by name."""
        coordinates = tuple(ProjectedCoordinate.of(space, axis) for axis in range(len(space.names)))
        at_nodes: dict[str, Any] = dict(known_at(space, coordinates))
        parameters = tuple(dict.fromkeys(power for equation in equations for power in equation.terms))

        def along(name: str, function: Callable[[Array], Any]) -> Any:
            """Return a function of the nodes of one coordinate, with an axis for each coordinate."""
            axis = space.names.index(name)
            shape = [1] * len(coordinates)
            shape[axis] = -1
            return np.reshape(function(coordinates[axis].nodes), shape)

        for name, symbol in (both for equation in equations for both in equation.symbols.items()):
            match symbol:
                case CoordinateSymbol(name=coordinate):
                    at_nodes[name] = along(coordinate, np.asarray)
                case Shape():
                    at_nodes[name] = symbol.value(along)
        variables = tuple(dict.fromkeys(value.variable for e in equations for value in e.values))
        each = tuple(
            Constraint(equation, parameters, space.names, coordinates, at_nodes) for equation in equations
        )
        return Constraints(space, variables, parameters, each)

    @property
    def count(self) -> int:
        """The number of constraints."""
        return sum(math.prod(constraint.shape) for constraint in self.each)

    @property
    def size(self) -> int:
        """The number of coefficients."""
        return len(self.variables) * self.space.size


def _evaluate(node: Any, values: Mapping[str, Any]) -> Any:
    with np.errstate(all="ignore"):
        return expression.evaluate(node, values)

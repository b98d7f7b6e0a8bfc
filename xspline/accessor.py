"""``.spline`` on xarray's objects: the functions of the same names, with the data left out, and no state."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import xarray as xr

from xspline import fitting
from xspline.arguments import checked
from xspline.labels.errors import check_names, unknown_name

Result = TypeVar("Result")


def _method(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function of data as a method with the same documentation and the same other parameters."""

    @functools.wraps(function)
    def method(self: SplineAccessor, /, *args: Any, **kwargs: Any) -> Result:
        return function(self._data, *args, **kwargs)

    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    parameters[0] = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    method.__qualname__ = f"SplineAccessor.{function.__name__}"
    return method


class SplineAccessor:
    """Fits smooth, differentiable fields; see :func:`xspline.fit`."""

    def __init__(self, data: xr.DataArray | xr.Dataset) -> None:
        self._data = data

    fit = _method(fitting.fit)
    statistics = _method(fitting.statistics)
    space = _method(fitting.space)
    plan = _method(fitting.plan)
    recover = _method(fitting.recover)
    constrain = _method(fitting.constrain)
    discover = _method(fitting.discover)


class TreeAccessor:
    """Fits a field to each node of a tree of Datasets; see :func:`xspline.fit`."""

    def __init__(self, tree: xr.DataTree) -> None:
        self._tree = tree

    @checked
    def fit(
        self, space: Any = None, *, variables: str | Iterable[str] | None = None, **options: Any
    ) -> dict[str, fitting.Field[xr.Dataset]]:
        """Fit the Dataset of each node, with the coordinates that it inherits.

        Parameters
        ----------
        space, **options
            As for :func:`xspline.fit`. A DataTree, as of ``weights``, gives each node the Dataset at its path.
        variables
            Names of the variables to fit; nodes that have none of them are left out. None: all that are numbers.

        Returns
        -------
        dict
            The field of each node that has such variables, by its path.

        Raises
        ------
        ValueError
            No node has variables to fit; and whatever :func:`xspline.fit` raises, with the path of the node.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x, noise = np.linspace(0, 10, 200), np.random.default_rng(0).normal(0, 0.1, (2, 200))
        >>> runs = {
        ...     f"/model/run{i}": xr.Dataset({"u": ("x", np.sin(x) + noise[i])}, {"x": x}) for i in (0, 1)
        ... }
        >>> fields = xr.DataTree.from_dict(runs).spline.fit(x=12)
        >>> list(fields)
        ['/model/run0', '/model/run1']
        >>> smooth = xr.DataTree.from_dict({path: field.predict() for path, field in fields.items()})
        >>> smooth["/model/run1/u"].sizes["x"]
        200
        """
        return self._each(fitting.fit, space, variables, options)

    @checked
    def statistics(
        self, space: Any = None, *, variables: str | Iterable[str] | None = None, **options: Any
    ) -> dict[str, fitting.Statistics[xr.Dataset]]:
        """Compute the statistics of each node, whose holder is its path unless ``holder=`` says another.

        Parameters
        ----------
        space, variables, **options
            As for :meth:`fit` and :func:`xspline.statistics`.

        Returns
        -------
        dict
            The statistics of each node, by its path. Those of one space add up: ``xs.merge(parts.values())``.

        Examples
        --------
        >>> import numpy as np, xarray as xr, xspline as xs
        >>> x = np.linspace(0, 10, 200)
        >>> ships = {f"/ship{i}": xr.Dataset({"u": ("x", np.sin(x + i / 9))}, {"x": x}) for i in (0, 1)}
        >>> parts = xr.DataTree.from_dict(ships).spline.statistics(x=xs.BSpline(12, domain=(0, 10)))
        >>> xs.merge(parts.values()).holders
        ('/ship0', '/ship1')
        """
        return self._each(fitting.statistics, space, variables, options)

    def _each(
        self,
        function: Callable[..., Any],
        space: Any,
        variables: str | Iterable[str] | None,
        options: dict[str, Any],
    ) -> dict[str, Any]:
        """Return what a function makes of the variables of each node by its path, the holder of its statistics."""
        wanted = [variables] if isinstance(variables, str) else None if variables is None else list(variables)
        results, names = {}, dict[str, None]()
        for node in self._tree.subtree:
            data = node.to_dataset()
            names |= dict.fromkeys(map(str, data.data_vars))
            if wanted is not None:
                data = data[[name for name in wanted if name in data.data_vars]]
            if not any(v.dtype.kind in "iuf" for v in data.data_vars.values()):
                continue
            own = {key: _at_node(key, option, node.path) for key, option in options.items()}
            if function is fitting.statistics and own.get("holder") is None:
                own["holder"] = node.path
            try:
                results[node.path] = function(data, space, **own)
            except Exception as error:
                error.add_note(f"that is the node {node.path!r} of the tree")
                raise
        if not results:
            raise unknown_name(str(variables or "of numbers"), "variable of any node", names)
        return results


def _at_node(key: str, option: Any, path: str) -> Any:
    """Return an option, and of a tree the Dataset at the path of a node."""
    if not isinstance(option, xr.DataTree):
        return option
    check_names([path], (node.path for node in option.subtree), f"node of {key}=")
    return option[path].to_dataset()


def register() -> None:
    """Make the accessors known to xarray, once."""
    for kind, decorate, accessor in (
        (xr.DataArray, xr.register_dataarray_accessor, SplineAccessor),
        (xr.Dataset, xr.register_dataset_accessor, SplineAccessor),
        (xr.DataTree, xr.register_datatree_accessor, TreeAccessor),
    ):
        if getattr(kind, "spline", None) is not accessor:
            decorate("spline")(accessor)

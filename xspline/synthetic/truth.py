"""Truth: a field whose values and derivatives are known at any point, and which can be observed."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

Array = np.ndarray[Any, np.dtype[Any]]
Wave = tuple[tuple[int, ...], Array]  # wavenumber in each direction of space, and its complex amplitude at t


@dataclass(frozen=True, eq=False)
class Truth(ABC):
    """A field u = Re Σ a_k(t) exp(i k·x), periodic in space, as a function of its coordinates.

    Call it, ``truth(x=..., t=..., orders={"x": 2})``, with numbers, arrays that broadcast, or DataArrays.

    Attributes
    ----------
    equation : the equation that it solves, as ``field.recover`` reads it.
    parameters : the true values of the equation's parameters.
    domain : the range of each coordinate; the last is time.
    """

    equation: str
    parameters: dict[str, float]
    domain: dict[str, tuple[float, float]]

    @abstractmethod
    def waves(self, t: Array, order: int) -> Iterator[Wave]:
        """Yield each wavenumber with the derivative of its amplitude at some instants."""

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return tuple(self.domain)

    def __call__(self, *, orders: Mapping[str, int] | None = None, **coordinates: Any) -> Any:
        """Evaluate the field, or a derivative of it.

        Parameters
        ----------
        orders : mapping of str to int, optional
            Order of the derivative by coordinate, for example ``{"x": 2}``; None evaluates the field itself.
        **coordinates
            Every coordinate: numbers or arrays, which broadcast, or DataArrays, which broadcast by name.

        Returns
        -------
        ndarray or DataArray

        Raises
        ------
        ValueError
            A coordinate is missing or unknown, or an order is negative.
        """
        if set(coordinates) != set(self.dims):
            raise ValueError(
                f"the field is a function of {self.dims}, not of {tuple(coordinates)}; name each"
            )
        for name, order in (orders or {}).items():
            if name not in self.dims or order < 0 or order != int(order):
                raise ValueError(f"orders are integers ≥ 0 of {self.dims}, not {name}={order}")
        by_axis = tuple(int((orders or {}).get(name, 0)) for name in self.dims)
        values = (coordinates[name] for name in self.dims)
        return xr.apply_ufunc(
            functools.partial(self._values, orders=by_axis),
            *values,
            dask="parallelized",
            output_dtypes=[float],
        )

    def grid(self, *, orders: Mapping[str, int] | None = None, **labels: Any) -> xr.DataArray:
        """Evaluate on a grid.

        Parameters
        ----------
        orders : mapping of str to int, optional
            As for calling the field.
        **labels
            For each coordinate its labels, or how many evenly spaced ones, both ends of the domain included.

        Returns
        -------
        DataArray
            ``u`` over the coordinates, in the order of ``dims``.
        """
        axes: dict[str, Any] = {name: self._axis(name, labels.get(name)) for name in self.dims}
        extra = {name: value for name, value in labels.items() if name not in axes}  # named in the error
        return self(orders=orders, **axes, **extra).rename("u")

    def scatter(
        self,
        n: int,
        seed: int,
        noise: float = 0.0,
        *,
        within: Mapping[str, tuple[float, float]] | None = None,
    ) -> xr.DataArray:
        """Observe the field at random points, uniform in the domain (paper, section 4).

        Parameters
        ----------
        n : int
            How many observations.
        seed : int
            Of ``np.random.default_rng``; the points do not depend on the noise.
        noise : float
            Standard deviation of Gaussian noise, relative to :attr:`spread`.
        within : mapping of str to (float, float), optional
            Narrower ranges than the domain, for a holder that observes a part of it.

        Returns
        -------
        DataArray
            ``u(obs)`` with the coordinates along ``obs``.
        """
        rng = np.random.default_rng(seed)
        ranges = {**self.domain, **(within or {})}
        points = {name: ("obs", rng.uniform(*ranges[name], n)) for name in self.dims}
        at: dict[str, Any] = {name: xr.DataArray(p, dims=dim) for name, (dim, p) in points.items()}
        values = self(**at)
        errors = noise * self.spread * rng.standard_normal(n)
        return (values + errors).assign_coords(points).rename("u")

    @functools.cached_property
    def spread(self) -> float:
        """Standard deviation of the field over a fixed grid of 40 labels a coordinate."""
        sizes: dict[str, Any] = dict.fromkeys(self.dims, 40)
        return float(self.grid(**sizes).std())

    def known(self, at: Any) -> dict[str, xr.DataArray]:
        """Return the known sources of the equation at the labels of a DataArray, a Dataset or a mapping."""
        return {}

    def _axis(self, name: str, labels: Any) -> xr.DataArray:
        if labels is None:
            raise ValueError(f"no labels for {name!r}; pass {name}=40, or the labels themselves")
        if isinstance(labels, xr.DataArray):
            return labels
        if np.ndim(labels) == 0:
            labels = np.linspace(*self.domain[name], int(labels))
        return xr.DataArray(np.asarray(labels, float), dims=name, coords={name: labels})

    def _values(self, *coordinates: Array, orders: tuple[int, ...]) -> Array:
        *space, t = (np.asarray(c, float) for c in coordinates)
        total = np.zeros(np.broadcast_shapes(t.shape, *(x.shape for x in space)))
        for wavenumber, amplitude in self.waves(t, orders[-1]):
            factor = amplitude
            for k, x, order in zip(wavenumber, space, orders, strict=False):
                factor = factor * ((1j * k) ** order * np.exp(1j * k * x))
            total = total + factor.real
        return total

"""Small fits that R's mgcv and xspline both make: one for each thing that a choice of smoothing has to get right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

import xspline as xs
from xspline.spaces import Axis

Floats = np.ndarray


@dataclass(frozen=True, eq=False)
class Case:
    """Values `y` and weights `w` of a Dataset, and the space that they are fitted in."""

    name: str
    data: xr.Dataset
    space: xs.Space

    @property
    def smoothed(self) -> list[str]:
        """Coordinates that have a B-spline, in the order of the penalties."""
        return list(xs.Roughness(1.0).strengths(self.space))

    @property
    def penalties(self) -> list[Floats]:
        """S_j, [P, P], of strength one."""
        grams = [xs.Roughness({name: 1.0}).gram(self.space) for name in self.smoothed]
        return [gram.to_dense(self.space.frame) for gram in grams]

    def rows(self) -> tuple[Floats, Floats, Floats]:
        """Rows of Φ, y and w of the observed values with positive weight."""
        y = self.data.y
        phi = np.ones((y.size, 1))
        for name, features in zip(self.space.names, self.space.features, strict=True):
            labels = self.data[name].broadcast_like(y).transpose(*y.dims).values.ravel()
            columns = features.design(self.space.to_float(name, labels))
            phi = (phi[:, :, None] * columns[:, None, :]).reshape(y.size, -1)
        w = self.data.w.broadcast_like(y).transpose(*y.dims).values.ravel()
        seen = np.isfinite(y.values.ravel()) & (w > 0)
        return phi[seen], y.values.ravel()[seen], w[seen]

    def to_dict(self) -> dict[str, Any]:
        """Plain data (JSON); NaN is None."""
        data = {
            name: {
                "dims": list(array.dims),
                "shape": list(array.shape),
                "values": [v if np.isfinite(v) else None for v in array.values.ravel().tolist()],
            }
            for name, array in self.data.reset_index(list(self.data.indexes)).reset_coords().items()
        }
        return {"name": self.name, "space": self.space.to_json(), "data": data}

    @staticmethod
    def from_dict(plain: dict[str, Any]) -> Case:
        """Inverse of `to_dict`."""
        arrays = {
            name: (d["dims"], np.array(d["values"], dtype=float).reshape(d["shape"]))
            for name, d in plain["data"].items()
        }
        space = xs.Space.from_json(plain["space"])
        return Case(plain["name"], xr.Dataset(arrays).set_coords(space.names), space)


def surface(x: Any, z: Any) -> Any:
    """Rough along x, smooth along z."""
    return np.sin(9 * x + 2 * z) + 0.5 * np.cos(2 * np.pi * x) + z**2


def points(rng: np.random.Generator, names: tuple[str, ...], count: int) -> dict[str, Any]:
    return {name: ("obs", np.round(rng.random(count), 4)) for name in names}


def grid(**sizes: int) -> dict[str, Any]:
    return {name: (name, np.round((np.arange(n) + 0.5) / n, 4)) for name, n in sizes.items()}


def case(
    name: str,
    bases: dict[str, xs.spaces.Basis],
    coordinates: dict[str, Any],
    truth: Callable[..., Any],
    noise: float,
    rng: np.random.Generator,
    weights: Callable[[xr.DataArray], xr.DataArray] | None = None,
) -> Case:
    """Truth plus normal errors of variance noise² / w, rounded so that the fixtures are short."""
    data = xr.Dataset(coords=coordinates)
    mean = truth(*(data[c] for c in bases))
    w = xr.ones_like(mean) if weights is None else weights(mean).round(4)
    errors = rng.standard_normal(mean.shape) * noise / np.sqrt(np.maximum(w, 1e-6))
    y = (mean + errors).where(w > 0).round(4)
    return Case(name, data.assign(y=y, w=w), xs.Space(bases, axes={c: Axis() for c in bases}))


def spline(size: int, **options: Any) -> xs.spaces.Basis:
    return xs.BSpline(size, domain=(0, 1), **options)


def cases() -> list[Case]:
    """Every case, the same each time."""
    rng = np.random.default_rng(20110315)
    circle = xs.BSpline(10, period=1.0, domain=(0, 1))

    def precisions(mean: xr.DataArray) -> xr.DataArray:
        return mean.copy(data=np.exp(1.5 * rng.standard_normal(mean.shape)))

    def corner(mean: xr.DataArray) -> xr.DataArray:
        away = (mean.x < 0.45) | (mean.z > 0.55)
        return (away & (rng.random(mean.shape) < 0.8)).astype(float)

    return [
        case("1-D", {"x": spline(20)}, points(rng, ("x",), 150), lambda x: surface(x, 0), 0.3, rng),
        case(
            "2-D anisotropic", {"x": spline(10), "z": spline(9)}, grid(x=20, z=18), surface, 0.3, rng
        ),
        case(
            "2-D points, weighted",
            {"x": spline(10), "z": spline(8)},
            points(rng, ("x", "z"), 350),
            surface,
            0.5,
            rng,
            precisions,
        ),
        case(
            "2-D rank-deficient",
            {"x": spline(10), "z": spline(10)},
            grid(x=20, z=20),
            surface,
            0.2,
            rng,
            corner,
        ),
        case(
            "circle x interval",
            {"x": circle, "z": spline(8)},
            grid(x=20, z=20),
            lambda x, z: np.sin(2 * np.pi * x) * (1 + z) + np.cos(6 * z),
            0.4,
            rng,
        ),
        case(
            "3-D, season without penalty",
            {"x": spline(6), "z": spline(5), "t": xs.Fourier(1, period=1.0)},
            points(rng, ("x", "z", "t"), 400),
            lambda x, z, t: surface(x, z) + (1 + x) * np.cos(2 * np.pi * t),
            0.4,
            rng,
            precisions,
        ),
    ]  # fmt: skip

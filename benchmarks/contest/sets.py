"""Data with withheld values, and what a patient user would try on them by hand.

Fits by hand are a short list for each set, written down here; the best of them is taken by its error on the withheld
values themselves, so it is an oracle: nobody could have chosen it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import xspline as xs

SHARE, SEED = 0.1, 0
WITHHELD = ("random", "blocks")
Bases = Mapping[str, Any]
CRITERIA = {"reml": "", "gcv": ", GCV"}
FAMILY = (1, 2)
FEW = 9  # functions of a coordinate in a quick run


@dataclass(frozen=True)
class ByHand:
    """A fit that somebody asks for by its options.

    Parameters
    ----------
    sizes : mapping of coordinate to int
        Numbers of B-splines.
    order : int or tuple of int
        Of the derivatives that measure roughness; several are a Sobolev penalty.
    degree : {1, 3}
        Of the B-splines; linear ones cost a fraction of cubic ones.
    others : mapping
        Bases of the other coordinates.
    criterion : {"reml", "gcv"}
    """

    sizes: Mapping[str, int]
    order: int | tuple[int, ...]
    degree: int = 3
    others: Bases = field(default_factory=dict)
    criterion: str = "reml"

    @property
    def name(self) -> str:
        orders = (
            f"order {self.order}"
            if isinstance(self.order, int)
            else f"orders {', '.join(map(str, self.order))}"
        )
        degree = {1: "linear", 3: "cubic"}[self.degree]
        sizes = " × ".join(map(str, self.sizes.values()))
        return f"{orders}, {degree} {sizes}{' × seasons' * bool(self.others)}{CRITERIA[self.criterion]}"

    def small(self) -> ByHand:
        return replace(self, sizes={name: min(size, FEW) for name, size in self.sizes.items()})

    def fit(self, data: xr.DataArray) -> xs.Field:
        bases = {name: xs.BSpline(size, self.degree) for name, size in self.sizes.items()}
        if isinstance(self.order, int):
            penalty: xs.Penalty = xs.Roughness(self.criterion, self.order)
        else:
            penalty = xs.Sobolev(self.order, criterion=self.criterion)
        return data.spline.fit({**bases, **self.others}, penalty=penalty)


@dataclass(frozen=True, eq=False)
class Problem:
    """Values, some of them withheld from the fits.

    Parameters
    ----------
    name : str
    how : str
        How values were withheld.
    data : DataArray
        All values, on a grid or scattered.
    held : DataArray of bool
        Those that are withheld, of the same dimensions.
    by_hand : tuple of ByHand
    peers : tuple of str
        Those that make sense here.
    days : float
        A time difference of so many days is as far as a degree, to peers that know distances only.
    """

    name: str
    how: str
    data: xr.DataArray
    held: xr.DataArray
    by_hand: tuple[ByHand, ...] = ()
    peers: tuple[str, ...] = ()
    days: float = 30.0

    @cached_property
    def train(self) -> xr.DataArray:
        """What a fit may see."""
        return self.data.where(~self.held)

    @cached_property
    def truth(self) -> xr.DataArray:
        """The withheld values, as points."""
        return points(self.data, self.held.to_numpy())

    def some(self, most: int) -> np.ndarray:
        """Which of the withheld values are looked at where all are too many: always the same, drawn at random."""
        count = self.truth.sizes["point"]
        return np.sort(np.random.default_rng(SEED).permutation(count)[:most])


def points(data: xr.DataArray, at: np.ndarray) -> xr.DataArray:
    """Some values along one dimension, each with its coordinates."""
    where = {d: xr.DataArray(i, dims="point") for d, i in zip(data.dims, np.nonzero(at), strict=True)}
    return data.isel(where)


def withheld(data: xr.DataArray, how: str, block: Mapping[str, Any], seed: int = SEED) -> xr.DataArray:
    """A tenth of the values, always the same for a seed: single ones, or whole blocks.

    `block` gives the extents of a block: a number of labels along a dimension, else a difference of a coordinate's
    values. Blocks are taken in random order until they hold a tenth.
    """
    rng, valid = np.random.default_rng(seed), data.notnull()
    if how == "random":
        return valid & (rng.random(data.shape) < SHARE)
    cells = xr.zeros_like(data, dtype=np.int64)
    for name, extent in block.items():
        if name in data.dims:
            along = xr.DataArray(np.arange(data.sizes[name]) // extent, dims=name)
        else:
            along = ((data[name] - data[name].min()) / extent).fillna(0).astype(np.int64)
        cells = cells * (int(along.max()) + 1) + along.variable
    _, cell = np.unique(cells.to_numpy(), return_inverse=True)
    counts = np.bincount(cell.ravel(), weights=valid.to_numpy().ravel())
    order = rng.permutation(len(counts))
    before = np.cumsum(counts[order]) - counts[order]
    chosen = np.zeros(len(counts), bool)
    chosen[order[before < SHARE * counts.sum()]] = True
    return valid & xr.DataArray(chosen[cell.reshape(data.shape)], dims=data.dims)


def path_of(file: str, directory: str | None) -> Path:
    return Path(directory or os.environ.get("XSPLINE_DATA_DIR", "")) / file


@dataclass(frozen=True)
class Product:
    """A file, how to read it, how to cut blocks of it, and what to try by hand; `quick` thins it."""

    file: str
    what: str
    read: Callable[[xr.Dataset], Any]
    by_hand: tuple[ByHand, ...]
    peers: tuple[str, ...]
    quick: Mapping[Hashable, slice]
    block: Mapping[str, Any] = field(default_factory=dict)
    days: float = 30.0

    def open(self, directory: str | None, *, quick: bool) -> Any:
        """The values in memory; None where the file is not at hand."""
        path = path_of(self.file, directory)
        return self.load(path, quick=quick) if path.is_file() else None

    def load(self, path: Path, *, quick: bool) -> Any:
        with xr.open_dataset(path) as dataset:
            return self.read(dataset).isel(self.quick if quick else {}).load()


SEASONS = {"time": xs.Fourier(2, "year") + xs.Polynomial(2)}
COARSE, FINE = {"lat": 60, "lon": 100}, {"lat": 150, "lon": 250}
LAND_SURFACE = (
    ByHand(COARSE, order=2),
    ByHand(COARSE, order=2, criterion="gcv"),
    ByHand(COARSE, order=1),
    ByHand(COARSE, order=FAMILY),
    ByHand(FINE, order=2),
    ByHand(FINE, order=1, degree=1),
    ByHand(FINE, order=1, degree=1, criterion="gcv"),
    ByHand(FINE, order=1),
    ByHand(FINE, order=FAMILY),
)
SEA_SURFACE = (
    ByHand({"lat": 44, "lon": 90}, order=1, degree=1, others=SEASONS),
    ByHand({"lat": 44, "lon": 90}, order=2, others=SEASONS),
    ByHand({"lat": 23, "lon": 45, "time": 64}, order=1, degree=1),
)
MOORINGS = (
    ByHand({"lat": 9, "lon": 12, "time": 3000}, order=1, degree=1),
    ByHand({"lat": 10, "lon": 16, "time": 600}, order=2),
)
SEA_ICE = (
    ByHand({"latitude": 90, "longitude": 90, "time": 12}, order=1, degree=1),
    ByHand({"latitude": 48, "longitude": 48, "time": 8}, order=2),
)
SEA_LEVEL = (
    ByHand({"latitude": 60, "longitude": 150, "time": 10}, order=1, degree=1),
    ByHand({"latitude": 32, "longitude": 86, "time": 8}, order=2),
)

IN_SPACE = ("nearest", "linear in lat and lon", "RBF of 30 neighbours", "verde")
IN_SPACE_AND_TIME = ("nearest", "linear in lat and lon", "linear in time", "RBF of 30 neighbours")
CLIMATOLOGY = "trend and climatology per pixel"
CONTEST = Product(
    "modis_lst_gaps.nc",
    "one day, 300 × 500",
    lambda dataset: dataset[["train", "truth"]],
    LAND_SURFACE,
    IN_SPACE,
    {"lat": slice(None, None, 15), "lon": slice(None, None, 15)},
)
SETS: dict[str, Product] = {
    "MODIS": replace(
        CONTEST,
        read=lambda dataset: dataset.train,
        by_hand=tuple(
            choice for choice in LAND_SURFACE if choice.sizes == FINE and choice.criterion == "reml"
        ),
        block={"lat": 20, "lon": 20},
    ),
    "ERSST": Product(
        "ersst_v5_2010_2020.nc",
        "the globe, 128 months; blocks of 10° × 16° × 6 months",
        lambda dataset: dataset.sst,
        SEA_SURFACE,
        (*IN_SPACE_AND_TIME, CLIMATOLOGY),
        {"lat": slice(30, 60, 6), "lon": slice(60, 145, 12), "time": slice(60, 84)},  # the tropical Pacific
        {"lat": 5, "lon": 8, "time": 6},
        days=30.0,
    ),
    "TAO": Product(
        "tao_sst_5day.nc",
        "moorings, 5 days; blocks of half a year at a mooring",
        lambda dataset: dataset.set_coords(["lat", "lon", "time"]).sst,
        MOORINGS,
        ("nearest", "linear in time", "RBF of 30 neighbours", CLIMATOLOGY),
        {"obs": slice(None, None, 100)},
        {"lat": 1.0, "lon": 5.0, "time": np.timedelta64(180, "D")},
        days=10.0,
    ),
    "sea ice": Product(
        "cmip6_canesm5_sea_ice_2020.nc",
        "curvilinear, 12 months; blocks of 12 × 12 cells, 3 months",
        lambda dataset: dataset.siconc,
        SEA_ICE,
        IN_SPACE_AND_TIME,
        {"j": slice(None, None, 6), "i": slice(None, None, 6)},
        {"j": 12, "i": 12, "time": 3},
        days=60.0,
    ),
    "Mediterranean": Product(
        "adt_mediterranean_2005_q2.nc",
        "sea level of 30 days; blocks of 1° × 1° × 5 days",
        lambda dataset: dataset.adt[:30],
        SEA_LEVEL,
        IN_SPACE_AND_TIME,
        {"latitude": slice(None, None, 4), "longitude": slice(None, None, 4), "time": slice(10)},
        {"latitude": 8, "longitude": 8, "time": 5},
        days=10.0,
    ),
}

"""MNIST: the images of a digit as repeated observations of one field, 9 x 9 cubic B-splines, three strips of rows."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks.paper.row import Row

PENALTY = 1e-4
SIDE = 28
EVERY = 10  # image of a quick run
STRIPS = {"top": slice(0, 10), "middle": slice(10, 19), "bottom": slice(19, 28)}
SPACE = xs.Space({name: xs.BSpline(9, domain=(0.0, SIDE - 1.0)) for name in ("row", "column")})


def folder() -> Path:
    return Path(os.environ.get("XSPLINE_DATA_DIR", "")) / "mnist"


def read(name: str, header: int) -> np.ndarray:
    """The bytes of an IDX file after its header."""
    return np.frombuffer(gzip.decompress((folder() / name).read_bytes()), np.uint8, offset=header)


def images() -> xr.DataArray:
    """All training images as stored, 0 to 255, with their digits."""
    values = read("train-images-idx3-ubyte.gz", 16).reshape(-1, SIDE, SIDE)
    pixels = np.arange(float(SIDE))
    coords = {
        "digit": ("image", read("train-labels-idx1-ubyte.gz", 8)),
        "row": pixels,
        "column": pixels,
    }
    return xr.DataArray(values, coords, ("image", "row", "column"), "brightness")


def rows(quick: bool) -> list[Row]:
    if not (folder() / "train-images-idx3-ubyte.gz").is_file():
        return []
    every = images()[:: EVERY if quick else 1]
    compared = [compare(every[(every.digit == digit).values] / 255.0) for digit in range(10)]
    apart, gaps = [one[0] for one in compared], [one[1] for one in compared]
    worst = Row("merged from three strips: delta_max, worst of ten digits", max(apart), "< 1e-13", 1e-13)
    missing = [
        Row(f"digit {digit}: RMSE in the strip of the missing holder", gap, "", None, "brightness in [0, 1]")
        for digit, gap in enumerate(gaps)
    ]
    return [worst, *missing]


def compare(data: xr.DataArray) -> tuple[float, float]:
    """How far merged and pooled are apart; RMSE against pooled where the middle holder is missing."""
    pooled = data.spline.fit(SPACE, image=None, penalty=PENALTY).predict(data)
    parts = {h: data.isel(row=s).spline.statistics(SPACE, image=None, holder=h) for h, s in STRIPS.items()}
    merged = xs.merge(list(parts.values())).solve(penalty=PENALTY).predict(data)
    without = xs.merge([parts["top"], parts["bottom"]]).solve(penalty=PENALTY).predict(data)
    gap = (without - pooled).isel(row=STRIPS["middle"])
    return float(np.abs(merged - pooled).max()), float(np.sqrt((gap**2).mean()))

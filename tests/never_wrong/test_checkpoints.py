"""A checkpoint gives what a fit without it gives: after any change of any input, and shared by runs that race."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import xspline as xs

ROOT = Path(__file__).parents[2]
T = np.arange(400.0)
V = np.sin(T / 60)


def series(values: np.ndarray, labels: Any = T, step: int = 20) -> xr.DataArray:
    return xr.DataArray(values, {"t": ("t", labels)}, "t", "v").chunk(t=step)


def altered(values: np.ndarray, place: int = 55, by: float = 1000.0) -> np.ndarray:
    out = values.copy()
    out[place] += by
    return out


def assert_as_without(data: Any, checkpoint: Path, **kwargs: Any) -> None:
    """Hold a fit with the checkpoint to the bits of one without."""
    kwargs = {"t": 20, "penalty": 0.1, **kwargs}
    mine = data.spline.fit(checkpoint=checkpoint, **kwargs).coefficients.values
    plain = data.spline.fit(**kwargs).coefficients.values
    assert mine.tobytes() == plain.tobytes(), f"off by {np.abs(mine - plain).max():.3g}"


def kept(checkpoint: Path) -> set[str]:
    return {path.name for path in checkpoint.glob("*.npz")}


# Each input, changed where three blocks would not tell


def test_what_is_the_same_is_taken_and_what_differs_is_computed(tmp_path: Path) -> None:
    assert_as_without(series(V), tmp_path)
    first = kept(tmp_path)
    assert_as_without(series(V.copy()), tmp_path)
    assert kept(tmp_path) == first, "the same values in another array are the same data"
    assert_as_without(series(altered(V)), tmp_path)
    assert len(kept(tmp_path)) == 2 * len(first)


@pytest.mark.slow
def test_other_weights_and_positions(tmp_path: Path) -> None:
    """In Dask arrays and in memory."""
    bases = {"t": xs.BSpline(20, domain=(0.0, 400.0))}
    for weights in (altered(np.ones(400)), np.ones(400)):
        for given in (series(weights), series(weights).compute()):
            assert_as_without(series(V), tmp_path, weights=given, **bases)
    for labels in (altered(T, by=1.5), T):
        positions = xr.DataArray(labels, dims="obs").chunk(obs=20)
        data = xr.DataArray(V, {"t": positions}, "obs", "v").chunk(obs=20)
        for own in (series(V, labels), data):
            assert_as_without(own, tmp_path, **bases)


def test_another_order_in_memory_is_other_data(tmp_path: Path) -> None:
    """The same bytes in the same shape, by columns and by rows."""
    flat = np.random.default_rng(0).standard_normal(400)
    labels = {"t": np.arange(20.0), "x": np.arange(20.0)}
    for values in (flat.reshape(20, 20), flat.reshape(20, 20, order="F")):
        blocks = da.from_array(values, chunks=20)
        data = xr.DataArray(blocks, labels, ("t", "x"), "v")
        assert_as_without(data, tmp_path, t=5, x=5)


def test_the_same_name_is_not_the_same_data(tmp_path: Path) -> None:
    for values in (altered(V), V):
        blocks = da.from_array(values, chunks=20, name="measured")
        assert_as_without(xr.DataArray(blocks, {"t": T}, "t", "v"), tmp_path)


@pytest.mark.slow
def test_another_space_shares_the_directory(tmp_path: Path) -> None:
    for size in (20, 21, 20):
        assert_as_without(series(V), tmp_path, t=size)
    assert_as_without(series(V, step=7), tmp_path)


@pytest.mark.slow
def test_of_what_functions_make_nothing_is_kept(tmp_path: Path) -> None:
    """A fit has the bits of one without the checkpoint, leaves no new files, and warns with advice."""

    def getitem(block: np.ndarray) -> np.ndarray:
        return block * 2

    data = series(V)
    for mapped in (
        data.data.map_blocks(lambda block: block * 2),
        data.data.map_blocks(getitem),
        data.data.map_blocks(np.vectorize(getitem, otypes=[float])),
        data.data.map_blocks(np.frompyfunc(getitem, 1, 1), dtype=float).astype(float),
        data.data.map_overlap(getitem, depth=1),
        da.random.default_rng(0).random(400, chunks=20),
    ):
        before = kept(tmp_path)
        advice = r"keeps no sums of v.* write the values to a Zarr store.*xs\.merge"
        with pytest.warns(xs.FitWarning, match=advice):
            assert_as_without(data.copy(data=mapped), tmp_path)
        assert kept(tmp_path) == before


# Stores


def stored(folder: Path, form: str) -> xr.DataArray:
    if form == "netcdf":
        with xr.open_dataset(folder / "v.nc", chunks={"t": 20}) as opened:
            return opened.v
    chunks = {"lazy": None, "chunked": {}}[form]
    return xr.open_zarr(folder / "v.zarr", chunks=chunks, consolidated=False).v


def write(folder: Path, values: np.ndarray, form: str) -> None:
    data = xr.DataArray(values, {"t": T}, "t", "v").to_dataset()
    if form == "netcdf":
        data.to_netcdf(folder / "new.nc", encoding={"v": {"chunksizes": (20,)}})
        (folder / "new.nc").replace(folder / "v.nc")
    else:
        data.chunk(t=20).to_zarr(folder / "v.zarr", mode="w", consolidated=False)


@pytest.mark.parametrize("form", ["lazy", "chunked", "netcdf"])
def test_a_rewritten_store(tmp_path: Path, form: str) -> None:
    write(tmp_path, altered(V), form)
    assert_as_without(stored(tmp_path, form), tmp_path / "kept")
    assert kept(tmp_path / "kept")
    write(tmp_path, V, form)
    assert_as_without(stored(tmp_path, form), tmp_path / "kept")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lazy", "chunked"])
def test_a_rewritten_chunk_of_a_store(tmp_path: Path, form: str) -> None:
    write(tmp_path, V, form)
    assert_as_without(stored(tmp_path, form), tmp_path / "kept")
    before = kept(tmp_path / "kept")
    assert_as_without(stored(tmp_path, form), tmp_path / "kept")
    assert kept(tmp_path / "kept") == before, "opened again it is the same store"
    zarr.open_array(tmp_path / "v.zarr" / "v", mode="r+")[50:60] = 7.0
    assert_as_without(stored(tmp_path, form), tmp_path / "kept")


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [zarr.storage.MemoryStore, lambda: zarr.storage.FsspecStore.from_url("memory://v")]
)
def test_a_rewritten_chunk_elsewhere_than_on_a_disk(tmp_path: Path, make: Any) -> None:
    store = make()
    xr.DataArray(V, {"t": T}, "t", "v").to_dataset().chunk(t=20).to_zarr(store, mode="w", consolidated=False)
    for changed in (False, False, True):
        before = kept(tmp_path)
        if changed:
            zarr.open_array(store, path="v", mode="r+")[50:60] = 7.0
        assert_as_without(xr.open_zarr(store, chunks={}, consolidated=False).v, tmp_path)
        assert (kept(tmp_path) > before) == (changed or not before)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lazy", "chunked", "netcdf"])
def test_a_selection_and_a_scale_of_a_store(tmp_path: Path, form: str) -> None:
    write(tmp_path, V, form)
    whole = stored(tmp_path, form)
    for part in (slice(0, 300), slice(5, 305), slice(0, 300)):
        assert_as_without(whole.isel(t=part), tmp_path / "kept")
    if form == "chunked":
        assert_as_without(whole * 2, tmp_path / "kept")


# The directory


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "ck").write_text("notes")
    for path in (tmp_path / "ck", tmp_path / "ck" / "below"):
        with pytest.raises(
            ValueError, match=r"checkpoint has to be a directory, and .*ck is a file; give the path"
        ):
            series(V).spline.fit(t=20, penalty=0.1, checkpoint=path)


def test_a_directory_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "description.json").write_text('{"version": "0.1.0", "space": "{}"}')
    with pytest.raises(
        ValueError, match=r"schema version 1 and this xspline writes 3.* give another directory"
    ):
        series(V).spline.fit(t=20, penalty=0.1, checkpoint=tmp_path)


# Races

RUNS = """
import sys, time, numpy as np, dask, xarray as xr, xspline
from pathlib import Path
from tests.never_wrong.test_checkpoints import series, V, altered
dask.config.set(scheduler="threads", num_workers=2)
folder, number, kind, pairs = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
values = altered(V) if number and kind == "other" else V
expected = series(values).spline.fit(t=20, penalty=0.1).coefficients.values
for pair in range(pairs):
    (folder / f"ready-{pair}-{number}").touch()
    end = time.monotonic() + 60
    while not (folder / f"ready-{pair}-{1 - number}").exists():
        assert time.monotonic() < end, "the other process did not come"
    for run in ("race", "again"):
        field = series(values).spline.fit(t=20, penalty=0.1, checkpoint=folder / f"kept-{pair}")
        assert field.coefficients.values.tobytes() == expected.tobytes(), f"pair {pair}: {run} mixed them"
"""


def race(folder: Path, kind: str, pairs: int) -> None:
    """Let two processes fit into one fresh directory at the same time, many times."""
    code = [sys.executable, "-c", RUNS, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [*code, str(number), kind, str(pairs)], cwd=ROOT, env=environment, stderr=subprocess.PIPE
        )
        for number in range(2)
    ]
    errors = [process.communicate(timeout=280)[1].decode() for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors)
    for pair in range(pairs):  # and what they left is of use to both
        for values in (V, altered(V)) if kind == "other" else (V,):
            assert_as_without(series(values), folder / f"kept-{pair}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["same", "other"])
def test_racing_runs_neither_fail_nor_mix(tmp_path: Path, kind: str) -> None:
    race(tmp_path, kind, 6)

"""What opens is what was written, bit for bit; anything else is one clear error.

A file or store takes its name once all of it is written; whatever fails before leaves what was there.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from packaging.version import Version

import xspline as xs
from tests.products import SEASONS, sst

# Zarr 3.0 warns of text of any kind; from 3.1 on files are written without a warning.
OLD = Version(zarr.__version__) < Version("3.1")
TEXT = pytest.mark.filterwarnings("ignore:.*not part in the Zarr format 3 specification:UserWarning")
pytestmark = [TEXT] if OLD else []

FORMATS = ("zarr", "nc")
CONTENTS = ("field", "statistics")
OPEN: dict[str, Callable[..., Any]] = {"field": xs.open_field, "statistics": xs.open_statistics}


def write(what: Any, path: Any, **kwargs: Any) -> Any:
    what.to_zarr(path, **kwargs) if Path(path).suffix == ".zarr" else what.to_netcdf(path, **kwargs)
    return path


def contents(what: Any) -> dict[str, Any]:
    """Everything that a field or statistics say, to be compared by ==: bytes of arrays, labels, attributes, JSON."""
    dataset = what.to_dataset()
    out: dict[str, Any] = {"json": json.loads(dataset.attrs["xspline"])}
    for name, variable in dataset.variables.items():
        values = variable.values
        data = values.tolist() if values.dtype.kind in "OUT" else (values.dtype.str, values.tobytes())
        out[str(name)] = (variable.dims, values.shape, data, dict(variable.attrs))
    return out


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """A small field and statistics of two holders, with a batch dimension of names."""
    data = sst(months=12, gaps=0.2).isel(lat=slice(0, 9, 4)).assign_coords(lat=["north", "middle", "south"])
    data = data.assign_coords(depth=("lat", [5.0, 10.0, 20.0], {"units": "m", "long_name": "depth"}))
    halves = [data.isel(time=slice(0, 6)), data.isel(time=slice(6, 12))]
    space = data.spline.space(lon=6, time=SEASONS)
    parts = [half.spline.statistics(space, holder=h) for half, h in zip(halves, ("a", "b"), strict=True)]
    field = data.spline.fit(space, penalty=xs.Ridge(0.01))
    return {"field": field, "statistics": parts[0] + parts[1]}


@pytest.fixture(params=[(c, f) for c in CONTENTS for f in FORMATS], ids=lambda p: " ".join(p))
def stored(request: pytest.FixtureRequest, made: dict[str, Any], tmp_path: Path) -> tuple[str, Any, Path]:
    content, suffix = request.param
    return content, made[content], write(made[content], tmp_path / f"{content}.{suffix}")


def files_of(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def test_what_opens_is_what_was_written(stored: tuple[str, Any, Path]) -> None:
    content, what, path = stored
    again = OPEN[content](path)
    assert contents(again) == contents(what)
    assert repr(again) == repr(what)


# Damage


def flipped(path: Path, count: int, seed: int) -> Iterator[str]:
    """Flip one random bit of one file at a time, and put it back: half the time of any byte, else of any file."""
    rng, files = np.random.default_rng(seed), files_of(path)
    sizes = np.array([file.stat().st_size for file in files], dtype=float)
    for number in range(count):
        even = np.full(len(files), 1 / len(files))
        file = files[rng.choice(len(files), p=sizes / sizes.sum() if number % 2 else even)]
        original = file.read_bytes()
        changed, place, bit = bytearray(original), int(rng.integers(len(original))), int(rng.integers(8))
        changed[place] ^= 1 << bit
        file.write_bytes(changed)
        yield f"bit {bit} of byte {place} of {file.relative_to(path.parent)}"
        file.write_bytes(original)


# Of whoever reads what is damaged: the library says less than its error.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_an_error_or_changes_nothing(stored: tuple[str, Any, Path], count: int) -> None:
    content, what, path = stored
    if count > 20 and path.suffix == ".nc":
        pytest.skip("some flips in the tables of a file make the HDF5 library end the process")
    expected, silent, refused = contents(what), [], 0
    for where in flipped(path, count, seed=count):
        if path.suffix == ".nc":  # HDF5 keeps a damaged file open until then, and reads what it held before
            gc.collect()
        try:
            again = OPEN[content](path)
        except (ValueError, OSError):
            refused += 1
        else:
            if contents(again) != expected:
                silent.append(where)
    assert not silent
    assert refused > count // 4


@pytest.mark.slow
@pytest.mark.parametrize("content", CONTENTS)
def test_a_deleted_chunk_is_refused(made: dict[str, Any], tmp_path: Path, content: str) -> None:
    path = write(made[content], tmp_path / "f.zarr")
    chunks = [file for file in files_of(path) if file.name != "zarr.json"]
    assert chunks
    for chunk in chunks:
        kept = chunk.read_bytes()
        chunk.unlink()
        with pytest.raises(ValueError, match="the file was changed or damaged"):
            OPEN[content](path)
        chunk.write_bytes(kept)
    assert contents(OPEN[content](path)) == contents(made[content])


def test_old_zarr_format_and_codecs_of_the_user_are_kept(made: dict[str, Any], tmp_path: Path) -> None:
    made["field"].to_zarr(tmp_path / "two.zarr", zarr_format=2)
    assert contents(xs.open_field(tmp_path / "two.zarr")) == contents(made["field"])
    made["field"].to_zarr(tmp_path / "f.zarr", encoding={"coefficients__0": {"compressors": None}})
    assert not zarr.open_group(tmp_path / "f.zarr", mode="r")["coefficients__0"].compressors
    assert contents(xs.open_field(tmp_path / "f.zarr")) == contents(made["field"])


# Edited by hand


def edited(path: Path, edit: Callable[[dict[str, Any]], Any]) -> Path:
    """Edit the JSON of a Zarr store by hand."""
    root = path / "zarr.json"
    group = json.loads(root.read_text())
    meta = json.loads(group["attributes"]["xspline"])
    changed = edit(meta)
    group["attributes"]["xspline"] = changed if isinstance(changed, str) else json.dumps(meta)
    root.write_text(json.dumps(group))
    return path


def widen(meta: dict[str, Any]) -> None:
    text = json.dumps(meta["space"])
    assert "210.0" in text
    meta["space"] = json.loads(text.replace("210.0", "220.0"))


EDITS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a domain": (widen, "the file was changed or damaged"),
    "a part listed twice": (lambda m: m["parts"].append(m["parts"][0]), "the file was changed or damaged"),
    "a part left out": (lambda m: m["parts"].pop(), "the file was changed or damaged"),
    "units": (lambda m: m["variables"][0].update(units="K"), "the file was changed or damaged"),
    "a holder's name": (lambda m: m["parts"][0].update(holder="z"), "the file was changed or damaged"),
    "a later schema": (
        lambda m: m.update(schema=99),
        r"schema version 99 .* reads up to \d+; upgrade xspline",
    ),
    "no schema": (lambda m: m.pop("schema") and None, r"schema version None, which is not one from 1 to"),
    "schema as text": (lambda m: m.update(schema="3"), r"schema version '3', which is not one from 1 to"),
    "schema 0": (lambda m: m.update(schema=0), r"schema version 0, which is not one from 1 to"),
    "a former schema": (lambda m: m.update(schema=1), "the file was changed or damaged"),
    "not JSON": (lambda m: "{not JSON", "the attribute 'xspline' is not JSON"),
    "a list": (lambda m: "[1, 2]", "schema version None"),
    "another content": (lambda m: m.update(content="music"), "the file was changed or damaged"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_refused(made: dict[str, Any], tmp_path: Path, name: str) -> None:
    edit, message = EDITS[name]
    path = edited(write(made["statistics"], tmp_path / "s.zarr"), edit)
    with pytest.raises(ValueError, match=message):
        xs.open_statistics(path)


def test_a_file_without_its_digest_is_refused(made: dict[str, Any], tmp_path: Path) -> None:
    path = write(made["field"], tmp_path / "f.zarr")
    root = path / "zarr.json"
    group = json.loads(root.read_text())
    (name,) = [name for name in group["attributes"] if "digest" in name]
    del group["attributes"][name]
    root.write_text(json.dumps(group))
    with pytest.raises(ValueError, match=r"no digest, which to_netcdf and .* the file was changed"):
        xs.open_field(path)


def test_what_is_not_a_file_of_ours_says_so(made: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "text.nc").write_text("not NetCDF")
    (tmp_path / "empty.nc").touch()
    (tmp_path / "empty.zarr").mkdir()
    for name in ("text.nc", "empty.nc", "empty.zarr"):
        with pytest.raises(ValueError, match="cannot be read as a Zarr store or NetCDF file"):
            xs.open_field(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"none\.zarr"):
        xs.open_field(tmp_path / "none.zarr")
    sst(months=2).to_netcdf(tmp_path / "data.nc")
    with pytest.raises(ValueError, match="this is not a file of xspline field"):
        xs.open_field(tmp_path / "data.nc")


# Written whole or not at all


@pytest.fixture(scope="module")
def statistics() -> xs.Statistics:
    data = sst(months=12, gaps=0.3)
    return data.spline.statistics(data.spline.space(lat=9, lon=9, time=9), holder="a")


@contextmanager
def little_room(nbytes: int) -> Iterator[None]:
    """Let this process write no file larger than that: a full disk, as the system reports it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["fit.zarr", "fit.nc"])
def test_nothing_is_there_when_writing_fails(statistics: xs.Statistics, tmp_path: Path, name: str) -> None:
    with little_room(10_000), pytest.raises((OSError, RuntimeError), match=r"(?i)file too large|error"):
        write(statistics, tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["fit.zarr", "fit.nc"])
def test_what_was_there_stays_when_writing_fails(
    statistics: xs.Statistics, tmp_path: Path, name: str
) -> None:
    write(statistics, tmp_path / name)
    with little_room(10_000), pytest.raises((OSError, RuntimeError), match=r"(?i)file too large|error"):
        write(statistics.collapse("b"), tmp_path / name, mode="w")
    assert xs.open_statistics(tmp_path / name).holders == ("a",)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["fit.zarr", "fit.nc"])
def test_writing_again_replaces(statistics: xs.Statistics, tmp_path: Path, name: str) -> None:
    write(statistics, tmp_path / name)
    write(statistics.collapse("b"), str(tmp_path / name), mode="w")
    assert xs.open_statistics(tmp_path / name).holders == ("b",)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_store_is_not_replaced_unless_asked(statistics: xs.Statistics, tmp_path: Path) -> None:
    statistics.to_zarr(tmp_path / "a.zarr")
    with pytest.raises(FileExistsError, match=r"already contains data|is not empty"):
        statistics.to_zarr(tmp_path / "a.zarr")
    statistics.collapse("b").to_zarr(tmp_path / "a.zarr", group="b")
    assert xs.open_statistics(tmp_path / "a.zarr").holders == ("a",)
    assert xs.open_statistics(tmp_path / "a.zarr", group="b").holders == ("b",)


# While another process writes

REWRITE = """
import os, sys
import numpy as np, xarray as xr, xspline as xs
path, ready, stop = sys.argv[1:]
x = np.linspace(0, 1, 200)
field = [xs.fit(xr.DataArray(k + np.sin(x), {"x": x}, "x", "u"), x=60, penalty=1e-6) for k in (0, 100)]
k = 0
while not os.path.exists(stop):
    field[k % 2].to_netcdf(path, mode="w") if path.endswith("nc") else field[k % 2].to_zarr(path, mode="w")
    if k == 1:
        open(ready, "w").close()
    k += 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["f.nc", "f.zarr"])
def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path, name: str) -> None:
    path, ready, stop = tmp_path / name, tmp_path / "ready", tmp_path / "stop"
    writer = subprocess.Popen([sys.executable, "-c", REWRITE, str(path), str(ready), str(stop)])
    try:
        while not ready.exists():
            assert writer.poll() is None
        seen = set()
        for _ in range(60):
            field = xs.open_field(path)
            seen.add(
                (
                    round(float(field.predict(x=0.5))),
                    round(float(field.statistics.solve(1e-6).predict(x=0.5))),
                )
            )
    finally:
        stop.touch()
        code = writer.wait()
    assert code == 0 and seen <= {(0, 0), (100, 100)}
    assert len(seen) == 2  # the file did change meanwhile
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


# Labels of every kind


def station_data(labels: Any) -> xr.DataArray:
    t = np.arange(40.0)
    values = np.sin(t / 6)[:, None] * np.arange(1.0, 5.0)
    return xr.DataArray(values, {"t": t, "station": labels}, ("t", "station"), "v")


LABELS: dict[str, Any] = {
    "text": ["a", "bcd", "", "é"],
    "bytes": np.array([b"a", b"bc", b"d", b"e"]),
    "bool-like": np.array([True, False, True, False]),
    "dates": np.array(["0001-01-01", "2024-02-29T12:00:00.000001", "NaT", "2262-01-01"], "M8[us]"),
    "steps": np.array([1, 2, 3, 10**15], "m8[ns]"),
    "numbers": np.array([1, 2, 3, 4], ">i2"),
    "floats": np.array([0.1, -0.0, np.nan, np.inf], "f4"),
    "calendar": xr.date_range("2000-02-29", periods=4, calendar="360_day", use_cftime=True),
    "calendar of today": xr.date_range("2000-02-28", periods=4, calendar="standard", use_cftime=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("name", LABELS)
def test_labels_come_back_as_they_were(tmp_path: Path, name: str, suffix: str) -> None:
    data = station_data(LABELS[name])
    data.station.attrs.update(long_name="which", numbers=np.array([1.5, 2.0]), valid=np.float32(0.1))
    field = data.spline.fit(t=8, penalty=1e-3)
    before, after = (
        f.predict().station for f in (field, xs.open_field(write(field, tmp_path / f"f.{suffix}")))
    )
    assert before.dtype == after.dtype or before.dtype.newbyteorder("=") == after.dtype
    np.testing.assert_array_equal(before.values, after.values)
    assert [type(v) for v in before.values] == [type(v) for v in after.values]
    assert after.attrs["long_name"] == "which"
    np.testing.assert_array_equal(after.attrs["numbers"], [1.5, 2.0])


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_multiindex_comes_back(tmp_path: Path, suffix: str) -> None:
    data = station_data([1, 2, 3, 4]).assign_coords(
        station=("station", [1, 2, 3, 4]),
        basin=("station", ["n", "n", "s", "s"]),
        number=("station", [1, 2, 1, 2]),
    )
    data = data.drop_vars("station").set_index(station=["basin", "number"])
    field = data.spline.fit(t=8, penalty=1e-3)
    again = xs.open_field(write(field, tmp_path / f"f.{suffix}"))
    xr.testing.assert_equal(again.predict(), field.predict())
    assert again.predict().indexes["station"].equals(field.predict().indexes["station"])
    np.testing.assert_array_equal(
        again.predict().sel(basin="s", number=2), field.predict().sel(basin="s", number=2)
    )


@pytest.mark.parametrize("suffix", FORMATS)
def test_labels_that_a_file_cannot_hold_are_named(tmp_path: Path, suffix: str) -> None:
    labels = np.empty(4, dtype=object)
    labels[:] = [(1, 2), {"a"}, None, 3.0]
    field = station_data(np.arange(4)).assign_coords(what=("station", labels)).spline.fit(t=8, penalty=1e-3)
    with pytest.raises(
        ValueError, match=r"coordinate 'what' has labels of type .*tuple.* which a file cannot hold"
    ):
        write(field, tmp_path / f"f.{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", FORMATS)
def test_much_json_fits_into_a_file(tmp_path: Path, suffix: str) -> None:
    """More than 64 KiB, as of many parts."""
    x = np.linspace(0, 1, 40)
    data = xr.DataArray(np.sin(x), {"x": x}, "x", "u")
    space = data.spline.space(x=6)
    names = [f"{k} {'long' * 9000}" for k in range(2)]
    many = xs.merge([data[k::2].spline.statistics(space, holder=name) for k, name in enumerate(names)])
    assert len(many.to_dataset().attrs["xspline"]) > 1 << 16
    assert contents(xs.open_statistics(write(many, tmp_path / f"s.{suffix}"))) == contents(many)
    assert os.listdir(tmp_path) == [f"s.{suffix}"]

"""A file or store takes its name once all of it is written; whatever fails before leaves what was there."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import xspline as xs
from tests.products import sst

WRITERS = {
    "fit.zarr": (lambda what, path, **kw: what.to_zarr(path, **kw), xs.open_statistics),
    "fit.nc": (lambda what, path, **kw: what.to_netcdf(path, **kw), xs.open_statistics),
}


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


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_there_when_writing_fails(statistics: xs.Statistics, tmp_path: Path, name: str) -> None:
    write, _ = WRITERS[name]
    with little_room(10_000), pytest.raises((OSError, RuntimeError), match=r"(?i)file too large|error"):
        write(statistics, tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", WRITERS)
def test_what_was_there_stays_when_writing_fails(
    statistics: xs.Statistics, tmp_path: Path, name: str
) -> None:
    write, read = WRITERS[name]
    write(statistics, tmp_path / name)
    with little_room(10_000), pytest.raises((OSError, RuntimeError), match=r"(?i)file too large|error"):
        write(statistics.collapse("b"), tmp_path / name, mode="w")
    assert read(tmp_path / name).holders == ("a",)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", WRITERS)
def test_writing_again_replaces(statistics: xs.Statistics, tmp_path: Path, name: str) -> None:
    write, read = WRITERS[name]
    write(statistics, tmp_path / name)
    write(statistics.collapse("b"), str(tmp_path / name), mode="w")
    assert read(tmp_path / name).holders == ("b",)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_store_is_not_replaced_unless_asked(statistics: xs.Statistics, tmp_path: Path) -> None:
    statistics.to_zarr(tmp_path / "a.zarr")
    with pytest.raises(FileExistsError, match=r"already contains data|is not empty"):
        statistics.to_zarr(tmp_path / "a.zarr")
    statistics.collapse("b").to_zarr(tmp_path / "a.zarr", group="b")
    assert xs.open_statistics(tmp_path / "a.zarr").holders == ("a",)
    assert xs.open_statistics(tmp_path / "a.zarr", group="b").holders == ("b",)

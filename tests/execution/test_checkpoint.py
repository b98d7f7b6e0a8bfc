"""An interrupted accumulation goes on where it stopped: same bits, only what is missing is read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import dask
import numpy as np
import pytest
import xarray as xr
import zarr

import xspline as xs
from tests.execution.cases import SPACE, Array, grid, limits, use_limits, values
from tests.products import SEASONS, sst
from xspline import execution
from xspline.execution.checkpoint import load, save
from xspline.sums import Sums

BIG = (60, 14, 12)


SMALL = limits(3000)
"""Many regions of a small array."""

sums = partial(execution.sums, limits=SMALL)


def digests(results: Sequence[Sums]) -> list[str]:
    return [result.digest() for result in results]


def test_after_an_interrupt_only_the_rest_is_read(tmp_path: Path) -> None:
    y = values(BIG)
    whole = Array(y, (3, 7, 6))
    expected = digests(sums([grid(whole)], SPACE))
    dying = Array(y, (3, 7, 6))

    def read(slices: tuple[slice, ...]) -> np.ndarray:
        if len(dying.reads) >= 20:
            raise KeyboardInterrupt("as if from the keyboard")
        return Array.read(dying, slices)

    dying.read = read  # type: ignore[method-assign]
    with dask.config.set(scheduler="synchronous"):
        with pytest.raises(KeyboardInterrupt, match="keyboard"):
            sums([grid(dying)], SPACE, checkpoint=tmp_path)
        kept = len(list(tmp_path.glob("*.npz")))
        rest = Array(y, (3, 7, 6))
        assert digests(sums([grid(rest)], SPACE, checkpoint=tmp_path)) == expected
    # One file is of one region, of at least one read.
    assert kept >= 5
    assert len(rest.reads) <= len(whole.reads) - kept
    assert not list(tmp_path.glob(".new-*"))


@pytest.mark.slow
def test_a_damaged_file_is_named_and_computed_again_once_deleted(tmp_path: Path) -> None:
    source = grid(Array(values(BIG), (3, 7, 6)))
    expected = digests(sums([source], SPACE, checkpoint=tmp_path))
    path = sorted(tmp_path.glob("*.npz"))[5]
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (flipped, whole[:middle], b""):
        path.write_bytes(damaged)
        with pytest.raises(
            ValueError, match=rf"checkpoint file .*{path.name} is damaged .* delete it and run again"
        ):
            sums([source], SPACE, checkpoint=tmp_path)
    path.unlink()
    assert digests(sums([source], SPACE, checkpoint=tmp_path)) == expected


def test_sums_with_other_numbers_than_their_digest_are_refused(tmp_path: Path) -> None:
    (result,) = sums([grid()], SPACE)
    (tmp_path / "description.json").touch()
    save(tmp_path / "0.npz", (), result)
    assert load(tmp_path / "0.npz")[0].digest() == result.digest()
    (tmp_path / "1.npz").write_bytes((tmp_path / "0.npz").read_bytes())
    with pytest.raises(ValueError, match=r"1\.npz is damaged .*it was written as 0\.npz"):
        load(tmp_path / "1.npz")
    with np.load(tmp_path / "0.npz") as file:
        arrays = dict(file)
    arrays["0_0_moment"] = arrays["0_0_moment"] * 2
    np.savez(tmp_path / "0.npz", **arrays)
    with pytest.raises(ValueError, match=r"its sums have digest .* and should have"):
        load(tmp_path / "0.npz")


def test_a_worker_that_does_not_see_the_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"does not see the checkpoint .*nowhere"):
        save(tmp_path / "nowhere" / "0.npz", (), sums([grid()], SPACE)[0])


def test_urls_and_lazy_fits_have_no_checkpoint(tmp_path: Path) -> None:
    data = sst().chunk(time=12)
    with pytest.raises(ValueError, match=r"directory on a path that all workers see, not 's3://bucket/c'"):
        data.spline.fit(lat=6, checkpoint="s3://bucket/c")
    with pytest.raises(ValueError, match="leave out compute=False"):
        data.spline.fit(lat=6, compute=False, checkpoint=tmp_path)


def test_in_memory_nothing_is_written(tmp_path: Path) -> None:
    data = sst()
    data.spline.fit(lat=6, lon=6, time=SEASONS, penalty=0.1, checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()


# A client that is killed


class Recorded(zarr.storage.LocalStore):
    """A store on disk that notes what is read, and ends its process at a chunk once `deadly` is there."""

    async def get(self, key, prototype, byte_range=None):  # type: ignore[no-untyped-def]
        beside = Path(self.root).parent
        if key.startswith("sst/c/"):
            if (beside / "deadly").exists() and key == "sst/c/7/0/1":
                os.kill(os.getpid(), signal.SIGKILL)
            with (beside / "reads").open("a") as file:
                file.write(f"{key}\n")
        return await super().get(key, prototype, byte_range)


def fit_with_checkpoint(folder: str, chunks: dict[str, int] | None) -> xs.Field:
    data = xr.open_zarr(Recorded(f"{folder}/sst.zarr", read_only=True), consolidated=False, chunks=chunks).sst
    with dask.config.set(scheduler="threads", num_workers=1), mock.patch.object(execution, "sums", sums):
        return data.spline.fit(lat=6, lon=8, time=SEASONS, penalty=0.1, checkpoint=f"{folder}/checkpoint")


@pytest.mark.simulation
@pytest.mark.parametrize("chunks", [{}, None], ids=["blocks", "regions"])
def test_a_client_that_is_killed_goes_on(
    tmp_path: Path, chunks: dict[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_limits(monkeypatch, SMALL)
    data = sst(months=96, lat=np.linspace(-20, 20, 40), lon=np.linspace(150, 210, 60), gaps=0.1)
    data.chunk(time=8, lat=20, lon=30).to_dataset().to_zarr(tmp_path / "sst.zarr", consolidated=False)
    plain = xr.open_zarr(tmp_path / "sst.zarr", consolidated=False, chunks=chunks).sst
    expected = plain.spline.fit(lat=6, lon=8, time=SEASONS, penalty=0.1).fits["sst"].coefficients

    (tmp_path / "deadly").touch()
    code = (
        "from tests.execution.test_checkpoint import fit_with_checkpoint\n"
        f"fit_with_checkpoint({str(tmp_path)!r}, {chunks})"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    kept = len(list((tmp_path / "checkpoint").glob("*.npz")))
    assert kept > 0
    assert json.loads((tmp_path / "checkpoint/description.json").read_text())["schema"] == 3

    (tmp_path / "deadly").unlink()
    (tmp_path / "reads").unlink()
    coefficients = fit_with_checkpoint(str(tmp_path), chunks).fits["sst"].coefficients
    assert coefficients.tobytes() == np.asarray(expected).tobytes()
    reads = (tmp_path / "reads").read_text().split()
    assert len(reads) <= 48 - kept
    assert len(list((tmp_path / "checkpoint").glob("*.npz"))) > kept

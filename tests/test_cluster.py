"""The fit on real worker processes and real stores: killed workers, failing reads, one answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from distributed import Client
from threadpoolctl import threadpool_limits

from tests.products import BASES, bits, opened, sst


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "sst.zarr"
    data = sst(months=96, lat=np.linspace(-20, 20, 40), lon=np.linspace(150, 210, 60), gaps=0.1)
    data.chunk(time=2, lat=20, lon=30).to_dataset().to_zarr(path, consolidated=False)
    return path


@pytest.fixture(scope="module")
def expected(store: Path) -> bytes:
    with threadpool_limits(2, user_api="blas"):  # workers have one
        return bits(opened(store).spline.fit(BASES, penalty=0.1))


def test_same_bits_on_threads_and_on_workers(store: Path, expected: bytes, client: Client) -> None:
    assert len(client.scheduler_info()["workers"]) == 2
    assert bits(opened(store).spline.fit(BASES, penalty=0.1)) == expected


def test_lazy_predictions_are_written_from_workers(store: Path, client: Client, tmp_path: Path) -> None:
    data = opened(store)
    field = data.spline.fit(BASES, penalty=0.1)
    field.predict().to_zarr(tmp_path / "fit.zarr", consolidated=False)
    written = xr.open_zarr(tmp_path / "fit.zarr", consolidated=False).sst
    np.testing.assert_allclose(written, field.predict(data.load()), rtol=1e-13)


def test_lazy_fit_on_workers(store: Path, expected: bytes, client: Client) -> None:
    lazy = opened(store).spline.fit(BASES, penalty=0.1, compute=False)
    assert bits(lazy.compute()) == expected
    assert bits(lazy.persist().compute()) == expected

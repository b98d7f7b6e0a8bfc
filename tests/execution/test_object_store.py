"""Zarr on an S3-compatible server that fails now and then, over HTTP, and that refuses one of its objects."""

from __future__ import annotations

import logging
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import xspline as xs
from tests.products import sst

pytestmark = pytest.mark.slow

BASES = {"lat": 6, "lon": 8, "time": xs.Fourier(1, period="year") + xs.Polynomial(1)}
BUSY = "503 Slow Down", "SlowDown", "Please reduce your request rate."
REFUSED = "403 Forbidden", "AccessDenied", "Access Denied"


class Server:
    """An S3 server on this machine, behind a door that does not let every request for a chunk through.

    Attributes
    ----------
    busy : part of the path of objects, for every third of which the first two requests are answered with a 503.
    refused : part of the path of what nobody may read.
    faults : how many requests were not answered.
    requests : for chunks, by path.
    """

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self.busy, self.refused, self.faults, self.requests = "none", "none", 0, Counter[str]()
        self._app, self._lock = DomainDispatcherApplication(create_backend_app), threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.port}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Server:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, request: dict[str, Any], start: Callable[..., Any]) -> Any:
        path, fault = request["PATH_INFO"], None
        if request["REQUEST_METHOD"] == "GET" and "/c/" in path:
            with self._lock:
                self.requests[path] += 1
                if self.refused in path:
                    fault = REFUSED
                elif self.busy in path and self.requests[path] < 3 and zlib.crc32(path.encode()) % 3 == 0:
                    fault = BUSY
                self.faults += fault is not None
        if fault is None:
            return self._app(request, start)
        status, code, message = fault
        start(status, [("Content-Type", "application/xml")])
        return [
            f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        ]

    def store(self, path: str, **options: Any) -> Any:
        """A store whose own retries are few, so that those of the fit are what helps."""
        import s3fs

        fs = s3fs.S3FileSystem(
            key="any",
            secret="any",
            endpoint_url=self.url,
            asynchronous=True,
            config_kwargs={"retries": {"max_attempts": 0}},
            skip_instance_cache=True,
        )
        fs.retries = 1
        return zarr.storage.FsspecStore(fs, path=f"bucket/{path}", **options)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    import s3fs

    with Server() as local:
        s3fs.S3FileSystem(key="any", secret="any", endpoint_url=local.url).mkdir("bucket")
        sst(months=48).to_zarr(
            local.store("sst"), encoding={"sst": {"chunks": (12, 17, 20)}}, consolidated=False, mode="w"
        )
        yield local


@pytest.fixture(autouse=True)
def calm(server: Server) -> None:
    server.busy, server.refused, server.faults = "none", "none", 0
    server.requests.clear()


def opened(server: Server, chunks: Any) -> xr.DataArray:
    return xr.open_zarr(server.store("sst", read_only=True), chunks=chunks, consolidated=False).sst


@pytest.mark.parametrize("chunks", [None, {}], ids=["lazily indexed", "Dask"])
def test_faults_that_pass_change_nothing(server: Server, chunks: Any) -> None:
    data = opened(server, chunks)
    calm = data.spline.fit(BASES, penalty=0.1)
    server.requests.clear()
    server.busy = "sst/sst/c/"
    field = opened(server, chunks).spline.fit(BASES, penalty=0.1)
    assert server.faults > 3
    np.testing.assert_array_equal(field.coefficients, calm.coefficients)
    expected = sst(months=48).spline.fit(BASES, penalty=0.1).predict()
    np.testing.assert_allclose(field.predict(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("chunks", [None, {}], ids=["lazily indexed", "Dask"])
def test_what_cannot_be_read_is_named_by_its_labels(server: Server, chunks: Any) -> None:
    server.refused = "sst/c/1/0/1"
    with pytest.raises(PermissionError, match="Access Denied") as caught:
        opened(server, chunks).spline.fit(BASES, penalty=0.1)
    (note,) = (n for n in caught.value.__notes__ if n.startswith("that is sst"))
    assert "time=2001-01-01…2001-12-01" in note and "bucket/sst" in note and "cannot be read" in note


def test_statistics_and_checkpoints(server: Server, tmp_path: Path) -> None:
    data = opened(server, None)
    field = data.spline.fit(BASES, penalty=0.1, checkpoint=tmp_path)
    server.requests.clear()
    again = data.spline.fit(BASES, penalty=0.1, checkpoint=tmp_path)
    assert not any("/sst/c/" in path for path in server.requests)
    np.testing.assert_array_equal(again.coefficients, field.coefficients)
    field.statistics.to_zarr(server.store("statistics"))
    server.busy = "statistics/"
    opened_again = xs.open_statistics(server.store("statistics"))
    assert server.faults >= 2 and opened_again.parts[0].digest == field.statistics.parts[0].digest
    with pytest.raises(FileNotFoundError, match="or is no store with arrays: pass another path"):
        xs.open_statistics(server.store("nothing"))
    server.refused = "statistics/part0"
    with pytest.raises(PermissionError, match="Access Denied"):
        xs.open_statistics(server.store("statistics"))

"""Dask's array expressions are refused in one sentence, wherever a Dask array comes in or goes out; all else works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# In a process of its own, as Dask decides when its arrays are first imported. It prints how each call ended.
CALLS = """
import json, sys
import dask
dask.config.set({"array.query-planning": True})
import dask.array as da, numpy as np, xarray as xr, xspline as xs

folder = sys.argv[1]
t = np.arange(400.0)
v = np.sin(t / 60)
memory = xr.DataArray(v, {"t": t}, "t", "v")
memory.to_dataset().to_zarr(f"{folder}/v.zarr", consolidated=False)
blocks = memory.chunk(t=10)
ones = (memory * 0 + 1).chunk(t=10)
points = xr.DataArray(v, {"t": ("obs", da.from_array(t, chunks=10))}, "obs", "v")
opened = xr.open_zarr(f"{folder}/v.zarr", chunks=None, consolidated=False).v
chunked = xr.open_zarr(f"{folder}/v.zarr", chunks={"t": 10}, consolidated=False).v
fit = dict(t=20, penalty=0.1)
field = memory.spline.fit(**fit)
calls = {
    "memory": lambda: field.predict(),
    "store": lambda: opened.spline.fit(checkpoint=f"{folder}/a", **fit).statistics.total("v"),
    "fit": lambda: blocks.spline.fit(**fit),
    "many blocks": lambda: memory.chunk(t=2).spline.fit(**fit),
    "compute=False": lambda: blocks.spline.fit(compute=False, **fit).compute(),
    "lazy fit of a store": lambda: opened.spline.fit(compute=False, **fit).compute(),
    "checkpoint": lambda: chunked.spline.fit(checkpoint=f"{folder}/b", **fit),
    "weights": lambda: blocks.spline.fit(weights=ones, **fit),
    "weights of a store": lambda: opened.spline.fit(weights=ones, **fit),
    "positions": lambda: points.spline.fit(t=xs.BSpline(20, domain=(0.0, 400.0)), penalty=0.1),
    "predict": lambda: field.predict(chunks={"t": 50}).compute(),
    "target": lambda: field.predict(xr.Dataset(coords=points.coords)).compute(),
    "derivative": lambda: field.derivative(t=1, chunks={"t": 50}).compute(),
    "stderr": lambda: field.stderr(chunks={"t": 50}).compute(),
    "plan": lambda: blocks.spline.plan(t=20),
    "statistics": lambda: blocks.spline.statistics(blocks.spline.space(t=20)),
}
ended = {}
for name, call in calls.items():
    try:
        call()
        ended[name] = "works"
    except Exception as error:
        ended[name] = f"{type(error).__name__}: {error}"
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = str(tmp_path_factory.mktemp("expressions"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CALLS, folder],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_without_dask_arrays_all_works(ended: dict[str, str]) -> None:
    assert {name: ended[name] for name in ("memory", "store")} == {"memory": "works", "store": "works"}


def test_with_them_each_call_works_or_says_what_to_do(ended: dict[str, str]) -> None:
    clear = (
        "NotImplementedError: xspline does not support Dask's array expressions, which are experimental: set "
    )
    internal = {name: text for name, text in ended.items() if text != "works" and not text.startswith(clear)}
    assert not internal
    assert sum(text.startswith(clear) for text in ended.values()) >= 8

"""Values on a GPU go through xarray and Dask into the same fit as values on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.cupy_on_numpy.cupy import ndarray
from tests.devices import Device, StandIn
from tests.solve.cases import on
from xspline import execution
from xspline.solve import Resources
from xspline.solve.costs import CostModel

Put = Callable[[np.ndarray], Any]
SEASON = xs.Fourier(1, "365.2425D")


# Few functions, on purpose: the comparisons are quick.
pytestmark = pytest.mark.filterwarnings("ignore:.*the knots limit the fit:xspline.FitWarning")


@pytest.fixture(params=["duck", pytest.param("GPU", marks=pytest.mark.gpu)])
def put(request: pytest.FixtureRequest) -> Put:
    """How an array gets to a GPU, or to what stands in for one."""
    if request.param == "duck":
        return ndarray
    import cupy

    return cupy.asarray


def grid() -> xr.DataArray:
    """Two years of months with land that never changes, float32."""
    sst = xs.synthetic.sea_surface_temperature(24, lat=(-30, 30), lon=(120.0, 280.0)).sst[:, ::4, ::8]
    return sst.astype("float32")


def clouds() -> xr.DataArray:
    sst = grid()
    return sst.where(np.random.default_rng(0).random(sst.shape) > 0.3)


def reports() -> xr.DataArray:
    return xs.synthetic.diffusion().scatter(4000, seed=0)


def curvilinear() -> xr.DataArray:
    sst = clouds()
    y, x = np.meshgrid(np.arange(sst.lat.size), np.arange(sst.lon.size), indexing="ij")
    lat, lon = -25.0 + 3.0 * y + 0.2 * x, 130.0 + 5.0 * x - 0.3 * y
    return (
        sst.rename(lat="y", lon="x")
        .drop_vars(["y", "x"])
        .assign_coords(lat=(("y", "x"), lat), lon=(("y", "x"), lon))
    )


PLACE = {"lat": 5, "lon": 7}
CASES: dict[str, tuple[Callable[[], xr.DataArray], dict[str, Any], dict[str, int]]] = {
    "static land": (grid, {**PLACE, "time": SEASON}, {"time": 6}),
    "clouds": (clouds, {**PLACE, "time": SEASON}, {"time": 7, "lat": 8}),
    "each pixel": (clouds, {"time": SEASON + xs.Polynomial(1)}, {"lat": 5}),
    "points": (reports, {"x": 6, "y": 6, "t": 5}, {"obs": 1100}),
    "curvilinear": (curvilinear, {**PLACE, "time": xs.Polynomial(1)}, {"time": 8}),
}


def apart(a: xs.Field, b: xs.Field) -> float:
    """Largest difference of the coefficients, relative."""
    return float(np.abs(a.coefficients - b.coefficients).max() / np.abs(b.coefficients).max())


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # CuPy's, of NumPy 2.5
def test_numpy_neither_reads_arrays_of_a_gpu_nor_mixes_with_them(put: Put) -> None:
    there = put(np.ones(3))
    for use in (np.asarray, np.ones(3).__add__, np.ones(3).dot):
        with pytest.raises(TypeError, match=r"[Ii]mplicit|host array|Unsupported type"):
            use(there)


@pytest.mark.filterwarnings("ignore:.*residuals of neighbours")
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_gives_the_fit_of_the_host(name: str, chunked: bool, put: Put) -> None:
    make, bases, chunks = CASES[name]
    data = make()
    moved = data.copy(data=put(data.values))
    field = (moved.chunk(chunks) if chunked else moved).spline.fit(bases, penalty=1e-3)
    assert apart(field, data.spline.fit(bases, penalty=1e-3)) < 1e-10
    assert isinstance(field.coefficients.data, np.ndarray)


@pytest.mark.slow
def test_holders_and_smoothing_of_a_gpu(put: Put) -> None:
    data = clouds()
    field, moved = (
        d.spline.fit({**PLACE, "time": SEASON}, holder="time.year")
        for d in (data, data.copy(data=put(data.values)))
    )
    assert apart(moved, field) < 1e-9
    np.testing.assert_allclose(moved.stderr(), field.stderr(), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::xspline.FitWarning")
def test_single_values_of_a_gpu_are_looked_at_on_the_host(put: Put) -> None:
    data = clouds()[3]
    moved = data.copy(data=put(data.values))
    for options in ({}, {"lat": 5, "lon": 7, "robust": True}):
        field, host = moved.spline.fit(**options), data.spline.fit(**options)
        xr.testing.assert_allclose(field.stderr(data), host.stderr(data), rtol=1e-6)
        assert str(field.check(moved.chunk(lat=6))) == str(host.check(data))


def test_an_infinity_on_a_gpu_is_named(put: Put) -> None:
    data = grid()
    data[3, 2, 5] = np.inf
    with pytest.raises(ValueError, match=r"sst .*infinite.* at time=1990-04-01"):
        data.copy(data=put(data.values)).spline.fit({**PLACE, "time": SEASON})


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_blocks_moved_to_the_gpu_by_their_tasks_give_the_fit_of_the_host(name: str) -> None:
    make, bases, chunks = CASES[name]
    data = make().chunk(chunks)
    field = data.spline.fit(bases, penalty=1e-3)
    moved = data.spline.fit(bases, penalty=1e-3, device="cuda")
    assert apart(moved, field) < 1e-10
    for here, there in ((field.predict(), moved.predict(device="cuda")),):
        np.testing.assert_allclose(there, here, rtol=0, atol=1e-9 * float(np.abs(here).max()))


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is so near that small dense systems are worth the transfer too."""
    here, costs = execution.resources, CostModel(transfer_flops=0.0)
    monkeypatch.setattr("xspline.execution.resources", lambda name: replace(here(name), costs=costs))


@pytest.fixture
def cuda(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is the one that is named "cuda", and so near that small systems are worth the transfer."""

    def resources(name: str | None) -> Resources:
        return on(device if name else None, transfer_flops=0.0)

    monkeypatch.setattr("xspline.execution.resources", resources)
    if isinstance(device, StandIn):
        monkeypatch.setattr("xspline.execution.device.gpu.has_gpu", lambda: True)


def same_field(ours: xs.Field, host: xs.Field) -> None:
    """Coefficients, what they are known by, and their errors; all of it on the host."""
    system = ours.solution["sst"].factorisation
    assert system.choice.on_gpu and not host.solution["sst"].factorisation.choice.on_gpu
    assert apart(ours, host) < 1e-9
    np.testing.assert_allclose(system.edf(), host.solution["sst"].factorisation.edf(), rtol=1e-9)
    np.testing.assert_allclose(ours.stderr(), host.stderr(), rtol=1e-8)
    for on_gpu, other in (
        (ours.sample(3, seed=0), host.sample(3, seed=0)),
        (ours.stderr(method="draws"), host.stderr(method="draws")),
    ):
        on_gpu, other = (getattr(x, "coefficients", x).compute() for x in (on_gpu, other))
        assert isinstance(on_gpu.data, np.ndarray)
        np.testing.assert_allclose(on_gpu, other, rtol=0, atol=1e-8 * float(np.abs(other).max()))


@pytest.mark.parametrize(
    ("bases", "penalty"),
    [
        ({**PLACE, "time": SEASON}, 1e-3),
        ({**PLACE, "time": SEASON}, "reml"),
        (PLACE, xs.Roughness(1e-3)),  # each month by itself
        pytest.param({**PLACE, "time": SEASON}, "gcv", marks=pytest.mark.slow),
    ],
)
def test_dense_systems_on_a_gpu(bases: dict[str, Any], penalty: Any, cuda: None) -> None:
    statistics = clouds().spline.statistics(bases)
    ours, host = (statistics.solve(penalty, solver="dense", device=name) for name in ("cuda", None))
    same_field(ours, host)


@pytest.mark.slow
def test_a_gpu_also_solves_what_is_solved_later(cuda: None) -> None:
    """Lazy fields, and the fits without each part."""
    statistics = (
        clouds()
        .chunk({"time": 12})
        .spline.statistics({**PLACE, "time": SEASON}, holder="time.year", compute=False)
    )
    lazy, host = (statistics.solve("reml", solver="dense", device=name) for name in ("cuda", None))
    computed = lazy.compute()
    same_field(computed, host.compute())
    np.testing.assert_allclose(lazy.coefficients.compute(), computed.coefficients, rtol=1e-7)
    jackknife = [field.stderr(method="jackknife") for field in (computed, host.compute())]
    np.testing.assert_allclose(*jackknife, rtol=0, atol=1e-6 * float(jackknife[1].max()))


@pytest.mark.gpu
@pytest.mark.parametrize("chunked", [False, True])
def test_a_fit_with_its_smoothing_on_a_gpu(chunked: bool, near: None) -> None:
    data = clouds().chunk({"time": 7, "lat": 8}) if chunked else clouds()
    ours, host = (
        data.spline.fit({**PLACE, "time": SEASON}, penalty="reml", solver="dense", device=name)
        for name in ("cuda", None)
    )
    same_field(ours, host)


def test_an_undetermined_system_on_a_gpu_is_the_one_of_the_host(cuda: None) -> None:
    statistics = clouds().isel(time=slice(2)).spline.statistics({**PLACE, "time": SEASON})
    said = []
    for name in ("cuda", None):
        with pytest.raises(xs.SingularSystemError, match="coefficients") as caught:
            statistics.solve(0, solver="dense", device=name)
        said.append(str(caught.value))
    assert said[0] == said[1]

"""Where blocks are processed: names, messages, and a stand-in for CuPy."""

from __future__ import annotations

import pickle
import sys
import types
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, Scheduler, SpecCluster, Worker, get_task_stream

from tests.cupy_on_numpy.cupy import ndarray
from xspline.execution import (
    Gpu,
    check_device,
    evaluate,
    has_gpu,
    lazy_sums,
    plan,
    present,
    resources,
    sums,
    to_device,
)
from xspline.execution.device.gpu import on_gpu_workers

from .cases import GRID, SHAPE, SPACE, Array, assert_same, chunked, grid, limits, positions, values

STEPS = limits(8000, gpu_step_bytes=8000)


@pytest.mark.parametrize("device", ["gpu", "cuda:1", "cpu", ""])
def test_unknown_devices_are_refused_everywhere(device: str) -> None:
    calls = [
        lambda: check_device(device),
        lambda: sums([grid()], SPACE, device=device),
        lambda: lazy_sums(grid(), SPACE, device=device),
        lambda: plan(grid(), SPACE, device=device),
        lambda: evaluate(
            np.ones(SPACE.shape), positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE, device=device
        ),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"device='.*' is not known; leave it out .* or pass 'cuda'"):
            call()


def test_without_cupy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    for call in (lambda: to_device(np.ones(3), "cuda"), lambda: sums([grid()], SPACE, device="cuda")):
        with pytest.raises(ImportError, match=r"xarray-spline\[gpu12\].*xarray-spline\[gpu13\]"):
            call()
    check_device("cuda")  # a graph for workers that have one may be built here
    lazy_sums(grid(chunked(values(), 5)), SPACE, device="cuda")


class _RuntimeError(Exception):
    pass


def fake_cupy(gpus: int | None) -> types.ModuleType:
    """A module that sees some GPUs, or cannot say how many."""

    def count() -> int:
        if gpus is None:
            raise _RuntimeError("cudaErrorNoDevice")
        return gpus

    module: Any = types.ModuleType("cupy")
    module.cuda = types.SimpleNamespace(
        runtime=types.SimpleNamespace(getDeviceCount=count, CUDARuntimeError=_RuntimeError)
    )
    module.asarray = lambda x: x
    return module


Moved = list[tuple[int, ...]]
"""Shapes of the arrays that were moved to a GPU, in turn."""


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Moved:
    """A stand-in for CuPy whose arrays NumPy cannot read, and which notes what is moved."""
    shapes: Moved = []

    def asarray(array: Any) -> ndarray:
        if isinstance(array, ndarray):
            return array
        assert array.dtype.isnative and array.flags.c_contiguous
        shapes.append(array.shape)
        return ndarray(array.copy())

    module = fake_cupy(1)
    module.asarray = asarray  # type: ignore[attr-defined]
    monkeypatch.setattr("xspline.execution.device.gpu._cupy", lambda: module)
    return shapes


@pytest.mark.parametrize("gpus", [None, 0])
def test_without_a_gpu_the_error_says_so(monkeypatch: pytest.MonkeyPatch, gpus: int | None) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(gpus))
    with pytest.raises(RuntimeError, match=r"no GPU is visible to this process.*CUDA_VISIBLE_DEVICES"):
        check_device("cuda", here=True)


def test_a_client_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert resources(None).gpu is None and not has_gpu()
    with pytest.raises(ImportError, match=r"xarray-spline\[gpu12\]"):
        resources("cuda")
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(1))
    assert has_gpu()


def test_a_process_that_a_gpu_is_sent_to_takes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(1))
    sent = pickle.dumps(resources("cuda").gpu)
    assert isinstance(pickle.loads(sent), Gpu) and present("cuda") == "cuda"
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(0))
    assert present("cuda") is None
    with pytest.raises(RuntimeError, match="no GPU is visible to this process"):
        pickle.loads(sent)


def test_each_block_moves_inside_its_own_task(moved: Moved) -> None:
    lazy = lazy_sums(grid(chunked(values(), (10, 14, 12))), SPACE, device="cuda")
    assert not moved
    result = lazy.compute(scheduler="threads", num_workers=3)
    assert moved == [(10, 14, 12)] * 3
    assert_same(result, sums([grid()], SPACE)[0], SPACE)


@pytest.mark.parametrize("gaps", ["static", "any"])
def test_each_step_is_read_and_moved_once(moved: Moved, gaps: str) -> None:
    """The sums are those of the host."""
    sources = [grid(Array(values(gaps=gaps), (3, 7, 12))) for _ in range(2)]
    with dask.config.set(scheduler="synchronous"):
        expected, result = (
            sums([s], SPACE, device=d, limits=STEPS)[0] for s, d in zip(sources, (None, "cuda"), strict=True)
        )
    assert_same(result, expected, SPACE)
    reads = [sorted(source.values.reads, key=str) for source in sources]
    assert reads[0] == reads[1]
    assert len(reads[0]) == len(moved) >= 5


@pytest.mark.parametrize("declared", [True, False])
def test_tasks_go_where_a_gpu_is_declared(moved: Moved, declared: bool) -> None:
    source = grid(Array(values(), (3, 7, 6)))
    options = {"nthreads": 1, "dashboard": False}
    workers = {name: {"cls": Worker, "options": {**options, "name": name}} for name in ("plain", "GPU")}
    if declared:
        workers["GPU"]["options"]["resources"] = {"GPU": 1}
    scheduler = {"cls": Scheduler, "options": {"protocol": "inproc://", "dashboard": False}}
    for worker in workers.values():
        worker["options"]["protocol"] = "inproc://"
    with SpecCluster(workers=workers, scheduler=scheduler) as cluster, Client(cluster) as client:
        with get_task_stream(client) as stream:
            result = sums([source], SPACE, device="cuda", limits=limits(5000))[0]
        ran = {task["worker"] for task in stream.data}
        assert not declared or ran == {cluster.workers["GPU"].worker_address}
    assert_same(result, sums([grid()], SPACE)[0], SPACE)


@pytest.mark.parametrize(
    ("gpus", "asks"),
    [([0, 0], False), ([0, 1], True), ([2, 2], False), ([2, 1], True), ([2] * 6 + [0], True)],
)
def test_tasks_ask_for_a_gpu_where_that_changes_something(gpus: list[int], asks: bool) -> None:
    """Workers of two threads each; where every thread has a GPU, Dask places the tasks as it likes."""

    class Client:
        def scheduler_info(self, n_workers: int = 5) -> Any:
            workers = [{"resources": {"GPU": n} if n else {}, "nthreads": 2} for n in gpus]
            return {"workers": dict(enumerate(workers[: None if n_workers < 0 else n_workers]))}

    with on_gpu_workers("cuda", Client()):
        assert bool(dask.get_annotations()) is asks
    with on_gpu_workers(None, Client()):
        assert not dask.get_annotations()

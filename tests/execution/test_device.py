"""Where blocks are processed: names, messages, and a stand-in for CuPy."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from tests.execution.cases import GRID, SHAPE, assert_same, chunked, grid, positions, space, values
from xspline.execution import card, check_device, evaluate, has_card, lazy_sums, plan, sums, to_device

SPACE = space()


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


def test_none_leaves_the_array_alone() -> None:
    x = np.ones(3)
    assert to_device(x, None) is x


def test_without_cupy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    for call in (lambda: to_device(np.ones(3), "cuda"), lambda: sums([grid()], SPACE, device="cuda")):
        with pytest.raises(ImportError, match=r"xarray-spline\[gpu12\].*xarray-spline\[gpu13\]"):
            call()
    check_device("cuda")  # a graph for workers that have one may be built here
    lazy_sums(grid(chunked(values(), 5)), SPACE, device="cuda")


class _RuntimeError(Exception):
    pass


def fake_cupy(cards: int | None) -> types.ModuleType:
    """A module that counts what is moved to its card, which is the host."""

    def count() -> int:
        if cards is None:
            raise _RuntimeError("cudaErrorNoDevice")
        return cards

    module: Any = types.ModuleType("cupy")
    module.cuda = types.SimpleNamespace(
        runtime=types.SimpleNamespace(getDeviceCount=count, CUDARuntimeError=_RuntimeError)
    )
    module.moved = []
    module.asarray = lambda x: module.moved.append(np.shape(x)) or np.asarray(x)
    return module


@pytest.mark.parametrize("cards", [None, 0])
def test_without_a_card_the_error_says_so(monkeypatch: pytest.MonkeyPatch, cards: int | None) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(cards))
    with pytest.raises(RuntimeError, match=r"no card is visible to this process.*CUDA_VISIBLE_DEVICES"):
        check_device("cuda", here=True)


def test_a_client_without_a_card_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert card(None) is None and not has_card()
    with pytest.raises(ImportError, match=r"xarray-spline\[gpu12\]"):
        card("cuda")
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(1))
    assert has_card()


def test_each_block_moves_inside_its_own_task(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = fake_cupy(1)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    lazy = lazy_sums(grid(chunked(values(), (10, 14, 12))), SPACE, device="cuda")
    assert not cupy.moved
    found = lazy.compute()
    assert cupy.moved == [(10, 14, 12)] * 3
    assert_same(found, sums([grid()], SPACE)[0], SPACE)
    out = evaluate(np.ones(SPACE.shape), positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE, device="cuda")
    assert cupy.moved[3:] == [SPACE.shape]
    assert isinstance(out, np.ndarray)

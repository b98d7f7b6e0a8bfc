"""Threads: the same bits on any number of them and whatever else runs, and BLAS left as it was found."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import numpy as np
import pytest
import xarray as xr
from threadpoolctl import ThreadpoolController, threadpool_limits

from tests.solve.cases import Case, gaps, grid, space_of, static
from xspline import threads
from xspline.solve import Penalty, Ridge, Roughness, choose, solve
from xspline.sums import Gram, Sums
from xspline.threads import on_cores, single_threaded_blas

SPACE = space_of("cubic", "circle", "cubic")
SMOOTH = Roughness(1e-3)
SOLVES: dict[str, tuple[Callable[..., tuple[Case, Gram]], Penalty]] = {
    "spectral": (grid, Ridge(0.1)),
    "separable": (static, Ridge(0.1)),
    "banded": (gaps, SMOOTH),
    "dense": (gaps, SMOOTH),
    "iterative": (gaps, SMOOTH),
}


def threads_of_blas() -> list[int]:
    return [x.num_threads for x in ThreadpoolController().lib_controllers if x.user_api == "blas"]


@functools.cache
def sums_of(name: str, seed: int) -> Sums:
    case, gram = SOLVES[name][0](SPACE, np.random.default_rng(seed))
    return case.sums(gram)


def answers(name: str, seed: int) -> list[np.ndarray]:
    solution = solve(sums_of(name, seed), SPACE, SOLVES[name][1], name)
    own = [] if name == "iterative" else [solution.factorisation.inverse_pairs()]
    return [solution.coefficients, solution.rss, solution.factorisation.edf(), *own]


@pytest.mark.slow
def test_concurrent_solves_have_the_bits_of_solves_one_after_the_other() -> None:
    tasks = [(name, seed) for seed in range(4) for name in SOLVES]
    expected = [answers(*task) for task in tasks]
    before = threads_of_blas()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda task: answers(*task), tasks))
    for ours, theirs in zip(together, expected, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert threads_of_blas() == before


@pytest.mark.parametrize("name", SOLVES)
def test_same_bits_on_one_and_on_more_threads_of_blas(name: str) -> None:
    with threadpool_limits(1):
        expected = answers(name, 0)
    with threadpool_limits(4):
        ours = answers(name, 0)
    assert all(np.array_equal(a, b) for a, b in zip(ours, expected, strict=True))


def test_a_choice_of_smoothing_has_the_same_bits_on_more_threads_of_blas() -> None:
    sums, choices = sums_of("banded", 0), []
    for number in (1, 4):
        with threadpool_limits(number):
            choices.append(choose(sums, SPACE, Roughness("reml")))
    ours, theirs = choices
    assert ours.penalty == theirs.penalty and ours.score == theirs.score


def test_the_last_one_to_leave_restores_the_threads_of_blas() -> None:
    if not threads._libraries()[0]:
        pytest.skip(
            "BLAS over OpenMP has a number of threads for each thread that calls it, none for the process"
        )
    with threadpool_limits(3):
        before, entered, leave = threads_of_blas(), Event(), Event()

        def other() -> None:
            with single_threaded_blas():
                entered.set()
                leave.wait(10)

        thread = Thread(target=other)
        with single_threaded_blas():
            thread.start()
            entered.wait(10)
            with single_threaded_blas():
                assert set(threads_of_blas()) == {1}
        assert set(threads_of_blas()) == {1}  # the other one is still there
        leave.set()
        thread.join()
        assert threads_of_blas() == before


def test_an_error_restores_the_threads_of_blas() -> None:
    with threadpool_limits(3):
        before = threads_of_blas()
        with pytest.raises(ValueError, match="within"), single_threaded_blas():
            raise ValueError("within")
        assert threads_of_blas() == before


@pytest.mark.slow
def test_neighbours_predict_the_same_bits_on_any_number_of_threads() -> None:
    x = np.linspace(0, 9, 36)
    values = np.sin(x)[:, None] * np.cos(2 * x) + 0.1 * np.random.default_rng(0).standard_normal((36, 36))
    field = xr.DataArray(values, {"y": x, "x": x}, name="u").spline.fit(seconds=1)
    one, three = (on_cores(n)(field.predict)(x=x + 0.1, stderr=True, extrapolate=True) for n in (1, 3))
    xr.testing.assert_equal(one, three)
    chunked = field.predict(x=x + 0.1, stderr=True, extrapolate=True, chunks={"x": -1, "y": -1})
    xr.testing.assert_equal(chunked.compute(), one)

"""The iterative solver on a GPU: its pieces and solutions are those of the host.

The product is the CUDA C++ kernel, which the host's compiler compiles where there is no GPU.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.devices import Device
from tests.solve.cases import gaps, on, space_of
from tests.solve.test_iterative import System, roughness
from xspline.solve import solve
from xspline.solve.device.multigrid import DeviceBackend, DeviceOperator, DeviceSchwarz
from xspline.solve.multigrid.operator import Operator
from xspline.solve.multigrid.schwarz import Schwarz
from xspline.solve.multigrid.solver import Iterative
from xspline.solve.multigrid.spaces import AxisLevel, FourAxes
from xspline.solve.multigrid.vcycle import HOST, Level, Multigrid, coarsened
from xspline.spaces import BSpline, Fourier

SYSTEMS = {
    "cubic": lambda: System.of(6, 1e-4),
    "with a season": lambda: System.of(4, 1e-4, s=Fourier(1, period=0.5)),
    "four splines": lambda: System.of(4, 1e-4, s=BSpline(4, degree=2, domain=(0, 1))),
}
AXES = [("circle", "season"), ("uneven", "linear", "short circle"), ("linear",) * 4]


def vectors(sizes: tuple[int, ...], count: int = 3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, *sizes))


def close(ours: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize(("names", "count"), [*zip(AXES, (1, 3, 9), strict=True)])
def test_products_over_every_kind_of_axis(names: tuple[str, ...], count: int, device: Device) -> None:
    space = space_of(*names)
    _, gram = gaps(space, np.random.default_rng(0))
    four = FourAxes.of(space)
    pairs = four.pairs(gram.one_factor(space.frame).pairs)
    x = vectors(four.sizes, count)
    ours, host = DeviceOperator(device.put(pairs), four.axes, device), Operator(pairs, four.axes)
    product = device.get(ours.matvec(device.put(x)))
    close(product, host.matvec(x), 1e-13)
    np.testing.assert_array_equal(device.get(ours.matvec(device.put(np.asfortranarray(x)))), product)
    close(ours.inverse_root_diagonal(), host.inverse_root_diagonal(), 1e-14)


@pytest.mark.parametrize("periodic", [*itertools.product([False, True], repeat=4)])
def test_any_axis_may_be_periodic(periodic: tuple[bool, ...], device: Device) -> None:
    sizes, offsets = (5, 6, 3, 7), (3, 2, 2, 4)
    axes = [AxisLevel(*axis) for axis in zip(sizes, offsets, periodic, strict=True)]
    pairs, x = np.random.default_rng(0).normal(size=(*sizes, *offsets)), vectors(sizes, 2)
    ours = DeviceOperator(device.put(pairs), axes, device)
    close(device.get(ours.matvec(device.put(x))), Operator(pairs, axes).matvec(x), 1e-13)


@pytest.mark.parametrize("name", SYSTEMS)
def test_smoother(name: str, device: Device) -> None:
    system = SYSTEMS[name]()
    x = vectors(FourAxes.of(system.space).sizes)
    ours = DeviceSchwarz(device.put(system.pairs), system.axes, device)
    close(device.get(ours.apply(device.put(x))), Schwarz(system.pairs, system.axes).apply(x), 1e-3)


def test_changes_of_level(device: Device) -> None:
    system = SYSTEMS["cubic"]()
    coarse = coarsened(system.axes, ())
    host = Level(system.pairs, system.axes, coarse, HOST)
    ours = Level(device.put(system.pairs), system.axes, coarse, DeviceBackend(device))
    x = vectors(host.matrix.sizes)
    close(device.get(ours.project(device.put(system.pairs))), host.project(system.pairs), 1e-13)
    close(device.get(ours.restrict(device.put(x))), host.restrict(x), 1e-14)
    y = vectors(tuple(axis.size for axis in coarse))
    close(device.get(ours.prolong(device.put(y))), host.prolong(y), 1e-14)
    assert ours.bound == pytest.approx(host.bound, rel=1e-3)


def test_pairs_with_a_penalty_are_those_of_the_host(device: Device) -> None:
    system = SYSTEMS["with a season"]()
    arguments = system.sums.gram.with_batch_axes(1), system.penalty, system.space.frame
    four = FourAxes.of(system.space)
    host = HOST.pairs(*arguments, four)
    close(device.get(DeviceBackend(device).pairs(*arguments, four)), host, 1e-14)


def test_cycle(device: Device) -> None:
    system = SYSTEMS["cubic"]()
    ours = Multigrid(device.put(system.pairs), system.axes, coarsest=60, backend=DeviceBackend(device))
    host = Multigrid(system.pairs, system.axes, coarsest=60)
    assert len(ours.levels) == len(host.levels) >= 2
    x = vectors(host.matrix.sizes)
    close(device.get(ours.cycle(device.put(x))), host.cycle(x), 1e-3)


@pytest.mark.parametrize("share", [1e-2, 1e-6])
def test_solution_is_the_direct_one(share: float, device: Device) -> None:
    system = System.of(4, share, missing=0.3)
    rhs = system.sums.full_moment(system.space.frame)
    iterative = Iterative(
        system.sums.gram, system.penalty, system.space, tolerance=1e-12, coarsest=40, gpu=device
    )
    close(iterative.solve(rhs), system.direct().solve(rhs), 1e-9)
    assert iterative.iterations <= 15


def test_effective_degrees_of_freedom(device: Device) -> None:
    system = System.of(4, 1e-2, missing=0.3)
    ours, host = (
        Iterative(system.sums.gram, system.penalty, system.space, coarsest=20, gpu=gpu)
        for gpu in (device, None)
    )
    np.testing.assert_allclose(ours.edf(), host.edf(), rtol=1e-5)


def test_a_solve_asks_for_its_device(device: Device) -> None:
    system = System.of(4, 1e-2, missing=0.3)
    penalty = roughness(system.space, system.sums.gram, 1e-2)
    ours, host = (
        solve(system.sums, system.space, penalty, "iterative", resources=on(gpu)) for gpu in (device, None)
    )
    assert ours.factorisation.system.gpu is device
    close(ours.coefficients, host.coefficients, 1e-8)
    assert (
        solve(system.sums, system.space, penalty, "banded", resources=on(device)).factorisation.name
        == "banded"
    )

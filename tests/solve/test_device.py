"""The iterative solver on a device: its pieces and solutions are those of the host."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import Device
from tests.solve.cases import gaps, on, space_of
from tests.solve.test_iterative import System, roughness
from xspline.solve import solve
from xspline.solve.device.multigrid import DeviceLevel, DeviceMultigrid, DeviceOperator, DeviceSchwarz
from xspline.solve.multigrid.operator import Operator
from xspline.solve.multigrid.schwarz import Schwarz
from xspline.solve.multigrid.solver import Iterative, Layout
from xspline.solve.multigrid.spaces import Line
from xspline.solve.multigrid.vcycle import Level, Multigrid, coarsened
from xspline.spaces import BSpline, Fourier

SYSTEMS = {
    "cubic": lambda: System.of(7, 1e-4),
    "with a season": lambda: System.of(5, 1e-4, s=Fourier(1, period=0.5)),
    "four splines": lambda: System.of(5, 1e-4, s=BSpline(5, degree=2, domain=(0, 1))),
}


AXES = [("circle", "season"), ("uneven", "linear", "short circle"), ("linear",) * 4]


def pairs_over(*names: str) -> tuple[np.ndarray, tuple[Line, ...]]:
    """The G of observations with gaps over such axes, and the four axes."""
    space = space_of(*names)
    _, gram = gaps(space, np.random.default_rng(0))
    layout = Layout.of(space)
    return layout.pairs(gram.one_factor(space.frame).pairs), layout.lines


def vectors(sizes: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(3, *sizes))


def close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("name", SYSTEMS)
def test_products(name: str, device: Device) -> None:
    system = SYSTEMS[name]()
    x = vectors(tuple(line.size for line in system.lines))
    ours, host = (
        DeviceOperator(device.put(system.pairs), system.lines, device),
        Operator(system.pairs, system.lines),
    )
    close(device.get(ours.matvec(device.put(x))), host.matvec(x), 1e-13)
    close(ours.scale(), host.scale(), 1e-14)


@pytest.mark.parametrize("names", AXES)
def test_products_over_every_kind_of_axis(names: tuple[str, ...], device: Device) -> None:
    pairs, lines = pairs_over(*names)
    x = vectors(tuple(line.size for line in lines))
    ours = DeviceOperator(device.put(pairs), lines, device)
    close(device.get(ours.matvec(device.put(x))), Operator(pairs, lines).matvec(x), 1e-13)


@pytest.mark.parametrize("name", SYSTEMS)
def test_smoother(name: str, device: Device) -> None:
    system = SYSTEMS[name]()
    x = vectors(tuple(line.size for line in system.lines))
    ours, host = (
        DeviceSchwarz(device.put(system.pairs), system.lines, device),
        Schwarz(system.pairs, system.lines),
    )
    close(device.get(ours.apply(device.put(x))), host.apply(x), 1e-3)


def test_changes_of_level(device: Device) -> None:
    system = SYSTEMS["cubic"]()
    coarse = coarsened(system.lines, ())
    host = Level(system.pairs, system.lines, coarse)
    ours = DeviceLevel(device.put(system.pairs), system.lines, coarse, device)
    x = vectors(host.operator.sizes)
    close(device.get(ours.galerkin(device.put(system.pairs))), host.galerkin(system.pairs), 1e-13)
    close(device.get(ours.restrict(device.put(x))), host.restrict(x), 1e-14)
    y = vectors(tuple(line.size for line in coarse))
    close(device.get(ours.prolong(device.put(y))), host.prolong(y), 1e-14)
    assert ours.bound == pytest.approx(host.bound, rel=1e-3)


def test_cycle(device: Device) -> None:
    system = SYSTEMS["cubic"]()
    ours = DeviceMultigrid(system.pairs, system.lines, coarsest=100, gpu=device)
    host = Multigrid(system.pairs, system.lines, coarsest=100)
    assert len(ours.levels) == len(host.levels) >= 2
    x = vectors(host.operator.sizes)
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

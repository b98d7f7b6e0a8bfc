"""The kernel of a GPU for the product of the iterative solver, run by the host's compiler."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from array_api_compat import numpy as namespace

from tests import host_kernels
from tests.devices import StandIn
from tests.solve.test_device import AXES, close, pairs_over
from tests.solve.test_iterative import System
from xspline.solve.device.kernel import CudaOperator
from xspline.solve.device.multigrid import _operator
from xspline.solve.multigrid.operator import Operator
from xspline.solve.multigrid.solver import Iterative
from xspline.solve.multigrid.spaces import Line

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason="needs a C++ compiler")


class HostGpu(StandIn):
    """NumPy arrays, and kernels that the host's compiler compiles."""

    xp, device, has_kernels = namespace, "cpu", True

    def put(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def get(self, array: np.ndarray) -> np.ndarray:
        return array

    def kernel(self, source: str, name: str, options: tuple[str, ...]) -> Any:
        return host_kernels.compiled(source, name, options)


@pytest.mark.parametrize("names", AXES)
@pytest.mark.parametrize("members", [1, 3, 9])
def test_products(names: tuple[str, ...], members: int) -> None:
    pairs, lines = pairs_over(*names)
    x = np.random.default_rng(0).normal(size=(members, *(line.size for line in lines)))
    ours, host = _operator(pairs, lines, HostGpu()), Operator(pairs, lines)
    assert isinstance(ours, CudaOperator)
    close(ours.matvec(x), host.matvec(x), 1e-13)
    turned = np.asfortranarray(x)
    np.testing.assert_array_equal(ours.matvec(turned), ours.matvec(x))
    close(ours.scale(), host.scale(), 1e-14)


def test_solution_is_the_direct_one() -> None:
    system = System.of(5, 1e-2, missing=0.3)
    rhs = system.sums.full_moment(system.space.frame)
    ours = Iterative(
        system.sums.gram, system.penalty, system.space, tolerance=1e-12, coarsest=80, gpu=HostGpu()
    )
    close(ours.solve(rhs), system.direct().solve(rhs), 1e-9)


@pytest.mark.parametrize("circles", [*itertools.product([False, True], repeat=4)])
def test_any_axis_may_be_a_circle(circles: tuple[bool, ...]) -> None:
    sizes, offsets = (5, 6, 3, 7), (3, 2, 2, 4)
    lines = [Line(*axis) for axis in zip(sizes, offsets, circles, strict=True)]
    rng = np.random.default_rng(0)
    pairs, x = rng.normal(size=(*sizes, *offsets)), rng.normal(size=(2, *sizes))
    pairs[..., 0, 0, 0, 0] = 1.0 + np.abs(pairs[..., 0, 0, 0, 0])
    ours = _operator(pairs, lines, HostGpu())
    close(ours.matvec(x), Operator(pairs, lines).matvec(x), 1e-13)

"""Devices whose arrays NumPy must not touch: a stand-in on every machine, a GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import array_api_strict
import numpy as np
import pytest

from xspline.execution.device import gpu as execution


class StandIn:
    """A second device of array-api-strict: `np.asarray` refuses its arrays, and so does an array of the first."""

    xp, device, memory = array_api_strict, array_api_strict.Device("device1"), 80e9

    def put(self, array: Any) -> Any:
        array = np.asarray(array)
        native = array.astype(array.dtype.newbyteorder("="))
        return array_api_strict.asarray(native, device=self.device)

    def get(self, array: Any) -> np.ndarray:
        return np.asarray(array.to_device(array_api_strict.Device("CPU_DEVICE")))

    def cholesky(self, matrix: Any) -> Any:
        return array_api_strict.linalg.cholesky(matrix)

    def triangular(self, root: Any, rhs: Any, transposed: bool) -> Any:
        matrix = array_api_strict.matrix_transpose(root) if transposed else root
        return array_api_strict.linalg.solve(matrix, rhs)


class Gpu(execution.Gpu):
    """The current GPU, through CuPy; takes arrays of any byte order."""

    def __init__(self) -> None:
        super().__init__()
        self.device = self._cupy.cuda.Device()

    def put(self, array: Any) -> Any:
        array = np.asarray(array)
        return super().put(array.astype(array.dtype.newbyteorder("=")))


Device = StandIn | Gpu
"""A place for arrays."""


@pytest.fixture(params=["stand-in", pytest.param("GPU", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device; the stand-in has the whole standard and nothing but the standard."""
    if request.param == "GPU":
        yield Gpu()
        return
    names = "boolean_indexing", "data_dependent_shapes"  # no indexing by masks, no shapes from data
    before = array_api_strict.get_array_api_strict_flags()
    array_api_strict.set_array_api_strict_flags(**dict.fromkeys(names, False))
    yield StandIn()
    array_api_strict.set_array_api_strict_flags(**{name: before[name] for name in names})

"""Where arrays live that NumPy must not touch: a stand-in on every machine, a card where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import array_api_strict
import numpy as np
import pytest


class Device(Protocol):
    """A place for arrays."""

    xp: Any
    device: Any

    def put(self, array: Any) -> Any: ...

    def get(self, array: Any) -> np.ndarray: ...


class StandIn:
    """A second device of array-api-strict: `np.asarray` refuses its arrays, and so does an array of the first."""

    xp, device = array_api_strict, array_api_strict.Device("device1")

    def put(self, array: Any) -> Any:
        array = np.asarray(array)
        native = array.astype(array.dtype.newbyteorder("="))
        return array_api_strict.asarray(native, device=self.device)

    def get(self, array: Any) -> np.ndarray:
        return np.asarray(array.to_device(array_api_strict.Device("CPU_DEVICE")))


class Card:
    """The current card, through CuPy."""

    def __init__(self) -> None:
        import cupy
        from array_api_compat import cupy as namespace

        self.cupy, self.xp, self.device = cupy, namespace, cupy.cuda.Device()

    def put(self, array: Any) -> Any:
        array = np.asarray(array)
        return self.cupy.asarray(array.astype(array.dtype.newbyteorder("=")))

    def get(self, array: Any) -> np.ndarray:
        return array.get()


@pytest.fixture(params=["stand-in", pytest.param("card", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device; the stand-in has the whole standard and nothing but the standard."""
    if request.param == "card":
        yield Card()
        return
    names = "boolean_indexing", "data_dependent_shapes"  # no indexing by masks, no shapes from data
    before = array_api_strict.get_array_api_strict_flags()
    array_api_strict.set_array_api_strict_flags(**dict.fromkeys(names, False))
    yield StandIn()
    array_api_strict.set_array_api_strict_flags(**{name: before[name] for name in names})

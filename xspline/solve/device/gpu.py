"""What solvers ask of a device and of its array namespace; imports nothing that is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = Any  # of the device's namespace
Host: TypeAlias = NDArray[np.float64]
Kernel: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...], tuple[Any, ...]], None]
"""Called with the numbers of blocks and of threads along each axis, and the arguments."""


class Gpu(Protocol):
    """A device and its array namespace."""

    @property
    def xp(self) -> Any: ...

    def put(self, array: NDArray[Any]) -> Array:
        """A host array on the device."""
        ...

    def get(self, array: Array) -> NDArray[Any]:
        """An array of the device on the host."""
        ...

    @property
    def memory(self) -> float:
        """Bytes of memory of the device."""
        ...

    def cholesky(self, matrix: Array) -> Array:
        """L with L Lᵀ = A, [P, P]; zeros above the diagonal. LinAlgError where A is not positive definite."""
        ...

    @property
    def has_kernels(self) -> bool:
        """Whether it takes CUDA C++."""
        ...

    def kernel(self, source: str, name: str, options: tuple[str, ...]) -> Kernel:
        """A kernel from its source in CUDA C++."""
        ...

    def triangular(self, root: Array, rhs: Array, transposed: bool) -> Array:
        """L⁻¹ or, transposed, L⁻ᵀ times [P, m]."""
        ...


def taken(flat: Array, tables: Sequence[Array], xp: Any) -> Array:
    """Entries at the sums of places, 0 where one of them does not exist."""
    at, exists = tables[0], tables[0] >= 0
    for table in tables[1:]:
        at, exists = at + table, xp.logical_and(exists, table >= 0)
    at, exists = xp.reshape(at, (-1,)), xp.reshape(exists, (-1,))
    found = xp.take(flat, xp.where(exists, at, xp.zeros_like(at)))
    return xp.where(exists, found, xp.zeros_like(found))

"""What solvers ask of a GPU and of its array namespace; imports nothing that is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = Any  # of the GPU's namespace
HostArray: TypeAlias = NDArray[np.float64]
Kernel: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...], tuple[Any, ...]], None]
"""Called with the numbers of blocks and of threads along each axis, and the arguments."""


class Gpu(Protocol):
    """A GPU and its array namespace."""

    @property
    def xp(self) -> Any: ...

    def put(self, array: NDArray[Any]) -> Array:
        """A host array on the GPU."""
        ...

    def get(self, array: Array) -> NDArray[Any]:
        """An array of the GPU on the host."""
        ...

    @property
    def memory(self) -> float:
        """Bytes of memory of the GPU."""
        ...

    def cholesky(self, matrix: Array) -> Array:
        """L with L Lᵀ = A, [P, P]; zeros above the diagonal. LinAlgError where A is not positive definite."""
        ...

    def kernel(self, source: str, name: str, options: tuple[str, ...]) -> Kernel:
        """A kernel from its source in CUDA C++."""
        ...

    def triangular(self, root: Array, rhs: Array, transposed: bool) -> Array:
        """L⁻¹ or, transposed, L⁻ᵀ times [P, m]."""
        ...

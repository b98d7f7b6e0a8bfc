"""Fixtures of the tests of the solve room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture
def one_blas_thread() -> Iterator[None]:
    """Dense references are small matrices, for which threads that wait for each other cost more than they save."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield

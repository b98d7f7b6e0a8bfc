"""Random fits against a dense reference: 50 here, as many as XSPLINE_CASES says where it is set."""

from __future__ import annotations

import os

import pytest

from tests.never_wrong.random_search import run

CASES = int(os.environ.get("XSPLINE_CASES", "50"))


@pytest.mark.parametrize("number", range(CASES))
def test_a_random_fit_is_that_of_the_reference(number: int) -> None:
    assert run(0, number)

"""Random fits against a dense reference: 50 here, thousands by `python -m tests.never_wrong.random_search`."""

from __future__ import annotations

import pytest

from tests.never_wrong.random_search import run

SEED, CASES = 0, 50


@pytest.mark.parametrize("number", range(CASES))
def test_a_random_fit_is_that_of_the_reference(number: int) -> None:
    assert run(SEED, number)

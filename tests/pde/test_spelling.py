"""Equations as people write them, and coordinates of any name."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from benchmarks.constants.missing import FAMILIES

DATA = FAMILIES[0].observed(0.0, 0.01, 0)


@pytest.mark.parametrize(
    ("equation", "said"),
    [
        ("u_t = lambda*u_xx", "'lambda' is a word of Python"),
        ("u_t = 2 u_xx + D*u", "'2 u_xx' is a product, written 2*u_xx"),
        ("u_t = 2u_xx + D*u", "'2u_xx' is a product, written 2*u_xx"),
        ("u_t = D*u_{xx}", "'u_{xx}' is written u_xx"),
        ("du/dt = D*u_xx", "is a derivative, written u_t"),
        ("u_time = D*u_xx", "the derivative along 'time' is written u_t"),
    ],
)
def test_what_is_written_as_on_paper_says_how_it_is_written_here(equation: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"written|word") as caught:
        xs.recover(DATA.rename(t="time"), equation)
    assert said in str(caught.value)


def test_spaces_between_other_things_are_no_products() -> None:
    found = xs.recover(DATA, "u_t  =  1e-9 * exp (x)  +  1E-9 * u  +  (D * u_x) _x")
    assert found.estimate.item() == pytest.approx(0.1, abs=0.01)


@pytest.fixture(scope="module")
def diffusivity() -> float:
    return xs.recover(DATA, "u_t = D*u_xx").estimate.item()


@pytest.mark.parametrize("name", ["space", "distance", "r"])
def test_letters_and_dims_say_what_is_fitted(name: str, diffusivity: float) -> None:
    data = DATA.rename(x=name)
    own = f"u_t = D*u_{name * 2}" if len(name) == 1 else "u_t = D*u_xx"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert xs.recover(data, own).estimate.item() == pytest.approx(diffusivity, abs=1e-5)
        found = xs.recover(data, "u_t = D*u_zz", dims={"z": name})
    assert found.estimate.item() == pytest.approx(diffusivity, abs=1e-5)


def test_a_coordinate_that_nothing_names_stays_a_batch() -> None:
    both = xr.concat([DATA, 2 * DATA], xr.DataArray(np.array([1, 2]), dims="run", name="run"))
    found = xs.recover(both, "u_t = D*u_xx")
    assert found.estimate.dims == ("parameter", "run")

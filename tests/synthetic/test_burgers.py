"""Burgers' equation against Cole's and Hopf's closed form, and against a finer grid."""

from __future__ import annotations

import numpy as np
import pytest

import xspline as xs


def cole_hopf(x: np.ndarray, t: float, kappa: float, points: int = 512) -> np.ndarray:
    """u = −2κ θ_x / θ, where θ solves θ_t = κ θ_xx from exp(−½ ∫u dx / κ); for u = sin x at t = 0.

    Exact to rounding of theta, which spans a factor exp(1 / κ).
    """
    grid = 2 * np.pi * np.arange(points) / points
    modes = np.fft.rfft(np.exp((np.cos(grid) - 1) / (2 * kappa)), norm="forward")
    k = np.arange(modes.size)
    waves = (
        2
        * modes
        * np.where(k, 1.0, 0.5)
        * np.exp(-kappa * k**2 * t)
        * np.exp(1j * k * np.asarray(x)[:, None])
    )
    theta, slope = waves.sum(-1).real, (1j * k * waves).sum(-1).real
    return -2 * kappa * slope / theta


@pytest.mark.parametrize("kappa", [0.1, 0.2])
@pytest.mark.parametrize("t", [0.0, 0.1234, 0.5, 1.0])
def test_the_solution_is_that_of_cole_and_hopf(kappa: float, t: float) -> None:
    """Between steps too: 0.1234 is not one of them where the step is 0.001."""
    x = np.linspace(0, 2 * np.pi, 201)
    truth = xs.synthetic.burgers(kappa, initial={1: -1j}, step=1e-4 / kappa)
    np.testing.assert_allclose(
        truth(x=x, t=t), cole_hopf(x, t, kappa), rtol=0, atol=2e-14 * np.exp(1 / kappa)
    )


def test_an_unstable_step_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"step=0\.01 is unstable with kappa=0\.1 and size=256; pass at most 0\.0016"
    ):
        xs.synthetic.burgers(step=0.01)


@pytest.mark.parametrize("mode", [-1, 128])
def test_a_mode_that_is_not_represented_is_refused(mode: int) -> None:
    with pytest.raises(ValueError, match="with size=256 they run from 0 to 127"):
        xs.synthetic.burgers(initial={mode: 1.0})

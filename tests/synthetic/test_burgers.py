"""Burgers' equation against Cole's and Hopf's closed form, and against a finer grid."""

from __future__ import annotations

from dataclasses import replace

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
    truth = replace(xs.synthetic.burgers(kappa), initial={1: -1j}, steps=round(1e4 * kappa))
    np.testing.assert_allclose(
        truth(x=x, t=t), cole_hopf(x, t, kappa), rtol=0, atol=2e-14 * np.exp(1 / kappa)
    )


@pytest.mark.slow
def test_steps_are_as_short_as_a_viscosity_needs() -> None:
    smooth = xs.synthetic.burgers(0.5)
    assert smooth.steps > xs.synthetic.burgers().steps == 1000
    x, finer = np.linspace(0, 6, 50), replace(smooth, steps=2 * smooth.steps)
    np.testing.assert_allclose(smooth(x=x, t=1.0), finer(x=x, t=1.0), rtol=0, atol=1e-10)

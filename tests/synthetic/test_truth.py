"""Solutions against their equations, against differences of themselves, and as something to observe.

That of Burgers' equation also against Cole's and Hopf's closed form, and a finer grid.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests import scatter
from xspline.synthetic import Truth

TRUTHS = {
    "diffusion": xs.synthetic.diffusion(),
    "wave": xs.synthetic.wave(),
    "heat": xs.synthetic.heat(),
    "burgers": xs.synthetic.burgers(),
}
ALL = pytest.mark.parametrize("truth", TRUTHS.values(), ids=TRUTHS)


def residual(truth: Truth) -> xr.DataArray:
    """Left side minus right side, from exact derivatives at random points."""
    points = truth.scatter(400, 0)
    at = {name: points[name] for name in truth.dims}

    def u(**orders: int) -> xr.DataArray:
        return truth(**at, orders=orders)

    source = sum(known(truth, at).values())
    match truth.parameters:
        case {"D": rate}:
            return u(t=1) - rate * (u(x=2) + u(y=2)) - source
        case {"c": speed}:
            return u(t=2) - speed**2 * (u(x=2) + u(y=2))
        case {"kappa": viscosity}:
            return u(t=1) + u() * u(x=1) - viscosity * u(x=2)
    raise LookupError(truth.equation)


def known(truth: Truth, at: dict[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    return truth.known(xr.Dataset(coords=at))


@ALL
def test_equation_holds(truth: Truth) -> None:
    assert float(abs(residual(truth)).max()) < 1e-11


@ALL
@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_are_those_of_the_values(truth: Truth, order: int) -> None:
    """Central differences of the derivative before, Richardson-extrapolated."""
    step, middle = 1e-2, {name: np.array([0.4 * hi, 0.55 * hi]) for name, (_, hi) in truth.domain.items()}
    for name in truth.dims:

        def difference(h: float, name: str = name) -> np.ndarray:
            ends = [
                truth(**{**middle, name: middle[name] + sign * h}, orders={name: order - 1})
                for sign in (1, -1)
            ]
            return (ends[0] - ends[1]) / (2 * h)

        expected = (4 * difference(step / 2) - difference(step)) / 3
        assert truth(**middle, orders={name: order}) == pytest.approx(expected, rel=2e-6, abs=2e-6)


@ALL
def test_periodic_in_space(truth: Truth) -> None:
    points = {name: truth.scatter(50, 1)[name].values for name in truth.dims}
    here = truth(**points)
    for name, orders in itertools.product(truth.dims[:-1], ({}, {"x": 1})):
        lo, hi = truth.domain[name]
        moved = truth(**{**points, name: points[name] + hi - lo}, orders=orders)
        assert moved == pytest.approx(truth(**points, orders=orders), abs=1e-12)
    assert np.isfinite(here).all()


@ALL
def test_numbers_arrays_and_labels_agree(truth: Truth) -> None:
    labels = {name: np.linspace(0.1, 0.9, 4 + i) for i, name in enumerate(truth.dims)}
    grid = truth.grid(**labels)
    assert grid.dims == truth.dims and grid.name == "u"
    mesh = dict(zip(truth.dims, np.meshgrid(*labels.values(), indexing="ij", sparse=True), strict=True))
    np.testing.assert_array_equal(truth(**mesh), grid)
    corner = truth(**{name: float(values[0]) for name, values in labels.items()})
    assert corner == pytest.approx(grid.values.flat[0], abs=1e-14)


@ALL
def test_scatter_is_reproducible(truth: Truth) -> None:
    one, again, other = truth.scatter(30, 5, 0.1), truth.scatter(30, 5, 0.1), truth.scatter(30, 6, 0.1)
    assert one.identical(again) and not one.equals(other)
    assert one.dims == ("obs",) and not one.indexes
    assert set(one.coords) == set(truth.dims)
    clean = truth.scatter(30, 5)
    assert all(clean[name].equals(one[name]) for name in truth.dims)
    np.testing.assert_array_equal(clean, truth(**{name: clean[name].values for name in truth.dims}))


@ALL
def test_noise_is_relative_to_the_spread(truth: Truth) -> None:
    errors = truth.scatter(20_000, 2, 0.05) - truth.scatter(20_000, 2)
    noise = 0.05 * truth.spread
    assert float(errors.std()) == pytest.approx(noise, rel=scatter.FIVE * scatter.of_deviation(20_000))
    assert abs(float(errors.mean())) < scatter.FIVE * noise / np.sqrt(20_000)
    assert truth.spread == pytest.approx(float(truth.grid(**dict.fromkeys(truth.dims, 40)).std()))


def test_a_holder_sees_its_part() -> None:
    half = TRUTHS["wave"].scatter(500, 3, within={"x": (0.0, np.pi)})
    assert float(half.x.max()) <= np.pi < float(half.y.max())


def test_known_source() -> None:
    truth = xs.synthetic.heat()
    source = truth.known({"x": np.array([0.0, 1.0]), "y": np.array([0.5])})["S"]
    expected = 0.3 + 0.2 * np.cos([0.0, 1.0]) + 0.1 * np.sin(1.0)
    assert source.dims == ("x", "y") and source.name == "S"
    assert source.values.ravel() == pytest.approx(expected, abs=1e-15)
    assert xs.synthetic.diffusion().known({}) == {}


@pytest.mark.parametrize(
    "name, bad, message",
    [
        ("diffusion", {"x": 0.0, "t": 0.0}, "function of .*'x', 'y', 't'.* not of .*'x', 't'"),
        ("burgers", {"x": 0.0, "y": 0.0, "t": 0.0}, "name each"),
    ],
)
def test_wrong_coordinates_are_refused(name: str, bad: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TRUTHS[name](**bad)


@pytest.mark.parametrize("orders", [{"x": -1}, {"z": 1}, {"x": 0.5}])
def test_wrong_orders_are_refused(orders: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="orders are integers ≥ 0 of"):
        TRUTHS["burgers"](x=0.0, t=0.0, orders=orders)


def test_grid_needs_every_coordinate() -> None:
    with pytest.raises(ValueError, match="no labels for 't'; pass t=40"):
        TRUTHS["burgers"].grid(x=4)
    with pytest.raises(ValueError, match=r"not of .*'z'"):
        TRUTHS["burgers"].grid(x=4, t=4, z=4)


# Burgers' equation


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


@pytest.mark.slow
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

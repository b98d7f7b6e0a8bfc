"""Nonlinear waves on grids whose equations are known: exact solutions, and pseudospectral ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks.constants import bound

TURN = bound.TURN


@dataclass(frozen=True, eq=False)
class Set:
    """u(t, x) on a grid, the bases that hold it, and its equation as constants by term.

    Attributes
    ----------
    response, true : the side that is known to be there, and the constants of all terms of the other one.
    asked : arguments of `discover`.
    known : terms whose constants are no unknowns of `recover`.
    v : another variable of the same data.
    """

    name: str
    response: str
    true: Mapping[str, float]
    u: np.ndarray
    t: np.ndarray
    x: np.ndarray
    bases: Mapping[str, xs.BSpline]
    asked: Mapping[str, int] = field(default_factory=dict)
    known: tuple[str, ...] = ()
    v: np.ndarray | None = None

    @property
    def constants(self) -> dict[str, float]:
        """The true constants that `recover` looks for, by name."""
        return {f"k{i}": v for i, (term, v) in enumerate(self.true.items(), 1) if term not in self.known}

    def equation(self, known: tuple[str, ...]) -> str:
        """The equation as `recover` reads it, with constants k1, k2, … of all terms but known ones."""
        terms = enumerate(self.true.items(), 1)
        parts = [f"{v if term in known else f'k{i}'}*{term}" for i, (term, v) in terms]
        return f"{self.response} = {' + '.join(parts)}"

    def noisy(self, level: float, seed: int) -> xr.DataArray | xr.Dataset:
        """Return one draw of noise beside each variable, as a part of its standard deviation."""
        rng = np.random.default_rng([round(1000 * level), seed])

        def drawn(name: str, values: np.ndarray) -> xr.DataArray:
            noise = level * (values.std() or 1.0) * rng.standard_normal(values.shape)
            return xr.DataArray(values + noise, {"t": self.t, "x": self.x}, ("t", "x"), name)

        first = drawn("u", self.u)
        return first if self.v is None else xr.Dataset({"u": first, "v": drawn("v", self.v)})

    def recovered(self, level: float, seed: int, known: tuple[str, ...] | None = None) -> xr.Dataset:
        """Return the constants from one draw, those of `known` terms given."""
        equation = self.equation(self.known if known is None else known)
        return self.noisy(level, seed).spline.statistics(dict(self.bases)).recover(equation)

    def is_right(self, found: xr.Dataset) -> bool:
        """Whether the equation that is claimed has the right terms and no other."""
        claimed = found.attrs["equation"] != "none"
        terms = found.term.values[found.included.values[0]] if claimed else ()
        return set(terms) == set(self.true)

    def discovered(self, level: float, seed: int, *, raw: bool = False) -> xr.Dataset:
        """Return the equations from one draw; if `raw`, in the space that `xs.discover` chooses."""
        data = self.noisy(level, seed)
        if raw:
            return xs.discover(data, self.response, **self.asked)
        return xs.fit(data, self.bases).discover(self.response, **self.asked)


def two_solitons(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The solution of u_t + 6 u u_x + u_xxx = 0 with solitons of wavenumbers 1 and 0.7 (Hirota 1971)."""
    p, q = 1.0, 0.7
    a, b = np.exp(p * (x + 6) - p**3 * t), np.exp(q * (x + 1) - q**3 * t)
    both = ((p - q) / (p + q)) ** 2 * a * b
    f, by_x, by_xx = (n + p**i * a + q**i * b + (p + q) ** i * both for i, n in enumerate((1, 0, 0)))
    return 2 * (by_xx / f - (by_x / f) ** 2)


def korteweg_de_vries() -> Set:
    x, t = np.linspace(-14, 14, 160), np.linspace(0, 6, 80)
    bases = {"x": xs.BSpline(80, 7), "t": xs.BSpline(40, 5)}
    true = {"u*u_x": -6.0, "u_xxx": -1.0}
    return Set("KdV", "u_t", true, two_solitons(x, t[:, None]), t, x, bases)


def burgers() -> Set:
    x, t = np.arange(120) * TURN / 120, np.linspace(0, 8, 60)
    bases = {"x": xs.BSpline(40, 5, period=TURN), "t": xs.BSpline(20, 5)}
    u = bound.burgers(0.2).value(x, t[:, None])
    return Set("Burgers", "u_t", {"u*u_x": -1.0, "u_xx": 0.2}, u, t, x, bases, known=("u*u_x",))


def wave() -> Set:
    x, t = np.linspace(0, TURN, 100), np.linspace(0, 3, 80)[:, None]
    u = np.cos(x) * np.cos(1.3 * t) + 0.3 * np.sin(2 * (x - 1.3 * t)) + 0.2 * np.sin(3 * (x + 1.3 * t) + 0.4)
    return Set(
        "wave", "u_tt", {"u_xx": 1.69}, u, t[:, 0], x, {"x": xs.BSpline(26, 5), "t": xs.BSpline(22, 5)}
    )


def reaction_diffusion() -> Set:
    """Fisher's equation, u_t = 0.1 u_xx + 1.5 u (1 − u)."""
    length, n, waves_ = 2 * TURN, 128, np.arange(65) / 2
    x, t = length * np.arange(n) / n, np.linspace(0, 3, 60)
    first = 0.15 + sum(a * np.cos(k * x / 2) for k, a in ((1, 0.1), (2, 0.05), (3, 0.04)))
    u = pseudospectral(-0.1 * waves_**2, lambda u: 1.5 * u * (1 - u), first, t, 0.002)
    bases = {"x": xs.BSpline(32, 5, period=length), "t": xs.BSpline(16, 5)}
    return Set("reaction-diffusion", "u_t", {"u": 1.5, "u**2": -1.5, "u_xx": 0.1}, u, t, x, bases)


def kuramoto_sivashinsky() -> Set:
    length, n = 44.0, 128
    waves_, x = TURN * np.arange(65) / length, length * np.arange(n) / n
    first = np.cos(TURN * x / length) * (1 + np.sin(TURN * x / length)) + 0.1 * np.cos(3 * TURN * x / length)
    linear, t = waves_**2 - waves_**4, np.linspace(50, 75, 100)

    def steepening(u: np.ndarray) -> np.ndarray:
        cut = np.where(np.arange(65) <= n // 3, 1j * waves_ * np.fft.rfft(u**2), 0)
        return -0.5 * np.fft.irfft(cut, n)

    u = pseudospectral(linear, steepening, first, t, 0.01)
    bases = {"x": xs.BSpline(56, 7, period=length), "t": xs.BSpline(50, 5)}
    true = {"u*u_x": -1.0, "u_xx": -1.0, "u_xxxx": -1.0}
    return Set("Kuramoto-Sivashinsky", "u_t", true, u, t, x, bases, {"order": 4})


def schrodinger() -> Set:
    """The real part u and the imaginary part v of ψ, where iψ_t = −ψ_xx / 2 − |ψ|²ψ (split steps, 512 waves)."""
    length, n = 10.0, 512
    x, t = length * np.arange(n) / n, np.linspace(0, 2, 80)
    wave = TURN * x / length
    psi = 0.9 + 0.5 * np.cos(wave) + 0.4j * np.sin(2 * wave) + 0.2 * np.exp(1j * (wave + 1))
    steps = 200  # between two times; half as many change ψ by less than 2e-5
    h = (t[1] - t[0]) / steps
    half = np.exp(-0.25j * h * (TURN * np.fft.fftfreq(n, length / n)) ** 2)
    out = [psi]
    for _ in t[1:]:
        for _ in range(steps):
            psi = np.fft.ifft(half * np.fft.fft(psi))
            psi = np.fft.ifft(half * np.fft.fft(psi * np.exp(1j * h * np.abs(psi) ** 2)))
        out.append(psi)
    seen = np.array(out)[:, ::4]
    bases = {"x": xs.BSpline(56, 5, period=length), "t": xs.BSpline(40, 5)}
    true = {"u**2*v": -1.0, "v**3": -1.0, "v_xx": -0.5}
    return Set("Schrödinger", "u_t", true, seen.real, t, x[::4], bases, v=seen.imag)


def noise() -> Set:
    t, x = np.linspace(0, 1, 50), np.linspace(0, 1, 60)
    bases = {"x": xs.BSpline(16, 5), "t": xs.BSpline(12, 5)}
    return Set("noise alone", "u_t", {}, np.zeros((50, 60)), t, x, bases)


SETS: tuple[Callable[[], Set], ...] = (
    korteweg_de_vries,
    burgers,
    kuramoto_sivashinsky,
    reaction_diffusion,
    wave,
    schrodinger,
    noise,
)


def pseudospectral(
    linear: np.ndarray,
    nonlinear: Callable[[np.ndarray], np.ndarray],
    u: np.ndarray,
    t: np.ndarray,
    step: float,
) -> np.ndarray:
    """u at times of û_t = linear û + F(nonlinear u), from u at time 0: integrating factor, fourth-order Runge-Kutta."""

    def rate(v: np.ndarray) -> np.ndarray:
        return np.fft.rfft(nonlinear(np.fft.irfft(v, u.size)))

    v, now, out = np.fft.rfft(u), 0.0, []
    for until in t:
        count = int(np.ceil((until - now) / step))
        h = (until - now) / max(count, 1)
        half = np.exp(h / 2 * linear)
        for _ in range(count):
            a = rate(v)
            b = rate(half * (v + h / 2 * a))
            c = rate(half * v + h / 2 * b)
            d = rate(half * (half * v + h * c))
            v = half**2 * v + h / 6 * (half**2 * a + 2 * half * (b + c) + d)
        now = until
        out.append(np.fft.irfft(v, u.size))
    return np.array(out)

"""An equation as a penalty: against dense algebra, its limits, its likelihood, its messages."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests import scatter
from tests.pde import cases
from xspline.pde.physics import equation_penalty as physics
from xspline.pde.physics.prior import EquationPrior
from xspline.pde.text.equation import parse
from xspline.pde.text.symbols import Names
from xspline.solve import TooLargeError

DIFFUSION = "u_t = D*u_xx"
AT = {"x": np.linspace(0.1, 6.2, 7), "t": np.linspace(0.05, 0.95, 5)}


@functools.cache
def scattered(source: float = 0.0, seed: int = 0, count: int = 200, noise: float = 0.05) -> xr.DataArray:
    """Diffusion at random points, with a source that is constant."""
    rng = np.random.default_rng(seed)
    x, t = rng.uniform(0, 2 * np.pi, count), rng.uniform(0, 1, count)
    u = cases.diffusion(x, t) + source * t + noise * rng.standard_normal(count)
    return xr.DataArray(u, {"x": ("point", x), "t": ("point", t)}, "point", "u")


@functools.cache
def statistics(**bases: Any) -> xs.Statistics:
    return scattered().spline.statistics({**space(), **bases})


def space() -> dict[str, xs.BSpline]:
    return {"x": xs.BSpline(10, 5, domain=(0, 2 * np.pi)), "t": xs.BSpline(8, 4, domain=(0, 1))}


def equation(strength: Any = "reml", text: str = DIFFUSION, **known: Any) -> xs.Physics:
    return xs.Physics(text, strength, known or {"D": 0.05})


def prior_of(penalty: xs.Physics, own: xs.Statistics) -> EquationPrior:
    read = parse(penalty.equation, Names.of(own, None, penalty.known or {}), with_parameters=False)
    return physics._prior(penalty, read, own, "u")


class Dense:
    """G, h and J of a prior as matrices, J from residuals of unit vectors."""

    def __init__(self, prior: EquationPrior) -> None:
        size = prior.data.order.size
        self.prior, units = prior, np.eye(size)
        self.offset = prior.residual(np.zeros(size)).ravel()
        self.jacobian = np.stack([prior.residual(e).ravel() - self.offset for e in units], axis=1)
        self.gram = np.stack([prior.data.image(e) for e in units], axis=1)
        self.moment = prior.data.moment
        self.reference = prior.data.order.flatten(prior.data.with_reference(np.zeros(size)))
        frame, order = prior.data.order.frame, prior.data.order
        self.terms = [
            np.stack(
                [order.flatten({"u": term.matvec(order.unflatten(e)["u"], frame)}) for e in units], axis=1
            )
            for term in [prior.given, *prior.terms]
            if term.terms
        ]

    def solve(self, rough: Any, strength: float) -> tuple[np.ndarray, np.ndarray]:
        roughness = sum(x * term for x, term in zip(rough, self.terms, strict=True)) + 0.0 * self.gram
        matrix = self.gram + roughness + strength * self.jacobian.T @ self.jacobian
        right = self.moment - roughness @ self.reference - strength * self.jacobian.T @ self.offset
        return matrix, np.linalg.solve(matrix, right)

    def score(self, rough: Any, strength: float) -> float:
        """Minus the log of the restricted likelihood from eigenvalues."""
        matrix, row = self.solve(rough, strength)
        values = np.linalg.eigvalsh(matrix - self.gram)
        held = values > 1e-12 * values.max()
        whole, residual = row + self.reference, self.jacobian @ row + self.offset
        costs = [x * whole @ term @ whole for x, term in zip(rough, self.terms, strict=True)]
        total = self.prior.data.rss(row) + strength * residual @ residual + sum(costs)
        left = self.prior.data.count - (~held).sum()
        return float(left * np.log(total) + np.linalg.slogdet(matrix)[1] - np.log(values[held]).sum()) / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "period"),
    [(DIFFUSION, None), ("u_t = D*u_xx + S", 2 * np.pi), ("u_t + (1 + x)*u_x = D*u", None)],
)
def test_a_given_strength_is_what_dense_algebra_says(text: str, period: float | None) -> None:
    known = {"D": 0.05} | ({"S": lambda x, t: 0.1 * np.cos(x) + t} if "S" in text else {})
    x = space()["x"] if period is None else xs.BSpline(10, 5, period=period)
    own = scattered().spline.statistics({**space(), "x": x})
    penalty = xs.Roughness(1e-3) + xs.Physics(text, 7.0, known)
    field = own.solve(penalty)
    prior = prior_of(penalty, own)
    matrix, row = Dense(prior).solve([1.0], 7.0)
    expected = prior.data.with_reference(row)["u"]
    np.testing.assert_allclose(field.coefficients.values, expected, atol=1e-8 * abs(expected).max())
    covariance = np.linalg.inv(matrix)
    draws = field.fits["u"].solved.factorisation.solve(np.eye(80).reshape(10, 8, 80))
    order = prior.data.order.index[0].ravel()
    np.testing.assert_allclose(draws.reshape(80, 80), covariance[np.ix_(order, order)], rtol=1e-6, atol=1e-9)
    assert float(field.fits["u"].edf_and_rss[0]) == pytest.approx(np.trace(covariance @ Dense(prior).gram))


def test_error_bars_are_those_of_the_inverse() -> None:
    """φᵀA⁻¹φ by solving for φ, against the entries of A⁻¹ that the band holds."""
    field = statistics().solve(xs.Roughness(1e-3) + equation(5.0))
    fit = field.fits["u"]
    x, t = (f.design(v) for f, v in zip(field.space.features, AT.values(), strict=True))
    rows = np.einsum("ai,bj->ijab", x, t).reshape(10, 8, -1)
    variance = np.sum(rows * fit.solved.factorisation.solve(rows), axis=(0, 1)).reshape(7, 5)
    expected = np.sqrt(variance) * fit.sigma()
    np.testing.assert_allclose(field.stderr(**AT).transpose("x", "t").values, expected, rtol=1e-8)
    draws = field.sample(4000, seed=0).predict(**AT)
    tolerance = scatter.FIVE * scatter.of_deviation(4000)
    np.testing.assert_allclose(draws.std("sample").transpose("x", "t").values, expected, rtol=tolerance)


def test_no_strength_is_the_fit_without_the_equation() -> None:
    own, rough = scattered(count=2_000).spline.statistics(space()), xs.Roughness(1e-3)
    for penalty, expected in ((equation(0), 0), (rough + equation(0), rough)):
        np.testing.assert_array_equal(own.solve(penalty).coefficients, own.solve(expected).coefficients)


@pytest.mark.parametrize("rough", [None, xs.Roughness(1e-4)])
def test_a_large_strength_is_hard(rough: xs.Roughness | None) -> None:
    """Four numbers of the strength, each nearer by as much as it is larger."""

    def field(strength: Any) -> np.ndarray:
        penalty = equation(strength) if rough is None else rough + equation(strength)
        return statistics().solve(penalty).predict(**AT).values

    hard = field("hard")
    away = [abs(field(strength) - hard).max() for strength in (1e2, 1e4, 1e6)]
    assert away[1] < 0.05 * away[0] and away[2] < 0.05 * away[1] and away[2] < 1e-4


def test_hard_is_the_constrained_field() -> None:
    for text, known, data in (
        (DIFFUSION, {"D": 0.05}, scattered()),
        ("u_t = D*u_xx + S", {"D": 0.05, "S": 0.3}, scattered(0.3)),
    ):
        own = data.spline.statistics(space())
        hard, constrained = own.solve(xs.Physics(text, "hard", known)), own.constrain(text, known=known)
        error = constrained.stderr(**AT)
        assert float((abs(hard.predict(**AT) - constrained.predict(**AT)) / error).max()) < 1e-4
        # That of constrain knows what the knots leave, too.
        ratio = hard.stderr(**AT) / error
        assert 0.85 < ratio.min() and ratio.max() < 1.001


@pytest.mark.slow
def test_a_nonlinear_equation_is_held_hard() -> None:
    data = cases.sampled(cases.burgers_on_a_circle, cases.grid(30, 16))
    own = data.spline.statistics(x=xs.BSpline(14, 5, period=2 * np.pi), t=xs.BSpline(8, 5))
    text, known = "u_t + u*u_x = nu*u_xx", {"nu": 0.2}
    hard, constrained = own.solve(xs.Physics(text, "hard", known)), own.constrain(text, known=known)
    np.testing.assert_array_equal(hard.coefficients.values, constrained.coefficients.values)
    with pytest.raises(ValueError, match=r"not linear in the field.*strength='hard'"):
        own.solve(xs.Physics(text, 1.0, known))


def test_strengths_compare_between_spaces_and_mean_what_they_say() -> None:
    """u = x² t has the residual x² − 2 D t, whose mean square over the domain times λ it costs."""
    d, (a, b) = 0.05, (2 * np.pi, 1.0)
    x, t = np.linspace(0, a, 60), np.linspace(0, b, 40)
    data = xr.DataArray(x**2 * t[:, None], {"t": t, "x": x}, ("t", "x"), "u")
    mean = a**4 / 5 - 4 * d * (a**2 / 3) * (b / 2) + 4 * d**2 * b**2 / 3
    for kx, kt in ((16, 8), (32, 16)):
        own = data.spline.statistics(x=xs.BSpline(kx, 5), t=xs.BSpline(kt, 5))
        prior = prior_of(equation(D=d), own)
        row = prior.data.centred({"u": own.solve(0).coefficients.values})
        assert prior.costs(row)[-1] == pytest.approx(mean, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rough", [None, xs.Roughness(0.1), xs.Ridge(0.1), xs.Roughness(), xs.Roughness(order=1)]
)
@pytest.mark.parametrize("text", [DIFFUSION, "u_t = D*u_xx + 0.2"])
def test_the_restricted_likelihood_is_what_dense_algebra_says(rough: Any, text: str) -> None:
    """Up to a constant, between strengths; and its gradient."""
    penalty = equation(text=text) if rough is None else rough + equation(text=text)
    prior = prior_of(penalty, statistics())
    dense, terms = Dense(prior), len(prior.terms)
    start = np.log(prior.even)
    places = [start, start + np.linspace(-1, 2, terms + 1), start + np.linspace(1.5, -2, terms + 1)]
    own, expected = [], []
    for logs in places:
        own.append(prior.score(logs).value)
        strengths = np.exp(logs)
        given = [1.0] if prior.given.terms else []
        expected.append(dense.score([*given, *strengths[:-1]], strengths[-1]))
    # Sums in other orders leave 0.4 to 1.4e-8, of a roughness of order 1 beside.
    np.testing.assert_allclose(np.diff(own), np.diff(expected), rtol=0, atol=3e-8 * np.abs(expected).max())
    score, h = prior.score(places[1]), 1e-2
    for i, e in enumerate(np.eye(terms + 1)):
        slope = (prior.score(places[1] + h * e).value - prior.score(places[1] - h * e).value) / (2 * h)
        assert score.gradient[i] == pytest.approx(slope, rel=1e-3, abs=1e-3)


def test_the_chosen_strengths_have_the_largest_likelihood() -> None:
    """With a source that the equation does not know, so that the strength is neither nothing nor everything."""
    own = scattered(2.0).spline.statistics(space())
    field = own.solve(xs.Roughness() + equation())
    penalty = field.fits["u"].penalty
    assert isinstance(penalty, xs.Physics) and isinstance(penalty.strength, float)
    prior = prior_of(xs.Roughness() + equation(), own)
    rough = field.fits["u"].strengths
    logs = np.log([rough["x"], rough["t"], penalty.strength])
    best = prior.score(logs).value
    for i, e in enumerate(np.eye(3)):
        others = min(prior.score(logs + 0.7 * e).value, prior.score(logs - 0.7 * e).value)
        assert others > best - 0.15  # along t the likelihood is flat
        assert i == 1 or others > best + 0.1


def test_where_data_show_no_departure_the_equation_holds_exactly() -> None:
    field = statistics().solve(equation())
    hard = statistics().solve(equation("hard"))
    np.testing.assert_array_equal(field.coefficients.values, hard.coefficients.values)
    assert "no departure" in field.summary().attrs["solver"]
    assert "no departure" not in hard.summary().attrs["solver"]


@pytest.mark.slow
def test_a_gap_is_filled_by_the_equation() -> None:
    """Half of the domain, over all but the first times, is unseen."""
    own = cases.sampled(cases.diffusion, cases.grid(60, 30))
    seen = cases.noisy(own, 0.02)
    seen = seen.where((seen.x < 1.5) | (seen.x > 4.8) | (seen.t < 0.15))
    bases = {"x": xs.BSpline(14, 5), "t": xs.BSpline(8, 5)}
    rough = seen.spline.fit(bases, penalty=xs.Roughness())
    both = seen.spline.fit(bases, penalty=xs.Roughness() + equation())
    gap = seen.isnull()

    def rmse(field: xs.Field) -> float:
        return float(np.sqrt(((field.predict(own) - own) ** 2).where(gap).mean()))

    assert rmse(both) < 0.3 * rmse(rough)
    inside = abs(both.predict(own) - own) < 1.96 * both.stderr(own)
    assert float(inside.where(gap).mean()) > 0.85


@pytest.mark.slow
def test_merged_statistics_are_pooled_ones() -> None:
    whole = scattered()
    parts = [whole[i::3].spline.statistics(space(), holder=str(i)) for i in range(3)]
    for penalty, within in (
        (xs.Roughness(1e-4) + equation(10.0), 1e-8),
        (equation("hard"), 1e-4),
        (xs.Roughness() + equation(), 1e-2),
    ):
        merged, pooled = xs.merge(parts).solve(penalty), statistics().solve(penalty)
        error = pooled.stderr(**AT)
        assert float((abs(merged.predict(**AT) - pooled.predict(**AT)) / error).max()) < within
        np.testing.assert_allclose(merged.stderr(**AT), error, rtol=10 * within)


def test_times_are_seconds() -> None:
    """Days on a calendar, and a constant per second."""
    plain = scattered()
    days = np.datetime64("2001-01-01", "ns") + (plain.t.values * 86400e9).astype("timedelta64[ns]")
    dated = plain.assign_coords(t=("point", days))
    bases = {"x": space()["x"], "t": xs.BSpline(8, 4)}
    field = dated.spline.fit(bases, penalty=equation(3e9, D=0.05 / 86400))
    same = plain.spline.fit({**bases, "t": xs.BSpline(8, 4)}, penalty=equation(3e9 / 86400**2))
    np.testing.assert_allclose(field.predict(dated), same.predict(plain), atol=1e-6)


def test_the_line_of_code_and_the_summary_tell_it() -> None:
    data = scattered()
    field = data.spline.fit(space(), penalty=xs.Roughness() + equation())
    again = eval(f"data.spline.{field.code()}", {"xs": xs, "data": data})
    np.testing.assert_allclose(again.predict(**AT), field.predict(**AT), atol=1e-8)
    assert "xs.Physics('u_t = D*u_xx', " in repr(field) and "known={'D': 0.05})" in repr(field)
    assert set(field.summary()["lambda"].penalised.values) == {"x", "t"}
    assert field.summary().attrs["smoothing"].startswith("reml")
    assert "Physics" in field.check().__repr__() and field._repr_html_()
    assert repr(equation(2.0, "u_t = S", S=lambda t: t)) == "Physics('u_t = S', 2.0, known={'S': S})"


def test_a_plan_tells_the_solver() -> None:
    planned = scattered().spline.plan(space(), penalty=xs.Roughness() + equation())
    assert "equation" in repr(planned)


def test_files_and_refits_are_refused() -> None:
    field = statistics().solve(equation(1.0))
    with pytest.raises(ValueError, match="store its statistics"):
        field.to_dataset()
    with pytest.raises(ValueError, match=r"solve statistics\.without\(holder\)"):
        field.cross_validate()
    with pytest.raises(ValueError, match="no sum of products over coordinates"):
        equation(1.0).gram(statistics().space)


def test_a_wrong_constant_has_no_error_bars() -> None:
    own = scattered(noise=0.01).spline.statistics(space())
    with pytest.warns(xs.FitWarning, match="a known is wrong"):
        field = own.solve(equation("hard", D=0.5))
    assert np.isnan(field.stderr(**AT)).all() and np.isfinite(field.predict(**AT)).all()
    free = own.solve(equation(D=0.5))
    assert np.isfinite(free.stderr(**AT)).all()


@pytest.mark.slow
def test_a_check_tells_that_data_contradict_the_equation() -> None:
    own = scattered(noise=0.01).spline.statistics(space())
    for beside in (None, xs.Roughness()):
        wrong, right = (own.solve(xs.Physics(DIFFUSION, known={"D": d}, beside=beside)) for d in (0.5, 0.05))
        assert "data contradict it" in repr(wrong.check()) and "data contradict it" not in repr(right.check())


@pytest.mark.parametrize(
    ("penalty", "match"),
    [
        (lambda: xs.Physics("u_t = D*u_xx", 1.0), "D is not known; pass known="),
        (lambda: xs.Physics("u_t = D*u_xz", 1.0, {"D": 1.0}), "no coordinate here"),
        (lambda: xs.Physics("u_t = D*u_xx", "soft"), "strength='soft' is unknown"),
        (lambda: xs.Physics("u_t = D*u_xx", -1.0), "finite and not negative"),
        (lambda: xs.Physics("u_t = u_xx", known={"D": 1.0}), "D in known= does not appear"),
        (lambda: equation() + equation(), "a fit takes one equation"),
        (lambda: xs.Sobolev() + equation(), "strengths of a Roughness alone"),
        (lambda: xs.Roughness("gcv") + equation(), "strengths of a Roughness alone"),
        (lambda: xs.Physics("u_t = u_xxxxxx", 1.0), "order"),
    ],
)
def test_what_cannot_be_is_said(penalty: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        statistics().solve(penalty())


def test_what_data_cannot_have_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = xr.concat([cases.plane(), cases.plane()], "z")
    with pytest.raises(ValueError, match="independent ones along z"):
        batch.spline.fit(x=8, t=8, penalty=equation(1.0))
    several = xr.Dataset({"u": cases.plane(), "v": cases.plane()})
    with pytest.raises(ValueError, match=r"one variable, and there are u, v"):
        several.spline.fit(x=8, t=8, penalty=equation(1.0))
    with pytest.raises(ValueError, match="a solver of its own"):
        statistics().solve(equation(1.0), solver="dense")
    with pytest.raises(ValueError, match="still lazy"):
        cases.plane().chunk().spline.fit(x=xs.BSpline(8, 5), t=8, penalty=equation(1.0), compute=False)
    corner = scattered().where((scattered().x > 2) & (scattered().x < 2.5))
    with pytest.raises(xs.SingularSystemError, match="pass a larger penalty"):
        corner.spline.fit(space(), penalty=equation(1.0))
    monkeypatch.setattr("xspline.pde.profile.problem.MAX_PAIRS", 1e3)
    with pytest.raises(TooLargeError, match="use fewer functions"):
        statistics().solve(equation(1.0))


def test_a_degree_that_is_low_is_warned_of() -> None:
    with pytest.warns(xs.FitWarning, match="degree 4 or more is advised"):
        scattered().spline.fit(
            {**space(), "x": xs.BSpline(10, 3, domain=(0, 2 * np.pi))}, penalty=equation(1.0)
        )

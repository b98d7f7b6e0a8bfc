"""Offsets and noise levels of holders: equal to the pooled generalised fit with indicator columns, from merged sums."""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from benchmarks.coverage import institutions

OFFSETS = {"a": 0.0, "b": 0.3, "c": -0.2}
NOISE = {"a": 1.0, "b": 2.0, "c": 0.5}
PENALTY = xs.Roughness({"x": 3e-3, "y": 1e-2})


@functools.cache
def space() -> xs.Space:
    return xs.Space({"x": xs.BSpline(9, domain=(0, 10)), "y": xs.BSpline(6, domain=(0, 5))})


def observed(name: str, seed: int, n: int = 300, scale: float = 0.3) -> xr.DataArray:
    """Return scattered observations of one institution."""
    rng = np.random.default_rng([seed, ord(name)])
    x, y = rng.uniform(0, 10, n), rng.uniform(0, 5, n)
    values = 20 + np.sin(x) * np.cos(y) + OFFSETS[name] + scale * NOISE[name] * rng.standard_normal(n)
    return xr.DataArray(values, {"x": ("obs", x), "y": ("obs", y)}, "obs", "u", {"units": "K"})


def weights_of(data: xr.DataArray) -> xr.DataArray:
    return xr.DataArray(1 + 0.5 * np.sin(np.arange(data.size)), dims="obs")


@functools.cache
def merged(seed: int = 0) -> xs.Statistics:
    data = {name: observed(name, seed, 300 - 40 * i) for i, name in enumerate(OFFSETS)}
    return xs.merge(
        xs.statistics(own, space(), holder=name, weights=weights_of(own)) for name, own in data.items()
    )


def features(data: xr.DataArray) -> np.ndarray:
    x, y = (f.design(data[n].values) for n, f in zip(space().names, space().features, strict=True))
    return np.einsum("ni,nj->nij", x, y).reshape(data.size, -1)


class Dense:
    """The pooled generalised fit with a column of ones for each holder but the first, as matrices."""

    def __init__(self, noise: dict[str, float], names: tuple[str, ...] = ("a", "b", "c")) -> None:
        data = [observed(name, 0, 300 - 40 * "abc".index(name)) for name in names]
        self.of = np.concatenate([np.full(own.size, i) for i, own in enumerate(data)])
        ratio = np.array([noise[name] / noise[names[0]] for name in names])
        self.weights = np.concatenate([weights_of(own) for own in data])
        self.precision = self.weights / ratio[self.of] ** 2
        columns = [(self.of == i)[:, None] for i in range(1, len(names))]
        self.design = np.hstack([np.vstack([features(own) for own in data]), *columns])
        self.y = np.concatenate(data)
        penalty = np.zeros((self.design.shape[1],) * 2)
        penalty[:54, :54] = PENALTY.gram(space()).to_dense(space().frame)
        gram = self.design.T @ (self.precision[:, None] * self.design)
        self.inverse = np.linalg.inv(gram + penalty)
        self.c = self.inverse @ (self.design.T @ (self.precision * (self.y - 20)))
        self.residual = self.y - 20 - self.design @ self.c
        self.leverage = self.precision * np.einsum("np,pq,nq->n", self.design, self.inverse, self.design)
        left = self.y.size - self.leverage.sum()
        self.variance = (self.precision * self.residual**2).sum() / left

    @property
    def noise(self) -> np.ndarray:
        """What REML takes each holder's standard deviation for, at the present ones."""
        square = self.weights * self.residual**2
        own = [square[self.of == i].sum() / (1 - self.leverage[self.of == i]).sum() for i in range(3)]
        return np.sqrt(own)


def test_code_asks_for_the_levels_too() -> None:
    field = merged().solve(PENALTY, offsets="holders", noise="holders", reference="b")
    assert field.code().endswith('holder=..., offsets="holders", noise="holders", reference="b")')
    assert merged().solve(PENALTY).code().endswith("holder=...)")


@pytest.mark.parametrize("noise", [None, NOISE])
def test_offsets_are_those_of_the_pooled_fit_with_indicator_columns(noise: dict[str, float] | None) -> None:
    field = merged().solve(PENALTY, offsets="holders", noise=noise)
    dense = Dense(noise or dict.fromkeys("abc", 1.0))
    offsets = field.offsets
    assert offsets.reference == "a"
    np.testing.assert_allclose(field.coefficients.values.ravel(), 20 + dense.c[:54], rtol=1e-10)
    np.testing.assert_allclose(offsets.offset, [0, *dense.c[54:]], rtol=1e-10)
    covariance = dense.variance * dense.inverse
    np.testing.assert_allclose(offsets.covariance[1:, 1:], covariance[54:, 54:], rtol=1e-10)
    np.testing.assert_allclose(offsets.stderr[1:], np.sqrt(np.diag(covariance)[54:]), rtol=1e-10)
    np.testing.assert_allclose(field.summary().edf, dense.leverage.sum(), rtol=1e-10)
    np.testing.assert_allclose(field.summary().sigma, math.sqrt(dense.variance), rtol=1e-10)
    at = observed("a", 1, 20)
    phi = features(at)
    error = np.sqrt(np.einsum("np,pq,nq->n", phi, covariance[:54, :54], phi))
    np.testing.assert_allclose(field.stderr(at), error, rtol=1e-10)


def test_the_reference_may_be_another_one() -> None:
    first, second = (merged().solve(PENALTY, offsets="holders", reference=name) for name in "ab")
    apart = first.offsets.offset - second.offsets.offset
    np.testing.assert_allclose(apart, apart[0].item(), atol=1e-12)
    np.testing.assert_allclose(second.offsets.stderr[0], first.offsets.stderr[1], rtol=1e-10)
    # Roughness says nothing of a constant, so that the field moves by the difference alone.
    np.testing.assert_allclose(first.predict(x=3, y=2) - second.predict(x=3, y=2), -apart[0], atol=1e-10)


def test_noise_levels_satisfy_the_equations_of_reml() -> None:
    field = merged().solve(PENALTY, offsets="holders", noise="holders")
    noise = field.noise.noise
    dense = Dense(dict(zip("abc", noise.values, strict=True)))
    np.testing.assert_allclose(noise / noise[0], dense.noise / dense.noise[0], rtol=1e-5)
    np.testing.assert_allclose(field.summary().noise, noise)
    np.testing.assert_allclose(field.summary().offset, field.offsets.offset)


def test_noise_alone_weighs_holders() -> None:
    field = merged().solve(PENALTY, noise="holders")
    ratio = field.noise.noise / field.noise.noise[0]
    given = merged().solve(PENALTY, noise=dict(zip("abc", ratio.values, strict=True)))
    np.testing.assert_allclose(field.coefficients, given.coefficients, rtol=1e-9)
    with pytest.raises(ValueError, match="has no offsets of holders"):
        field.offsets  # noqa: B018


@pytest.mark.slow
def test_levels_and_smoothing_are_found_together() -> None:
    field = merged().solve(offsets="holders", noise="holders")
    error = abs(field.offsets.offset - [*OFFSETS.values()]).values[1:] / field.offsets.stderr.values[1:]
    assert (error < 3).all(), error
    relative = abs(field.noise.noise / field.noise.noise[0] / [*NOISE.values()] - 1)
    assert (relative < 0.2).all()
    assert field.stderr(x=3, y=2) < merged().solve(offsets="holders").stderr(x=3, y=2)


def test_parts_of_one_holder_have_one_offset_in_any_order() -> None:
    pieces = [observed("b", 0, 260)[span] for span in (slice(100), slice(100, None))]
    kept = merged().without("b")
    halves = [
        xs.statistics(own, space(), holder="b", weights=weights_of(observed("b", 0, 260))[s])
        for own, s in zip(pieces, (slice(100), slice(100, None)), strict=True)
    ]
    cut = xs.merge([halves[1], kept, halves[0]], repeated_holders="add").solve(PENALTY, offsets="holders")
    whole = merged().solve(PENALTY, offsets="holders")
    np.testing.assert_allclose(cut.coefficients, whole.coefficients, rtol=1e-10)
    swapped = (merged().only("c") + merged().only("a") + merged().only("b")).solve(PENALTY, offsets="holders")
    assert swapped.coefficients.values.tobytes() == whole.coefficients.values.tobytes()


@pytest.mark.slow
def test_files_keep_offsets(tmp_path: Path) -> None:
    field = merged().solve(offsets="holders", noise="holders")
    field.to_zarr(tmp_path / "field.zarr")
    again = xs.open_field(tmp_path / "field.zarr")
    xr.testing.assert_allclose(again.offsets, field.offsets, rtol=1e-9)
    xr.testing.assert_allclose(again.noise, field.noise, rtol=1e-9)
    np.testing.assert_allclose(again.stderr(x=3, y=2), field.stderr(x=3, y=2), rtol=1e-9)
    np.testing.assert_allclose(again.summary().edf, field.summary().edf, rtol=1e-9)


def test_draws_know_what_offsets_leave_open() -> None:
    field = merged().solve(PENALTY, offsets="holders", noise=NOISE)
    drawn = field.sample(4000, seed=0).predict(x=3, y=2).std()
    np.testing.assert_allclose(drawn, field.stderr(x=3, y=2), rtol=0.05)
    mean, by_draws = (
        field.mean(stderr=True, method=m, draws=d) for m, d in (("exact", None), ("draws", 4000))
    )
    np.testing.assert_allclose(by_draws.u_stderr, mean.u_stderr, rtol=0.05)
    assert mean.u_stderr > merged().solve(PENALTY, noise=NOISE).mean(stderr=True, method="exact").u_stderr
    assert "against 'a'" in repr(field)


def test_variables_have_levels_each_and_holders_may_lack_one(tmp_path: Path) -> None:
    data = {name: observed(name, 0).to_dataset().assign(v=observed(name, 1) * 2) for name in "ab"}
    data["c"] = observed("c", 0).to_dataset().assign(v=observed("c", 1) * np.nan)
    both = xs.merge(xs.statistics(own, space(), holder=name) for name, own in data.items())
    field = both.solve(PENALTY, offsets="holders", noise="holders", reference="a")
    alone = both["v"].without("c").solve(PENALTY, offsets="holders", noise="holders", reference="a")
    mine = field.offsets.sel(variable="v", holder=["a", "b"], other=["a", "b"], drop=True)
    xr.testing.assert_allclose(mine, alone.offsets, rtol=1e-5)
    assert np.isnan(field.noise.noise.sel(variable="v", holder="c"))
    field.to_netcdf(tmp_path / "field.nc")
    xr.testing.assert_allclose(
        xs.open_field(tmp_path / "field.nc")["v"].offsets, field["v"].offsets, rtol=1e-9
    )
    with pytest.raises(xs.SingularSystemError, match="the reference 'c' has no observations of 'v'"):
        both.solve(PENALTY, offsets="holders", reference="c")


def grid(offset: float, seed: int) -> xr.DataArray:
    """Return series at four places, the last without observations of what has an offset."""
    time, rng = np.arange(60.0), np.random.default_rng(seed)
    values = offset + 0.01 * time[:, None] + rng.normal(0, 0.1, (60, 4))
    data = xr.DataArray(values, {"time": time, "place": list("pqrs")}, ("time", "place"), "u")
    return data.where((data.place != "s") | (offset == 0)).where(rng.random(data.shape) > 0.1)


@pytest.mark.parametrize("noise", [None, "holders"])
def test_each_pixel_has_its_own_levels(noise: str | None) -> None:
    agreed = xs.Space({"time": xs.Polynomial(1, domain=(0, 59))})
    data = {"a": grid(0, 0), "b": grid(0.5, 1)}
    both = xs.merge(xs.statistics(own, agreed, holder=name) for name, own in data.items())
    field = both.solve(offsets="holders", noise=noise)
    for place in "pqr":
        alone = xs.merge(
            xs.statistics(own.sel(place=place), agreed, holder=name) for name, own in data.items()
        ).solve(offsets="holders", noise=noise, reference="a")
        mine = field.offsets.sel(place=place, drop=True)
        xr.testing.assert_allclose(mine, alone.offsets.drop_vars("place"), rtol=1e-6)
        xr.testing.assert_allclose(
            field.noise.sel(place=place, drop=True), alone.noise.drop_vars("place"), rtol=1e-5
        )
        got = field.stderr(time=30.0).sel(place=place)
        np.testing.assert_allclose(got, alone.stderr(time=30.0), rtol=1e-6)
    assert np.isnan(field.offsets.offset.sel(holder="b", place="s"))
    assert np.isfinite(field.predict(time=30.0).sel(place="s"))


def test_years_on_a_grid_stay_a_product() -> None:
    time, lat = np.arange(240.0), np.linspace(0, 10, 30)
    rng = np.random.default_rng(0)
    year = xr.DataArray(np.where(time < 120, "early", "late"), dims="time")
    values = np.sin(lat) + 0.2 * (time >= 120)[:, None] + rng.normal(0, 0.1, (240, 30))
    data = xr.DataArray(values, {"time": time, "lat": lat}, ("time", "lat"), "u")
    parts = xs.statistics(data, time=xs.Polynomial(2), lat=xs.BSpline(9), holder=year)
    assert all(len(term) == 2 for term in parts.total("u").gram.terms)
    field = parts.solve(xs.Roughness(1e-4), offsets="holders", noise="holders")
    assert all(len(term) == 2 for term in field.statistics.total("u").gram.terms)
    np.testing.assert_allclose(field.offsets.offset[1], 0.2, atol=0.02)
    weighed = [
        parts.solve(xs.Ridge(1e-4), noise="holders", solver=solver).summary().noise
        for solver in ("separable", "dense")
    ]
    xr.testing.assert_allclose(*weighed)


def pooled() -> tuple[xr.DataArray, xr.DataArray]:
    """Return the observations of all institutions, with their names as a coordinate, and weights."""
    data = [
        observed(name, 0, 300 - 40 * i).assign_coords(by=("obs", [name] * (300 - 40 * i)))
        for i, name in enumerate(OFFSETS)
    ]
    return xr.concat(data, "obs"), xr.concat([weights_of(own) for own in data], "obs")


def test_fit_takes_labels_of_holders() -> None:
    data, weights = pooled()
    how = {"offsets": "holders", "noise": "holders"}
    field = xs.fit(data, space(), penalty=PENALTY, weights=weights, holder="by", **how)
    xr.testing.assert_allclose(field.offsets, merged().solve(PENALTY, **how).offsets, rtol=1e-8)
    with pytest.raises(ValueError, match="robust=True weighs residuals as if all holders were alike"):
        xs.fit(data, space(), holder="by", robust=True, **how)
    with pytest.raises(ValueError, match=r"follow from the sums.* leave out compute=False"):
        xs.fit(data, space(), holder="by", compute=False, **how)
    with pytest.raises(ValueError, match=r"holders of 'u' have noise of their own.*1 for one of 'a'"):
        field.interval(x=3, y=2, new=True)
    wider, narrow = (
        field.interval(x=3, y=2, new=new, **own) for new, own in ((True, {"weight": 1}), (False, {}))
    )
    assert wider.upper > narrow.upper
    with pytest.raises(ValueError, match="recover does not know of the offsets of holders"):
        field.recover("u_xx = D * u_yy")


def test_residuals_are_looked_at_as_those_of_their_holders() -> None:
    data, weights = pooled()
    how = {"penalty": PENALTY, "weights": weights, "offsets": "holders", "noise": "holders"}
    field = xs.fit(data, space(), holder="by", **how)
    assert "780 values are no farther from the field than normal errors are" in str(field.check())
    gross = data + 20.0 * np.isin(np.arange(data.size), (5, 102))
    with pytest.warns(xs.FitWarning, match=r"u: 2 of 780 values are up to .* by=a, obs\[102\]; look at them"):
        field = xs.fit(gross, space(), holder="by", **how)
    assert "robust" not in str(field.check()), "which takes all holders as alike"
    assert str(field.check(gross, weights=weights)) == str(field.check())
    assert str(field.check(gross, weights=weights, holder=gross.by)) == str(field.check())
    lazy = xs.fit(gross.chunk(obs=300), space(), holder="by", **how)
    assert "check(data) does" in str(lazy.check())
    assert "2 of 780 values" in str(lazy.check(gross.chunk(obs=300), weights=weights))


def test_data_of_one_holder_are_looked_at_by_its_name() -> None:
    field = merged().solve(PENALTY, offsets="holders", noise="holders")
    assert "check(data, holder=...) does" in str(field.check())
    own = observed("b", 0, 260)
    assert "260 values are no farther" in str(field.check(own, weights=weights_of(own), holder="b"))
    for holder, told in ((None, ""), ("d", ", and nothing is known of \"'d'\"")):
        with pytest.raises(
            ValueError, match=re.escape(f"differ (offsets=, noise=){told}: say whose these data are")
        ):
            field.check(own, holder=holder)


def test_pixels_are_looked_at_by_their_own_levels() -> None:
    fit_of = functools.partial(xs.fit, x=12, penalty=1e-3, holder="by", offsets="holders")
    rng, x = np.random.default_rng(0), np.linspace(0, 10, 200)
    first, offset = np.arange(200) % 2 == 0, np.array([0.0, 5.0, -40.0])
    values = np.sin(x)[:, None] + np.where(first[:, None], offset, 0.0) + 0.1 * rng.normal(size=(200, 3))
    values[50, 2] += 20
    data = xr.DataArray(values, {"x": x, "by": ("x", np.where(first, "a", "b"))}, ("x", "pixel"), "u")
    look = {finding.subject: finding for finding in fit_of(data).check().concerns["u"]}
    assert re.search(r"1 of 600 values are up to .* at x=2\.51.*, by=a, pixel\[2\]", look["outliers"].text)
    with pytest.raises(
        ValueError, match="the holder labels run along 'pixel', of which each member is a fit"
    ):
        fit_of(data).check(data, holder=xr.DataArray(list("aab"), dims="pixel"))
    sound = fit_of(data.where(data.x != data.x[50]))
    assert {finding.subject for finding in sound.check().concerns["u"]} <= {"units", "fits"}


@pytest.mark.slow
def test_institutions_are_recovered_within_their_errors() -> None:
    """Offsets 0, .3 and -.2, noise 1, 2 and .5, six times: `python -m benchmarks coverage --parts holders`."""
    each = {
        way: [institutions.scores(seed, way) for seed in range(6)] for way in ("nothing", "offsets and noise")
    }
    own, alike = each["offsets and noise"], each["nothing"]
    for key in ("field", "offsets", "noise"):
        held = np.array([one[key] for one in own])
        assert held.mean() > 0.95 - 3 * max(held.std() / math.sqrt(6), 0.02), key
    better = np.mean([one["rmse"] for one in own]) / np.mean([one["rmse"] for one in alike])
    assert better < 0.85


BAD = {
    "offsets='both' has to be 'holders', one for each, or None": {"offsets": "both"},
    "noise=3 has to be 'holders', or standard deviations by holder": {"noise": 3},
    "noise='some' has to be 'holders', or standard": {"noise": "some"},
    "no holder 'd'. Known: 'a', 'b', 'c'": {"offsets": "holders", "reference": "d"},
    "noise= has no level of 'b', 'c'; give one for each": {"noise": {"a": 1.0}},
    "noise={'b': -1}: a standard deviation is a number above 0": {"noise": {"a": 1.0, "b": -1, "c": 1}},
    "reference='a' is what offsets are against: pass offsets=": {"reference": "a"},
    "penalty='holders' predicts each holder from the others": {"penalty": "holders", "offsets": "holders"},
}


@pytest.mark.parametrize("message", BAD)
def test_arguments_that_mean_nothing_are_refused(message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        merged().solve(**BAD[message])


def test_holders_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match=r"were collapsed into one part \('a\+b\+c'\).*merge those of each"):
        merged().collapse().solve(offsets="holders")
    with pytest.raises(ValueError, match=r"are of 1 holder \('a'\)"):
        merged().only("a").solve(offsets="holders")
    data = observed("a", 0).swap_dims(obs="x").sortby("x")
    plain = xs.Space({"x": xs.Fourier(2, 10.0, domain=(0, 10))})
    parts = [xs.statistics(data[i::2].drop_vars("y"), plain, holder=str(i)) for i in range(2)]
    ar1 = [
        xs.statistics(
            data[i::2].drop_vars("y")[:2].assign_coords(x=[1.0, 2.0]),
            plain,
            holder=str(i),
            errors=xs.AR1("x"),
        )
        for i in range(2)
    ]
    with pytest.raises(ValueError, match=re.escape("offsets= and noise= takes errors as independent")):
        xs.merge(ar1).solve(offsets="holders")
    both = xs.merge(parts).solve(offsets="holders")
    with pytest.raises(ValueError, match="fits without one holder do not know its offset"):
        both.cross_validate()
    with pytest.raises(ValueError, match="fits without one holder do not know its offset"):
        both.stderr(x=3.0, method="scores")
    months = np.arange("2000-01", "2010-01", dtype="datetime64[M]").astype("datetime64[ns]")
    series = xr.DataArray(np.random.default_rng(0).normal(size=120), {"time": months}, "time", "u")
    trend = xs.space(series, time=xs.Polynomial(1))
    auto = [xs.statistics(series[i::2], trend, holder=str(i), errors="auto") for i in range(2)]
    with pytest.raises(ValueError, match="offsets= and noise= takes errors as independent"):
        xs.merge(auto).solve(offsets="holders")


def test_offsets_need_a_constant_and_neighbours() -> None:
    x = np.linspace(0, 10, 100)
    data = xr.DataArray(np.sin(x), {"x": x}, "x", "u")
    apart = xs.Space({"x": xs.BSpline(11, 1, domain=(0, 10))})
    parts = [xs.statistics(own, apart, holder=name) for name, own in (("w", data[:48]), ("e", data[62:]))]
    with pytest.raises(xs.SingularSystemError, match="nothing tells the offsets of 'w' from the field"):
        xs.merge(parts).solve(xs.Ridge(1e-12), offsets="holders", reference="e")


def test_a_holder_of_one_observation_has_an_offset_and_no_noise() -> None:
    lone = xs.statistics(observed("a", 2, 1), space(), holder="lone")
    field = (merged() + lone).solve(PENALTY, offsets="holders")
    assert field.offsets.stderr.sel(holder="lone") > 0.9 * field.summary().sigma
    with pytest.raises(xs.SingularSystemError, match="through all 1 observations of holder 'lone', which so"):
        (merged() + lone).solve(PENALTY, offsets="holders", noise="holders")

"""Systems that the data do not determine: what is said, and what comes back."""

from __future__ import annotations

import numpy as np
import pytest

from xspline.solve import SOLVERS, Penalty, Ridge, Roughness, SingularSystemError, factorise, solve
from xspline.spaces import Axis, BSpline, Fourier, Space
from xspline.sums import Gram, Sums

from .cases import Case, close, gaps, grid, space_of, static, with_multiplicity

NONE = Ridge(0.0)


def masked(*holes: tuple[slice, slice], solver: str = "banded") -> tuple[Case, Gram]:
    """Latitude, longitude and time on a grid without some boxes; static mask or anything."""
    space = Space(
        {
            "lat": BSpline(8, degree=1, domain=(0, 70)),
            "lon": BSpline(7, degree=1, domain=(100, 160)),
            "time": Fourier(1, period=1.0),
        },
        axes={"lat": Axis(), "lon": Axis(), "time": Axis()},
    )
    lat, lon, time = np.arange(0, 70.1, 5), np.arange(100, 160.1, 5), np.arange(8) / 8
    mask = np.ones((len(lat), len(lon)))
    for hole in holes:
        mask[hole] = 0
    w = np.broadcast_to(mask[..., None], (*mask.shape, 8))
    case = Case(space, (lat, lon, time), np.random.default_rng(0).normal(size=w.shape), w)
    if solver == "separable":
        return case, Gram(((case.factor((0, 1), mask), case.factor((2,), np.ones(8))),))
    return case, case.general()


@pytest.mark.parametrize("solver", ["separable", "banded", "dissection", "dense"])
def test_empty_cells_are_named(solver: str) -> None:
    """Coefficients sit at multiples of 10; a hole of half-width 10 leaves those inside empty."""
    case, gram = masked((slice(3, 10), slice(5, 12)), solver=solver)
    message = (
        r"^12 of 168 coefficients have no observations, around lat 20 to 40, lon 130 to 150; pass a penalty "
        r"\(penalty=1e-3, say\) or use fewer coefficients$"
    )
    if solver == "separable":
        message = message.replace("12 of", "27 of")
    with pytest.raises(SingularSystemError, match=message.replace("12 of", "27 of")):
        solve(case.sums(gram), case.space, NONE, solver)
    assert solve(case.sums(gram), case.space, Ridge(1e-3), solver).determined


def test_times_are_written_as_labels() -> None:
    axis = Axis.infer("time", np.array(["2001-01-01", "2002-01-01"], dtype="datetime64[ns]"))
    space = Space({"time": BSpline(9, degree=1, domain=("2001-01-01", "2001-01-09"))}, axes={"time": axis})
    x = axis.to_float(np.array(["2001-01-01", "2001-01-02", "2001-01-09"], dtype="datetime64[ns]"))
    case = Case(space, (x,), np.ones(3), np.ones(3))
    with pytest.raises(
        SingularSystemError, match=r"6 of 9 coefficients .* around time 2001-01-03.* to 2001-01-08"
    ):
        solve(case.sums(case.general()), space, NONE)


def test_no_observations_at_all() -> None:
    space = space_of("cubic", "season")
    for penalty in (NONE, Ridge(1.0)):
        with pytest.raises(
            SingularSystemError, match=r"there are no observations: .* the space: a 0 to 1, b 0 to 1"
        ):
            solve(Sums.zero(space.frame), space, penalty)
    with pytest.raises(SingularSystemError, match="there are no observations"):
        solve(Sums.zero(space.frame, (3,)), space, Ridge(1.0))


@pytest.mark.parametrize("solver", [None, *SOLVERS])
def test_fewer_observations_than_coefficients(solver: str | None) -> None:
    space, rng = space_of("trend", "season"), np.random.default_rng(0)
    xs = (rng.random(5), rng.random(2))
    case = Case(space, xs, rng.normal(size=(5, 2)), np.ones((5, 2)))
    gram = Gram(((case.factor((0,), np.ones(5)), case.factor((1,), np.ones(2))),))
    if solver in ("separable", "nearly_separable"):
        return
    with pytest.raises(
        SingularSystemError, match=r"^10 observations do not determine 12 coefficients; pass a"
    ):
        solve(case.sums(gram), space, NONE, solver)
    solution = solve(case.sums(gram), space, Ridge(0.1), solver)
    c = solution.coefficients.ravel()
    assert close(case.phi @ c, case.phi @ case.expected(Ridge(0.1)))


@pytest.mark.parametrize("solver", [None, "spectral", "banded", "dissection", "dense"])
def test_nearly_dependent_coefficients(solver: str | None) -> None:
    """A constant and a wave sampled at one phase only."""
    space = space_of("season", "linear")
    xs = (np.full(20, 0.25), np.linspace(0, 1, 30))
    case = Case(space, xs, np.ones((20, 30)), np.ones((20, 30)))
    gram = Gram(((case.factor((0,), np.ones(20)), case.factor((1,), np.ones(30))),))
    match = (
        r"the 16 coefficients are nearly dependent, most of all the one at a \w+, b [\d.]+; pass a penalty"
    )
    with pytest.raises(SingularSystemError, match=match):
        factorise(gram, NONE.gram(space), space, solver)
    assert factorise(gram, Ridge(0.1).gram(space), space, solver).determined


@pytest.mark.parametrize(
    "penalty", [Ridge(1e-30), Roughness({"lat": 1.0}, order=1), Roughness({"lon": 1e-30}, order=1)]
)
def test_a_penalty_that_does_not_suffice(penalty: Penalty) -> None:
    case, gram = masked((slice(3, 10), slice(None)))
    x = np.array([0.5, 0.25])
    if isinstance(penalty, Ridge):
        space = space_of("season")
        case = Case(space, (x,), np.ones(2), np.ones(2))
        gram = case.general()
    elif "lat" in penalty.strengths(case.space):
        case, gram = masked((slice(None), slice(3, 8)))
    for solver in (None, "banded", "dissection", "dense"):
        with pytest.raises(SingularSystemError, match=r"pass a larger penalty, add a ridge to it \(penalty"):
            solve(case.sums(gram), case.space, penalty, solver)


@pytest.mark.parametrize("solver", ["spectral", "separable", "banded", "dissection", "dense"])
@pytest.mark.parametrize("penalty", [NONE, Ridge(0.1)], ids=repr)
def test_members_without_observations_come_back_missing(solver: str, penalty: Penalty) -> None:
    space = space_of("linear", "circle", "season")
    case, gram = (static if solver == "separable" else grid)(space, np.random.default_rng(0), (3,))
    case, gram = with_multiplicity(case, gram, np.array([1.0, 0.0, 2.0]))
    solution = solve(case.sums(gram), space, penalty, solver)
    np.testing.assert_array_equal(solution.determined, [True, False, True])
    for values in (solution.coefficients.reshape(-1, 3), solution.rss, solution.factorisation.edf()):
        np.testing.assert_array_equal(np.isnan(values).any(axis=tuple(range(values.ndim - 1))), [0, 1, 0])
    rest = Case(space, case.coordinates, case.y[..., [0, 2]], case.w[..., [0, 2]])
    assert close(solution.coefficients[..., [0, 2]].reshape(-1, 2), rest.expected(penalty), 1e-8)


@pytest.mark.parametrize("members", [4, 60])
@pytest.mark.parametrize("solver", [None, "banded", "dissection", "dense"])
def test_members_with_too_few_observations_come_back_missing(solver: str | None, members: int) -> None:
    space = space_of("cubic")
    case, _ = gaps(space, np.random.default_rng(1), (members,))
    w = np.ones(case.w.shape)
    w[:, 1] = 0
    w[3:, 2] = 0
    case = Case(space, case.coordinates, case.y, w)
    solution = solve(case.sums(case.general()), space, NONE, solver)
    assert np.flatnonzero(~solution.determined).tolist() == [1, 2]
    assert np.isnan(solution.coefficients[:, 1:3]).all()
    assert np.isfinite(np.delete(solution.coefficients, [1, 2], axis=1)).all()
    assert np.isnan(solution.rss[1:3]).all()
    ridge = solve(case.sums(case.general()), space, Ridge(0.1), solver)
    assert np.flatnonzero(~ridge.determined).tolist() == [1]


def test_no_member_is_determined() -> None:
    space = space_of("cubic")
    case, _ = gaps(space, np.random.default_rng(1), (40,))
    w = np.zeros(case.w.shape)
    w[:2] = 1
    case = Case(space, case.coordinates, case.y, w)
    with pytest.raises(SingularSystemError, match=r"^none of the 40 batch members is determined: 1 of 5"):
        solve(case.sums(case.general()), space, NONE)


def test_scales_do_not_decide() -> None:
    """The same verdict in any unit of the weights."""
    space = space_of("cubic", "linear")
    _, gram = grid(space, np.random.default_rng(3))
    for scale in (1e-200, 1e-12, 1e12, 1e200):
        for solver in ("spectral", "banded", "dissection", "dense"):
            assert factorise(gram.scaled(scale), NONE.gram(space), space, solver).determined

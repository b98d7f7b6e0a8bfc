"""Dense systems on a GPU: solutions, verdicts and choices of smoothing are those of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import Device
from tests.solve.cases import Case, close, gaps, on, space_of
from tests.solve.test_smoothing import wave
from xspline.solve import Penalty, Resources, Ridge, Roughness, SingularSystemError, choose, solve
from xspline.solve.direct.solver import Direct
from xspline.sums import Gram

KINDS: list[tuple[tuple[str, ...], tuple[int, ...]]] = [
    (("cubic",), ()),
    (("circle",), (3,)),
    (("circle", "season"), (2,)),
    (("uneven", "linear", "short circle"), ()),
    (("linear", "trend", "union"), (2,)),
    (("linear",) * 4, ()),
]
PENALTIES: list[Penalty] = [Ridge(0.0), Ridge(1e-2), Roughness(1e-3, order=1)]
PLANE = ("cubic", "circle")


def case_with_gaps(kinds: tuple[str, ...], batch: tuple[int, ...] = ()) -> tuple[Case, Gram]:
    rng = np.random.default_rng(0)
    case, gram = gaps(space_of(*kinds), rng, batch)
    return wave(case, rng), gram


def both(case: Case, gram: Gram, penalty: Penalty, device: Device) -> list[Direct]:
    """The dense solver on the device and on the host."""
    args = gram, penalty.gram(case.space), case.space.frame
    return [Direct(*args, dense=True, resources=on(gpu)) for gpu in (device, None)]


def near(gpu: Any) -> Resources:
    """A GPU that is so near that small systems are worth the transfer too."""
    return on(gpu, transfer_flops=0.0)


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize(("kinds", "batch"), KINDS)
def test_all_answers_are_those_of_the_host(kinds: Any, batch: Any, penalty: Penalty, device: Device) -> None:
    case, gram = case_with_gaps(kinds, batch)
    ours, host = both(case, gram, penalty, device)
    vectors = np.random.default_rng(1).normal(size=(*case.space.shape, 5, *batch))
    terms = [Gram((term,)) for term in (*Ridge(1.0).gram(case.space).terms, *penalty.gram(case.space).terms)]
    for name in ("logdet", "edf", "inverse_pairs"):
        assert close(getattr(ours, name)(), getattr(host, name)(), 1e-10), name
    assert close(ours.verdicts.pivot, host.verdicts.pivot, 1e-10)
    assert close(ours.traces(terms), host.traces(terms), 1e-10)
    assert close(ours.solve(vectors), host.solve(vectors), 1e-10)
    assert close(ours.apply_inverse_sqrt(vectors), host.apply_inverse_sqrt(vectors), 1e-10)
    assert ours.determined.all() and 0 < ours.nbytes <= host.nbytes


# --- systems that are not determined


def test_batch_members_without_observations_are_not_determined(device: Device) -> None:
    """The first has none, the second too few; the others are determined."""
    case, _ = case_with_gaps(PLANE, (4,))
    case.w[..., 0] = 0.0
    case.w[3:, :, 1] = 0.0
    ours, host = both(case, case.general(), Ridge(0.0), device)
    np.testing.assert_array_equal(ours.determined, [False, False, True, True])
    assert ours.weakest == host.weakest
    np.testing.assert_array_equal(ours.verdicts.weakest, host.verdicts.weakest)
    np.testing.assert_allclose(ours.verdicts.pivot, host.verdicts.pivot, rtol=1e-10)
    np.testing.assert_allclose(ours.logdet(), host.logdet(), rtol=1e-10)
    np.testing.assert_allclose(ours.edf(), host.edf(), rtol=1e-10)
    rhs = np.ones((*case.space.shape, 4))
    np.testing.assert_allclose(ours.solve(rhs), host.solve(rhs), rtol=1e-8)
    assert np.isnan(ours.inverse_pairs()[..., 0]).all()


def empty_cells() -> tuple[Case, Gram]:
    case, _ = case_with_gaps(("cubic", "linear"))
    case.w[:, 3:] = 0.0
    return case, case.general()


def too_few() -> tuple[Case, Gram]:
    space, rng = space_of("trend", "season"), np.random.default_rng(0)
    case = Case(space, (rng.random(5), rng.random(2)), rng.normal(size=(5, 2)), np.ones((5, 2)))
    return case, case.general()


def one_phase() -> tuple[Case, Gram]:
    """A constant and a wave sampled at one phase only."""
    xs = (np.full(20, 0.25), np.linspace(0, 1, 30))
    case = Case(space_of("season", "linear"), xs, np.ones((20, 30)), np.ones((20, 30)))
    return case, case.general()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (empty_cells, "coefficients have no observations, around"),
        (too_few, "10 observations do not determine 12 coefficients"),
        (one_phase, r"the 16 coefficients are nearly dependent, most of all the one at a \w+, b [\d.]+"),
    ],
)
def test_the_message_of_an_undetermined_system(make: Any, message: str, device: Device) -> None:
    case, gram = make()
    messages = []
    for gpu in (device, None):
        with pytest.raises(SingularSystemError, match=message) as caught:
            solve(case.sums(gram), case.space, Ridge(0.0), "dense", resources=near(gpu))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    solution = solve(case.sums(gram), case.space, Ridge(0.1), "dense", resources=near(device))
    assert solution.factorisation.choice.on_gpu and solution.determined


# --- what is chosen


@pytest.mark.parametrize(
    ("method", "kinds", "batch"), [("reml", PLANE, ()), ("gcv", ("cubic", "season"), (2,))]
)
def test_the_smoothing_is_that_of_the_host(method: str, kinds: Any, batch: Any, device: Device) -> None:
    case, gram = case_with_gaps(kinds, batch)
    sums = case.sums(gram)
    ours, host = (
        choose(sums, case.space, Roughness(method), solver="dense", resources=near(gpu))
        for gpu in (device, None)
    )
    strengths, expected = (list(choice.penalty.strengths(case.space).values()) for choice in (ours, host))
    np.testing.assert_allclose(strengths, expected, rtol=1e-6)
    assert ours.score == pytest.approx(host.score, rel=1e-10)
    assert ours.factorisation.choice.on_gpu and not host.factorisation.choice.on_gpu

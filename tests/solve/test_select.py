"""Which solver is chosen, why, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from xspline.solve import Penalty, Ridge, Roughness, choose, factorise
from xspline.spaces import Axis, BSpline, Space
from xspline.sums import Factor, Gram

from .cases import gaps, grid, on, select, space_of, static

SPACE = space_of("linear", "circle", "season")
ROUGH = Roughness({"a": 1.0}, order=1)
SMOOTH = Roughness(1.0, order=1)
SMOOTH_AND_RIDGE = SMOOTH + Ridge(1.0)
EVERYWHERE = Roughness(dict.fromkeys("abc", 1.0), order=1)


def made(structure: str, batch: tuple[int, ...] = ()) -> Gram:
    rng = np.random.default_rng(0)
    return {"grid": grid, "static": static, "gaps": gaps}[structure](SPACE, rng, batch)[1]


@pytest.mark.parametrize(
    ("structure", "penalty", "name"),
    [
        ("grid", Ridge(0), "spectral"),
        ("grid", Ridge(1) + Ridge(2), "spectral"),
        ("grid", SMOOTH, "separable"),
        ("grid", ROUGH, "separable"),
        ("grid", EVERYWHERE, "banded"),
        ("grid", SMOOTH_AND_RIDGE, "banded"),
        ("static", Ridge(1), "separable"),
        ("static", SMOOTH, "separable"),
        ("static", EVERYWHERE, "banded"),
        ("gaps", Ridge(1), "banded"),
    ],
)
def test_the_structure_decides(structure: str, penalty: Penalty, name: str) -> None:
    space = Space(
        {"a": BSpline(40, degree=1, domain=(0, 1)), "b": SPACE.axes["b"][1], "c": SPACE.axes["c"][1]},
        axes={n: Axis() for n in "abc"},
    )
    gram = {"grid": grid, "static": static, "gaps": gaps}[structure](space, np.random.default_rng(0))[1]
    choice = select(gram, penalty.gram(space), space.frame)
    assert choice.name == name and choice.reason
    assert 0 < choice.nbytes < 1e9
    factorisation = factorise(gram, penalty.gram(space), space)
    assert (factorisation.choice.name, factorisation.choice.reason) == (choice.name, choice.reason)


MISFITS = {
    "a factor for each of several coordinates .*; here one factor spans all": ("gaps", Ridge(1), "spectral"),
    "here a factor of the data or of the penalty spans several coordinates": ("static", Ridge(1), "spectral"),
    "some factors only, .*; here the penalty does not share the eigenv": ("static", EVERYWHERE, "separable"),
    "does not share .*; leave solver out, or pass solver='banded'": ("grid", SMOOTH_AND_RIDGE, "separable"),
}


@pytest.mark.parametrize("message", MISFITS)
def test_a_solver_that_does_not_fit(message: str) -> None:
    structure, penalty, solver = MISFITS[message]
    with pytest.raises(ValueError, match=message):
        select(made(structure), penalty.gram(SPACE), SPACE.frame, solver)


def test_other_misfits() -> None:
    ridge, frame = Ridge(1).gram(SPACE), SPACE.frame
    gram = made("grid")
    with pytest.raises(ValueError, match="a sum of 2 products has no"):
        select(Gram(gram.terms * 2), ridge, frame, "spectral")
    with pytest.raises(ValueError, match="there are no observations"):
        select(Gram(()), ridge, frame, "separable")
    with pytest.raises(ValueError, match="here one factor spans all"):
        select(made("gaps", (4,)), ridge, frame, "spectral")
    with pytest.raises(
        ValueError,
        match="unknown solver 'lu': choose one of spectral, separable, nearly_separable, banded, dissection",
    ):
        select(gram, ridge, frame, "lu")


def huge() -> Space:
    bases = {n: BSpline(400, domain=(0, 1)) for n in "abc"}
    return Space(bases, axes={n: Axis() for n in "abc"})


def kilobytes(space: Space) -> Gram:
    factors = Ridge(1.0).gram(space).terms[0]
    return Gram((tuple(Factor(f.axes, f.window, f.pairs, 1 + i) for i, f in enumerate(factors)),))


def test_what_does_not_fit_in_memory_is_refused_before_it_is_made() -> None:
    space = huge()
    message = (
        r"an iterative solve for P = 64000000 coefficients needs about \d+ bytes .* more than the .* GiB of this "
        r"machine .*use fewer coefficients.*or a ridge"
    )
    with pytest.raises(ValueError, match=message):
        select(kilobytes(space), Roughness(1.0).gram(space), space.frame, "iterative")
    with pytest.raises(ValueError, match=r"a dissection solve .* or pass strengths, as in xs.Roughness"):
        select(kilobytes(space), Roughness(1.0).gram(space), space.frame, exact=True)
    with pytest.raises(ValueError, match="a dense solve for P = 64000000"):
        select(kilobytes(space), Ridge(1.0).gram(space), space.frame, "dense")
    for penalty in (Ridge(1.0), Roughness(1.0)):
        assert select(kilobytes(space), penalty.gram(space), space.frame).name == "spectral"


def test_the_iterative_solver_does_not_choose_the_smoothing() -> None:
    ridge = Ridge(1).gram(SPACE)
    with pytest.raises(ValueError, match="solver='iterative' does not know the inverse"):
        select(made("gaps"), ridge, SPACE.frame, "iterative", exact=True)


@pytest.mark.slow
def test_a_choice_that_is_estimated_for_lack_of_memory_warns() -> None:
    bases = {n: BSpline(8, degree=2, domain=(0, 1)) for n in "abc"}
    space = Space(bases, axes={n: Axis() for n in "abc"})
    case, gram = gaps(space, np.random.default_rng(0))
    sums, frame, penalty = case.sums(gram), space.frame, Roughness(1.0).gram(space)
    needs = {
        name: select(gram, penalty, frame, name).nbytes
        for name in ("banded", "dissection", "dense", "iterative")
    }
    assert needs["iterative"] < min(needs["banded"], needs["dissection"], needs["dense"])
    small = on(memory=needs["iterative"] + 1)
    message = (
        r"estimated from random probes, not computed: a \w+ solve for P = 512 coefficients needs about .* GiB"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        estimated = choose(sums, space, Roughness("reml"), resources=small)
    assert estimated.factorisation.choice.name == "iterative" and estimated.error
    assert caught[0].filename == __file__  # the line that asked for it
    with pytest.raises(ValueError, match=r"more than the .* GiB of this machine .* or penalty='reml'"):
        choose(sums, space, "gcv", resources=small)

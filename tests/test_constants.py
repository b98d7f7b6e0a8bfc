"""`python -m benchmarks constants`: files in the layouts in which others published them, and PySINDy beside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from benchmarks.constants import peers, public

X, T = np.arange(24) / 4 - 3, np.linspace(0, 2, 15)


def wave(complex_: bool = False) -> np.ndarray:
    """Return u [x, t] that goes round with the speed 0.5."""
    u = np.sin(2 * np.pi * (X[:, None] - 0.5 * T) / 6)
    return u + 0j if complex_ else u


def cells(*values: np.ndarray) -> np.ndarray:
    """Return a cell array of MATLAB."""
    out = np.empty((1, len(values)), object)
    out[0, :] = values
    return out


@pytest.mark.parametrize(
    "layout, content",
    [
        ("usol", {"x": X[None], "t": T[:, None], "usol": wave(complex_=True)}),
        ("uu", {"x": X[:, None], "tt": T[None], "uu": wave()}),
        ("cells", {"xs": cells(X[:, None], T[None]), "U_exact": cells(wave())}),
    ],
)
def test_a_file_of_each_layout(layout: str, content: dict, tmp_path: Path) -> None:
    savemat(tmp_path / "one.mat", content)
    which, data = public.read(tmp_path / "one.mat")
    assert which == layout and data.u.dims == ("x", "t") and data.u.dtype == float
    np.testing.assert_array_equal(data.u.values, wave())
    np.testing.assert_array_equal(data.x.values, X)
    np.testing.assert_array_equal(data.t.values, T)


def test_two_fields_in_the_plane(tmp_path: Path) -> None:
    u = np.arange(24.0).reshape(2, 3, 4)
    content = {
        "x": np.arange(2.0)[None],
        "y": np.arange(3.0)[None],
        "t": np.arange(4.0)[:, None],
        "u": u,
        "v": -u,
    }
    savemat(tmp_path / "rd.mat", content)
    layout, data = public.read(tmp_path / "rd.mat")
    assert layout == "uv" and data.v.dims == ("x", "y", "t")
    np.testing.assert_array_equal(data.v.values, -u)


@pytest.mark.parametrize(
    "content, message",
    [
        ({"a": X}, r"holds \['a'\], which is none"),
        ({"x": X, "t": T, "usol": wave().T}, "15 entries along 'x', which has 24"),
    ],
)
def test_another_layout_is_refused(content: dict, message: str, tmp_path: Path) -> None:
    savemat(tmp_path / "one.mat", content)
    with pytest.raises(ValueError, match=message):
        public.read(tmp_path / "one.mat")


def test_names_of_pysindy() -> None:
    names = ["1", "x0", "x0^2", "x0_1", "x0_111", "x0x0_1", "x0^3x0_11"]
    assert [peers.candidate(n) for n in names] == ["1", "u", "u**2", "u_x", "u_xxx", "u*u_x", "u**3*u_xx"]
    with pytest.raises(ValueError, match="'x1' is no term"):
        peers.candidate("x1")


def test_the_fewest_terms_whose_score_is_near_the_best() -> None:
    rng = np.random.default_rng(0)
    terms = rng.standard_normal((200, 3))
    target = 2 * terms[:, 0] + 0.1 * rng.standard_normal(200)
    found = [np.linalg.lstsq(terms, target, rcond=None)[0], np.array([2.0, 0, 0]), np.zeros(3)]
    own, score = peers.chosen(found, terms, target)
    assert np.count_nonzero(own) == 1 and 0.99 < score < 1

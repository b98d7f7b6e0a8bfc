"""A line on a terminal that says what takes long: shown after a while, kept up to date, wiped at the end."""

from __future__ import annotations

import io
import types

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from xspline.solve import progress
from xspline.solve.progress import tell, told


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> list[str]:
        return [text.strip() for text in self.getvalue().split("\r") if text.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    screen = Terminal()
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=screen, modules={}))
    monkeypatch.setattr(progress, "is_main_thread", lambda: True)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setenv("COLUMNS", "100")
    return screen


def test_work_within_work_is_added_and_the_line_is_wiped(terminal: Terminal) -> None:
    with told("fits without one holder"):
        tell("1 of 3")
        with told("solving"):
            tell("iteration 9")
        tell("2 of 3")
    outer = [f"fits without one holder, {k} of 3" for k in (1, 2)]
    texts = [outer[0], f"{outer[0]}: solving, iteration 9", outer[1]]
    assert terminal.shown == [f"{text}, 0 s" for text in texts]
    assert terminal.getvalue().endswith("\r") and not terminal.getvalue().rsplit("\r", 2)[1].strip()


@pytest.mark.parametrize("watched", ["file", "thread"])
def test_nobody_watches(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, watched: str) -> None:
    """A log file; a worker's thread, whose process may have the user's terminal."""
    if watched == "file":
        monkeypatch.setattr(Terminal, "isatty", lambda self: False)
    else:
        monkeypatch.setattr(progress, "is_main_thread", lambda: False)
    with told("solving"):
        tell("iteration 1")
    assert not terminal.getvalue()


def test_errors_wipe_the_line_too(terminal: Terminal) -> None:
    def solve() -> None:
        with told("solving"):
            tell("iteration 1")
            raise ValueError("singular")

    with pytest.raises(ValueError, match="singular"):
        solve()
    assert not terminal.getvalue().rsplit("\r", 2)[1].strip()
    tell("afterwards")
    assert len(terminal.shown) == 1


def test_long_work_of_a_field_is_told(terminal: Terminal) -> None:
    x = np.linspace(0, 1, 40)
    coords = {"x": x, "y": x, "part": ("x", [0, 1] * 20)}
    noise = np.random.default_rng(0).standard_normal((40, 40))
    data = xr.DataArray(np.sin(6 * x)[:, None] + 0.1 * noise, coords, ("x", "y"), "v")
    field = data.spline.fit(x=8, y=8, penalty=xs.Roughness(1e-4), solver="iterative", holder="part")
    field.stderr(x=0.5, y=0.5, draws=10)
    field.stderr(x=0.5, y=0.5, method="jackknife")
    told = "\n".join(terminal.shown)
    for text in (
        "solving for 64 coefficients: iterations, 1 of ",
        "draws of the error, ",
        "fits without one holder, 1 of 2",
    ):
        assert text in told

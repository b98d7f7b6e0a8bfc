"""A line on a terminal that says what takes long: shown after a while, kept up to date, wiped at the end."""

from __future__ import annotations

import io
import threading
import types

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from xspline.solve import progress
from xspline.solve.progress import StatusLine, tell


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
    monkeypatch.setattr(progress, "INTERVAL_S", 0.0)
    monkeypatch.setenv("COLUMNS", "100")
    return screen


def test_what_says_nothing_of_itself_shows_the_seconds(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One long factorisation, say: a thread beside it keeps the line up to date."""
    monkeypatch.setattr(progress, "TICK_S", 0.01)
    shown = threading.Event()
    write = terminal.write
    monkeypatch.setattr(terminal, "write", lambda text: (write(text), shown.set())[0])
    with StatusLine("solving for 10 coefficients"):
        assert shown.wait(10), "without any call of tell"
    assert terminal.shown[0] == "solving for 10 coefficients, 0 s"
    assert not [thread for thread in threading.enumerate() if thread.name == progress.THREAD]


@pytest.mark.parametrize("watched", ["file", "thread"])
def test_nobody_watches(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, watched: str) -> None:
    """A log file; a worker's thread, whose process may have the user's terminal."""
    if watched == "file":
        monkeypatch.setattr(Terminal, "isatty", lambda self: False)
    else:
        monkeypatch.setattr(progress, "is_main_thread", lambda: False)
    with StatusLine("solving"):
        tell("iteration 1")
    assert not terminal.getvalue()


def test_errors_wipe_the_line_too(terminal: Terminal) -> None:
    def solve() -> None:
        with StatusLine("solving"):
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
        "solving for 64 coefficients, iteration 1 ",
        "draws of the error, ",
        "fits without one holder, 1 of 2",
    ):
        assert text in told

"""Terms and constants by PySINDy and by xspline, from the same draws: `--peers [PYTHON]`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.constants import waves
from benchmarks.constants.waves import Set

SCRIPT = Path(__file__).with_name("peers.py")
SETS = (waves.korteweg_de_vries, waves.burgers, waves.kuramoto_sivashinsky, waves.reaction_diffusion)
HEAD = ("set", "noise", "method", "right terms", "largest error, terms given, %", "CPU s", "found")


def installed(python: str) -> bool:
    """Whether a Python has PySINDy."""
    return subprocess.run([python, "-c", "import pysindy"], capture_output=True, check=False).returncode == 0


def by_peers(python: str, own: Set, level: float, seed: int) -> list[dict]:
    """What PySINDy finds in one draw."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set.npz"
        values = {
            "names": list(own.true),
            "values": list(own.true.values()),
            "order": own.asked.get("order", 3),
        }
        np.savez(path, u=own.noisy(level, seed).values.T, x=own.x, t=own.t, **values)
        done = subprocess.run(
            [python, "-W", "ignore", str(SCRIPT), str(path)], capture_output=True, text=True, check=True
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def by_xspline(own: Set, level: float, seed: int) -> list[str]:
    """Right terms, largest error of the constants where the terms are given, seconds of both, the equation."""
    start = time.process_time()
    found, given = own.discovered(level, seed), own.recovered(level, seed, ())
    seconds = time.process_time() - start
    error = worst(dict(zip(own.true, given.estimate.values.tolist(), strict=True)), own.true)
    return ["yes" if own.is_right(found) else "no", f"{error:.3g}", f"{seconds:.1f}", found.attrs["equation"]]


def worst(constants: dict[str, float], true: dict[str, float]) -> float:
    """The largest error in percent."""
    return max(100 * abs(constants[term] / value - 1) for term, value in true.items())


def compare(python: str, only: str, levels: tuple[float, ...]) -> None:
    """Print both, a line each; where PySINDy is not installed, its lines say so."""
    python = python or sys.executable
    has = installed(python)
    print("\n| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for own in (make() for make in SETS):
        for level in levels if only in own.name else ():
            lines = [["xspline", *by_xspline(own, level, 0)]]
            if not has:
                lines.append(
                    ["PySINDy", "not installed", "", "", "pip install pysindy; or name a Python that has it"]
                )
            for peer in by_peers(python, own, level, 0) if has else ():
                right = set(peer["terms"]) == set(own.true)
                verdict = "yes" if right else "at another threshold" if peer["ever"] else "no"
                terms = " ".join(f"{v:+.4g}*{n}" for n, v in peer["terms"].items())
                error = f"{worst(peer['given'], dict(own.true)):.3g}"
                lines.append([peer["method"], verdict, error, f"{peer['seconds']:.1f}", f"u_t = {terms}"])
            for cells in lines:
                print(f"| {own.name} | {level:.0%} | " + " | ".join(cells) + " |", flush=True)

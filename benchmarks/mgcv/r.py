"""Running R: scripts beside this file, doubles in a folder, figures as lines of text."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent


def missing() -> str:
    """Why mgcv cannot be run; empty if it can."""
    if shutil.which("Rscript") is None:
        return "R is not installed (Debian: apt-get install r-cran-mgcv)"
    found = subprocess.run(["Rscript", "-e", "library(mgcv)"], capture_output=True, text=True)
    return "" if found.returncode == 0 else "R has no package mgcv (Debian: apt-get install r-cran-mgcv)"


def write(folder: Path, **arrays: Any) -> None:
    """Doubles by columns, one file each."""
    for name, array in arrays.items():
        np.asarray(array, dtype=np.float64).ravel(order="F").tofile(folder / name)


def run(script: str, *arguments: object) -> dict[str, list[str]]:
    """The figures that a script prints: name -> words."""
    command = ["Rscript", str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stderr}")
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    return {name: words for name, *words in lines}

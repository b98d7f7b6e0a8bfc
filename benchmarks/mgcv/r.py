"""Running R: scripts beside this file, doubles in a folder, figures as lines of text."""

from __future__ import annotations

import os
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


def run(script: str, *arguments: object, blas: str = "") -> dict[str, list[str]]:
    """The figures that a script prints: name -> words. `blas`: libraries that R is to use instead of its own."""
    command = ["Rscript", str(HERE / script), *map(str, arguments)]
    environment = {**os.environ, **({"LD_PRELOAD": blas} if blas else {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stderr}")
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    return {name: words for name, *words in lines}

"""Build the conda recipe as far as pip can: its source, its script, its tests, in a virtual environment.

    python -m build --sdist && python ci/recipe.py [FOLDER]

FOLDER is where the sdist lies, dist by default.
What `rattler-build build --recipe recipe` does, with packages of the index in place of those of conda-forge: the host's
requirements, the build script in the unpacked source, the run's requirements, `pip check`, imports and test scripts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import Any

import yaml

RECIPE = Path(__file__).resolve().parent.parent / "recipe/recipe.yaml"
NAMES = {"dask-core": "dask[array]", "netcdf4": "netCDF4"}  # of conda-forge, and of the index


def load() -> dict[str, Any]:
    text = RECIPE.read_text(encoding="utf-8")
    version = yaml.safe_load(text)["context"]["version"]
    return yaml.safe_load(text.replace("${{ version }}", version))


def requirements(listed: list[str]) -> list[str]:
    split = (dependency.partition(" ") for dependency in listed)
    return [NAMES.get(name, name) + floor for name, _, floor in split if name not in ("python", "pip")]


def main() -> None:
    recipe = load()
    with tempfile.TemporaryDirectory() as work:
        venv.create(Path(work) / "host", with_pip=True)
        programs = Path(work) / "host" / ("Scripts" if os.name == "nt" else "bin")
        environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        environment.pop("PYTHONPATH", None)

        def run(command: str, where: str | Path = work) -> None:
            print(f"$ {command}", flush=True)
            subprocess.run(command, shell=True, check=True, cwd=where, env=environment)

        def install(listed: list[str]) -> None:
            quoted = " ".join(f'"{requirement}"' for requirement in requirements(listed))
            run(f"python -m pip install --quiet {quoted}")

        path = RECIPE.parent / recipe["source"]["path"]
        path = Path(sys.argv[1]) / path.name if len(sys.argv) > 1 else path
        with tarfile.open(path) as archive:
            archive.extractall(work, filter="data")
        (source,) = (path for path in Path(work).iterdir() if (path / "pyproject.toml").exists())
        if not (source / recipe["about"]["license_file"]).exists():
            sys.exit(f"{source.name} has no {recipe['about']['license_file']}")
        install(recipe["requirements"]["host"])
        run(recipe["build"]["script"], source)
        install(recipe["requirements"]["run"])
        for test in recipe["tests"]:
            for module in test.get("python", {}).get("imports", ()):
                run(f'python -c "import {module}"')
            if test.get("python", {}).get("pip_check"):
                run("python -m pip check")
            for script in test.get("script", ()):
                run(script)


if __name__ == "__main__":
    main()

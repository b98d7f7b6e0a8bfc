"""Which wheels of a folder an environment still needs, and which the folder lacks. Nothing is asked of a network.

python ci/wheels.py WHEELS TARGET    installs them into the folder TARGET, to be put on PYTHONPATH
"""

from __future__ import annotations

import argparse
import email
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")


@dataclass
class Needs:
    """What was found for some requirements.

    Attributes
    ----------
    wheels : to install, by name.
    lacking : requirements that nothing meets, and who has them.
    doubtful : the same of what is installed already, and so may do without.
    """

    wheels: dict[str, Path] = field(default_factory=dict)
    lacking: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)


def of_project() -> list[str]:
    """Requirements of the package and of its tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["test"]]


def needs(requirements: Sequence[str], folder: Path) -> Needs:
    """Walk the requirements: what is installed is kept, wheels fill the gaps, each with requirements of its own."""
    needed, seen = Needs(), set[str]()
    queue = [(Requirement(text), "xspline", needed.lacking) for text in requirements]
    while queue:
        requirement, whose, blame = queue.pop()
        if str(requirement) in seen or not _applies(requirement):
            continue
        seen.add(str(requirement))
        name = canonicalize_name(requirement.name)
        if name not in needed.wheels and (
            wheel := None if installed(requirement) else wheel_for(requirement, folder)
        ):
            needed.wheels[name] = wheel
        if name in needed.wheels:
            queue += [(r, name, needed.lacking) for r in of_wheel(needed.wheels[name], requirement.extras)]
        elif installed(requirement):
            queue += [(r, name, needed.doubtful) for r in of_installed(requirement)]
        else:
            blame.append(f"{requirement} (for {whose})")
    return needed


def installed(requirement: Requirement) -> bool:
    """Whether this environment meets a requirement, leaving out what that requires itself."""
    try:
        return requirement.specifier.contains(distribution(requirement.name).version, prereleases=True)
    except PackageNotFoundError:
        return False


def wheel_for(requirement: Requirement, folder: Path) -> Path | None:
    """The newest wheel of a folder that meets a requirement and runs here."""
    tags, candidates = set(sys_tags()), []
    for path in folder.glob("*.whl"):
        name, version, _, runs_on = parse_wheel_filename(path.name)
        if (
            name == canonicalize_name(requirement.name)
            and requirement.specifier.contains(version)
            and tags & runs_on
        ):
            candidates.append((version, path))
    return max(candidates)[1] if candidates else None


def of_wheel(path: Path, extras: set[str]) -> Iterator[Requirement]:
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
        texts = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    return _with_extras(texts, extras)


def of_installed(requirement: Requirement) -> Iterator[Requirement]:
    return _with_extras(distribution(requirement.name).requires or [], requirement.extras)


def _with_extras(texts: Sequence[str], extras: set[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, texts):
        if requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras or {""}
        ):
            requirement.marker = None
            yield requirement


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def cupy(folder: Path) -> list[str]:
    """The CuPy that is here, or the one of the folder, as a requirement."""
    known = [Requirement(name) for name in CUPY]
    here = [r for r in known if installed(r)] or [r for r in known if wheel_for(r, folder)]
    return [str(r) for r in here[:1] or known[:1]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", type=Path)
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    needed = needs([*of_project(), *cupy(args.wheels)], args.wheels)
    for title, lines in (
        ("may be missing", needed.doubtful),
        ("MISSING, with all that it needs", needed.lacking),
    ):
        if lines:
            print(f"{title}, neither installed nor in {args.wheels}:", *sorted(lines), sep="\n  ")
    if needed.lacking:
        return 1
    if not needed.wheels:
        print("nothing to install")
        return 0
    print("from wheels:", *sorted(path.name for path in needed.wheels.values()), sep="\n  ", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    pip += ["--disable-pip-version-check", "--no-cache-dir", "--target", str(args.target)]
    return subprocess.run([*pip, *map(str, needed.wheels.values())], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

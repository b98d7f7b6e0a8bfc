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
    found, seen = Needs(), set[str]()
    queue = [(Requirement(text), "xspline", found.lacking) for text in requirements]
    while queue:
        one, whose, blame = queue.pop()
        if str(one) in seen or not _applies(one):
            continue
        seen.add(str(one))
        name = canonicalize_name(one.name)
        if name not in found.wheels and (wheel := None if installed(one) else wheel_for(one, folder)):
            found.wheels[name] = wheel
        if name in found.wheels:
            queue += [(r, name, found.lacking) for r in of_wheel(found.wheels[name], one.extras)]
        elif installed(one):
            queue += [(r, name, found.doubtful) for r in of_installed(one)]
        else:
            blame.append(f"{one} (for {whose})")
    return found


def installed(one: Requirement) -> bool:
    """Whether this environment meets a requirement, leaving out what that requires itself."""
    try:
        return one.specifier.contains(distribution(one.name).version, prereleases=True)
    except PackageNotFoundError:
        return False


def wheel_for(one: Requirement, folder: Path) -> Path | None:
    """The newest wheel of a folder that meets a requirement and runs here."""
    tags, found = set(sys_tags()), []
    for path in folder.glob("*.whl"):
        name, version, _, runs_on = parse_wheel_filename(path.name)
        if name == canonicalize_name(one.name) and one.specifier.contains(version) and tags & runs_on:
            found.append((version, path))
    return max(found)[1] if found else None


def of_wheel(path: Path, extras: set[str]) -> Iterator[Requirement]:
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
        texts = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    return _with_extras(texts, extras)


def of_installed(one: Requirement) -> Iterator[Requirement]:
    return _with_extras(distribution(one.name).requires or [], one.extras)


def _with_extras(texts: Sequence[str], extras: set[str]) -> Iterator[Requirement]:
    for one in map(Requirement, texts):
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras or {""}):
            one.marker = None
            yield one


def _applies(one: Requirement) -> bool:
    return one.marker is None or one.marker.evaluate({"extra": ""})


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
    found = needs([*of_project(), *cupy(args.wheels)], args.wheels)
    for title, lines in (
        ("may be missing", found.doubtful),
        ("MISSING, with all that it needs", found.lacking),
    ):
        if lines:
            print(f"{title}, neither installed nor in {args.wheels}:", *sorted(lines), sep="\n  ")
    if found.lacking:
        return 1
    if not found.wheels:
        print("nothing to install")
        return 0
    print("from wheels:", *sorted(path.name for path in found.wheels.values()), sep="\n  ", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    pip += ["--disable-pip-version-check", "--no-cache-dir", "--target", str(args.target)]
    return subprocess.run([*pip, *map(str, found.wheels.values())], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

"""Make the README's figure by running its first block as it stands: nothing is downloaded.

    python ci/first_look.py [PATH]

PATH defaults to .github/first_look.png, which the README shows. What the block prints goes to the terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README, FIGURE = ROOT / "README.md", ROOT / ".github/first_look.png"


def main(path: Path) -> dict[str, object]:
    """Return the names that the block leaves."""
    block = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    if block is None:
        raise SystemExit(f"{README} has no block of Python")
    os.environ.setdefault("MPLBACKEND", "Agg")
    with tempfile.TemporaryDirectory() as folder:
        here = Path.cwd()
        os.chdir(folder)
        try:
            names: dict[str, object] = {}
            exec(compile(block[1], str(README), "exec"), names)
        finally:
            os.chdir(here)
        shutil.copyfile(Path(folder) / "first_look.png", path)
    return names


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else FIGURE)

"""Look at a built site: links between pages, pictures where pages draw, a page for every public name.

``python check.py _build/html``; ``make html`` does it at the end.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import xspline as xs

HERE = Path(__file__).resolve().parent


@cache
def page(path: Path) -> tuple[set[str], list[str], int]:
    """Return the anchors of a page, its links, and how many pictures its code has drawn."""
    text = path.read_text(encoding="utf-8")
    anchors = set(re.findall(r'\bid="([^"]+)"', text))
    links = [unescape(link) for link in re.findall(r'<a\b[^>]*\bhref="([^"]*)"', text)]
    return anchors, links, len(re.findall(r'<img\b[^>]*src="[^"]*_images/', text))


def broken_links(site: Path) -> Iterator[str]:
    """Name each link to a page, or to a place in a page, that is not there."""
    for path in sorted(site.rglob("*.html")):
        for link in page(path)[1]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{path.relative_to(site)}: no page {link}"
            elif parts.fragment and target.suffix == ".html":
                anchors = page(target)[0]
                if unquote(parts.fragment) not in anchors:
                    yield f"{path.relative_to(site)}: no place {link}"


def without_pictures(site: Path) -> Iterator[str]:
    """Name each page whose code draws and that shows fewer pictures than cells that draw."""
    for source in sorted(HERE.rglob("*.md")):
        cells = re.findall(r"```\{code-cell\}.*?```", source.read_text(encoding="utf-8"), flags=re.DOTALL)
        drawing = sum("plt." in cell and ("subplots" in cell or ".plot(" in cell) for cell in cells)
        path = site / source.relative_to(HERE).with_suffix(".html")
        if drawing and path.exists() and page(path)[2] < drawing:
            yield f"{path.relative_to(site)}: {drawing} cells draw, and there are {page(path)[2]} pictures"


def without_page(site: Path) -> Iterator[str]:
    """Name each public name, and public method of a public class, that is nowhere described."""
    described = {a for path in (site / "api").rglob("*.html") for a in page(path)[0]}
    for name in xs.__all__:
        if name == "synthetic":
            continue
        if f"xspline.{name}" not in described:
            yield f"xspline.{name} is on no page of the interface"
        value = getattr(xs, name)
        if isinstance(value, type) and not issubclass(value, BaseException):
            for member in (m for m in vars(value) if m[0] != "_"):
                if f"xspline.{name}.{member}" not in described:
                    yield f"xspline.{name}.{member} is on no page of the interface"
    for kind in ("DataArray", "Dataset"):
        for method in ("fit", "statistics", "space", "plan"):
            if f"xarray.{kind}.spline.{method}" not in described:
                yield f"xarray.{kind}.spline.{method} is on no page of the interface"


def main() -> None:
    site = Path(sys.argv[1]).resolve()
    wrong = [*broken_links(site), *without_pictures(site), *without_page(site)]
    if wrong:
        raise SystemExit("\n".join(wrong))
    pages = sorted(site.rglob("*.html"))
    links, pictures = (sum(n) for n in zip(*((len(page(p)[1]), page(p)[2]) for p in pages), strict=True))
    print(f"{len(pages)} pages, {links:,} links between them and out, {pictures} pictures: all there")


if __name__ == "__main__":
    main()

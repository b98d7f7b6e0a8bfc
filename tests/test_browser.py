"""Objects of a notebook in a real browser, light and dark: what is visible, in which colours, and what opens.

A page writes what the browser computed into itself, and headless Chromium prints it. Structure and contrast are
compared, not pixels.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.products import SEASONS, sst

BROWSER = next(filter(None, map(shutil.which, ("google-chrome", "chromium", "chromium-browser"))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome on the path"),
]

SCRIPT = """
const seen = Array.from(document.querySelectorAll('.xspline-repr')).map(e => {
  const details = Array.from(e.querySelectorAll(':scope > details'));
  const closed = details.filter(d => !d.open);
  const heights = details.map(d => d.getBoundingClientRect().height);
  closed.forEach(d => d.querySelector('summary').click());
  return {
    shown: getComputedStyle(e).display, text: getComputedStyle(e.previousElementSibling).display,
    colours: Array.from(e.querySelectorAll('strong, summary, summary span, td, .xspline-head span')).map(
      c => getComputedStyle(c).color),
    sections: details.length, closed: closed.length, opened: details.filter(d => d.open).length,
    grew: details.map((d, i) => d.getBoundingClientRect().height - heights[i]),
  };
});
document.body.innerHTML = '<pre id=seen></pre>';
document.getElementById('seen').textContent = JSON.stringify(
  {seen, width: WIDE});
"""

PAGES = {
    "light": ("", "white", ""),
    "dark theme": (' data-theme="dark"', "#111", ""),
    "dark Jupyter": (
        "",
        "#111",
        ":root { --jp-content-font-color0: #fff; --jp-content-font-color2: #bbb; --jp-border-color2: #666 }",
    ),
}


def look(folder: Path, page: str, width: int) -> dict[str, Any]:
    """Return what a browser makes of a field, its statistics, plan, check and penalty."""
    attribute, background, style = PAGES[page]
    data = sst(months=24)
    field = data.spline.fit({"lat": 6, "lon": 8, "time": SEASONS}, penalty=0.1)
    objects = (field, field.statistics, data.spline.plan(lat=6, lon=8), field.check(), field.penalty)
    body = "".join(thing._repr_html_() for thing in objects)
    script = SCRIPT.replace("WIDE", "before")
    path = folder / "page.html"
    path.write_text(
        f"<!doctype html><html{attribute}><meta charset=utf-8>"
        f"<style>body {{ background: {background} }} {style}</style>"
        f"<body>{body}<script>const before = document.documentElement.scrollWidth; {script}</script></body></html>",
        encoding="utf-8",
    )
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
    ]
    command += [f"--window-size={width},900", "--virtual-time-budget=5000", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stdout[-500:]
    return json.loads(unescape(found[1]))


def luminance(colour: str) -> float:
    """Relative luminance of a computed colour, as WCAG 2 has it; transparency counts over black."""
    red, green, blue, *alpha = (float(x) for x in re.findall(r"[\d.]+", colour))
    linear = [
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
        for c in (red / 255, green / 255, blue / 255)
    ]
    return (alpha[0] if alpha else 1.0) * sum(
        w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )


@pytest.mark.parametrize("page", PAGES)
def test_a_browser_shows_sections_in_the_colours_of_the_page(tmp_path: Path, page: str) -> None:
    seen = look(tmp_path, page, 1000)["seen"]
    assert len(seen) == 5
    for part in seen:
        assert (part["shown"], part["text"]) == ("block", "none")
        assert part["sections"] >= 1 and part["opened"] == part["sections"], "a click opens what was closed"
        light = [luminance(colour) for colour in part["colours"]]
        assert max(light) < 0.4 if page == "light" else min(light) > 0.15, part["colours"]
    assert seen[0]["closed"] == 1 and max(seen[0]["grew"]) > 40, "the field's coefficients"


def test_a_telephone_shows_it_without_moving_sideways(tmp_path: Path) -> None:
    assert look(tmp_path, "light", 500)["width"] <= 500

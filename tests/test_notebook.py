"""How objects look in a notebook: well-formed HTML of one structure, everything of the user escaped, no script."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from xspline import notebook

EVIL = "<script>alert('u')</script>"
VOID = {"br", "hr", "img", "input", "meta", "link", "path", "use"}


class Page(HTMLParser):
    """The tree of tags of a piece of HTML: refuses what is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.classes: set[str] = set()
        self.titles: list[str] = []
        self.states: list[bool] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.stack, f"not closed: {self.stack}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.classes |= set((dict(attrs).get("class") or "").split())
        if tag == "details":
            self.states.append("open" in dict(attrs))
        if tag == "summary":
            self.titles.append("")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "summary" in self.stack:
            self.titles[-1] += data


def named(name: str) -> xr.DataArray:
    x = np.linspace(0, 1, 60)
    values = np.sin(9 * x) + 0.1 * np.random.default_rng(0).standard_normal(60)
    return xr.DataArray(values, {"x": x, "part": ("x", [name, "b"] * 30)}, "x", name)


@pytest.fixture(scope="module")
def field() -> xs.Field:
    return named(EVIL).spline.fit(x=12, holder="part")


@pytest.fixture(scope="module")
def looks(field: xs.Field) -> dict[str, Any]:
    penalty = xs.Ridge(0.5) + xs.Roughness({"x": 0.1, "y": 2.0})
    return {
        "Field": field,
        "Draws": field.sample(3, seed=0),
        "Statistics": field.statistics,
        "Plan": named(EVIL).spline.plan(x=12),
        "FitCheck": field.check(),
        "Disclosure": field.statistics.disclosure(1),
        "Space": field.space,
        "PenaltySum": penalty,
        "Sobolev": field.penalty,
        "SpaceTime": xs.SpaceTime(),
    }


SECTIONS = {
    "Field": ["Coefficients (12)", "Bases (1)", "Penalty (by 'reml')", "Code"],
    "Draws": ["Coefficients (12)", "Bases (1)", "Penalty (by 'reml')", "Code"],
    "Statistics": ["Parts (2)", "Bases (1)"],
    "Plan": ["Data and tasks", "Costs"],
    "FitCheck": [EVIL + " (1 to look at)"],
    "Disclosure": [EVIL + " (2 to look at)"],
    "Space": ["Bases (1)"],
    "PenaltySum": ["Ridge", "Roughness"],
    "Sobolev": ["Sobolev"],
    "SpaceTime": ["SpaceTime"],
}


@pytest.mark.parametrize("kind", SECTIONS)
def test_every_object_has_the_same_structure(looks: dict[str, Any], kind: str) -> None:
    text = looks[kind]._repr_html_()
    page = Page(text)
    assert {"xspline-repr", "xspline-head", "xspline-text", "xspline-body"} <= page.classes
    assert f"<strong>xspline.{kind}</strong>" in text
    own = [title.strip() for title in page.titles if title.strip() in SECTIONS[kind]]
    assert own == SECTIONS[kind]
    assert repr(looks[kind]) in page.text, "where styles are taken away"


@pytest.mark.parametrize("kind", SECTIONS)
def test_nothing_of_the_user_is_markup(looks: dict[str, Any], kind: str) -> None:
    text = looks[kind]._repr_html_()
    assert EVIL not in text and "script" not in Page(text).tags
    assert " onclick" not in text and "http" not in text.replace("http://www.w3.org", "")


def test_long_sections_start_closed() -> None:
    text = notebook.page(
        "xspline.X", "", {"A": notebook.code("a"), "B": notebook.code("b"), "C": ""}, "X", ["B"]
    )
    page = Page(text)
    assert [t.strip() for t in page.titles] == ["A", "B"] and page.states == [True, False]


def test_both_colours_are_there() -> None:
    text = xs.Ridge(1.0)._repr_html_()
    for variable in ("--jp-content-font-color0", "--pst-color-text-base"):
        assert text.count(variable) == 2, "of a light page and of a dark one"
    assert 'html[data-theme="dark"]' in text and "body.vscode-dark" in text


def test_what_needs_a_look_stands_out(field: xs.Field) -> None:
    text = field.check()._repr_html_()
    assert text.count("<tr class=xspline-look>") == 1 and "derivatives along x carry none" in text


def test_fields_of_several_variables_name_their_penalties() -> None:
    both = xr.Dataset({"a": named("a"), "b": named("a") ** 2}).spline.fit(x=12)
    text = both._repr_html_()
    assert "<td>a</td><td>Sobolev(" in text and "<td>b</td><td>Sobolev(" in text
    lazy = named("u").chunk(x=20).spline.fit(x=12, compute=False)
    Page(lazy._repr_html_())
    Page(lazy.statistics._repr_html_())

"""How objects look in a notebook: sections that open and close, in the colours of the page, light or dark.

No script: sections are ``<details>``, and colours are variables that Jupyter (``--jp-…``), the PyData theme
(``--pst-…``) and VS Code set, as in xarray. Where a page takes styles away, as of a notebook that is not trusted, there
is the text.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

#: Titles of sections with their HTML.
Sections: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]

_STYLE = """
.xspline-text { display: none; }
.xspline-repr {
  --xspline-font: var(--jp-content-font-color0, var(--pst-color-text-base, rgba(0, 0, 0, 0.87)));
  --xspline-soft: var(--jp-content-font-color2, var(--pst-color-text-muted, rgba(0, 0, 0, 0.6)));
  --xspline-line: var(--jp-border-color2, var(--pst-color-border, rgba(0, 0, 0, 0.15)));
  --xspline-look: #a14500;
  display: block !important; max-width: 60em; color: var(--xspline-font); font-size: 13px; line-height: 1.5;
}
html[theme="dark"] .xspline-repr, html[data-theme="dark"] .xspline-repr, body[data-theme="dark"] .xspline-repr,
body[data-jp-theme-light="false"] .xspline-repr, body.vscode-dark .xspline-repr {
  --xspline-font: var(--jp-content-font-color0, var(--pst-color-text-base, rgba(255, 255, 255, 0.87)));
  --xspline-soft: var(--jp-content-font-color2, var(--pst-color-text-muted, rgba(255, 255, 255, 0.6)));
  --xspline-line: var(--jp-border-color2, var(--pst-color-border, rgba(255, 255, 255, 0.2)));
  --xspline-look: #ffb066;
}
.xspline-repr .xspline-head { padding: 6px 0; border-bottom: 1px solid var(--xspline-line); }
.xspline-repr .xspline-head span { color: var(--xspline-soft); }
.xspline-repr summary { cursor: pointer; padding: 3px 0; font-weight: 500; }
.xspline-repr summary span { color: var(--xspline-soft); font-weight: normal; }
.xspline-repr .xspline-body { max-height: 26em; overflow: auto; padding: 0 0 6px 1.2em; }
.xspline-repr .xspline-body > table { margin: 0; border-collapse: collapse; border: none; color: inherit; }
.xspline-repr .xspline-body > table tr { background: none; }
.xspline-repr .xspline-body > table :is(td, th) {
  text-align: left; vertical-align: top; padding: 2px 1.4em 2px 0; border: none; font-size: 13px; max-width: 60em;
  white-space: normal; overflow-wrap: break-word;
}
.xspline-repr .xspline-body > table :is(th, td:first-child) { color: var(--xspline-soft); font-weight: normal; }
.xspline-repr .xspline-body > table tr.xspline-look td { color: var(--xspline-look); }
.xspline-repr .xspline-body > p { margin: 0; color: var(--xspline-soft); }
.xspline-repr .xspline-body > pre { margin: 0; padding: 0; color: inherit; background: none; white-space: pre-wrap; }
"""


def page(kind: str, detail: str, sections: Sections, text: str, closed: Sequence[str] = ()) -> str:
    """Return the look of an object as HTML.

    Parameters
    ----------
    kind
        What it is, "xspline.Field", in bold.
    detail
        One line about it.
    sections
        Titles and their contents, which are HTML already: of `table`, `code` or another object. Pairs, where two
        titles may be equal. Empty ones are left out. Of "Parts (3)" the number is shown softly.
    text
        What is shown where styles are not.
    closed
        Titles of sections that are closed at first.
    """
    items = sections.items() if isinstance(sections, Mapping) else sections
    parts = [_section(title, body, title not in closed) for title, body in items if body]
    name = html.escape(kind)
    line = html.escape(detail)
    plain = html.escape(text)
    head = f"<div class='xspline-head'><strong>{name}</strong> <span>{line}</span></div>"
    look = f"<div class='xspline-repr' style='display:none'>{head}{''.join(parts)}</div>"
    return f"<div><style>{_STYLE}</style><pre class='xspline-text'>{plain}</pre>{look}</div>"


def _section(title: str, body: str, is_open: bool) -> str:
    name, bracket, count = map(html.escape, title.partition(" ("))
    summary = f"<summary>{name} <span>{bracket.strip()}{count}</span></summary>"
    return f"<details{' open' * is_open}>{summary}<div class='xspline-body'>{body}</div></details>"


def table(rows: Iterable[Iterable[Any]], head: Sequence[str] = (), marked: Sequence[int] = ()) -> str:
    """Return rows as a table of HTML, escaped; empty for no rows. `marked` rows stand out."""
    body = "".join(_row(row, "td", " class=xspline-look" * (i in marked)) for i, row in enumerate(rows))
    return f"<table>{_row(head, 'th') if head else ''}{body}</table>" if body else ""


def _row(cells: Iterable[Any], tag: str, mark: str = "") -> str:
    return f"<tr{mark}>{''.join(f'<{tag}>{html.escape(str(x))}</{tag}>' for x in cells)}</tr>"


def code(text: str) -> str:
    """Return text in the type of code, escaped."""
    return f"<pre>{html.escape(text)}</pre>" if text else ""


def note(text: str) -> str:
    """Return lines of text as a remark, escaped."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in text.splitlines())


def flat(data: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested plain data as rows of a name and a value.

    >>> flat({"order": 2, "strength": {"lat": 0.1}})
    [('order', '2'), ('strength lat', '0.1')]
    """
    rows: list[tuple[str, str]] = []
    for key, value in data.items():
        name = f"{prefix}{key}"
        rows += flat(value, f"{name} ") if isinstance(value, Mapping) else [(name, str(value))]
    return rows


def of_parts(whole: Any) -> str:
    """Return the look of a sum of ``parts`` that describe themselves as plain data, by ``to_dict``."""
    described = ((type(part).__name__, part.to_dict()) for part in whole.parts)
    rows = [
        (name, table(flat({key: x for key, x in data.items() if key != "kind" and x is not None})))
        for name, data in described
    ]
    return page(f"xspline.{type(whole).__name__}", "", rows, repr(whole))

"""The text of a check, and the look of a field in a notebook."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xspline.labels.report.findings import Finding

WIDTH = 100


@dataclass(frozen=True, repr=False)
class FitCheck:
    """What :meth:`Field.check` looked at; its text is what to read.

    Attributes
    ----------
    findings : for each variable, each with ``subject``, ``text``, and ``advice``, which is empty where all is fine.
    """

    findings: Mapping[str, tuple[Finding, ...]]

    @property
    def concerns(self) -> dict[str, tuple[Finding, ...]]:
        """Those that have advice, for each variable."""
        return {name: tuple(f for f in own if f.advice) for name, own in self.findings.items()}

    def __repr__(self) -> str:
        count = sum(map(len, self.concerns.values()))
        title = f"<xspline.FitCheck of {', '.join(self.findings)}: {f'{count} to look at' if count else 'all fine'}>"
        lines = [title]
        for name, own in self.findings.items():
            lines += [name] if len(self.findings) > 1 else []
            for f in own:
                head = f"  {'look' if f.advice else 'fine':6}{f.subject:11}"
                text = f"{head}{f.text}{f'; {f.advice}' if f.advice else ''}"
                lines += textwrap.wrap(text, WIDTH, subsequent_indent=" " * len(head), break_long_words=False)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def table(rows: Iterable[Iterable[str]]) -> str:
    """Return rows of text as a table of HTML."""
    cells = ("".join(f"<td style='text-align:left'>{html.escape(x)}</td>" for x in row) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def sections(title: str, contents: Mapping[str, str]) -> str:
    """Return a title and parts that open and close, the first one open, as HTML; the contents are HTML already."""
    parts = "".join(
        f"<details{' open' * (not i)}><summary><strong>{html.escape(name)}</strong></summary>{body}</details>"
        for i, (name, body) in enumerate(contents.items())
    )
    return f"<div><strong>{html.escape(title)}</strong>{parts}</div>"

"""Findings: what was looked at, with advice where it is not fine; their text, and their look in a notebook."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from xspline import notebook


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str  # what it is about
    text: str  # what there is
    advice: str = ""  # what to do; empty where it is fine
    warns: bool = False  # whether the fit warns of it


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
        look = f"{count} to look at" if count else "all fine"
        lines = [f"<xspline.{type(self).__name__} of {', '.join(self.findings)}: {look}>"]
        for name, own in self.findings.items():
            lines += [name] if len(self.findings) > 1 else []
            for f in own:
                head = f"  {'look' if f.advice else 'fine':6}{f.subject:11}"
                text = f"{head}{f.text}{f'; {f.advice}' if f.advice else ''}"
                lines += textwrap.wrap(text, 100, subsequent_indent=" " * len(head), break_long_words=False)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        contents = {}
        for name, own in self.findings.items():
            looks = [i for i, finding in enumerate(own) if finding.advice]
            rows = (("look" if f.advice else "fine", f.subject, f.text, f.advice) for f in own)
            title = f"{name} ({f'{len(looks)} to look at' if looks else 'all fine'})"
            contents[title] = notebook.table(rows, ("", "", "found", "what to do"), looks)
        return notebook.page(
            f"xspline.{type(self).__name__}", f"of {', '.join(self.findings)}", contents, repr(self)
        )

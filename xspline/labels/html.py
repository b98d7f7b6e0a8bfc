"""How objects look in a notebook."""

from __future__ import annotations

import html


def preformatted(text: str) -> str:
    """Return a text as an HTML block in a fixed-width face."""
    return f"<pre>{html.escape(text)}</pre>"


def titled(title: str, body: str) -> str:
    """Return a heading above a block that is HTML already."""
    return f"<div><strong>{html.escape(title)}</strong>{body}</div>"

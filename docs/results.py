"""Tables of benchmarks/RESULTS.md as data frames, so that no page types a measured number again."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "RESULTS.md"


def section(heading: str) -> str:
    """Return the text below the heading of level two that holds some words."""
    for part in re.split(r"^## ", RESULTS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        if heading in title:
            return text
    raise KeyError(f"no section of RESULTS.md is headed {heading!r}")


def tables(text: str) -> list[pd.DataFrame]:
    """Return the tables of some Markdown, all cells as text."""
    frames = []
    for block in re.findall(r"(?:^\|.*\n)+", text + "\n", flags=re.MULTILINE):
        rows = [
            [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
            for line in block.splitlines()
        ]
        if len(rows) > 2:
            frames.append(pd.DataFrame(rows[2:], columns=rows[0]))
    return frames


def table(heading: str, *, after: str = "", number: int = 0) -> pd.DataFrame:
    """Return one table of a section: the first, or the one of a number, after some words."""
    text = section(heading)
    if after and after not in text:
        raise KeyError(f"the section {heading!r} of RESULTS.md does not say {after!r}")
    start = text.rfind("\n", 0, text.index(after)) + 1 if after else 0
    return tables(text[start:])[number]


def plain(cell: str) -> str:
    """Return the text of a cell without the marks of code and emphasis."""
    return cell.replace("`", "").replace("**", "")


def show(frame: pd.DataFrame) -> None:
    """Display a table without row numbers."""
    from IPython.display import display  # late: tests read tables without it

    frame = frame.rename(columns=plain).map(plain)
    heads = [{"selector": "th", "props": "text-align: left"}]
    display(frame.style.hide(axis="index").set_properties(**{"text-align": "left"}).set_table_styles(heads))


def overview() -> pd.DataFrame:
    """Return what each benchmark must show and what was measured: the tables before the first section."""
    text = RESULTS.read_text(encoding="utf-8").split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    (frame,) = tables("\n".join(lines) + "\n")
    frame["benchmark"] = frame["benchmark"].replace("", None).ffill()
    return frame


def first_number(text: str) -> float:
    """Return the first number of a cell: 13,967 of "13,967", 8.6 of "8.6–25"."""
    match = re.search(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", text)
    if match is None:
        raise ValueError(f"there is no number in {text!r}")
    return float(match[0].replace(",", ""))

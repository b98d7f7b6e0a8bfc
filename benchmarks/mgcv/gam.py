"""REML given the same design and penalties: mgcv::gam and ours."""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import xspline as xs
from benchmarks import measure
from benchmarks.mgcv import r
from benchmarks.mgcv.cases import Case, cases

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "mgcv.json"
Figures = dict[str, Any]


def theirs(case: Case) -> Figures:
    """What mgcv finds, by REML and by GCV: strengths, edf, sigma and score; its version and seconds."""
    phi, y, w = case.rows()
    penalties = {f"S{j + 1}": matrix for j, matrix in enumerate(case.penalties)}
    with tempfile.TemporaryDirectory() as folder:
        r.write(Path(folder), size=[*phi.shape, len(penalties)], X=phi, y=y, w=w, **penalties)
        told = r.run("gam.R", folder)
    check_scale(told)
    return {"reml": figures(told, "reml"), "gcv": figures(told, "gcv"), "version": told["version"][0]}


def figures(told: dict[str, list[str]], method: str) -> Figures:
    found: Figures = {
        name: float(told[f"{method}.{name}"][0]) for name in ("edf", "sigma", "score", "seconds")
    }
    return {"lambda": [float(word) for word in told[f"{method}.lambda"]], **found}


def check_scale(told: dict[str, list[str]]) -> None:
    """mgcv scales penalties inside: a refit with its strengths given says whether they multiply ours."""
    for name in ("edf", "score"):
        given, chosen = (float(told[f"{how}.{name}"][0]) for how in ("given", "reml"))
        if not math.isclose(given, chosen, rel_tol=1e-7):
            raise AssertionError(f"mgcv's strengths are not on the scale of S: {name} {given} and {chosen}")


def ours(case: Case) -> Figures:
    """What we find by REML."""
    statistics = case.data.y.spline.statistics(case.space, weights=case.data.w)
    start = time.perf_counter()
    field = statistics.solve(penalty=xs.Roughness("reml"))
    seconds = time.perf_counter() - start
    strengths, summary = field.penalty.strengths(case.space), field.summary()
    found = {"edf": float(summary.edf), "sigma": float(summary.sigma), "seconds": seconds}
    return {"lambda": [strengths[name] for name in case.smoothed], **found}


def write(each: list[Case], found: list[Figures]) -> None:
    """Fixtures: what both sides are given, and what mgcv finds."""
    plain = [
        {**case.to_dict(), "version": f["version"], **{m: without_seconds(f[m]) for m in ("reml", "gcv")}}
        for case, f in zip(each, found, strict=True)
    ]
    FIXTURES.parent.mkdir(exist_ok=True)
    FIXTURES.write_text("[\n" + ",\n".join(map(json.dumps, plain)) + "\n]\n", encoding="utf-8")
    print(f"written: {FIXTURES}")


def without_seconds(figures: Figures) -> Figures:
    return {name: value for name, value in figures.items() if name != "seconds"}


def row(case: Case, mgcv: Figures, mine: Figures) -> tuple[object, ...]:
    pairs = zip(mine["lambda"], mgcv["lambda"], strict=True)
    apart = max(abs(math.log(a / b)) for a, b in pairs)
    relative = [abs(mine[name] / mgcv[name] - 1) for name in ("edf", "sigma")]
    return case.name, case.space.size, apart, *relative, mgcv["seconds"], mine["seconds"]


def run(args: argparse.Namespace) -> None:
    each = cases()[:2] if args.quick else cases()
    found = [theirs(case) for case in each]
    if args.write:
        write(each, found)
    measure.table(
        f"gam: REML of the same rows and penalties, mgcv {found[0]['version']}",
        ("case", "P", "log λ apart", "edf apart", "sigma apart", "mgcv, s", "xspline, s"),
        [row(case, f["reml"], ours(case)) for case, f in zip(each, found, strict=True)],
    )

"""Solves of (G + Λ) c = h in three cubic coordinates: gaps of any shape, static masks, full grids; SciPy beside them.

Gaps are those of land, the same at all times, and of clouds, other ones at each: blobs over 60 % of a grid of three
values along each axis for every coefficient. Roughness has λ_j = λ · tr G / (3 tr R_j). Seconds include the set-up;
those of the CPU count every thread. Memory is the growth of the process from the sums on.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from scipy import linalg, ndimage

import xspline as xs
from benchmarks import measure
from xspline.kernels import Block, Group, Layout, accumulate
from xspline.solve import Factorisation, Penalty, Ridge, Roughness, choose, factorise, krylov, solve
from xspline.sums import Gram, Sums

NAMES = ("time", "lat", "lon")
LAYOUT = Layout(tuple(Group((i,), (i,)) for i in range(3)))
PARTS = ("gaps", "million", "against", "structure", "choice")
LAND, CLOUDS = (0.05, 0.3), (0.025, 0.43)  # size of the blobs over that of the domain, share of the cells


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--large", action="store_true", help="a million coefficients and more: minutes, 5 GB")
    parser.add_argument("--only", choices=PARTS, nargs="*", default=PARTS, help="some of the tables")


@dataclass(frozen=True, eq=False)
class Case:
    """Sums of a grid with gaps, and the values that are seen."""

    space: xs.Space
    sums: Sums
    missing: float

    @property
    def moment(self) -> np.ndarray:
        return self.sums.full_moment(self.space.frame)

    def roughness(self, share: float) -> Roughness:
        frame = self.space.frame
        trace = float(np.sum(self.sums.gram.diagonal(frame)))
        each = {n: float(np.sum(Roughness({n: 1.0}).gram(self.space).diagonal(frame))) for n in NAMES}
        return Roughness({n: share * trace / (3 * x) for n, x in each.items()})


def space_of(sizes: tuple[int, ...], period: float | None = None) -> xs.Space:
    """Cubic B-splines over [0, 1]; the last coordinate may be a circle."""
    periods = (None, None, period)
    splines = (xs.BSpline(k, domain=(0.0, 1.0), period=p) for k, p in zip(sizes, periods, strict=True))
    bases = dict(zip(NAMES, splines, strict=True))
    return xs.Space(bases, axes={name: xs.spaces.Axis() for name in NAMES})


def blobs(shape: tuple[int, ...], size: float, share: float, rng: np.random.Generator) -> np.ndarray:
    smooth = rng.standard_normal(shape, dtype=np.float32)
    for axis, n in enumerate(shape):
        smooth = ndimage.gaussian_filter1d(smooth, size * n, axis=axis, mode="wrap")
    return smooth < np.quantile(smooth.ravel()[:: max(smooth.size // 10**6, 1)], share)


def with_gaps(
    sizes: tuple[int, ...], *, clouds: bool = True, per: int = 3, period: float | None = None, seed: int = 0
) -> Case:
    """A field seen between land and, unless the gaps are static, clouds."""
    rng = np.random.default_rng(seed)
    shape = tuple(per * k for k in sizes)
    coordinates = tuple((np.arange(n) + 0.5) / n for n in shape)
    t, y, x = np.ix_(*coordinates)
    noise = 0.1 * rng.standard_normal(shape, dtype=np.float32)
    values = (np.sin(7 * t + 5 * y) + np.cos(9 * x) * y + noise).astype(np.float32)
    missing = np.broadcast_to(blobs(shape[1:], *LAND, rng), shape)
    if clouds:
        missing = missing | blobs(shape, *CLOUDS, rng)
    values[missing] = np.nan
    space = space_of(sizes, period)
    return Case(space, accumulate(Block(values, coordinates), LAYOUT, space), float(missing.mean()))


@dataclass(frozen=True, eq=False)
class Run:
    """One solve, and what it took."""

    factorisation: Factorisation
    coefficients: np.ndarray
    setup: float
    solve: float
    cpu: float
    memory: int


def timed(case: Case, penalty: Penalty, solver: str | None) -> Run:
    matrix, moment = penalty.gram(case.space), case.moment
    before = measure.reset_peak()
    cpu, start = time.process_time(), time.perf_counter()
    factorisation = factorise(case.sums.gram, matrix, case.space, solver)
    middle = time.perf_counter()
    coefficients = factorisation.solve(moment)
    end = time.perf_counter()
    return Run(
        factorisation,
        coefficients,
        middle - start,
        end - middle,
        time.process_time() - cpu,
        measure.peak() - before,
    )


def residual(case: Case, penalty: Penalty, coefficients: np.ndarray) -> float:
    frame, moment = case.space.frame, case.moment
    image = case.sums.gram.matvec(coefficients, frame) + penalty.gram(case.space).matvec(coefficients, frame)
    return float(np.linalg.norm(image - moment) / np.linalg.norm(moment))


def gaps(sizes: list[int], shares: list[float]) -> None:
    """Iterations, time and memory as P grows and as the penalty shrinks."""
    rows = []
    for size in sizes:
        case = with_gaps((size, size, size))
        for share in shares:
            penalty = case.roughness(share)
            run = timed(case, penalty, "iterative")
            found = run.factorisation.system.iterations
            apart = residual(case, penalty, run.coefficients)
            rows.append(
                (
                    size**3,
                    f"{share:.0e}",
                    found,
                    f"{apart:.0e}",
                    run.setup,
                    run.solve,
                    run.cpu,
                    run.memory / 1e9,
                )
            )
    title = f"land and clouds, {case.missing:.0%} missing, roughness, to 1e-10; load {os.getloadavg()[0]:.1f}"
    measure.table(title, ("P", "λ", "iterations", "residual", "set-up s", "solve s", "CPU s", "GB"), rows)


def sparse_of(gram: Gram, space: xs.Space) -> scipy.sparse.csc_array:
    """The matrix of a Gram, from its pairs."""
    frame, factor = space.frame, gram.one_factor(space.frame)
    index = np.arange(space.size).reshape(space.shape)
    rows, columns, values = [], [], []
    for offset in np.ndindex(*frame.offsets):
        first = tuple(slice(0, k - o) for k, o in zip(space.shape, offset, strict=True))
        pairs = factor.pairs[(*first, *offset)]
        for flips in {
            tuple(f * (o > 0) for f, o in zip(c, offset, strict=True)) for c in np.ndindex(2, 2, 2)
        }:
            ends = [
                tuple(slice(o * f, k - o + o * f) for k, o, f in zip(space.shape, offset, side, strict=True))
                for side in (flips, tuple(1 - f for f in flips))
            ]
            rows.append(index[ends[0]].ravel())
            columns.append(index[ends[1]].ravel())
            values.append(pairs.ravel())
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    return scipy.sparse.coo_array(entries, shape=(space.size, space.size)).tocsc()


def against(sizes: list[int], dense: int, share: float = 1e-4) -> None:
    """The same system by iterations, by a band, by SuperLU and by a dense Cholesky factorisation."""
    rows = []
    for size in sizes:
        case = with_gaps((size, size, size))
        penalty = case.roughness(share)
        system = Gram((*case.sums.gram.terms, *penalty.gram(case.space).terms))
        matrix, h = sparse_of(system, case.space), case.moment.ravel()
        others: dict[str, Callable[[], np.ndarray]] = {
            "iterative": lambda c=case, p=penalty: timed(c, p, "iterative").coefficients,
            "banded": lambda c=case, p=penalty: timed(c, p, "banded").coefficients,
            "spsolve": lambda m=matrix, h=h: scipy.sparse.linalg.spsolve(m, h),
        }
        if size <= dense:
            full = matrix.toarray()
            others["dense Cholesky"] = lambda a=full, h=h: linalg.cho_solve(linalg.cho_factor(a), h)
        found, seconds = {}, {}
        for name, call in others.items():
            cpu, start = time.process_time(), time.perf_counter()
            found[name] = call().ravel()
            seconds[name] = (time.perf_counter() - start, time.process_time() - cpu)
        for name, (wall, cpu) in seconds.items():
            change = found[name] - found["banded"]
            seen = np.sqrt(change @ (sparse_of(case.sums.gram, case.space) @ change) / case.sums.power)
            rows.append((size**3, name, wall, cpu, wall / seconds["iterative"][0], f"{float(seen):.0e}"))
    header = ("P", "solver", "s", "CPU s", "over iterative", "predictions apart from banded")
    measure.table(f"the same system, λ = {share:.0e}; load {os.getloadavg()[0]:.1f}", header, rows)


def known(case: Case, penalty: Penalty) -> tuple[Sums, np.ndarray]:
    """Sums of which the solution is known: h = (G + Λ) c for random c."""
    frame = case.space.frame
    truth = np.random.default_rng(1).standard_normal(case.space.shape)
    moment = case.sums.gram.matvec(truth, frame) + penalty.gram(case.space).matvec(truth, frame)
    window = tuple((0, k) for k in case.space.shape)
    return replace(case.sums, window=window, moment=moment, reference=np.zeros(())), truth


def structured(cases: Iterable[tuple[str, Case, Penalty]]) -> None:
    """What the structure of G makes direct, or leaves to few iterations, by the solver that is chosen."""
    rows = []
    for name, case, penalty in cases:
        sums, truth = known(case, penalty)
        before, cpu, start = measure.reset_peak(), time.process_time(), time.perf_counter()
        solution = solve(sums, case.space, penalty)
        wall, cpu, memory = time.perf_counter() - start, time.process_time() - cpu, measure.peak() - before
        system, size, change = solution.factorisation.system, case.space.size, solution.coefficients - truth
        off, whole = (np.sum(c * case.sums.gram.matvec(c, case.space.frame)) for c in (change, truth))
        apart = f"{float(np.sqrt(abs(off) / whole)):.0e}"
        iterations = getattr(system, "iterations", "")
        per = 1e9 * cpu / (size * np.log2(size))
        rows.append(
            (name, size, solution.factorisation.choice.name, iterations, wall, cpu, per, memory / 1e9, apart)
        )
    header = (
        "gaps and penalty",
        "P",
        "solver",
        "iterations",
        "s",
        "CPU s",
        "CPU ns / (P log₂ P)",
        "GB",
        "apart",
    )
    title = "by structure, h = (G + Λ) c for known c; apart: √(δᵀGδ / cᵀGc)"
    measure.table(f"{title}; load {os.getloadavg()[0]:.1f}", header, rows)


def full_grid(size: int) -> Case:
    """Sums of a grid without gaps, coordinate by coordinate: no data are made."""
    space, x = space_of((size,) * 3), (np.arange(3 * size) + 0.5) / (3 * size)
    one = space_of((size, 4, 4))
    line = accumulate(Block(np.ones((x.size, 1, 1)), (x, x[:1], x[:1])), LAYOUT, one)
    factors = [f for f in line.gram.terms[0] if f.axes == (0,)]
    gram = Gram((tuple(type(f)((axis,), f.window, f.pairs, f.key) for axis in range(3) for f in factors),))
    rng = np.random.default_rng(0)
    moment = gram.matvec(rng.normal(size=space.shape), space.frame)
    window = tuple((0, k) for k in space.shape)
    number = np.asarray(float(x.size) ** 3)
    return Case(space, Sums(window, gram, moment, number, number, number.astype(int), np.zeros(())), 0.0)


def globe(sizes: tuple[int, ...], period: float | None) -> Case:
    """Land on a globe, whose longitudes may be a circle."""
    return with_gaps(sizes, clouds=False, per=2, period=period)


def run(args: argparse.Namespace) -> None:
    timed(with_gaps((16, 16, 16)), Ridge(1.0), "iterative")  # compiles
    if args.quick:
        gaps([16, 20], [1e-4])
        against([12], 12)
        full, static = full_grid(20), with_gaps((8, 12, 14), clouds=False)
        structured([("full grid, ridge", full, Ridge(1e-3)), ("static mask, ridge", static, Ridge(1e-3))])
        choice(10, [1, 2], exact=True)
        return
    if "gaps" in args.only:
        gaps([22, 32, 46, 58], [1e-2, 1e-4, 1e-6, 1e-8])
    if args.large and "million" in args.only:
        gaps([100], [1e-4, 1e-6])
    if "against" in args.only:
        against([14, 22], 22)
    if "structure" in args.only:
        structured(cases(int(args.large)))
    if "choice" in args.only:
        choice(58 if args.large else 22, [1, 2, 3], exact=not args.large)


def choice(size: int, seeds: list[int], *, exact: bool) -> None:
    """Strengths chosen by REML on top of iterations, from different probes; beside the exact choice."""
    case, rows, found = with_gaps((size,) * 3), [], []
    named = "iterative" if exact else None  # small ones would be factorised
    for probes in [*seeds, *(["exact"] if exact else [])]:
        krylov.probes.__defaults__ = (probes if isinstance(probes, int) else 3,)
        before, cpu, start = measure.reset_peak(), time.process_time(), time.perf_counter()
        chosen = choose(
            case.sums, case.space, xs.Roughness("reml"), solver="banded" if probes == "exact" else named
        )
        wall, cpu, memory = time.perf_counter() - start, time.process_time() - cpu, measure.peak() - before
        logs = np.log([chosen.penalty.strengths(case.space)[name] for name in NAMES])
        found.append(logs)
        apart = float(np.max(np.abs(logs - found[0])))
        error = max(chosen.error.values(), default=0.0)
        strengths = ", ".join(f"{x:.3f}" for x in logs)
        rows.append(
            (size**3, str(probes), strengths, apart, error, chosen.factorisations, wall, cpu, memory / 1e9)
        )
    krylov.probes.__defaults__ = (3,)
    header = ("P", "probes", "log λ", "from the first", "± of probes", "set-ups", "s", "CPU s", "GB")
    measure.table(f"land and clouds, λ chosen by REML; load {os.getloadavg()[0]:.1f}", header, rows)


def cases(large: int) -> Iterator[tuple[str, Case, Penalty]]:
    """One after the other, as P grows."""
    for sizes in [(13, 26, 30), (28, 56, 65), (60, 120, 140)][: 2 + large]:
        static = with_gaps(sizes, clouds=False)
        yield "static mask, ridge", static, Ridge(1e-3)
        yield "static mask, roughness 1e-04", static, static.roughness(1e-4)
    for sizes in [(16, 60, 120), (16, 180, 360)][: 1 + large]:
        yield "land, ridge", globe(sizes, None), Ridge(1e-3)
        yield "land on a globe, ridge", globe(sizes, 1.0), Ridge(1e-3)
    for size in [22, 46, 100, 215][: 3 + large]:
        full = full_grid(size)
        yield "full grid, ridge", full, Ridge(1e-3)
        for share in (1e-2, 1e-4, 1e-6):
            yield f"full grid, roughness {share:.0e}", full, full.roughness(share)

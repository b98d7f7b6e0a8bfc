"""SHA-256 of what fits give, bit for bit, for changes that must change no number.

python ci/fingerprint.py            prints a line a case: digests of the statistics (G, h, s, counts), of λ, edf,
                                    standard errors and predictions, each on 1 and on 2 threads
python ci/fingerprint.py --save F   writes the same as JSON
python ci/fingerprint.py --against F prints those of F and of now side by side; fails where they differ
Only names of the public contract are used, so that the script runs before and after any change inside.
Bits depend on the processor and on the versions of NumPy and SciPy: compare on one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

THREADS = ("1", "2")
VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")


def digest(dataset: Any) -> str:
    """Digest of the arrays of a DataArray or Dataset by name, without attributes."""
    import numpy as np
    import xarray as xr

    hashed = hashlib.sha256()
    dataset = dataset.to_dataset(name="value") if isinstance(dataset, xr.DataArray) else dataset
    for name in sorted(map(str, dataset.variables)):
        values = np.ascontiguousarray(dataset[name].values)
        data = repr(values.tolist()).encode() if values.dtype.kind in "OSUT" else values.tobytes()
        hashed.update(f"{name} {values.dtype.kind} {values.shape} ".encode() + data)
    return hashed.hexdigest()[:16]


def of_statistics(statistics: Any) -> str:
    """Digest of G, h, s, Σw, n and r of every part."""
    return digest(statistics.to_dataset())


def of_field(field: Any, stderr: bool = True, **at: Any) -> dict[str, str]:
    """Digests of everything that is read off a field."""
    summary = field.summary()
    found = {
        "statistics": of_statistics(field.statistics),
        "coefficients": digest(field.coefficients),
        "summary": digest(summary),
        "predict": digest(field.predict(**at)),
    }
    if "lambda" in summary:
        found["lambda"] = digest(summary["lambda"])
    if stderr:
        found["stderr"] = digest(field.stderr(**at))
    return found


def data() -> dict[str, Any]:
    """Grids, points, stations, a curvilinear grid, batches; with gaps of every structure."""
    import numpy as np
    import xarray as xr

    rng = np.random.default_rng(7)
    lat, lon = np.linspace(-60, 60, 31), np.linspace(0, 354, 48)
    time = np.arange("2001-01", "2005-01", dtype="datetime64[M]").astype("datetime64[ns]")
    season = np.cos(2 * np.pi * np.arange(time.size) / 12)
    waves = np.cos(np.deg2rad(lat))[:, None] * np.sin(np.deg2rad(2 * lon))
    values = (
        280 + 5 * waves[None] + 3 * season[:, None, None] + 0.3 * rng.standard_normal((time.size, 31, 48))
    )
    grid = xr.DataArray(
        values.astype(np.float32), {"time": time, "lat": lat, "lon": lon}, name="sst", attrs={"units": "K"}
    )
    grid.lat.attrs["units"], grid.lon.attrs["units"] = "degrees_north", "degrees_east"
    land = grid.where((abs(waves) < 0.8) | (lat[:, None] < 0))
    gaps = grid.where(rng.random(grid.shape) > 0.3)
    count = 4000
    x, y, day = rng.uniform(0, 10, count), rng.uniform(0, 5, count), rng.uniform(0, 3, count)
    u = np.sin(x) * np.cos(y) + 0.2 * day + 0.1 * rng.standard_normal(count)
    points = xr.DataArray(
        u, {"x": ("obs", x), "y": ("obs", y), "t": ("obs", day)}, dims="obs", name="u"
    ).where(rng.random(count) > 0.05)
    stations = xr.DataArray(
        rng.standard_normal((40, 60)).cumsum(1),
        {"x": ("station", x[:40]), "y": ("station", y[:40]), "t": np.linspace(0, 3, 60)},
        dims=("station", "t"),
        name="v",
    )
    j, i = np.meshgrid(np.linspace(0, 1, 20), np.linspace(0, 1, 25), indexing="ij")
    ocean = xr.DataArray(
        rng.standard_normal((6, 20, 25)) + j,
        {"x": (("j", "i"), i + 0.1 * j), "y": (("j", "i"), j + 0.1 * i**2), "t": np.arange(6.0)},
        dims=("t", "j", "i"),
        name="w",
    )
    return {"grid": grid, "land": land, "gaps": gaps, "points": points, "stations": stations, "ocean": ocean}


def cases() -> Iterator[tuple[str, Callable[[], dict[str, str]]]]:
    """Name and call of each case."""
    import numpy as np
    import xarray as xr

    import xspline as xs

    made = data()
    grid, land, gaps, points = (made[name] for name in ("grid", "land", "gaps", "points"))
    season = xs.Fourier(2, period="365.2425D") + xs.Polynomial(1)
    place = {"lat": 9, "lon": xs.BSpline(11, period=360), "time": season}
    small = {"lat": 8, "lon": 9, "time": xs.BSpline(6)}
    rough, flat = {"x": 11, "y": 8, "t": 5}, {"x": 12, "y": 9}
    at = {"x": np.linspace(0, 10, 17), "y": [0.5, 2.0], "t": 1.5}
    thick = xs.Roughness({"x": 1e-3, "y": 1e-4, "t": 1e-2})

    def fit(values: Any, bases: dict[str, Any], **kwargs: Any) -> Callable[[], dict[str, str]]:
        at = kwargs.pop("at", {})
        stderr = kwargs.pop("stderr", True)
        return lambda: of_field(values.spline.fit(bases, **kwargs), stderr, **at)

    for name, values in (("grid", grid), ("land", land), ("gaps", gaps)):
        yield f"{name} default", lambda values=values: of_field(values.spline.fit())
        yield f"{name} reml", fit(values, place)
        yield f"{name} gcv", fit(values, place, penalty="gcv")
        yield f"{name} ridge", fit(values, small, penalty=0.1)
        yield f"{name} roughness", fit(values, small, penalty=xs.Roughness(1e-4))
        yield f"{name} unpenalised", fit(values, place, penalty=0)
        yield f"{name} chunked", fit(values.chunk(time=7, lat=10), place)
        yield f"{name} years", fit(values, place, holder="time.year", penalty="holders")
        yield f"{name} per pixel", fit(values, {"time": season}, penalty=0)
        yield f"{name} per pixel reml", fit(values[:, ::6, ::6], {"time": xs.BSpline(9)})
        structured = {"grid": ("spectral",), "land": ("separable",), "gaps": ()}[name]
        for solver in (*structured, "banded", "dense", "iterative"):
            penalty = 1e-2 if solver == "separable" else xs.Roughness(1e-4)
            exact = solver not in ("spectral", "iterative")
            yield f"{name} by {solver}", fit(values, small, penalty=penalty, solver=solver, stderr=exact)
    weights = xr.DataArray(np.random.default_rng(3).uniform(0.5, 2, points.shape), dims="obs")
    yield "points default", fit(points, flat, at={"x": [1.0, 2.0], "y": [0.5]})
    yield "points reml", fit(points, rough, at=at)
    yield "points gcv", fit(points, flat, penalty="gcv", at={"x": [1.0, 2.0], "y": [0.5]})
    yield "points weighted", fit(points, rough, weights=weights, penalty=thick, at=at)
    yield "points iterative", fit(points, rough, penalty=thick, solver="iterative", at=at, stderr=False)
    yield "points dense", fit(points, rough, penalty=thick, solver="dense", at=at)
    yield "points chunked", fit(points.chunk(obs=700), rough, penalty=thick, at=at)
    circle = {"x": xs.BSpline(9, period=10), "y": xs.BSpline(7, degree=2)}
    yield "points periodic", fit(points, circle, at={"x": [0.1, 9.9], "y": [1.0]})
    yield "stations", fit(made["stations"], {"x": 5, "y": 4, "t": 8}, penalty=thick, at=at)
    yield "curvilinear", fit(made["ocean"], {"x": 8, "y": 7, "t": xs.Polynomial(2)}, penalty=1e-3)
    yield "dataset", lambda: of_field(xr.Dataset({"a": grid, "b": 2 * gaps}).spline.fit(place))

    def merged() -> dict[str, str]:
        space = points.spline.space(rough)
        parts = [points[k::3].spline.statistics(space, holder=f"h{k}") for k in range(3)]
        total = xs.merge(parts)
        field = total.solve("holders")
        left = (total - parts[1]).solve(thick)
        draws = field.sample(3, seed=1)
        return {
            **of_field(field, **at),
            "jackknife": digest(field.stderr(at, method="jackknife")),
            "draws": digest(field.stderr(at, method="draws")),
            "sample": digest(draws.predict(at)),
            "cross-validation": digest(field.cross_validate().drop_vars("holder")),
            "less one": digest(left.coefficients),
            "models": digest(xs.merge_models([p.solve(thick) for p in parts]).coefficients),
        }

    def calculus() -> dict[str, str]:
        field = gaps.spline.fit(small, penalty=xs.Roughness(1e-4))
        return {
            "derivative": digest(field.derivative(lon=1, time=1)),
            "derivative stderr": digest(field.derivative(lat=1, stderr=True).dsst_dlat_stderr),
            "gradient": digest(field.gradient(geometry="sphere")),
            "laplacian": digest(field.laplacian(geometry="sphere")),
            "trend": digest(gaps.spline.fit(place).select(time=xs.Polynomial).derivative(time=1)),
        }

    def equations() -> dict[str, str]:
        x, y, t = np.linspace(0, 1, 20), np.linspace(0, 1, 18), np.linspace(0, 1, 15)
        decay = np.exp(-2 * 0.1 * np.pi**2 * t)[:, None, None]
        u = decay * np.sin(np.pi * y)[None, :, None] * np.sin(np.pi * x)
        u = xr.DataArray(u, {"t": t, "y": y, "x": x}, name="u")
        field = u.spline.fit(x=12, y=12, t=8, penalty=1e-8)
        return {
            method: digest(field.recover("u_t = D * (u_xx + u_yy)", method=method))
            for method in ("pointwise", "differences")
        }

    yield "merged holders", merged
    yield "derivatives", calculus
    yield "equation", equations
    for name in ("polynomial", "fourier"):
        basis = xs.Polynomial(3) if name == "polynomial" else xs.Fourier(2, period=4.0)
        yield (
            f"points {name}",
            fit(points, {"x": 9, "t": basis}, penalty=1e-3, at={"x": [1.0], "t": [0.5, 1]}),
        )


def here() -> dict[str, dict[str, str]]:
    """Digests of every case in this process."""
    import warnings

    warnings.simplefilter("ignore")
    return {name: call() for name, call in cases()}


def both() -> dict[str, dict[str, dict[str, str]]]:
    """Digests by case and number of threads, each number in a process of its own."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for threads in THREADS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "digests.json"
            command = [sys.executable, __file__, "--one", str(path)]
            subprocess.run(command, env={**os.environ, **dict.fromkeys(VARIABLES, threads)}, check=True)
            for name, digests in json.loads(path.read_text()).items():
                found.setdefault(name, {})[threads] = digests
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        args.one.write_text(json.dumps(here()))
        return 0
    found = both()
    if args.save:
        args.save.write_text(json.dumps(found, indent=1))
    before = json.loads(args.against.read_text()) if args.against else None
    different = 0
    for name, threads in found.items():
        for count, digests in threads.items():
            for what, value in digests.items():
                was = None if before is None else before.get(name, {}).get(count, {}).get(what, "(none)")
                mark = "" if was in (None, value) else "  DIFFERENT"
                different += bool(mark)
                print(f"{name:<28} {count} threads  {what:<18} {was or ''} {value}{mark}")
    print(f"{sum(len(d) for t in found.values() for d in t.values())} digests, {different} different")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())

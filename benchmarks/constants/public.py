"""Files of simulated fields that others published, read as they are laid out: `--data FOLDER`.

Looked for under their published names, in the folder and below it:

| of | files | layout |
|---|---|---|
| PDE-FIND (Rudy et al. 2017) | burgers.mat, kdv.mat | x, t, usol [x, t], maybe complex |
| | kuramoto_sivishinky.mat | x, tt, uu [x, t] |
| | reaction_diffusion_big.mat | x, y, t, u and v [x, y, t] |
| PINNs (Raissi et al. 2019) | burgers_shock.mat | x, t, usol [x, t] |
| | KdV.mat | x, tt, uu [x, t] |
| WSINDy (Messenger and Bortz 2021) | KdV.mat, KS.mat, burgers.mat | cells xs (x, t) and U_exact (u [x, t]) |

Two of them share names, so that the layout decides too. Published errors are those papers' own, recalled, and of their
draws of noise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xarray as xr
from scipy.io import loadmat

import xspline as xs

LAYOUTS = {
    "usol": ("x", "t", "usol"),
    "uu": ("x", "tt", "uu"),
    "cells": ("xs", "U_exact"),
    "uv": ("x", "y", "t", "u", "v"),
}


@dataclass(frozen=True, eq=False)
class File:
    """One file of a paper: its name and layout, the equation that made it, and how it is fitted.

    Attributes
    ----------
    true : constants of the equation.
    bases : functions and degree of each coordinate.
    circles : coordinates that go round.
    window : of each coordinate a slice of its points, where a part is fitted.
    published : the paper's error, by noise.
    """

    source: str
    name: str
    layout: str
    equation: str | tuple[str, ...]
    true: Mapping[str, float]
    bases: Mapping[str, tuple[int, int]]
    circles: tuple[str, ...] = ("x",)
    window: Mapping[str, slice] = field(default_factory=dict)
    published: Mapping[float, str] = field(default_factory=dict)

    def space(self, data: xr.Dataset) -> xs.Space:
        """Bases whose domains are those of the labels; of a circle one step more than its labels span."""
        found = {}
        for name, (count, degree) in self.bases.items():
            labels = data[name].values
            step = (labels[-1] - labels[0]) / (labels.size - 1)
            start, stop, circle = float(labels[0]), float(labels[-1]), name in self.circles
            end = stop + float(step) if circle else stop
            found[name] = xs.BSpline(
                count, degree, period=end - start if circle else None, domain=(start, end)
            )
        return xs.Space(found)


FILES = (
    File(
        "PDE-FIND", "burgers.mat", "usol", "u_t = k1*u*u_x + k2*u_xx", {"k1": -1.0, "k2": 0.1},
        {"x": (96, 5), "t": (40, 5)}, published={0.0: "0.15 ± 0.06", 0.01: "0.8 ± 0.6"},
    ),
    File(
        "PDE-FIND", "kdv.mat", "usol", "u_t = k1*u*u_x + k2*u_xxx", {"k1": -6.0, "k2": -1.0},
        {"x": (170, 7), "t": (70, 5)}, published={0.0: "1 ± 0.2", 0.01: "7 ± 5"},
    ),
    File(
        "PDE-FIND", "kuramoto_sivishinky.mat", "uu", "u_t = k1*u*u_x + k2*u_xx + k3*u_xxxx",
        {"k1": -1.0, "k2": -1.0, "k3": -1.0}, {"x": (140, 7), "t": (80, 5)}, window={"t": slice(100, 200)},
        published={0.0: "1.3 ± 1.3", 0.01: "52 ± 1.4"},
    ),
    File(
        "PDE-FIND", "reaction_diffusion_big.mat", "uv",
        (
            "u_t = D*(u_xx + u_yy) + a*u*(1 - u**2 - v**2) + b*v*(u**2 + v**2)",
            "v_t = D*(v_xx + v_yy) + a*v*(1 - u**2 - v**2) - b*u*(u**2 + v**2)",
        ),
        {"D": 0.1, "a": 1.0, "b": 1.0}, {"x": (18, 5), "y": (18, 5), "t": (12, 5)}, circles=(),
        window={"x": slice(192, 320, 2), "y": slice(192, 320, 2), "t": slice(0, 51)},
        published={0.0: "0.02 ± 0.01"},
    ),
    File(
        "PINNs", "burgers_shock.mat", "usol", "u_t + u*u_x = nu*u_xx", {"nu": 0.01 / np.pi},
        {"x": (128, 5), "t": (50, 5)}, circles=(), published={0.0: "0.12", 0.01: "0.84"},
    ),
    File(
        "PINNs", "KdV.mat", "uu", "u_t = k1*u*u_x + k2*u_xxx", {"k1": -1.0, "k2": -0.0025},
        {"x": (160, 7), "t": (70, 5)}, published={0.0: "0.02", 0.01: "0.06"},
    ),
    File(
        "WSINDy", "KdV.mat", "cells", "u_t = k1*u*u_x + k2*u_xxx", {"k1": -1.0, "k2": -1.0},
        {"x": (140, 7), "t": (80, 5)},
    ),
    File(
        "WSINDy", "KS.mat", "cells", "u_t = k1*u*u_x + k2*u_xx + k3*u_xxxx", {"k1": -1.0, "k2": -1.0, "k3": -1.0},
        {"x": (120, 7), "t": (90, 5)},
    ),
    File("WSINDy", "burgers.mat", "cells", "u_t = k1*u*u_x", {"k1": -1.0}, {"x": (120, 5), "t": (60, 5)}),
)  # fmt: skip


def read(path: str | Path) -> tuple[str, xr.Dataset]:
    """Read a published file: its layout, and the field over x, maybe y, and t.

    Raises
    ------
    ValueError
        The file has none of the layouts, or a coordinate and the field are not equally long.
    """
    content = loadmat(path)
    layout = next((name for name, keys in LAYOUTS.items() if set(keys) <= set(content)), None)
    if layout is None:
        keys = sorted(key for key in content if not key.startswith("__"))
        raise ValueError(
            f"{path} holds {keys}, which is none of the layouts {LAYOUTS}; see benchmarks.constants.public"
        )
    if layout == "cells":
        labels = dict(zip(("x", "t"), content["xs"].ravel(), strict=True))
        fields = {"u": content["U_exact"].ravel()[0]}
    else:
        *names, _ = keys = LAYOUTS[layout]
        coordinates = names if layout != "uv" else names[:-1]
        labels = {name.replace("tt", "t"): content[name] for name in coordinates}
        fields = {"u": content[keys[-1]]} if layout != "uv" else {"u": content["u"], "v": content["v"]}
    labels = {name: np.real(values).astype(float).ravel() for name, values in labels.items()}
    for name, values in fields.items():
        for (dim, own), length in zip(labels.items(), values.shape, strict=True):
            if own.size != length:
                raise ValueError(
                    f"{path}: {name} has {length} entries along {dim!r}, which has {own.size} labels; "
                    f"{name} has to be [{', '.join(labels)}]"
                )
    dims = tuple(labels)
    return layout, xr.Dataset({n: (dims, np.real(v).astype(float)) for n, v in fields.items()}, labels)


def found(folder: str | Path, only: str = "") -> dict[File, xr.Dataset]:
    """The files that are in a folder or below it, read."""
    out = {}
    for path in sorted(Path(folder).rglob("*.mat")):
        own = [file for file in FILES if file.name == path.name and only in f"{file.source} {file.name}"]
        if own:
            layout, data = read(path)
            out |= {file: data for file in own if file.layout == layout}
    return out


def recovered(file: File, data: xr.Dataset, level: float) -> xr.Dataset:
    """Recover the constants with noise, in parts of each standard deviation."""
    rng = np.random.default_rng(round(1000 * level))
    own = data.isel(dict(file.window))
    noisy = own.map(lambda v: v + level * float(v.std()) * rng.standard_normal(v.shape))
    fields = noisy if len(noisy) > 1 else noisy["u"]
    return fields.spline.statistics(file.space(own)).recover(file.equation)


def table(folder: str, only: str, levels: tuple[float, ...]) -> None:
    """Print the errors of each file, beside the published ones; name the files that are missing."""
    have = found(folder, only)
    head = ("file", "noise", "largest error, %", "its stderr, %", "F", "published error, %", "CPU s")
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for file, data in have.items():
        for level in levels:
            start = time.process_time()
            result = recovered(file, data, level)
            seconds = time.process_time() - start
            true = np.array([file.true[name] for name in result.parameter.values])
            errors = np.abs(result.estimate.values / true - 1)
            worst = int(np.argmax(errors))
            stderr = abs(result.stderr.values[worst] / true[worst])
            reported = "withheld" if np.isnan(stderr) else f"{100 * stderr:.3g}"
            print(
                f"| {file.source} {file.name} | {level:.0%} | {100 * errors[worst]:.3g} | {reported} | "
                f"{result.adequacy.item():.3g} | {file.published.get(level, '')} | {seconds:.0f} |",
                flush=True,
            )
    for file in FILES:
        if file not in have and only in f"{file.source} {file.name}":
            print(
                f"| {file.source} {file.name} | | not in {folder} | | | {file.published.get(0.01, '')} (1 %) | |"
            )

"""CUDA C++ kernels compiled by the host's compiler and run thread after thread: finds mistakes without a GPU.

Threads run in an order of their own, arrays lie between guards of NaN and huge integers, and what a kernel is to
write starts as such: reading or writing outside, leaving an entry out, or relying on an order fails a test.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
GUARD = 64
POISON = {"f": np.nan, "i": -(2**61) - 12345}

HEAD = """
#define __global__
#define __device__
struct Three { unsigned x, y, z; };
static thread_local Three blockIdx, threadIdx, blockDim, gridDim;
"""
LAUNCH = """
extern "C" void launch_%s(const unsigned *g, unsigned threads, void **arrays, const integer *n, const double *r) {
    gridDim = {g[0], g[1], g[2]}; blockDim = {threads, 1, 1};
    for (unsigned z = g[2]; z-- > 0;) for (unsigned y = g[1]; y-- > 0;) for (unsigned x = g[0]; x-- > 0;) {
        blockIdx = {x, y, z};
        for (unsigned t = 0; t < threads; ++t) { threadIdx = {t, 0, 0}; %s(%s); }
    }
}
"""
KERNEL = re.compile(r'extern "C" __global__ void (\w+)\((.*?)\n\) \{', re.DOTALL)
PARAMETER = re.compile(r"(const )?(\w+) (\*?)(?:__restrict__ )?(\w+)")


def _parameters(source: str) -> dict[str, list[tuple[str, ...]]]:
    """Of each kernel (const, type, *, name) of its parameters."""
    plain = re.sub(r"//[^\n]*", "", source)
    return {name: PARAMETER.findall(parameters) for name, parameters in KERNEL.findall(plain)}


def _launcher(name: str, parameters: list[tuple[str, ...]]) -> str:
    kinds = ["arrays" if star else "n" if kind == "integer" else "r" for _, kind, star, _ in parameters]
    arguments = []
    for i, (const, kind, star, _) in enumerate(parameters):
        entry = f"{kinds[i]}[{kinds[:i].count(kinds[i])}]"
        arguments.append(f"({const}{kind} *){entry}" if star else entry)
    return LAUNCH % (name, name, ", ".join(arguments))


@functools.cache
def _library(source: str, options: tuple[str, ...]) -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp())
    code, library = folder / "kernels.cpp", folder / "kernels.so"
    launchers = [_launcher(*kernel) for kernel in _parameters(source).items()]
    code.write_text("".join([HEAD, source, *launchers]), encoding="utf-8")
    command = [COMPILER, "-w", "-O0", "-shared", "-fPIC", *options, "-o", str(library), str(code)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    shutil.rmtree(folder)
    return loaded


def compiled(source: str, name: str, options: tuple[str, ...]) -> Any:
    """A kernel of a source, called as one of a GPU: with blocks, threads of a block, and arguments."""
    launcher = getattr(_library(source, options), f"launch_{name}")
    parameters = [p for p in _parameters(source)[name] if p[2]]

    def launch(blocks: tuple[int, ...], threads: tuple[int, ...], arguments: Sequence[Any]) -> None:
        arrays = [a for a in arguments if isinstance(a, np.ndarray)]
        assert all(a.flags.c_contiguous for a in arrays)
        for (const, *_), array in zip(parameters, arrays, strict=True):
            if not const:
                array[...] = POISON[array.dtype.kind]
        guarded = [np.pad(a.ravel(), GUARD, constant_values=POISON[a.dtype.kind]) for a in arrays]
        pointers = (ctypes.c_void_p * len(guarded))(*(g[GUARD:].ctypes.data for g in guarded))
        integers = [int(a) for a in arguments if isinstance(a, np.integer)]
        floats = [float(a) for a in arguments if isinstance(a, np.floating)]
        launcher(
            (ctypes.c_uint * 3)(*blocks), ctypes.c_uint(threads[0]), pointers,
            (ctypes.c_longlong * len(integers))(*integers), (ctypes.c_double * len(floats))(*floats),
        )  # fmt: skip
        for (const, *_), array, copy in zip(parameters, arrays, guarded, strict=True):
            guards = np.concatenate([copy[:GUARD], copy[-GUARD:]])
            np.testing.assert_array_equal(guards, POISON[array.dtype.kind])
            if not const:
                array[...] = copy[GUARD:-GUARD].reshape(array.shape)

    return launch

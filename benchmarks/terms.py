"""Which terms an equation has: exact solutions with noise, each equation among 16 to 20 candidates.

A set is right where the equation that is claimed has all terms of the true one and no other. Candidates are u^a ∂ᵏu, a
from 0 to 3 and k from 0 to 3 (4 for Kuramoto and Sivashinsky's equation); of waves also those with u_t. Schrödinger's
cubic equation is one of two real variables, among 28 candidates of both. Of noise alone no equation is right. With
``--raw`` the space is the one that ``xs.discover(data, "u_t")`` chooses from the data.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.constants.waves import SETS, burgers, noise

LEVELS = (0.01, 0.05, 0.10)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", help="part of the name of a set")
    parser.add_argument("--raw", action="store_true", help="in spaces that follow from the data")


def run(args: argparse.Namespace) -> None:
    print(*__doc__.splitlines()[2:], sep="\n")
    seeds, levels = (1, LEVELS[:1]) if args.quick else (args.seeds, LEVELS)
    head = ("", "noise", "right", "others as good", "|z| < 2", "largest error, %", "CPU s each")
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for own in (make() for make in ((burgers, noise) if args.quick and not args.only else SETS)):
        if args.only not in own.name:
            continue
        for level in levels if own.true else (1.0,):
            start = time.process_time()
            found = [own.discovered(level, seed, raw=args.raw) for seed in range(seeds)]
            seconds = (time.process_time() - start) / seeds
            right = [f for f in found if own.is_right(f)]
            alike = sum(int((f.delta_bic < 2).sum()) > 1 for f in found)
            both = [
                (f.coefficient.sel(term=term)[0].item() - value, f.stderr.sel(term=term)[0].item(), value)
                for f in right
                for term, value in own.true.items()
            ]
            inside = np.mean([abs(error) < 2 * stderr for error, stderr, _ in both]) if both else np.nan
            largest = max((abs(error / value) for error, _, value in both), default=np.nan)
            cells = f"{len(right)} of {seeds} | {alike} | {inside:.0%} | {100 * largest:.3f} | {seconds:.1f}"
            print(f"| {own.name} | {level:.0%} | {cells} |", flush=True)

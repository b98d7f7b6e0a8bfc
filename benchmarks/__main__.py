"""The command line. A benchmark is a module with `configure(parser)` and `run(args)`, printing a table."""

from __future__ import annotations

import argparse
import importlib
import sys

NAMES = (
    "first",
    "dense",
    "memory",
    "large",
    "billion",
    "graph",
    "plan",
    "growth",
    "simulated",
    "mean",
    "gpu",
    "scattered",
    "predict",
    "per_pixel",
    "solve",
    "stderr",
    "error_bars",
    "smoothing",
    "real",
    "mgcv",
    "held_out",
    "contest",
    "coverage",
    "outliers",
    "paper",
    "constants",
    "varying",
    "systems",
    "terms",
    "physics",
    "geometry",
)


def load(name: str) -> object:
    return importlib.import_module(f"benchmarks.{name}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Both sides of each ratio in one run."
    )
    commands = parser.add_subparsers(dest="name", required=True)
    commands.add_parser("list", help="what there is").add_argument("--names", action="store_true")
    asked = [name for name in NAMES if name in sys.argv[1:2]]
    for name in asked or NAMES:  # each takes tenths of a second to import
        module = load(name)
        first = module.__doc__.splitlines()[0].replace("%", "%%")  # argparse formats its help
        command = commands.add_parser(name, help=first)
        command.add_argument("--quick", action="store_true", help="a small size: does it run?")
        module.configure(command)
    args = parser.parse_args()
    if args.name != "list":
        load(args.name).run(args)
    elif args.names:
        print(*NAMES)
    else:
        print(*(f"{name:<10} {load(name).__doc__.splitlines()[0]}" for name in NAMES), sep="\n")


if __name__ == "__main__":
    main()

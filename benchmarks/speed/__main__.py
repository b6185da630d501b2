"""Runs the parts and writes tables, speed.json and speed.png. See the package's docstring for how to call it."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

from rich.console import Console

from benchmarks import report
from benchmarks.data import Options
from benchmarks.internals import make_device
from benchmarks.speed import devices, kernels, prediction, rounds, scaling

_MODULES: tuple[ModuleType, ...] = (rounds, kernels, scaling, prediction, devices)
PARTS = {module.__name__.rpartition(".")[2]: module for module in _MODULES}


def main() -> None:
    args = arguments()
    warnings.filterwarnings("ignore", module="lightgbm|xgboost|sklearn")
    console = Console(width=200)
    options = Options(args.data, args.threads, args.quick, console, args.device)
    output = args.output or Path("results/speed_quick" if args.quick else "results/speed")
    output.mkdir(parents=True, exist_ok=True)
    parts = report.read(output / "speed.json")
    for name in args.only or (["devices"] if args.device != "cpu" else [part for part in PARTS if part != "devices"]):
        console.rule(name)
        began = perf_counter()
        rows = PARTS[name].run(options)
        report.show(rows, console)
        console.print(f"{name}: {perf_counter() - began:.0f} s")
        parts[name] = {"about": report.about(args.threads, args.quick), "rows": rows}
        report.write(output / "speed.json", parts)  # after each part, so that an interrupt loses one at most
    draw(parts, PARTS, output / "speed.png")
    console.print(f"{report.about(args.threads, args.quick)}\nwritten to {output}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the data sets; without it only generated rows are used")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}")
    parser.add_argument(
        "--device",
        default="cpu",
        help="rounds on this device ('cuda', 'torch:cpu', ...) beside the processor's: part devices",
    )
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows, K = 64, few repeats")
    parser.add_argument("--threads", type=int, default=2, help="of every learner")
    parser.add_argument("--output", type=Path, help="results/speed by default, results/speed_quick with --quick")
    args = parser.parse_args()
    if args.data is not None and not args.data.is_dir():
        parser.error(f"--data must be a folder, got {args.data}")
    try:
        make_device(args.device)
    except (ValueError, ImportError) as error:
        parser.error(str(error))
    return args


def draw(parts: Mapping[str, Any], modules: Mapping[str, Any], path: Path) -> None:
    """`parts` are the report's; `modules` have a `draw(ax, rows)` each."""
    names = [name for name in modules if name in parts]
    figure = report.new_figure(9.0, 5.0 * len(names))
    for ax, name in zip(figure.subplots(len(names), 1, squeeze=False)[:, 0], names, strict=True):
        modules[name].draw(ax, parts[name]["rows"])
        ax.tick_params(labelsize=7)
        ax.title.set_fontsize(9)
    report.save(figure, path)


if __name__ == "__main__":
    main()

"""Runs the parts and writes tables, speed.json and speed.png. See the package's docstring for how to call it."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from benchmarks import report
from benchmarks.data import Options
from benchmarks.internals import make_device
from benchmarks.speed import devices, kernels, large, prediction, rounds, scaling, tree_prediction, trees, width

PARTS: dict[str, Any] = {
    "rounds": rounds, "kernels": kernels, "scaling": scaling, "width": width, "prediction": prediction, "trees": trees,
    "tree_prediction": tree_prediction, "devices": devices, "large": large,
}  # fmt: skip
ASKED_FOR = ("devices", "large")  # parts that are run only by name


def main() -> None:
    args = arguments()
    warnings.filterwarnings("ignore", module="lightgbm|xgboost|sklearn")
    console = Console(width=200)
    options = Options(args.data, args.threads, args.quick, args.device, args.rows)
    output = report.output_folder(args)
    parts = report.read(output / "speed.json")
    usual = [part for part in PARTS if part not in ASKED_FOR]
    for name in args.only or (["devices"] if args.device != "cpu" else usual):
        console.rule(name)
        began = perf_counter()
        rows = PARTS[name].run(options)
        report.show(rows, console)
        console.print(f"{name}: {perf_counter() - began:.0f} s")
        parts[name] = {"about": report.about(args.threads, args.quick), "rows": rows}
        report.write(output / "speed.json", parts)  # after each part, so that an interrupt loses one at most
    draw(parts, output / "speed.png")
    console.print(f"{report.about(args.threads, args.quick)}\nwritten to {output}")


def arguments() -> argparse.Namespace:
    quick = "a twentieth of the rows, K = 64, few repeats"
    parser = report.make_parser("speed", __doc__, "results/speed", quick=quick)
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}")
    device = "rounds on this device ('cuda', 'torch:cpu', ...) beside the processor's: part devices"
    parser.add_argument("--device", default="cpu", help=device)
    parser.add_argument("--threads", type=int, default=2, help="of every learner")
    parser.add_argument("--rows", type=report.number(), help="of part large; ten million by default")
    args = parser.parse_args()
    try:
        make_device(args.device)
    except (ValueError, ImportError) as error:
        parser.error(str(error))
    return args


def draw(parts: Mapping[str, Any], path: Path) -> None:
    """A panel for each part of the report."""
    names = [name for name in PARTS if name in parts]
    figure = report.new_figure(9.0, 5.0 * len(names))
    for ax, name in zip(figure.subplots(len(names), 1, squeeze=False)[:, 0], names, strict=True):
        PARTS[name].draw(ax, parts[name]["rows"])
        ax.tick_params(labelsize=7)
        ax.title.set_fontsize(9)
    report.save(figure, path)


if __name__ == "__main__":
    main()

"""Runs the parts and writes tables, explain.json and explain.png. See the package's docstring for how to call it."""

from __future__ import annotations

import argparse
import warnings
from time import perf_counter
from typing import Any

from rich.console import Console

from benchmarks import explain, report
from benchmarks.data import Options
from benchmarks.explain import speed, truth

PARTS: dict[str, Any] = {"speed": speed, "truth": truth}
PACKAGES = (*report.PACKAGES, "shap")


def main() -> None:
    args = arguments()
    warnings.filterwarnings("ignore", module="lightgbm|sklearn|shap")
    console = Console(width=200)
    options = Options(args.data, args.threads, args.quick)
    about = {**report.about(args.threads, args.quick), "packages": report.versions(PACKAGES)}
    output = report.output_folder(args)
    parts = report.read(output / "explain.json")
    for name in args.only or PARTS:
        console.rule(name)
        began = perf_counter()
        rows = PARTS[name].run(options)
        report.show(rows, console)
        console.print(f"{name}: {perf_counter() - began:.0f} s")
        parts[name] = {"about": about, "rows": rows}
        report.write(output / "explain.json", parts)  # after each part, so that an interrupt loses one at most
    names = [name for name in PARTS if name in parts]
    figure = report.new_figure(9.0, 4.0 * len(names))
    for ax, name in zip(figure.subplots(len(names), 1, squeeze=False)[:, 0], names, strict=True):
        PARTS[name].draw(ax, parts[name]["rows"])
        ax.tick_params(labelsize=7)
        ax.title.set_fontsize(9)
    report.save(figure, output / "explain.png")
    console.print(f"{about}\nwritten to {output}")


def arguments() -> argparse.Namespace:
    quick = "a twentieth of the rows, fewer rounds, features and problems"
    parser = report.make_parser("explain", explain.__doc__, "results/explain", quick=quick)
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--threads", type=int, default=2, help="of every learner")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""The commands of `gbun`: train, predict, evaluate, explain and inspect from files, and a demo.

Commands import what they need when they run, so that `gbun --help` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gbun import __version__
from gbun.cli.evaluation import evaluate
from gbun.cli.explanation import explain, importance
from gbun.cli.failures import report_errors
from gbun.cli.inspection import inspect
from gbun.cli.options import unfold_options
from gbun.cli.prediction import predict
from gbun.cli.training import TrainCommand, train

# A bug keeps Python's plain traceback: a report needs it.
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"gbun {__version__}")
        raise typer.Exit


@app.callback()
def gbun(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Gradient boosting of untrained neural networks, and of trees.

    Exit codes: 0 done, 1 unusable data or model (one line on the error stream says why), 2 wrong usage,
    130 Ctrl-C.
    """


def demo(
    output: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("gbun-demo"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller data sets.")] = False,
) -> None:
    """Compare gbun with LightGBM and XGBoost on small and generated data sets."""
    from gbun.demo import run

    run(output, quick)


for command in (unfold_options(train, TrainCommand), predict, evaluate, explain, importance, inspect, demo):
    app.command()(report_errors(command))

"""The command `gbun`: train, predict, evaluate and inspect from files, and a demo.

What a command needs is imported when it runs, so that `gbun --help` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gbun import __version__
from gbun.cli.evaluation import evaluate
from gbun.cli.failures import reported
from gbun.cli.inspection import inspect
from gbun.cli.options import with_parameters
from gbun.cli.prediction import predict
from gbun.cli.training import train

# A bug keeps Python's own traceback: it is what a report needs.
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"gbun {__version__}")
        raise typer.Exit


@app.callback()
def gbun(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Gradient boosting of untrained neural networks.

    Exit codes: 0 done, 1 unusable data or model (one line on the error stream says why), 2 wrong usage,
    130 Ctrl-C.
    """


def demo(
    output: Annotated[Path, typer.Option(help="Folder for what the demo makes.")] = Path("gbun-demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A smaller one.")] = False,
) -> None:
    """Show what gbun does, on data made on the spot."""
    from gbun.demo import run

    run(output, quick)


for command in (with_parameters(train), predict, evaluate, inspect, demo):
    app.command()(reported(command))


def main() -> None:
    app()

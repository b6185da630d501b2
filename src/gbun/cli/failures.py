"""How a command fails: one readable line and an exit code for what users can mend, a traceback for bugs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from gbun.collectives import WorkerError

MENDABLE = (ValueError, OSError, MemoryError, ImportError, WorkerError)
"""Wrong data, missing files, too little memory, a package that is not installed, a worker that was lost; any other
exception is a bug."""
FAILED, INTERRUPTED = 1, 130

Traceback = Annotated[
    bool, typer.Option("--traceback", envvar="GBUN_TRACEBACK", help="Show the whole traceback of an error.")
]


def reported(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option --traceback, its failures told in one line."""

    @functools.wraps(command)
    def run(*, traceback: bool, **arguments: Any) -> None:
        try:
            command(**arguments)
        except KeyboardInterrupt as interrupt:
            typer.echo(": ".join(["interrupted", *map(str, interrupt.args)]), err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise  # whoever read our output has enough: `gbun predict ... | head` is no failure to explain
        except MENDABLE as error:
            if traceback:
                raise
            typer.echo(f"error: {sentence(error)}", err=True)
            raise typer.Exit(FAILED) from None

    own = inspect.signature(command, eval_str=True)
    asked = inspect.Parameter("traceback", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Traceback)
    return with_signature(run, [*own.parameters.values(), asked])


def with_signature(function: Callable[..., None], given: list[inspect.Parameter]) -> Callable[..., None]:
    """`function` as Typer is to see it: it reads both the signature and the annotations."""
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in given]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    return function


def sentence(error: BaseException) -> str:
    """What went wrong, in one line.

    >>> sentence(FileNotFoundError(2, "No such file or directory", "rows.csv"))
    'rows.csv: no such file or directory'
    >>> sentence(MemoryError())
    'not enough memory; free some, or use fewer rows or a smaller n_neurons'
    """
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return f"not enough memory{detail}; free some, or use fewer rows or a smaller n_neurons"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror[:1].lower()}{error.strerror[1:]}"
    return " ".join(str(error).split()) or type(error).__name__

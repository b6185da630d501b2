"""How a command fails: one readable line and an exit code for errors that users can fix, a traceback for bugs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from gbun.collectives import WorkerError

USER_ERRORS = (ValueError, OSError, MemoryError, ImportError, WorkerError)
"""Wrong data, missing files, too little memory, a package that is not installed, a failed worker. Any other exception
is a bug."""
EXIT_FAILED, EXIT_INTERRUPTED = 1, 130

Traceback = Annotated[
    bool, typer.Option("--traceback", envvar="GBUN_TRACEBACK", help="Show the whole traceback of an error.")
]


def report_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command: print its errors in one line, and add the option --traceback."""

    @functools.wraps(command)
    def run(*, traceback: bool, **arguments: Any) -> None:
        try:
            command(**arguments)
        except KeyboardInterrupt as interrupt:
            typer.echo(": ".join(["interrupted", *map(str, interrupt.args)]), err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            raise  # the reader of the output has closed it, as in `gbun predict ... | head`: not a failure
        except USER_ERRORS as error:
            if traceback:
                raise
            typer.echo(f"error: {error_message(error)}", err=True)
            raise typer.Exit(EXIT_FAILED) from None

    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("traceback", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Traceback)
    return set_signature(run, [*signature.parameters.values(), option])


def set_signature(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """Give a function these parameters; Typer reads both the signature and the annotations."""
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    return function


def error_message(error: BaseException) -> str:
    """Describe an error in one line.

    >>> error_message(FileNotFoundError(2, "No such file or directory", "rows.csv"))
    'rows.csv: no such file or directory'
    >>> error_message(MemoryError())
    'not enough memory; free some, or use fewer rows or a smaller n_neurons'
    """
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return f"not enough memory{detail}; free some, or use fewer rows or a smaller n_neurons"
    if isinstance(error, OSError) and error.strerror:
        file = f"{error.filename}: " if error.filename else ""
        return f"{file}{error.strerror[:1].lower()}{error.strerror[1:]}"
    return " ".join(str(error).split()) or type(error).__name__

"""One command-line option for every training parameter, made from `gbun.config` and from nothing else."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field
from typing import Annotated, Any

import typer

from gbun.cli.failures import with_signature
from gbun.config import Parameters, parameter_fields, parameters_from
from gbun.ranges import Anything, Choice, DeviceName, Flag, Interval, Range


def option_name(parameter: str) -> str:
    """
    >>> option_name("n_neurons")
    '--n-neurons'
    """
    return "--" + parameter.replace("_", "-")


def with_parameters(command: Callable[..., None]) -> Callable[..., None]:
    """The command, its `**parameters` unfolded into an option for each training parameter.

    The command gets them as text, None where nothing was said; `read_parameters` makes sense of them.
    """

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        command(**arguments)

    own = [
        p
        for p in inspect.signature(command, eval_str=True).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    return with_signature(run, [*own, *map(_option, parameter_fields())])


def _option(field: Field[Any]) -> inspect.Parameter:
    admitted: Range = field.metadata["range"]
    option = typer.Option(
        option_name(field.name),
        help=f"{field.metadata['sentence']} {_in_words(admitted)}".rstrip(),
        metavar=_metavar(admitted),
        rich_help_panel=f"Training parameters: {field.metadata['group']}",
    )
    default = None if field.default is None else str(field.default)
    annotation = Annotated[str | None, option]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _metavar(admitted: Range) -> str:
    if isinstance(admitted, Interval):
        return "INTEGER" if admitted.integral else "NUMBER"
    if isinstance(admitted, Flag):
        return "true|false"
    return "NAME" if isinstance(admitted, Choice) else "VALUE"


def _in_words(admitted: Range) -> str:
    if isinstance(admitted, Anything):
        return ""
    words = expected(admitted)
    return words[0].upper() + words[1:] + "."


def expected(admitted: Range) -> str:
    """What may be typed; an object of the user's own can only be given in Python.

    >>> expected(Choice(("shared", "per_class"), objects=True))
    'one of shared, per_class'
    """
    if isinstance(admitted, Choice):
        return "one of " + ", ".join(admitted.names) + (", none" if admitted.optional else "")
    return str(admitted).replace("None", "none")


def read_parameters(typed: Mapping[str, str | None]) -> Parameters:
    """The training parameters; a value out of its range is a usage error that names its option."""
    values = {}
    for field in parameter_fields():
        text = typed[field.name]
        if text is None:
            continue
        admitted = field.metadata["range"]
        values[field.name] = value_of(text, admitted)
        if not admitted.admits(values[field.name]):
            complaint = f"got {text!r}, expected {expected(admitted)}"
            raise typer.BadParameter(complaint, param_hint=option_name(field.name))
    try:
        return parameters_from(values)
    except ValueError as error:  # a rule between several parameters
        raise typer.BadParameter(str(error)) from None


def checked_device(name: str) -> str:
    """The name of a device that is here: told before data are read."""
    from gbun.devices import device_of

    if not DeviceName().admits(name):
        raise typer.BadParameter(f"got {name!r}, expected {expected(DeviceName())}", param_hint="--device")
    return device_of(name).name


def value_of(text: str, admitted: Range) -> Any:
    """The value a text stands for; where it stands for none that is admitted, the text itself.

    >>> value_of("64", Interval(2, 100, integral=True)), value_of("none", Interval(0, 1, optional=True))
    (64, None)
    >>> value_of("auc,log_loss", Anything()), value_of("7", Anything())
    (['auc', 'log_loss'], 7)
    """
    if isinstance(admitted, Anything):
        parts = [part.strip() for part in text.split(",")]
        return parts if len(parts) > 1 else _number(text, int)
    if isinstance(admitted, DeviceName):
        return text
    if admitted.optional and text.lower() == "none":
        return None
    if isinstance(admitted, Flag):
        return {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(admitted, Interval):
        return _number(text, int if admitted.integral else float)
    return text


def _number(text: str, kind: type[int] | type[float]) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text

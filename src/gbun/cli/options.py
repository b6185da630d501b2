"""One command-line option for every training parameter, made from `gbun.config` only."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbun.cli.failures import set_signature
from gbun.config import Parameters, make_parameters, parameter_fields
from gbun.ranges import Anything, Choice, Columns, DeviceName, Flag, Interval, Range

if TYPE_CHECKING:
    from gbun.metrics import Metric


def option_name(parameter: str) -> str:
    """
    >>> option_name("n_neurons")
    '--n-neurons'
    """
    return "--" + parameter.replace("_", "-")


def unfold_options(command: Callable[[Any], None], options: type) -> Callable[..., None]:
    """Make a command with one option for each field of `options`, and one for each training parameter.

    `options` is a dataclass whose fields are annotated for Typer. Its field `parameters` gets the training parameters.
    """

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        texts = {field.name: arguments.pop(field.name) for field in parameter_fields()}
        command(options(**arguments, parameters=read_parameters(texts)))

    fields = inspect.signature(options, eval_str=True).parameters.values()
    plain = [field for field in fields if field.name != "parameters"]
    return set_signature(run, [*plain, *map(_make_option, parameter_fields())])


def _make_option(field: Field[Any]) -> inspect.Parameter:
    allowed: Range = field.metadata["range"]
    words = "" if isinstance(allowed, Anything) else describe_range(allowed)
    option = typer.Option(
        option_name(field.name),
        help=f"{field.metadata['sentence']} {words[:1].upper()}{words[1:]}{'.' if words else ''}".rstrip(),
        metavar=_metavar(allowed),
        rich_help_panel=f"Training parameters: {field.metadata['group']}",
    )
    default = None if field.default is None else str(field.default)
    annotation = Annotated[str | None, option]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _metavar(allowed: Range) -> str:
    if isinstance(allowed, Interval):
        return "INTEGER" if allowed.integral else "NUMBER"
    if isinstance(allowed, Flag):
        return "true|false"
    return "NAME" if isinstance(allowed, Choice) else "VALUE"


def describe_range(allowed: Range) -> str:
    """Describe the values that can be typed; objects made by the user are for Python only.

    >>> describe_range(Choice(("shared", "per_class"), objects=True))
    'one of shared, per_class'
    """
    if isinstance(allowed, Choice):
        return "one of " + ", ".join(allowed.names) + (", none" if allowed.optional else "")
    return str(allowed).replace("None", "none")


def read_parameters(texts: Mapping[str, str | None]) -> Parameters:
    """Parse the training parameters; a value out of its range is a usage error that names the option."""
    values = {}
    for field in parameter_fields():
        text = texts[field.name]
        if text is None:
            continue
        allowed = field.metadata["range"]
        values[field.name] = parse_value(text, allowed)
        if not allowed.admits(values[field.name]):
            message = f"got {text!r}, expected {describe_range(allowed)}"
            raise typer.BadParameter(message, param_hint=option_name(field.name))
    try:
        return make_parameters(values)
    except ValueError as error:  # a rule between several parameters
        raise typer.BadParameter(str(error)) from None


def read_metrics(names: Iterable[str], option: str) -> list[Metric]:
    """Find metrics by name; an unknown name is a usage error."""
    from gbun.metrics import get_metric

    try:
        return [get_metric(name) for name in names]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def check_device(name: str) -> None:
    """Raise an error if there is no such device, before data are read."""
    from gbun.devices import make_device

    if not DeviceName().admits(name):
        raise typer.BadParameter(f"got {name!r}, expected {describe_range(DeviceName())}", param_hint="--device")
    make_device(name)


def parse_value(text: str, allowed: Range) -> Any:
    """Parse the value of an option; return the text itself where it stands for no allowed value.

    >>> parse_value("64", Interval(2, 100, integral=True)), parse_value("none", Interval(0, 1, optional=True))
    (64, None)
    >>> parse_value("auc,log_loss", Anything()), parse_value("7", Anything())
    (['auc', 'log_loss'], 7)
    """
    if isinstance(allowed, Anything):
        parts = [part.strip() for part in text.split(",")]
        return parts if len(parts) > 1 else _parse_number(text, int)
    if isinstance(allowed, DeviceName):
        return text
    if isinstance(allowed, Columns):
        parts = [_parse_number(part.strip(), int) for part in text.split(",")]
        return (None if text.lower() == "none" else text) if text.lower() in ("none", "from_dtype") else parts
    if allowed.optional and text.lower() == "none":
        return None
    if isinstance(allowed, Flag):
        return {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(allowed, Interval):
        return _parse_number(text, int if allowed.integral else float)
    return text


def _parse_number(text: str, kind: type[int] | type[float]) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text

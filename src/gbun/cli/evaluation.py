"""`gbun evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbun.cli.labels import class_labels, is_text
from gbun.cli.options import checked_device
from gbun.cli.prediction import DEVICE_HELP, MODEL_HELP, ROUNDS_HELP
from gbun.cli.screen import show_json, show_table
from gbun.cli.tables import Input, fitted, read_labelled
from gbun.cli.training import LABELS_HELP, TARGET_HELP, WEIGHT_HELP

if TYPE_CHECKING:
    from gbun.data.files import Table
    from gbun.metrics import Metric
    from gbun.model import Model

TWO_CLASSES = ("log_loss", "accuracy", "auc", "average_precision", "brier")
MANY_CLASSES = ("log_loss", "accuracy", "macro_f1", "auc")
NUMBERS = ("rmse", "mae", "r2")


def evaluate(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    data: Annotated[Path, typer.Argument(help="Rows with labels, in the format the model was trained on.")],
    target: Annotated[str | None, typer.Option(help=TARGET_HELP)] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="A metric's name; may be repeated. Those usual for the task unless given."),
    ] = None,
    weight: Annotated[str | None, typer.Option(help=WEIGHT_HELP)] = None,
    labels: Annotated[Path | None, typer.Option(help=LABELS_HELP)] = None,
    rounds: Annotated[int | None, typer.Option(help=ROUNDS_HELP)] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "cpu",
    json: Annotated[bool, typer.Option("--json", help="JSON in place of a table.")] = False,
) -> None:
    """Say how well a model predicts the rows of a file."""
    from gbun.metrics import get_metric
    from gbun.model import load_model

    checked_device(device)
    try:
        asked = [get_metric(name) for name in metric or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--metric") from None
    fitting = load_model(model)
    expected = Input.of_model(fitting)
    table = fitted(read_labelled(data, target, weight, labels, expected.text), data, expected)
    values = metric_values(fitting, table, asked or usual_metrics(fitting), rounds, device)
    if json:
        show_json({"rows": table.X.shape[0], "metrics": values})
    else:
        show_table(((name, f"{value:.6g}") for name, value in values.items()), ("metric", "value"))


def usual_metrics(model: Model) -> list[Metric]:
    """The objective's own metric first, then what people ask for in that task."""
    from gbun.metrics import get_metric

    names: tuple[str, ...] = NUMBERS
    if model.classes is not None:
        names = TWO_CLASSES if len(model.classes) == 2 else MANY_CLASSES
    return [get_metric(name) for name in dict.fromkeys([model.ensemble.objective.default_metric(), *names])]


def metric_values(
    model: Model, table: Table, metrics: list[Metric], rounds: int | None, device: str = "cpu"
) -> dict[str, float]:
    from gbun.collectives import Solo
    from gbun.targets import weight_array

    y, n = coded_labels(model, table.y), table.X.shape[0]
    scores = model.decision_function(table.X, n_rounds=rounds, device=device).reshape(n, -1)
    response, weight = model.ensemble.objective.response(scores), weight_array(table.weight, n, "weight")
    return {metric.name: metric.evaluate(y, response, weight, Solo()) for metric in metrics}


def coded_labels(model: Model, y: Any) -> Any:
    """Labels as metrics want them: numbers, or the codes of the model's classes."""
    from gbun.targets import Target

    description = model.description
    if description.task == "multilabel" or not description.single_column:
        raise ValueError(
            "MODEL: got one that predicts several columns, expected one label a row, as files have no more; "
            "evaluate it in Python with gbun.metrics"
        )
    if model.classes is not None:
        y = class_labels(y, text=is_text(model.classes))
    return Target(y, description.task, model.ensemble.objective, model.classes).encode(y, "labels")

"""`gbun evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbun.cli.labels import class_labels, is_text
from gbun.cli.options import check_device, read_metrics
from gbun.cli.prediction import DEVICE_HELP, MODEL_HELP, ROUNDS_HELP
from gbun.cli.screen import show_json, show_table
from gbun.cli.tables import ExpectedInput, match_columns, read_rows
from gbun.cli.training import LABELS_HELP, TARGET_HELP, WEIGHT_HELP

if TYPE_CHECKING:
    from gbun.metrics import Metric
    from gbun.model import Model

BINARY_METRICS = ("log_loss", "accuracy", "auc", "average_precision", "brier")
MULTICLASS_METRICS = ("log_loss", "accuracy", "macro_f1", "auc")
REGRESSION_METRICS = ("rmse", "mae", "r2")


def evaluate(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    data: Annotated[Path, typer.Argument(help="Rows with labels, in the format the model was trained on.")],
    target: Annotated[str | None, typer.Option(help=TARGET_HELP)] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="A metric's name; may be repeated. The default depends on the task."),
    ] = None,
    weight: Annotated[str | None, typer.Option(help=WEIGHT_HELP)] = None,
    labels: Annotated[Path | None, typer.Option(help=LABELS_HELP)] = None,
    rounds: Annotated[int | None, typer.Option(help=ROUNDS_HELP)] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "cpu",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compute metrics of a model on the rows of a file."""
    from gbun.collectives import Solo
    from gbun.model import load_model
    from gbun.targets import to_weight_array

    check_device(device)
    metrics = read_metrics(metric or (), "--metric")
    fitted = load_model(model)
    expected = ExpectedInput.of_model(fitted)
    table = read_rows(data, target, weight, labels, expected.text, need_labels=True)
    table = match_columns(table, data, expected)
    y, n, objective = encode_labels(fitted, table.y), table.X.shape[0], fitted.ensemble.objective
    response = objective.response(fitted.decision_function(table.X, n_rounds=rounds, device=device).reshape(n, -1))
    weights = to_weight_array(table.weight, n, "weight")
    values = {m.name: m.evaluate(y, response, weights, Solo()) for m in metrics or default_metrics(fitted)}
    if json:
        show_json({"rows": n, "metrics": values})
    else:
        show_table(((name, f"{value:.6g}") for name, value in values.items()), ("metric", "value"))


def default_metrics(model: Model) -> list[Metric]:
    """Return the default metric of the objective, then the usual metrics of the task."""
    from gbun.metrics import get_metric

    names: tuple[str, ...] = REGRESSION_METRICS
    if model.classes is not None:
        names = BINARY_METRICS if len(model.classes) == 2 else MULTICLASS_METRICS
    return [get_metric(name) for name in dict.fromkeys([model.ensemble.objective.default_metric(), *names])]


def encode_labels(model: Model, y: Any) -> Any:
    """Return labels as metrics take them: numbers, or the codes of the model's classes."""
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

"""`gbun explain` and `gbun importance`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gbun.cli.prediction import MODEL_HELP
from gbun.cli.screen import show_bars, show_json
from gbun.cli.tables import ExpectedInput, match_columns, read_rows

METHOD_HELP = "auto, linear, gradients or shapley: how contributions are computed."
OUTPUT_HELP = "Which of several scores, by its number from 0; a model with one score needs none."
BACKGROUND_ROWS = 100
BACKGROUND_HELP = f"Rows to compare with, of which the first {BACKGROUND_ROWS} are taken; otherwise a row of means."
KIND_HELP = "gain, contribution (needs rows) or permutation (needs rows and --target)."


def explain(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    data: Annotated[Path, typer.Argument(help="A file with the row, in the format the model was trained on.")],
    row: Annotated[int, typer.Option(min=0, help="Which row of the file, from 0.")] = 0,
    top: Annotated[int, typer.Option(min=1, help="How many columns to show; the others become one.")] = 20,
    method: Annotated[str, typer.Option(help=METHOD_HELP)] = "auto",
    output: Annotated[int | None, typer.Option(help=OUTPUT_HELP)] = None,
    background: Annotated[Path | None, typer.Option(help=BACKGROUND_HELP)] = None,
    target: Annotated[str | None, typer.Option(help="Column of labels to leave out, if the file has one.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Explain the score of one row: what each column adds to it. Of several classes, that of the predicted one."""
    from gbun.model import load_model

    fitted = load_model(model)
    rows = read_model_rows(fitted, data, target)
    n = rows.shape[0]
    if row >= n:
        raise ValueError(f"--row must be from 0 to {n - 1}, the rows of {data}, got {row}")
    scores = fitted.ensemble.n_scores
    if output is None and scores > 1 and fitted.description.task != "classification":
        raise ValueError(f"--output must say which of the {scores} scores to explain, from 0 to {scores - 1}")
    if output is None and scores > 1:
        output = int(fitted.decision_function(take_row(rows, row))[0].argmax())  # the class that is predicted
    others = None if background is None else read_model_rows(fitted, background, target)[:BACKGROUND_ROWS]
    explained = fitted.explain(take_row(rows, row), method=method, output=output, top=top, background=others)
    values = explained.values.toarray()[0] if hasattr(explained.values, "toarray") else explained.values[0]
    order = (-abs(values)).argsort(kind="stable")
    bars = [(explained.name(int(j)), float(values[j])) for j in order if values[j]]
    base, score = float(explained.base[0]), float(explained.scores[0])
    if json:
        facts = {"row": row, "output": output, "base": base, "score": score, "method": method}
        show_json({**facts, "residual": float(explained.residual[0]), "contributions": dict(bars)})
        return
    of_class = ""
    if output is not None and scores > 1:
        of_class = f" {output}" if fitted.classes is None else f" of {fitted.classes[output]}"
    show_bars(bars, f"score{of_class} of row {row}: {score:.6g}, from {base:.6g} at the baseline")


def importance(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    data: Annotated[Path | None, typer.Argument(help="Rows, for contributions and permutations.")] = None,
    kind: Annotated[str | None, typer.Option(help=KIND_HELP)] = None,
    top: Annotated[int, typer.Option(min=1, help="How many columns to show.")] = 20,
    target: Annotated[str | None, typer.Option(help="The column of labels.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print the most important columns of a model."""
    from gbun.cli.labels import class_labels, is_text
    from gbun.model import load_model

    fitted = load_model(model)
    X: Any = None
    y: Any = None
    if data is not None:
        needs_labels = kind == "permutation"
        expected = ExpectedInput.of_model(fitted)
        table = match_columns(read_rows(data, target, text=expected.text, need_labels=needs_labels), data, expected)
        X = table.X
        if needs_labels:
            labels: Any = table.y
            y = labels if fitted.classes is None else class_labels(labels, text=is_text(fitted.classes))
    found = fitted.importance(X, y, kind=kind, top=top)
    if json:
        show_json({"kind": found.kind, "importance": dict(found.ranked())})
    else:
        show_bars(found.ranked(), f"importance by {found.kind}")


def read_model_rows(fitted: Any, data: Path, target: str | None) -> Any:
    expected = ExpectedInput.of_model(fitted)
    return match_columns(read_rows(data, target, text=expected.text), data, expected).X


def take_row(rows: Any, i: int) -> Any:
    return rows.iloc[[i]] if hasattr(rows, "iloc") else rows[[i]]

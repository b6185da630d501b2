"""`gbun predict`."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbun.cli.options import checked_device
from gbun.cli.tables import Input, check_output, fitted, read
from gbun.ranges import DeviceName

if TYPE_CHECKING:
    from gbun.model import Model

STDOUT = Path("-")
MODEL_HELP = "A model file that `gbun train` or save_model wrote."
ROUNDS_HELP = "Use the first rounds only."
DEVICE_HELP = f"Where to compute: {DeviceName()}, wherever the model was trained."


def predict(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    data: Annotated[Path, typer.Argument(help="Rows to predict, in the format the model was trained on.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="A .csv or .npy file to write; - is the output stream, as CSV."),
    ] = STDOUT,
    proba: Annotated[bool, typer.Option("--proba", help="The probability of each class, in place of labels.")] = False,
    scores: Annotated[bool, typer.Option("--scores", help="Scores before the link, in place of predictions.")] = False,
    rounds: Annotated[int | None, typer.Option(help=ROUNDS_HELP)] = None,
    target: Annotated[str | None, typer.Option(help="Column of labels to leave out, if the file has one.")] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "cpu",
) -> None:
    """Predict the rows of a file."""
    if proba and scores:
        raise typer.BadParameter("one of --proba and --scores, not both", param_hint="--scores")
    if output != STDOUT and output.suffix.lower() not in (".csv", ".npy"):
        raise typer.BadParameter(f"got {str(output)!r}, expected a .csv or .npy file, or -", param_hint="--output")
    from gbun.model import load_model

    checked_device(device)
    if output != STDOUT:
        check_output(output, [model, data])
    fitting = load_model(model)
    expected = Input.of_model(fitting)
    X = fitted(read(data, target, text=expected.text), data, expected).X
    predicting = fitting.predict_proba if proba else fitting.decision_function if scores else fitting.predict
    values = predicting(X, n_rounds=rounds, device=device)
    _write(
        output,
        values,
        column_names(fitting, values, "probability" if proba else "score" if scores else "prediction"),
    )


def column_names(model: Model, values: Any, what: str) -> list[str]:
    """`what`, or one `what_class` for each class; where classes have no names, their numbers."""
    if values.ndim == 1:
        return [what]
    n_columns = values.shape[1]
    classes = model.classes
    named = classes is not None and len(classes) == n_columns
    return [f"{what}_{name}" for name in (classes if named and classes is not None else range(n_columns))]


def _write(output: Path, values: Any, names: list[str]) -> None:
    from gbun.model_io.atomic import write_atomically

    if output == STDOUT:
        sys.stdout.writelines(csv_text(values, names))
        sys.stdout.flush()  # a closed pipe is to be met here, not at the interpreter's end
    elif output.suffix.lower() == ".csv":
        write_atomically(output, (text.encode() for text in csv_text(values, names)))
    else:
        write_atomically(output, [npy_bytes(values)])


def csv_text(values: Any, names: list[str], rows_at_once: int = 8192) -> Iterator[str]:
    """A line of names, then a line for each row; numbers in the fewest digits that read back as the same.

    >>> import numpy as np
    >>> "".join(csv_text(np.array(["plum", "a,b"]), ["prediction"]))
    'prediction\\nplum\\n"a,b"\\n'
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    table = values.reshape(len(values), -1)
    for first in range(0, len(table), rows_at_once):
        writer.writerows(table[first : first + rows_at_once].tolist())
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def npy_bytes(values: Any) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return buffer.getvalue()

"""`gbun predict`."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from gbun.cli.options import check_device
from gbun.cli.tables import ExpectedInput, check_output, match_columns, read_rows
from gbun.ranges import DeviceName

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
    import numpy as np

    from gbun.model import load_model
    from gbun.model_io.atomic import write_atomically

    if proba and scores:
        raise typer.BadParameter("one of --proba and --scores, not both", param_hint="--scores")
    if output != STDOUT and output.suffix.lower() not in (".csv", ".npy"):
        raise typer.BadParameter(f"got {str(output)!r}, expected a .csv or .npy file, or -", param_hint="--output")
    check_device(device)
    if output != STDOUT:
        check_output(output, [model, data])
    fitted = load_model(model)
    expected = ExpectedInput.of_model(fitted)
    X = match_columns(read_rows(data, target, text=expected.text), data, expected).X
    method = fitted.predict_proba if proba else fitted.decision_function if scores else fitted.predict
    values = method(X, n_rounds=rounds, device=device)
    name = "probability" if proba else "score" if scores else "prediction"
    names = [name]
    if values.ndim == 2:  # classes without names are numbered
        classes: Any = range(values.shape[1])
        if fitted.classes is not None and len(fitted.classes) == values.shape[1]:
            classes = fitted.classes
        names = [f"{name}_{label}" for label in classes]
    if output == STDOUT:
        sys.stdout.writelines(csv_text(values, names))
        sys.stdout.flush()  # a closed pipe raises here, not at the end of the interpreter
    elif output.suffix.lower() == ".csv":
        write_atomically(output, (text.encode() for text in csv_text(values, names)))
    else:
        buffer = io.BytesIO()
        np.save(buffer, values, allow_pickle=False)
        write_atomically(output, [buffer.getvalue()])


def csv_text(values: Any, names: list[str], rows_at_once: int = 8192) -> Iterator[str]:
    """Yield a line of names and a line for each row, with the fewest digits that read back as the same number.

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

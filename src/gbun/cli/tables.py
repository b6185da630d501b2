"""Tables for the commands: read from files, and matched to the columns of a model or of its training table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gbun.cli.screen import format_list

if TYPE_CHECKING:
    from gbun.data.files import Table
    from gbun.model import Model

MODEL = "the model"


@dataclass(frozen=True)
class ExpectedInput:
    """The form that rows must have. `owner` names the model or file that has it, for error messages."""

    owner: str
    sparse: bool
    n_columns: int | None
    names: tuple[str, ...] | None
    text: tuple[str, ...]
    kind: str = "array"

    @classmethod
    def of_model(cls, model: Model) -> ExpectedInput:
        schema = model.description.schema
        sparse = schema.kind == "array" and model.ensemble.scaling.dense is None
        text = tuple(name for name in schema.categorical if schema.kind == "frame" and name not in schema.declared)
        return cls(MODEL, sparse, schema.n_columns, schema.names, text, schema.kind)

    @classmethod
    def of_table(cls, table: Table, path: Path) -> ExpectedInput:
        from scipy.sparse import issparse

        columns: Any = table.X if table.feature_names else {}
        text = tuple(str(name) for name in columns if columns[name].dtype.kind == "O")
        return cls(str(path), bool(issparse(table.X)), table.X.shape[1], table.feature_names, text)

    def __str__(self) -> str:
        if self.kind in ("array", "columns"):
            return f"{'sparse' if self.sparse else 'dense'} rows of {self.n_columns} columns"
        if self.kind == "frame":
            return f"a table with the columns {format_list(self.names or ())}"
        return f"lists of {self.kind}, which only Python can give"


def read_rows(
    path: Path,
    target: str | None = None,
    weight: str | None = None,
    labels: Path | None = None,
    text: tuple[str, ...] = (),
    share: tuple[int, int] = (0, 1),
    need_labels: bool = False,
) -> Table:
    """Read a table from one or several files.

    Columns named in `text` are read as text, as they were in training. `share` is the rank of a worker and the number
    of workers, each of which reads a part of the rows. With `need_labels`, every row must have a label.
    """
    from gbun.data.worker_files import read_share

    table = read_share(path, *share, target=target, weight=weight, labels=labels, text=text)
    if not need_labels:
        return table
    if table.y is None:
        by_file = "save them in it as y, or name their .npy file with --labels"
        advice = "name their column with --target" if table.feature_names else by_file
        raise ValueError(f"{path}: got no labels, expected one for each row; {advice}")
    missing = table.y != table.y
    if table.y.dtype.kind == "O":  # from a data frame only: None is missing too
        from pandas import isna

        missing = isna(table.y)
    if missing.any():
        part = f" of the part of worker {share[0]}" if share[1] > 1 else ""
        rows = "1 row" if missing.sum() == 1 else f"{missing.sum()} rows"
        raise ValueError(
            f"{path}: got {rows} without a label, the first is row {missing.argmax() + 1}{part} (counted from 1, "
            f"without a line of names), expected one in each of {len(table.y)}; drop those rows or fill them in"
        )
    return table


def match_columns(table: Table, path: Path, expected: ExpectedInput) -> Table:
    """Return the table with the expected columns in their order; raise a ValueError where that is impossible."""
    from scipy.sparse import issparse

    sparse = bool(issparse(table.X))
    if sparse != expected.sparse:
        got = "sparse rows" if sparse else "dense columns"
        raise ValueError(f"{path}: got {got}, expected {expected}, as {expected.owner} has; convert the file")
    if table.feature_names is not None and expected.names is not None:
        X = _select_columns(table.X, table.feature_names, expected.names, path, expected.owner)
        if expected.owner == MODEL:  # another file may hold only a part of a worker, which says little about types
            _check_numbers(X, path, expected)
        return replace(table, X=X, feature_names=expected.names)
    if sparse and path.suffix.lower() != ".npz":
        return replace(table, X=_widen(table.X, path, expected))
    return table


def _select_columns(X: Any, names: tuple[str, ...], wanted: tuple[str, ...], path: Path, owner: str) -> Any:
    missing = [name for name in wanted if name not in names]
    if missing:
        raise ValueError(
            f"{path}: got no column {format_list(map(repr, missing))}, expected all {len(wanted)} columns of "
            f"{owner}; add what is missing"
        )
    unknown = [name for name in names if name not in wanted]
    if unknown:
        typer.echo(f"note: {path}: ignored {format_list(unknown)}, as {owner} has no such column", err=True)
    return X.set_axis(list(names), axis=1)[list(wanted)]


def _check_numbers(X: Any, path: Path, expected: ExpectedInput) -> None:
    """Refuse text in a column of numbers."""
    for name in expected.names or ():
        if name not in expected.text and X[name].dtype.kind == "O":
            place, value = next(
                ((i, v) for i, v in enumerate(X[name]) if isinstance(v, str) and not _is_number(v)), (None, None)
            )
            if place is not None:
                raise ValueError(
                    f"{path}: got the text {value!r} in column {name!r}, row {place + 1} (counted from 1, without a "
                    f"line of names), expected numbers, as {expected.owner} has; correct it, or leave the field empty"
                )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _widen(X: Any, path: Path, expected: ExpectedInput) -> Any:
    """Add the zero columns after the largest feature id, of which svmlight text knows nothing."""
    from scipy.sparse import csr_array

    if expected.n_columns is None or X.shape[1] == expected.n_columns:
        return X
    if X.shape[1] > expected.n_columns:
        raise ValueError(
            f"{path}: got the feature id {X.shape[1] - 1}, expected ids below {expected.n_columns}, the "
            f"number of columns of {expected.owner}; ids count columns from 0: if those of the file "
            "count from 1, subtract 1 from each; otherwise remove such ids, or train with a file that has them"
        )
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], expected.n_columns))


def check_output(path: Path, inputs: Iterable[Path | None]) -> None:
    """Refuse to write over an input file, or where nothing can be written."""
    from gbun.model_io.atomic import probe_target

    for source in inputs:
        if source is not None and path.exists() and source.exists() and path.samefile(source):
            raise ValueError(f"{path}: is an input of this command and would be lost; write to another file")
    probe_target(path)

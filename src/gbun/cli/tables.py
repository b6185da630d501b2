"""Tables for the commands: read from files, and made to fit what a model (or its training table) has seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbun.cli.screen import remark, shortened

if TYPE_CHECKING:
    from gbun.data.files import Table
    from gbun.model import Model


@dataclass(frozen=True)
class Input:
    """What rows must look like. `owner` is whose input it is, for error messages."""

    owner: str
    sparse: bool
    n_columns: int | None
    names: tuple[str, ...] | None
    text: tuple[str, ...]
    words: str

    @classmethod
    def of_model(cls, model: Model) -> Input:
        schema = model.description.schema
        sparse = schema.kind == "array" and model.ensemble.scaling.dense is None
        words = {
            "array": f"{'sparse' if sparse else 'dense'} rows of {schema.n_columns} columns",
            "frame": f"a table with the columns {shortened(schema.names or ())}",
        }.get(schema.kind, f"lists of {schema.kind}, which only Python can give")
        return cls("the model", sparse, schema.n_columns, schema.names, schema.categorical, words)

    @classmethod
    def of_table(cls, table: Table, path: Path) -> Input:
        sparse, n_columns = _is_sparse(table.X), table.X.shape[1]
        words = f"{'sparse' if sparse else 'dense'} rows of {n_columns} columns"
        named: Any = table.X if table.feature_names else {}
        text = tuple(str(name) for name in named if named[name].dtype.kind == "O")
        return cls(str(path), sparse, n_columns, table.feature_names, text, words)


def read(
    path: Path,
    target: str | None = None,
    weight: str | None = None,
    labels: Path | None = None,
    text: tuple[str, ...] = (),
    share: tuple[int, int] = (0, 1),
) -> Table:
    """The table in a file, or in several; columns named in `text` held words in training and hold words here.

    `share` is the rank of a worker and how many there are, each of which reads a part.
    """
    from gbun.data.shares import read_share

    try:
        return read_share(path, *share, target=target, weight=weight, labels=labels, text=text)
    except ImportError as error:  # a reader that is not installed; the message has the install command
        raise ValueError(str(error)) from error


def read_labelled(
    path: Path,
    target: str | None,
    weight: str | None,
    labels: Path | None,
    text: tuple[str, ...] = (),
    share: tuple[int, int] = (0, 1),
) -> Table:
    """A table whose rows all have a label."""
    table = read(path, target, weight, labels, text, share)
    if table.y is None:
        apart = "save them in it as y, or name their .npy file with --labels"
        how = "name their column with --target" if table.feature_names else apart
        raise ValueError(f"{path}: got no labels, expected one for each row; {how}")
    missing = _count_missing(table.y)
    if missing:
        raise ValueError(
            f"{path}: got {missing} rows without a label, expected one in each of {len(table.y)}; "
            "drop those rows or fill them in"
        )
    return table


def _count_missing(y: Any) -> int:
    if y.dtype.kind == "f":
        return int((y != y).sum())
    if y.dtype.kind != "O":
        return 0
    from pandas import isna  # only a data frame has objects for labels

    return int(isna(y).sum())


def fitted(table: Table, path: Path, expected: Input) -> Table:
    """The table with the columns that are expected, in their order; rows without them are refused."""
    if _is_sparse(table.X) != expected.sparse:
        got = "sparse rows" if _is_sparse(table.X) else "dense columns"
        raise ValueError(f"{path}: got {got}, expected {expected.words}, as {expected.owner} has; convert the file")
    if table.feature_names is not None and expected.names is not None:
        return replace(table, X=_named_columns(table, path, expected), feature_names=expected.names)
    if _is_sparse(table.X) and path.suffix.lower() != ".npz":
        return replace(table, X=_widened(table.X, path, expected))
    return table


def _named_columns(table: Table, path: Path, expected: Input) -> Any:
    found, wanted = table.feature_names or (), expected.names or ()
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(
            f"{path}: got no column {shortened(map(repr, missing))}, expected all {len(wanted)} columns of "
            f"{expected.owner}; add what is missing"
        )
    unknown = [name for name in found if name not in wanted]
    if unknown:
        remark(f"note: {path}: ignored {shortened(unknown)}, as {expected.owner} has no such column")
    X: Any = table.X
    X = X.set_axis([str(name) for name in X.columns], axis=1)
    return X[list(wanted)]


def _widened(X: Any, path: Path, expected: Input) -> Any:
    """svmlight text says nothing about columns after its largest id: they are there, and zero."""
    from scipy.sparse import csr_array

    if expected.n_columns is None or X.shape[1] == expected.n_columns:
        return X
    if X.shape[1] > expected.n_columns:
        raise ValueError(
            f"{path}: got the feature id {X.shape[1] - 1}, expected ids below {expected.n_columns}, the "
            f"number of columns of {expected.owner}; remove such ids, or train with a file that has them"
        )
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], expected.n_columns))


def check_output(path: Path, inputs: Iterable[Path | None]) -> None:
    """Refuse to write into a missing folder, or over a file that is being read."""
    from gbun.model_io.atomic import writable_target

    for source in inputs:
        if source is not None and path.exists() and source.exists() and path.samefile(source):
            raise ValueError(f"{path}: is an input of this command and would be lost; write to another file")
    writable_target(path)


def _is_sparse(X: Any) -> bool:
    from scipy.sparse import issparse

    return bool(issparse(X))

"""Read tables from files. The ending of a path tells the format; the first bytes of the file are checked against it."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gbun.data.npz import read_npz
from gbun.data.streams import (
    MAGIC_BYTES,
    PIECE,
    WHOLE_FILE,
    ContentTooLargeError,
    PathLike,
    Share,
    check_magic,
    check_share,
    explain_broken_content,
    limit_lines,
    open_content,
    read_first_line,
    share_bounds,
)

if TYPE_CHECKING:
    import pandas as pd

TableRows: TypeAlias = "scipy.sparse.csr_array | NDArray[Any] | pd.DataFrame"

_FORMATS = dict.fromkeys((".svm", ".svmlight", ".libsvm", ".txt"), "svmlight")
_FORMATS |= {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".npz": "npz"}


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a file, with targets and weights if it has them, and the names of its columns."""

    X: TableRows
    y: NDArray[Any] | None
    weight: NDArray[np.float64] | None
    feature_names: tuple[str, ...] | None


def read_table(
    path: PathLike,
    target: str | None = None,
    *,
    weight: str | None = None,
    labels: PathLike | None = None,
    text: Collection[str] = (),
    share: Share = WHOLE_FILE,
) -> Table:
    """Read a table; the ending of its path tells the format.

    .svm .svmlight .libsvm .txt  svmlight; its labels are y. May be compressed: .gz, .bz2 or .xz follows.
    .csv .tsv  UTF-8 with a line of column names. X is a pandas frame. May be compressed.
    .parquet   X is a pandas frame.
    .npz       Sparse: what scipy.sparse.save_npz writes, or arrays data, indices, indptr and shape. Dense: an array X.
               Arrays y and weight are optional. Pickled objects are never loaded.

    `target` and `weight` name columns of a .csv, .tsv or .parquet file, which then are not features; without `target`
    there is no y. Labels may be strings. `labels` is a .npy file that holds y when the .npz does not. In a .csv, empty
    fields and words such as NA are missing values, and the columns in `text` are read as strings even if they look like
    numbers.

    `share` = (rank, size) reads the rows of one of several workers, and little else of the file. All shares in order
    are the table, and a share may be empty. Text must not be compressed, and a .csv must not have a double quote below
    its names, as quotes may enclose a line end. A share knows its own rows only: its columns in svmlight end at its
    largest id, and pandas infers the types of a .csv from its rows, so one share may have numbers and another strings.
    """
    path = Path(path)
    form = _detect_format(path)
    label_sources = {"svmlight": "y is the first number of a line", "npz": "y and weight are arrays of that name"}
    for name, column in (("target", target), ("weight", weight)):
        if form in label_sources and column is not None:
            raise ValueError(
                f"{name}: got {column!r} for {path}, expected None, as {form} has no named columns: "
                f"{label_sources[form]}; leave {name} out"
            )
    if labels is not None and form != "npz":
        raise ValueError(
            f"labels: got {str(labels)!r} for {path}, expected None, as only .npz files may keep y apart; "
            f"{'leave labels out' if form == 'svmlight' else 'name the column in target'}"
        )
    if target is not None and target == weight:
        raise ValueError(f"weight: got {weight!r}, which is the target too, expected another column; name one")
    check_share(share)
    if form == "svmlight":
        from gbun.data.svmlight import read_svmlight  # needs numba, which takes a second to import

        table = Table(*read_svmlight(path, share), None, None)
    elif form == "npz":
        X, y, weights = read_npz(path, labels, share)
        table = Table(X, y, None if weights is None else _as_float64(path, "weight", weights), None)
    else:
        frame = _read_csv(path, text, share) if form == "csv" else _read_parquet(path, share)
        table = _split_frame(path, frame, target, weight)
    if share[1] == 1 and table.X.shape[0] == 0:
        raise ValueError(f"{path}: got no rows, expected at least one; check what wrote the file")
    return table


def _detect_format(path: Path) -> str:
    endings = [suffix.lower() for suffix in path.suffixes]
    compressed = bool(endings) and endings[-1] in MAGIC_BYTES
    last = endings[-2:] if compressed else endings[-1:]
    form = _FORMATS.get(last[0]) if last else None
    if form is None or (compressed and form in ("parquet", "npz")):
        raise ValueError(
            f"{path}: got the ending {''.join(last)!r}, expected one of {' '.join(_FORMATS)} (all but "
            f".parquet and .npz also followed by {' '.join(MAGIC_BYTES)}); rename or convert the file"
        )
    return form


def _load_pandas(path: Path, *also: str) -> Any:
    try:
        for module in also:
            import_module(module)
        return import_module("pandas")
    except ImportError as error:
        raise ImportError(
            f"{path}: reading it needs {error.name}, which is not installed; pip install 'gbun[frames]'"
        ) from error


def _read_csv(path: Path, text: Collection[str], share: Share) -> pd.DataFrame:
    pandas = _load_pandas(path)
    separator = "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]] else ","
    if share[1] == 1:
        with open_content(path) as stream:
            frame = _parse_csv(path, limit_lines(stream, path), pandas, separator, text)
        if _may_be_repaired(frame):
            with open_content(path) as stream:
                _check_lines(path, stream, separator, frame.shape[1])
        return frame
    names = read_first_line(path, blank=b" \t\r\n".replace(separator.encode(), b""))
    _parse_csv(path, io.BytesIO(names), pandas, separator, text)  # raises if the names leave a quote open
    rows = io.BytesIO()
    rows.write(names)
    with open_content(path, share, header_size=len(names)) as stream:
        for piece in iter(partial(limit_lines(stream, path).read, PIECE), b""):
            rows.write(piece)
            if b'"' in piece:
                raise ValueError(
                    f"{path}: got a double quote in the rows of worker {share[0]} of {share[1]}, expected none, as a "
                    "line end between quotes ends no row and the file cannot be cut; give one file per worker, or make "
                    "a .parquet of it"
                )
    rows.seek(0)
    frame = _parse_csv(path, rows, pandas, separator, text)
    if _may_be_repaired(frame):
        rows.seek(0)
        part = f" of the part of worker {share[0]}" if share[0] else ""
        _check_lines(path, rows, separator, frame.shape[1], part)
    return frame


def _parse_csv(path: Path, stream: IO[bytes], pandas: Any, separator: str, text: Collection[str]) -> pd.DataFrame:
    # open_content explains a truncated archive.
    try:
        # pandas' own conversion reads outside its tables where an exponent has ten digits; Python's is exact.
        options = {"low_memory": False, "float_precision": "round_trip"}
        frame: pd.DataFrame = pandas.read_csv(stream, sep=separator, dtype=dict.fromkeys(text, str), **options)
    except ContentTooLargeError:
        raise
    except ValueError as error:
        raise ValueError(
            f"{path}: got text that cannot be read ({' '.join(str(error).split())}), expected UTF-8 rows "
            f"of values separated by {separator!r} under a line of column names; correct or convert it"
        ) from error
    if not isinstance(frame.index, pandas.RangeIndex):
        raise ValueError(
            f"{path}: got rows with more values than the {frame.shape[1]} column names, expected as many; "
            "add the missing names, or remove separators at the ends of lines"
        )
    return frame


def _may_be_repaired(frame: pd.DataFrame) -> bool:
    """Return whether pandas may have filled rows that were too short, or renamed columns of one name: a, a.1."""
    names = {str(name) for name in frame.columns}
    renamed = any("." in name and name.rsplit(".", 1)[0] in names for name in names)
    return renamed or bool(frame.iloc[:, -1].isna().any())


def _check_lines(path: Path, stream: IO[bytes], separator: str, n_columns: int, part: str = "") -> None:
    """Refuse rows with fewer values than there are columns, and columns of one name."""
    texts = (line.decode("utf-8", "replace") for line in iter(stream.readline, b""))
    reader, names, last = csv.reader(texts, delimiter=separator), None, 0
    with suppress(csv.Error):  # text that pandas reads and this reader does not
        for row in reader:
            first, last = last + 1, reader.line_num
            if not any(field.strip("\ufeff \t\r\n") for field in row) and len(row) < 2:
                continue  # a blank line
            if names is None:
                names = [name.removeprefix("\ufeff").strip('"') for name in row]
                twice = sorted({name for name in names if name and names.count(name) > 1})
                if twice:
                    raise ValueError(
                        f"{path}: got several columns named {' and '.join(map(repr, twice))}, expected different "
                        "names; rename or remove some"
                    )
            elif len(row) < n_columns:
                raise ValueError(
                    f"{path}, line {first}{part}: got {len(row)} value{'s' if len(row) > 1 else ''}, expected "
                    f"{n_columns}, as many as there are column names; complete the line, with empty fields for missing "
                    "values"
                )


def _read_parquet(path: Path, share: Share) -> pd.DataFrame:
    """Read all rows, or the row groups that overlap with a share without the other rows of these groups."""
    pandas = _load_pandas(path, "pyarrow")
    check_magic(path, b"PAR1", "a parquet file")
    with explain_broken_content(path, "a whole parquet file", "copy or write it again"):
        frame: pd.DataFrame
        if share[1] == 1:
            frame = pandas.read_parquet(path, engine="pyarrow")
            return frame
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        with parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:  # or it holds a whole group
            ends = np.cumsum([0] + [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)])
            first, last = share_bounds(int(ends[-1]), share)
            groups = np.flatnonzero((ends[1:] > first) & (ends[:-1] < last)) if first < last else np.arange(0)
            at = int(ends[groups[0]]) if groups.size else 0
            kept = []
            # A batch has a few million values, however many columns there are.
            size = max(1, min(1 << 16, (1 << 22) // max(1, len(file.schema_arrow))))
            for batch in file.iter_batches(size, row_groups=groups.tolist()):
                skipped, at = max(first - at, 0), at + len(batch)
                if at > first:  # even an empty slice would keep its batch in memory
                    kept.append(batch.slice(skipped, len(batch) - skipped - max(at - last, 0)))
                if at >= last:
                    break
            frame = pyarrow.Table.from_batches(kept, file.schema_arrow).to_pandas()
    return frame


def _split_frame(path: Path, frame: pd.DataFrame, target: str | None, weight: str | None) -> Table:
    """Divide a frame into X, y and weight."""
    named = {name: column for name, column in (("target", target), ("weight", weight)) if column is not None}
    columns = [str(name) for name in frame.columns]
    for argument, column in named.items():
        if column not in frame.columns:
            folded = [name for name in columns if name.strip().casefold() == column.strip().casefold()]
            near = list(dict.fromkeys(folded + difflib.get_close_matches(column, columns)))[:3]
            listed = ", ".join(map(repr, columns[:20])) + f", ... ({len(columns)} in all)" * (len(columns) > 20)
            advice = f"did you mean {' or '.join(map(repr, near))}?" if near else "name one of them"
            raise ValueError(f"{argument}: got {column!r}, expected a column of {path}: {listed}; {advice}")
    X = frame.drop(columns=list(named.values()))
    if X.shape[1] == 0:
        raise ValueError(f"{path}: got no column besides {sorted(named.values())}, expected features; add some")
    y = None if target is None else frame[target].to_numpy()
    weights = None if weight is None else _as_float64(path, f"weight={weight!r}", frame[weight].to_numpy())
    return Table(X, y, weights, tuple(str(name) for name in X.columns))


def _as_float64(path: Path, name: str, values: NDArray[Any]) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path}, {name}: got {values.dtype} values ({error}), expected numbers; convert them first"
        ) from error

"""Tables from files: what a file holds is told by its ending and checked against its first bytes."""

from __future__ import annotations

import difflib
import errno
import io
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gbun.data.compression import (
    MAGIC,
    WHOLE,
    PathLike,
    Share,
    bounds,
    check_share,
    first_line,
    open_content,
)
from gbun.data.npz import SPARSE_PARTS, Npz

if TYPE_CHECKING:
    import pandas as pd

Matrix: TypeAlias = "scipy.sparse.csr_array | NDArray[Any] | pd.DataFrame"

_FORMATS = {
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".txt": "svmlight",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".npz": "npz",
}
_COMPRESSED = tuple(MAGIC)
_BROKEN = (
    EOFError,
    IndexError,
    KeyError,
    NotImplementedError,  # zip: an unknown compression method
    OSError,
    OverflowError,
    SyntaxError,  # numpy: a damaged header of an array
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as they were read: X by columns or ids, and what else the file says of each row."""

    X: Matrix
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
    share: Share = WHOLE,
) -> Table:
    """Reads a table by the ending of its path.

    .svm .svmlight .libsvm .txt  svmlight, its labels as y. May be compressed: .gz, .bz2 or .xz may follow.
    .csv .tsv  UTF-8 with a line of column names; X stays a pandas frame. May be compressed.
    .parquet   X stays a pandas frame.
    .npz       Sparse: what scipy.sparse.save_npz writes, or arrays data, indices, indptr and shape; with y
               and weight if they are there. Dense: array X, with y and weight likewise. `labels` names
               a .npy file that holds y when the .npz does not. Pickled objects are never loaded.

    `target` and `weight` name columns of a .csv, .tsv or .parquet file, which then are no features; without
    `target` the table has no y. Labels may be strings. In a .csv, empty fields and words such as NA are
    missing values, and the columns named in `text` are read as words even where they look like numbers.

    `share` = (rank, size) reads the rows of one of several workers, and little of the file besides: all shares,
    one after another, are the table. A share may have no rows. Text must not be compressed, and a .csv must have
    no double quote under its names, as a line end may be quoted. What a share cannot see it does not tell: its
    columns in svmlight are those up to its largest id, and pandas tells the types of a .csv from its rows alone,
    so that one share may have numbers where another has words.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "fruit.csv")
    ...     _ = path.write_text("size,colour,kind\\n3,red,apple\\n1,blue,plum\\n")
    ...     table = read_table(path, "kind")
    >>> table.feature_names, table.y
    (('size', 'colour'), array(['apple', 'plum'], dtype=object))
    """
    path = Path(path)
    form = _format(path)
    _check_arguments(path, form, target, weight, labels)
    check_share(share)
    if form == "svmlight":
        table = _read_svmlight(path, share)
    elif form == "npz":
        table = _read_npz(path, labels) if share[1] == 1 else _read_npz_share(path, labels, share)
    else:
        frame = _read_csv(path, text, share) if form == "csv" else _read_parquet(path, share)
        table = _divided(path, frame, target, weight)
    if share[1] == 1 and table.X.shape[0] == 0:
        raise ValueError(f"{path}: got no rows, expected at least one; check what wrote the file")
    return table


def _format(path: Path) -> str:
    endings = [suffix.lower() for suffix in path.suffixes]
    compressed = bool(endings) and endings[-1] in _COMPRESSED
    last = endings[-2:] if compressed else endings[-1:]
    form = _FORMATS.get(last[0]) if last else None
    if form is None or (compressed and form in ("parquet", "npz")):
        raise ValueError(
            f"{path}: got the ending {''.join(last)!r}, expected one of {' '.join(_FORMATS)} (all but "
            f".parquet and .npz also followed by {' '.join(_COMPRESSED)}); rename or convert the file"
        )
    return form


def _check_arguments(path: Path, form: str, target: str | None, weight: str | None, labels: PathLike | None) -> None:
    own = {"svmlight": "y is the first number of a line", "npz": "y and weight are arrays of that name"}
    for name, column in (("target", target), ("weight", weight)):
        if form in own and column is not None:
            raise ValueError(
                f"{name}: got {column!r} for {path}, expected None, as {form} has no named columns: "
                f"{own[form]}; leave {name} out"
            )
    if labels is not None and form != "npz":
        raise ValueError(
            f"labels: got {str(labels)!r} for {path}, expected None, as only .npz files may keep y apart; "
            f"{'leave labels out' if form == 'svmlight' else 'name the column in target'}"
        )
    if target is not None and target == weight:
        raise ValueError(f"weight: got {weight!r}, which is the target too, expected another column; name one")


def _read_svmlight(path: Path, share: Share) -> Table:
    from gbun.data.svmlight import read_svmlight

    X, y = read_svmlight(path, share)
    return Table(X, y, None, None)


@contextmanager
def _readable(path: Path, expected: str, advice: str) -> Iterator[None]:
    """Whatever a reader says of broken content becomes one ValueError; the disk's own errors stay."""
    try:
        yield
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # to seek before the file's begin
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{path}: got content that cannot be read ({reason}), expected {expected}; {advice}"
        ) from error


def _check_magic(path: Path, magic: bytes, expected: str) -> None:
    with open_content(path) as stream:
        first = stream.read(len(magic))
    if first != magic:
        raise ValueError(
            f"{path}: got content that begins with {first!r}, expected {expected}, beginning with {magic!r}; "
            "give the file the ending of what it holds"
        )


def _pandas(path: Path, *also: str) -> Any:
    try:
        for module in also:
            import_module(module)
        return import_module("pandas")
    except ImportError as error:
        raise ImportError(
            f"{path}: reading it needs {error.name}, which is not installed; pip install 'gbun[frames]'"
        ) from error


def _read_csv(path: Path, text: Collection[str], share: Share) -> pd.DataFrame:
    pandas = _pandas(path)
    separator = "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]] else ","
    if share[1] == 1:
        with open_content(path) as stream:
            return _parsed_csv(path, stream, pandas, separator, text)
    names = first_line(path, blank=b" \t\r\n".replace(separator.encode(), b""))
    _parsed_csv(path, io.BytesIO(names), pandas, separator, text)  # a quote left open there would be told
    with open_content(path, share, after=len(names)) as stream:
        rows = stream.read()
    if b'"' in rows:
        raise ValueError(
            f"{path}: got a double quote in the rows of worker {share[0]} of {share[1]}, expected none, as a line end "
            "between quotes ends no row and the file cannot be cut; give one file per worker, or make a .parquet of it"
        )
    return _parsed_csv(path, io.BytesIO(names + rows), pandas, separator, text)


def _parsed_csv(path: Path, stream: IO[bytes], pandas: Any, separator: str, text: Collection[str]) -> pd.DataFrame:
    # A truncated archive is told by open_content, in its own words.
    try:
        frame: pd.DataFrame = pandas.read_csv(stream, sep=separator, low_memory=False, dtype=dict.fromkeys(text, str))
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


def _read_parquet(path: Path, share: Share) -> pd.DataFrame:
    pandas = _pandas(path, "pyarrow")
    _check_magic(path, b"PAR1", "a parquet file")
    with _readable(path, "a whole parquet file", "copy or write it again"):
        frame: pd.DataFrame
        frame = pandas.read_parquet(path, engine="pyarrow") if share[1] == 1 else _parquet_rows(path, share)
    return frame


def _parquet_rows(path: Path, share: Share) -> pd.DataFrame:
    """The rows of a share, from the row groups that have some. Of these, others are decoded and dropped."""
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    with parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:  # or a group is held whole
        ends = np.cumsum([0] + [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)])
        first, last = bounds(int(ends[-1]), share)
        groups = np.flatnonzero((ends[1:] > first) & (ends[:-1] < last)) if first < last else np.arange(0)
        at = int(ends[groups[0]]) if groups.size else 0
        kept = []
        # A batch is of some million values, however many columns there are.
        size = max(1, min(1 << 16, (1 << 22) // max(1, len(file.schema_arrow))))
        for batch in file.iter_batches(size, row_groups=groups.tolist()):
            skipped, at = max(first - at, 0), at + len(batch)
            if at > first:  # even an empty slice would hold its batch
                kept.append(batch.slice(skipped, len(batch) - skipped - max(at - last, 0)))
            if at >= last:
                break
        frame: pd.DataFrame = pyarrow.Table.from_batches(kept, file.schema_arrow).to_pandas()
    return frame


def _divided(path: Path, frame: pd.DataFrame, target: str | None, weight: str | None) -> Table:
    """The frame divided into X, y and weight."""
    named = {name: column for name, column in (("target", target), ("weight", weight)) if column is not None}
    for argument, column in named.items():
        if column not in frame.columns:
            raise ValueError(_no_column(path, argument, column, [str(name) for name in frame.columns]))
    X = frame.drop(columns=list(named.values()))
    if X.shape[1] == 0:
        raise ValueError(f"{path}: got no column besides {sorted(named.values())}, expected features; add some")
    y = None if target is None else frame[target].to_numpy()
    weights = None if weight is None else _numbers(path, f"weight={weight!r}", frame[weight].to_numpy())
    return Table(X, y, weights, tuple(str(name) for name in X.columns))


def _no_column(path: Path, argument: str, column: str, columns: list[str]) -> str:
    near = difflib.get_close_matches(column, columns, n=3, cutoff=0.6)
    folded = [name for name in columns if name.strip().casefold() == column.strip().casefold()]
    guess = list(dict.fromkeys(folded + near))[:3]
    listed = ", ".join(map(repr, columns[:20])) + (f", ... ({len(columns)} in all)" if len(columns) > 20 else "")
    advice = f"did you mean {' or '.join(map(repr, guess))}?" if guess else "name one of them"
    return f"{argument}: got {column!r}, expected a column of {path}: {listed}; {advice}"


def _numbers(path: Path, name: str, values: NDArray[Any]) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path}, {name}: got {values.dtype} values ({error}), expected numbers; convert them first"
        ) from error


def _readable_npz(path: Path) -> AbstractContextManager[None]:
    return _readable(path, "a whole .npz of numbers or fixed-width strings", "save it again, without objects")


def _read_npz(path: Path, labels: PathLike | None) -> Table:
    # Checked first, as numpy would tell of anything else that it is a pickle.
    _check_magic(path, b"PK\x03\x04", "an .npz archive")
    with _readable_npz(path):
        archive = np.load(path, allow_pickle=False)
    with archive:
        names = set(archive.files)
        _check_names(path, names, labels)
        with _readable_npz(path):
            X = _sparse(path, archive) if _is_sparse(names) else archive["X"]
            y, weight = (archive[name] if name in names else None for name in ("y", "weight"))
    y = y if labels is None else _read_labels(Path(labels))
    _check_shapes(path, X, y, weight)
    return Table(X, y, None if weight is None else _numbers(path, "weight", weight), None)


def _is_sparse(names: set[str]) -> bool:
    return set(SPARSE_PARTS) <= names or "format" in names


def _check_names(path: Path, names: set[str], labels: PathLike | None) -> None:
    if not _is_sparse(names) and "X" not in names:
        raise ValueError(
            f"{path}: got the arrays {sorted(names)}, expected X, or the parts of a sparse matrix "
            f"({', '.join(SPARSE_PARTS)}); save them under these names"
        )
    if "y" in names and labels is not None:
        raise ValueError(f"labels: got {str(labels)!r}, expected None, as {path} holds y itself; leave labels out")


def _sparse(path: Path, archive: Any) -> scipy.sparse.csr_array:
    if "format" in archive.files:
        matrix: Any = scipy.sparse.load_npz(path)
    else:
        data, indices, indptr, shape = (archive[name] for name in SPARSE_PARTS)
        matrix = scipy.sparse.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
    if matrix.format in ("csr", "csc", "bsr"):
        # An index outside the shape would make compiled code read outside its arrays.
        matrix.check_format(full_check=True)
    return scipy.sparse.csr_array(matrix)


def _read_labels(path: Path, mode: Literal["r"] | None = None) -> NDArray[Any]:
    """The labels in a .npy file; in mode "r" they stay there until they are copied."""
    _check_magic(path, b"\x93NUMPY", "a .npy file")
    with _readable(path, "a whole .npy of numbers or fixed-width strings", "save it again, without objects"):
        y: NDArray[Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
    return y


def _check_shapes(path: Path, X: Any, y: Any, weight: Any) -> None:
    """Of the arrays of an .npz, or of what is said there of them; a frame cannot have others."""
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise ValueError(
            f"{path}: got X of shape {X.shape} and {X.dtype}, expected rows x columns of real numbers; "
            "reshape or convert it"
        )
    for name, values in (("y", y), ("weight", weight)):
        if values is not None and values.shape != X.shape[:1]:
            raise ValueError(
                f"{path}: got {name} of shape {values.shape} for {X.shape[0]} rows of X, expected "
                f"({X.shape[0]},); save one value per row"
            )


def _read_npz_share(path: Path, labels: PathLike | None, share: Share) -> Table:
    _check_magic(path, b"PK\x03\x04", "an .npz archive")
    with _readable_npz(path):
        archive = Npz(path)
    with archive:
        names = archive.names
        _check_names(path, names, labels)
        with _readable_npz(path):
            form = np.char.decode(archive.rows("format").astype("S"))[0] if "format" in names else "csr"
        if form != "csr":
            raise ValueError(
                f"{path}: got a sparse matrix of format {form!s} for worker {share[0]} of {share[1]}, expected csr, "
                "the one whose rows lie together; save X.tocsr(), or give one file per worker"
            )
        with _readable_npz(path):
            said = {name: archive.stored(name) for name in ("X", "y", "weight") if name in names}
            X = archive.csr() if _is_sparse(names) else said["X"]
        apart = None if labels is None else _read_labels(Path(labels), "r")
        _check_shapes(path, X, said.get("y") if apart is None else apart, said.get("weight"))
        first, last = bounds(X.shape[0], share)
        with _readable_npz(path):
            rows: Matrix
            rows = archive.csr_rows(first, last) if _is_sparse(names) else archive.rows("X", first, last)
            y, weight = (archive.rows(name, first, last) if name in said else None for name in ("y", "weight"))
    y = y if apart is None else np.array(apart[first:last])
    return Table(rows, y, None if weight is None else _numbers(path, "weight", weight), None)

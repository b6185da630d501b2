"""Assign files, or parts of a file, to workers, and read what a worker was assigned as one table."""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse

from gbun.data.files import Table, TableRows, read_table
from gbun.data.streams import MAGIC_BYTES, WHOLE_FILE, PathLike, Share, check_share

if TYPE_CHECKING:
    import pandas as pd

Paths: TypeAlias = "PathLike | Sequence[PathLike]"

_RANK_FIELD = re.compile(r"\{rank(?::(\d+))?\}")
_HIDDEN_PREFIXES = (".", "_")
_NUMBER_TYPES = (bool, int, float, np.number, np.bool_)


def assign_files(paths: Paths, rank: int, size: int) -> list[tuple[Path, Share]]:
    """Choose the files that worker `rank` of `size` reads, and the share that it reads of each.

    `paths` is a file, a pattern such as 'part-*.svm', a folder, or a list of these. All workers must see the same
    files. If there are at least as many files as workers, each file is read by one worker, and the bytes to read are
    balanced. If there are fewer, several workers share a large file; compressed files cannot be shared. Folders and
    patterns leave out empty files and names that begin with '.' or '_'.

    A path with {rank}, or {rank:05} for leading zeros, is a file of that worker alone; other workers need not see it.
    """
    check_share((rank, size))
    files, is_per_rank = _expand_paths(paths, rank)
    if is_per_rank:
        return [(file, WHOLE_FILE) for file in files]
    sizes = [file.stat().st_size for file in files]
    if len(files) >= size:
        # The largest file first, each to the worker with the fewest bytes so far.
        loads, assigned = [(0, 0, worker) for worker in range(size)], set()
        for i in sorted(range(len(files)), key=lambda i: -sizes[i]):
            load, n_files, worker = loads[0]
            heapq.heapreplace(loads, (load + sizes[i], n_files + 1, worker))
            assigned |= {i} if worker == rank else set()
        return [(files[i], WHOLE_FILE) for i in sorted(assigned)]
    plain = [i for i, file in enumerate(files) if file.suffix.lower() not in MAGIC_BYTES]
    if not plain:
        raise ValueError(
            f"{', '.join(map(str, files[:3]))}: got {len(files)} compressed files for {size} workers, expected "
            "one for each at least, as compressed text cannot be cut; decompress them, or write more files"
        )
    counts = [1] * len(files)  # each further worker goes where one has most to read
    for _ in range(size - len(files)):
        counts[max(plain, key=lambda i: sizes[i] / counts[i])] += 1
    return [[(file, (part, n)) for file, n in zip(files, counts, strict=True) for part in range(n)][rank]]


def read_share(
    paths: Paths,
    rank: int,
    size: int,
    *,
    target: str | None = None,
    weight: str | None = None,
    labels: PathLike | None = None,
    text: Collection[str] = (),
) -> Table:
    """Read the rows of worker `rank` of `size` as one table; see `assign_files`, and `read_table` for the arguments.

    Files must have one format and the same columns; sparse rows get the columns of the widest file. A share without
    rows knows its columns but not their types in a .csv, and no columns in svmlight. `labels` belongs to a single
    .npz, or has {rank} if the path has it.
    """
    pairs = assign_files(paths, rank, size)
    if labels is not None:
        files, is_per_rank = _expand_paths(paths, rank)
        if len(files) > 1:
            raise ValueError(
                f"labels: got {str(labels)!r} for {len(files)} files, expected None, as it goes with one; "
                "save y in each"
            )
        if is_per_rank != bool(_RANK_FIELD.search(str(labels))):
            raise ValueError(
                f"labels: got {str(labels)!r} for {str(paths)!r}, expected {{rank}} in both or in none; name both alike"
            )
        labels = _fill_rank(labels, rank)
    tables = [read_table(path, target, weight=weight, labels=labels, text=text, share=share) for path, share in pairs]
    return tables[0] if len(tables) == 1 else _join_tables([path for path, _ in pairs], tables)


# Files


def _expand_paths(paths: Paths, rank: int) -> tuple[list[Path], bool]:
    """Return the files of all workers and False, or those of this worker and True where paths have {rank}."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ValueError(f"paths: got {paths!r}, expected a file, a pattern, a folder or a list of them; name some")
    is_per_rank = [bool(_RANK_FIELD.search(str(path))) for path in given]
    if all(is_per_rank):
        return [_fill_rank(path, rank) for path in given], True
    if any(is_per_rank):
        raise ValueError(f"paths: got {given!r}, expected {{rank}} in all of them or in none; read them apart")
    files = [file for path in given for file in _find_files(Path(path))]
    if len(set(files)) < len(files):
        twice = next(file for file in files if files.count(file) > 1)
        raise ValueError(f"paths: got {twice} twice, expected each file once; leave one out")
    return files, False


def _fill_rank(path: PathLike, rank: int) -> Path:
    return Path(_RANK_FIELD.sub(lambda field: f"{rank:0{field[1] or 1}}", str(path)))


def _find_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        files = [file for file in path.iterdir() if file.is_file() and not file.name.startswith(_HIDDEN_PREFIXES)]
    else:
        parts = path.parts
        begin = next((i for i, part in enumerate(parts) if set(part) & set("*?[")), None)
        if begin is None:
            raise FileNotFoundError(f"{path}: no such file from {Path.cwd()}; check the path")
        hidden = tuple(set(_HIDDEN_PREFIXES) - set(path.name[0]))
        matching = Path(*parts[:begin]).glob(str(Path(*parts[begin:])))
        files = [file for file in matching if file.is_file() and not file.name.startswith(hidden)]
    files = [file for file in files if file.stat().st_size] or files  # some tools write empty parts
    if not files:
        kind = "folder without files" if path.is_dir() else "pattern that no file matches"
        raise ValueError(f"{path}: got a {kind}, from {Path.cwd()}, expected at least one; check the path")
    return sorted(files)


# Tables


def _join_tables(paths: Sequence[Path], tables: Sequence[Table]) -> Table:
    first, wanted = tables[0], _describe_table(tables[0])
    for path, table in zip(paths[1:], tables[1:], strict=True):
        if (layout := _describe_table(table)) != wanted:
            raise ValueError(f"{path}: got {layout}, expected {wanted}, as {paths[0]} has; write the files alike")
        if table.feature_names != first.feature_names:
            has, needs = table.feature_names or (), first.feature_names or ()
            missing, new = [name for name in needs if name not in has], [name for name in has if name not in needs]
            how = f"missing {missing[:5]}, new {new[:5]}" if missing or new else "the same in another order"
            raise ValueError(f"{path}: got other columns ({how}), expected those of {paths[0]}; write the files alike")
    matrices: list[Any] = [table.X for table in tables]
    if scipy.sparse.issparse(matrices[0]):
        width = max(X.shape[1] for X in matrices)
        widened = [scipy.sparse.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], width)) for X in matrices]
        X: TableRows = scipy.sparse.vstack(widened, format="csr")
    elif isinstance(matrices[0], np.ndarray):
        X = np.concatenate(matrices)
    else:
        X = _join_frames(paths, matrices)
    # All tables have y and weight, or none has: their descriptions are the same.
    ys = [table.y for table in tables if table.y is not None]
    weights = [table.weight for table in tables if table.weight is not None]
    if ys:
        _check_one_kind(paths, "y", ys)
    y, weight = (np.concatenate(parts) if parts else None for parts in (ys, weights))
    return Table(X, y, weight, first.feature_names)


def _describe_table(table: Table) -> str:
    rows = "named columns" if table.feature_names is not None else f"rows of {table.X.shape[1]} columns"
    if scipy.sparse.issparse(table.X):
        rows = "sparse rows"
    y, weight = ("without" if part is None else "with" for part in (table.y, table.weight))
    return f"{rows} {y} y and {weight} weight"


def _join_frames(paths: Sequence[Path], parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate frames; a column keeps its kind if one part has other categories, or only missing values."""
    pandas = import_module("pandas")
    frames = [part.set_axis(parts[0].columns, axis=1) for part in parts]
    for name in parts[0].columns:
        columns: list[Any] = [frame[name] for frame in frames]
        if len({column.dtype for column in columns}) == 1 and columns[0].dtype != object:
            continue
        kind = _check_one_kind(paths, f"column {name!r}", columns)
        filled = [column for column in columns if column.notna().any()]
        if kind is None:
            continue
        dtype = np.dtype(np.float64) if kind == "numbers" else filled[0].dtype
        if dtype.name == "category":
            dtype = pandas.CategoricalDtype(pandas.api.types.union_categoricals(filled, ignore_order=True).categories)
        for frame, column in zip(frames, columns, strict=True):
            if not column.notna().any():
                frame[name] = pandas.Series(np.nan, index=frame.index, dtype=dtype)
            elif dtype.name == "category":
                frame[name] = column.astype(dtype)
    joined: pd.DataFrame = pandas.concat(frames, ignore_index=True)
    return joined


def _check_one_kind(paths: Sequence[Path], name: str, parts: Sequence[Any]) -> str | None:
    """Return the kind of values of all parts that are not missing everywhere, and check that it is one kind."""
    first: tuple[Path, str] | None = None
    for path, part in zip(paths, parts, strict=True):
        kind = _detect_kind(part)
        if first is not None and kind is not None and kind != first[1]:
            raise ValueError(
                f"{path}, {name}: got {kind}, expected {first[1]}, as {first[0]} has; convert one of them, or for a "
                ".csv name the column in text"
            )
        first = first or (None if kind is None else (path, kind))
    return None if first is None else first[1]


def _detect_kind(part: Any) -> str | None:
    """Name the kind of values of a column or a vector of labels; None if all are missing."""
    if isinstance(part, np.ndarray) and part.dtype.kind != "O":
        return {"U": "words", "S": "bytes"}.get(part.dtype.kind, "numbers")
    values = import_module("pandas").Series(part).dropna()
    if values.empty:
        return None
    if values.dtype.name == "category":
        return f"categories of {values.cat.categories.dtype}"
    if values.dtype.kind in "biuf" or isinstance(values.iloc[0], _NUMBER_TYPES):
        return "numbers"
    return "words" if isinstance(values.iloc[0], str) else type(values.iloc[0]).__name__

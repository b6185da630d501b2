"""Which files, or which part of one, each of several workers reads; and what it reads, as one table."""

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
from numpy.typing import NDArray

from gbun.data.compression import MAGIC, WHOLE, PathLike, Share, check_share
from gbun.data.files import Matrix, Table, read_table

if TYPE_CHECKING:
    import pandas as pd

Paths: TypeAlias = "PathLike | Sequence[PathLike]"

_OWN = re.compile(r"\{rank(?::(\d+))?\}")
_HIDDEN = (".", "_")
_NUMBER = (bool, int, float, np.number, np.bool_)


def files_of(paths: Paths, rank: int, size: int) -> list[tuple[Path, Share]]:
    """What worker `rank` of `size` reads: files, and for each the share of it that is to be read.

    `paths` is a file, a pattern such as 'part-*.svm', a folder, whose files are meant, or a list of these. All
    workers must see the same files. If there are as many as workers, each is read whole by one of them, and the
    bytes to read are balanced; if there are fewer, workers share them, the more the larger a file is, but
    compressed ones are not shared. In folders and patterns, names that begin with '.' or '_' are not found, and
    files without a byte are passed over.

    A path with {rank}, or {rank:05} for leading zeros, is a file of the worker's own, read whole; other workers
    need not see it.

    >>> files_of("rows-{rank:02}.svm", 3, 8)[0][0].name
    'rows-03.svm'
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, length in (("a.svm", 100), ("b.svm", 200)):
    ...         _ = Path(folder, name).write_text("1" * length)
    ...     shares = [files_of(folder, rank, 3) for rank in range(3)]
    >>> [[(path.name, share) for path, share in worker] for worker in shares]
    [[('a.svm', (0, 1))], [('b.svm', (0, 2))], [('b.svm', (1, 2))]]
    """
    check_share((rank, size))
    found, own = _listed(paths, rank)
    if own:
        return [(path, WHOLE) for path in found]
    sizes = [path.stat().st_size for path in found]
    if len(found) >= size:
        return [(path, WHOLE) for path, worker in zip(found, _dealt(sizes, size), strict=True) if worker == rank]
    workers = _divided(found, sizes, size)
    pairs = [(path, (part, n)) for path, n in zip(found, workers, strict=True) for part in range(n)]
    return [pairs[rank]]


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
    """The rows of worker `rank` of `size` as one table; see `files_of` and, for the arguments, `read_table`.

    Files must be of one kind and have the same columns; sparse rows have as many as the widest. A share may have
    no rows, and then knows its columns but not their types in a .csv, and no columns in svmlight. `labels` goes
    with one .npz, or has {rank} as the path has.
    """
    pairs = files_of(paths, rank, size)
    if labels is not None:
        labels = _labels_of(labels, paths, rank)
    tables = [read_table(path, target, weight=weight, labels=labels, text=text, share=share) for path, share in pairs]
    return tables[0] if len(tables) == 1 else _joined([path for path, _ in pairs], tables)


# Files


def _listed(paths: Paths, rank: int) -> tuple[list[Path], bool]:
    """The files that are meant, and whether they are the worker's own."""
    asked = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not asked:
        raise ValueError(f"paths: got {paths!r}, expected a file, a pattern, a folder or a list of them; name some")
    own = [bool(_OWN.search(str(path))) for path in asked]
    if all(own):
        return [Path(_OWN.sub(lambda found: f"{rank:0{found[1] or 1}}", str(path))) for path in asked], True
    if any(own):
        raise ValueError(f"paths: got {asked!r}, expected {{rank}} in all of them or in none; read them apart")
    found = [file for path in asked for file in _found(Path(path))]
    if len(set(found)) < len(found):
        twice = next(file for file in found if found.count(file) > 1)
        raise ValueError(f"paths: got {twice} twice, expected each file once; leave one out")
    return found, False


def _found(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        files = [file for file in path.iterdir() if file.is_file() and not file.name.startswith(_HIDDEN)]
    else:
        parts = path.parts
        begin = next((i for i, part in enumerate(parts) if set(part) & set("*?[")), None)
        if begin is None:
            raise FileNotFoundError(f"{path}: no such file from {Path.cwd()}; check the path")
        hidden = tuple(set(_HIDDEN) - set(path.name[0]))
        matching = Path(*parts[:begin]).glob(str(Path(*parts[begin:])))
        files = [file for file in matching if file.is_file() and not file.name.startswith(hidden)]
    files = [file for file in files if file.stat().st_size] or files  # parts without rows, as some tools write them
    if not files:
        kind = "folder without files" if path.is_dir() else "pattern that no file matches"
        raise ValueError(f"{path}: got a {kind}, from {Path.cwd()}, expected at least one; check the path")
    return sorted(files)


def _dealt(sizes: Sequence[int], n_workers: int) -> list[int]:
    """The worker of each file: the largest first, each to the one that has the least to read."""
    workers = [0] * len(sizes)
    loads = [(0, 0, rank) for rank in range(n_workers)]
    for file in sorted(range(len(sizes)), key=lambda file: -sizes[file]):
        load, n_files, rank = loads[0]
        heapq.heapreplace(loads, (load + sizes[file], n_files + 1, rank))
        workers[file] = rank
    return workers


def _divided(files: Sequence[Path], sizes: Sequence[int], n_workers: int) -> list[int]:
    """The number of workers of each file: one, and each further one where there is most to read for each."""
    workers = [1] * len(files)
    plain = [i for i, file in enumerate(files) if file.suffix.lower() not in MAGIC]
    if not plain:
        raise ValueError(
            f"{', '.join(map(str, files[:3]))}: got {len(files)} compressed files for {n_workers} workers, expected "
            "one for each at least, as compressed text cannot be cut; decompress them, or write more files"
        )
    for _ in range(n_workers - len(files)):
        # Of equal ones, the first.
        workers[max(plain, key=lambda file: sizes[file] / workers[file])] += 1
    return workers


def _labels_of(labels: PathLike, paths: Paths, rank: int) -> Path:
    found, own = _listed(paths, rank)
    if len(found) > 1:
        raise ValueError(
            f"labels: got {str(labels)!r} for {len(found)} files, expected None, as it goes with one; save y in each"
        )
    (path,), is_own = _listed(labels, rank) if _OWN.search(str(labels)) else ([Path(labels)], False)
    if own != is_own:
        raise ValueError(
            f"labels: got {str(labels)!r} for {str(paths)!r}, expected {{rank}} in both or in none; name both alike"
        )
    return path


# Tables


def _joined(paths: Sequence[Path], tables: Sequence[Table]) -> Table:
    for path, table in zip(paths[1:], tables[1:], strict=True):
        _check_alike(paths[0], tables[0], path, table)
    matrices: list[Any] = [table.X for table in tables]
    if scipy.sparse.issparse(matrices[0]):
        width = max(X.shape[1] for X in matrices)
        widened = [scipy.sparse.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], width)) for X in matrices]
        X: Matrix = scipy.sparse.vstack(widened, format="csr")
    elif isinstance(matrices[0], np.ndarray):
        X = np.concatenate(matrices)
    else:
        X = _joined_frames(paths, matrices)
    weight = _joined_vectors([table.weight for table in tables])
    y = _joined_vectors([table.y for table in tables])
    if y is not None:
        _one_kind(paths, "y", [table.y for table in tables])
    return Table(X, y, weight, tables[0].feature_names)


def _joined_vectors(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    held = [part for part in parts if part is not None]
    return np.concatenate(held) if held else None


def _check_alike(first: Path, expected: Table, path: Path, got: Table) -> None:
    if _storage(got) != _storage(expected):
        raise ValueError(
            f"{path}: got {_storage(got)}, expected {_storage(expected)}, as {first} has; write the files alike"
        )
    if got.feature_names != expected.feature_names:
        has, needs = got.feature_names or (), expected.feature_names or ()
        missing, new = [name for name in needs if name not in has], [name for name in has if name not in needs]
        how = f"missing {missing[:5]}, new {new[:5]}" if missing or new else "the same in another order"
        raise ValueError(f"{path}: got other columns ({how}), expected those of {first}; write the files alike")


def _storage(table: Table) -> str:
    """What a table is made of, in words."""
    if scipy.sparse.issparse(table.X):
        rows = "sparse rows"
    else:
        rows = "named columns" if table.feature_names is not None else f"rows of {table.X.shape[1]} columns"
    y, weight = ("without" if part is None else "with" for part in (table.y, table.weight))
    return f"{rows} {y} y and {weight} weight"


def _joined_frames(paths: Sequence[Path], parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The parts under each other; a column keeps its kind where a part has other categories, or nothing in it."""
    pandas = import_module("pandas")
    frames = [part.set_axis(parts[0].columns, axis=1) for part in parts]
    for name in parts[0].columns:
        columns: list[Any] = [frame[name] for frame in frames]
        if len({column.dtype for column in columns}) == 1 and columns[0].dtype != object:
            continue
        kind = _one_kind(paths, f"column {name!r}", columns)
        held = [column for column in columns if column.notna().any()]
        if kind is None:
            continue
        dtype = np.dtype(np.float64) if kind == "numbers" else held[0].dtype
        if dtype.name == "category":
            dtype = pandas.CategoricalDtype(pandas.api.types.union_categoricals(held, ignore_order=True).categories)
        for frame, column in zip(frames, columns, strict=True):
            if not column.notna().any():
                frame[name] = pandas.Series(np.nan, index=frame.index, dtype=dtype)
            elif dtype.name == "category":
                frame[name] = column.astype(dtype)
    joined: pd.DataFrame = pandas.concat(frames, ignore_index=True)
    return joined


def _one_kind(paths: Sequence[Path], name: str, parts: Sequence[Any]) -> str | None:
    """What all parts hold that hold something; it must be the same."""
    first: tuple[Path, str] | None = None
    for path, part in zip(paths, parts, strict=True):
        kind = _kind(part)
        if first is not None and kind is not None and kind != first[1]:
            raise ValueError(
                f"{path}, {name}: got {kind}, expected {first[1]}, as {first[0]} has; convert one of them, or for a "
                ".csv name the column in text"
            )
        first = first or (None if kind is None else (path, kind))
    return None if first is None else first[1]


def _kind(part: Any) -> str | None:
    """What a column, or a vector of labels, holds; None if everything is missing."""
    if isinstance(part, np.ndarray) and part.dtype.kind != "O":
        return {"U": "words", "S": "bytes"}.get(part.dtype.kind, "numbers")
    held = import_module("pandas").Series(part).dropna()
    if held.empty:
        return None
    if held.dtype.name == "category":
        return f"categories of {held.cat.categories.dtype}"
    if held.dtype.kind in "biuf":
        return "numbers"
    value = held.iloc[0]
    return "words" if isinstance(value, str) else "numbers" if isinstance(value, _NUMBER) else type(value).__name__

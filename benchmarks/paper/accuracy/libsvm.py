"""The paper's sets from the original files of the LIBSVM collection, by the names they have there.

A file may lie in the folder itself or in one named after its set, plain or compressed (.bz2, .xz, .gz).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import scipy.sparse as sp

from benchmarks.accuracy.dense import Split
from benchmarks.accuracy.problems import SPLIT_SEED
from gbun.data.compression import WHOLE, open_content
from gbun.data.svmlight import read_svmlight

ENDINGS = ("", ".bz2", ".xz", ".gz")


@dataclass(frozen=True)
class Originals:
    """File names, of which the first that is there is read. Without `test` the rows are divided here."""

    train: tuple[str, ...]
    test: tuple[str, ...] = ()
    dense: bool = False
    first_rows: int | None = None
    """Only so many of the training rows: the paper's, or a sample."""
    first_test_rows: int | None = None
    test_share: float = 0.2
    stratified: bool = True

    @property
    def source(self) -> str:
        told = "LIBSVM files"
        if self.first_test_rows is None:
            return told
        return f"{told}, a sample: the first {self.first_rows} training and {self.first_test_rows} test rows"


ORIGINALS = {
    "letter": Originals(("letter.scale",), ("letter.scale.t",), dense=True, first_rows=10500),
    "news20_binary": Originals(("news20.binary",)),
    "news20_multi": Originals(("news20", "news20.scale"), ("news20.t", "news20.t.scale", "news20.scale.t")),
    "rcv1_binary": Originals(("rcv1_train.binary",), ("rcv1_test.binary",)),
    "aloi": Originals(("aloi.scale", "aloi"), dense=True, test_share=0.3, stratified=False),
    # 400,000 dense rows of 2000 columns are more than a learner may hold.
    "epsilon": Originals(
        ("epsilon_normalized",), ("epsilon_normalized.t",), dense=True, first_rows=20_000, first_test_rows=20_000
    ),
    "a9a": Originals(("a9a",), ("a9a.t",)),
}


def files(folder: Path, name: str) -> list[Path] | None:
    """The original files of a set, training rows first; None where one is missing."""
    originals = ORIGINALS.get(name)
    if originals is None:
        return None
    wanted = [names for names in (originals.train, originals.test) if names]
    found = [_find(folder, name, names) for names in wanted]
    return None if None in found else [path for path in found if path is not None]


def _find(folder: Path, name: str, names: tuple[str, ...]) -> Path | None:
    places = (home / (file + ending) for file in names for home in (folder, folder / name) for ending in ENDINGS)
    return next((path for path in places if path.is_file()), None)


def read(folder: Path, name: str) -> Split:
    """Training and test rows, with the same columns. Ids count from 1: a dense array has no column for 0."""
    originals, paths = ORIGINALS[name], files(folder, name)
    if paths is None:
        raise FileNotFoundError(f"{folder}: got no original files of {name}, expected {originals}")
    most = (originals.first_rows, originals.first_test_rows)
    parts = [_first(path, rows) for path, rows in zip(paths, most, strict=False)]
    width = max(X.shape[1] for X, _ in parts)
    for X, _ in parts:
        X.resize(X.shape[0], width)
    (X, y), *rest = ((_columns(X, originals.dense), y) for X, y in parts)
    return (X, y, *rest[0]) if rest else _divided(X, y, originals)


def _first(path: Path, most: int | None) -> tuple[Any, Any]:
    """Rows and labels, or the first of them alone: the others are not even parsed."""
    if most is None:
        return read_svmlight(path)
    with open_content(path, WHOLE) as lines, NamedTemporaryFile(suffix=".svm") as head:
        head.writelines(islice(lines, most))
        head.flush()
        return read_svmlight(head.name)


def _columns(X: Any, dense: bool) -> Any:
    return X.toarray()[:, 1:] if dense else sp.csr_matrix(X)


def _divided(X: Any, y: Any, originals: Originals) -> Split:
    from sklearn.model_selection import train_test_split

    strata = y if originals.stratified else None
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=originals.test_share, random_state=SPLIT_SEED, stratify=strata
    )
    return X_train, y_train, X_test, y_test

"""The sets of the comparison: ten sets, the tabular ones, and small generated ones for --quick.

All are judged by AUC (two classes), accuracy (more) or R2 (regression). A set is read from the original files of the
LIBSVM collection if the folder has them, by their names there, in the folder itself or in one named after the set,
plain or compressed; otherwise from arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import make_classification, make_friedman1
from sklearn.model_selection import train_test_split

from benchmarks.accuracy.sets import (
    SPLIT_SEED,
    VALIDATION_SEED,
    Split,
    aloi,
    book_crossing,
    dense_sets,
    epsilon,
    given_split,
    hold_out,
    letter,
    news20_binary,
    split_rows,
    take,
)
from benchmarks.paper.experiment import Plan
from benchmarks.peers.base import Rows
from benchmarks.timing import Absent
from gbun.datasets import make_clicks

MOST_TABULAR_ROWS = 20_000  # so that seconds are enough to learn something of the large ones


@dataclass(frozen=True)
class PaperSet:
    """`words` are counts of words; `budgets` multiplies the seconds of each learner.

    `source` says where rows come from; `size` is the bytes of their files. `missing` is why there are no rows.
    """

    name: str
    load: Callable[[], Split] | None  # None where rows are missing
    source: str
    sparse: bool = False
    words: bool = False
    regression: bool = False
    tabular: bool = False
    budgets: int = 1
    size: int = 0
    missing: str = ""

    def read(self) -> tuple[Rows, Rows, str]:
        """Training rows, test rows and the metric; classes are numbered from 0.

        A class that only test rows have gets a number that no learner predicts.
        """
        X, y, X_test, y_test = self.load()
        if self.regression:
            return (X, y.astype(float)), (X_test, y_test.astype(float)), "r2"
        classes = np.unique(y)
        codes = np.minimum(np.searchsorted(classes, y_test), len(classes) - 1)
        codes[classes[codes] != y_test] = len(classes)
        metric = "auc" if len(classes) == 2 else "accuracy"
        return (X, np.searchsorted(classes, y)), (X_test, codes), metric


def divide(train: Rows, metric: str) -> tuple[Rows, Rows]:
    """Rows to fit, and a fifth for validation, the same for all learners."""
    if metric != "r2":
        return hold_out(train)
    fit, valid = train_test_split(np.arange(len(train[1])), test_size=0.2, random_state=VALIDATION_SEED)
    return take(train, fit), take(train, valid)


@dataclass(frozen=True)
class Originals:
    """Names of LIBSVM files, of which the first that is there is read. Without `test` the rows are split here.

    `first_rows` and `first_test_rows` keep only so many: the paper's, or a sample.
    """

    train: tuple[str, ...]
    test: tuple[str, ...] = ()
    dense: bool = False
    first_rows: int | None = None
    first_test_rows: int | None = None
    test_share: float = 0.2
    stratified: bool = True


ORIGINALS = {
    "letter": Originals(("letter.scale",), ("letter.scale.t",), dense=True, first_rows=10500),
    "news20_binary": Originals(("news20.binary",)),
    "news20_multi": Originals(("news20", "news20.scale"), ("news20.t", "news20.t.scale", "news20.scale.t")),
    "rcv1_binary": Originals(("rcv1_train.binary",), ("rcv1_test.binary",)),
    "aloi": Originals(("aloi.scale", "aloi"), dense=True, test_share=0.3, stratified=False),
    # 400,000 dense rows of 2000 columns are more than a learner may hold.
    "epsilon": Originals(("epsilon_normalized",), ("epsilon_normalized.t",), True, 20_000, 20_000),
    "a9a": Originals(("a9a",), ("a9a.t",)),
}


def original_files(folder: Path, name: str) -> list[Path]:
    """The LIBSVM files of a set, training rows first; none where one is missing."""
    originals, homes, endings = ORIGINALS.get(name), (folder, folder / name), ("", ".bz2", ".xz", ".gz")
    found = []
    for files in filter(None, (originals.train, originals.test)) if originals else ():
        places = (home / (file + ending) for file in files for home in homes for ending in endings)
        path = next(filter(Path.is_file, places), None)
        if path is None:
            return []
        found.append(path)
    return found


def read_originals(paths: Sequence[Path], originals: Originals) -> Split:
    """Training and test rows, with the same columns. Ids count from 1: a dense array has no column for 0."""
    most = (originals.first_rows, originals.first_test_rows)
    parts = [_read_first(path, rows) for path, rows in zip(paths, most, strict=False)]
    width = max(X.shape[1] for X, _ in parts)
    for X, _ in parts:
        X.resize(X.shape[0], width)
    (X, y), *rest = ((X.toarray()[:, 1:] if originals.dense else sp.csr_matrix(X), y) for X, y in parts)
    return (X, y, *rest[0]) if rest else split_rows(X, y, originals.test_share, originals.stratified)


def _read_first(path: Path, most: int | None) -> tuple[Any, Any]:
    """Rows and labels, or the first of them: the others are not parsed."""
    from benchmarks.internals import WHOLE_FILE, open_content, read_svmlight

    if most is None:
        return read_svmlight(path)
    with open_content(path, WHOLE_FILE) as lines, NamedTemporaryFile(suffix=".svm") as head:
        head.writelines(islice(lines, most))
        head.flush()
        return read_svmlight(head.name)


# The loaders of arrays, in the order of the table. Counts are read as they are.
ARRAYS: dict[str, Callable[[Path], Split]] = {
    "letter": letter,
    "news20_binary": news20_binary,
    "news20_multi": given_split("news20_multi"),
    "rcv1_binary": given_split("rcv1_binary"),
    "aloi": aloi,
    "epsilon": epsilon,
    "a9a": given_split("a9a"),
    "imdb": given_split("imdb"),
    "reuters21578": given_split("reuters21578"),
    "book_crossing": book_crossing,
}
TEN, TABULAR = tuple(ARRAYS), "tabular_small"
DENSE, WORDS = ("letter", "aloi", "epsilon"), ("news20_multi", "imdb", "reuters21578")
# Where a round takes long: on the widest sets trees would have a handful of them, and each learner of trees has to grow
# one for each of aloi's 1000 classes.
BUDGETS = {"aloi": 5, **dict.fromkeys(("news20_binary", "news20_multi", "imdb", "book_crossing"), 3)}


def find_sets(folder: Path | None) -> dict[str, PaperSet]:
    """The ten sets, then the tabular ones; those that the folder does not have say so. Without a folder, a generated
    click log, four classes in dense columns, and a regression."""
    if folder is None:
        kinds = {"clicks": {"sparse": True}, "classes": {}, "friedman": {"regression": True, "tabular": True}}
        return {name: PaperSet(name, partial(_generate, name), "generated", **kind) for name, kind in kinds.items()}
    found: dict[str, PaperSet] = {}
    for name, load in ARRAYS.items():
        make = partial(PaperSet, name, sparse=name not in DENSE, words=name in WORDS, budgets=BUDGETS.get(name, 1))
        home = folder / ("epsilon_5k" if name == "epsilon" else name)
        if files := original_files(folder, name):
            originals, source = ORIGINALS[name], "LIBSVM files"
            if (most := originals.first_test_rows) is not None:
                source += f", a sample: the first {originals.first_rows} training and {most} test rows"
            found[name] = make(partial(read_originals, files, originals), source, size=_size(files))
        elif (size := _size(home.rglob("*"))) > 0:
            found[name] = make(partial(load, folder), "arrays", size=size)
        else:
            found[name] = make(None, "", missing=f"no files in {home.name} of --data, nor original ones of {name}")
    home = folder / TABULAR
    if not any(home.glob("*.npz")):
        why = f"no files in {TABULAR} of --data"
        return found | {TABULAR: PaperSet(TABULAR, None, "", tabular=True, missing=why)}
    source = f"arrays, at most {MOST_TABULAR_ROWS} rows"
    for name, one in dense_sets(folder, MOST_TABULAR_ROWS).items():
        if name not in {*TEN, "usps", "epsilon_5k"}:
            load, size = partial(one.load, SPLIT_SEED), _size([home / f"{name}.npz"])
            found[name] = PaperSet(name, load, source, regression=one.regression, tabular=True, size=size)
    return found


def _size(files: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in files if path.is_file())


def plan_sets(plan: Plan, names: Sequence[str] | None = None) -> list[PaperSet]:
    """The sets of these names, or all. Sets that the folder lacks are among them, unless it lacks all: then it is the
    wrong folder."""
    if plan.data is None and not plan.quick:
        raise Absent("--data FOLDER with the data sets is needed, or --quick for generated rows")
    known = find_sets(plan.data)
    if all(one.missing for one in known.values()):
        raise Absent(f"--data must have some of {', '.join(known)}, got {str(plan.data)!r}, which has none of them")
    wanted = [*known] if names is None else names
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"--sets must be some of {','.join(known)}, got {','.join(unknown)}")
    return [known[name] for name in wanted]


def _generate(name: str) -> Split:
    """Half of the rows to train, half to test."""
    if name == "clicks":
        X, y = make_clicks(3000, 10_000)
        X = sp.csr_matrix(X)
    elif name == "classes":
        X, y = make_classification(2000, 20, n_informative=10, n_classes=4, random_state=SPLIT_SEED)
    else:
        X, y = make_friedman1(1500, noise=1.0, random_state=SPLIT_SEED)
    X, half = X if name == "clicks" else X.astype(np.float32), len(y) // 2
    return X[:half], y[:half], X[half:], y[half:]

"""The sets of the comparison: the ten, the tabular ones, and small generated ones for --quick.

All are judged by AUC (two classes), accuracy (more) or R2 (regression).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import make_classification, make_friedman1
from sklearn.model_selection import train_test_split

from benchmarks.accuracy.dense import Split, dense_sets, divided
from benchmarks.accuracy.problems import SPLIT_SEED, VALIDATION_SEED, aloi, given_split, letter, news20_binary
from benchmarks.accuracy.wide.sets import Rows, book_crossing, held_out, take
from benchmarks.paper.accuracy import libsvm
from benchmarks.paper.experiment import Plan
from benchmarks.speed.timing import Absent
from gbun.datasets import make_clicks

MOST_TABULAR_ROWS = 20_000  # of kddcup, fars, sleep and others, so that seconds are enough to learn something


@dataclass(frozen=True)
class PaperSet:
    """Rows are `sparse` or dense; `words` are counts of them, or whether they are there; `budgets` multiplies the
    seconds that everyone has.

    `source` says whether rows come from the original text files, from arrays, or are generated; `size` is the bytes of
    their files. A set that is not there has the reason in `missing`.
    """

    name: str
    load: Callable[[], Split]
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

        A class that only test rows have gets a number that nobody answers.
        """
        X, y, X_test, y_test = self.load()
        if self.regression:
            return (X, y.astype(float)), (X_test, y_test.astype(float)), "r2"
        classes = np.unique(y)
        codes = np.minimum(np.searchsorted(classes, y_test), len(classes) - 1)
        codes[classes[codes] != y_test] = len(classes)
        metric = "auc" if len(classes) == 2 else "accuracy"
        return (X, np.searchsorted(classes, y)), (X_test, codes), metric


def choosing(train: Rows, metric: str) -> tuple[Rows, Rows]:
    """Rows that fit and the fifth that chooses, the same for all learners."""
    if metric != "r2":
        return held_out(train)
    fit, valid = train_test_split(np.arange(len(train[1])), test_size=0.2, random_state=VALIDATION_SEED)
    return take(train, fit), take(train, valid)


# The loaders of arrays, in the order of the table. Counts are read as they are: each learner does with them what it
# does.
ARRAYS: dict[str, Callable[[Path], Split]] = {
    "letter": letter,
    "news20_binary": news20_binary,
    "news20_multi": given_split("news20_multi"),
    "rcv1_binary": given_split("rcv1_binary"),
    "aloi": aloi,
    "epsilon": lambda folder: divided(folder / "epsilon_5k" / "epsilon_5k.npz"),
    "a9a": given_split("a9a"),
    "imdb": given_split("imdb"),
    "reuters21578": given_split("reuters21578"),
    "book_crossing": book_crossing,
}
TEN, TABULAR = tuple(ARRAYS), "tabular_small"
FOLDERS = {"epsilon": "epsilon_5k"}  # where a folder is not named as its set
DENSE, WORDS = ("letter", "aloi", "epsilon"), ("news20_multi", "imdb", "reuters21578")
# Where a round takes long: on the widest sets trees would have a handful of them in the seconds of others, and each has
# to grow one for each of aloi's 1000 classes.
BUDGETS = {"aloi": 5, **dict.fromkeys(("news20_binary", "news20_multi", "imdb", "book_crossing"), 3)}


def in_folder(folder: Path) -> dict[str, PaperSet]:
    """The ten, original files before arrays, then the tabular sets; those that the folder does not have say so."""
    found: dict[str, PaperSet] = {}
    for name, load in ARRAYS.items():
        made = partial(PaperSet, name, sparse=name not in DENSE, words=name in WORDS, budgets=BUDGETS.get(name, 1))
        home = folder / FOLDERS.get(name, name)
        if (files := libsvm.files(folder, name)) is not None:
            source = libsvm.ORIGINALS[name].source
            found[name] = made(partial(libsvm.read, folder, name), source, size=_size(files))
        elif (size := _size(home.rglob("*"))) > 0:
            found[name] = made(partial(load, folder), "arrays", size=size)
        else:
            found[name] = made(_nothing, "", missing=f"no files in {home.name} of --data, nor original ones of {name}")
    return found | _tabular(folder / TABULAR)


def _tabular(home: Path) -> dict[str, PaperSet]:
    if not any(home.glob("*.npz")):
        return {TABULAR: PaperSet(TABULAR, _nothing, "", tabular=True, missing=f"no files in {TABULAR} of --data")}
    found = {}
    for name, one in dense_sets(home.parent, MOST_TABULAR_ROWS).items():
        if name not in {*TEN, "usps", "epsilon_5k"}:
            load, size = partial(one.load, SPLIT_SEED), _size([home / f"{name}.npz"])
            source = f"arrays, at most {MOST_TABULAR_ROWS} rows"
            found[name] = PaperSet(name, load, source, regression=one.regression, tabular=True, size=size)
    return found


def _size(files: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in files if path.is_file())


def _nothing() -> Split:
    raise FileNotFoundError("there are no rows of a set that is missing")


def generated() -> dict[str, PaperSet]:
    """A click log, four classes in dense columns, and a regression."""
    return {
        "clicks": PaperSet("clicks", _clicks, "generated", sparse=True),
        "classes": PaperSet("classes", _classes, "generated"),
        "friedman": PaperSet("friedman", _friedman, "generated", regression=True, tabular=True),
    }


def sets_of(folder: Path | None) -> dict[str, PaperSet]:
    return generated() if folder is None else in_folder(folder)


def planned_sets(plan: Plan) -> dict[str, PaperSet]:
    """Those that the folder lacks are among them, unless it lacks all: then it is another one than was meant."""
    if plan.data is None and not plan.quick:
        raise Absent("--data FOLDER with the data sets is needed, or --quick for generated rows")
    known = sets_of(plan.data)
    if all(one.missing for one in known.values()):
        raise Absent(f"--data must have some of {', '.join(known)}, got {str(plan.data)!r}, which has none of them")
    return known


def _clicks() -> Split:
    X, y = make_clicks(3000, 10_000)
    return _halves(sp.csr_matrix(X), y)


def _classes() -> Split:
    X, y = make_classification(2000, 20, n_informative=10, n_classes=4, random_state=SPLIT_SEED)
    return _halves(X.astype(np.float32), y)


def _friedman() -> Split:
    X, y = make_friedman1(1500, noise=1.0, random_state=SPLIT_SEED)
    return _halves(X.astype(np.float32), y)


def _halves(X: Any, y: Any) -> Split:
    half = len(y) // 2
    return X[:half], y[:half], X[half:], y[half:]

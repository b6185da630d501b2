"""The data sets: how each is read from the folder and split, by arrays that are prepared there."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from benchmarks.peers.base import Rows

SPLIT_SEED, VALIDATION_SEED = 0, 1
Split = tuple[Any, Any, Any, Any]
"""X_train, y_train, X_test, y_test"""

# Lines of a post's header that name its group, continued on lines that begin with a blank. The collection that the
# split by date was published with has none of them; with them every learner only reads off the answer.
NAMING_LINES = re.compile(r"^(?:Xref|Path|Newsgroups|Followup-To|Date):.*\n?(?:[ \t].*\n?)*", re.M | re.I)
WORD = re.compile(r"[a-z0-9]+")


def letter(folder: Path) -> Split:
    """The paper's rows: the first 10500 and the last 5000 of 20000."""
    data = np.load(folder / "letter" / "letter_libsvm_order.npz")
    return data["X_train"][:10500], data["y_train"][:10500], data["X_test"], data["y_test"]


def aloi(folder: Path) -> Split:
    data = np.load(folder / "aloi" / "aloi_108000x131.npz")
    order = np.random.default_rng(SPLIT_SEED).permutation(108000)
    X, y = data["X"].astype(np.float32), data["y"].astype(np.int64)
    train, test = order[:75600], order[75600:]
    return X[train], y[train], X[test], y[test]


def split_rows(X: Any, y: Any, share: float = 0.2, stratify: bool = True, seed: int = SPLIT_SEED) -> Split:
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=share, random_state=seed, stratify=y if stratify else None
    )
    return X_train, y_train, X_test, y_test


def news20_binary(folder: Path) -> Split:
    home = folder / "news20_binary"
    return split_rows(sp.load_npz(home / "X.npz"), np.load(home / "y.npz")["y"])


def book_crossing(folder: Path, stratify: bool = True) -> Split:
    home = folder / "book_crossing"
    return split_rows(sp.load_npz(home / "X.npz"), np.load(home / "y.npz")["explicit"], stratify=stratify)


def given_split(name: str) -> Callable[[Path], Split]:
    def load(folder: Path) -> Split:
        y = np.load(folder / name / "y.npz")
        X_train, X_test = (sp.load_npz(folder / name / f"X_{part}.npz") for part in ("train", "test"))
        return X_train, y["y_train"], X_test, y["y_test"]

    return load


def news20_multi(folder: Path) -> Split:
    """log(1 + count), rows of length 1; the same for every learner."""
    X_train, y_train, X_test, y_test = given_split("news20_multi")(folder)
    return normalize(X_train.log1p()), y_train, normalize(X_test.log1p()), y_test


def newsgroups(folder: Path) -> Split:
    """Posts as lists of words, split by date."""
    home = folder / "20newsgroups_raw"
    with lzma.open(home / "20_newsgroups_19997.jsonl.xz", "rt", encoding="utf-8") as lines:
        posts = {(post["group"], post["file"]): post["text"] for post in map(json.loads, lines)}
    with lzma.open(home / "bydate_split.csv.xz", "rt", encoding="utf-8") as lines:
        next(lines)  # names of the columns
        listed = [line.strip().split(",") for line in lines]
    parts: dict[str, tuple[list[list[str]], list[str]]] = {"train": ([], []), "test": ([], [])}
    for part, group, file in listed:
        parts[part][0].append(split_words(posts[group, file]))
        parts[part][1].append(group)
    (X_train, y_train), (X_test, y_test) = parts["train"], parts["test"]
    return X_train, np.array(y_train), X_test, np.array(y_test)


def split_words(post: str) -> list[str]:
    """
    >>> split_words("Path: a!b\\nSubject: A Test\\n\\nPath: 2 words\\n")
    ['subject', 'a', 'test', 'path', '2', 'words']
    """
    header, blank, body = post.partition("\n\n")
    return WORD.findall((NAMING_LINES.sub("", header) + blank + body).lower())


def arrays(path: Path) -> Split:
    """A file that has test rows of its own."""
    data = np.load(path)
    return data["X_train"], data["y_train"], data["X_test"], data["y_test"]


def epsilon(folder: Path) -> Split:
    return arrays(folder / "epsilon_5k" / "epsilon_5k.npz")


@dataclass(frozen=True)
class DenseSet:
    """Judged by accuracy, or by R2 where `regression`. `load` takes a seed."""

    name: str
    load: Callable[[int], Split]
    regression: bool = False


def dense_sets(folder: Path, most_rows: int) -> dict[str, DenseSet]:
    """Tabular sets have at most `most_rows`, 70 % of them to train, split anew for each seed; the others are whole."""
    found = {path.stem: _tabular(path, most_rows) for path in sorted((folder / "tabular_small").glob("*.npz"))}
    found["letter"] = DenseSet("letter", lambda seed: letter(folder))
    found["usps"] = DenseSet("usps", lambda seed: arrays(folder / "usps" / "usps.npz"))
    found["epsilon_5k"] = DenseSet("epsilon_5k", lambda seed: epsilon(folder))
    found["aloi"] = DenseSet("aloi", lambda seed: aloi(folder))
    return found


def _tabular(path: Path, most_rows: int) -> DenseSet:
    def load(seed: int) -> Split:
        data = np.load(path)
        rows = np.random.default_rng(seed).permutation(len(data["y"]))[:most_rows]
        return split_rows(data["X"][rows], data["y"][rows], 0.3, stratify=False, seed=seed)

    return DenseSet(path.stem, load, path.name[0].isdigit())  # the collection names regressions so


@dataclass(frozen=True)
class WideSet:
    """In a set of `words` rows are texts that are not yet weighted by tf-idf."""

    name: str
    load: Callable[[Path], Split]
    metric: str
    words: bool = False

    def read(self, folder: Path) -> tuple[Rows, Rows]:
        """Training rows and test rows, with class numbers from 0."""
        X, y, X_test, y_test = self.load(folder)
        classes = np.unique(y)
        return (X, np.searchsorted(classes, y)), (X_test, np.searchsorted(classes, y_test))


_WIDE = (  # from quick to slow
    WideSet("a9a", given_split("a9a"), "auc"),
    WideSet("rcv1_binary", given_split("rcv1_binary"), "accuracy"),
    WideSet("reuters21578", given_split("reuters21578"), "accuracy", words=True),
    WideSet("book_crossing", book_crossing, "auc"),
    WideSet("news20_multi", given_split("news20_multi"), "accuracy", words=True),
    WideSet("imdb", given_split("imdb"), "accuracy", words=True),
    WideSet("20newsgroups_raw", newsgroups, "accuracy", words=True),
    WideSet("news20_binary", news20_binary, "accuracy"),
)
WIDE_SETS = {one.name: one for one in _WIDE}


def take(rows: Rows, which: Any) -> Rows:
    X, y = rows
    return ([X[i] for i in which] if isinstance(X, list) else X[which]), y[which]


def hold_out(train: Rows) -> tuple[Rows, Rows]:
    """Rows to fit, and a fifth for validation; a class with one row only stays with the former."""
    y = train[1]
    alone = np.flatnonzero(np.bincount(y)[y] == 1)
    rest = np.setdiff1d(np.arange(len(y)), alone)
    fit, valid = train_test_split(rest, test_size=0.2, random_state=VALIDATION_SEED, stratify=y[rest])
    return take(train, np.concatenate([fit, alone])), take(train, valid)


def score(metric: str, y: Any, predicted: Any) -> float:
    """`predicted` are scores of class 1 for AUC, otherwise class numbers."""
    return float(roc_auc_score(y, predicted) if metric == "auc" else accuracy_score(y, predicted))

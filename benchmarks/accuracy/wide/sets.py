"""The eight wide sets, from quick to slow: how each is read and split, and what it is judged by."""

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

from benchmarks.accuracy.problems import SPLIT_SEED, VALIDATION_SEED, given_split, news20_binary

Rows = tuple[Any, Any]
"""X, and y as the classes' numbers from 0."""

# Lines of a post's header that name its group, continued on lines that begin with a blank. The collection that the
# split by date was published with has none of them; with them every learner only reads off the answer.
NAMING_LINES = re.compile(r"^(?:Xref|Path|Newsgroups|Followup-To|Date):.*\n?(?:[ \t].*\n?)*", re.M | re.I)
WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class WideSet:
    """`load` gives X_train, y_train, X_test, y_test; in a set of `words` rows are texts not yet weighted by tf-idf."""

    name: str
    load: Callable[[Path], tuple[Any, Any, Any, Any]]
    metric: str
    words: bool = False

    def read(self, folder: Path) -> tuple[Rows, Rows]:
        """Training rows and test rows."""
        X, y, X_test, y_test = self.load(folder)
        classes = np.unique(y)
        return (X, np.searchsorted(classes, y)), (X_test, np.searchsorted(classes, y_test))


def held_out(train: Rows) -> tuple[Rows, Rows]:
    """Rows that fit and the fifth that chooses; a class with one row only stays with the former."""
    y = train[1]
    alone = np.flatnonzero(np.bincount(y)[y] == 1)
    others = np.setdiff1d(np.arange(len(y)), alone)
    fit, valid = train_test_split(others, test_size=0.2, random_state=VALIDATION_SEED, stratify=y[others])
    return take(train, np.concatenate([fit, alone])), take(train, valid)


def take(rows: Rows, which: Any) -> Rows:
    X, y = rows
    return ([X[i] for i in which] if isinstance(X, list) else X[which]), y[which]


def judge(metric: str, y: Any, answer: Any) -> float:
    """`answer` is a score of class 1 where ranking is judged (AUC), otherwise the classes' numbers."""
    return float(roc_auc_score(y, answer) if metric == "auc" else accuracy_score(y, answer))


def book_crossing(folder: Path) -> tuple[Any, Any, Any, Any]:
    X, y = sp.load_npz(folder / "book_crossing" / "X.npz"), np.load(folder / "book_crossing" / "y.npz")["explicit"]
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=SPLIT_SEED, stratify=y)
    return X_train, y_train, X_test, y_test


def newsgroups(folder: Path) -> tuple[Any, Any, Any, Any]:
    """Posts as lists of words, divided by date."""
    home = folder / "20newsgroups_raw"
    with lzma.open(home / "20_newsgroups_19997.jsonl.xz", "rt", encoding="utf-8") as lines:
        posts = {(post["group"], post["file"]): post["text"] for post in map(json.loads, lines)}
    with lzma.open(home / "bydate_split.csv.xz", "rt", encoding="utf-8") as lines:
        next(lines)  # names of the columns
        listed = [line.strip().split(",") for line in lines]
    found: dict[str, tuple[list[list[str]], list[str]]] = {"train": ([], []), "test": ([], [])}
    for part, group, file in listed:
        found[part][0].append(words(posts[group, file]))
        found[part][1].append(group)
    (X_train, y_train), (X_test, y_test) = found["train"], found["test"]
    return X_train, np.array(y_train), X_test, np.array(y_test)


def words(post: str) -> list[str]:
    """
    >>> words("Path: a!b\\nSubject: A Test\\n\\nPath: 2 words\\n")
    ['subject', 'a', 'test', 'path', '2', 'words']
    """
    header, blank, body = post.partition("\n\n")
    return WORD.findall((NAMING_LINES.sub("", header) + blank + body).lower())


_ALL = (
    WideSet("a9a", given_split("a9a"), "auc"),
    WideSet("rcv1_binary", given_split("rcv1_binary"), "accuracy"),
    WideSet("reuters21578", given_split("reuters21578"), "accuracy", words=True),
    WideSet("book_crossing", book_crossing, "auc"),
    WideSet("news20_multi", given_split("news20_multi"), "accuracy", words=True),
    WideSet("imdb", given_split("imdb"), "accuracy", words=True),
    WideSet("20newsgroups_raw", newsgroups, "accuracy", words=True),
    WideSet("news20_binary", news20_binary, "accuracy"),
)
SETS = {s.name: s for s in _ALL}

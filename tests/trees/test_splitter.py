import numpy as np
import pytest

from gbun.trees.splitter import PROJECTION_BINS, ROOM, SPLIT, find_split
from tests.trees import plain_trees


def histograms(columns, q_g, q_h):
    sums = np.zeros((len(columns), 64), dtype=np.int64)
    for j, column in enumerate(columns):
        np.add.at(sums[j], column, (q_g << 32) + q_h)
    return sums.ravel()


def found_by(columns, is_bundle, n_base, q_g, q_h, penalty, min_rows, first=0, last=None):
    split = np.zeros(1, dtype=SPLIT)
    n = np.count_nonzero((q_g != 0) | (q_h != 0))
    find_split(
        histograms(columns, q_g, q_h), first, len(columns) if last is None else last, n_base, is_bundle,
        q_g.sum(), q_h.sum(), n, penalty, float(min_rows), np.empty(ROOM, dtype=np.int64), split[0],
    )  # fmt: skip
    return split[0]


@pytest.mark.parametrize("seed", range(60))
def test_the_best_of_all_candidates(seed):
    rng = np.random.default_rng(seed)
    n, n_base, p = int(rng.integers(2, 200)), int(rng.integers(1, 6)), int(rng.integers(0, 3))
    columns = rng.integers(0, rng.integers(2, 65), (n_base + p, n)).astype(np.uint8)
    columns[n_base:] = rng.integers(1, PROJECTION_BINS + 1, (p, n))
    columns[:n_base][rng.random(n_base) < 0.3] += 1
    np.minimum(columns, 63, out=columns)
    is_bundle = rng.random(n_base) < 0.3
    top = int(rng.choice([3, 1000]))  # few values: many ties
    q_g, q_h = rng.integers(-top, top + 1, n), rng.integers(0, top + 1, n)
    penalty, min_rows = float(rng.choice([0.0, 10.0])), int(rng.choice([0, 1, 10]))
    split = found_by(columns, is_bundle, n_base, q_g, q_h, penalty, min_rows)
    rows = np.arange(n)
    expected = plain_trees.best_split(columns, is_bundle, n_base, q_g, q_h, rows, penalty, min_rows)
    if expected is None:
        assert split["column"] == -1
        assert split["gain"] == 0
        return
    gain, column, b, right, goes_left = expected
    assert (split["gain"], split["column"], split["bin"]) == (gain, column, b)
    left = goes_left[columns[column]]
    assert (split["left_g"], split["left_h"]) == (q_g[left].sum(), q_h[left].sum())
    if column < n_base and not is_bundle[column]:
        assert split["missing_right"] == right


def test_missing_against_all_others_and_where_none_was_seen():
    column = np.repeat(np.array([[0, 3, 9]], dtype=np.uint8), 10, axis=1)
    g, h = np.where(column[0] == 0, 50, -50), np.full(30, 5)
    split = found_by(column, np.zeros(1, dtype=bool), 1, g, h, 1.0, 1)
    assert (split["column"], split["left_h"], split["missing_right"]) == (0, 50, 0)  # no value is in bin 1
    column[:, 5:15] = 1  # now some are
    g = np.where(column[0] == 0, 50, -50)
    split = found_by(column, np.zeros(1, dtype=bool), 1, g, h, 1.0, 1)
    assert (split["column"], split["bin"], split["missing_right"]) == (0, 9, 1)
    seen = np.repeat(np.array([[3, 9]], dtype=np.uint8), 10, axis=1)
    for weight_left, right in ((5, 1), (1, 1), (9, 0)):
        h = np.where(seen[0] == 3, weight_left, 5 if weight_left != 5 else 6)
        split = found_by(seen, np.zeros(1, dtype=bool), 1, np.where(seen[0] == 3, 50, -50), h, 1.0, 1)
        assert (split["bin"], split["missing_right"]) == (3, right)


def test_gains_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    column = rng.integers(1, 9, (1, 300)).astype(np.uint8)
    g, h = rng.integers(-1000, 1001, 300) + 300 * (column[0] > 4), rng.integers(1, 1000, 300)
    split = found_by(column, np.zeros(1, dtype=bool), 1, g, h, 50.0, 1)
    left = column[0] <= split["bin"]
    term = lambda rows: g[rows].sum() ** 2 / (h[rows].sum() + 50.0)  # noqa: E731
    assert split["gain"] == pytest.approx(term(left) + term(~left) - term(slice(None)))


def test_no_split_of_noise_alone():
    column = np.arange(1, 64, dtype=np.uint8)[None]
    g, h = np.full(63, 12345), np.full(63, 777)
    assert found_by(column, np.zeros(1, dtype=bool), 1, g, h, 0.0, 0)["column"] == -1

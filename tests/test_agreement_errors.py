"""Where one share is bad, or shares do not go together, all workers raise, and none waits for who has gone."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse

from gbun import agreement, targets
from gbun.agreement import decided, together
from gbun.collectives import WorkerError
from gbun.collectives.threads import in_threads
from gbun.config import Parameters
from gbun.problem import Dataset, read
from share_cases import FRAME, NUMBERS, Y, everywhere, problems, told

X, SHORT = NUMBERS[:4], Y[:4]
HOLE = np.array([1.0, np.nan, 2.0, 3.0])
FAULTS = {
    "NaN in y": ((X, HOLE), "y has NaN or infinite targets"),
    "infinite X": ((np.full((4, 5), np.inf), SHORT), "X has an infinite value in row 0"),
    "y too short": ((X, SHORT[:3]), "X has 4 rows, y has 3"),
    "no y": ((X, None), "y is missing"),
    "y of an empty share": (([], SHORT), "X has 0 rows, y has 4"),
    "three dimensions": ((X[:, :, None], SHORT), "X must be a 2-d array"),
    "negative weight": ((X, SHORT, -(SHORT**2)), "sample_weight must be finite and not negative"),
    "margin": ((X, SHORT, None, np.ones(3)), "base_margin must hold 1 score(s) for each of 4 rows"),
    "nothing": ((None, SHORT), "X must be a 2-d array"),
    "texts": ((["a b"] * 4, SHORT), "X must be a 2-d array"),
}


@pytest.mark.parametrize(("bad", "text"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("rank", [0, 2])
def test_a_bad_share_is_named_to_all(bad, text, rank):
    good = (X, SHORT, np.ones(4), np.ones(4)) if len(bad) == 4 else (X, SHORT)
    shares = [bad if r == rank else good for r in range(3)]
    found = problems(shares)
    told([found[rank]], text)
    others = [error for r, error in enumerate(found) if r != rank]
    told(others, f"worker {rank} of {len(found)} failed: {type(found[rank]).__name__}: ", text, kind=WorkerError)
    assert {error.rank for error in others} == {rank}


def test_a_bad_share_of_an_evaluation_set_is_named_to_all():
    for bad, text in (((X, HOLE), "y of 't' has NaN"), ((X[:, 1:], SHORT), "X of 't' has 4 features"),
                      ((X, SHORT[:2]), "X of 't' has 4 rows, y of 't' has 2")):  # fmt: skip
        found = problems([(X, SHORT)] * 3, [{"t": (X, SHORT)}, {"t": bad}, {"t": ([], [])}])
        told([found[1]], text)
        told([found[0], found[2]], "worker 1 of 3 failed: ValueError: ", text, kind=WorkerError)


def test_parameters_that_are_wrong_on_one_worker():
    def work(collective):
        wrong = {"learning_rate": 5.0} if collective.rank else {}
        return read(Parameters(**wrong), Dataset(X, SHORT), {}, collective=collective)

    first, second = everywhere(2, work)
    told([second], "learning_rate must be")
    told([first], "worker 1 of 2 failed: ValueError: learning_rate must be", kind=WorkerError)


CSR, WORD = scipy.sparse.csr_array(X), np.array(["a", "b", "a", "c"])
CONFLICTS = {
    "columns": ([(X, SHORT), (X[:, 1:], SHORT), (X, SHORT)], "same columns", "5 on ranks 0, 2, 4 on rank 1"),
    "storage": ([(X, SHORT), (CSR, SHORT), ([], [])], "an array on rank 0, a sparse matrix on rank 1"),
    "dicts": ([(X, SHORT), ([], []), ([{"a": 1}] * 4, SHORT)], "an array on rank 0, a list of dicts on rank 2"),
    "tokens": ([([["a"]] * 4, SHORT), ([{"a": 1}] * 4, SHORT)], "token lists on rank 0, a list of dicts on rank 1"),
    "array for frame": ([(FRAME[:4], SHORT), (X[:, :4], SHORT)], "a data frame on rank 0, an array on rank 1"),
    "names": ([(FRAME[:4], SHORT), (FRAME[:4].rename(columns={"age": "z"}), SHORT)],
              "rank 1", "missing ['age'], new ['z']"),
    "order": ([(FRAME[:4], SHORT), (FRAME[["city", "age", "size", "member"]][:4], SHORT)], "rank 1: another order"),
    "part": ([(FRAME[:4], SHORT), (FRAME[:4].assign(city=1.0), SHORT)],
             "X['city'] holds categories on rank 0 and numbers on rank 1"),
    "no rows": ([(X[:0], []), ([], []), (FRAME[:0], [])], "X has no rows"),
    "no columns": ([(X[:, :0], SHORT), (X[:, :0], SHORT)], "X has no columns"),
    "no columns, sparse": ([(CSR[:, :0], SHORT), (CSR[:, :0], SHORT)], "X has no columns"),
    "words and numbers": ([(X, WORD), (X, SHORT)], "labels of one kind", "words on rank 0, numbers on rank 1"),
    "objects": ([(X, np.array([1, 2, 1, 2], dtype=object)), (X, np.array([1.5] * 4, dtype=object))],
                "y must hold labels of one kind", "int on rank 0, float on rank 1"),
    "columns of y": ([(X, np.ones((4, 2))), (X, np.ones((4, 3)))], "y must have the same", "2 on rank 0, 3 on rank 1"),
    "one class": ([(X, ["a"] * 4), (X, ["a"] * 4), ([], [])], "y must have at least 2 classes"),
    "size of y": ([(X, SHORT * 1e-40), (X, SHORT * 1e-40)], "beyond what float32 can hold"),
    "weights": ([(X, SHORT, 0 * SHORT), (X, SHORT, 0.0)], "sample_weight is zero for every row"),
    "margins": ([(X, SHORT, None, SHORT), (X, SHORT), ([], []), (X, SHORT)],
                "base_margin must be given on all workers", "on rank 0 and not on ranks 1, 3"),
}  # fmt: skip


@pytest.mark.parametrize(("shares", "words"), [(c[0], c[1:]) for c in CONFLICTS.values()], ids=CONFLICTS)
def test_shares_that_do_not_go_together_are_refused_by_all(shares, words):
    told(problems(shares), *words)


def test_evaluation_sets_are_the_same_on_all_workers():
    some = {"a": (X, SHORT), "b": (X, SHORT)}
    for other in ({"a": (X, SHORT)}, {}, dict(reversed(some.items()))):
        told(
            problems([(X, SHORT)] * 3, [some, other, some]),
            "evals",
            "same order",
            "'a', 'b' on ranks 0, 2",
            "on rank 1",
        )
    told(problems([(X, SHORT)] * 2, [{"a": ([], [])}] * 2), "X of 'a' has no rows")
    told(problems([(X, SHORT)] * 2, [{"a": (X, SHORT, 0.0)}] * 2), "sample_weight is zero for every row")
    told(
        problems([(X, SHORT)] * 2, [{"a": (X, SHORT, None, SHORT)}, {"a": (X, SHORT)}]), "base_margin of 'a'", "rank 1"
    )
    narrow = [{"a": (CSR[:, :3], SHORT)}, {"a": (CSR[:, :4], SHORT)}]
    told(problems([(CSR, SHORT)] * 2, narrow), "X of 'a' has 4 features, the model was trained on 5")


def test_empty_rows_alone_are_refused_by_who_has_them():
    first, second = problems([([{}, {}], Y[:2]), ([], [])])
    assert isinstance(first, TypeError)
    told([second], "worker 0 of 2 failed: TypeError: X must be", kind=WorkerError)
    told(problems([([[], []], Y[:2]), ([[]], Y[:1])]), "X has no columns")


def test_numbers_are_no_classes_and_are_not_told(monkeypatch):
    many, rows = np.arange(240.0), np.ones((240, 2))
    shares = [(rows[:120], many[:120]), (rows[:120], many[120:])]
    told(problems(shares, objective="softmax"), "y has 240 different values in 240 rows", "use a regressor")
    monkeypatch.setattr(targets, "MANY_LABELS", 100)
    monkeypatch.setattr(targets, "_tellable", None)
    found = problems(shares, objective="softmax")
    told(found, "y has about 2", "in 240 rows", "use a regressor")
    monkeypatch.undo()
    monkeypatch.setattr(targets, "MANY_LABELS", 100)
    again = [(np.ones((n, 2)), np.arange(n) % 120.0) for n in (800, 160)]  # one of them by itself has too many
    assert [len(p.target.classes) for p in problems(again, objective="softmax")] == [120, 120]


# How workers agree


def test_together_raises_where_it_failed_and_tells_the_others():
    def work(collective):
        def own():
            if collective.rank in (1, 3):
                raise KeyError(f"what {collective.rank} lacks")
            return collective.rank

        return together(collective, own)

    found = everywhere(4, work)
    for rank in (1, 3):
        assert isinstance(found[rank], KeyError)
        assert str(rank) in str(found[rank])
    for rank in (0, 2):
        told([found[rank]], "worker 1 of 4 failed: KeyError: 'what 1 lacks'", kind=WorkerError)
    assert list(in_threads(4, lambda collective: together(collective, lambda: collective.rank))) == [0, 1, 2, 3]


def test_who_is_interrupted_is_not_held_up():
    def work(collective):
        def own():
            if collective.rank == 1:
                raise KeyboardInterrupt

        return together(collective, own)

    with pytest.raises(KeyboardInterrupt):
        in_threads(2, work, timeout=20.0)


def test_long_errors_are_cut_on_their_way():
    def work(collective):
        def own():
            if collective.rank:
                raise ValueError("x" * 10**6)

        return together(collective, own)

    first, second = everywhere(2, work)
    assert len(str(first)) < agreement.LONGEST + 100
    assert len(str(second)) == 10**6


def test_decisions_are_the_first_workers_and_so_are_its_errors():
    assert (
        list(in_threads(3, lambda c: decided(c, [c.rank, "ä\ud800"], lambda said: said)))
        == [[[r, "ä\ud800"] for r in range(3)]] * 3
    )

    def refuse(said):
        raise ValueError(f"no: {json.dumps(said)}")

    told(everywhere(3, lambda c: decided(c, c.rank, refuse)), "no: [0, 1, 2]")
    told(everywhere(3, lambda c: decided(c, c.rank, lambda said: said[3])), "IndexError")

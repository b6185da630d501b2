"""If one share is bad, or shares do not match, all workers raise and none waits for a message."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gbun import agreement, targets
from gbun.agreement import decide_at_root, run_or_raise_everywhere
from gbun.collectives import Solo, WorkerError
from gbun.collectives.threads import in_threads
from gbun.training import train
from tests.share_cases import FRAME, NUMBERS, Y, assert_errors, read_shares, run_everywhere

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
def test_error_of_a_bad_share_is_known_to_all_workers(bad, text, rank):
    good = (X, SHORT, np.ones(4), np.ones(4)) if len(bad) == 4 else (X, SHORT)
    errors = read_shares([bad if r == rank else good for r in range(3)])
    local = errors.pop(rank)
    assert_errors([local], text)
    assert_errors(errors, f"worker {rank} of 3 failed: {type(local).__name__}: ", text, kind=WorkerError)
    assert {error.rank for error in errors} == {rank}


def test_error_of_a_bad_evaluation_set_is_known_to_all_workers():
    for bad, text in (((X, HOLE), "y of 't' has NaN"), ((X[:, 1:], SHORT), "X of 't' has 4 features"),
                      ((X, SHORT[:2]), "X of 't' has 4 rows, y of 't' has 2")):  # fmt: skip
        first, second, third = read_shares([(X, SHORT)] * 3, [{"t": (X, SHORT)}, {"t": bad}, {"t": ([], [])}])
        assert_errors([second], text)
        assert_errors([first, third], "worker 1 of 3 failed: ValueError: ", text, kind=WorkerError)


def test_parameters_that_are_wrong_on_one_worker():
    def work(collective):
        wrong = {"learning_rate": 5.0} if collective.rank else {}
        return train(wrong, (X, SHORT), 1, collective=collective)

    first, second = run_everywhere(2, work)
    assert_errors([second], "learning_rate must be")
    assert_errors([first], "worker 1 of 2 failed: ValueError: learning_rate must be", kind=WorkerError)


def test_parameters_that_differ_among_workers_are_refused_whatever_their_type():
    def work(collective):
        return train({"n_neurons": np.int64(16 + collective.rank)}, (X, SHORT), 1, collective=collective)

    assert_errors(run_everywhere(2, work), "n_neurons must be the same on all workers, got 16 on rank 0, 17 on rank 1")


def test_initial_models_that_differ_among_workers_are_refused():
    models = [train({"n_neurons": 4, "random_state": seed}, (X, SHORT), 1) for seed in range(2)]

    def work(collective):
        return train({}, (X, SHORT), 1, init_model=models[collective.rank], collective=collective)

    assert_errors(run_everywhere(2, work), "init_model must be the same on all workers, got ")


@pytest.mark.parametrize("given", [("model", None), (None, "model"), ("path", "model"), (None, "path")])
def test_initial_model_that_some_workers_lack_or_have_in_another_form_is_refused(given, tmp_path):
    model = train({"n_neurons": 4}, (X, SHORT), 1)
    model.save_model(tmp_path / "m.gbun")
    forms = {"model": model, "path": tmp_path / "m.gbun", None: None}

    def work(collective):
        return train({}, (X, SHORT), 1, init_model=forms[given[collective.rank]], collective=collective)

    assert_errors(run_everywhere(2, work), "init_model must be the same on all workers, got ")


def test_initial_model_of_a_wrong_type_on_one_worker_ends_all():
    def work(collective):
        return train({}, (X, SHORT), 1, init_model=5 if collective.rank else None, collective=collective)

    first, second = run_everywhere(2, work)
    assert_errors([second], "init_model must be a gbun.Model or the path of one, got int")
    assert_errors([first], "worker 1 of 2 failed: ValueError: init_model must be", kind=WorkerError)


def test_initial_models_may_differ_in_parameters_that_are_each_worker_s_own():
    def work(collective):
        own = {"verbose": collective.rank, "n_jobs": 1 + collective.rank, "memory_budget": 10**9 + collective.rank}
        model = train({"n_neurons": 4, **own}, (X, SHORT), 1, collective=collective)
        return train({}, (X, SHORT), 1, init_model=model, collective=collective).n_rounds

    assert run_everywhere(2, work) == [2, 2]


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
    "size of y": ([(X, SHORT * 1e-40), (X, SHORT * 1e-40)], "below what float32 can hold"),
    "weights": ([(X, SHORT, 0 * SHORT), (X, SHORT, 0.0)], "sample_weight is zero for every row"),
    "margins": ([(X, SHORT, None, SHORT), (X, SHORT), ([], []), (X, SHORT)],
                "base_margin must be given on all workers", "on rank 0 and not on ranks 1, 3"),
}  # fmt: skip


@pytest.mark.parametrize(("shares", "texts"), [(c[0], c[1:]) for c in CONFLICTS.values()], ids=CONFLICTS)
def test_shares_that_do_not_match_are_refused_by_all_workers(shares, texts):
    assert_errors(read_shares(shares), *texts)


def test_evaluation_sets_are_the_same_on_all_workers():
    sets = {"a": (X, SHORT), "b": (X, SHORT)}
    for other in ({"a": (X, SHORT)}, {}, dict(reversed(sets.items()))):
        errors = read_shares([(X, SHORT)] * 3, [sets, other, sets])
        assert_errors(errors, "evals", "same order", "'a', 'b' on ranks 0, 2", "on rank 1")
    assert_errors(read_shares([(X, SHORT)] * 2, [{"a": ([], [])}] * 2), "X of 'a' has no rows")
    assert_errors(read_shares([(X, SHORT)] * 2, [{"a": (X, SHORT, 0.0)}] * 2), "sample_weight is zero for every row")
    errors = read_shares([(X, SHORT)] * 2, [{"a": (X, SHORT, None, SHORT)}, {"a": (X, SHORT)}])
    assert_errors(errors, "base_margin of 'a'", "rank 1")
    narrow = [{"a": (CSR[:, :3], SHORT)}, {"a": (CSR[:, :4], SHORT)}]
    assert_errors(read_shares([(CSR, SHORT)] * 2, narrow), "X of 'a' has 4 features, the model was trained on 5")


def test_empty_rows_alone_are_refused_by_the_worker_that_has_them():
    first, second = read_shares([([{}, {}], Y[:2]), ([], [])])
    assert isinstance(first, TypeError)
    assert_errors([second], "worker 0 of 2 failed: TypeError: X must be", kind=WorkerError)
    assert_errors(read_shares([([[], []], Y[:2]), ([[]], Y[:1])]), "X has no columns")


def test_numbers_that_are_no_classes_are_not_sent(monkeypatch):
    numbers, rows = np.arange(240.0), np.ones((240, 2))
    shares = [(rows[:120], numbers[:120]), (rows[:120], numbers[120:])]
    errors = read_shares(shares, objective="softmax")
    assert_errors(errors, "y has 240 different values in 240 rows", "use a regressor")
    monkeypatch.setattr(targets, "MAX_UNCOUNTED_LABELS", 100)
    monkeypatch.setattr(targets, "_to_plain_labels", None)
    assert_errors(read_shares(shares, objective="softmax"), "y has about 2", "in 240 rows", "use a regressor")
    monkeypatch.undo()
    monkeypatch.setattr(targets, "MAX_UNCOUNTED_LABELS", 100)
    repeated = [(np.ones((n, 2)), np.arange(n) % 120.0) for n in (800, 160)]  # too many of them on the second worker
    assert [len(p.target.classes) for p in read_shares(repeated, objective="softmax")] == [120, 120]


# Decisions


def test_worker_that_fails_raises_its_error_and_the_others_a_worker_error():
    def work(collective):
        def fail_on_odd_ranks():
            if collective.rank % 2:
                raise KeyError(f"missing on {collective.rank}")
            return collective.rank

        return run_or_raise_everywhere(collective, fail_on_odd_ranks)

    errors = run_everywhere(4, work)
    for rank in (1, 3):
        assert_errors([errors[rank]], f"missing on {rank}", kind=KeyError)
    for rank in (0, 2):
        assert_errors([errors[rank]], "worker 1 of 4 failed: KeyError: 'missing on 1'", kind=WorkerError)
    assert list(in_threads(4, lambda c: run_or_raise_everywhere(c, lambda: c.rank))) == [0, 1, 2, 3]


def test_single_process_raises_its_own_errors():
    def fail(*_):
        raise KeyError("missing")

    with pytest.raises(KeyError, match=r"^'missing'$"):
        run_or_raise_everywhere(Solo(), fail)
    with pytest.raises(KeyError, match=r"^'missing'$"):
        decide_at_root(Solo(), 1, fail)


def test_interrupt_is_raised_at_once():
    def work(collective):
        def interrupt():
            if collective.rank == 1:
                raise KeyboardInterrupt

        return run_or_raise_everywhere(collective, interrupt)

    with pytest.raises(KeyboardInterrupt):
        in_threads(2, work)


def test_long_errors_are_cut_before_they_are_sent():
    def work(collective):
        def fail():
            if collective.rank:
                raise ValueError("x" * 10**6)

        return run_or_raise_everywhere(collective, fail)

    first, second = run_everywhere(2, work)
    assert len(str(first)) < agreement.MAX_ERROR_LENGTH + 100
    assert len(str(second)) == 10**6


def test_root_decides_for_all_workers_and_its_errors_are_raised_by_all():
    messages = in_threads(3, lambda c: decide_at_root(c, [c.rank, "ä\ud800"], lambda messages: messages))
    assert list(messages) == [[[r, "ä\ud800"] for r in range(3)]] * 3

    def refuse(messages):
        raise ValueError(f"no: {messages}")

    assert_errors(run_everywhere(3, lambda c: decide_at_root(c, c.rank, refuse)), "no: [0, 1, 2]")
    root, *others = run_everywhere(3, lambda c: decide_at_root(c, c.rank, lambda messages: messages[3]))
    assert_errors([root], "out of range", kind=IndexError)
    assert_errors(others, "IndexError")

"""The comparison on tables, on a few generated rows: files, verdicts, ranks, tuning, and what is not run again."""

from __future__ import annotations

import doctest
import json
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("lightgbm")
pytest.importorskip("matplotlib")

from benchmarks.accuracy.tables import __main__ as command
from benchmarks.accuracy.tables import ablations, boosters, measuring, tuning, verdicts
from benchmarks.accuracy.tables.boosters import PEERS, fit_gbun, fit_gbun_on_given, fit_linear
from benchmarks.accuracy.tables.measuring import Cell, Store, make_contestant, measure, measure_all
from benchmarks.accuracy.tables.pictures import draw_panels
from benchmarks.accuracy.tables.sets import Table, TableSet, divide, hold_out, known_sets
from benchmarks.accuracy.tables.verdicts import (
    alike,
    compare_over_sets,
    critical_difference,
    log_ratio,
    make_rows,
    mean_ranks,
    verdict,
)


def make_made_table(regression: bool, n_rows: int = 300) -> Table:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3)).astype(np.float32)
    y = X[:, 0] + 0.1 * rng.normal(size=n_rows)
    return Table(X, y if regression else np.array(["a", "b"])[(y > 0).astype(int)], regression)


class TestFiles:
    def read(self, folder, name, content):
        (folder / name).write_text(content)
        return known_sets(None, folder)[name.split(".")[0]].read()

    @pytest.mark.parametrize("name", ["y", "Target", "class"])
    def test_the_target_is_found_by_its_name(self, tmp_path, name):
        table = self.read(tmp_path, "a.csv", f"{name},b,c\n1,2,3\n0,5,6\n")
        assert table.y.tolist() == [1, 0]
        assert table.X.tolist() == [[2, 3], [5, 6]]

    def test_otherwise_it_is_the_last_column(self, tmp_path):
        table = self.read(tmp_path, "a.csv", "b,c,d\n1,2,no\n4,5,yes\n")
        assert table.y.tolist() == ["no", "yes"]
        assert table.X.tolist() == [[1, 2], [4, 5]]

    def test_text_is_numbered_and_missing_values_stay(self, tmp_path):
        table = self.read(tmp_path, "a.csv", "b,c,y\nred,1,0\nblue,,1\n,3,0\nred,4,\n")
        np.testing.assert_array_equal(table.X, np.array([[1, 1], [0, np.nan], [np.nan, 3]], dtype=np.float32))
        assert table.y.tolist() == [0, 1, 0]  # the last row has no target

    @pytest.mark.parametrize(("values", "regression"), [(np.arange(30) / 7, True), (np.arange(30) % 3 + 0.0, False)])
    def test_numbers_with_many_values_are_regressed_on(self, tmp_path, values, regression):
        np.savez(tmp_path / "a.npz", X=np.ones((30, 2)), y=values)
        np.savez(tmp_path / "b.npz", np.column_stack([np.ones((30, 2)), values]))
        for table in (one.read() for one in known_sets(None, tmp_path).values()):
            assert table.regression == regression
            assert table.X.shape == (30, 2)
            np.testing.assert_array_equal(table.y, values)

    def test_parquet_has_categories_dates_and_booleans(self, tmp_path):
        pd = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        frame = pd.DataFrame({"kind": pd.Categorical(["b", None, "a"]), "flag": [True, False, True], "y": [0, 1, 0]})
        frame.insert(0, "day", pd.to_datetime(["2020-01-01", "2020-01-03", None]))
        frame.to_parquet(tmp_path / "a.parquet")
        X = known_sets(None, tmp_path)["a"].read().X
        np.testing.assert_array_equal(X, np.array([[0, 1, 1], [2, np.nan, 0], [np.nan, 0, 1]], dtype=np.float32))

    def test_other_arrays_are_refused(self, tmp_path):
        np.savez(tmp_path / "a.npz", A=np.ones(3), B=np.ones(3))
        with pytest.raises(ValueError, match="must have arrays X and y"):
            known_sets(None, tmp_path)["a"].read()

    def test_names_must_differ(self, tmp_path):
        for name in ("a.csv", "a.npz"):
            (tmp_path / name).touch()
        with pytest.raises(ValueError, match=r"got twice \['a'\]"):
            known_sets(None, tmp_path)


class TestRows:
    def test_parts_are_disjoint_and_the_same_for_a_seed(self):
        table = replace(make_made_table(True), X=np.arange(300, dtype=np.float32)[:, None])
        rows = divide(table, 200, 0.1, seed=1)
        parts = [rows.X, rows.X_held, rows.X_test]
        assert [len(part) for part in parts] == [126, 14, 60]
        assert len(np.unique(np.concatenate(parts))) == 200
        np.testing.assert_array_equal(divide(table, 200, 0.1, seed=1).X_held, rows.X_held)
        assert not np.array_equal(divide(table, 200, 0.1, seed=2).X_held, rows.X_held)

    def test_every_class_has_rows_to_fit(self):
        for seed in range(20):
            y = np.array([0] * 30 + [1] * 30 + [2])
            fit, held = hold_out(y, 0.3, False, seed)
            assert set(y[fit]) == {0, 1, 2}
            assert sorted([*fit, *held]) == list(range(61))

    def test_test_rows_of_unknown_classes_are_left_out(self):
        y = np.array(["a", "b"] * 20 + [f"rare {i}" for i in range(10)])
        rows = divide(Table(np.ones((50, 1), np.float32), y, False), 50, 0.2, seed=0)
        assert set(rows.y_test) | set(rows.y_held) <= set(rows.y)


class TestVerdicts:
    def test_verdicts_are_those_of_paired_losses(self):
        assert verdict([1.0, 2.0, 3.0], [1.1, 2.1, 3.1]) == "won"
        assert verdict([1.1, 2.1, 3.1], [1.0, 2.0, 3.0]) == "lost"
        assert verdict([1.0, 2.0, 3.0], [1.5, 1.9, 2.8]) == "tied"

    def test_equal_losses_share_their_ranks(self):
        means = {"one": {"a": 1.0, "b": 1.0, "c": 2.0}, "two": {"a": 3.0, "b": 2.0, "c": 1.0}}
        assert mean_ranks(means, ["a", "b", "c"]) == {"a": 2.25, "b": 1.75, "c": 2.0}

    def test_the_critical_difference_is_that_of_the_published_table(self):
        # q of Demsar (2006), table 5, for 2, 5 and 10 learners
        for k, q in ((2, 1.960), (5, 2.728), (10, 3.164)):
            assert critical_difference(k, 30) == pytest.approx(q * np.sqrt(k * (k + 1) / 180), rel=1e-3)

    def test_equal_ranks_are_alike(self):
        assert alike({"a": 1.5, "b": 1.5, "c": 3.0}, 1.0) == [(1.5, 1.5)]
        assert alike({"a": 1.0, "b": 2.0, "c": 3.0}, 2.0) == [(1.0, 3.0)]
        assert alike({"a": 1.0, "b": 2.0}, 0.5) == []

    def test_over_sets_signs_and_sizes_count(self):
        results = {str(i): make_split({"a": 1.0, "b": 1.0 + 0.1 * (i + 1)}) for i in range(8)}
        assert compare_over_sets(results, "a", "b") == pytest.approx(2 / 2**8)
        assert compare_over_sets({"x": make_split({"a": 1.0, "b": 1.0})}, "a", "b") is None

    def test_tiny_log_losses_do_not_decide_ratios(self):
        tiny = {"a": 1e-9, "b": 1e-6}
        assert log_ratio({"s": make_split(tiny, regression=False)}, "s", "a", "b") == pytest.approx(-0.001, abs=1e-5)
        assert log_ratio({"s": make_split(tiny)}, "s", "a", "b") == pytest.approx(np.log(1e-3))


def make_split(losses, regression=True, seconds=1.0):
    """What was found of a set with one split."""
    return {"0": {n: {"loss": v, "seconds": seconds, "regression": regression} for n, v in losses.items()}}


BRIEF = {"n_estimators": 5}
FAST = {"gbun": (fit_gbun, BRIEF), "gbun (given rows)": (fit_gbun_on_given, BRIEF)}
FAST |= dict.fromkeys((*PEERS, "linear"), (fit_linear, {}))


class TestMeasuring:
    @pytest.mark.parametrize("regression", [False, True])
    @pytest.mark.parametrize("name", sorted(boosters.AS_THEY_COME))
    def test_each_learner_learns(self, monkeypatch, name, regression):
        pytest.importorskip({"CatBoost": "catboost", "XGBoost": "xgboost"}.get(name, "numpy"))
        if name == "HGB":
            pytest.importorskip("sklearn", minversion="1.7")
        monkeypatch.setattr(boosters, "ROUNDS", 30)
        fit, settings = boosters.AS_THEY_COME[name]
        rows = divide(make_made_table(regression), 300, 0.1, seed=0)
        model = fit(rows, settings, None)
        constant = float(rows.y_test.std()) if regression else np.log(2)
        assert 0 < boosters.loss(model, rows.X_test, rows.y_test, regression) < 0.8 * constant

    @pytest.mark.parametrize("name", sorted(boosters.TUNABLE))
    def test_boosters_stop_when_time_is_up(self, name):
        pytest.importorskip({"CatBoost": "catboost", "XGBoost": "xgboost"}.get(name, "numpy"))
        asked = []

        def late():
            asked.append(True)
            return len(asked) >= 3

        rows = divide(make_made_table(True), 300, 0.1, seed=0)
        model = boosters.TUNABLE[name](rows, {"learning_rate": 0.1}, late)
        assert len(asked) == 3
        assert boosters.loss(model, rows.X_test, rows.y_test, True) < rows.y_test.std()

    def test_held_out_rows_are_given_to_all_but_the_defaults(self, monkeypatch):
        seen = []

        class Spy:
            def __init__(self, **settings):
                pass

            def fit(self, X, y, eval_set=None, callbacks=()):
                seen.append((len(X), eval_set and len(eval_set[0])))

        monkeypatch.setattr(boosters, "GBUNRegressor", Spy)
        rows = divide(make_made_table(True), 300, 0.1, seed=0)
        fit_gbun(rows, {})
        fit_gbun_on_given(rows, {})
        assert seen == [(210, None), (189, 21)]

    def test_a_cell_is_measured_with_its_kind(self):
        table = TableSet("classes", lambda: make_made_table(False))
        (_, answer), *_ = measure_all([Cell(table, 0, make_contestant("linear", fit_linear, {}), 200)], 1)
        found = answer()
        assert found["loss"] < np.log(2)
        assert found["regression"] is False


@pytest.mark.slow
def test_cells_run_in_other_processes(tmp_path):
    np.savez(tmp_path / "made.npz", X=np.random.default_rng(0).normal(size=(90, 2)), y=np.arange(90) % 2)
    table = known_sets(None, tmp_path)["made"]
    cells = [Cell(table, split, make_contestant("linear", fit_linear, {}), 90) for split in range(2)]
    found = {cell.split: answer()["loss"] for cell, answer in measure_all(cells, 2)}
    assert found == {cell.split: measure(cell)["loss"] for cell in cells}


class TestTuning:
    @pytest.mark.parametrize("regression", [False, True])
    @pytest.mark.parametrize("name", sorted(boosters.TUNABLE))
    def test_the_first_trial_has_the_tuned_defaults(self, monkeypatch, name, regression):
        pytest.importorskip("optuna")
        tried = []
        monkeypatch.setitem(tuning.TUNABLE, name, lambda rows, settings, late: tried.append(settings))
        losses = iter([0.3, 0.2, 0.4, 0.7])
        monkeypatch.setattr(tuning, "loss", lambda *_: next(losses))
        times = iter([0.0, 1.0, 2.0, 5.0, 5.0])  # began, after each of three trials, what was spent
        monkeypatch.setattr(tuning, "process_time", lambda: next(times))
        found = tuning.tune(name, divide(make_made_table(regression), 300, 0.2, seed=0), 3.0)
        first = {} if name == "gbun" else {**tuning.FIXED.get(name, {}), **tuning.STARTS[name]}
        assert tried[0] == first
        assert found["trials"] == len(tried) == 3
        assert (found["validation"], found["loss"], found["seconds"]) == (0.2, 0.7, 5.0)
        assert found["settings"].items() <= tried[1].items()

    def test_gbun_accepts_what_it_is_tuned_by(self):
        optuna = pytest.importorskip("optuna")
        rows = divide(make_made_table(False), 300, 0.2, seed=0)
        for learner in tuning.SPACES["gbun"]["learner"]:
            trial = optuna.trial.FixedTrial({**tuning.start_of("gbun", rows), "learner": learner})
            settings = tuning.settings_of_gbun(tuning.suggest_in(trial, tuning.SPACES["gbun"]))
            fit_gbun_on_given(rows, {**settings, **BRIEF})


class TestCommand:
    @pytest.fixture
    def run(self, tmp_path, monkeypatch):
        table = make_made_table(False, 120)
        for name in ("one", "two"):
            np.savez(tmp_path / f"{name}.npz", X=table.X, y=table.y)
        monkeypatch.setattr(measuring, "AS_THEY_COME", FAST)

        def run(*words):
            monkeypatch.setattr(sys, "argv", ["tables", "--folder", str(tmp_path), "--output", str(tmp_path), *words])
            command.main()
            return json.loads((tmp_path / "tables_10000.json").read_text())

        return run

    def test_what_is_finished_is_not_run_again(self, run, tmp_path, monkeypatch):
        first = run("--splits", "1")
        assert set(first) == {"one", "two"}
        assert set(first["one"]["0"]) == set(FAST)
        for name in ("ranks", "ranks_all", "ratios"):
            assert (tmp_path / f"tables_10000_{name}.png").stat().st_size > 1000
        measured = []
        monkeypatch.setattr(measuring, "measure", lambda cell: measured.append(cell.key) or measure(cell))
        second = run("--splits", "2", "--only", "one", "--again", "gbun;linear")
        assert measured == [("one", "0", "gbun"), ("one", "0", "linear"), *(("one", "1", name) for name in FAST)]
        assert second["two"] == first["two"]

    def test_some_learners_can_be_measured_alone(self, run):
        found = run("--splits", "1", "--only", "two", "--learners", "gbun;linear")
        assert {name: list(splits["0"]) for name, splits in found.items()} == {"two": ["gbun", "linear"]}

    @pytest.mark.parametrize("words", [("--only", "three"), ("--again", "gbun,linear"), ("--learners", "nobody")])
    def test_unknown_names_are_refused(self, run, words, capsys):
        with pytest.raises(SystemExit):
            run(*words)
        assert "known are" in capsys.readouterr().err

    def test_a_failure_is_told_and_all_else_is_measured(self, run, tmp_path, monkeypatch):
        def fail(rows, settings, late):
            raise RuntimeError("no such thing")

        monkeypatch.setattr(measuring, "AS_THEY_COME", {**FAST, "HGB": (fail, {})})
        with pytest.raises(SystemExit, match="one, 0, HGB: RuntimeError: no such thing"):
            run("--splits", "1")
        found = json.loads((tmp_path / "tables_10000.json").read_text())
        assert {name: set(splits["0"]) for name, splits in found.items()} == {"one": set(FAST), "two": set(FAST)}


def test_ablations_are_relative_to_lightgbm(tmp_path):
    names = [one.name for one in ablations.contestants()]
    assert names[0] == "LightGBM"
    assert len(set(names)) == len(names)
    losses = {"LightGBM": 1.0, "mixed": 0.5}
    results = {name: make_split(losses, seconds=2.0) for name in ("a", "b")}
    rows = ablations.make_rows(results, list(losses))
    assert [row["mixed"] for row in rows] == ["-0.693", "-0.693", "-0.693", "4.0"]
    assert [row["data"] for row in rows] == ["a", "b", "mean", "seconds, all sets"]
    draw_panels(ablations.ratios(results, ["mixed"]), "made", tmp_path / "made.png")
    assert (tmp_path / "made.png").stat().st_size > 1000


@pytest.mark.parametrize("change", ablations.SWITCHES.values(), ids=list(ablations.SWITCHES))
def test_gbun_has_every_switch(change):
    fit_gbun_on_given(divide(make_made_table(False), 100, 0.2, seed=0), {**change, **BRIEF})


def test_rows_of_the_report_judge_each_learner():
    losses = {"gbun": 1.0, "LightGBM": 2.0, "XGBoost": 3.0, "CatBoost": 1.5, "gbun trees": 4.0}
    results = {name: make_split(losses) for name in ("a", "b")}
    rows = make_rows(results, list(losses), ["gbun", "gbun trees"], PEERS)
    by_set = [row for row in rows if "best peer" in row]
    assert [(row["best peer"], row["gbun: against it"], row["gbun trees: against it"]) for row in by_set] == [
        ("CatBoost", "won", "lost")
    ] * 2
    ranks = {row["learner"]: row["mean rank, one gbun"] for row in rows if "mean rank, one gbun" in row}
    assert ranks == {"gbun": "1.00", "CatBoost": "2.00", "LightGBM": "3.00", "XGBoost": "4.00", "gbun trees": "4.00"}
    best = [row for row in rows if str(row.get("learner")).startswith("best of")]
    assert [(row["won"], row["tied"], row["lost"]) for row in best] == [(2, 0, 0), (0, 0, 2)]


@pytest.mark.parametrize("module", [tuning, verdicts])
def test_examples(module):
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_a_store_is_complete_at_any_time(tmp_path):
    store = Store(tmp_path / "a.json")
    store.put(("set", "0", "x"), {"loss": 1.0})
    store.put(("set", "1", "x"), {"loss": 2.0})
    again = Store(tmp_path / "a.json")
    assert again.results == store.results
    assert list(again.complete(["set", "other"], 2, ["x"])) == ["set"]
    assert not again.complete(["set"], 3, ["x"])
    assert not again.complete(["set"], 2, ["x", "y"])

"""Generated clicks, pictures, peers, and the demo as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from rich.console import Console

from gbun import datasets, demo, peers, plots
from gbun.datasets import make_clicks

PNG = b"\x89PNG\r\n\x1a\n"


# Clicks


@pytest.mark.parametrize("n_features", [6144, 10_000, 1_000_000, 10_000_000, 54_000_000])
def test_clicks_have_one_value_of_each_field_and_a_known_share_of_positives(n_features):
    X, y = make_clicks(20_000, n_features)
    sizes = datasets.field_sizes(n_features, 11)
    ends = np.cumsum(sizes)
    ids = X.indices.reshape(-1, 11)
    assert X.shape == (20_000, n_features)
    assert (X.dtype, X.indices.dtype) == (np.float32, np.int32)
    assert (X.data == 1).all()
    assert ((ids >= ends - sizes) & (ids < ends)).all()
    assert sizes[0] == 3
    assert sizes.min() > 0
    assert sizes.sum() == n_features
    assert 0.1 < y.mean() < 0.2


@pytest.mark.parametrize("seed", range(8))
def test_positives_for_every_seed(seed):
    assert 0.1 < make_clicks(10_000, 100_000, seed=seed)[1].mean() < 0.2


def test_clicks_are_the_same_for_one_seed_and_others_for_another():
    (X, y), (X2, y2), (X3, y3) = (make_clicks(500, 10**6, seed=s) for s in (3, 3, 4))
    assert (X.indices == X2.indices).all()
    assert (y == y2).all()
    assert (X.indices != X3.indices).any()
    assert (y != y3).any()


def test_clicks_golden():
    X, y = make_clicks(1000, 10_000_000, seed=1)
    assert X.indices[:11].tolist() == [0, 6, 34, 60, 406, 946, 3713, 36299, 150205, 493419, 1771989]
    assert int(y.sum()) == 159


def test_memory_of_clicks_follows_rows_and_not_features():
    def peak(n_rows, n_features):
        tracemalloc.start()
        make_clicks(n_rows, n_features)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(10, 10_000)
    assert peak(20_000, 2**31 - 1) < 1.05 * peak(20_000, 10_000)
    assert peak(40_000, 10_000) > 1.5 * peak(20_000, 10_000)


def test_values_follow_zipf():
    ranks = datasets.draw_ranks(200_000, np.array([1000]), np.random.default_rng(0))[:, 0]
    counts = np.bincount(ranks, minlength=1000)
    assert 0 <= ranks.min() <= ranks.max() < 1000
    slope = np.polyfit(np.log(np.arange(10, 200)), np.log(counts[9:199]), 1)[0]
    assert slope == pytest.approx(-datasets.ZIPF, abs=0.1)


@pytest.mark.parametrize("size", [3, 97, 1000, 65_536])
def test_scatter_is_a_permutation(size):
    places = datasets.scatter(np.arange(size)[:, None], np.array([size]))
    assert sorted(places[:, 0]) == list(range(size))


def test_effects_have_mean_0_variance_1_and_end_with_frequent_values():
    effects = datasets.effect(7, 2, np.arange(100_000), 50_000)
    assert abs(effects[:50_000].mean()) < 0.02
    assert effects[:50_000].std() == pytest.approx(1.0, abs=0.02)
    assert not effects[50_000:].any()


def test_clicks_can_be_learnt():
    from sklearn.metrics import roc_auc_score

    from gbun import GBUNClassifier

    X, y = make_clicks(6000, 10_000_000)
    model = GBUNClassifier(n_neurons=64, n_estimators=40).fit(X[:4500], y[:4500])
    assert roc_auc_score(y[4500:], model.decision_function(X[4500:])) > 0.7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_rows": 0, "n_features": 10_000}, "n_rows must be at least 1, got 0"),
        ({"n_rows": 5, "n_features": 6143}, "n_features must be from 6144 .* got 6143"),
        ({"n_rows": 5, "n_features": 2**31}, "n_features must be from 6144 .* got 2147483648"),
        ({"n_rows": 5, "n_features": 10_000, "n_fields": 1}, "n_fields must be at least 2"),
    ],
)
def test_clicks_refuse(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_clicks(**arguments)


# Pictures


def test_plot_curves_writes_a_picture_into_a_new_folder(tmp_path):
    panels = [
        plots.Panel("one", "loss", {"a": [3.0, 2.0, 1.0], "b": []}, {"b": "no round after 1 s"}),
        plots.Panel("two", "loss", {"a": [1.0]}),
        plots.Panel("three", "loss", {"a": [2.0, 1.0]}),
    ]
    path = plots.plot_curves(panels, tmp_path / "new" / "curves.png")
    assert path.read_bytes().startswith(PNG)


def test_plot_curves_of_nothing():
    with pytest.raises(ValueError, match="panels must hold at least one Panel"):
        plots.plot_curves([], "never.png")


def test_plot_history_draws_each_set_and_metric_on_given_axes():
    ax = plots.new_figure(3, 3).add_subplot()
    result = {
        "valid": {"auc": [0.5, 0.6], "log_loss": [0.7, 0.6]},
        "train": {"auc": [0.6, 0.7], "log_loss": [0.6, 0.5]},
    }
    assert plots.plot_history(result, ax) is ax
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["valid auc", "valid log_loss", "train auc", "train log_loss"]
    assert ax.lines[0].get_ydata().tolist() == [0.5, 0.6]


def test_plot_history_of_nothing():
    with pytest.raises(ValueError, match="evals_result is empty"):
        plots.plot_history({})


def test_missing_matplotlib_says_how_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'gbun\[plots\]'"):
        plots.new_figure(1, 1)


# Peers


@pytest.mark.parametrize("learner", peers.LEARNERS, ids=lambda learner: learner.name)
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_learners_fit_every_task_behind_one_signature(learner, task):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    signal = X[:, 0] + X[:, 1]
    y = {"binary": (signal > 0) * 1, "multiclass": np.digitize(signal, [-1, 1]), "regression": signal}[task]
    split = peers.Split(task, X[:200], y[:200], X[200:], y[200:])
    told: list[float] = []
    # One thread: two that spin wait long for each other when tests run side by side.
    one_thread = {"gbun": {"n_jobs": 1}, "LightGBM": {"num_threads": 1}, "XGBoost": {"nthread": 1}}
    fitted = learner.fit(split, 10, told.append, one_thread[learner.name])
    assert fitted.curve == told
    assert len(told) == 10
    assert told[-1] < told[0]
    assert np.shape(fitted.predict(X[200:])) == ((100, 3) if task == "multiclass" else (100,))
    if task != "multiclass":
        assert np.corrcoef(fitted.predict(X[200:]), y[200:])[0, 1] > 0.7


# The demo


def test_demo_prints_all_rows_and_writes_the_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    demo.run(tmp_path / "results", quick=True)
    out, err = capsys.readouterr()
    for problem in demo.problems(quick=True):
        assert problem.name in out
        for learner in peers.LEARNERS:
            assert f"{problem.name}, {learner.name}: AUC 0." in err
    for learner in peers.LEARNERS:
        assert out.count(f" {learner.name} ") >= 2
    assert out.count("AUC 0.") == 6
    assert "failed" not in out
    assert f"Learning curves: {tmp_path / 'results' / demo.PICTURE}" in out
    assert (tmp_path / "results" / demo.PICTURE).read_bytes().startswith(PNG)


class Endless:
    """Tells one round, takes memory and does not come back."""

    name = "endless"

    def available(self):
        return True

    def fit(self, split, n_rounds, tell, settings):
        if n_rounds > 2:  # not in the warm-up
            tell(0.5)
            self.ballast = np.ones(8_000_000)
            while True:
                pass
        return


class Broken(Endless):
    name = "broken"

    def fit(self, split, n_rounds, tell, settings):
        raise RuntimeError("out of [order]")


class Dying(Endless):
    name = "dying"

    def fit(self, split, n_rounds, tell, settings):
        os._exit(7)


class Absent(Endless):
    name = "absent"

    def available(self):
        return False


@pytest.mark.parametrize(
    ("learner", "score", "seconds"),
    [
        (Endless(), "-", "> 1 s, stopped"),
        (Broken(), "failed: RuntimeError: out of [order]", ""),
        (Dying(), "died with exit code 7", ""),
        (Absent(), "not installed: pip install 'gbun[peers]'", ""),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_learner_that_gives_no_result_gives_a_row_that_says_why(learner, score, seconds):
    problem = demo.Problem("clicks", "binary", make_small_clicks, 5, {}, 1.0)
    with demo._progress() as progress:
        result = demo.contest(problem, learner, progress)
    found = demo.cells(problem, result)
    assert found[:2] == (score, seconds)
    if learner.name == "endless":
        assert result.curve == (0.5,)
        assert result.megabytes is None or 60 < result.megabytes < 200
        assert demo.note(result) == "stopped after 1 s"


def make_small_clicks():
    return make_clicks(300, 10_000)


def test_notes_with_brackets_reach_the_table(capsys):
    problem = demo.problems(quick=True)[0]
    note = demo.Result(note=f"not installed: {peers.INSTALL}")
    scored = demo.Result(score=0.9, seconds=1.0, megabytes=0.2)
    results = {(problem.name, learner.name): note for learner in peers.LEARNERS[1:]}
    results[problem.name, "gbun"] = scored
    Console(width=120).print(demo.table([problem], {problem.name: (569, 30)}, results))
    out = capsys.readouterr().out
    assert out.count("not installed: pip install 'gbun[peers]'") == 2
    assert "AUC 0.9000" in out
    assert "< 1 MB" in out


def test_demo_without_matplotlib_still_ends_well(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "contest", lambda problem, learner, progress: demo.Result(0.9, 1.0, 5.0))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    demo.run(tmp_path, quick=True)
    assert "No learning curves: plotting needs matplotlib: pip install 'gbun[plots]'" in " ".join(
        capsys.readouterr().out.split()
    )


def test_peak_memory_is_measured_from_where_it_was_forgotten():
    """In a process of its own: this one may be giving back what other tests have left."""
    code = (
        "import numpy as np; from gbun import demo; before = demo.peak_megabytes(forget=True);"
        "ballast = None if before is None else np.ones(16_000_000); del ballast;"  # 122 MB
        "print(before is None or 100 < demo.peak_megabytes() - before < 200)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "True"

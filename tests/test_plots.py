"""Plots of curves and histories."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

import gbun
from gbun import plots

PNG = b"\x89PNG\r\n\x1a\n"


def test_plot_curves_writes_a_picture_into_a_new_folder(tmp_path):
    panels = [
        plots.Panel("one", "loss", {"a": [3.0, 2.0, 1.0], "b": []}, {"b": "no round after 1 s"}),
        plots.Panel("two", "loss", {"a": [1.0]}),
        plots.Panel("three", "loss", {"a": [2.0, 1.0]}),
    ]
    path = plots.plot_curves(panels, tmp_path / "new" / "curves.png")
    assert path.read_bytes().startswith(PNG)


def test_plots_of_nothing():
    with pytest.raises(ValueError, match="panels must hold at least one Panel"):
        plots.plot_curves([], "never.png")
    with pytest.raises(ValueError, match="evals_result is empty"):
        plots.plot_history({})


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


def test_missing_matplotlib_says_how_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'gbun\[plots\]'"):
        plots.new_figure(1, 1)


@pytest.fixture(scope="module")
def explained():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"size": rng.normal(size=200), "town": rng.choice(["Rome", "Oslo"], 200), "age": rng.normal(size=200)}
    )
    model = gbun.GBUNRegressor(n_estimators=15, n_jobs=1).fit(frame, frame["size"] + (frame["town"] == "Rome"))
    return frame, model, model.explain(frame[:60])


def labels(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def test_plot_importance_has_the_largest_bar_on_top(explained):
    frame, model, explanation = explained
    for found in (explanation, model.importance(), model.importance(frame, frame["size"], n_repeats=2)):
        ax = plots.plot_importance(found, plots.new_axes(4, 3), top=2)
        widths = [bar.get_width() for bar in ax.patches]
        assert widths == sorted(widths)
        assert len(widths) == 2
        assert labels(ax.yaxis)[-1] in ("size", "town")


def test_plot_waterfall_leads_from_the_base_to_the_score(explained):
    _, _, explanation = explained
    ax = plots.plot_waterfall(explanation, 5, top=2)
    bars = ax.patches
    assert bars[0].get_x() == pytest.approx(explanation.base[5])
    assert bars[-1].get_x() + bars[-1].get_width() == pytest.approx(explanation.scores[5], abs=1e-6)
    assert any(label.startswith("town = ") for label in labels(ax.yaxis)) or "1 other features" in labels(ax.yaxis)
    with pytest.raises(ValueError, match="row must be one of the 60 explained rows, got 60"):
        plots.plot_waterfall(explanation, 60)


def test_plot_contributions_has_a_dot_for_each_row_and_column(explained):
    _, _, explanation = explained
    ax = plots.plot_contributions(explanation)
    assert sum(len(dots.get_offsets()) for dots in ax.collections) == 180
    assert set(labels(ax.yaxis)) == {"size", "town", "age"}


def test_plot_dependence_of_one_and_two_columns(explained):
    frame, model, _ = explained
    ax = plots.plot_dependence(model, frame[:50], "size", n_points=5, n_lines=7)
    assert len(ax.lines) == 8
    mean = ax.lines[-1].get_ydata()
    assert mean[-1] > mean[0]
    assert plots.plot_dependence(model, frame[:20], ("size", "age"), n_points=4).get_ylabel() == "age"
    with pytest.raises(ValueError, match="columns must be among"):
        plots.plot_dependence(model, frame, "weight")
    with pytest.raises(ValueError, match="columns must hold numbers"):
        plots.plot_dependence(model, frame, "town")


def test_plots_of_several_scores_ask_for_one():
    X = np.random.default_rng(0).normal(size=(90, 3))
    explanation = gbun.GBUNClassifier(n_estimators=4, n_jobs=1).fit(X, np.arange(90) % 3).explain(X[:5])
    for plot in (plots.plot_waterfall, plots.plot_contributions):
        with pytest.raises(ValueError, match="draws one score"):
            plot(explanation)

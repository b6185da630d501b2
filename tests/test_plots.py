"""Plots of curves and histories."""

from __future__ import annotations

import sys

import pytest

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

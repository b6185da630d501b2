"""Tests run in processes side by side: idle threads of torch and LightGBM must not spin while others compute."""

import os

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before anyone loads OpenMP


def pytest_sessionstart(session):
    """Before several processes need them at once, and each of them compiles them, kernels are compiled here."""
    if not session.config.getoption("numprocesses", None) or hasattr(session.config, "workerinput"):
        return
    import numpy as np
    import scipy.sparse as sp

    import gbun

    X = np.random.default_rng(0).normal(size=(300, 4))
    for data in (X, sp.csr_array(np.maximum(X, 0.0))):
        gbun.train({"n_neurons": 16}, (data, X[:, 0]), 2, task="regression").predict(data)


def pytest_collection_modifyitems(items):
    """Tests that one process must do one after another come first: later, the others would wait for them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.fixture
def handed_over(monkeypatch):
    """Other threads get work however little it is: tests of threads have few rows."""
    from gbun.kernels import linear, threads

    monkeypatch.setattr(threads, "MIN_PARALLEL_OPERATIONS", 0)
    monkeypatch.setattr(linear, "MIN_PIECE_ENTRIES", 1)

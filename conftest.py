"""Tests run in processes side by side: idle threads of torch and LightGBM must not spin while others compute."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before anyone loads OpenMP


def pytest_collection_modifyitems(items):
    """Tests that one process must do one after another begin first, or the other processes wait for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)

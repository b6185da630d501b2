"""Tests run in processes side by side: idle threads of torch and LightGBM must not spin while others compute."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before anyone loads OpenMP


def pytest_collection_modifyitems(items):
    """Tests that one process must do one after another begin after a third of the others: later, the other process
    would wait for them at the end; earlier, every process they start would compile the same kernels."""
    grouped = [item for item in items if item.get_closest_marker("xdist_group") is not None]
    others = [item for item in items if item.get_closest_marker("xdist_group") is None]
    items[:] = [*others[: len(others) // 3], *grouped, *others[len(others) // 3 :]]

"""The measurement of devices runs, sends batches where it says so, and names the kernel that ran."""

from __future__ import annotations

from functools import partial

import pytest

pytest.importorskip("torch")

from benchmarks.data import Source
from benchmarks.speed.devices import ALL, HALF, SENT, dense, on_device

from gbun.datasets import make_clicks

CLICKS = Source("clicks", partial(make_clicks, 300, 6200))


@pytest.mark.parametrize(("source", "kernel"), [(CLICKS, "portable"), (dense(300, 5), "none")], ids=["sparse", "dense"])
def test_rounds_are_measured_with_all_memory_and_with_little(source, kernel):
    plans = {}
    for memory in (ALL, HALF, SENT):
        with on_device(source, 16, 1, "torch:cpu", memory) as (work, facts):
            work["round"]()
        plans[memory] = facts["plan"]
        assert facts["sparse kernel"] == kernel
    assert plans[ALL].startswith("features stay, outputs kept")
    assert "rows are sent" in plans[SENT]


def test_the_processor_has_compiled_kernels():
    with on_device(CLICKS, 16, 1, "cpu") as (work, facts):
        work["round"]()
    assert facts["sparse kernel"] == "compiled"

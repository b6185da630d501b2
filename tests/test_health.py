"""What workers know of each other's failures, by the record in their store."""

from __future__ import annotations

import pytest

from gbun.collectives.health import Health
from gbun.launcher import TIMEOUT

dist = pytest.importorskip("torch").distributed


def test_who_could_not_connect_says_why_if_somebody_knows(monkeypatch):
    monkeypatch.setattr("gbun.collectives.health.SECONDS_TO_TELL", 0.2)
    store = dist.HashStore()
    healths = [Health(store, rank, 2, TIMEOUT) for rank in range(2)]
    try:
        broken = RuntimeError("connectFullMesh failed: closed by peer\nand much more")
        found = healths[0].unconnected(broken)
        assert (found.rank, found.lost) == (0, True)
        assert str(found) == "worker 0 of 2 could not connect with the others: connectFullMesh failed: closed by peer"
        healths[1].failed(ValueError("transport must be ..."))
        found = healths[0].unconnected(broken)
        assert (found.rank, found.lost) == (1, False)
        assert str(found) == "worker 1 of 2 failed: ValueError: transport must be ..."
        assert healths[0].unconnected(found) is found
    finally:
        for health in healths:
            health._ended.set()

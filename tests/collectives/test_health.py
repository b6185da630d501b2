"""What workers know of each other's failures, by the record and the pulses in their store."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from gbun.collectives import WorkerError, health
from gbun.collectives.health import Health

dist = pytest.importorskip("torch").distributed
TIMEOUT = 300.0


@pytest.fixture
def pair(monkeypatch):
    """Two workers with one store, which do not wait for a better explanation of a failure."""
    monkeypatch.setattr(health, "FAILURE_WAIT_SECONDS", 0.0)
    store = dist.HashStore()
    workers = [Health(store, rank, 2, TIMEOUT) for rank in range(2)]
    yield workers
    for worker in workers:
        worker.end()


@pytest.fixture
def clock(monkeypatch):
    """The time that `Health` reads, as a list of one number that tests set."""
    now = [1e6]
    monkeypatch.setattr(health, "monotonic", lambda: now[0])
    return now


def test_connection_error_is_explained_by_the_failure_on_record(pair):
    broken = RuntimeError("connectFullMesh failed: closed by peer\nand much more")
    found = pair[0].explain_connection_error(broken)
    assert (found.rank, found.lost) == (0, True)
    assert str(found) == "worker 0 of 2 could not connect with the others: connectFullMesh failed: closed by peer"
    pair[1].report_failure(ValueError("transport must be ..."))
    found = pair[0].explain_connection_error(broken)
    assert (found.rank, found.lost) == (1, False)
    assert str(found) == "worker 1 of 2 failed: ValueError: transport must be ..."
    assert pair[0].explain_connection_error(found) is found


def test_broken_connection_is_a_lost_worker_unless_another_failure_is_on_record(pair):
    found = pair[0].explain_lost_peer(1, RuntimeError("closed"))
    assert (found.rank, found.lost) == (1, True)
    assert str(found) == "worker 1 of 2 failed: its connection broke: it was killed, or its machine is gone"
    assert str(pair[1].explain_lost_peer(0, RuntimeError("closed"))) == str(
        found
    )  # the first failure is the cause of all others
    with pytest.raises(WorkerError, match="its connection broke"):
        pair[1].check()


def watch(worker, clock, before_check=lambda count: None):
    """Let a worker check the others at intervals, for somewhat longer than the timeout."""
    for count in range(int(TIMEOUT / worker.pulse_interval) + 2):
        before_check(count)
        worker.check()
        clock[0] += worker.pulse_interval


def test_worker_without_a_pulse_has_failed_and_one_with_a_pulse_is_waited_for(pair, clock):
    pair[1].end()  # its thread must not send pulses by the real clock
    watch(pair[0], clock, lambda count: pair[1].store.set("pulse/1", f"pulse {count}"))
    with pytest.raises(WorkerError, match="worker 1 of 2 failed: no sign of life for 300 s") as raised:
        watch(pair[0], clock)
    assert (raised.value.rank, raised.value.lost) == (1, True)


def test_silence_counts_only_while_this_worker_looks(pair, clock):
    """A worker that computed for long has old pulses of the others."""
    pair[0].check()
    clock[0] += 10 * TIMEOUT
    pair[0].check()


@pytest.mark.parametrize(("error", "kind"), [(KeyError("pulse/1"), KeyError), (ConnectionError("reset"), WorkerError)])
def test_record_is_left_although_a_request_has_failed_before(pair, monkeypatch, error, kind):
    """An answer that is an error of its request says nothing about the store; one that broke is tried once more."""
    store = pair[0].store
    broken = Mock(check=Mock(side_effect=error), compare_set=Mock(side_effect=store.compare_set))
    monkeypatch.setattr(pair[0], "store", broken)
    with pytest.raises(kind):
        pair[0].check()
    pair[0].report_failure(ValueError("its data is gone"))
    with pytest.raises(WorkerError, match="worker 0 of 2 failed: ValueError: its data is gone"):
        pair[1].check()
    pair[0].report_failure(ValueError("again"))
    assert broken.compare_set.call_count == (1 if kind is WorkerError else 2)
    monkeypatch.undo()


def test_store_that_fails_is_named(pair, monkeypatch):
    class BrokenStore:
        def check(self, keys):
            raise RuntimeError("connection reset")

    monkeypatch.setattr(pair[0], "store", BrokenStore())
    with pytest.raises(WorkerError, match=r"worker 0, which keeps the store of this job, cannot be reached"):
        pair[0].check()
    monkeypatch.undo()

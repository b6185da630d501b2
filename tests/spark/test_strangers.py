"""Networks of jobs: a stranger is refused, and the job goes on; a cut ends it. Hosts are network namespaces."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.network.hosts import Hosts
from benchmarks.network.namespaces import call

import gbun

for module in ("torch", "pyspark", "pyarrow"):
    pytest.importorskip(module)
from tests.benchmarks.hosts import needs_hosts  # noqa: E402
from tests.spark import stranger_jobs  # noqa: E402
from tests.spark.arrow_batches import X, Y, job  # noqa: E402

JOB = [sys.executable, "-m", "tests.spark.stranger_jobs"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def hosts():
    with Hosts(3) as made:
        yield made


def listening(name):
    """(address, port) of all sockets that listen in a namespace."""
    found = []
    for line in call(["ip", "netns", "exec", name, "cat", "/proc/net/tcp"]).splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        if state == "0A":
            address, port = local.split(":")
            found.append((socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)))
    return found


def run(hosts, folder, commands):
    """Start the job; return a function that lets it end and returns its outcomes."""
    group = hosts.start([[*JOB, *command] for command in commands], cwd=ROOT)

    def finish():
        stranger_jobs.publish(folder / stranger_jobs.DONE, "")
        for number, process in enumerate(group.processes):
            assert process.wait(120) == 0, group.errors(number)
        return [(folder / f"outcome {rank}").read_text() for rank in range(len(commands))]

    stranger_jobs.wait_for(folder / "training")
    return finish


@needs_hosts
def test_stranger_is_refused_and_the_job_goes_on(hosts, tmp_path):
    addresses = hosts.addresses[:2]
    finish = run(hosts, tmp_path, [[str(rank), str(tmp_path), *addresses] for rank in range(2)])
    open_ports = [address for name in hosts.names[:2] for address in listening(name)]
    assert [host for host, _ in open_ports] == [addresses[0]]  # the store, at the address of its host only
    targets = [f"{host}:{port}" for host, port in open_ports]
    call(["ip", "netns", "exec", hosts.names[2], *JOB, "disturb", str(tmp_path), *targets], seconds=120.0)
    assert (tmp_path / "stranger").read_text() == "[]"
    assert finish() == ["None", "None"]
    model = gbun.load_model(tmp_path / "model.gbun")
    parameters = {**job().parameters, "objective": lambda y, f, w: (w * (f - y), w), "init": "constant"}
    alone = gbun.train(parameters, (X, Y), 6, task="regression")
    np.testing.assert_allclose(model.predict(X), alone.predict(X), atol=1e-9)


@needs_hosts
def test_network_that_is_gone_ends_the_job_on_both_sides(hosts, tmp_path):
    """No connection is closed: packets are lost, as when a cable is cut. Worker 0 keeps the store."""
    addresses = hosts.addresses[:2]
    finish = run(hosts, tmp_path, [["lose network", str(tmp_path), str(rank), *addresses] for rank in range(2)])
    call(["ip", "-n", hosts.names[1], "link", "set", "eth0", "down"])
    root, other = finish()
    assert root.startswith("worker 1 of 2 failed: no sign of life for 3 s: it is frozen, or its machine is gone")
    assert other.startswith("worker 0, which keeps the store of this job, ")


@needs_hosts
def test_workers_of_one_machine_listen_on_loopback_only(hosts, tmp_path):
    finish = run(hosts, tmp_path, [["launch", str(tmp_path)]])
    open_ports = listening(hosts.names[0])
    assert open_ports
    assert {host for host, _ in open_ports} == {"127.0.0.1"}
    assert finish() == ["None"]

"""Two hosts with a worker each, for the tests of the experiments on several hosts."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
from benchmarks.network import shards
from benchmarks.network.crew import Crew
from benchmarks.network.hosts import Hosts
from benchmarks.network.learners import job_of, ready
from benchmarks.network.namespaces import PREFIX, missing, namespaces
from benchmarks.paper.experiment import Plan
from benchmarks.speed.data import clicks

needs_hosts = pytest.mark.skipif(missing() is not None, reason=f"no hosts: {missing()}")


@pytest.fixture(scope="module")
def team():
    """Sets up learners, one after the other: all have the same workers and rows."""
    with shards.written(clicks(100_000, 20_000), 2) as folder, Hosts(2) as hosts, Crew(hosts, 2) as crew:

        def make(learner, size, **limit):
            hosts.limit(None)
            return ready(hosts, crew, job_of(learner, str(folder), size), **limit)

        yield make
    # Other processes may have hosts too.
    assert not namespaces(f"{PREFIX}-{os.getpid()}"), "hosts are left behind"


def planned(experiment, *arguments, data=None):
    """The plan of a command line."""
    parser = argparse.ArgumentParser()
    experiment.options(parser)
    return Plan(data and Path(data), False, 1, 1, parser.parse_args(arguments))

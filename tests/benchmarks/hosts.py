"""Two hosts with a worker each, for the experiments on several hosts."""

from __future__ import annotations

import os

import pytest
from benchmarks.data import clicks, write_shards
from benchmarks.network.crew import Crew
from benchmarks.network.hosts import Hosts
from benchmarks.network.learners import make_job, set_up
from benchmarks.network.namespaces import PREFIX, missing, namespaces
from benchmarks.paper.experiment import make_parser
from benchmarks.paper.experiment import make_plan as parse_plan


def needs_hosts(test):
    return pytest.mark.slow(pytest.mark.skipif(missing() is not None, reason=f"no hosts: {missing()}")(test))


@pytest.fixture(scope="module")
def team():
    """Sets up learners, one after the other: all have the same workers and rows."""
    with write_shards(clicks(100_000, 20_000), 2) as folder, Hosts(2) as hosts, Crew(hosts, 2) as crew:

        def make(learner, size, **limit):
            hosts.limit(None)
            return set_up(hosts, crew, make_job(learner, str(folder), size), **limit)

        yield make
    # Other processes may have hosts too.
    assert not namespaces(f"{PREFIX}-{os.getpid()}"), "hosts are left behind"


def make_plan(experiment, *words, data=None, quick=False, threads=1):
    """The plan of a command line."""
    words = [*words, "--threads", str(threads), *(["--quick"] if quick else [])]
    words += ["--data", str(data)] if data else []
    return parse_plan(make_parser(experiment.name, "", [experiment]), words)

"""All inputs of the corpus, some mutations of each, and that the fuzzer finds what it is for."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.runner import Fuzzer, Limits, attempt, corpus_of
from tests.fuzz.targets import TARGETS

N_MUTATIONS = 40


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_and_mutations_of_it_are_read_or_refused(name):
    target, random = TARGETS[name], Random(name)
    seeds = list(corpus_of(name, target).values())
    mutations = [target.mutate(random, *random.choices(seeds, k=2), target.tokens) for _ in range(N_MUTATIONS)]
    for data in [*seeds, *mutations]:
        _, finding, text = attempt(target, data)
        assert finding is None, text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("undocumented", "KeyError"),
        ("stuck", "stuck"),
        ("ended", "ended-3"),
        ("hungry", "MemoryError"),
        ("thread", "KeyError"),
        ("sound", None),
    ],
)
def test_faults_are_found(name, kind):
    # No other case may depend on the time that a try takes.
    stuck = 5.0 if name == "stuck" else float("inf")
    limits = Limits(tries=20, until=float("inf"), stuck=stuck, growth=2**30)
    fuzzer = Fuzzer("tests.fuzz.broken", [name], seed=0, n_children=1, limits=limits, max_restarts=0)
    fuzzer.run()
    kinds = [found.kind for found in fuzzer.findings.values()]
    assert [found.split("-")[0] for found in kinds] == ([] if kind is None else [kind.split("-")[0]])
    assert kind is None or kinds[0].startswith(kind)

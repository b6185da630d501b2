"""The soak test can fail: it finds what grows, and only that."""

from __future__ import annotations

import gc
import json
import threading
from itertools import islice

import numpy as np
import pytest

from tests.soak.__main__ import BOUNDS, COUNTS, PERIOD, judge, main, soak
from tests.soak.jobs import JOBS, RARE_JOBS, Turn

CYCLES = 8 * PERIOD


def steady_samples(n=CYCLES):
    """Samples of a process that does not grow, with the noise of a real one."""
    rng = np.random.default_rng(0)
    first = {"handles": 10, "threads": 1, "native threads": 12, "processes": 2}
    return [
        {
            **{name: value - int(rng.integers(2)) if i > 2 * PERIOD else value for name, value in first.items()},
            "cycle": i,
            "changed": [],
            "memory": int(7e8 + 1e7 * rng.normal() - 3e8 * 0.5**i),
            "blocks": 1_400_000 + int(rng.integers(500)),
        }
        for i in range(n)
    ]


def test_noise_and_growth_within_the_warm_up_are_fine():
    assert judge(steady_samples()) == []


@pytest.mark.parametrize("name", ["handles", "threads", "native threads", "processes"])
def test_one_more_than_in_the_warm_up_is_found(name):
    samples = steady_samples()
    samples[-3][name] += 2
    assert [finding.split(":")[0] for finding in judge(samples)] == [name]


@pytest.mark.parametrize("form", ["leak", "step"])
@pytest.mark.parametrize(("name", "amount"), [("memory", 50e6), ("blocks", 40_000)])
def test_growth_is_found(name, amount, form):
    samples = steady_samples()
    for i, sample in enumerate(samples):
        sample[name] += int(amount * (i / CYCLES * 1.3 if form == "leak" else i > CYCLES // 2))
    assert [finding.split(":")[0] for finding in judge(samples)] == [name]


def test_systems_without_counts_and_short_runs():
    samples = [{**sample, "memory": None, "handles": None} for sample in steady_samples()]
    assert judge(samples) == []
    samples[40]["changed"] = ["some_job"]
    assert judge(samples) == ["cycle 40: other bits than before in some_job"]
    assert "too few" in judge(samples[: 3 * PERIOD])[0]


@pytest.mark.slow
def test_a_job_that_leaks_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.soak.__main__.SETTLING_TIME", 0.0)
    files, threads, arrays, objects, released = [], [], [], [], threading.Event()

    def leak(turn: Turn) -> np.ndarray:
        files.append((tmp_path / "file").open("wb"))
        threads.append(threading.Thread(target=released.wait))
        threads[-1].start()
        arrays.append(np.ones(500_000))
        objects.append([object() for _ in range(4000)])
        return np.zeros(1)

    gc.freeze()  # what was there before need not be looked at in each of a hundred collections
    try:
        samples = list(islice(soak([leak], [], tmp_path), 4 * PERIOD))
    finally:
        gc.unfreeze()
        released.set()
    for thread, file in zip(threads, files, strict=True):
        thread.join()
        file.close()
    known = {name for name in (*COUNTS, *BOUNDS) if name != "processes" and samples[0][name] is not None}
    assert {finding.split(":")[0] for finding in judge(samples)} == known


@pytest.mark.slow
def test_every_job_runs_and_repeats_its_bits(tmp_path):
    samples = list(islice(soak(JOBS, RARE_JOBS, tmp_path), 5))
    assert [sample["changed"] for sample in samples] == [[]] * 5
    assert all(sample["trainings"] > 20 and sample["errors"] > 5 for sample in samples)


@pytest.mark.slow
def test_the_command_writes_samples_and_a_picture(tmp_path, capsys):
    assert main(["--cycles", "1", "--output", str(tmp_path)]) == 1
    assert "too few to judge" in capsys.readouterr().out
    result = json.loads((tmp_path / "soak.json").read_text())
    assert result["done"]["trainings"] == result["samples"][0]["trainings"] > 0
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")

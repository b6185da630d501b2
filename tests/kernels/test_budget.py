"""A training keeps to its memory budget: peak memory of a process beside its data, as the system counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import json, sys
from pathlib import Path
import numpy as np, scipy.sparse as sp
import gbun
from gbun.memory import return_free_memory

kind, way, share = sys.argv[1], sys.argv[2], float(sys.argv[3])
rng = np.random.default_rng(0)

def rows(n, fields=8, columns=40):
    y = rng.integers(0, 5 if kind == "classes" else 2, n)
    if kind == "outputs":
        y = rng.standard_normal((n, 8))
    if kind.startswith("sparse"):
        ids = np.arange(fields) * 10_000 + rng.integers(0, 10_000, (n, fields))  # one of each field
        entries = np.ones(fields * n, np.float32), ids.ravel(), np.arange(0, fields * n + 1, fields)
        X = sp.csr_array(entries, shape=(n, fields * 10_000))
        X.has_canonical_format = True
        return X, y
    return rng.standard_normal((n, columns), dtype=np.float32), y

def memory(name):
    return 1024 * int(next(l for l in Path("/proc/self/status").open() if l.startswith(name)).split()[1])

params = {"n_neurons": 32, "n_jobs": 2, "scale": "none" if kind.startswith("unscaled") else "auto", "random_state": 0}
params |= {"init": "constant"} if "constant" in kind else {}
if kind.startswith("trees"):
    params |= {"learner": "mixed" if "networks" in kind else "tree"}
    if "networks" not in kind:
        del params["n_neurons"]
params |= {} if way == "folds" else {"n_estimators": 3}
params |= {"early_stopping_rounds": 2, "refit": way == "trial"} if way in ("trial", "first training") else {}

task = "regression" if kind == "outputs" else "classification"
if way == "auc":
    params |= {"eval_metric": "auc"}

def train(data, **more):
    if way in ("evaluation", "auc"):
        more = {**params, **more}
        return gbun.train(more, data, evals={"first": data, "second": data}, task=task)
    if way == "cv":
        return gbun.cv({**params, **more}, data, nfold=3, task=task)
    return gbun.train({**params, **more}, data, task=task)

def begin():
    return_free_memory()
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")

def least_budget(work):
    try:
        work()
        raise SystemExit("a budget of 1000 bytes is accepted")
    except ValueError as error:
        return int(str(error).split("at least ")[1].split()[0])

for n in (2000, 40_000):  # compiled code for few and many rows, and what libraries keep
    train(rows(n))
# Few rows are held out once each; otherwise one tenth is.
data = rows(4000, 200, 4000) if way == "folds" else rows(300_000, columns=3 if kind == "unscaled, narrow" else 40)
before = begin()
least = least_budget(lambda: train(data, memory_budget=1000))
refused = memory("VmHWM") - before
if way != "cv":
    evals = {"first": data, "second": data} if way in ("evaluation", "auc") else {}
    given = {**params, "memory_budget": 1000}
    assert least == least_budget(lambda: gbun.plan(given, data, evals=evals, task=task))
budget = int(share * least)
before = begin()
train(data, memory_budget=budget)
print(json.dumps([budget, memory("VmHWM") - before, refused]))
"""
SLACK = 12e6  # what the allocator and libraries keep
COPIES = ["trial", "first training", "folds", "cv"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's count of peak memory")
@pytest.mark.parametrize(
    ("kind", "way", "share"),
    [(kind, "all rows", 1.0) for kind in ["dense", "unscaled", "classes", "sparse", "sparse, constant"]]
    + [(kind, "all rows", 1.6) for kind in ["dense", "sparse"]]
    + [(kind, way, 1.0) for kind in ["dense", "sparse"] for way in COPIES]
    + [("unscaled, narrow", "trial", 1.0), ("unscaled, narrow", "auc", 1.0)]
    + [("outputs", way, 1.0) for way in ["all rows", "evaluation", "trial"]]
    + [("trees", "all rows", 1.0), ("trees and networks", "trial", 1.0)],
)
def test_training_keeps_to_its_budget(kind, way, share):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, kind, way, str(share)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    budget, used, refused = json.loads(done.stdout)
    assert used <= budget + SLACK, f"{used / 1e6:.0f} MB beside the data, of {budget / 1e6:.0f} MB"
    assert refused <= 0.5 * budget + SLACK, f"{refused / 1e6:.0f} MB before a budget is refused"

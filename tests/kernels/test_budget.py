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

kind, share = sys.argv[1], float(sys.argv[2])
rng = np.random.default_rng(0)

def rows(n):
    y = rng.integers(0, 5 if kind == "classes" else 2, n)
    if kind in ("sparse", "sparse, constant"):
        ids = np.arange(8) * 10_000 + rng.integers(0, 10_000, (n, 8))  # one of each field
        X = sp.csr_array((np.ones(8 * n, np.float32), ids.ravel(), np.arange(0, 8 * n + 1, 8)), shape=(n, 80_000))
        X.has_canonical_format = True
        return X, y
    return rng.standard_normal((n, 40), dtype=np.float32), y

def memory(name):
    return 1024 * int(next(l for l in Path("/proc/self/status").open() if l.startswith(name)).split()[1])

params = {"n_neurons": 32, "n_jobs": 2, "scale": "none" if kind == "unscaled" else "auto", "random_state": 0}
params |= {"init": "constant"} if "constant" in kind else {}
gbun.train(params, rows(3000), 2, task="classification")  # compiled code, and what libraries keep
data = rows(300_000)
try:
    gbun.plan({**params, "memory_budget": 1000}, data, task="classification")
    raise SystemExit("a budget of 1000 bytes is accepted")
except ValueError as error:
    least = int(str(error).split("at least ")[1].split()[0])
budget = int(share * least)
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
gbun.train({**params, "memory_budget": budget}, data, 3, task="classification")
print(json.dumps([budget, memory("VmHWM") - before]))
"""
SLACK = 12e6  # what the allocator and libraries keep


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's count of peak memory")
@pytest.mark.parametrize("share", [1.0, 1.6])
@pytest.mark.parametrize("kind", ["dense", "unscaled", "classes", "sparse", "sparse, constant"])
def test_training_keeps_to_its_budget(kind, share):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, kind, str(share)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    budget, used = json.loads(done.stdout)
    assert used <= budget + SLACK, f"{used / 1e6:.0f} MB beside the data, of {budget / 1e6:.0f} MB"

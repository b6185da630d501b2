"""Print a digest of what fixed trainings predict: two versions of the code that print the same give the same bits.

python -m benchmarks.fingerprints [--golden tests/golden]
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import gbun
import gbun.distributed


def generate(kind: str, n_rows: int = 6000, n_classes: int = 2) -> tuple[Any, Any]:
    rng = np.random.default_rng(7)
    X: Any = rng.normal(size=(n_rows, 20))
    score = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + 0.3 * rng.normal(size=n_rows)
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1])) if n_classes else score
    if kind == "sparse":
        columns = rng.zipf(1.3, size=(n_rows, 12)) % 100_000
        X = sp.csr_matrix(
            (np.ones(12 * n_rows), columns.ravel(), np.arange(0, 12 * n_rows + 1, 12)), shape=(n_rows, 100_000)
        )
        y = (np.asarray(columns[:, 0]) % 3 == 0).astype(int)
    return X, y


def of_training(params: dict[str, Any], rows: tuple[Any, Any], rounds: int | None = 12, **options: Any) -> np.ndarray:
    return gbun.train(params, rows, rounds, **options).decision_function(rows[0])


def of_workers() -> np.ndarray:
    """The model of three workers, by its predictions on the first one."""
    return gbun.distributed.launch(train_share, 3)[0]


def train_share() -> np.ndarray:
    import torch.distributed as dist

    X, y = generate("dense", n_classes=3)
    share = slice(dist.get_rank(), None, 3)
    rows = X[share], y[share]
    model = gbun.distributed.train({"n_neurons": 48}, rows, 12, evals={"all": rows})
    return model.decision_function(X)


CASES: dict[str, Callable[[], np.ndarray]] = {
    "dense": lambda: of_training({"n_neurons": 64}, generate("dense")),
    "dense, 40,000 rows": lambda: of_training({"n_neurons": 32}, generate("dense", 40_000)),
    "dense, a small memory budget": lambda: of_training({"n_neurons": 64, "memory_budget": "3MB"}, generate("dense")),
    "regression, number of rounds by a trial": lambda: of_training({}, generate("dense", 3000, 0), None),
    "quantile": lambda: of_training({"objective": "quantile", "quantile": 0.9}, generate("dense", 6000, 0)),
    "sparse, linear start": lambda: of_training({"n_neurons": 64}, generate("sparse")),
    "sparse, number of rounds by a trial": lambda: of_training({}, generate("sparse"), None),
    "26 classes": lambda: of_training({"n_neurons": 128}, generate("dense", n_classes=26)),
    "torch:cpu": lambda: of_training({"n_neurons": 64, "device": "torch:cpu"}, generate("dense")),
    "torch:cpu, sparse, 3 classes": lambda: of_training(
        {"device": "torch:cpu", "n_neurons": 32}, (generate("sparse")[0], generate("dense", n_classes=3)[1])
    ),
    "three workers": of_workers,
}


def digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--golden", type=Path, help="a folder of .gbun files, each with the rows to predict in a .json file"
    )
    arguments = parser.parse_args()
    for name, case in CASES.items():
        print(f"{digest(case())}  {name}", flush=True)
    for path in sorted(arguments.golden.glob("v*.gbun")) if arguments.golden else ():
        rows = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["X"]
        print(f"{digest(gbun.load_model(path).decision_function(rows))}  {path.stem}")


if __name__ == "__main__":
    main()

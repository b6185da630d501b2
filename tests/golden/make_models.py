"""Writes the golden models of this format version: run it once when a version is new, never for an old one.

    python tests/golden/make_models.py

Each model is stored with rows and the predictions it made for them on the day it was written; test_golden.py loads
all of them for ever.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import gbun

FOLDER = Path(__file__).parent
VERSION = 1


def cases() -> dict[str, tuple[dict[str, Any], Any, Any, str]]:
    """name -> (parameters, X, y, task); X as JSON can hold it."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(60, 5)).round(3)
    holes = np.where(rng.random(dense.shape) < 0.1, np.nan, dense * [1, 10, 100, 1, 1])
    words = [rng.choice(["red", "green", "blue", "grün", "日本"], size=4).tolist() for _ in range(60)]
    people = [
        {"age": float(a), "city": c}
        for a, c in zip(rng.integers(18, 90, 60), rng.choice(["Rome", "Oslo"], 60), strict=True)
    ]
    return {
        "binary": ({"n_neurons": 32}, holes, (dense[:, 0] > dense[:, 1]).astype(int), "classification"),
        "classes": (
            {"n_neurons": 24, "group_size": 8},
            dense,
            np.array(["a", "ß", "c"])[rng.integers(0, 3, 60)],
            "classification",
        ),
        "quantile": ({"objective": "quantile", "quantile": 0.8, "n_neurons": 16}, dense, dense[:, 0] * 3, "regression"),
        "outputs": ({"n_neurons": 16, "scale": "none", "density": 1.0}, dense, dense[:, :2], "regression"),
        "labels": ({"n_neurons": 16}, dense, (dense[:, :3] > 0).astype(int), "classification"),
        "tokens": (
            {"n_neurons": 16, "random_state": 7},
            words,
            np.array([w[0] == "red" for w in words]),
            "classification",
        ),
        "people": (
            {"objective": "poisson", "n_neurons": 16},
            people,
            np.array([p["age"] // 10 for p in people]),
            "regression",
        ),
    }


def main() -> None:
    for name, (parameters, X, y, task) in cases().items():
        model = gbun.train(parameters, (X, y), 6, task=task)
        model.save_model(FOLDER / f"v{VERSION}_{name}.gbun")
        rows = X[:8].tolist() if isinstance(X, np.ndarray) else X[:8]
        expected = {"scores": model.decision_function(X[:8]).tolist(), "prediction": model.predict(X[:8]).tolist()}
        text = json.dumps({"X": rows, **expected}, ensure_ascii=False)
        (FOLDER / f"v{VERSION}_{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

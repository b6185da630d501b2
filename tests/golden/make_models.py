"""Writes the golden models of this format version that are not there yet, never one that is.

    python tests/golden/make_models.py

Each model is stored with rows and the predictions it made for them on the day it was written;
tests/model_io/test_golden.py loads all of them for ever.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import gbun

FOLDER = Path(__file__).parent
VERSION = 3


def cases() -> dict[str, tuple[dict[str, Any], Any, Any, str]]:
    """name -> (parameters, X, y, task); X as JSON can hold it."""
    rng = np.random.default_rng(7)
    words = ["red", "green", "blue", "round", "square", "grün", "日本", "small", "old"]
    texts = [rng.choice(words, size=int(rng.integers(2, 9))).tolist() for _ in range(120)]
    colours = ["warm" if "red" in text else "cold" if "blue" in text else "none" for text in texts]
    counts = rng.poisson(0.4, size=(150, 30)).astype(float)
    numbers = counts[:, 0] - counts[:, 1] + 0.1 * rng.normal(size=150)
    X = rng.normal(size=(150, 5))
    classes = np.array(["a", "c", "ß"])[X[:, :3].argmax(axis=1)]
    holes = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    linear = {"n_neurons": 8, "init": "linear"}
    codes = np.column_stack([rng.integers(0, 90, 150), holes[:, 0], rng.integers(0, 4, 150)]).astype(float)
    codes[::11, 2] = np.nan
    of_codes = np.sin(codes[:, 0]) + (codes[:, 2] == 1)
    return {
        "linear_tokens": (linear, texts, np.array(colours), "classification"),
        "linear_counts": ({**linear, "scale": "log+idf+unit"}, scipy.sparse.csr_array(counts), numbers, "regression"),
        "scaled_dense": ({**linear, "scale": "log+max_abs+unit"}, counts, numbers, "regression"),
        "dense_classes": ({"n_neurons": 24, "group_size": 8}, X, classes, "classification"),
        "trees": ({"learner": "tree"}, holes, classes, "classification"),
        "mixed": (
            {"learner": "mixed", "n_neurons": 16, "temperature_doublings": 3}, holes, X[:, 0] * X[:, 1], "regression"
        ),
        "categories": ({"learner": "tree", "categorical_features": [0, 2]}, codes, of_codes, "regression"),
        "mixed_categories": (
            {"learner": "mixed", "n_neurons": 16, "categorical_features": [0]}, codes, of_codes > 0.5, "classification"
        ),
        "start_only": (
            {**linear, "n_estimators": 0}, scipy.sparse.csr_array(counts), (numbers > 0).astype(int), "classification"
        ),
    }  # fmt: skip


def main() -> None:
    for name, (parameters, X, y, task) in cases().items():
        if (FOLDER / f"v{VERSION}_{name}.gbun").exists():
            continue
        model = gbun.train({"n_estimators": 6, **parameters}, (X, y), task=task)
        model.save_model(FOLDER / f"v{VERSION}_{name}.gbun")
        first = X[:8].toarray() if scipy.sparse.issparse(X) else X[:8]
        rows = first.tolist() if isinstance(first, np.ndarray) else first
        expected = {"scores": model.decision_function(first).tolist(), "prediction": model.predict(first).tolist()}
        text = json.dumps({"X": rows, **expected}, ensure_ascii=False)
        (FOLDER / f"v{VERSION}_{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

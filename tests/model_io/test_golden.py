"""Models written by earlier versions load, and predict what they predicted when they were written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gbun

MODELS = sorted((Path(__file__).parents[1] / "golden").glob("v*.gbun"))


def test_there_are_golden_models_of_every_version() -> None:
    assert {path.name.split("_")[0] for path in MODELS} == {"v1", "v2", "v3"}


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_old_models_predict_the_same(path: Path) -> None:
    stored = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    model = gbun.load_model(path)
    # Other processors round exponentials differently in the last digit of float32, no more.
    np.testing.assert_allclose(model.decision_function(stored["X"]), stored["scores"], rtol=1e-4, atol=1e-5)
    if model.description.task == "regression":
        np.testing.assert_allclose(model.predict(stored["X"]), stored["prediction"], rtol=1e-4, atol=1e-5)
    else:
        assert model.predict(stored["X"]).tolist() == stored["prediction"]


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_a_loaded_model_is_saved_to_the_same_bytes(path: Path, tmp_path: Path) -> None:
    """Once it is in today's version of the format; nothing of an older one is lost on the way."""
    old, again, twice = gbun.load_model(path), tmp_path / "again.gbun", tmp_path / "twice.gbun"
    old.save_model(again)
    new = gbun.load_model(again)
    new.save_model(twice)
    assert again.read_bytes() == twice.read_bytes()
    if path.name.startswith("v3"):
        assert again.read_bytes() == path.read_bytes()
    X = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["X"]
    np.testing.assert_array_equal(new.decision_function(X), old.decision_function(X))

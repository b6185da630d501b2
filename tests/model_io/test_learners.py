"""A learner that gbun does not have stores itself in model files: its rounds differ in their numbers of outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from gbun.checks import check_array, check_names, integer, record
from gbun.data.features import Features
from gbun.learners import Learner, Partition, Step, base, learner_from, register_learner
from gbun.model_io import model_bytes, read_model, read_model_bytes, write_model
from tests.model_io.test_format import assert_same_ensemble, make_description, make_ensemble, scores
from tests.model_io.test_hostile import altered, forged, parts_of, refuse


@dataclass(frozen=True)
class Cuts(Partition):
    """Leaf k of a row: its value in one column is between cuts k - 1 and k."""

    column: int
    cuts: np.ndarray
    n_trees = 1

    @property
    def n_outputs(self):
        return len(self.cuts) + 1

    def leaves(self, features):
        return np.searchsorted(self.cuts, np.asarray(features.dense)[:, self.column])[:, None]


@dataclass(frozen=True)
class CutLearner(Learner[Cuts]):
    n_columns: int
    kind = "cuts"
    n_outputs = 4

    def fit_round(self, t, rows, reduce):
        raise NotImplementedError

    def parameters(self):
        return {"n_columns": self.n_columns}

    @classmethod
    def from_parameters(cls, parameters, n_columns):
        found = record({"n_columns": integer(1, 100)})("header.learner.parameters", parameters)
        if found["n_columns"] != n_columns:
            raise ValueError(f"n_columns must be the schema's ({n_columns}), got {found['n_columns']}")
        return cls(**found)

    def pack(self, partitions):
        return {
            "columns": np.array([partition.column for partition in partitions], dtype=np.uint8),
            "lengths": np.array([len(partition.cuts) for partition in partitions], dtype=np.int64),
            "cuts": np.concatenate([np.zeros(0, np.float32), *(partition.cuts for partition in partitions)]),
        }

    def unpack(self, arrays, rounds):
        check_names(arrays, ("columns", "lengths", "cuts"))
        columns = check_array("columns", arrays["columns"], "uint8", (len(rounds),))
        lengths = check_array("lengths", arrays["lengths"], "int64", (len(rounds),))
        cuts = check_array("cuts", arrays["cuts"], "float32", (None,))
        if (columns >= self.n_columns).any() or (lengths < 0).any() or sum(lengths.tolist()) != len(cuts):
            raise ValueError("columns and lengths must fit the cuts")
        return list(map(Cuts, columns.tolist(), np.split(cuts, np.cumsum(lengths))))


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(base, "LEARNERS", {"network": base.LEARNERS["network"]})
    register_learner(CutLearner)


def cut_model(lengths=(3, 0, 1)):
    """A model whose rounds have 4, 1 and 2 leaves."""
    rng = np.random.default_rng(3)
    steps = [
        Step(Cuts(t, np.sort(rng.normal(size=n)).astype(np.float32)), rng.normal(size=(n + 1, 1)).astype(np.float32))
        for t, n in enumerate(lengths)
    ]
    return replace(make_ensemble(), learner=CutLearner(5), steps=tuple(steps)), make_description()


@pytest.mark.parametrize("lengths", [(), (0,), (3, 0, 1)])
def test_a_model_of_another_learner_survives_a_file(tmp_path, lengths):
    ensemble, description = cut_model(lengths)
    write_model(tmp_path / "m.gbun", ensemble, description)
    again, described = read_model(tmp_path / "m.gbun")
    assert_same_ensemble(ensemble, again)
    assert [step.head.shape for step in again.steps] == [(n + 1, 1) for n in lengths]
    assert [step.partition.column for step in again.steps] == list(range(len(lengths)))
    assert model_bytes(again, described) == (tmp_path / "m.gbun").read_bytes()


def test_its_predictions_have_the_same_bits():
    ensemble, description = cut_model()
    again, _ = read_model_bytes(model_bytes(ensemble, description), "m")
    features = Features(50, np.random.default_rng(0).normal(size=(50, 5)))
    assert scores(again, features).tobytes() == scores(ensemble, features).tobytes()
    assert np.ptp(scores(again, features)) > 0.0


def test_a_kind_that_nobody_registered(tmp_path):
    content = model_bytes(*cut_model())
    del base.LEARNERS["cuts"]
    refuse(tmp_path / "m", content, r"needs a learner of kind 'cuts', and there are \['network'\]; import the package")


def test_a_kind_has_one_learner():
    register_learner(CutLearner)
    assert learner_from("cuts", {"n_columns": 5}, 5) == CutLearner(5)
    with pytest.raises(ValueError, match=r"there is another learner of kind 'cuts', tests.*CutLearner"):
        register_learner(type("Other", (CutLearner,), {}))


@pytest.mark.parametrize(
    ("header", "tensors", "message"),
    [
        ({"parameters": {"n_columns": 6}}, {}, r"n_columns must be the schema's \(5\), got 6"),
        ({"parameters": {"n_columns": 5, "more": 1}}, {}, r"header.learner.parameters must be .* unknown \['more'\]"),
        ({"kind": "network"}, {}, "header.learner.parameters must be an object with the keys kind, seed"),
        ({}, {"learner.lengths": np.array([3, 1, 0])}, None),  # other leaves, as many of them
        ({}, {"learner.lengths": np.array([3, 1, 1])}, "learner 'cuts': columns and lengths must fit the cuts"),
        ({}, {"learner.lengths": np.array([3, 1])}, r"learner 'cuts': lengths must be int64 of shape \(3,\)"),
        ({}, {"learner.lengths": np.array([2**62, 2**62, 2**63 - 1])}, "learner 'cuts': columns and lengths"),
        ({}, {"learner.columns": np.array([0, 1, 5], np.uint8)}, "learner 'cuts': columns and lengths"),
        ({}, {"learner.cuts": np.zeros(5, np.float32)}, "learner 'cuts': columns and lengths"),
        ({}, {"learner.cuts": np.zeros(4)}, "learner 'cuts': cuts must be float32"),
        ({}, {"heads": np.zeros((8, 1), np.float32)}, "heads must have 7 rows, .*, got 8"),
        ({}, {"heads": np.zeros((6, 1), np.float32)}, "heads must have 7 rows, .*, got 6"),
    ],
)  # fmt: skip
def test_files_that_it_cannot_have_written(tmp_path, header, tensors, message):
    stated, arrays = parts_of(*cut_model())
    stated = altered(stated, ["learner"], {**stated["learner"], **header})
    content = forged(stated, {**arrays, **tensors})
    if message is None:
        assert [len(step.head) for step in read_model_bytes(content, "m")[0].steps] == [4, 2, 1]
    else:
        refuse(tmp_path / "m", content, message)


def test_a_learner_that_reads_too_few_rounds(tmp_path, monkeypatch):
    content = model_bytes(*cut_model())
    unpack = CutLearner.unpack
    monkeypatch.setattr(CutLearner, "unpack", lambda self, arrays, rounds: unpack(self, arrays, rounds)[:-1])
    refuse(tmp_path / "m", content, "heads must have 5 rows")

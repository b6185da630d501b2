"""Model files: what goes in comes out, and a failed write leaves no trace."""

from __future__ import annotations

import os
import pickle
import re
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from gbun.data.features import Entries, Features, Schema
from gbun.data.scaled_columns import ColumnScale
from gbun.data.scaling import Scaling
from gbun.description import Description
from gbun.devices import Device
from gbun.ensemble import Ensemble
from gbun.kernels.threads import thread_pool
from gbun.learners import NetworkLearner, NetworkPartition, Step
from gbun.model_io import container, model_bytes, read_model, read_model_bytes, read_model_file, write_model
from gbun.model_io.atomic import write_atomically
from gbun.model_io.format import _collect_tensors
from gbun.model_io.header import OBJECTIVE_PARAMETERS
from gbun.networks import Family
from gbun.objectives import (
    OBJECTIVES,
    Custom,
    Gamma,
    Huber,
    Logistic,
    MultiLogistic,
    MultiSquaredError,
    Poisson,
    Quantile,
    Softmax,
    SquaredError,
    Tweedie,
)
from gbun.scored_rows import Place, ScoredRows, Start
from gbun.solve import Normaliser
from gbun.training import train

FUZZ = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

OBJECTIVE_SAMPLES = [
    SquaredError(),
    MultiSquaredError(),
    Huber(),
    Huber(0.1 + 0.2),
    Quantile(0.9, 1e-300),
    Quantile(),
    Poisson(),
    Gamma(),
    Tweedie(1.1),
    Logistic(),
    MultiLogistic(shared=False),
    Softmax(3, shared=False),
    Custom(lambda y, scores, weight: (scores, weight), outputs=2),
]
SCORES = {"custom": 2, "multi_logistic": 4, "multi_squared_error": 4}


def some_dense(m=5):
    rng = np.random.default_rng(5)
    return ColumnScale(rng.normal(size=m), rng.gamma(1.0, size=m))


def some_sparse(dtype=np.int64):
    top = np.iinfo(dtype).max
    return ColumnScale(np.array([0.1, 0.0, 3.0]), np.array([1.0, 0.0, 1e-9]), np.array([0, 7, top], dtype=dtype))


def make_ensemble(objective=None, scaling=None, T=3, K=4, C=None, arrays=None, **family):
    """An ensemble of networks; `arrays` are those to take instead of random ones."""
    objective = objective or SquaredError()
    C = C or objective.parameters().get("n_classes") or SCORES.get(objective.name, 1)
    rng = np.random.default_rng(T + K + C)
    start = rng.normal(size=C)
    shapes = {"centres": (T, K), "factors": (T, K), "heads": (T, K, C)}
    found = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    found |= {"start": start, **(arrays or {})}
    family = Family(**{"seed": 1, "n_outputs": K, "density": 0.5, "n_columns": 5, **family})
    normalisers = map(Normaliser, found["centres"], found["factors"])
    partitions = [NetworkPartition(family.draw(t), normaliser) for t, normaliser in enumerate(normalisers)]
    steps = tuple(map(Step, partitions, found["heads"]))
    scaling = scaling or Scaling("auto", some_dense())
    return Ensemble(NetworkLearner(family), scaling, objective, Start(found["start"]), steps)


def make_description(**fields):
    return Description(**{"task": "regression", "schema": Schema("array", 5), **fields})


def assert_same_array(a, b):
    if a is None or b is None:
        assert a is b
        return
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    assert a.tobytes() == b.tobytes()


def assert_same_ensemble(a, b):
    assert (type(a.learner), a.learner.parameters()) == (type(b.learner), b.learner.parameters())
    assert a.objective.name == b.objective.name
    assert a.objective.parameters() == b.objective.parameters()
    assert a.scaling.name == b.scaling.name
    assert [step.head.shape for step in a.steps] == [step.head.shape for step in b.steps]
    assert [step.partition.network for step in a.steps] == [step.partition.network for step in b.steps]
    one, other = _collect_tensors(a), _collect_tensors(b)
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert_same_array(array, other[name])


def scores(ensemble, features):
    with thread_pool(1) as pool:
        rows = ScoredRows(ensemble.scaling.apply(features), ensemble.start, None, Place(Device(), pool))
        return ensemble.add_scores(rows)


def names_in(folder):
    return [path.name for path in folder.iterdir()]


def round_trip(folder, ensemble, description=None):
    description = description or make_description()
    write_model(folder / "m.gbun", ensemble, description)
    again, described = read_model(folder / "m.gbun")
    assert_same_ensemble(ensemble, again)
    assert replace(described, classes=None) == replace(description, classes=None)
    assert names_in(folder) == ["m.gbun"]
    return again, described


# Round trips


@pytest.mark.parametrize("objective", OBJECTIVE_SAMPLES, ids=lambda objective: objective.name)
def test_objectives(tmp_path, objective):
    again, _ = round_trip(tmp_path, make_ensemble(objective))
    if isinstance(objective, Custom):
        assert again.objective == Custom(None, 2)
    else:
        assert again.objective == objective


def test_every_objective_can_be_stored():
    assert set(OBJECTIVE_PARAMETERS) == {*OBJECTIVES, "custom"}
    assert {o.name for o in OBJECTIVE_SAMPLES} == set(OBJECTIVE_PARAMETERS)
    for objective in OBJECTIVE_SAMPLES:
        assert set(objective.parameters()) == set(OBJECTIVE_PARAMETERS[objective.name])


@pytest.mark.parametrize("name", ["auto", "standard", "none"])
@pytest.mark.parametrize("dense", [None, some_dense()], ids=["-", "dense"])
@pytest.mark.parametrize("ids", [None, np.int32, np.int64, np.uint64])
def test_scalings(tmp_path, name, dense, ids):
    round_trip(tmp_path, make_ensemble(scaling=Scaling(name, dense, None if ids is None else some_sparse(ids))))


@pytest.mark.parametrize(
    ("ensemble", "fields"),
    [
        ({"T": 0}, {}),
        ({"T": 1, "K": 2, "C": 1, "n_columns": None}, {}),
        ({"T": 2, "K": 6, "C": 7, "group_size": 3, "temperature": 0.1}, {}),
        ({"seed": 2**63 - 1, "density": 0.001, "sparse_density": 1}, {}),
        ({"seed": np.int64(3), "temperature": np.float32(1.5)}, {}),
        ({}, {"schema": Schema("array", 5, tuple("abcde")), "single_column": False}),
        ({}, {"schema": Schema("array", 5), "best_round": 0, "best_score": -0.0}),
        ({}, {"task": "multilabel", "best_round": 12, "best_score": 0.1 + 0.2}),
        ({}, {"parameters": {"a": None, "b": 1e-300, "c": "é", "d": True, "e": 2**63, "f": ["rmse", "mae"]}}),
        ({"n_columns": None}, {"schema": Schema("names")}),
        ({"n_columns": None}, {"schema": Schema("tokens")}),
        ({"n_columns": None}, {"schema": Schema("array")}),
        ({"n_columns": None}, {"schema": Schema("frame", 6, ("ä", "b", "", "c", "d", "e"), ("b",))}),
    ],
)
def test_ensembles_and_descriptions(tmp_path, ensemble, fields):
    round_trip(tmp_path, make_ensemble(**ensemble), make_description(**fields))


@pytest.mark.parametrize(
    "classes",
    [
        np.array([False, True]),
        np.array([-1, 1]),
        np.array([2**53 + 1, 2**63 - 1]),
        np.array([2**63, 2**64 - 1], dtype=np.uint64),
        np.array([3, 4], dtype=np.int32),
        np.array([0, 255], dtype=np.uint8),
        np.array([0.1, -1e-308]),
        np.array([0.1, 65504], dtype=np.float16),
        np.array(["no", "yes"]),
        np.array(["", 'naïve Ünï 日本語 🎈 \ud800 "\\ \x00a \u2028']),
        np.array(["a", "bcd"], dtype=object),
    ],
    ids=lambda c: c.dtype.name,
)
def test_classes(tmp_path, classes):
    description = make_description(task="classification", classes=classes)
    _, described = round_trip(tmp_path, make_ensemble(Logistic()), description)
    assert_same_array(described.classes, classes.astype(str) if classes.dtype == object else classes)


@pytest.mark.slow
@given(labels=st.lists(st.text().map(lambda s: s.rstrip("\0")), min_size=2, max_size=6, unique=True))
@FUZZ
def test_any_string_labels(tmp_path, labels):
    objective = Logistic() if len(labels) == 2 else Softmax(len(labels))
    description = make_description(task="classification", classes=np.array(labels))
    write_model(tmp_path / "m.gbun", make_ensemble(objective), description)
    assert_same_array(read_model(tmp_path / "m.gbun")[1].classes, np.array(labels))


def test_numpy_scalars_are_plain_numbers_afterwards(tmp_path):
    parameters = {"a": np.int32(3), "b": np.float64(0.5), "c": np.bool_(True)}
    _, described = round_trip(
        tmp_path, make_ensemble(), make_description(parameters=parameters, best_score=np.float32(0.1))
    )
    assert [type(v) for v in described.parameters.values()] == [int, float, bool]
    assert described.best_score == float(np.float32(0.1))


def test_predictions_have_the_same_bits(tmp_path):
    ensemble = make_ensemble(
        Softmax(3), Scaling("standard", some_dense(), some_sparse()), T=4, K=8, group_size=4, n_columns=None
    )
    again, _ = round_trip(tmp_path, ensemble)
    rng = np.random.default_rng(0)
    entries = Entries(np.arange(21), rng.choice([0, 7, 9], 20), rng.normal(size=20).astype(np.float32))
    features = Features(20, rng.normal(size=(20, 5)), entries)
    assert_same_array(scores(ensemble, features), scores(again, features))


def test_arrays_of_any_layout(tmp_path):
    plain = make_ensemble(Softmax(3), K=4)
    steps = [
        Step(
            replace(partition, normaliser=Normaliser(np.repeat(partition.centre, 2)[::2], partition.normaliser.factor)),
            np.asfortranarray(step.head),
        )
        for step in plain.steps
        for partition in [step.partition]
    ]
    odd = replace(plain, start=Start(plain.start.constant.astype(">f8")), steps=tuple(steps))
    write_model(tmp_path / "a", plain, make_description())
    write_model(tmp_path / "b", odd, make_description())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.slow
def test_the_same_model_gives_the_same_bytes(tmp_path):
    """In another process too: the library would order metadata anew in each."""
    program = (
        "import sys; from tests.model_io import test_format as t; "
        "t.write_model(sys.argv[1], t.make_ensemble(), t.make_description())"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "a"], cwd=Path(__file__).parents[2], check=True)
    write_model(tmp_path / "b", make_ensemble(), make_description())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_safetensors_library_reads_it(tmp_path):
    ensemble = make_ensemble(Logistic(), Scaling("standard", some_dense(), some_sparse()))
    classes = np.array([False, True])
    write_model(tmp_path / "m.gbun", ensemble, make_description(task="classification", classes=classes))
    tensors = load_file(tmp_path / "m.gbun")
    assert_same_array(tensors["heads"], np.concatenate(ensemble.heads))
    assert_same_array(tensors["learner.centres"], np.stack([step.partition.centre for step in ensemble.steps]))
    assert_same_array(tensors["sparse.ids"], ensemble.scaling.sparse.ids)
    assert_same_array(tensors["classes"], classes)


def test_the_documented_reader(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_model("model.gbun", make_ensemble(), make_description())
    page = Path(__file__).parents[2] / "docs" / "model_format.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(example, {})
    assert capsys.readouterr().out.startswith("squared_error: 3 rounds, 12 outputs in all, 1 scores, classes None")


def test_bytes_are_read_as_files_are(tmp_path):
    model = make_ensemble(Softmax(3)), make_description()
    content = model_bytes(*model)
    write_model(tmp_path / "m.gbun", *model)
    assert content == (tmp_path / "m.gbun").read_bytes() == read_model_file(tmp_path / "m.gbun")
    ensemble, description = read_model_bytes(content, "the model of the root")
    assert_same_ensemble(ensemble, model[0])
    assert description == model[1]
    with pytest.raises(ValueError, match=r"^the model of the root: .*truncated or damaged"):
        read_model_bytes(content[:-1], "the model of the root")
    with pytest.raises(ValueError, match="n_columns must be null or"):
        model_bytes(model[0], make_description(schema=Schema("array", 6)))


def test_numbers_of_other_types_give_the_same_bytes():
    """A learner's parameters are written as they are read: 1 is 1.0."""
    one = model_bytes(make_ensemble(sparse_density=1.0, temperature=2.0), make_description())
    assert one == model_bytes(make_ensemble(sparse_density=1, temperature=np.float32(2)), make_description())


# What cannot be stored

ARRAYS_THAT_DO_NOT_FIT = [
    ({"heads": np.zeros((3, 4, 1))}, r"round 0 must be float32 of shape \(4, 1\), got float64 of \(4, 1\)"),
    ({"heads": np.zeros((3, 4), np.float32)}, "the head of round 0 must be"),
    ({"heads": np.zeros(3, np.float32)}, r"must be float32 of shape \(4, 1\), got float32 of \(\)"),
    ({"heads": [np.zeros((k, 1), np.float32) for k in (4, 5, 3)]}, "the head of round 1 must be"),
    (
        {"centres": np.zeros((3, 5), np.float32), "factors": np.zeros((3, 5), np.float32)},
        "centre and factor must have shape",
    ),
    ({"factors": np.full((3, 4), np.inf, np.float32)}, "factors has NaN or infinite"),
    ({"start": np.zeros(2)}, "the head of round 0 must be"),
    ({"start": np.zeros(0), "heads": np.zeros((3, 4, 0), np.float32)}, "at least one score"),
    ({"start": np.array([np.nan])}, "start has NaN"),
]


@pytest.mark.parametrize(
    ("ensemble", "fields", "message"),
    [
        ({}, {"classes": np.array([1, "a"], dtype=object)}, "classes must be all strings or .* got 1"),
        ({}, {"classes": np.array(["a", None], dtype=object)}, "classes must be all strings"),
        ({}, {"classes": np.array([b"a"])}, "classes must be numbers"),
        ({}, {"classes": np.array([1j])}, "classes must be numbers of shape .*, got complex128"),
        ({}, {"classes": np.array([1], np.longdouble)}, "classes must be numbers"),
        ({}, {"classes": np.array([["a"]])}, r"classes must be numbers of shape \(\*,\), got .* of \(1, 1\)"),
        ({}, {"classes": np.array([1.0, np.nan])}, "classes must be finite"),
        ({}, {"classes": np.array([1, 1])}, "classes must differ"),
        ({}, {"classes": np.array(["a", "a\0"], dtype=object)}, "classes must not end in a NUL"),
        ({}, {"classes": np.array(["x" * 10**4] + ["y"] * 10**4, dtype=object)}, "classes would take 400"),
        ({}, {"task": "classification"}, "must name 2 classes"),
        ({}, {"parameters": {"f": print}}, r"header.description.parameters\['f'\] must be a string"),
        ({}, {"parameters": {"reg_lambda": np.inf}}, "must be a string, a finite number"),
        ({}, {"parameters": {"deep": [[1]]}}, r"parameters\['deep'\] must be a string"),
        ({}, {"parameters": {1: 1}}, "a key of header.description.parameters must be a string"),
        ({}, {"parameters": {"n": 2**70}}, r"parameters\['n'\] must be .* a finite number of 64 bits"),
        ({}, {"best_score": np.nan}, "best_score must be a number"),
        ({}, {"schema": Schema("array", 5, names=("a", 1))}, r"names must be a list of strings, got \['a', 1\]"),
        ({}, {"schema": Schema("array", 6)}, r"parameters.n_columns must be null or the schema's \(6\), got 5"),
        ({}, {"schema": Schema("frame", 5, tuple("abcde"))}, "n_columns must be null or"),
        ({}, {"schema": Schema("frame", 5)}, r"names must be as many as n_columns \(5\), got none"),
        ({}, {"schema": Schema("array", 5, ("a", "b"))}, r"names must be as many as n_columns \(5\), got 2"),
        ({}, {"schema": Schema("matrix", 5)}, r"kind must be one of 'array', .* 'tokens', got 'matrix'"),
        ({"seed": 2**63}, {}, "learner.parameters.seed must be an integer from 0"),
        ({"seed": 10**400}, {}, "learner.parameters.seed must be an integer"),
        ({"temperature": 10**400}, {}, "learner.parameters.temperature must be a number"),
        ({"scaling": Scaling("auto", some_sparse())}, {}, r"not expected \['dense.ids'\]"),
        ({"scaling": Scaling("auto", None, some_dense())}, {}, r"missing \['sparse.ids'\]"),
        *(({"scaling": Scaling("auto", some_dense(m))}, {}, rf"dense.centre .* \(5,\), got float64 of \({m},\)")
          for m in (1, 4, 7)),  # kernels read a weight for each column without looking
        ({"objective": Softmax(2), "C": 1}, {}, "softmax with 2 scores a row, start has 1"),
        ({"objective": type("Mine", (SquaredError,), {"name": "mine"})()}, {}, "name must be one of .* got 'mine'"),
        ({"group_size": 3}, {}, "group_size must divide"),
        *(({"arrays": arrays}, {}, message) for arrays, message in ARRAYS_THAT_DO_NOT_FIT),
    ],
)  # fmt: skip
def test_what_cannot_be_stored(tmp_path, ensemble, fields, message):
    with pytest.raises(ValueError, match=rf"m\.gbun: cannot be written: .*{message}"):
        write_model(tmp_path / "m.gbun", make_ensemble(**ensemble), make_description(**fields))
    assert names_in(tmp_path) == []


def test_names_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "DIRECTORY_LIMIT", 10_000)
    schema = Schema("array", 5, names=("x" * 20_000, *"abcd"))
    with pytest.raises(ValueError, match="at most 10000; use shorter column names"):
        write_model(tmp_path / "m.gbun", make_ensemble(), make_description(schema=schema))
    assert names_in(tmp_path) == []


# Writing all or nothing


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, call, error):
    path = tmp_path / "m.gbun"
    write_model(path, make_ensemble(), make_description())
    before = path.read_bytes()

    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(type(error)):
            write_model(path, make_ensemble(T=5), make_description())
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["m.gbun"]
    write_model(path, make_ensemble(T=5), make_description())
    assert read_model(path)[0].n_rounds == 5


def test_a_failure_between_chunks_leaves_nothing(tmp_path):
    def chunks():
        yield b"the beginning"
        raise MemoryError

    with pytest.raises(MemoryError):
        write_atomically(tmp_path / "m.gbun", chunks())
    assert names_in(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_permissions_are_those_of_a_new_file(tmp_path):
    write_model(tmp_path / "m.gbun", make_ensemble(), make_description())
    (tmp_path / "plain").write_bytes(b"")
    assert stat.S_IMODE((tmp_path / "m.gbun").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "m.gbun").symlink_to(tmp_path / "real" / "a.gbun")
    write_model(tmp_path / "m.gbun", make_ensemble(), make_description())
    assert (tmp_path / "m.gbun").is_symlink()
    assert names_in(tmp_path / "real") == ["a.gbun"]


def test_paths(tmp_path):
    model = make_ensemble(), make_description()
    write_model(str(tmp_path / "m"), *model)
    write_model(tmp_path / ("long" * 63), *model)
    assert_same_ensemble(read_model(str(tmp_path / "m"))[0], model[0])
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*none; create it first"):
        write_model(tmp_path / "none" / "m.gbun", *model)
    with pytest.raises(IsADirectoryError, match="is a folder; give the name of a file"):
        write_model(tmp_path, *model)
    with pytest.raises(FileNotFoundError, match=r"x\.gbun: there is no such model file"):
        read_model(tmp_path / "x.gbun")
    with pytest.raises(FileNotFoundError, match=r"x\.gbun: there is no such model file"):
        read_model_file(tmp_path / "x.gbun")
    with pytest.raises(IsADirectoryError, match="is a folder, not a model file"):
        read_model(tmp_path)


def test_predicting_does_not_make_a_pickle_larger():
    X, y = np.random.default_rng(0).normal(size=(100, 4)), np.arange(100.0)
    model = train({"n_neurons": 16, "n_estimators": 5}, (X, y))
    before = len(pickle.dumps(model))
    wanted = model.predict(X)
    assert len(pickle.dumps(model)) == before
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), wanted)

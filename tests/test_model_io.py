"""Model files: what goes in comes out, nothing else is believed, and a failed write leaves no trace."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save

from gbun.data.features import Entries, Features, Schema
from gbun.data.scaling import ColumnScale, Scaling
from gbun.description import Description
from gbun.ensemble import Ensemble, Rows
from gbun.kernels.threads import threads
from gbun.model_io import container, read_model, write_model
from gbun.model_io.format import digest_of
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
    return ColumnScale(
        np.array([0.1, 0.0, 3.0]), np.array([1.0, 0.0, 1e-9]), np.array([0, 7, top], dtype=dtype)
    )


def make_ensemble(objective=None, scaling=None, T=3, K=4, C=None, **family):
    objective = objective or SquaredError()
    C = C or objective.parameters().get("n_classes") or SCORES.get(objective.name, 1)
    rng = np.random.default_rng(T + K + C)

    def floats(*shape):
        return rng.normal(size=shape).astype(np.float32)

    family = Family(**{"seed": 1, "n_outputs": K, "density": 0.5, "n_columns": 5, **family})
    return Ensemble(
        family,
        scaling or Scaling("auto", some_dense()),
        objective,
        rng.normal(size=C),
        floats(T, K),
        floats(T, K),
        floats(T, K, C),
    )


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
    assert a.family == b.family
    assert a.objective.name == b.objective.name
    assert a.objective.parameters() == b.objective.parameters()
    assert a.scaling.name == b.scaling.name
    for part in ("start", "centres", "factors", "heads"):
        assert_same_array(getattr(a, part), getattr(b, part))
    for part in ("dense", "sparse"):
        one, other = getattr(a.scaling, part), getattr(b.scaling, part)
        assert (one is None) == (other is None)
        if one is not None:
            for field in ("centre", "factor", "ids"):
                assert_same_array(getattr(one, field), getattr(other, field))


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


@pytest.mark.parametrize("objective", OBJECTIVE_SAMPLES, ids=repr)
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
@pytest.mark.parametrize("dense", [None, some_dense(), some_dense(0)], ids=["-", "dense", "empty"])
@pytest.mark.parametrize("ids", [None, np.int32, np.int64, np.uint64])
def test_scalings(tmp_path, name, dense, ids):
    round_trip(
        tmp_path, make_ensemble(scaling=Scaling(name, dense, None if ids is None else some_sparse(ids)))
    )


@pytest.mark.parametrize(
    ("sizes", "family"),
    [
        ({"T": 0}, {}),
        ({"T": 1, "K": 2, "C": 1}, {"n_columns": None}),
        ({"T": 2, "K": 6, "C": 7}, {"group_size": 3, "temperature": 0.1}),
        ({}, {"seed": 2**63 - 1, "density": 0.001, "sparse_density": 1}),
        ({}, {"seed": np.int64(3), "temperature": np.float32(1.5)}),
    ],
)
def test_families_and_sizes(tmp_path, sizes, family):
    round_trip(tmp_path, make_ensemble(**sizes, **family))


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
    ],
    ids=lambda c: c.dtype.name,
)
def test_classes(tmp_path, classes):
    description = make_description(task="classification", classes=classes)
    _, described = round_trip(tmp_path, make_ensemble(Logistic()), description)
    assert_same_array(described.classes, classes)


def test_classes_of_strings_as_objects_become_strings(tmp_path):
    classes = np.array(["a", "bcd", "ef"], dtype=object)
    description = make_description(task="classification", classes=classes)
    _, described = round_trip(tmp_path, make_ensemble(Softmax(3)), description)
    assert_same_array(described.classes, np.array(["a", "bcd", "ef"]))


@given(labels=st.lists(st.text().map(lambda s: s.rstrip("\0")), min_size=2, max_size=6, unique=True))
@FUZZ
def test_any_string_labels(tmp_path, labels):
    objective = Logistic() if len(labels) == 2 else Softmax(len(labels))
    description = make_description(task="classification", classes=np.array(labels))
    write_model(tmp_path / "m.gbun", make_ensemble(objective), description)
    assert_same_array(read_model(tmp_path / "m.gbun")[1].classes, np.array(labels))


@pytest.mark.parametrize(
    "fields",
    [
        {"schema": Schema("array", 5, tuple("abcde")), "single_column": False},
        {"schema": Schema("array", 5), "best_round": 0, "best_score": -0.0},
        {"task": "multilabel", "best_round": 12, "best_score": 0.1 + 0.2},
        {"parameters": {"a": None, "b": 1e-300, "c": "é", "d": True, "e": 2**63, "f": ["rmse", "mae"]}},
    ],
)
def test_descriptions(tmp_path, fields):
    round_trip(tmp_path, make_ensemble(), make_description(**fields))


@pytest.mark.parametrize(
    "schema", [Schema("names"), Schema("tokens"), Schema("array"), Schema("frame", 3, ("ä", "b", ""), ("b",))]
)
def test_schemas_of_names(tmp_path, schema):
    round_trip(tmp_path, make_ensemble(n_columns=None), make_description(schema=schema))


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

    def scores(e):
        with threads(1) as pool:
            return e.scores(Rows(e.scaling.apply(features), e.family, e.start, None, pool))

    assert_same_array(scores(ensemble), scores(again))


def test_arrays_of_any_layout(tmp_path):
    plain = make_ensemble(Softmax(3), K=4)
    odd = replace(
        plain,
        heads=np.asfortranarray(plain.heads),
        centres=np.repeat(plain.centres, 2, axis=1)[:, ::2],
        start=plain.start.astype(">f8"),
    )
    write_model(tmp_path / "a", plain, make_description())
    write_model(tmp_path / "b", odd, make_description())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_safetensors_library_reads_it(tmp_path):
    ensemble = make_ensemble(Logistic(), Scaling("standard", some_dense(), some_sparse()))
    classes = np.array([False, True])
    write_model(tmp_path / "m.gbun", ensemble, make_description(task="classification", classes=classes))
    tensors = load_file(tmp_path / "m.gbun")
    assert_same_array(tensors["heads"], ensemble.heads)
    assert_same_array(tensors["sparse.ids"], ensemble.scaling.sparse.ids)
    assert_same_array(tensors["classes"], classes)


def test_the_documented_reader(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_model("model.gbun", make_ensemble(), make_description())
    page = Path(__file__).parents[1] / "docs" / "model_format.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(example, {})
    assert capsys.readouterr().out.startswith("squared_error: 3 rounds, 4 outputs, 1 scores, classes None")


# What cannot be stored


@pytest.mark.parametrize(
    ("ensemble", "fields", "message"),
    [
        ({}, {"classes": np.array([1, "a"], dtype=object)}, "classes must be all strings or .* got 1"),
        ({}, {"classes": np.array(["a", None], dtype=object)}, "classes must be all strings"),
        ({}, {"classes": np.array([b"a"])}, "classes must be numbers or strings"),
        ({}, {"classes": np.array([1j])}, "classes must be numbers or strings"),
        ({}, {"classes": np.array([["a"]])}, "classes must be one-dimensional"),
        ({}, {"classes": np.array([1.0, np.nan])}, "classes must be finite"),
        ({}, {"classes": np.array([1, 1])}, "classes must differ"),
        ({}, {"classes": np.array(["a", "a\0"], dtype=object)}, "classes must not end in a NUL"),
        ({}, {"classes": np.array(["x" * 10**4] + ["y"] * 10**4, dtype=object)}, "classes would take 400"),
        ({}, {"task": "classification"}, "must name 2 classes"),
        ({}, {"parameters": {"f": print}}, r"header.description.parameters\['f'\] must be a string"),
        ({}, {"parameters": {"reg_lambda": np.inf}}, "must be a string, a finite number"),
        ({}, {"parameters": {"deep": [[1]]}}, "must be a string"),
        ({}, {"parameters": {1: 1}}, "a key of header.description.parameters must be a string"),
        ({}, {"parameters": {"n": 2**70}}, "must be an integer from"),
        ({}, {"best_score": np.nan}, "best_score must be a number"),
        ({}, {"schema": Schema("array", 5, names=("a", 1))}, r"names\[1\] must be a string"),
        ({}, {"schema": Schema("array", 6)}, r"family.n_columns must be null or the schema's \(6\), got 5"),
        ({}, {"schema": Schema("frame", 5)}, "n_columns must be null or"),
        ({"seed": 2**63}, {}, "family.seed must be an integer from 0"),
        ({"seed": 10**400}, {}, "family.seed must be an integer"),
        ({"temperature": 10**400}, {}, "family.temperature must be a number"),
        ({"scaling": Scaling("auto", some_sparse())}, {}, r"not expected \['dense.ids'\]"),
        ({"scaling": Scaling("auto", None, some_dense())}, {}, r"missing \['sparse.ids'\]"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored(tmp_path, ensemble, fields, message):
    with pytest.raises(ValueError, match=rf"m\.gbun: cannot be written: .*{message}"):
        write_model(tmp_path / "m.gbun", make_ensemble(**ensemble), make_description(**fields))
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": np.zeros((3, 4, 1))}, r"heads must be float32 of shape \(3, 4, 1\), got float64"),
        ({"heads": np.zeros((3, 4), np.float32)}, "heads must be"),
        ({"heads": np.float32(0)}, "heads must be an array"),
        ({"centres": np.zeros((2, 4), np.float32)}, r"centres must be float32 of shape \(3, 4\)"),
        ({"factors": np.full((3, 4), np.inf, np.float32)}, "factors has NaN or infinite"),
        ({"start": np.zeros(2)}, "heads must be"),
        ({"start": np.zeros(0)}, "at least one score"),
        ({"start": np.array([np.nan])}, "start has NaN"),
        ({"objective": Softmax(2)}, "softmax with 2 scores a row, start has 1"),
        ({"family": Family(0, 4, group_size=3)}, "group_size must divide"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        write_model(tmp_path / "m.gbun", replace(make_ensemble(), **changes), make_description())


def test_an_objective_of_ones_own_class(tmp_path):
    class Mine(SquaredError):
        name = "mine"

    with pytest.raises(ValueError, match=r"objective.name must be one of .* got 'mine'"):
        write_model(tmp_path / "m.gbun", make_ensemble(Mine()), make_description())


def test_names_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "DIRECTORY_LIMIT", 10_000)
    schema = Schema("array", 5, names=("x" * 20_000,))
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


def test_a_failure_between_tensors_leaves_nothing(tmp_path, monkeypatch):
    honest = container.as_bytes
    calls = iter(range(6))  # four for the digest, then the second one of the file

    def fails_late(array):
        if next(calls) == 5:
            raise MemoryError
        return honest(array)

    ensemble = make_ensemble(scaling=Scaling("auto"))
    monkeypatch.setattr(container, "as_bytes", fails_late)
    monkeypatch.setattr("gbun.model_io.format.as_bytes", fails_late)
    with pytest.raises(MemoryError):
        write_model(tmp_path / "m.gbun", ensemble, make_description())
    assert names_in(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_permissions_are_those_of_a_new_file(tmp_path):
    write_model(tmp_path / "m.gbun", make_ensemble(), make_description())
    (tmp_path / "plain").write_bytes(b"")
    assert stat.S_IMODE((tmp_path / "m.gbun").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "plain").stat().st_mode
    )


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
    with pytest.raises(IsADirectoryError, match="is a folder, not a model file"):
        read_model(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: not a regular file"):
        read_model(tmp_path / "pipe")


# Files that are not ours


def refuse(path, content, message=None):
    """Reading must give a ValueError that begins with the path."""
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_model(path)
    assert type(caught.value) is ValueError
    assert str(caught.value).startswith(f"{path}: ")


def file_of(directory, data=b""):
    encoded = directory if isinstance(directory, bytes) else json.dumps(directory).encode()
    return len(encoded).to_bytes(8, "little") + encoded + data


def parts_of(ensemble, description):
    """Header (as parsed JSON) and tensors of a model, to be altered and put together again by `forged`."""
    from gbun.model_io.classes import stored_classes
    from gbun.model_io.format import _tensors_of
    from gbun.model_io.header import header_of, header_text

    stated, labels = stored_classes(description.classes)
    return json.loads(header_text(header_of(ensemble, description, stated))), {
        **_tensors_of(ensemble),
        **labels,
    }


def forged(header, tensors, **metadata):
    """A file whose digest is right whatever its header says."""
    text = header if isinstance(header, str) else json.dumps(header)
    metadata = {
        "format": "gbun",
        "version": "1",
        "header": text,
        "digest": digest_of(text, tensors),
        **metadata,
    }
    return b"".join(container.container_chunks({k: v for k, v in metadata.items() if v is not None}, tensors))


def rich_model():
    """A model that has every part a file can have."""
    ensemble = make_ensemble(Softmax(3), Scaling("standard", some_dense(), some_sparse()), K=6, group_size=3)
    schema = Schema("array", 5, ("a", "b"))
    description = make_description(
        task="classification",
        schema=schema,
        classes=np.array([1, 5, 9]),
        parameters={"n_neurons": 6, "eval_metric": ["auc"]},
        best_round=2,
        best_score=0.25,
    )
    return ensemble, description


HEADER, TENSORS = parts_of(*rich_model())
CONTENT = forged(HEADER, TENSORS)


def test_the_forgery_is_good(tmp_path):
    (tmp_path / "m").write_bytes(CONTENT)
    assert_same_ensemble(read_model(tmp_path / "m")[0], rich_model()[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file has 0 bytes: empty"),
        (b"\0" * 7, "the file has 7 bytes"),
        (b"\x80\x04\x95 a pickle, or anything", "no model file, or truncated"),
        (b"\xff" * 8, "no model file, or truncated"),
        (b"\0" * 8, "its directory is not valid JSON"),
        (file_of(b"\xff\xfe"), "its directory is not text"),
        (file_of(b"{"), "its directory is not valid JSON"),
        (file_of([]), "its directory is not a JSON object"),
        (file_of(b" {}"), "its directory is not a JSON object"),
        (file_of(b"{}\n"), "its directory is not a JSON object"),
        (file_of(b"[" * 10**6), "nested too deeply"),
        (file_of(b'{"a":' * 10**5), "nested too deeply"),
        (file_of(b'{"a": ' + b"9" * 10**6 + b"}"), "a number of 1000000 characters"),
        (file_of(b'{"a": NaN}'), "NaN is not a number"),
        (file_of(b'{"a": 1e999}'), "1e999 is beyond float64"),
        (file_of(b'{"a": 1, "a": 1}'), "the key 'a' is there twice"),
        (file_of({}), "no gbun model"),
        (file_of({"__metadata__": 3}), "__metadata__ must be an object"),
        (file_of({"__metadata__": {"format": 3}}), "must be a string, got 3"),
        (save({"weight": np.zeros(3)}), "no gbun model: its format is None"),
        (save({"weight": np.zeros(3)}, {"format": "pt"}), "no gbun model: its format is 'pt'"),
        (forged(HEADER, TENSORS, version="2"), "written by a newer gbun: .* version is 2.*upgrade gbun"),
        (forged(HEADER, TENSORS, version="0"), "unknown format version '0'"),
        (forged(HEADER, TENSORS, version="9" * 5000), "unknown format version"),
        (forged(HEADER, TENSORS, version=None), "unknown format version ''"),
        (forged(HEADER, TENSORS, digest=None), "__metadata__ must have the keys"),
        (forged(HEADER, TENSORS, more="x"), "__metadata__ must have the keys"),
        (forged(HEADER, TENSORS, digest="0" * 64), "altered or damaged file"),
        (forged(HEADER, TENSORS, digest="\ud800"), "altered or damaged file"),
        (forged("[" * 10**5, TENSORS), "header is JSON nested too deeply"),
        (forged("", TENSORS), "header is not valid JSON"),
        (forged("[]", TENSORS), "header must be an object with the keys"),
        (forged('{"family": {}, "family": {}}', TENSORS), "the key 'family' is there twice"),
        (CONTENT + b"\0", "truncated or damaged"),
        (CONTENT[:-1], "truncated or damaged"),
    ],
    ids=range(35),
)  # fmt: skip
def test_other_files(tmp_path, content, message):
    refuse(tmp_path / "m.gbun", content, message)


def test_a_directory_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "DIRECTORY_LIMIT", 1000)
    refuse(tmp_path / "m", CONTENT, "at most 1000 are read")


def entry(dtype="F32", shape=(1,), offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"a": 1}, "tensor 'a' must be an object"),
        ({"a": entry(dtype="BF16")}, "unknown dtype 'BF16'"),
        ({"a": entry(dtype=["F32"])}, "dtype must be a string"),
        ({"a": entry(more=1)}, "unknown key 'more'"),
        ({"a": {"dtype": "F32"}}, "lacks the key 'shape'"),
        ({"a": entry(shape=[-1])}, r"shape\[0\] must be an integer"),
        ({"a": entry(shape=[True])}, r"shape\[0\] must be an integer"),
        ({"a": entry(shape=[1.0])}, r"shape\[0\] must be an integer"),
        ({"a": entry(shape=[1] * 40)}, "has shape"),
        ({"a": entry(offsets=[0])}, "has shape"),
        ({"a": entry(offsets=[4, 0])}, "has -4 bytes"),
        ({"a": entry(shape=[2**40], offsets=[0, 2**42])}, "its tensors take 4398046511104 bytes"),
        ({"a": entry(shape=[0, 2**40, 2**40], offsets=[0, 0])}, "impossible shape"),
        ({"a": entry(), "b": entry()}, "tensor 'b' begins at byte 0, expected 4"),
        ({"a": entry(offsets=[4, 8])}, "begins at byte 4, expected 0"),
        ({"a": entry(dtype="BOOL", shape=[4])}, "truth values besides 0 and 1"),
        ({"a": entry(shape=[])}, "altered or damaged"),
    ],
)
def test_tensors_that_are_not_where_they_are_said_to_be(tmp_path, tensors, message):
    metadata = {"format": "gbun", "version": "1", "header": "{}", "digest": ""}
    refuse(tmp_path / "m", file_of({"__metadata__": metadata, **tensors}, b"\1\2\3\4"), message)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("family", None, "header.family must be an object"),
        ("family.kind", "md5", "must be one of 'simhash\\+\\+', got 'md5'"),
        ("family.seed", -1, "family.seed must be an integer from 0"),
        ("family.seed", 2**63, "family.seed must be an integer from 0"),
        ("family.seed", 1.0, "family.seed must be an integer"),
        ("family.seed", True, "family.seed must be an integer"),
        ("family.n_outputs", 1, "family.n_outputs must be an integer from 2 to 16384"),
        ("family.n_outputs", 2**14 + 1, "family.n_outputs must be"),
        ("family.n_outputs", 9, r"centres must be float32 of shape \(3, 9\)"),
        ("family.group_size", 4, "group_size must divide n_outputs \\(6\\), got 4"),
        ("family.group_size", 0, "group_size must be"),
        ("family.density", 0, "family.density must be a number from 0.001 to 1, got 0"),
        ("family.sparse_density", 1.5, "sparse_density must be a number"),
        ("family.density", "0.5", "density must be a number"),
        ("family.density", True, "density must be a number"),
        ("family.temperature", 0.0, "temperature must be a number above 0"),
        ("family.temperature", -1, "temperature must be a number above 0"),
        ("family.n_columns", -1, "n_columns must be an integer"),
        ("family.n_columns", 4, "n_columns must be null or the schema's \\(5\\), got 4"),
        ("description.schema.n_columns", 10**6, "n_columns must be null or the schema's"),
        ("family.speed", 3, "header.family has the unknown key 'speed'"),
        ("objective.name", "exp", "objective.name must be one of"),
        ("objective.name", "huber", "objective.parameters has the unknown key 'n_classes'"),
        ("objective.name", ["softmax"], "objective.name must be one of"),
        ("objective.parameters", [], "objective.parameters must be an object"),
        ("objective.parameters.n_classes", 4, "softmax with 4 scores a row, start has 3"),
        ("objective.parameters.shared", 1, "shared must be true or false, got 1"),
        ("objective.parameters.form", "bound", "unknown key 'form'"),
        ("scaling.name", "robust", "scaling.name must be one of"),
        ("scaling.dense", False, r"not expected \['dense.centre', 'dense.factor'\]"),
        ("description.task", "ranking", "task must be one of"),
        ("description.schema", {}, "schema lacks the key 'kind'"),
        ("description.schema.kind", 1, "kind must be a string"),
        ("description.schema.n_columns", "5", "n_columns must be an integer"),
        ("description.schema.names", "ab", "names must be a list"),
        ("description.schema.categorical", None, "categorical must be a list"),
        ("description.classes", None, r"not expected \['classes'\]"),
        ("description.classes", ["a", "b", "c"], r"not expected \['classes'\]"),
        ("description.classes", "tensors", "classes must be null"),
        ("description.single_column", None, "single_column must be true or false"),
        ("description.parameters", [], "parameters must be an object"),
        ("description.best_round", -1, "best_round must be an integer"),
        ("description.best_score", "high", "best_score must be a number that is finite"),
        ("description.best_score", float("nan"), "NaN is not a number"),
    ],
)
def test_headers_that_are_not_ours(tmp_path, path, value, message):
    refuse(tmp_path / "m", forged(altered(HEADER, path.split("."), value), TENSORS), message)


@pytest.mark.parametrize(
    ("objective", "bad"),
    [
        (Huber(1.0), {"delta": 0}),
        (Quantile(0.5, 1.0), {"quantile": 1.0}),
        (Quantile(0.5, 1.0), {"epsilon": -1}),
        (Tweedie(), {"power": 2}),
        (MultiLogistic(), {"shared": None}),
        (Custom(None, 2), {"outputs": 3}),
    ],
    ids=repr,
)
def test_objectives_out_of_range(tmp_path, objective, bad):
    header, tensors = parts_of(make_ensemble(objective), make_description())
    header["objective"]["parameters"] |= bad
    refuse(tmp_path / "m", forged(header, tensors), "header.objective")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("heads", None, r"missing \['heads'\]"),
        ("sparse.ids", None, r"missing \['sparse.ids'\]"),
        ("more", np.zeros(1), r"not expected \['more'\]"),
        ("heads", np.zeros((3, 6, 3)), "heads must be float32"),
        ("heads", np.zeros((4, 6, 3), np.float32), r"centres must be float32 of shape \(4, 6\)"),
        ("centres", np.full((3, 6), np.nan, np.float32), "centres has NaN"),
        ("start", np.zeros(2), "softmax with 3 scores a row, start has 2"),
        ("start", np.zeros((), np.float64), "start must be an array"),
        ("dense.factor", np.zeros(4), r"dense.factor must be float64 of shape \(5,\)"),
        ("sparse.ids", np.array([1, 1, 2]), "sparse.ids must increase"),
        ("sparse.ids", np.array([1, 2]), "sparse.ids must be 3 integers"),
        ("sparse.ids", np.array([1.0, 2.0, 3.0]), "sparse.ids must be 3 integers"),
        ("sparse.centre", np.array([1.0, np.inf, 3.0]), "sparse.centre has NaN or inf"),
        ("classes", np.array([1, 2]), "must name 3 classes, one score each, got 2"),
        ("classes", np.array([1, 2, 2]), "classes must differ"),
        ("classes", np.array([[1, 2, 3]]), "classes must be one-dim"),
        ("classes", np.array([1.0, 2.0, np.inf]), "classes must be finite"),
    ],
)
def test_tensors_that_do_not_fit_the_header(tmp_path, name, value, message):
    tensors = {k: v for k, v in {**TENSORS, name: value}.items() if v is not None}
    refuse(tmp_path / "m", forged(HEADER, tensors), message)


def test_long_labels_take_no_more_memory_than_the_file_suggests(tmp_path):
    header = altered(HEADER, ["description", "classes"], ["x" * 10**6, *map(str, range(10**5))])
    tensors = {k: v for k, v in TENSORS.items() if k != "classes"}
    refuse(tmp_path / "m", forged(header, tensors), "classes would take 400004000000 bytes")


# Fuzz


def altered(tree, path, value):
    """A copy of nested dicts with the value at `path` replaced."""
    copy = dict(tree)
    copy[path[0]] = value if len(path) == 1 else altered(copy[path[0]], path[1:], value)
    return copy


def paths_of(tree, above=()):
    for key, value in tree.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths_of(value, (*above, key))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([2**64, 0.5, "tensor"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(content=st.binary(max_size=200))
@FUZZ
def test_random_bytes(tmp_path, content):
    refuse(tmp_path / "m", content)


@given(
    directory=st.binary(max_size=100) | JSON.map(lambda v: json.dumps(v).encode()),
    data=st.binary(max_size=20),
)
@FUZZ
def test_random_directories(tmp_path, directory, data):
    refuse(tmp_path / "m", file_of(directory, data))


@given(cut=st.integers(0, len(CONTENT) - 1))
@FUZZ
def test_truncated_anywhere(tmp_path, cut):
    refuse(tmp_path / "m", CONTENT[:cut])


@given(at=st.integers(0, len(CONTENT) - 1), flip=st.integers(1, 255))
@settings(FUZZ, max_examples=1000)
def test_any_byte_changed(tmp_path, at, flip):
    changed = bytearray(CONTENT)
    changed[at] ^= flip
    refuse(tmp_path / "m", bytes(changed))


def read_if_sound(path, content):
    """A ValueError, or a model that can be written and read again."""
    path.write_bytes(content)
    try:
        ensemble, description = read_model(path)
    except ValueError as error:
        assert str(error).startswith(f"{path}: ")  # noqa: PT017
        return
    write_model(path, ensemble, description)
    assert_same_ensemble(read_model(path)[0], ensemble)


@given(changes=st.lists(st.tuples(st.sampled_from(sorted(paths_of(HEADER))), JSON), min_size=1, max_size=3))
@FUZZ
def test_hostile_headers(tmp_path, changes):
    header = HEADER
    for path, value in sorted(changes, key=lambda change: -len(change[0])):
        header = altered(header, path, value)
    read_if_sound(tmp_path / "m", forged(header, TENSORS))


DTYPES = st.sampled_from(sorted(container.CODES))
SHAPES = st.lists(st.integers(0, 6), max_size=3)


@given(
    name=st.sampled_from([*TENSORS, "other"]),
    dtype=DTYPES,
    shape=SHAPES,
    byte=st.sampled_from([0, 1, 127, 255]),
)
@FUZZ
def test_hostile_tensors(tmp_path, name, dtype, shape, byte):
    item = np.dtype(dtype).itemsize
    array = np.frombuffer(bytes([byte]) * (item * int(np.prod(shape))), dtype=dtype).reshape(shape)
    read_if_sound(tmp_path / "m", forged(HEADER, {**TENSORS, name: array}))


@given(
    name=st.sampled_from(sorted(TENSORS)),
    changes=st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "x"]), JSON, min_size=1),
)
@FUZZ
def test_hostile_directories(tmp_path, name, changes):
    length = int.from_bytes(CONTENT[:8], "little")
    directory = json.loads(CONTENT[8 : 8 + length])
    directory[name] |= changes
    read_if_sound(tmp_path / "m", file_of(directory, CONTENT[8 + length :]))


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="counts allocations with tracemalloc; once is enough"
)
def test_reading_allocates_little_more_than_the_file(tmp_path):
    import tracemalloc

    write_model(tmp_path / "m", make_ensemble(T=20, K=512, C=50), make_description())
    size = (tmp_path / "m").stat().st_size
    tracemalloc.start()
    try:
        read_model(tmp_path / "m")
        assert tracemalloc.get_traced_memory()[1] < 1.6 * size
    finally:
        tracemalloc.stop()

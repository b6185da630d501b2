"""Model files that are not ours: whatever is in them, reading gives a ValueError that begins with the path."""

from __future__ import annotations

import json
import os
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from gbun.data.features import Schema
from gbun.data.scaling import Scaling
from gbun.model_io import container, read_model, read_model_bytes, write_model
from gbun.model_io.container import seal
from gbun.model_io.format import _collect_tensors
from gbun.model_io.header import encode_classes, make_header, to_canonical_json
from gbun.objectives import Custom, Huber, MultiLogistic, Quantile, Softmax, Tweedie
from tests.model_io.test_format import (
    FUZZ,
    assert_same_ensemble,
    make_description,
    make_ensemble,
    some_dense,
    some_sparse,
)


def refuse(path, content, message=None):
    """Reading must give a ValueError that begins with the path."""
    path.write_bytes(content)
    for read in (lambda: read_model(path), lambda: read_model_bytes(content, path)):
        with pytest.raises(ValueError, match=message) as caught:
            read()
        assert type(caught.value) is ValueError
        assert str(caught.value).startswith(f"{path}: ")


def with_tensors(tensors, changes):
    """The tensors with others in their place; None takes one out."""
    return {name: array for name, array in {**tensors, **changes}.items() if array is not None}


def peak_memory(act):
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def file_of(directory, data=b""):
    encoded = directory if isinstance(directory, bytes) else json.dumps(directory).encode()
    return len(encoded).to_bytes(8, "little") + encoded + data


def parts_of(ensemble, description):
    """Header (as parsed JSON) and tensors of a model, to be altered and put together again by `forged`."""
    stated, labels = encode_classes(description.classes)
    header = json.loads(to_canonical_json(make_header(ensemble, description, stated)))
    tensors = {**_collect_tensors(ensemble), **labels}
    return header, {name: np.ascontiguousarray(array) for name, array in tensors.items()}


def as_version(version, header, tensors):
    """Header and tensors of a model of networks as version 1 or 2 has them."""
    header, tensors = {**header, "version": version, "family": header["learner"]["parameters"]}, dict(tensors)
    T, K, (_, C) = header.pop("n_rounds"), header["family"]["n_outputs"], tensors["heads"].shape
    tensors["heads"] = tensors["heads"].reshape(T, K, C)
    tensors |= {name: tensors.pop(f"learner.{name}") for name in ("centres", "factors")}
    del header["learner"]
    if version == 1:
        del header["linear"]
        header["scaling"] = {key: header["scaling"][key] for key in ("name", "dense", "sparse")}
    return header, tensors


def text_of(header, tensors, **changes):
    """The header's text, with the right digest whatever it says, but for the changes."""
    try:
        values = json.loads(seal(header, tensors))
    except ValueError:  # NaN has no digest
        values = header
    return json.dumps({**values, **changes}, sort_keys=True, separators=(",", ":"))


def forged(header, tensors, **changes):
    return save(tensors, {"gbun": header if isinstance(header, str) else text_of(header, tensors, **changes)})


def rich_model():
    """A model that has every part a file can have."""
    ensemble = make_ensemble(Softmax(3), Scaling("standard", some_dense(), some_sparse()), K=6, group_size=3)
    schema = Schema("array", 5, tuple("abcde"))
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
OLD = {version: as_version(version, HEADER, TENSORS) for version in (1, 2)}
VERSIONS = {**OLD, 3: (HEADER, TENSORS)}


def test_the_forgery_is_good(tmp_path):
    (tmp_path / "m").write_bytes(CONTENT)
    assert_same_ensemble(read_model(tmp_path / "m")[0], rich_model()[0])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("T", [0, 3])
def test_old_versions_give_the_same_model(tmp_path, version, T):
    scaling = Scaling("standard", some_dense(), some_sparse(), sparse_steps=("standard",))
    ensemble, description = make_ensemble(Softmax(3), scaling, T=T), make_description()
    (tmp_path / "old").write_bytes(forged(*as_version(version, *parts_of(ensemble, description))))
    again, described = read_model(tmp_path / "old")
    assert_same_ensemble(again, ensemble)
    assert (again.scaling.sparse_steps, described) == (("standard",), description)
    write_model(tmp_path / "new", again, described)
    write_model(tmp_path / "same", ensemble, description)
    assert (tmp_path / "new").read_bytes() == (tmp_path / "same").read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated: it has 0 bytes"),
        (b"\0" * 7, "truncated: it has 7 bytes"),
        (b"\x80\x04\x95 a pickle, or anything", "not a .gbun file, or truncated"),
        (b"\xff" * 8, "not a .gbun file, or truncated"),
        (b"\0" * 8, "its directory is not valid JSON"),
        (file_of(b"\xff\xfe"), "its directory is not valid JSON"),
        (file_of(b"{"), "its directory is not valid JSON"),
        (file_of([]), "its directory is not a JSON object"),
        (file_of(b" {}"), "its directory is not a JSON object"),
        (file_of(b"{}\n"), "its directory is not a JSON object"),
        (file_of(b"[" * 10**6), "nested too deeply"),
        (file_of(b'{"a":' * 10**5), "nested too deeply"),
        (file_of(b'{"a": ' + b"9" * 10**6 + b"}"), "its directory is not valid JSON: Exceeds the limit"),
        (file_of(b'{"a": NaN}'), "no gbun model"),
        (file_of(b'{"a": 1, "a": 1}'), "a key is there twice among .'a', 'a'"),
        (file_of({}), "no gbun model: its metadata is None"),
        (file_of({"__metadata__": 3}), "no gbun model: its metadata is 3"),
        (file_of({"__metadata__": {"gbun": 3}}), "no gbun model: its metadata is {'gbun': 3}, expected one text"),
        (save({"weight": np.zeros(3)}), "no gbun model"),
        (save({"weight": np.zeros(3)}, {"format": "pt"}), "no gbun model: its metadata is {'format': 'pt'}"),
        (save(TENSORS, {"gbun": text_of(HEADER, TENSORS), "more": ""}), "no gbun model: its metadata is"),
        (forged({**HEADER, "version": 4}, TENSORS), "written by a newer gbun, in format version 4; upgrade gbun"),
        (forged({"version": 4, "new": 1}, TENSORS), "written by a newer gbun, in format version 4; upgrade gbun"),
        (forged({**HEADER, "version": 0}, TENSORS), "header.version must be an integer from 1 to 3, got 0"),
        (forged({**HEADER, "version": True}, TENSORS), "header.version must be an integer from 1 to 3, got True"),
        (forged({**HEADER, "version": "1"}, TENSORS), "header.version must be an integer from 1 to 3, got '1'"),
        (forged({**HEADER, "version": 1}, TENSORS), r"header of version 1 must .* unknown \['learner', 'linear', 'n_"),
        (forged({**HEADER, "version": 2}, TENSORS), r"header of version 2 must .* unknown \['learner', 'n_rounds'\]"),
        (forged(to_canonical_json(HEADER), TENSORS), "altered or damaged file"),
        (forged(HEADER, TENSORS, more="x"), r"header must be .*unknown \['more'\]"),
        (forged(HEADER, TENSORS, digest="0" * 64), "altered or damaged file"),
        (forged(HEADER, TENSORS, digest="\ud800"), "altered or damaged file"),
        (forged(HEADER, TENSORS, digest=[[3]]), "altered or damaged file"),
        (forged(f" {text_of(HEADER, TENSORS)}", TENSORS), "altered or damaged file"),
        (forged("[" * 10**5, TENSORS), "header is JSON nested too deeply"),
        (forged("", TENSORS), "header is not valid JSON"),
        (forged("[]", TENSORS), "header must be an object with the keys"),
        (forged('{"family": {}, "family": {}}', TENSORS), "a key is there twice"),
        (CONTENT + b"\0", "truncated or damaged"),
        (CONTENT[:-1], "truncated or damaged"),
    ],
    ids=range(40),
)
def test_other_files(tmp_path, content, message):
    refuse(tmp_path / "m.gbun", content, message)


@pytest.mark.slow
def test_depths_that_one_parser_takes_and_another_may_not(tmp_path):
    for depth in range(20, 1200, 10):
        nested = "[" * depth + "]" * depth
        refuse(tmp_path / "m", forged(text_of(HEADER, TENSORS, digest="?").replace('"?"', nested), TENSORS))
        refuse(tmp_path / "m", file_of(f'{{"__metadata__":{{"gbun":""}},"a":{nested}}}'.encode()))
        header = text_of(altered(HEADER, ["learner", "parameters"], "?"), TENSORS).replace('"?"', nested)
        refuse(tmp_path / "m", forged(header, TENSORS))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: not a regular file"):
        read_model(tmp_path / "pipe")


def test_a_directory_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "DIRECTORY_LIMIT", 1000)
    refuse(tmp_path / "m", CONTENT, "at most 1000")


def test_a_file_that_is_cut_short_while_it_is_read(tmp_path, monkeypatch):
    honest, content = container._read_metadata, forged(*parts_of(make_ensemble(T=50, K=4096), make_description()))

    def cutting(directory):
        os.truncate(tmp_path / "m", len(content) - 100)
        return honest(directory)

    monkeypatch.setattr(container, "_read_metadata", cutting)
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ValueError, match="m: truncated or damaged"):
        read_model(tmp_path / "m")


def entry(dtype="F32", shape=(1,), offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"a": 1}, "tensor 'a' must be an object"),
        ({"a": ["F32", [1], [0, 4]]}, "tensor 'a' must be an object"),
        ({"a": entry(more=1)}, r"unknown \['more'\]"),
        ({"a": {"dtype": "F32"}}, r"missing \['shape', 'data_offsets'\]"),
        ({"a": entry(dtype="BF16", shape=[2])}, "cannot be read .'BF16'"),
        ({"a": entry(dtype="F128")}, "cannot be read"),
        ({"a": entry(dtype=["F32"])}, "cannot be read"),
        ({"a": entry(shape=[-1])}, "cannot be read"),
        ({"a": entry(shape=[True])}, "cannot be read"),
        ({"a": entry(shape=[1.0])}, "cannot be read"),
        ({"a": entry(shape=[float("nan")])}, "cannot be read"),
        ({"a": entry(shape=[1] * 70)}, "cannot be read"),
        ({"a": entry(offsets=[0])}, "cannot be read"),
        ({"a": entry(offsets=[4, 0])}, "cannot be read"),
        ({"a": entry(shape=[2**40], offsets=[0, 2**42])}, "cannot be read"),
        ({"a": entry(shape=[2**62, 4], offsets=[0, 0]), "b": entry()}, "cannot be read"),
        ({"a": entry(shape=[0, 2**40, 2**40], offsets=[0, 0]), "b": entry()}, "cannot be read"),
        ({"a": entry(shape=[0, 2**63], offsets=[0, 0]), "b": entry()}, "cannot be read"),
        ({"a": entry(), "b": entry()}, "cannot be read"),
        ({"a": entry(offsets=[4, 8])}, "cannot be read"),
        ({"\ud800": entry()}, "cannot be read"),
        ({"a": entry(dtype="BOOL", shape=[4])}, "altered or damaged"),
        ({"a": entry(shape=[])}, "altered or damaged"),
    ],
)
def test_tensors_that_are_not_where_they_are_said_to_be(tmp_path, tensors, message):
    directory = {"__metadata__": {"gbun": text_of(HEADER, TENSORS)}, **tensors}
    refuse(tmp_path / "m", file_of(directory, b"\1\2\3\4"), message)


FAMILIES = [
    ("kind", "md5", "must be one of 'simhash\\+\\+', got 'md5'"),
    ("seed", -1, "parameters.seed must be an integer from 0"),
    ("seed", 2**63, "parameters.seed must be an integer from 0"),
    ("seed", 1.0, "parameters.seed must be an integer"),
    ("seed", True, "parameters.seed must be an integer"),
    ("n_outputs", 1, "parameters.n_outputs must be an integer from 2 to 16384"),
    ("n_outputs", 2**14 + 1, "parameters.n_outputs must be"),
    ("n_outputs", 9, r"learner 'network': centres must be float32 of shape \(3, 9\), got float32 of \(3, 6\)"),
    ("group_size", 4, "group_size must divide n_outputs \\(6\\), got 4"),
    ("group_size", 0, "group_size must be"),
    ("density", 0, "parameters.density must be a number from 0.001 to 1, got 0"),
    ("sparse_density", 1.5, "sparse_density must be a number"),
    ("density", "0.5", "density must be a number"),
    ("density", True, "density must be a number"),
    ("density", float("nan"), "Out of range float values|must be a number"),
    ("temperature", 0.0, "temperature must be a number above 0"),
    ("temperature", -1, "temperature must be a number above 0"),
    ("n_columns", -1, "n_columns must be an integer"),
    ("n_columns", 4, "n_columns must be null or the schema's \\(5\\), got 4"),
    ("speed", 3, r"header.learner.parameters must be .* unknown \['speed'\]"),
]


@pytest.mark.parametrize(("key", "value", "message"), [(None, None, "parameters must be an object"), *FAMILIES])
def test_networks_that_are_not_ours(tmp_path, key, value, message):
    """Each version has the same checks."""
    for version, (header, tensors) in VERSIONS.items():
        path = (["learner", "parameters"] if version == 3 else ["family"]) + ([] if key is None else [key])
        refuse(tmp_path / "m", forged(altered(header, path, value), tensors), message)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("learner", None, "header.learner must be an object"),
        ("learner.kind", 1, "header.learner.kind must be a string, got 1"),
        ("learner.kind", "forest", r"needs a learner of kind 'forest', and there are \[.*'network'"),
        ("learner.speed", 3, r"header.learner must be .* unknown \['speed'\]"),
        ("n_rounds", None, "header.n_rounds must be an integer from 0"),
        ("n_rounds", -1, "header.n_rounds must be an integer from 0"),
        ("n_rounds", 3.0, "header.n_rounds must be an integer from 0"),
        ("n_rounds", True, "header.n_rounds must be an integer from 0"),
        ("n_rounds", 2**63, "header.n_rounds must be an integer from 0"),
        ("n_rounds", 0, r"learner 'network': centres must be float32 of shape \(0, 6\)"),
        ("n_rounds", 18, r"learner 'network': centres must be float32 of shape \(18, 6\)"),
        ("n_rounds", 19, r"n_rounds must be at most the number of rows of heads \(18\), got 19"),
        ("family", {}, r"header must be .* unknown \['family'\]"),
        ("description.schema.n_columns", 10**6, "names must be as many as n_columns \\(1000000\\), got 5"),
        ("description.schema", {"kind": "array", "n_columns": 10**6, "names": None, "categorical": []},
         "n_columns must be null or the schema's"),
        ("objective.name", "exp", "objective.name must be one of"),
        ("objective.name", "huber", r"objective.parameters must be .* unknown \['n_classes', 'shared'\]"),
        ("objective.name", ["softmax"], "objective.name must be one of"),
        ("objective.parameters", [], "objective.parameters must be an object"),
        ("objective.parameters.n_classes", 4, "softmax with 4 scores a row, start has 3"),
        ("objective.parameters.shared", 1, "shared must be true or false, got 1"),
        ("objective.parameters.form", "bound", r"unknown \['form'\]"),
        ("scaling.name", "robust", "scaling.name must be 'auto'"),
        ("scaling.dense", False, r"not expected \['dense.centre', 'dense.factor'\]"),
        ("description.task", "ranking", "task must be one of"),
        ("description.schema", {}, r"schema must be .* missing \['kind', "),
        ("description.schema.kind", 1, "kind must be one of"),
        ("description.schema.kind", "matrix", r"kind must be one of 'array', .* 'tokens', got 'matrix'"),
        ("description.schema.kind", "frame", r"n_columns must be null or the schema's \(None\), got 5"),
        ("description.schema.n_columns", "5", "n_columns must be an integer"),
        ("description.schema.names", "ab", "names must be a list of strings, got 'ab'"),
        ("description.schema.names", ["a", "b"], r"names must be as many as n_columns \(5\), got 2"),
        ("description.schema.n_columns", None, r"names must be as many as n_columns \(None\), got 5"),
        ("description.schema.categorical", None, "categorical must be a list"),
        ("description.schema.categorical", ["a"], r"categorical must be among the names of a frame, got \['a'\]"),
        ("description.classes", None, r"not expected \['classes'\]"),
        ("description.classes", ["a", "b", "c"], r"not expected \['classes'\]"),
        ("description.classes", "tensors", "classes must be a list of strings, got 'tensors'"),
        ("description.single_column", None, "single_column must be true or false"),
        ("description.parameters", [], "parameters must be an object"),
        ("description.best_round", -2, "best_round must be an integer"),
        ("description.best_score", "high", "best_score must be a number that is finite"),
        ("description.best_score", float("nan"), "best_score must be a number that is finite, got nan"),
    ],
)  # fmt: skip
def test_headers_that_are_not_ours(tmp_path, path, value, message):
    refuse(tmp_path / "m", forged(altered(HEADER, path.split("."), value), TENSORS), message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": None}, r"names must be as many as n_columns \(6\), got none"),
        ({"names": list("abcde")}, r"names must be as many as n_columns \(6\), got 5"),
        ({"n_columns": None, "names": None}, r"names must be as many as n_columns \(None\), got none"),
        ({"categorical": ["x"]}, r"categorical must be among the names of a frame, got \['x'\]"),
        ({"categorical": ["b", "b"]}, r"categorical must be among the names of a frame, got \['b', 'b'\]"),
        ({"categorical": ["a", "b"]}, r"dense.centre must be float64 of shape \(4,\), got float64 of \(5,\)"),
        ({"kind": "tokens"}, r"categorical must be among the names of a frame"),
        (
            {"kind": "names", "n_columns": None, "categorical": []},
            r"names must be as many as n_columns \(None\), got 6",
        ),
    ],
)
def test_frames_that_are_not_ours(tmp_path, changes, message):
    schema = Schema("frame", 6, tuple("abcdef"), ("b",))
    header, tensors = parts_of(make_ensemble(n_columns=None), make_description(schema=schema))
    (tmp_path / "m").write_bytes(forged(header, tensors))
    assert read_model(tmp_path / "m")[1].schema == schema
    header = altered(header, ["description", "schema"], {**header["description"]["schema"], **changes})
    for parts in ((header, tensors), as_version(1, header, tensors), as_version(2, header, tensors)):
        refuse(tmp_path / "m", forged(*parts), message)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("family", None, "header.learner.parameters must be an object"),
        ("learner", {"kind": "network", "parameters": {}}, r"version .* unknown \['learner'\]"),
        ("n_rounds", 3, r"version .* unknown \['n_rounds'\]"),
        ("speed", 3, r"version .* unknown \['speed'\]"),
        ("scaling", None, "scaling.* must be an object"),
        ("scaling.speed", 3, r"scaling.* unknown \['speed'\]"),
        ("scaling.sparse", "yes", "scaling.sparse must be true or false"),
        ("objective", None, "header.objective must be an object"),
        ("description.task", "ranking", "task must be one of"),
    ],
)
def test_old_headers_that_are_not_ours(tmp_path, version, path, value, message):
    header, tensors = OLD[version]
    refuse(tmp_path / "m", forged(altered(header, path.split("."), value), tensors), message)
    missing = {key: item for key, item in header.items() if key != "family"}
    refuse(tmp_path / "m", forged(missing, tensors), rf"header of version {version} must .* missing \['family'\]")


def test_keys_that_version_1_does_not_have(tmp_path):
    header, tensors = OLD[1]
    for path, value in (("linear", None), ("scaling.steps", []), ("scaling.buckets", None)):
        message = rf"version 1 must be .* unknown \['{path.split('.')[-1]}'\]"
        refuse(tmp_path / "m", forged(altered(header, path.split("."), value), tensors), message)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": None}, r"missing \['heads'\]"),
        ({"centres": None}, r"missing \['centres'\]"),
        ({"centres": None, "learner.centres": TENSORS["learner.centres"]}, r"not expected \['learner.centres'\]"),
        ({"learner.more": np.zeros(1)}, r"not expected \['learner.more'\]"),
        ({"more": np.zeros(1)}, r"not expected \['more'\]"),
        ({"heads": np.zeros((3, 6, 3))}, "heads must be float32"),
        ({"heads": TENSORS["heads"]}, r"heads must have the shape of centres \(3, 6\) and of scores, got \(18, 3\)"),
        ({"heads": np.zeros((4, 6, 3), np.float32)}, "heads must have the shape of centres"),
        ({"heads": np.zeros((3, 6, 2), np.float32)}, r"heads must be float32 of shape \(\*, 3\)"),
        ({"heads": np.zeros((3, 6, 0), np.float32)}, r"heads must be float32 of shape \(\*, 3\)"),
        ({"heads": np.full((3, 6, 3), np.nan, np.float32)}, "heads has NaN"),
        ({"centres": np.full((3, 6), np.nan, np.float32)}, "centres has NaN"),
        ({"factors": np.zeros((2, 6), np.float32)}, r"factors must be float32 of shape \(3, 6\)"),
        ({"start": np.zeros(2)}, "softmax with 3 scores a row, start has 2"),
        ({name: np.zeros((0, 9, *shape), np.float32) for name, shape in
          {"heads": (3,), "centres": (), "factors": ()}.items()}, r"centres must be float32 of shape \(0, 6\)"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_an_old_header(tmp_path, version, changes, message):
    header, tensors = OLD[version]
    refuse(tmp_path / "m", forged(header, with_tensors(tensors, changes)), message)


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
        ("heads", np.zeros((18, 3)), "heads must be float32"),
        ("heads", np.zeros((3, 6, 3), np.float32), r"heads must be float32 of shape \(\*, 3\), got float32 of \(3, 6"),
        ("heads", np.zeros((24, 3), np.float32), "heads must have 18 rows, one for each output of each round, got 24"),
        ("heads", np.zeros((17, 3), np.float32), "heads must have 18 rows, one for each output of each round, got 17"),
        ("heads", np.zeros((0, 3), np.float32), r"n_rounds must be at most the number of rows of heads \(0\), got 3"),
        ("heads", np.zeros((18, 0), np.float32), r"heads must be float32 of shape \(\*, 3\)"),
        ("heads", np.full((18, 3), np.inf, np.float32), "heads has NaN or infinite"),
        ("learner.centres", None, r"learner 'network': .* missing \['centres'\]"),
        ("learner.more", np.zeros(1), r"learner 'network': .* not expected \['more'\]"),
        ("learner.", np.zeros(1), r"learner 'network': .* not expected \[''\]"),
        ("centres", np.zeros((3, 6), np.float32), r"not expected \['centres'\]"),
        ("learner.centres", np.full((3, 6), np.nan, np.float32), "centres has NaN"),
        ("learner.factors", np.zeros((3, 6)), r"factors must be float32 of shape \(3, 6\), got float64"),
        (
            "learner.factors",
            np.zeros((4, 6), np.float32),
            r"factors must be float32 of shape \(3, 6\), got .* \(4, 6\)",
        ),
        ("start", np.zeros(2), "softmax with 3 scores a row, start has 2"),
        ("start", np.zeros((), np.float64), r"start must be float64 of shape \(\*,\), got float64 of \(\)"),
        ("dense.factor", np.zeros(4), r"dense.factor must be float64 of shape \(5,\)"),
        ("sparse.ids", np.array([1, 1, 2]), "sparse.ids must increase"),
        ("sparse.ids", np.array([1, 2]), r"sparse.ids must be integers of shape \(3,\)"),
        ("sparse.ids", np.array([1.0, 2.0, 3.0]), "sparse.ids must be integers"),
        ("sparse.centre", np.array([1.0, np.inf, 3.0]), "sparse.centre has NaN or inf"),
        ("classes", np.array([1, 2]), "must name 3 classes, one score each, got 2"),
        ("classes", np.array([1, 2, 2]), "classes must differ"),
        ("classes", np.array([[1, 2, 3]]), r"classes must be numbers of shape \(\*,\)"),
        ("classes", np.array([1.0, 2.0, np.inf]), "classes must be finite"),
        ("classes", np.array([0, 1, 2], np.uint8).view(bool), "truth values besides 0 and 1"),
    ],
)
def test_tensors_that_do_not_fit_the_header(tmp_path, name, value, message):
    refuse(tmp_path / "m", forged(HEADER, with_tensors(TENSORS, {name: value})), message)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts allocations with tracemalloc; once is enough")
@pytest.mark.parametrize("n_rounds", [19, 10**12, 2**63 - 1])
def test_a_forged_number_of_rounds_allocates_nothing(tmp_path, n_rounds):
    (tmp_path / "m").write_bytes(forged(altered(HEADER, ["n_rounds"], n_rounds), TENSORS))

    def read():
        with pytest.raises(ValueError, match=f"n_rounds must be at most .* got {n_rounds}"):
            read_model(tmp_path / "m")

    assert peak_memory(read) < 10**6


def test_long_labels_take_no_more_memory_than_the_file_suggests(tmp_path):
    header = altered(HEADER, ["description", "classes"], ["x" * 10**6, *map(str, range(10**5))])
    refuse(
        tmp_path / "m",
        forged(header, with_tensors(TENSORS, {"classes": None})),
        "classes would take 400004000000 bytes",
    )


# Fuzz


def altered(tree, path, value):
    """A copy of nested dicts with the value at `path` replaced."""
    copy = dict(tree)
    copy[path[0]] = value if len(path) == 1 else altered(copy.get(path[0], {}), path[1:], value)
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


@pytest.mark.slow
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


@pytest.mark.slow
@given(at=st.integers(0, len(CONTENT) - 1), flip=st.integers(1, 255))
@settings(FUZZ, max_examples=400)
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


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@FUZZ
def test_hostile_headers(tmp_path, version, data):
    header, tensors = VERSIONS[version]
    paths = st.sampled_from(sorted({path for other, _ in VERSIONS.values() for path in paths_of(other)}))
    changes = data.draw(st.lists(st.tuples(paths, JSON), min_size=1, max_size=3))
    for path, value in sorted(changes, key=lambda change: -len(change[0])):
        header = altered(header, path, value)
    read_if_sound(tmp_path / "m", forged(header, tensors))


DTYPES = st.sampled_from(["bool", "float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint64"])
SHAPES = st.lists(st.integers(0, 6), max_size=3)


@pytest.mark.slow
@given(
    version=st.sampled_from(list(VERSIONS)),
    name=st.sampled_from(sorted({*TENSORS, *OLD[2][1], "other"})),
    dtype=DTYPES,
    shape=SHAPES,
    byte=st.sampled_from([0, 1, 127, 255]),
)
@FUZZ
def test_hostile_tensors(tmp_path, version, name, dtype, shape, byte):
    item = np.dtype(dtype).itemsize
    array = np.frombuffer(bytes([byte]) * (item * int(np.prod(shape))), dtype=dtype).reshape(shape)
    header, tensors = VERSIONS[version]
    read_if_sound(tmp_path / "m", forged(header, {**tensors, name: array}))


@pytest.mark.slow
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts allocations with tracemalloc; once is enough")
def test_reading_allocates_little_more_than_the_file(tmp_path):
    write_model(tmp_path / "m", make_ensemble(T=20, K=512, C=50), make_description())
    size = (tmp_path / "m").stat().st_size
    assert peak_memory(lambda: read_model(tmp_path / "m")) < 2.1 * size  # the file, and its tensors

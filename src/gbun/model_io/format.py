"""A model as one file: its arrays as tensors, all else in a JSON header, and a digest of both.

The format is documented in docs/model_format.md. A file that `write_model` cannot have written gives a ValueError that
says where, and nothing in a file is ever executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np

from gbun.checks import check_array, check_names
from gbun.data.buckets import MAX_BITS, MIN_BITS, Buckets
from gbun.data.features import Schema
from gbun.data.scaled_columns import ColumnScale
from gbun.data.scaling import BucketScale, Scaling, resolve_dense_steps
from gbun.data.seen_categories import pack_seen, unpack_seen
from gbun.data.streams import PathLike
from gbun.description import Description
from gbun.ensemble import Ensemble
from gbun.learners import AnyLearner, Step, learner_from
from gbun.learners.base import Arrays
from gbun.linear import LinearStart
from gbun.model_io.atomic import write_atomically
from gbun.model_io.container import pack, unpack
from gbun.model_io.header import check_header, decode_classes, encode_classes, make_header
from gbun.objectives import make_objective
from gbun.ranges import parse_scaling_steps
from gbun.scored_rows import Start


def write_model(path: PathLike, ensemble: Ensemble, description: Description) -> None:
    """Write a model to a file; an existing file is replaced once the new one is complete."""
    with _prefix_errors(f"{path}: cannot be written: "):
        write_atomically(path, [model_bytes(ensemble, description)])


def model_bytes(ensemble: Ensemble, description: Description) -> bytes:
    """Return the content of the file that `write_model` writes; the same model gives the same bytes.

    >>> from gbun.learners import NetworkLearner
    >>> from gbun.networks import Family
    >>> from gbun.objectives import SquaredError
    >>> learner = NetworkLearner(Family(seed=7, n_outputs=2))
    >>> ensemble = Ensemble(learner, Scaling("none"), SquaredError(), Start(np.array([0.5])))
    >>> content = model_bytes(ensemble, Description("regression", Schema("names")))
    >>> read_model_bytes(content, "a model")[0].start
    Start(constant=array([0.5]), linear=None)
    """
    classes, class_tensor = encode_classes(description.classes)
    tensors = {**_collect_tensors(ensemble), **class_tensor}
    header = check_header(make_header(ensemble, description, classes))
    readable, _ = _build_model(header, tensors)  # a model that could not be read back is not written
    header["learner"]["parameters"] = readable.learner.parameters()  # 1 and 1.0 give the same bytes
    return pack(header, tensors)


def read_model(path: PathLike) -> tuple[Ensemble, Description]:
    """Read the model that `write_model` wrote; any other file gives a ValueError that begins with the path."""
    with _open(path) as file, _prefix_errors(f"{path}: "):
        return _build_model(*unpack(file))


def read_model_file(path: PathLike) -> bytes:
    """Return the content of a model file, unchecked, for `read_model_bytes` on another machine."""
    with _open(path) as file:
        return file.read()


def read_model_bytes(data: bytes, name: PathLike) -> tuple[Ensemble, Description]:
    """Read a model from the content of its file, with the same checks; messages begin with `name`."""
    with _prefix_errors(f"{name}: "):
        return _build_model(*unpack(BytesIO(data)))


def _open(path: PathLike) -> IO[bytes]:
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: there is no such model file")
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a model file")
    if not Path(path).is_file():  # opening a pipe would wait for its writer
        raise ValueError(f"{path}: not a regular file")
    return Path(path).open("rb")


def _collect_tensors(ensemble: Ensemble) -> Arrays:
    n_scores, scaling = ensemble.n_scores, ensemble.scaling
    for t, step in enumerate(ensemble.steps):  # one below the other, their shapes could no longer be told
        check_array(f"the head of round {t}", np.asarray(step.head), "float32", (step.partition.n_outputs, n_scores))
    heads = np.concatenate([np.zeros((0, n_scores), dtype=np.float32), *(step.head for step in ensemble.steps)])
    tensors: dict[str, Any] = {"start": ensemble.start.constant, "heads": heads}
    arrays = ensemble.learner.pack([step.partition for step in ensemble.steps])
    tensors |= {f"learner.{name}": array for name, array in arrays.items()}
    for name, scale in (("dense", scaling.dense), ("sparse", scaling.sparse)):
        if scale is not None:
            tensors |= {f"{name}.{part}": array for part, array in vars(scale).items() if array is not None}
    if scaling.bucketed is not None:
        tensors["scaling.factor"] = scaling.bucketed.factor
    if scaling.seen is not None:
        tensors |= pack_seen(scaling.seen)
    if ensemble.linear is not None:
        tensors["linear.weights"] = ensemble.linear.weights
    return {name: np.asarray(array) for name, array in tensors.items()}


def _build_model(header: Mapping[str, Any], tensors: Arrays) -> tuple[Ensemble, Description]:
    """Make the model from a checked header and tensors that must fit it."""
    fields, linear = header["description"], header["linear"]
    expected = {
        ("start", "heads"): True,
        ("dense.centre", "dense.factor"): header["scaling"]["dense"],
        ("dense.bound",): header["scaling"]["dense"] and "clip" in resolve_dense_steps(header["scaling"]["name"]),
        ("sparse.centre", "sparse.factor", "sparse.ids"): header["scaling"]["sparse"],
        ("scaling.factor",): header["scaling"]["buckets"] is not None,
        ("categories.seen", "categories.n_seen"): "categories.seen" in tensors,  # older files do not know
        ("linear.weights",): linear is not None,
        ("classes",): fields["classes"] == "tensor",
    }
    check_names(
        [name for name in tensors if not name.startswith("learner.")],
        [name for names, is_there in expected.items() if is_there for name in names],
    )
    start = check_array("start", tensors["start"], "float64", (None,))
    C, schema = len(start), Schema(**fields["schema"])
    if C == 0:
        raise ValueError("start must have at least one score, got none")
    n_columns = schema.n_columns if schema.kind == "array" else None
    learner = learner_from(header["learner"]["kind"], header["learner"]["parameters"], n_columns)
    scaling = _make_scaling(header["scaling"], schema, n_columns, tensors)
    linear_start = None
    if linear is not None:
        buckets = _make_buckets(linear["buckets"], n_columns)
        n_weights = (0 if scaling.dense is None else len(scaling.dense.centre)) + (0 if buckets is None else buckets.n)
        weights = check_array("linear.weights", tensors["linear.weights"], "float32", (n_weights, C))
        linear_start = LinearStart(buckets, weights, linear["l2"])
    name, parameters = header["objective"]["name"], header["objective"]["parameters"]
    n_stated = parameters.get("n_classes", parameters.get("outputs", C))
    if n_stated != C:
        raise ValueError(f"header.objective is {name} with {n_stated} scores a row, start has {C}")
    objective, steps = make_objective(name, parameters), _make_steps(learner, header["n_rounds"], tensors, C)
    classes = decode_classes(fields["classes"], tensors.get("classes"))
    # One score tells two classes apart; several are one for each class.
    found, wanted = 0 if classes is None else len(classes), max(C, 2)
    if fields["task"] == "classification" and found != wanted:
        raise ValueError(f"header.description.classes must name {wanted} classes, one score each, got {found}")
    description = Description(**{**fields, "schema": schema, "classes": classes})
    return Ensemble(learner, scaling, objective, Start(start, linear_start), steps), description


def _make_steps(learner: AnyLearner, n_rounds: int, tensors: Arrays, n_scores: int) -> tuple[Step, ...]:
    """Divide the rows of heads (R x C) among the partitions: as many rows for each as it has outputs."""
    heads = check_array("heads", tensors["heads"], "float32", (None, n_scores))
    if n_rounds > len(heads):  # before a learner allocates anything for so many rounds
        raise ValueError(f"header.n_rounds must be at most the number of rows of heads ({len(heads)}), got {n_rounds}")
    arrays = {name[len("learner.") :]: array for name, array in tensors.items() if name.startswith("learner.")}
    with _prefix_errors(f"learner {learner.kind!r}: "):
        partitions = learner.unpack(arrays, range(n_rounds))
    ends = np.cumsum([0, *(partition.n_outputs for partition in partitions)])
    if ends[-1] != len(heads):
        raise ValueError(f"heads must have {ends[-1]} rows, one for each output of each round, got {len(heads)}")
    return tuple(map(Step, partitions, np.split(heads, ends[1:])))


def _make_scaling(stated: Mapping[str, Any], schema: Schema, n_columns: int | None, tensors: Arrays) -> Scaling:
    steps, asked = tuple(stated["steps"]), parse_scaling_steps(stated["name"])
    if asked is not None and steps and steps != asked:
        raise ValueError(f"header.scaling.steps must be those of its name {stated['name']!r}, got {steps}")
    if bool({"idf", "max_abs"} & {*steps}) != (stated["buckets"] is not None):
        raise ValueError(f"header.scaling.buckets must be there with 'idf' or 'max_abs', steps are {steps}")
    dense = sparse = shared = None
    if stated["dense"]:
        # Kernels trust the number of dense columns: it is the schema's.
        m = None if schema.n_columns is None else schema.n_columns - len(schema.categorical)
        dense = _make_column_scale("dense", m, tensors)
        if "clip" in resolve_dense_steps(stated["name"]):
            bound = check_array("dense.bound", tensors["dense.bound"], "float64", dense.centre.shape)
            dense = ColumnScale(dense.centre, dense.factor, bound=bound)
    if stated["sparse"]:
        sparse = _make_column_scale("sparse", None, tensors)
        ids = check_array("sparse.ids", tensors["sparse.ids"], "integers", sparse.centre.shape)
        if (ids[1:] <= ids[:-1]).any():  # they are looked up by bisection
            raise ValueError("sparse.ids must increase, each id once")
        sparse = ColumnScale(sparse.centre, sparse.factor, ids)
    buckets = _make_buckets(stated["buckets"], n_columns)
    if buckets is not None:
        shared = BucketScale(buckets, check_array("scaling.factor", tensors["scaling.factor"], "float32", (buckets.n,)))
    seen = None
    if "categories.seen" in tensors:
        counts = check_array("categories.n_seen", tensors["categories.n_seen"], "integers", (len(schema.categorical),))
        seen = unpack_seen(check_array("categories.seen", tensors["categories.seen"], "uint16", (None,)), counts)
    return Scaling(stated["name"], dense, sparse, shared, steps, seen)


def _make_column_scale(name: str, length: int | None, tensors: Arrays) -> ColumnScale:
    centre = check_array(f"{name}.centre", tensors[f"{name}.centre"], "float64", (length,))
    return ColumnScale(centre, check_array(f"{name}.factor", tensors[f"{name}.factor"], "float64", centre.shape))


def _make_buckets(stated: Mapping[str, Any] | None, n_columns: int | None) -> Buckets | None:
    """Check what kernels do not check: each column has a place, and no hash is beyond the last one."""
    if stated is None:
        return None
    buckets = Buckets(**stated)
    if buckets.hashed and buckets.n not in [2**bits for bits in range(MIN_BITS, MAX_BITS + 1)]:
        raise ValueError(f"hashed buckets must be a power of 2, 2^{MIN_BITS} to 2^{MAX_BITS}, got {buckets.n}")
    if not buckets.hashed and buckets.n != n_columns:
        raise ValueError(f"buckets that are columns must be as many as the schema's ({n_columns}), got {buckets.n}")
    return buckets


@contextmanager
def _prefix_errors(prefix: str) -> Iterator[None]:
    """Begin the message of every ValueError with the prefix."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from error

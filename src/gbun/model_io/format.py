"""A model as one file: its arrays as tensors, all else in a JSON header, and a digest over both.

The format is documented in docs/model_format.md. Reading trusts nothing: a file that is not exactly what
`write_model` could have written gives a ValueError that says where, and nothing in a file is ever executed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gbun.data.buckets import LEAST_BITS, MOST_BITS, Buckets
from gbun.data.columns import ColumnScale
from gbun.data.features import Schema
from gbun.data.scaling import BucketScale, Scaling
from gbun.description import Description
from gbun.ensemble import Ensemble
from gbun.linear import LinearStart
from gbun.model_io.atomic import write_atomically
from gbun.model_io.checks import brief
from gbun.model_io.classes import classes_from, stored_classes
from gbun.model_io.container import Tensors, pack, unpack
from gbun.model_io.header import checked, header_of
from gbun.networks import Family
from gbun.objectives import Objective, objective_from
from gbun.ranges import scaling_steps

PathLike = str | os.PathLike[str]


def write_model(path: PathLike, ensemble: Ensemble, description: Description) -> None:
    """Write the model to `path`; an existing file is replaced once the new one is complete, or not at all.

    >>> import tempfile
    >>> from gbun.objectives import SquaredError
    >>> ones = np.ones((1, 2), dtype=np.float32)
    >>> family, start, heads = Family(seed=7, n_outputs=2), np.array([0.5]), ones[..., None]
    >>> ensemble = Ensemble(family, Scaling("none"), SquaredError(), start, ones, ones, heads)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model(Path(folder) / "a.gbun", ensemble, Description("regression", Schema("names")))
    ...     again, description = read_model(Path(folder) / "a.gbun")
    >>> again.family.seed, again.start, description.task
    (7, array([0.5]), 'regression')
    """
    with _naming(path, "cannot be written: "):
        stated, labels = stored_classes(description.classes)
        tensors = {**_tensors_of(ensemble), **labels}
        header = checked(header_of(ensemble, description, stated))
        _model_from(header, tensors)  # what could not be read back is not written
        write_atomically(path, [pack(header, tensors)])


def read_model(path: PathLike) -> tuple[Ensemble, Description]:
    """The model that `write_model` wrote; any other file gives a ValueError that begins with the path."""
    with _naming(path):
        _check_is_file(path)
        with Path(path).open("rb") as file:
            header, tensors = unpack(file)
        return _model_from(header, tensors)


def _tensors_of(ensemble: Ensemble) -> Tensors:
    tensors: dict[str, Any] = {name: getattr(ensemble, name) for name in ("start", "centres", "factors", "heads")}
    for name in ("dense", "sparse"):
        scale: ColumnScale | None = getattr(ensemble.scaling, name)
        if scale is not None:
            tensors |= {f"{name}.{part}": array for part, array in vars(scale).items() if array is not None}
    if ensemble.scaling.shared is not None:
        tensors["scaling.factor"] = ensemble.scaling.shared.factor
    if ensemble.linear is not None:
        tensors["linear.weights"] = ensemble.linear.weights
    return {name: np.asarray(array) for name, array in tensors.items()}


def _model_from(header: Mapping[str, Any], tensors: Tensors) -> tuple[Ensemble, Description]:
    """The model, once header and tensors are found to fit each other."""
    family, scaling = Family(**header["family"]), header["scaling"]
    sizes = _checked_sizes(_specs(header), tensors, family.n_outputs)
    _check_scaling(scaling, header["description"]["schema"], sizes)
    dense = ColumnScale(tensors["dense.centre"], tensors["dense.factor"]) if scaling["dense"] else None
    sparse = _sparse_scale(tensors) if scaling["sparse"] else None
    schema, linear = header["description"]["schema"], header["linear"]
    columns = schema["n_columns"] if schema["kind"] == "array" else None
    shared = _bucket_scale(_buckets(scaling["buckets"], columns), tensors)
    weights_in = _buckets(linear["buckets"], columns) if linear else None
    ensemble = Ensemble(
        family,
        Scaling(scaling["name"], dense, sparse, shared, tuple(scaling["steps"])),
        _objective(header["objective"], sizes["C"]),
        tensors["start"],
        tensors["centres"],
        tensors["factors"],
        tensors["heads"],
        _linear(linear, weights_in, tensors, sizes.get("m", 0)),
    )
    return ensemble, _description(header["description"], tensors, sizes["C"])


def _specs(header: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """dtype and shape of each tensor that the header speaks of; a letter is the same number wherever it stands."""
    specs = {
        "start": ("float64", "C"),
        "heads": ("float32", "TKC"),
        "centres": ("float32", "TK"),
        "factors": ("float32", "TK"),
    }
    if header["scaling"]["dense"]:
        specs |= {"dense.centre": ("float64", "m"), "dense.factor": ("float64", "m")}
    if header["scaling"]["sparse"]:
        specs |= {"sparse.centre": ("float64", "s"), "sparse.factor": ("float64", "s"), "sparse.ids": ("integers", "s")}
    if header["scaling"]["buckets"]:
        specs |= {"scaling.factor": ("float32", "b")}
    if header["linear"]:
        specs |= {"linear.weights": ("float32", "wC")}
    if header["description"]["classes"] == "tensor":
        specs |= {"classes": ("numbers", "c")}
    return specs


def _checked_sizes(specs: Mapping[str, tuple[str, str]], tensors: Tensors, n_outputs: int) -> dict[str, int]:
    """What the letters stand for, once the tensors are those of the specs and hold neither NaN nor infinity."""
    missing, extra = sorted(specs.keys() - tensors.keys()), sorted(tensors.keys() - specs.keys())
    if missing or extra:
        raise ValueError(f"tensors do not fit the header: missing {missing}, not expected {brief(extra)}")
    sizes = {"K": n_outputs}
    for name, (dtype, shape) in specs.items():
        array = tensors[name]
        sizes = {**dict(zip(shape, array.shape, strict=False)), **sizes}
        if not _is_of(dtype, array.dtype) or array.shape != tuple(sizes.get(letter) for letter in shape):
            wanted = ", ".join(f"{letter}={sizes[letter]}" if letter in sizes else letter for letter in shape)
            raise ValueError(f"{name} must be {dtype} of shape ({wanted}), got {array.dtype.name} of {array.shape}")
        if dtype.startswith("float") and not np.isfinite(array).all():
            raise ValueError(f"{name} has NaN or infinite values")
    if sizes["C"] == 0:
        raise ValueError("start must have at least one score, got none")
    return sizes


def _is_of(wanted: str, dtype: np.dtype[Any]) -> bool:
    kinds = {"integers": "iu", "numbers": "biuf"}.get(wanted)
    # Never converted: another dtype would predict other bits.
    return dtype.name == wanted if kinds is None else dtype.kind in kinds and dtype.itemsize <= 8


def _check_scaling(scaling: Mapping[str, Any], schema: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Kernels trust the number of dense columns: it is the schema's."""
    if schema["n_columns"] is not None and scaling["dense"]:
        columns = schema["n_columns"] - len(schema["categorical"])
        if sizes["m"] != columns:
            raise ValueError(f"dense.centre must have a number for each of {columns} columns, got {sizes['m']}")
    if bool({"idf", "max_abs"} & set(scaling["steps"])) != (scaling["buckets"] is not None):
        raise ValueError(f"header.scaling.buckets must be there with 'idf' or 'max_abs', steps are {scaling['steps']}")
    asked = scaling_steps(scaling["name"])
    if asked is not None and scaling["steps"] and tuple(scaling["steps"]) != asked:
        raise ValueError(f"header.scaling.steps must be those of its name {scaling['name']!r}, got {scaling['steps']}")


def _sparse_scale(tensors: Tensors) -> ColumnScale:
    ids = tensors["sparse.ids"]
    if (ids[1:] <= ids[:-1]).any():  # they are looked up by bisection
        raise ValueError("sparse.ids must increase, each id once")
    return ColumnScale(tensors["sparse.centre"], tensors["sparse.factor"], ids)


def _buckets(stated: Mapping[str, Any] | None, columns: int | None) -> Buckets | None:
    """Kernels look places up without a check: columns must all have one, and hashes none beyond."""
    if stated is None:
        return None
    buckets = Buckets(**stated)
    if buckets.hashed and buckets.n != 2**buckets.bits:
        raise ValueError(f"hashed buckets must be a power of 2 in number, got {buckets.n}")
    if buckets.hashed and not LEAST_BITS <= buckets.bits <= MOST_BITS:
        raise ValueError(f"hashed buckets must be 2^{LEAST_BITS} to 2^{MOST_BITS}, got {buckets.n}")
    if not buckets.hashed and buckets.n != columns:
        raise ValueError(f"buckets that are columns must be as many as the schema's ({columns}), got {buckets.n}")
    return buckets


def _bucket_scale(buckets: Buckets | None, tensors: Tensors) -> BucketScale | None:
    if buckets is None:
        return None
    factor = tensors["scaling.factor"]
    if len(factor) != buckets.n:
        raise ValueError(f"scaling.factor must have one number for each of {buckets.n} buckets, got {len(factor)}")
    return BucketScale(buckets, factor)


def _linear(
    stated: Mapping[str, Any] | None, buckets: Buckets | None, tensors: Tensors, n_dense: int
) -> LinearStart | None:
    if stated is None:
        return None
    weights, wanted = tensors["linear.weights"], n_dense + (0 if buckets is None else buckets.n)
    if len(weights) != wanted:
        raise ValueError(
            f"linear.weights must have {wanted} rows, one for each dense column and bucket, got {len(weights)}"
        )
    return LinearStart(buckets, weights, stated["l2"])


def _objective(fields: Mapping[str, Any], n_scores: int) -> Objective:
    name, parameters = fields["name"], fields["parameters"]
    stated = parameters.get("n_classes", parameters.get("outputs", n_scores))
    if stated != n_scores:
        raise ValueError(f"header.objective is {name} with {stated} scores a row, start has {n_scores}")
    return objective_from(name, parameters)


def _description(fields: Mapping[str, Any], tensors: Tensors, n_scores: int) -> Description:
    classes = classes_from(fields["classes"], tensors.get("classes"))
    # One score tells two classes apart; several are one for each class.
    found, wanted = 0 if classes is None else len(classes), max(n_scores, 2)
    if fields["task"] == "classification" and found != wanted:
        raise ValueError(f"header.description.classes must name {wanted} classes, one score each, got {found}")
    return Description(**{**fields, "schema": Schema(**fields["schema"]), "classes": classes})


def _check_is_file(path: PathLike) -> None:
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: there is no such model file")
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a model file")
    if not Path(path).is_file():  # opening a pipe would wait for its writer
        raise ValueError("not a regular file")


@contextmanager
def _naming(path: PathLike, doing: str = "") -> Iterator[None]:
    """Begin the message of every ValueError with the path."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {doing}{error}") from error

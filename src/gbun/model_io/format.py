"""A model as one file: its arrays as tensors, all else in a JSON header, and a digest over both.

The format is documented in docs/model_format.md. Reading trusts nothing: a file that is not exactly what
`write_model` could have written gives a ValueError that says where, and nothing in a file is ever executed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gbun.data.features import Schema
from gbun.data.scaling import ColumnScale, Scaling
from gbun.description import Description
from gbun.ensemble import Ensemble
from gbun.model_io.atomic import write_atomically
from gbun.model_io.checks import brief
from gbun.model_io.classes import classes_from, stored_classes
from gbun.model_io.container import Tensors, pack, unpack
from gbun.model_io.header import checked, header_of
from gbun.networks import Family
from gbun.objectives import Objective, objective_from

PathLike = str | os.PathLike[str]
PARTS = ("start", "centres", "factors", "heads")


def write_model(path: PathLike, ensemble: Ensemble, description: Description) -> None:
    """Write the model to `path`; an existing file is replaced once the new one is complete, or not at all.

    >>> import tempfile
    >>> from gbun.data.features import Schema
    >>> from gbun.networks import Family
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
    tensors: dict[str, Any] = {name: getattr(ensemble, name) for name in PARTS}
    for name in ("dense", "sparse"):
        scale: ColumnScale | None = getattr(ensemble.scaling, name)
        if scale is not None:
            tensors |= {f"{name}.{part}": array for part, array in vars(scale).items() if array is not None}
    return {name: np.asarray(array) for name, array in tensors.items()}


def _model_from(header: Mapping[str, Any], tensors: Tensors) -> tuple[Ensemble, Description]:
    """The model, once header and tensors are found to fit each other."""
    _check_names(header, tensors)
    family, scaling = Family(**header["family"]), header["scaling"]
    C, T, K = _length(tensors, "start"), _length(tensors, "heads"), family.n_outputs
    if C == 0:
        raise ValueError("start must have at least one score, got none")
    ensemble = Ensemble(
        family,
        Scaling(
            scaling["name"],
            _scale(tensors, "dense") if scaling["dense"] else None,
            _scale(tensors, "sparse") if scaling["sparse"] else None,
        ),
        _objective(header["objective"], C),
        _floats(tensors, "start", "float64", (C,)),
        _floats(tensors, "centres", "float32", (T, K)),
        _floats(tensors, "factors", "float32", (T, K)),
        _floats(tensors, "heads", "float32", (T, K, C)),
    )
    return ensemble, _description(header["description"], tensors, C)


def _check_names(header: Mapping[str, Any], tensors: Tensors) -> None:
    """The tensors must be those that the header speaks of."""
    wanted = set(PARTS)
    if header["scaling"]["dense"]:
        wanted |= {"dense.centre", "dense.factor"}
    if header["scaling"]["sparse"]:
        wanted |= {"sparse.ids", "sparse.centre", "sparse.factor"}
    if header["description"]["classes"] == "tensor":
        wanted |= {"classes"}
    missing, extra = sorted(wanted - set(tensors)), sorted(set(tensors) - wanted)
    if missing or extra:
        raise ValueError(f"tensors do not fit the header: missing {missing}, not expected {brief(extra)}")


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


def _scale(tensors: Tensors, name: str) -> ColumnScale:
    length = _length(tensors, f"{name}.centre")
    centre = _floats(tensors, f"{name}.centre", "float64", (length,))
    factor = _floats(tensors, f"{name}.factor", "float64", (length,))
    if name == "dense":
        return ColumnScale(centre, factor)
    ids = tensors[f"{name}.ids"]
    if ids.dtype.kind not in "iu" or ids.shape != (length,):
        raise ValueError(f"{name}.ids must be {length} integers, got {ids.dtype.name} of shape {ids.shape}")
    if (ids[1:] <= ids[:-1]).any():  # they are looked up by bisection
        raise ValueError(f"{name}.ids must increase, each id once")
    return ColumnScale(centre, factor, ids)


def _length(tensors: Tensors, name: str) -> int:
    if tensors[name].ndim == 0:
        raise ValueError(f"{name} must be an array, got a single number")
    return len(tensors[name])


def _floats(tensors: Tensors, name: str, dtype: str, shape: tuple[int, ...]) -> Any:
    """The tensor of this name, of exactly this dtype and shape, with no NaN or infinity in it."""
    array = tensors[name]
    # Never converted: another dtype would predict other bits.
    if array.dtype.name != dtype or array.shape != shape:
        raise ValueError(f"{name} must be {dtype} of shape {shape}, got {array.dtype.name} of shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has NaN or infinite values")
    return array


def _check_is_file(path: PathLike) -> None:
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such model file") from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder, not a model file")
    if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer
        raise ValueError("not a regular file")


@contextmanager
def _naming(path: PathLike, doing: str = "") -> Iterator[None]:
    """Begin the message of every ValueError with the path."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {doing}{error}") from error

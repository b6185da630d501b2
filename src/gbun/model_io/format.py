"""A model as one file: its arrays as tensors, all else in a JSON header, and a digest over both.

The format is documented in docs/model_format.md. Reading trusts nothing: a file that is not exactly what
`write_model` could have written gives a ValueError that says where, and nothing in a file is ever executed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.data.scaling import ColumnScale, Scaling
from gbun.description import Description
from gbun.ensemble import Ensemble
from gbun.model_io.atomic import writable_target, write_atomically
from gbun.model_io.checks import brief, strict_json
from gbun.model_io.classes import classes_from, stored_classes
from gbun.model_io.container import (
    CODES,
    Tensors,
    as_bytes,
    container_chunks,
    read_directory,
    read_metadata,
    read_tensors,
)
from gbun.model_io.header import (
    checked,
    description_from,
    family_from,
    header_of,
    header_text,
    objective_of,
)

FORMAT = "gbun"
VERSION = 1
METADATA_KEYS = ("format", "version", "header", "digest")


def write_model(path: str | os.PathLike[str], ensemble: Ensemble, description: Description) -> None:
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
    writable_target(path)
    with _naming(path, "cannot be written: "):
        stated, labels = stored_classes(description.classes)
        tensors = {**_tensors_of(ensemble), **labels}
        header = checked(header_of(ensemble, description, stated))
        _model_from(header, tensors)  # what could not be read back is not written
        text = header_text(header)
        metadata = {
            "format": FORMAT,
            "version": str(VERSION),
            "header": text,
            "digest": digest_of(text, tensors),
        }
        write_atomically(path, container_chunks(metadata, tensors))


def read_model(path: str | os.PathLike[str]) -> tuple[Ensemble, Description]:
    """The model that `write_model` wrote; any other file gives a ValueError that begins with the path."""
    with _naming(path):
        _check_is_file(path)
        with Path(path).open("rb") as file:
            text, tensors = _read_undamaged(file)
        return _model_from(checked(strict_json(text, "header")), tensors)


def digest_of(header: str, tensors: Tensors) -> str:
    """SHA-256 of the header and, in order of their names, of each tensor's name, dtype, shape and bytes."""
    encoded = header.encode("utf-8", "surrogatepass")
    sha = hashlib.sha256(f"{FORMAT} {VERSION} {len(encoded)}\n".encode() + encoded)
    for name, array in sorted(tensors.items()):
        shape = ",".join(map(str, array.shape))
        sha.update(f"\n{name} {CODES[array.dtype.name]} [{shape}]\n".encode("utf-8", "surrogatepass"))
        sha.update(as_bytes(array))
    return sha.hexdigest()


def _read_undamaged(file: BufferedReader) -> tuple[str, dict[str, NDArray[Any]]]:
    """The header's text and all tensors, as they were written: the digest has been found right."""
    directory, size = read_directory(file)
    metadata = read_metadata(directory)
    _check_identity(metadata)
    tensors = read_tensors(file, directory, size)
    if digest_of(metadata["header"], tensors) != metadata["digest"]:
        raise ValueError("altered or damaged file: its digest does not fit its content; get a fresh copy")
    return metadata["header"], tensors


def _check_identity(metadata: Mapping[str, str]) -> None:
    """Raise unless this is a gbun model of a version known here."""
    if metadata.get("format") != FORMAT:
        raise ValueError(f"no gbun model: its format is {brief(metadata.get('format'))}, expected {FORMAT!r}")
    version = metadata.get("version", "")
    if version != str(VERSION):
        if version.isascii() and version.isdecimal() and len(version) < 10 and int(version) > VERSION:
            raise ValueError(
                f"the file was written by a newer gbun: its format version is {version}, "
                f"this gbun reads {VERSION}; upgrade gbun"
            )
        raise ValueError(f"the file has the unknown format version {brief(version)}, this gbun reads {VERSION}")
    if sorted(metadata) != sorted(METADATA_KEYS):
        raise ValueError(f"__metadata__ must have the keys {', '.join(METADATA_KEYS)}, got {brief(sorted(metadata))}")


def _tensors_of(ensemble: Ensemble) -> dict[str, NDArray[Any]]:
    tensors: dict[str, Any] = {
        "start": ensemble.start,
        "centres": ensemble.centres,
        "factors": ensemble.factors,
        "heads": ensemble.heads,
    }
    for name in ("dense", "sparse"):
        scale: ColumnScale | None = getattr(ensemble.scaling, name)
        if scale is None:
            continue
        tensors |= {f"{name}.centre": scale.centre, f"{name}.factor": scale.factor}
        if scale.ids is not None:
            tensors[f"{name}.ids"] = scale.ids
    return {name: np.asarray(array) for name, array in tensors.items()}


def _model_from(header: Mapping[str, Any], tensors: Tensors) -> tuple[Ensemble, Description]:
    """The model, once header and tensors are found to fit each other."""
    scaled = header["scaling"]
    _check_names(header, tensors)
    family = family_from(header)
    C, T, K = _length(tensors, "start"), _length(tensors, "heads"), family.n_outputs
    if C == 0:
        raise ValueError("start must have at least one score, got none")
    ensemble = Ensemble(
        family,
        Scaling(
            scaled["name"],
            _scale(tensors, "dense") if scaled["dense"] else None,
            _scale(tensors, "sparse") if scaled["sparse"] else None,
        ),
        objective_of(header, C),
        _floats(tensors, "start", "float64", (C,)),
        _floats(tensors, "centres", "float32", (T, K)),
        _floats(tensors, "factors", "float32", (T, K)),
        _floats(tensors, "heads", "float32", (T, K, C)),
    )
    classes = classes_from(header["description"]["classes"], tensors.get("classes"))
    return ensemble, description_from(header, classes, C)


def _check_names(header: Mapping[str, Any], tensors: Tensors) -> None:
    """The tensors must be those that the header speaks of."""
    wanted = {"start", "centres", "factors", "heads"}
    if header["scaling"]["dense"]:
        wanted |= {"dense.centre", "dense.factor"}
    if header["scaling"]["sparse"]:
        wanted |= {"sparse.ids", "sparse.centre", "sparse.factor"}
    if header["description"]["classes"] == "tensor":
        wanted |= {"classes"}
    missing, extra = sorted(wanted - set(tensors)), sorted(set(tensors) - wanted)
    if missing or extra:
        raise ValueError(f"tensors do not fit the header: missing {missing}, not expected {brief(extra)}")


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


def _check_is_file(path: str | os.PathLike[str]) -> None:
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such model file") from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder, not a model file")
    if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer
        raise ValueError("not a regular file")


@contextmanager
def _naming(path: str | os.PathLike[str], doing: str = "") -> Iterator[None]:
    """Begin the message of every ValueError with the path."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {doing}{error}") from error

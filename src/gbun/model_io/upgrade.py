"""Model files of versions 1 and 2 in the form of version 3.

Version 2 added the linear start and the steps of sparse scaling. Version 3 has a learner of any kind where versions 1
and 2 have a family of networks. Keys and tensors that a file's version does not have are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbun.checks import anything, check_names, record
from gbun.learners.base import Arrays

KEYS = ["version", "family", "objective", "scaling", "description"]


def upgrade_header(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a header of version 1 or 2 with the keys of version 3; values are left for `check_header`."""
    version = values["version"]
    keys = KEYS if version == 1 else [*KEYS, "linear"]
    header = record(dict.fromkeys(keys, anything))(f"header of version {version}", values)
    if version == 1:
        keys = ["name", "dense", "sparse"]
        scaling = record(dict.fromkeys(keys, anything))("header.scaling of version 1", header["scaling"])
        steps = ["standard"] if scaling["name"] == "standard" and scaling["sparse"] else []
        header |= {"linear": None, "scaling": {**scaling, "steps": steps, "buckets": None}}
    learner = {"kind": "network", "parameters": header.pop("family")}
    return {**header, "learner": learner, "n_rounds": 0}  # `upgrade_tensors` finds the number of rounds


def upgrade_tensors(header: dict[str, Any], tensors: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return header and tensors of any version as version 3 has them.

    centres, factors (T x K) -> learner.centres, learner.factors;   heads (T x K x C) -> heads (T K x C)
    """
    if header["version"] == 3:
        return header, tensors
    names = ("centres", "factors", "heads")
    check_names([name for name in tensors if name in names or name.startswith("learner.")], names)
    centres, factors, heads = (tensors[name] for name in names)
    if heads.ndim != 3 or heads.shape[:2] != centres.shape:
        raise ValueError(f"heads must have the shape of centres {centres.shape} and of scores, got {heads.shape}")
    T, K, C = heads.shape
    upgraded = {name: array for name, array in tensors.items() if name not in names}
    upgraded |= {"learner.centres": centres, "learner.factors": factors, "heads": heads.reshape(T * K, C)}
    return {**header, "n_rounds": T}, upgraded

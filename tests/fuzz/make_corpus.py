"""Write the corpus: small valid inputs of each target. What was found later lies beside them and is left as it is."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from gbun.collectives import store
from gbun.collectives.wire import encode
from tests.fuzz.targets import HONEST, make_stream

SVM = b"1 1:0.5 7:-1e-3 # comment\n0 qid:3 2:nan 9007199254740993:0.1\n-1.25\n\n2 3:1.17549435e-38 3:4\r\n"
CSV = b'a,b,y,w\n1,x,0,1\n2.5,"y, ""z""",1,0.5\n,NA,0,2\n-1e300,x,1,1\n'
FRAME = pd.DataFrame(
    {"a": [1.0, None, 3.0], "b": ["x", None, "z"], "c": pd.Categorical(["u", "v", "u"]), "y": [0, 1, 0]}
)
FORM = {"rows": 2, "kind": "frame", "columns": 1, "names": ["a"], "categorical": [True], "missing": [False]}
REPORT = {"round": 3, "n_rounds": 10, "evaluations": {"valid": {"rmse": 0.5}}, "seconds": 1.5, "trial": False}


def save(function: Any, *arguments: Any, **options: Any) -> bytes:
    content = io.BytesIO()
    function(content, *arguments, **options)
    return content.getvalue()


def dumps(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def inputs() -> Iterator[tuple[str, str, bytes]]:
    """Yield target, name and content."""
    for target, text in (("svmlight", SVM), ("csv", CSV)):
        yield target, "plain", text
        yield target, "gz", gzip.compress(text, mtime=0)
        yield target, "bz2", bz2.compress(text)
        yield target, "xz", lzma.compress(text, preset=0)
    yield "svmlight", "large_ids", b"0 9223372036854775806:1\n1 0:1 0:1 2147483648:3\n"
    yield "csv", "marked_crlf", b"\xef\xbb\xbfa,y\r\n1,0\r\n2,1\r\n"
    yield "joined", "plain", b"a,b,y\n3,z,1\n"
    for compression in ("snappy", "none"):
        yield "parquet", compression, save(lambda file, **o: FRAME.to_parquet(file, **o), compression=compression)
    yield "parquet", "groups", save(lambda file: FRAME[["a", "y"]].to_parquet(file, row_group_size=1))
    X = np.array([[0.0, 1.5], [2.0, 0.0], [0.0, 3.0]])
    y = np.arange(3)
    yield "npz", "dense", save(np.savez, X=X, y=y, weight=np.ones(3))
    yield "npz", "dense_compressed", save(np.savez_compressed, X=np.asfortranarray(X), y=np.array(["a", "b", "c"]))
    csr = sp.csr_array(X)
    yield "npz", "parts", save(np.savez, data=csr.data, indices=csr.indices, indptr=csr.indptr, shape=csr.shape, y=y)
    for form in ("csr", "csc", "coo", "bsr", "dia"):
        yield "npz", form, save(sp.save_npz, csr.asformat(form), compressed=form == "csr")
    indices, blocks = np.zeros(0, np.int32), {"format": b"bsr", "data": np.zeros((0, 0, 2)), "shape": (0, 2)}
    yield "npz", "blocks_without_rows", save(np.savez, **blocks, indices=indices, indptr=np.zeros(1, np.int32))
    for name, labels in (("numbers", y), ("words", np.array(["a", "b", "c"]))):
        yield "labels", name, save(np.save, labels)
    yield "handshake_server", "honest", make_stream("fuzz", "1", HONEST)
    yield "handshake_client", "honest", make_stream("fuzz", "1", HONEST, from_server=True)
    calls = [["set", "key", "value"], ["compare_set", "key", "", "x"], ["check", ["key"]], ["multi_get", ["key", "no"]]]
    yield "store_server", "calls", make_stream(store.PURPOSE, "", [b"", *dumps(*calls)])
    answers = dumps(None, True, "value", ["value"], ["value", None])
    yield "store_client", "answers", make_stream(store.PURPOSE, "", answers, from_server=True)
    wire = [(290, "int16"), (8, "float32"), (2, "float64")]
    counts = [np.array([n]).tobytes() for n in (2, 16)]
    sums = [
        encode(np.linspace(-1, 1, 300), wire).tobytes(),
        np.ones(3).tobytes(),
        counts[0],
        b"ab",
        counts[1],
        bytes(16),
    ]
    yield "sums", "sums", make_stream("sums", "", sums)
    yield "progress", "reports", b"\n".join(dumps(REPORT, {**REPORT, "trial": True}))
    yield "failure", "record", json.dumps([1, "ValueError: bad data", False]).encode()
    yield "address", "address", json.dumps(["127.0.0.1", 4711]).encode()
    for name, message in (("form", FORM), ("result", {"result": None}), ("error", {"error": "bad"})):
        yield "agreement", name, json.dumps(message).encode()


if __name__ == "__main__":
    for target, name, content in inputs():
        path = Path(__file__).with_name("corpus") / target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

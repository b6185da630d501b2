"""svmlight: exact agreement with plain Python, and an error message for everything else."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from gbun.data import svmlight
from gbun.data.svmlight import read_svmlight
from tests.model_io.test_hostile import peak_memory

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
DECOMPRESS = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
LARGEST_ID = 2**63 - 2
GRAMMAR = st.text("0123456789:.-+eE# \n\r\tqidnaf,_", max_size=60).map(str.encode)
LINES = st.lists(
    st.sampled_from(
        ["1", "-1 ", "0.5", " 3:1", " 1:2", " 7:1e-3", " 9:nan", " 2:1e400", " 1:inf", " qid:3", "#:", "\n"]
    ),
    max_size=12,
).map(lambda parts: "".join(parts).encode())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all examples: Hypothesis refuses fixtures of function scope."""
    return tmp_path_factory.mktemp("svmlight")


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_svmlight(path, X, y, **options):
    """Write rows with scikit-learn, compressed as the ending says."""
    plain = io.BytesIO()
    dump_svmlight_file(scipy.sparse.csr_matrix(X, dtype=np.float64), y, plain, **options)
    return write(path, COMPRESS.get(path.suffix, bytes)(plain.getvalue()))


def csr_parts(X):
    """The arrays of a sparse matrix, as an .npz holds them."""
    return {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}


def save_rows(path, X, y):
    """Write rows in the format of the ending: a frame has columns a, b, ... and y; "sparse.npz" is the parts of CSR."""
    frame = pd.DataFrame(X, columns=list("abcdefghijklmnopqrstuvwxyz")[: X.shape[1]]).assign(y=y)
    ending = path.suffix
    if ending == ".svm":
        write_svmlight(path, X, y)
    elif ending == ".parquet":
        frame.to_parquet(path, row_group_size=max(4, len(frame) // 20))
    elif ending == ".npz":
        is_sparse = path.name.endswith("sparse.npz")
        np.savez(path, y=y, **(csr_parts(scipy.sparse.csr_array(X)) if is_sparse else {"X": X}))
    else:
        frame.to_csv(path, index=False, sep="\t" if ending == ".tsv" else ",")


def random_matrix(n=50, m=200, seed=0):
    rng = np.random.default_rng(seed)
    X = scipy.sparse.csr_array(scipy.sparse.random(n, m, 0.1, "csr", np.float32, rng))
    return X, np.round(rng.normal(size=n), 3)  # scikit-learn writes 16 digits


def assert_same(X, y, X2, y2):
    np.testing.assert_array_equal(y, y2)
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(X, name), getattr(X2, name), err_msg=name)


# Reading


def plain_number(text: bytes, dtype):
    with np.errstate(over="ignore"):
        number = dtype(float(text))
    if np.isinf(number):
        raise ValueError
    return number


def plain_read(content: bytes):
    """A simple reader with which the library must agree on every file."""
    labels, bounds, ids, values = [], [0], [], []
    for line in content.split(b"\n"):
        label, *tokens = line.partition(b"#")[0].split() or [b""]
        if not label:
            continue
        labels.append(plain_number(label, np.float64))
        for token in tokens:
            if token.startswith(b"qid:"):
                continue
            identity, colon, value = token.partition(b":")
            if not (colon and identity.isdigit() and int(identity) <= LARGEST_ID):
                raise ValueError
            ids.append(int(identity))
            values.append(plain_number(value, np.float32))
        bounds.append(len(ids))
    if not labels:
        raise ValueError
    return np.array(labels), bounds, ids, np.array(values, np.float32)


@pytest.mark.slow
@given(content=GRAMMAR | LINES | st.binary(max_size=80))
@settings(max_examples=300, deadline=None)
def test_agrees_with_the_plain_reader(folder, content):
    path = write(folder / "grammar.svm", content)
    try:
        expected = plain_read(content)
    except ValueError:
        with pytest.raises(ValueError, match=r"grammar\.svm"):
            read_svmlight(path)
        return
    X, y = read_svmlight(path)
    for got, want in zip((y, X.indptr, X.indices, X.data), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.slow
@given(text=st.from_regex(r"\A[+-]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][+-]?[0-9]{1,3})?\Z"))
@settings(max_examples=150, deadline=None)
def test_numbers_are_rounded_as_python_rounds_them(folder, text):
    with np.errstate(over="ignore"):
        label, value = float(text), np.float32(float(text))
    path = write(folder / "number.svm", f"0 1:{text}\n{text}\n")
    if np.isinf(value):
        with pytest.raises(ValueError, match=r"number\.svm, line 1: .*finite float32"):
            read_svmlight(path)
    else:
        X, y = read_svmlight(path)
        assert (X.data[0], y[1]) == (value, label)


def test_float32_midpoints_need_more_than_float64(tmp_path):
    """Next to the midpoint of two float32, digits that float64 arithmetic loses decide the rounding."""
    one, next_one = 1.0, float(np.nextafter(np.float32(1), np.float32(2)))
    middle = (one + next_one) / 2
    below, above = np.nextafter(middle, 0), np.nextafter(middle, 2)
    texts = [f"{middle:.30f}", f"{middle:.30f}1", f"{below:.60f}", f"{above:.60f}"]
    pairs = " ".join(f"{i}:{text}" for i, text in enumerate(texts))
    X, _ = read_svmlight(write(tmp_path / "a.svm", f"0 {pairs}"))
    np.testing.assert_array_equal(X.data, [np.float32(float(text)) for text in texts])


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("zero_based", [True, False])
def test_agrees_with_sklearn(tmp_path, ending, zero_based):
    path = write_svmlight(tmp_path / f"a.svm{ending}", *random_matrix(), zero_based=zero_based, comment="made here")
    plain = io.BytesIO(DECOMPRESS.get(ending, bytes)(path.read_bytes()))
    theirs, labels = load_svmlight_file(plain, dtype=np.float32, zero_based=True)
    ours, y2 = read_svmlight(path)
    assert isinstance(ours, scipy.sparse.csr_array)
    assert (ours.dtype, ours.indices.dtype, y2.dtype) == (np.float32, np.int32, np.float64)
    assert_same(ours, y2, theirs, labels)


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_the_block_size_changes_nothing(tmp_path, monkeypatch, block):
    X, y = random_matrix()
    write_svmlight(tmp_path / "a.svm", X, y)
    monkeypatch.setattr(svmlight, "_BLOCK", block)
    assert_same(*read_svmlight(tmp_path / "a.svm"), X, y)
    write(tmp_path / "b.svm", "1 1:1\n\n# note\n1 2:x\n")
    with pytest.raises(ValueError, match="line 4: got 'x'"):
        read_svmlight(tmp_path / "b.svm")


def test_accepted_lines(tmp_path):
    text = "# head 1:1\r\n\r\n+1 qid:7 5:1 2:.5 5:2. # 9:9\r\n  \t\n-1#\n2\t3:-1E+2\t3:1_0"
    X, y = read_svmlight(write(tmp_path / "a.svm", text))
    np.testing.assert_array_equal(y, [1, -1, 2])
    np.testing.assert_array_equal(X.toarray(), [[0, 0, 0.5, 0, 0, 3], [0] * 6, [0, 0, 0, -90, 0, 0]])


@pytest.mark.parametrize("largest", [0, 2**31 - 2, 2**31 - 1, 2**31, 2**53 + 1, LARGEST_ID])
def test_ids_are_64_bit_and_need_no_memory(tmp_path, largest):
    path = write(tmp_path / "a.svm", f"1 0:1\n2 {largest}:2\n")
    X, _ = read_svmlight(path)  # compiled before memory is counted
    assert X.shape == (2, largest + 1)
    assert X.indices.tolist() == [0, largest]
    assert X.indices.dtype == (np.int32 if largest + 1 < 2**31 else np.int64)
    # The stream's own buffers and one block; a column of bytes for 2**31 ids would be 2 GB.
    assert peak_memory(lambda: read_svmlight(path)) < 40e6


# Errors


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cat 1:1", "got 'cat', expected a number, the label"),
        ("1:1 2:2", "got '1:1', expected a number, the label"),
        ("1,3,7 1:1", "got '1,3,7', expected one label: multi-label svmlight is not supported"),
        ("1 5", "got '5', expected 'id:value'"),
        ("1 :5", "got ':5', expected decimal digits before the colon"),
        ("1 -3:5", "got '-3:5', expected decimal digits before the colon"),
        ("1 word:5", "got 'word:5', expected decimal digits before the colon"),
        ("1 9223372036854775807:1", "got '9223372036854775807:1', expected an id up to 9223372036854775806"),
        (f"1 {'9' * 5000}:1", f"got '{'9' * 40}...', expected an id up to"),
        ("1 3:", "got '', expected a number after 'id:'"),
        ("1 3:4:5", "got '4:5', expected a number after 'id:'"),
        ("1 3:1e", "got '1e', expected a number after 'id:'"),
        ("1 3:0x1", "got '0x1', expected a number after 'id:'"),
        ("1 3:inf", "got 'inf', expected a finite float32 number"),
        ("1 3:-Infinity", "got '-Infinity', expected a finite float32 number"),
        ("1 3:1e39", "got '1e39', expected a finite float32 number"),
        ("1e999 3:1", "got '1e999', expected a finite float64 number"),
        ("1 3:\xff", "got 'ÿ', expected a number after 'id:'"),
    ],
)
def test_malformed_lines_are_named(tmp_path, line, message):
    path = write(tmp_path / "bad.svm", f"1 1:1\n{line}\n1 x\n")
    with pytest.raises(ValueError) as caught:
        read_svmlight(path)
    assert str(caught.value).startswith(f"{path}, line 2: {message}")

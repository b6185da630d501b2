"""Tables from files of every format, and an error message for everything else."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from gbun.data.files import read_table
from tests.data.test_svmlight import COMPRESS, assert_same, csr_parts, random_matrix, write, write_svmlight


@pytest.mark.parametrize("name", ["a.svm", "a.csv", "a.parquet", "a.npz"])
def test_missing_empty_and_folder(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=f"{name}: no such file"):
        read_table(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name}: got an empty file"):
        read_table(write(tmp_path / name, b""))
    (tmp_path / f"folder_{name}").mkdir()
    with pytest.raises(ValueError, match="got a folder, expected a file"):
        read_table(tmp_path / f"folder_{name}")


@pytest.mark.parametrize("ending", list(COMPRESS))
@pytest.mark.parametrize(("name", "content"), [("a.svm", b"1 1:1\n" * 99), ("a.csv", b"a,b\n" + b"1,2\n" * 99)])
def test_compression_is_detected_by_content(tmp_path, ending, name, content):
    packed = COMPRESS[ending](content)
    assert read_table(write(tmp_path / name, packed)).X.shape == (99, 2)
    for cut in (len(packed) // 2, len(packed) - 3):
        with pytest.raises(ValueError, match=rf"a\.\w+\{ending}: got a broken or truncated \{ending} file"):
            read_table(write(tmp_path / f"{name}{ending}", packed[:cut]))
    with pytest.raises(ValueError, match=rf"got uncompressed content .* expected \{ending} as the ending says"):
        read_table(write(tmp_path / f"{name}{ending}", content))
    other = ".gz" if ending != ".gz" else ".xz"
    with pytest.raises(ValueError, match=rf"got \{ending} content .* expected \{other}"):
        read_table(write(tmp_path / f"{name}{other}", packed))


# Tables


@pytest.mark.parametrize("name", ["a.svm", "a.svmlight", "a.LIBSVM", "a.txt", "a.b.svm.gz"])
def test_svmlight_tables(tmp_path, name):
    X, y = random_matrix()
    write_svmlight(tmp_path / name, X, y)
    table = read_table(tmp_path / name)
    assert_same(table.X, table.y, X, y)
    assert (table.weight, table.feature_names) == (None, None)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.TSV.gz", "a.csv.bz2", "a.csv.xz", "a.parquet"])
def test_frames(tmp_path, name):
    frame = pd.DataFrame({"size": [3, 1], "colour": ["red", None], "w": [1, 2], "kind": ["apple", "plum"]})
    if name.endswith("parquet"):
        frame.to_parquet(tmp_path / name)
    else:
        text = frame.to_csv(sep="\t" if "tsv" in name.lower() else ",", index=False).encode()
        write(tmp_path / name, COMPRESS.get(Path(name).suffix, bytes)(text))
    table = read_table(tmp_path / name, "kind", weight="w")
    assert table.feature_names == ("size", "colour")
    assert table.X["size"].tolist() == [3, 1]
    assert table.X["colour"].isna().tolist() == [False, True]
    assert table.y.tolist() == ["apple", "plum"]
    assert (table.weight.tolist(), table.weight.dtype) == ([1, 2], np.float64)
    bare = read_table(tmp_path / name)
    assert (bare.y, bare.weight, bare.X.shape) == (None, None, (2, 4))


def test_reading_a_csv_needs_no_compiler(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n1,2\n")
    program = "import sys, gbun.data.files as f; f.read_table(sys.argv[1]); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, path], check=True, capture_output=True)
    assert done.stdout.split() == [b"False"]


def test_npz_dense_and_sparse(tmp_path):
    X, y = random_matrix()
    path, weight = tmp_path / "a.npz", np.arange(50)
    parts = csr_parts(X)
    np.savez_compressed(path, X=X.toarray(), y=y, weight=weight)
    dense = read_table(path)
    np.savez(path, **parts, y=y.astype(str), weight=weight)
    sparse = read_table(path)
    np.testing.assert_array_equal(dense.X, sparse.X.toarray())
    np.testing.assert_array_equal(dense.weight, sparse.weight)
    np.testing.assert_array_equal(dense.y, sparse.y.astype(float))
    for rows in (parts, {"X": X.toarray()}):  # to predict, no labels are needed
        np.savez(path, **rows)
        assert (read_table(path).y, read_table(path).weight) == (None, None)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
def test_npz_of_scipy_with_labels_apart(tmp_path, form):
    X, y = random_matrix()
    scipy.sparse.save_npz(tmp_path / "a.npz", X.asformat(form))
    np.save(tmp_path / "y.npy", y)
    assert read_table(tmp_path / "a.npz").y is None
    table = read_table(tmp_path / "a.npz", labels=tmp_path / "y.npy")
    assert isinstance(table.X, scipy.sparse.csr_array)
    np.testing.assert_array_equal(table.X.toarray(), X.toarray())
    np.testing.assert_array_equal(table.y, y)


# Errors of tables


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", "a,b\n1,2\n", r"got content that begins with b'a,b.*expected a parquet file"),
        ("a.npz", "a,b\n1,2\n", r"got content that begins with b'a,b.*expected an \.npz archive"),
        ("a.svm", "a,b\n1,2\n", r"line 1: got 'a,b'.*name a CSV \.csv"),
        ("a.csv", b"PAR1\xff\xfe\x00PAR1", "got text that cannot be read .*expected UTF-8 rows"),
        ("a.csv", "a,b\n1,2\n1,2,3\n", "got text that cannot be read .*line 3, saw 3"),
        ("a.csv", "a,b\n1,2,3\n1,2,3\n", "got rows with more values than the 2 column names"),
        ("a.csv", "a,b,c\n1,2,3\n\n4,5\n", "line 4: got 2 values, expected 3, as many as there are column names"),
        ("a.tsv", "a\tb\n1\t2\n4\n", "line 3: got 1 value, expected 2"),
        ("a.csv", 'a,b\n"1\n2",3\n4\n', "line 4: got 1 value, expected 2"),
        ("a.csv.gz", gzip.compress(b"a,b\n1,2\n4\n", mtime=0), "line 3: got 1 value, expected 2"),
        ("a.csv", "\ufeffa,b,a,c,b\n1,2,3,4,5\n", "got several columns named 'a' and 'b', expected different names"),
        ("a.csv", "\n\n", "got text that cannot be read"),
        ("a.csv", "a,b\n", "got no rows"),
        ("a.svm", "# nothing\n\n", "got no rows"),
        ("a.svm.gz", gzip.compress(b"", mtime=0), "got no rows"),
        ("a.arff", "x", r"got the ending '\.arff', expected one of \.svm .* \.npz"),
        ("a.parquet.gz", "x", r"got the ending '\.parquet\.gz'"),
        ("a.gz", "x", r"got the ending '\.gz'"),
        ("a", "x", "got the ending ''"),
    ],
)
def test_content_errors(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_table(write(tmp_path / name, content))
    assert str(tmp_path / name) in str(caught.value)


def test_rows_with_empty_fields_are_whole(tmp_path):
    table = read_table(write(tmp_path / "a.csv", 'a,b,a.1\n1,,\n\n,"x, y",\n'))
    assert table.feature_names == ("a", "b", "a.1")
    assert table.X.shape == (2, 3)
    assert read_table(write(tmp_path / "b.csv", "a\n1\nNA\n\n2\n")).X.shape == (3, 1)


def test_a_short_row_of_a_share_is_found(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 9 + "3\n")
    assert len(read_table(path, share=(0, 2)).X) == 5
    with pytest.raises(ValueError, match=r"a.csv, line \d+ of the part of worker 1: got 1 value, expected 2"):
        read_table(path, share=(1, 2))


def test_column_errors(tmp_path):
    path = write(tmp_path / "a.csv", "Price,size,kind\n1,2,x\n")
    with pytest.raises(ValueError, match=r"target: got 'price', .*: 'Price', 'size', 'kind'; did you mean 'Price'\?"):
        read_table(path, "price")
    with pytest.raises(ValueError, match=r"weight: got 'sizes', .*did you mean 'size'\?"):
        read_table(path, weight="sizes")
    with pytest.raises(ValueError, match=r"target: got 'qqq', .*; name one of them"):
        read_table(path, "qqq")
    with pytest.raises(ValueError, match="weight: got 'size', which is the target too"):
        read_table(path, "size", weight="size")
    with pytest.raises(ValueError, match=r"weight='kind': got object values .* expected numbers"):
        read_table(path, "size", weight="kind")
    with pytest.raises(ValueError, match=r"got no column besides \['a'\]"):
        read_table(write(path, "a\n1\n"), "a")
    with pytest.raises(ValueError, match=r"'c19', \.\.\. \(30 in all\)"):
        read_table(write(path, ",".join(f"c{i}" for i in range(30)) + "\n"), "q")


@pytest.mark.parametrize("name", ["a.svm", "a.npz"])
@pytest.mark.parametrize("argument", ["target", "weight"])
def test_only_frames_have_named_columns(name, argument):
    with pytest.raises(ValueError, match=rf"{argument}: got 'c' for {name}, expected None.*leave {argument} out"):
        read_table(name, **{argument: "c"})


@pytest.mark.parametrize(("name", "package"), [("a.csv", "pandas"), ("a.parquet", "pyarrow")])
def test_a_missing_package_is_named_with_its_command(tmp_path, monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{name}: .*needs {package}.*pip install 'gbun\[frames\]'"):
        read_table(tmp_path / name)

"""Shares of files: together they are the file, and a worker reads little more than its own share."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.data import streams
from gbun.data.files import read_table
from gbun.data.svmlight import read_svmlight
from tests.data.test_svmlight import COMPRESS, GRAMMAR, LINES, csr_parts, save_rows, write
from tests.model_io.test_hostile import peak_memory

SIZES = (1, 2, 3, 7, 64)
sizes = st.sampled_from([2, 3, 7] * 5 + [64])
quick = settings(max_examples=60, deadline=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shares")


def shares(path, size, **arguments):
    return [read_table(path, **arguments, share=(rank, size)) for rank in range(size)]


def vectors(tables, name):
    parts = [getattr(table, name) for table in tables]
    return None if parts[0] is None else np.concatenate(parts)


def assert_whole(path, size, **arguments):
    """The shares of an .npz or svmlight file in order are the whole file."""
    whole, tables = read_table(path, **arguments), shares(path, size, **arguments)
    for name in ("y", "weight"):
        np.testing.assert_array_equal(vectors(tables, name), getattr(whole, name))
    assert {table.X.dtype for table in tables} == {whole.X.dtype}
    if not scipy.sparse.issparse(whole.X):
        np.testing.assert_array_equal(np.concatenate([table.X for table in tables]), whole.X)
        return
    lengths = np.concatenate([np.diff(table.X.indptr) for table in tables])
    np.testing.assert_array_equal(lengths, np.diff(whole.X.indptr))
    for name in ("indices", "data"):
        np.testing.assert_array_equal(np.concatenate([getattr(t.X, name) for t in tables]), getattr(whole.X, name))
    assert max(table.X.shape[1] for table in tables) == whole.X.shape[1]


def bytes_read(act):
    """Count the bytes that this process reads."""

    def count():
        return int(Path("/proc/self/io").read_text().split()[1])

    count()
    idle = -(count() - count())
    before = count()
    act()
    return count() - before - idle


# svmlight


def first_error(read, size):
    for rank in range(size):
        try:
            read((rank, size))
        except ValueError as error:
            return str(error)
    return None


@given(content=(GRAMMAR | LINES | st.lists(LINES, max_size=20).map(b"\n".join)).filter(len), size=sizes)
@settings(max_examples=150, deadline=None)
def test_svmlight_shares_are_the_file_or_have_its_error(folder, content, size):
    path = write(folder / "grammar.svm", content)
    first = first_error(lambda share: read_svmlight(path, share), size)
    try:
        read_svmlight(path)
    except ValueError as error:
        if "got no rows" not in str(error):
            assert first == str(error)  # noqa: PT017 - the same line and token
            return
        assert first is None
        assert all(read_svmlight(path, (rank, size))[0].shape == (0, 0) for rank in range(size))
    else:
        assert_whole(path, size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_svmlight_lines_of_all_lengths(tmp_path, size, end, last):
    long = "1 " + " ".join(f"{i}:1" for i in range(400))
    lines = ["# head", "1 1:1", "", long, "-1", long + " # 5:5", "2 3:3 # note", "", "7 9:9"]
    path = write(tmp_path / "a.svm", end.join(lines) + end * last)
    assert_whole(path, size)
    assert_whole(write(path, "1 1:1" + end * last), size)  # fewer lines than workers, and almost fewer bytes


def test_a_line_belongs_to_the_range_of_its_first_byte(tmp_path):
    path = write(tmp_path / "a.svm", "1 1:1\n2 2:1\n3 3:1\n4 4:1\n")
    assert [table.y.tolist() for table in shares(path, 4)] == [[1], [2], [3], [4]]
    path = write(tmp_path / "a.svm", "1 1:1 2:1 3:1 4:1\n2\n3\n")
    assert [table.y.tolist() for table in shares(path, 2)] == [[1], [2, 3]]
    assert [table.X.shape for table in shares(path, 2)] == [(1, 5), (2, 0)]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="no count of the bytes read")
@pytest.mark.parametrize("kind", ["svm", "csv", "npz", "sparse.npz", "parquet"])
def test_a_worker_reads_its_share_alone(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    save_rows(path, np.random.default_rng(0).normal(size=(40_000, 10)), np.ones(40_000))
    read_table(path, share=(0, 10))  # imports and compiles
    whole = path.stat().st_size
    for rank in (0, 4, 9):
        read = bytes_read(lambda share=(rank, 10): read_table(path, share=share))
        assert whole / 11 < read < whole / 10 + whole / 20, (read, whole)
    assert bytes_read(lambda: read_table(path)) > 0.99 * whole  # the count works


@pytest.mark.parametrize("ending", list(COMPRESS))
@pytest.mark.parametrize(("name", "content"), [("a.svm", b"1 1:1\n" * 9), ("a.csv", b"a,b\n" + b"1,2\n" * 9)])
def test_compressed_text_cannot_be_cut(tmp_path, ending, name, content):
    for path in (tmp_path / f"{name}{ending}", tmp_path / name):  # the content decides as well
        write(path, COMPRESS[ending](content))
        assert read_table(path, share=(0, 1)).X.shape[0] == 9
        with pytest.raises(ValueError, match=rf"a\..*: got \{ending} content for worker 1 of 2, .*; decompress it"):
            read_table(path, share=(1, 2))


# .csv and .parquet


def assert_whole_frame(path, size, **arguments):
    whole, tables = read_table(path, "y", **arguments), shares(path, size, target="y", **arguments)
    assert {table.feature_names for table in tables} == {whole.feature_names}
    full = [table for table in tables if table.X.shape[0]]
    pd.testing.assert_frame_equal(pd.concat([t.X for t in full]).reset_index(drop=True), whole.X.reset_index(drop=True))
    pd.testing.assert_series_equal(pd.Series(vectors(full, "y")), pd.Series(whole.y))  # nan equals nan
    return tables


FIELDS = st.sampled_from(["", "1", "2.5", "word", "é", "-", " "])
ROWS = st.lists(st.lists(FIELDS, min_size=1, max_size=3), min_size=1, max_size=12)


@given(
    rows=ROWS | ROWS | ROWS.map(lambda rows: [*rows, ["1"] * 4]),
    size=sizes,
    end=st.sampled_from(["\n", "\r\n"]),
    tab=st.booleans(),
    data=st.data(),
)
@quick
def test_csv_shares_are_the_file_or_have_its_error(folder, rows, size, end, tab, data):
    begin = data.draw(st.sampled_from(["", "\ufeff", "\n", " \r\n\n", "\ufeff\n"]))
    separator = "\t" if tab else ","
    lines = [separator.join(["x", '"z"', "y"]), *(separator.join(row) for row in rows)]
    text = begin + end.join(lines) + data.draw(st.sampled_from(["", end, "\r", end + end]))
    path = write(folder / f"a.{'tsv' if tab else 'csv'}", text)
    try:
        whole = read_table(path, text=("x", "y", "z"))
    except ValueError as error:
        if "got no rows" not in str(error):
            assert first_error(lambda share: read_table(path, share=share), size)
            return
        assert sum(table.X.shape[0] for table in shares(path, size)) == 0
    else:
        assert whole.feature_names == ("x", "z", "y")
        assert_whole_frame(path, size, text=("x", "y", "z"))


@pytest.mark.parametrize("size", SIZES)
def test_csv_of_numbers_and_words(tmp_path, size):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=50), "b": range(50), "c": ["word"] * 50, "y": ["x" * 99] * 50})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for table in assert_whole_frame(tmp_path / "a.csv", size):
        assert table.X.shape[0] == 0 or [dtype.kind for dtype in table.X.dtypes] == ["f", "i", "O"]


@pytest.mark.parametrize("begin", ["", "\ufeff", "\n\r\n", " \n", "\ufeff\n"])
def test_names_are_on_the_first_line_that_is_not_blank(tmp_path, begin):
    """Separators alone are names, though empty ones."""
    path = write(tmp_path / "a.tsv", f"{begin}\t\t\n" + "1\t2\t3\n" * 9)
    whole = read_table(path)
    for size in SIZES:
        tables = shares(path, size)
        assert {table.feature_names for table in tables} == {whole.feature_names}
        assert sum(table.X.shape[0] for table in tables) == whole.X.shape[0] == 9


def test_csv_that_cannot_be_cut(tmp_path):
    path = write(tmp_path / "a.csv", 'a,b\n1,2\n1,2\n1,2\n"1\n2",2\n')
    assert read_table(path).X.shape == (4, 2)
    assert read_table(path, share=(0, 2)).X.shape == (3, 2)
    with pytest.raises(ValueError, match=r"a\.csv: got a double quote in the rows of worker 1 of 2, .*one file per"):
        read_table(path, share=(1, 2))
    for rank in range(2):
        with pytest.raises(ValueError, match=r"a\.csv: got text that cannot be read \(.*EOF inside string"):
            read_table(write(path, '"a\nb",c\n1,2\n1,2\n'), share=(rank, 2))
        with pytest.raises(ValueError, match=r"a\.csv: got a line that ends with '\\r' alone.*convert"):
            read_table(write(path, "a,b\r1,2\r3,4\r"), share=(rank, 2))


def test_types_of_a_csv_depend_on_the_share(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n" + "01,1\n" * 5 + "x,2\n" * 5)
    kinds = [[dtype.kind for dtype in table.X.dtypes] for table in shares(path, 2)]
    assert kinds == [["i", "i"], ["O", "i"]]
    assert [table.X["a"][0] for table in shares(path, 2, text=("a",))] == ["01", "x"]


def frame_of_types(n):
    rng = np.random.default_rng(n)
    words = pd.Series(rng.choice(["red", "blue", "green"], n), dtype=object)
    numbers = {"float": rng.normal(size=n), "bool": rng.random(n) < 0.5, "int": pd.array(range(n), dtype="Int64")}
    return pd.DataFrame(
        numbers | {"words": words.where(words != "red", None), "category": words.astype("category"), "y": words}
    )


@pytest.mark.slow
@given(n=st.integers(1, 70), group=st.integers(1, 80), size=sizes, index=st.booleans())
@quick
def test_parquet_shares_are_the_file(folder, n, group, size, index):
    frame = frame_of_types(n)
    if index:
        frame.index = pd.Index(np.arange(n) * 2, name="key")
    frame.to_parquet(folder / "a.parquet", row_group_size=group)
    assert_whole_frame(folder / "a.parquet", size)


@pytest.mark.parametrize("size", SIZES)
def test_parquet_reads_only_row_groups_of_the_share(tmp_path, monkeypatch, size):
    frame_of_types(60).to_parquet(tmp_path / "a.parquet", row_group_size=10)
    asked, read = [], pyarrow.parquet.ParquetFile.iter_batches
    noted = lambda self, n, row_groups: asked.append(row_groups) or read(self, n, row_groups)  # noqa: E731
    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", noted)
    assert_whole_frame(tmp_path / "a.parquet", size)
    ranges = [range(*streams.share_bounds(60, (rank, size))) for rank in range(size)] if size > 1 else []
    assert asked == [sorted({row // 10 for row in rows}) for rows in ranges]


def test_a_single_row_group_is_not_held_in_memory(tmp_path):
    X = np.random.default_rng(0).normal(size=(1_000_000, 2))  # 16 MB
    path = tmp_path / "a.parquet"
    pd.DataFrame(X, columns=["a", "b"]).to_parquet(path, row_group_size=len(X))
    np.testing.assert_array_equal(read_table(path, share=(9, 10)).X, X[900_000:])
    program = (
        "import sys, pyarrow; from gbun.data.files import read_table; read_table(sys.argv[1], share=(9, 10)); "
        "print(pyarrow.default_memory_pool().max_memory())"
    )
    done = subprocess.run([sys.executable, "-c", program, path], check=True, capture_output=True)
    assert int(done.stdout) < 12e6


def test_empty_shares_of_frames_have_columns(tmp_path):
    frame_of_types(2).to_parquet(tmp_path / "a.parquet")
    frame_of_types(2).to_csv(tmp_path / "a.csv", index=False)
    for path in (tmp_path / "a.parquet", tmp_path / "a.csv"):
        table = read_table(path, "y", weight="float", share=(3, 9))
        assert table.X.shape == (0, 4)
        assert (table.y.shape, table.weight.shape, table.weight.dtype) == ((0,), (0,), np.float64)
        assert table.feature_names == read_table(path, "y", weight="float").feature_names
        with pytest.raises(ValueError, match=r"target: got 'Y', expected a column .* did you mean 'y'"):
            read_table(path, "Y", share=(0, 9))


# .npz


@given(n=st.integers(1, 70), m=st.integers(1, 5), size=sizes, data=st.data())
@quick
def test_npz_shares_are_the_file(folder, n, m, size, data):
    path, rng = folder / "a.npz", np.random.default_rng(n)
    kind = data.draw(st.sampled_from(["dense", "columns", "parts", "scipy"]))
    save = data.draw(st.sampled_from([np.savez, np.savez_compressed]))
    dtype = data.draw(st.sampled_from([np.float64, np.float32, np.int16, bool, ">f8"]))
    X = (rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.5)).astype(dtype)
    rest = {"y": rng.choice(["a", "bcd"], n), "weight": np.arange(n)}
    rest = {name: rest[name] for name in data.draw(st.sets(st.sampled_from(["y", "weight"])))}
    if kind in ("dense", "columns"):
        save(path, X=np.asarray(X, order="C" if kind == "dense" else "F"), **rest)
        assert_whole(path, size)
        return
    csr = scipy.sparse.csr_array(X.astype(X.dtype.newbyteorder("=")))
    csr.indices = csr.indices.astype(data.draw(st.sampled_from([np.int32, np.int64])))
    if kind == "parts":
        save(path, **csr_parts(csr), **rest)
        assert_whole(path, size)
        return
    scipy.sparse.save_npz(path, csr, compressed=save is np.savez_compressed)
    np.save(folder / "y.npy", np.arange(n)[::-1])
    assert_whole(path, size)
    assert_whole(path, size, labels=folder / "y.npy")


def test_ids_of_64_bits_in_an_npz(tmp_path):
    ids = np.array([5, 2**62, 7])
    np.savez(tmp_path / "a.npz", data=np.ones(3), indices=ids, indptr=[0, 1, 2, 3], shape=(3, 2**62 + 1))
    assert_whole(tmp_path / "a.npz", 2)
    assert read_table(tmp_path / "a.npz", share=(0, 9)).X.shape == (0, 2**62 + 1)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_memory_is_that_of_the_share(tmp_path, save, order):
    X = np.random.default_rng(0).integers(0, 9, (25_000, 40)).astype(np.float64)  # 8 MB
    save(tmp_path / "a.npz", X=np.asarray(X, order=order), y=np.ones(len(X)))
    csr = scipy.sparse.csr_array(X)
    save(tmp_path / "b.npz", **csr_parts(csr))
    for name, whole in (("a", X.nbytes), ("b", csr.data.nbytes + csr.indices.nbytes)):
        read_table(tmp_path / f"{name}.npz", share=(63, 64))
        for rank in (0, 5, 9):
            read = partial(read_table, tmp_path / f"{name}.npz", share=(rank, 10))
            assert read().X.shape == (2500, 40)
            assert peak_memory(read) < 1.5 * whole / 10 + 1e6, (name, rank, whole)


CSR = {"data": np.ones(4), "indices": np.array([0, 9, 1, 2]), "indptr": np.array([0, 1, 2, 3, 4]), "shape": (4, 10)}
FOUR = {"X": np.ones((4, 2)), "y": np.ones(4)}


@pytest.mark.parametrize(
    ("arrays", "ranks", "message"),
    [
        (CSR | {"shape": (4, 9)}, [0], "indices must be from 0 to 8"),
        (CSR | {"indices": np.array([0, 0, -1, 0])}, [1], "indices must be from 0 to 9"),
        (CSR | {"indptr": np.array([0, 2, 1, 3, 4])}, [0], "must not decrease"),
        (CSR | {"indptr": np.array([0, 2, 3, 1, 4])}, [1], "must not decrease"),
        (CSR | {"indptr": np.array([1, 2, 3, 4, 4])}, [0], "must begin with 0"),
        (CSR | {"indptr": np.array([-1, 1, 2, 3, 4])}, [0], "must begin with 0"),
        (CSR | {"indptr": np.array([0, 1, 2, 3, 5])}, [1], "must end at the number of indices"),
        (CSR | {"indptr": np.array([0, 1, 2, 3])}, [0, 1], r"not the parts of a matrix of shape \(4, 10\)"),
        (CSR | {"data": np.ones(3)}, [0, 1], r"data \(3,\) are not the parts"),
        (CSR | {"indices": np.zeros(4)}, [0, 1], "must hold integers"),
        (CSR | {"shape": 3}, [0, 1], "shape must be two integers"),
        (CSR | {"format": np.array("csc")}, [0, 1], "format csc .*expected csr.*one file per|cannot be read"),
        (CSR | {"format": np.array(b"coo")}, [0, 1], "got a sparse matrix of format coo for worker|cannot be read"),
        (CSR | {"format": np.array(b"xyz")}, [0, 1], "got a sparse matrix of format xyz for worker|cannot be read"),
        (CSR | {"y": np.ones(3)}, [0, 1], r"got y of shape \(3,\) for 4 rows"),
        (FOUR | {"weight": np.ones(5)}, [0, 1], r"got weight of shape \(5,\) for 4 rows"),
        (FOUR | {"weight": np.ones((4, 1))}, [0, 1], r"got weight of shape \(4, 1\) for 4 rows"),
        (FOUR | {"weight": np.array(["a"] * 4)}, [0, 1], "weight: got <U1 values .* expected numbers"),
        (FOUR | {"X": np.ones(4)}, [0, 1], r"got X of shape \(4,\)"),
        (FOUR | {"X": np.ones((4, 2, 2))}, [0, 1], r"got X of shape \(4, 2, 2\)"),
        (FOUR | {"X": np.ones((4, 2)) * 1j}, [0, 1], "expected rows x columns of real numbers"),
        (FOUR | {"X": np.array([["a"]] * 4)}, [0, 1], "expected rows x columns of real numbers"),
        (FOUR | {"y": np.array([1, "a", 2, 3], object)}, [0, 1], "Object arrays cannot be loaded .*without objects"),
        ({"Z": np.ones(4)}, [0, 1], r"got the arrays \['Z'\], expected X, or the parts of a sparse matrix"),
        ({"y": np.ones(4)}, [0, 1], r"got the arrays \['y'\], expected X"),
        ({"X": np.ones((0, 2)), "y": np.ones(0)}, [], "got no rows"),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_errors(tmp_path, arrays, ranks, message, save):
    """`ranks` are the workers of two whose share has the error; the whole file always has it."""
    save(tmp_path / "a.npz", **arrays)
    for share in [(0, 1), *((rank, 2) for rank in ranks)]:
        with pytest.raises(ValueError, match=rf"a\.npz.*({message})"):
            read_table(tmp_path / "a.npz", share=share)
    for rank in {0, 1} - set(ranks):
        read_table(tmp_path / "a.npz", share=(rank, 2))


@pytest.mark.parametrize("shape", [(4, 3), (2**40, 2), (-4, -2)])
def test_an_array_must_be_as_long_as_it_says(tmp_path, shape):
    npy = io.BytesIO()
    np.lib.format.write_array_header_1_0(npy, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", npy.getvalue() + bytes(64))
    fault = r"must not be negative" if min(shape, default=0) < 0 else r"needs \d+ bytes, there are \d+"
    with pytest.raises(ValueError, match=rf"a\.npz: .* of shape \(.*\),? .*{fault}"):
        read_table(tmp_path / "a.npz", share=(0, 2))


@pytest.mark.parametrize("share", [(0, 1), (1, 2)])
def test_labels_of_a_separate_file(tmp_path, share):
    path, labels = tmp_path / "a.npz", tmp_path / "y.npy"
    np.savez(path, X=np.ones((4, 2)))

    def refuse(match, error=ValueError):
        with pytest.raises(error, match=match):
            read_table(path, labels=labels, share=share)

    refuse(r"y\.npy", FileNotFoundError)
    np.save(labels, np.arange(4))
    table = read_table(path, labels=labels, share=share)
    assert table.y.tolist() == ([0, 1, 2, 3] if share == (0, 1) else [2, 3])
    assert type(table.y) is np.ndarray  # the file may change
    write(labels, labels.read_bytes()[:-5])
    refuse(r"y\.npy: got content that cannot be read")
    write(labels, "1\n2\n")
    refuse(r"y\.npy: got content that begins with b'1.*a \.npy file")
    np.save(labels, np.array(["a", 1, 2, 3], object))
    refuse(r"y\.npy: got content that cannot be read .*Python objects")
    np.save(labels, np.arange(5))
    refuse(r"got y of shape \(5,\) for 4 rows")
    np.savez(path, X=np.ones((4, 2)), y=np.ones(4))
    refuse("holds y itself; leave labels out")
    with pytest.raises(ValueError, match=r"only \.npz files may keep y apart; name the column in target"):
        read_table("a.csv", labels=labels)


@pytest.mark.parametrize("share", [(0, 1), (1, 2)])
@pytest.mark.parametrize("kind", ["npz", "stored", "parquet"])
def test_truncated_and_damaged_archives(tmp_path, kind, share):
    path = tmp_path / f"a.{'parquet' if kind == 'parquet' else 'npz'}"
    if kind == "parquet":
        pd.DataFrame({"a": range(20)}).to_parquet(path, row_group_size=5)
    else:
        save = np.savez if kind == "stored" else np.savez_compressed
        save(path, X=np.arange(200.0).reshape(20, 10), y=np.arange(20))
    whole = path.read_bytes()
    for cut in range(1, len(whole) - 1, max(1, len(whole) // 25)):
        with pytest.raises(ValueError, match=r"a\.\w+: got content that (cannot be read|begins with)"):
            read_table(write(path, whole[:cut]), share=share)
    for place in range(4, len(whole), max(1, len(whole) // 60)):
        try:
            read_table(write(path, whole[:place] + b"\xaa" + whole[place + 1 :]), share=share)
        except ValueError as error:
            assert path.name in str(error)  # noqa: PT017 - a byte that does not matter may change


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_checksums_of_whole_arrays_are_verified(tmp_path, save):
    path = tmp_path / "a.npz"
    save(path, X=np.random.default_rng(0).random((50, 2)))
    content = path.read_bytes()
    middle = len(content) // 2
    with pytest.raises(ValueError, match=r"a\.npz: got content that cannot be read"):
        read_table(write(path, content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]))


@pytest.mark.parametrize("share", [(2, 2), (-1, 2), (0, 0), (0.5, 2), 1, (1, 2, 3), ("a", 2), None])
def test_invalid_shares(tmp_path, share):
    path = write(tmp_path / "a.svm", "1 1:1\n")
    for read in (lambda: read_table(path, share=share), lambda: read_svmlight(path, share)):
        with pytest.raises(ValueError, match=r"share: got .*, expected \(rank, size\)"):
            read()

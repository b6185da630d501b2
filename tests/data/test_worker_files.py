"""The files, or parts of files, that each worker reads, and the table they make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.data.worker_files import assign_files, read_share
from tests.data.test_file_shares import CSR, FOUR, SIZES
from tests.data.test_svmlight import save_rows, write


def deal(paths, size):
    return [assign_files(paths, rank, size) for rank in range(size)]


def make(folder, lengths, ending=".svm"):
    return [write(folder / f"{chr(97 + i)}{ending}", b"1" * length) for i, length in enumerate(lengths)]


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=12), size=st.sampled_from([1, 2, 3, 7, 20]))
@settings(max_examples=60, deadline=None)
def test_every_byte_has_one_worker_and_loads_are_balanced(tmp_path_factory, lengths, size):
    files = make(tmp_path_factory.mktemp("deal"), lengths)
    workers = deal(files, size)
    assert all(workers)
    parts = sorted(pair for worker in workers for pair in worker)
    for path in files:
        of_file = [share for found, share in parts if found == path]
        assert of_file == [(rank, len(of_file)) for rank in range(len(of_file))]
    loads = [sum(path.stat().st_size / share[1] for path, share in worker) for worker in workers]
    if len(files) >= size:
        assert max(loads) - min(loads) <= max(lengths)
        assert {share for _, share in parts} == {(0, 1)}
    else:
        # If a worker moved to another file, the others of its file would have at least the largest load.
        counts = {path: sum(found == path for found, _ in parts) for path in files}
        assert all(load <= min(p.stat().st_size / max(1, n - 1) for p, n in counts.items() if n > 1) for load in loads)


def test_files_are_dealt_largest_first(tmp_path):
    a, b, c, d = make(tmp_path, [5, 1, 3, 3])
    whole = (0, 1)
    assert deal([a, b, c, d], 2) == [[(a, whole), (b, whole)], [(c, whole), (d, whole)]]
    assert deal([a, c], 4) == [[(a, (0, 2))], [(a, (1, 2))], [(c, (0, 2))], [(c, (1, 2))]]


def test_patterns_folders_and_lists(tmp_path, monkeypatch):
    a, b = make(tmp_path, [1, 1])
    write(tmp_path / "_SUCCESS", b"")
    write(tmp_path / ".a.svm.crc", b"1")
    (tmp_path / "c.svm").mkdir()
    monkeypatch.chdir(tmp_path)
    patterns = [tmp_path, str(tmp_path), tmp_path / "*", tmp_path / "[ab].svm", str(tmp_path / "?.s*"), [b, str(a)]]
    for paths in patterns:
        assert sorted(path for path, _ in assign_files(paths, 0, 1)) == [a, b]
    for paths in ("*.svm", ["[a]*", "b*"], ".", f"../{tmp_path.name}/*.svm", f"../{tmp_path.name[:-1]}?/*.svm"):
        assert [path.resolve() for path, _ in assign_files(paths, 0, 1)] == [a, b]
    assert [path.name for path, _ in assign_files("_*", 0, 1)] == ["_SUCCESS"]
    write(tmp_path / "d[1].svm", b"1")
    assert assign_files("d[1].svm", 0, 1) == [(Path("d[1].svm"), (0, 1))]  # a file of that name comes first


def test_files_of_single_workers():
    assert assign_files("rows-{rank}.svm", 7, 9) == [(Path("rows-7.svm"), (0, 1))]
    assert assign_files(["{rank}/a.svm", Path("b-{rank:03}.svm")], 7, 9) == [
        (Path("7/a.svm"), (0, 1)),
        (Path("b-007.svm"), (0, 1)),
    ]


def test_errors_of_paths(tmp_path):
    (a,) = make(tmp_path, [1])
    (tmp_path / "empty").mkdir()
    for paths, message in (
        (tmp_path / "x-*.svm", r"x-\*\.svm: got a pattern that no file matches"),
        (tmp_path / "empty", "empty: got a folder without files"),
        ([], r"paths: got \[\], expected a file"),
        ([a, "b-{rank}.svm"], r"expected \{rank\} in all of them or in none"),
        ([a, tmp_path / "*.svm"], r"got .*a\.svm twice"),
    ):
        with pytest.raises(ValueError, match=message):
            assign_files(paths, 0, 1)
    with pytest.raises(FileNotFoundError, match=r"b\.svm: no such file"):
        assign_files([a, tmp_path / "b.svm"], 0, 1)
    with pytest.raises(FileNotFoundError, match=r"b-0\.svm: no such file"):
        read_share(tmp_path / "b-{rank}.svm", 0, 2)
    with pytest.raises(ValueError, match=r"share: got \(2, 2\)"):
        assign_files(a, 2, 2)


def test_compressed_files_have_one_worker(tmp_path):
    packed, plain = *make(tmp_path, [99], ".svm.gz"), *make(tmp_path, [1])
    assert deal([packed, plain], 3) == [[(packed, (0, 1))], [(plain, (0, 2))], [(plain, (1, 2))]]
    for rank in range(2):
        with pytest.raises(ValueError, match=r"a\.svm\.gz: got 1 compressed files for 2 workers, .*decompress them"):
            assign_files(packed, rank, 2)


# Tables of workers


def rows_of(table):
    """The rows of a table as tuples, to be sorted and compared."""
    X = table.X
    rows = X.to_numpy() if isinstance(X, pd.DataFrame) else X.toarray() if scipy.sparse.issparse(X) else X
    return [(*map(float, row), label) for row, label in zip(rows, table.y, strict=True)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n_files", [1, 3, 5])
@pytest.mark.parametrize("kind", ["svm", "csv", "tsv", "parquet", "npz", "sparse.npz"])
def test_all_rows_of_all_files_are_read_once(tmp_path, kind, n_files, size):
    rng, expected = np.random.default_rng(0), []
    for i in range(n_files):
        n = 5 + 20 * i
        X, y = rng.integers(0, 9, (n, 3)) + 1, rng.integers(0, 99, n)  # no zero: every row has the largest id
        save_rows(tmp_path / f"part-{i}.{kind}", X, y)
        expected += [(*map(float, row), label) for row, label in zip(X, y, strict=True)]
    target = "y" if kind in ("csv", "tsv", "parquet") else None
    tables = [read_share(tmp_path / "part-*", rank, size, target=target) for rank in range(size)]
    assert sorted(row for table in tables for row in rows_of(table)) == sorted(expected)
    assert {table.feature_names for table in tables} == {("a", "b", "c") if target else None}
    assert {table.X.shape[1] for table in tables if kind != "svm" or table.X.shape[0]} == {3}


def test_the_widest_part_determines_the_columns(tmp_path):
    write(tmp_path / "a.svm", f"1 {2**62}:1\n")
    write(tmp_path / "b.svm", "2 3:1 4:1\n3\n")
    table = read_share(tmp_path, 0, 1)
    assert table.X.shape == (3, 2**62 + 1)
    assert (table.X.indices.tolist(), table.X.indptr.tolist()) == ([2**62, 3, 4], [0, 1, 3, 3])
    assert table.y.tolist() == [1, 2, 3]


def test_weights_strings_and_separate_labels(tmp_path):
    for i in range(2):
        write(tmp_path / f"{i}.csv", f"zip,w,y\n0{i},{i},word\n")
        np.savez(tmp_path / f"{i}.npz", X=np.full((1, 2), i))
        np.save(tmp_path / f"y{i}.npy", [i])
    table = read_share(tmp_path / "*.csv", 0, 1, target="y", weight="w", text=("zip",))
    assert (table.X["zip"].tolist(), table.weight.tolist()) == (["00", "01"], [0, 1])
    assert (table.y.tolist(), list(table.X.index)) == (["word", "word"], [0, 1])
    local = read_share(tmp_path / "{rank}.npz", 1, 2, labels=tmp_path / "y{rank}.npy")
    assert (local.X.tolist(), local.y.tolist()) == ([[1, 1]], [1])
    assert read_share(tmp_path / "1.npz", 0, 1, labels=tmp_path / "y1.npy").y.tolist() == [1]
    with pytest.raises(ValueError, match=r"labels: got .*y0\.npy' for 2 files"):
        read_share(tmp_path / "*.npz", 0, 2, labels=tmp_path / "y0.npy")
    with pytest.raises(ValueError, match=r"expected \{rank\} in both or in none"):
        read_share(tmp_path / "{rank}.npz", 0, 2, labels=tmp_path / "y0.npy")


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        ([1, 2], [0.5, None], "float64"),
        ([None, None], ["a", "b"], "words"),
        (["a", "b"], [np.nan, np.nan], "words"),
        ([1.5, 2.5], pd.Series([None, None], dtype=object), "float64"),
        (pd.Categorical(["a", "b"]), pd.Categorical(["c", "a"]), "category"),
        (pd.Categorical(["a", "b"]), pd.Series([None, None], dtype="category"), "category"),
        (pd.array([1, None], "Int64"), pd.array([None, None], "Int64"), "Int64"),
    ],
)
def test_columns_keep_their_kind(tmp_path, first, second, dtype):
    for name, values in (("a", first), ("b", second)):
        pd.DataFrame({"x": values, "z": [1.0, 2.0]}).to_parquet(tmp_path / f"{name}.parquet")
    column = read_share(tmp_path, 0, 1).X["x"]
    assert pd.api.types.is_string_dtype(column.dropna()) if dtype == "words" else column.dtype == dtype
    expected = [None if pd.isna(value) else value for value in [*first, *second]]
    assert [None if pd.isna(value) else value for value in column] == expected


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"x": [1]}, {"x": ["a"]}, r"b\.parquet, column 'x': got words, expected numbers, as .*a\.parquet has; .*text"),
        ({"x": pd.Categorical(["a"])}, {"x": ["a"]}, r"column 'x': got words, expected categories of (object|str)"),
        ({"x": [1]}, {"v": [1]}, r"b\.parquet: got other columns \(missing \['x'\], new \['v'\]\), expected those"),
        ({"x": [1], "v": [1]}, {"v": [1], "x": [1]}, "the same in another order"),
        ({"y": [1]}, {"y": ["a"]}, r"b\.parquet, y: got words, expected numbers"),
    ],
)
def test_parts_that_do_not_fit(tmp_path, first, second, message):
    for name, columns in (("a", first), ("b", second)):
        pd.DataFrame({"z": [0], "y": [0]} | columns).to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match=message):
        read_share(tmp_path, 0, 1, target="y")


def test_arrays_that_do_not_fit(tmp_path):
    a, b = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(a, X=np.ones((2, 2)), y=np.ones(2))
    for arrays, message in (
        ({"X": np.ones((2, 3)), "y": np.ones(2)}, "got rows of 3 columns with y .*expected rows of 2 columns"),
        ({"X": np.ones((2, 2))}, "got .* without y and without weight, expected .* with y and without weight"),
        ({**FOUR, "weight": np.ones(4)}, "got .* with y and with weight, expected"),
        ({**FOUR, "y": np.array(["a"] * 4)}, "y: got words, expected numbers"),
        (CSR | {"y": np.ones(4)}, "got sparse rows with y"),
    ):
        np.savez(b, **arrays)
        with pytest.raises(ValueError, match=rf"b\.npz.*{message}"):
            read_share([a, b], 0, 1)

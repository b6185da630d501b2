"""Input that would eat memory is refused before it does."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from gbun.data import streams
from gbun.data.files import read_table

LINES = b"1 1:0.5\n" * 1000


def write_gz(path, pieces):
    with gzip.open(path, "wb", compresslevel=9) as file:
        for piece in pieces:
            file.write(piece)
    return path


@pytest.mark.parametrize("begin", [b"1 1:", b"a,b,"], ids=["svm", "csv"])
def test_one_endless_line_is_refused(tmp_path, monkeypatch, begin):
    monkeypatch.setenv("GBUN_MAX_EXPANSION", "2000")
    path = write_gz(tmp_path / f"rows.{'csv' if b',' in begin else 'svm'}.gz", [begin] + [bytes(2**20)] * 70)
    with pytest.raises(ValueError, match=rf"{path.name}: got a line of more than 67,108,864 bytes"):
        read_table(path)


@pytest.mark.parametrize("name", ["rows.svm", "rows.csv"])
@pytest.mark.parametrize("share", [(0, 1), (0, 2), (1, 2)])
def test_a_long_line_is_refused_in_every_share_before_it_is_held(tmp_path, monkeypatch, name, share):
    """Where the second half begins is looked for from the middle of the line on."""
    monkeypatch.setattr("gbun.data.svmlight._BLOCK", 2**20)
    monkeypatch.setenv("GBUN_MAX_LINE_BYTES", str(2**20))
    path = tmp_path / name
    path.write_bytes((LINES if "svm" in name else b"a,b\n" + b"1,2\n" * 1000) + b"1" * 2**26)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"{name}: got a line of more than 1,048,576 bytes"):
            read_table(path, share=share)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["rows.svm.gz", "rows.csv.gz"])
def test_content_is_limited_by_the_size_of_the_file(tmp_path, monkeypatch, name):
    monkeypatch.setattr(streams, "LEAST_EXPANDED", 2**18)
    body = [LINES] if "svm" in name else [b"a,b\n", b"1,2\n" * 2000]
    path = write_gz(tmp_path / name, body + body[-1:] * 300)
    with pytest.raises(ValueError, match=rf"{name}: .*expected at most 200 times the size .* set GBUN_MAX_EXPANSION"):
        read_table(path, "b" if "csv" in name else None)
    monkeypatch.setenv("GBUN_MAX_EXPANSION", "2000")
    assert read_table(path, "b" if "csv" in name else None).X.shape[0] >= 301_000
    monkeypatch.setenv("GBUN_MAX_EXPANSION", "many")
    with pytest.raises(ValueError, match="GBUN_MAX_EXPANSION must be a positive whole number, got 'many'"):
        read_table(path, "b" if "csv" in name else None)


def test_lines_may_be_longer_where_the_user_says_so(tmp_path, monkeypatch):
    path = tmp_path / "rows.svm"
    path.write_bytes(b"1 " + b" ".join(b"%d:1" % i for i in range(2000)) + b"\n")
    monkeypatch.setattr("gbun.data.svmlight._BLOCK", 1024)
    monkeypatch.setenv("GBUN_MAX_LINE_BYTES", "4000")
    with pytest.raises(ValueError, match=r"a line of more than 4,000 bytes, .* set GBUN_MAX_LINE_BYTES"):
        read_table(path)
    monkeypatch.setenv("GBUN_MAX_LINE_BYTES", "40000")
    assert read_table(path).X.shape == (1, 2000)


def test_npz_allocates_only_what_the_file_can_hold(tmp_path):
    """The directory of the archive is forged so that it agrees with the header of the array."""
    path, claimed, header = tmp_path / "X.npz", 2**32 - 2, io.BytesIO()
    description = {"descr": "|u1", "fortran_order": False, "shape": (claimed - 128, 1)}
    np.lib.format.write_array_header_1_0(header, description)
    assert header.tell() == 128
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", header.getvalue() + bytes(1000))
    path.write_bytes(path.read_bytes().replace((1128).to_bytes(4, "little"), claimed.to_bytes(4, "little")))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"X\.npz: .* needs 4294967294 bytes, \d+ bytes cannot hold them"):
            read_table(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()

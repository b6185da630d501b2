"""The svmlight text format, a row per line: `label id:value id:value ...  # comment`.

An id is the feature id itself: nothing is shifted, so files may count from zero or one, and ids may be 64-bit hashes.
No array is as long as the largest id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gbun.data.streams import (
    WHOLE_FILE,
    PathLike,
    Share,
    check_line_length,
    check_share,
    count_lines_before,
    open_content,
)
from gbun.data.svmlight_parser import COLON, LARGEST_ID, NEWLINE, find_token_end, parse_block
from gbun.dtypes import MEMBERSHIP, SUM

_BLOCK = 16 << 20  # bytes parsed at a time: large enough to make the time in Python negligible


def read_svmlight(path: PathLike, share: Share = WHOLE_FILE) -> tuple[scipy.sparse.csr_array, NDArray[np.float64]]:
    """Read an svmlight file, plain or compressed by gzip, bzip2 or xz.

    Values are float32 and labels float64, rounded as in Python; nan is accepted, infinity is not. Ids may come in any
    order; values of an id that a row repeats are summed, as in every CSR matrix. `qid:` and comments are skipped.
    Memory holds the result and one block of the file.

    `share` = (rank, size) reads the lines that begin in one worker's part of the bytes. A share may have no rows, its
    columns end at its largest id, and the file must not be compressed.
    """
    check_share(share)
    rows = _RowBuffers()
    with open_content(path, share) as stream:
        for block in _read_blocks(stream, path):
            try:
                rows.append(block)
            except _MalformedToken as error:
                line = count_lines_before(path, share) + rows.lines + block.count(b"\n", 0, error.at) + 1
                raise ValueError(f"{path}, line {line}: {error.message}") from None
    if share[1] == 1 and not rows.labels.size:
        raise ValueError(f"{path}: got no rows, expected a line 'label id:value ...' for each; check the file")
    return rows.to_csr()


def _read_blocks(stream: IO[bytes], path: PathLike) -> Iterator[bytes]:
    """Yield blocks of whole lines; the last line gets a line end if it has none."""
    rest = b""
    while chunk := stream.read(_BLOCK):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join((rest, memoryview(chunk)[:cut]))
            rest = b""
        rest += chunk[cut:]
        check_line_length(path, len(rest))
    if rest:
        yield rest + b"\n"


class _MalformedToken(Exception):
    """A token that cannot be read: its position in the block, and the error message."""

    def __init__(self, at: int, token: bytes, expected: str) -> None:
        text = token[:40].decode("utf-8", "replace") + ("..." if len(token) > 40 else "")
        self.at, self.message = at, f"got {text!r}, expected {expected}"


class _GrowingArray:
    """An array that grows in place: realloc moves pages, so that nothing is held twice."""

    def __init__(self, dtype: type[Any]) -> None:
        self.array: NDArray[Any] = np.empty(0, dtype)
        self.size = 0

    def append(self, part: NDArray[Any]) -> None:
        end = self.size + part.size
        if end > self.array.size:
            self.array.resize(end + end // 8, refcheck=False)
        self.array[self.size : end] = part
        self.size = end

    def trim(self) -> NDArray[Any]:
        self.array.resize(self.size, refcheck=False)
        return self.array


class _RowBuffers:
    """The rows of all blocks so far."""

    def __init__(self) -> None:
        self.labels, self.values = _GrowingArray(SUM), _GrowingArray(MEMBERSHIP)
        self.ids, self.indptr = _GrowingArray(np.int32), _GrowingArray(np.int64)
        self.indptr.append(np.zeros(1, np.int64))
        self.columns, self.lines = 0, 0

    def append(self, block: bytes) -> None:
        # There are at most as many rows as line ends and pairs as colons, and one token that is not a pair.
        text = np.frombuffer(block, np.uint8)
        max_rows, max_pairs = np.count_nonzero(text == NEWLINE), np.count_nonzero(text == COLON) + 1
        labels, ends = np.empty(max_rows, SUM), np.empty(max_rows, np.int64)
        ids, values = np.empty(max_pairs, np.int64), np.empty(max_pairs, MEMBERSHIP)
        n, n_pairs, hard, at = parse_block(text, labels, ends, ids, values)
        for place, start, end in hard.tolist():
            _parse_with_python(block, place, start, end, labels, values)
        if at < len(block):
            token = block[at : find_token_end(text, at)]
            identity, colon, _ = token.partition(b":")
            expected = "'id:value', as in 7:0.5; put spaces between pairs and '#' before a comment"
            if colon:
                expected = "decimal digits before the colon, as in 7:0.5; hash names to numbers first"
                if identity.isdigit():
                    expected = f"an id up to {LARGEST_ID} (2**63 - 2, the last column scipy can count); hash to 62 bits"
            raise _MalformedToken(at, token, expected)
        self.columns = max(self.columns, int(ids[:n_pairs].max(initial=-1)) + 1)
        if self.columns >= 2**31:
            self.ids.array = self.ids.array.astype(np.int64, copy=False)
        self.lines += max_rows
        self.indptr.append(ends[:n] + self.values.size)
        self.labels.append(labels[:n])
        self.ids.append(ids[:n_pairs])
        self.values.append(values[:n_pairs])

    def to_csr(self) -> tuple[scipy.sparse.csr_array, NDArray[np.float64]]:
        shape = (self.labels.size, self.columns)
        # With the dtype that scipy would choose for both index arrays, it does not copy them.
        index = np.int32 if max(*shape, self.values.size) < 2**31 else np.int64
        indptr = self.indptr.trim().astype(index, copy=False)
        ids = self.ids.trim().astype(index, copy=False)
        return scipy.sparse.csr_array((self.values.trim(), ids, indptr), shape=shape), self.labels.trim()


def _parse_with_python(
    block: bytes, place: int, start: int, end: int, labels: NDArray[np.float64], values: NDArray[np.float32]
) -> None:
    """Parse a number that the compiled parser left to Python; `place` is that of a value, or ~row for a label."""
    text = block[start:end]
    array, place = (values, place) if place >= 0 else (labels, ~place)
    try:
        with np.errstate(over="ignore"):
            array[place] = float(text)
    except ValueError:
        expected = "a number, the label, to begin the line; encode class names as 0, 1, 2, ..."
        if array is values:
            expected = "a number after 'id:', as in 7:0.5, 7:-1e-3 or 7:nan"
        elif b"," in text:
            expected = "one label: multi-label svmlight is not supported; write a file per label, or name a CSV .csv"
        raise _MalformedToken(start, text, expected) from None
    if np.isinf(array[place]):
        expected = f"a finite {array.dtype} number, or nan where it is missing; replace or rescale it"
        raise _MalformedToken(start, text, expected)

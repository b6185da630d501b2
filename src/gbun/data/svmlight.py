"""The svmlight text format, a row per line: `label id:value id:value ...  # comment`.

An id IS the feature id: nothing is shifted, so it does not matter whether a file counts from zero or one, and
a 64-bit hash is an id like any other. No array here is ever as long as the largest id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from gbun.data.compression import WHOLE, PathLike, Share, check_share, create, lines_before, open_content
from gbun.data.svmlight_parser import COLON, LARGEST_ID, NEWLINE, parse, token_end
from gbun.dtypes import MEMBERSHIP, SUM

# A block is parsed at once and its text then dropped; at this size Python's share of the time is nothing.
_BLOCK = 16 << 20


def read_svmlight(path: PathLike, share: Share = WHOLE) -> tuple[scipy.sparse.csr_array, NDArray[np.float64]]:
    """The rows and labels of an svmlight file, plain or compressed by gzip, bzip2 or xz.

    Values are float32 and labels float64, rounded as Python rounds them; nan is let through, infinity is not.
    Ids may come in any order; an id that a row repeats adds up, as in every CSR matrix. `qid:` and comments
    are skipped. Besides the result, memory holds one block of the file.

    `share` = (rank, size) reads one worker's lines alone: those that begin in its part of the bytes. It may have
    no rows, its columns are those it sees, and the file must not be compressed.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows.svm")
    ...     _ = path.write_text("1 3:0.5 9:2  # first\\n-1 qid:4 4611686018427387904:1\\n")
    ...     X, y = read_svmlight(path)
    >>> y
    array([ 1., -1.])
    >>> X.shape == (2, 2**62 + 1), X.indices[:2], X.data
    (True, array([3, 9]), array([0.5, 2. , 1. ], dtype=float32))
    """
    check_share(share)
    rows = _Rows()
    with open_content(path, share) as stream:
        for block in _blocks(stream):
            try:
                rows.append(block)
            except _Malformed as error:
                line = lines_before(path, share) + rows.lines + block.count(b"\n", 0, error.at) + 1
                raise ValueError(f"{path}, line {line}: {error.complaint}") from None
    if share[1] == 1 and not rows.labels.size:
        raise ValueError(f"{path}: got no rows, expected a line 'label id:value ...' for each; check the file")
    return rows.joined()


def write_svmlight(path: PathLike, X: Any, y: ArrayLike) -> None:
    """Writes a line for each row of X, sparse or dense, and its label; the ending may be .gz, .bz2 or .xz.

    Numbers are written in the fewest digits that read back as the same: a float32 X and a float64 y survive
    unchanged, a float64 X comes back rounded to float32.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows.svm")
    ...     write_svmlight(path, [[0, 0.1], [2, 0]], [1, 0.5])
    ...     path.read_text()
    '1 1:0.1\\n0.5 0:2\\n'
    """
    matrix, labels = _writable(X, y)
    bounds = matrix.indptr.tolist()
    with create(path) as stream:
        for row, label in enumerate(labels.tolist()):
            part = slice(bounds[row], bounds[row + 1])
            stream.write(_line(label, matrix.indices[part], matrix.data[part]))


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """The stream in pieces of whole lines; the last line is given its line end if it lacks one."""
    rest = b""
    while chunk := stream.read(_BLOCK):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join((rest, memoryview(chunk)[:cut]))
            rest = b""
        rest += chunk[cut:]
    if rest:
        yield rest + b"\n"


class _Malformed(Exception):
    """A token that is none: where it begins in its block, and the sentence to raise."""

    def __init__(self, at: int, token: bytes, expected: str) -> None:
        text = token[:40].decode("utf-8", "replace") + ("..." if len(token) > 40 else "")
        self.at, self.complaint = at, f"got {text!r}, expected {expected}"


class _Column:
    """An array that grows at its end, in place: realloc moves pages, so what is there is not held twice."""

    def __init__(self, dtype: type[Any]) -> None:
        self.array: NDArray[Any] = np.empty(0, dtype)
        self.size = 0

    def append(self, part: NDArray[Any]) -> None:
        end = self.size + part.size
        if end > self.array.size:
            self.array.resize(end + end // 8, refcheck=False)
        self.array[self.size : end] = part
        self.size = end

    def trimmed(self) -> NDArray[Any]:
        self.array.resize(self.size, refcheck=False)
        return self.array


class _Rows:
    """What the blocks gave so far."""

    def __init__(self) -> None:
        self.labels, self.values = _Column(SUM), _Column(MEMBERSHIP)
        self.ids, self.bounds = _Column(np.int32), _Column(np.int64)
        self.bounds.append(np.zeros(1, np.int64))
        self.columns, self.lines = 0, 0

    def append(self, block: bytes) -> None:
        # No more rows than line ends, no more pairs than colons; one is spare, for a token that is no pair.
        text = np.frombuffer(block, np.uint8)
        most_rows, most_pairs = np.count_nonzero(text == NEWLINE), np.count_nonzero(text == COLON) + 1
        labels, ends = np.empty(most_rows, SUM), np.empty(most_rows, np.int64)
        ids, values = np.empty(most_pairs, np.int64), np.empty(most_pairs, MEMBERSHIP)
        n, found, hard, at = parse(text, labels, ends, ids, values)
        for place, start, end in hard.tolist():
            _settle(block, place, start, end, labels, values)
        if at < len(block):
            token = block[at : token_end(text, at)]
            raise _Malformed(at, token, _expected_pair(token))
        self._widen(int(ids[:found].max(initial=-1)) + 1)
        self.lines += most_rows
        self.bounds.append(ends[:n] + self.values.size)
        self.labels.append(labels[:n])
        self.ids.append(ids[:found])
        self.values.append(values[:found])

    def _widen(self, columns: int) -> None:
        self.columns = max(self.columns, columns)
        if self.columns >= 2**31:
            self.ids.array = self.ids.array.astype(np.int64, copy=False)

    def joined(self) -> tuple[scipy.sparse.csr_array, NDArray[np.float64]]:
        shape = (self.labels.size, self.columns)
        # Both index arrays in the one dtype that scipy would choose, or it copies them.
        index = np.int32 if max(*shape, self.values.size) < 2**31 else np.int64
        bounds = self.bounds.trimmed().astype(index, copy=False)
        ids = self.ids.trimmed().astype(index, copy=False)
        return scipy.sparse.csr_array((self.values.trimmed(), ids, bounds), shape=shape), self.labels.trimmed()


def _settle(
    block: bytes, place: int, start: int, end: int, labels: NDArray[np.float64], values: NDArray[np.float32]
) -> None:
    """Reads with Python's float what the parser could not: a value's `place`, or ~row for a label."""
    text = block[start:end]
    array, place = (values, place) if place >= 0 else (labels, ~place)
    try:
        with np.errstate(over="ignore"):
            array[place] = float(text)
    except ValueError:
        raise _Malformed(start, text, _expected_number(text, array is labels)) from None
    if np.isinf(array[place]):
        expected = f"a finite {array.dtype} number, or nan where it is missing; replace or rescale it"
        raise _Malformed(start, text, expected)


def _expected_number(text: bytes, is_label: bool) -> str:
    if not is_label:
        return "a number after 'id:', as in 7:0.5, 7:-1e-3 or 7:nan"
    if b"," in text:
        return "one label: multi-label svmlight is not supported; write a file per label, or name a CSV .csv"
    return "a number, the label, to begin the line; encode class names as 0, 1, 2, ..."


def _expected_pair(token: bytes) -> str:
    identity, colon, _ = token.partition(b":")
    if colon and identity.isdigit():
        return f"an id up to {LARGEST_ID} (2**63 - 2, the last column scipy can count); hash to 62 bits"
    if colon:
        return "decimal digits before the colon, as in 7:0.5; hash names to numbers first"
    return "'id:value', as in 7:0.5; put spaces between pairs and '#' before a comment"


def _writable(X: Any, y: ArrayLike) -> tuple[scipy.sparse.csr_array, NDArray[np.float64]]:
    """X and y as they will be written, checked before a file is opened: a refusal leaves none behind."""
    X = X if scipy.sparse.issparse(X) else np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise ValueError(
            f"X: got shape {X.shape} of {X.dtype}, expected rows x columns of real numbers; reshape or convert it"
        )
    narrow = X.dtype in (np.float16, np.float32)
    matrix = scipy.sparse.csr_array(X.astype(np.float32 if narrow else np.float64, copy=False))
    try:
        labels = np.asarray(y).astype(SUM)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y: got {np.asarray(y).dtype} labels, expected numbers; encode them first") from error
    if labels.shape != matrix.shape[:1] or not labels.size:
        raise ValueError(
            f"y: got shape {labels.shape} for X of shape {matrix.shape}, expected one label for each "
            "of at least one row; pass y as a vector as long as X"
        )
    with np.errstate(over="ignore"):
        for name, values in (("X", matrix.data.astype(MEMBERSHIP)), ("y", labels)):
            if np.isinf(values).any():
                raise ValueError(
                    f"{name}: got a value that is infinite or too large to be read back, expected "
                    f"finite {values.dtype} numbers or nan; replace it or scale it down"
                )
    return matrix, labels


def _line(label: float, ids: NDArray[Any], values: NDArray[Any]) -> bytes:
    # numpy writes the shortest text of a float32; Python would write that of the float64 which equals it.
    texts = [repr(label), *values.astype(str).tolist()]
    first, *rest = (text.removesuffix(".0") for text in texts)
    pairs = (f" {identity}:{text}" for identity, text in zip(ids.tolist(), rest, strict=True))
    return f"{first}{''.join(pairs)}\n".encode("ascii")

"""The compiled parser of svmlight: from the bytes of whole lines to labels, ids and values.

It reads a number if float64 arithmetic is certain to round it as Python does; other numbers are recorded for Python.
"""

from __future__ import annotations

from typing import TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from gbun.dtypes import MEMBERSHIP

# A matrix has largest id + 1 columns, and scipy counts columns in int64.
LARGEST_ID = 2**63 - 2

# Correctly rounded, and exact up to 10**22.
_POWERS = np.array([float(f"1e{power}") for power in range(81)])

# The result for a number: exact; with a relative error up to 2**-50; left to Python.
_EXACT, _CLOSE, _HARD = 0, 1, 2

_TAB, NEWLINE, _RETURN, _SPACE, _HASH = 9, 10, 13, 32, 35
_PLUS, _MINUS, _POINT, _ZERO, COLON = 43, 45, 46, 48, 58

_Text: TypeAlias = NDArray[np.uint8]
_jit = numba.njit(cache=True, nogil=True)


@_jit
def parse_block(
    text: _Text,
    labels: NDArray[np.float64],
    ends: NDArray[np.int64],
    ids: NDArray[np.int64],
    values: NDArray[np.float32],
) -> tuple[int, int, NDArray[np.int64], int]:
    """Fill the arrays from whole lines, up to the first token that is not a pair, at text[at].

    Returns the number of rows, the number of pairs, (place, start, end) of each number left to Python, and at.
    """
    hard, n_hard = np.empty((16, 3), np.int64), 0
    at, n, n_pairs, in_row = 0, 0, 0, False
    while at < text.size:
        at = _find_token_start(text, at)
        if text[at] == NEWLINE:
            if in_row:
                ends[n] = n_pairs
                n += 1
            at, in_row = at + 1, False
        elif in_row and _is_query(text, at):
            at = find_token_end(text, at)
        else:
            start, place = at, ~n
            if in_row:
                start, place = _parse_id(text, at, ids, n_pairs), n_pairs
                if start < 0:
                    break
                at, kind, values[n_pairs] = _parse_value(text, start)
                n_pairs += 1
            else:
                at, kind, labels[n] = _parse_number(text, start)
                in_row = True
            if kind != _EXACT:
                at = find_token_end(text, at)
                hard, n_hard = _append_hard(hard, n_hard, place, start, at), n_hard + 1
    return n, n_pairs, hard[:n_hard], at


@_jit
def _append_hard(hard: NDArray[np.int64], n_hard: int, place: int, start: int, stop: int) -> NDArray[np.int64]:
    if n_hard == hard.shape[0]:
        grown = np.empty((2 * n_hard, 3), np.int64)
        for i in range(n_hard):  # numba compiles a slice assignment, and its error text, for four seconds
            for j in range(3):
                grown[i, j] = hard[i, j]
        hard = grown
    hard[n_hard, 0], hard[n_hard, 1], hard[n_hard, 2] = place, start, stop
    return hard


@_jit
def _is_separator(byte: int) -> bool:
    return (byte <= _SPACE and (byte == _SPACE or _TAB <= byte <= _RETURN)) or byte == _HASH


@_jit
def _find_token_start(text: _Text, at: int) -> int:
    """Find the next token of this line, or the line's end. The text ends with a line end, so no scan overruns."""
    while text[at] != NEWLINE and text[at] != _HASH and _is_separator(text[at]):
        at += 1
    if text[at] == _HASH:
        while text[at] != NEWLINE:
            at += 1
    return at


@_jit
def find_token_end(text: _Text, at: int) -> int:
    while not _is_separator(text[at]):
        at += 1
    return at


@_jit
def _is_query(text: _Text, at: int) -> bool:
    """Return whether a token begins with qid: (113, 105, 100, 58)."""
    return bool(text[at] == 113 and text[at + 1] == 105 and text[at + 2] == 100 and text[at + 3] == COLON)


@_jit
def _parse_id(text: _Text, at: int, ids: NDArray[np.int64], place: int) -> int:
    """Read the id before a colon into its place; return where the value begins, or -1 if there is no valid id."""
    identity, colon = 0, at
    while _ZERO <= text[colon] < COLON:
        digit = int(text[colon]) - _ZERO
        if identity >= LARGEST_ID // 10 and (identity > LARGEST_ID // 10 or digit > LARGEST_ID % 10):
            return -1
        identity, colon = 10 * identity + digit, colon + 1
    ids[place] = identity
    return colon + 1 if text[colon] == COLON and colon > at else -1


@_jit
def _parse_value(text: _Text, at: int) -> tuple[int, int, np.float32]:
    """Return where a number ends, its kind, and the number as float32.

    A close number is exact in float32 if both ends of its error range round to the same.
    """
    at, kind, value = _parse_number(text, at)
    if abs(value) > 3e38:  # near or beyond the end of float32
        return at, _HARD, MEMBERSHIP(0.0)
    if kind == _CLOSE and MEMBERSHIP(value * (1 - 2.0**-50)) == MEMBERSHIP(value * (1 + 2.0**-50)):
        kind = _EXACT
    return at, kind, MEMBERSHIP(value)


@_jit
def _parse_number(text: _Text, at: int) -> tuple[int, int, float]:
    """Return where [sign] digits [. digits] [e [sign] digits] ends, its kind and value; other text is hard."""
    sign = -1.0 if text[at] == _MINUS else 1.0
    if text[at] == _MINUS or text[at] == _PLUS:
        at += 1
    stop, mantissa, power = _parse_digits(text, at, 0)
    n_digits, at = stop - at, stop
    if text[at] == _POINT:
        stop, mantissa, dropped = _parse_digits(text, at + 1, mantissa)
        fraction = stop - at - 1
        n_digits, power, at = n_digits + fraction, power - fraction + dropped, stop
    if n_digits > 0 and (text[at] == 69 or text[at] == 101):  # E, e
        at, exponent = _parse_exponent(text, at + 1)
        power += exponent
    if n_digits == 0 or not _is_separator(text[at]) or abs(power) > 80:
        return at, _HARD, 0.0
    # sign * mantissa * 10**power: with exact operands there is one rounding, otherwise up to four.
    value = sign * mantissa * _POWERS[power] if power >= 0 else sign * mantissa / _POWERS[-power]
    return at, (_EXACT if mantissa <= 2**53 and abs(power) <= 22 else _CLOSE), value


@_jit
def _parse_digits(text: _Text, at: int, mantissa: int) -> tuple[int, int, int]:
    """Append digits to `mantissa`; return where they end, the number, and how many digits were dropped."""
    dropped = 0
    while _ZERO <= text[at] < COLON:
        if mantissa < 10**17:
            mantissa = 10 * mantissa + int(text[at]) - _ZERO
        else:
            dropped += 1
        at += 1
    return at, mantissa, dropped


@_jit
def _parse_exponent(text: _Text, at: int) -> tuple[int, int]:
    """Return where the exponent ends and its value; a missing one is as hard as one of 18 digits."""
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    stop, size, _ = _parse_digits(text, at, 0)
    if stop == at:
        size = 10**17
    return stop, -size if negative else size

"""Mutations of bytes, and of what bytes hold: JSON values, arrays, archives, model files.

A mutation is a function (random, data, other, tokens) -> bytes: `other` is another input of the same target, and
`tokens` are texts that mean something to it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from gbun.model_io.container import KEY, seal

MAX_SIZE = 2**16  # bytes of an input; seeds may be larger
Mutation = Callable[[Random, bytes, bytes, Sequence[bytes]], bytes]

INTEGERS = [
    0,
    1,
    2,
    3,
    7,
    255,
    256,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
NUMBERS = [*INTEGERS, *(-n for n in INTEGERS), 10**30, 10**400, 0.5, -1.5, 1e-320, 1e308, float("nan"), float("inf")]
TEXTS = ["", "a", "0", "\0", "\ud800", "é", "\U0001f600", "tensor", "a" * 300, "9" * 5000, "nan", "..", "None"]
DTYPES = ["?", "u1", "i1", "<i2", "<i4", "<i8", "<u8", ">i4", "<f2", "<f4", "<f8", "<c8", "S3", "<U2", "<M8[s]"]
CODECS = {b"\x1f\x8b": gzip, b"BZh": bz2, b"\xfd7zXZ\0": lzma}


def mutate_bytes(random: Random, data: bytes, other: bytes, tokens: Sequence[bytes]) -> bytes:
    """Change one to eight places, or put the beginning of an input before the end of another."""
    result = bytearray(data)
    if random.random() < 0.1:
        result = bytearray(data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :])
    for _ in range(min(8, int(random.expovariate(0.6)) + 1)):
        at = random.randrange(len(result) + 1)
        end = min(len(result), at + int(random.expovariate(0.05)) + 1)
        match random.randrange(10):
            case 0 if result:
                result[at - 1] ^= 1 << random.randrange(8)
            case 1 if result:
                result[at - 1] = random.choice(b"\0\1\x7f\x80\xff \n,.:\"'-") if random.random() < 0.5 else at % 256
            case 2:
                size = random.choice((1, 2, 4, 8))
                number = (random.choice(INTEGERS) + random.choice((-1, 0, 0, 1))) % 256**size
                result[at : at + size] = number.to_bytes(size, random.choice(("little", "big")))
            case 3:
                del result[at:end]
            case 4:
                result[at:at] = result[at:end] * random.choice((1, 1, 2, 50))
            case 5:
                result[at:at] = random.randbytes(end - at)
            case 6 if tokens:
                result[at : random.choice((at, end))] = random.choice(tokens)
            case 7:
                first = random.randint(0, len(other))
                result[at:end] = other[first : first + end - at]
            case 8 if numbers := list(re.finditer(rb"\d+(\.\d*)?", result[at : at + 200])):
                first, last = random.choice(numbers).span()
                result[at + first : at + last] = str(random.choice(NUMBERS)).encode()
            case 9 if random.random() < 0.3:
                del result[random.choice((at, -1)) :]
    return bytes(result[:MAX_SIZE])


def mutate_json(random: Random, data: bytes, other: bytes, tokens: Sequence[bytes]) -> bytes:
    """Change values of one of the lines of JSON."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    try:
        if random.random() < 0.8:
            value = json.loads(lines[at])
            lines[at] = json.dumps(mutate_value(random, value)).encode()
            return b"\n".join(lines)[:MAX_SIZE]
    except (ValueError, RecursionError):
        pass
    return mutate_bytes(random, data, other, tokens)


def mutate_value(random: Random, value: Any) -> Any:
    """Change one to four nodes of a parsed JSON value, in place."""
    root = [value]
    for _ in range(min(4, int(random.expovariate(1.0)) + 1)):
        nodes = list(_walk(root))
        parent, key = random.choice(nodes)
        match random.randrange(8):
            case 0 | 1:
                parent[key] = random.choice(NUMBERS)
            case 2:
                parent[key] = random.choice([None, True, False, [], {}, [[]], {"": 0}, ["a", "b"], *TEXTS])
            case 3:
                source, name = random.choice(nodes)
                parent[key] = json.loads(json.dumps(source[name]))
            case 4 if parent is not root:
                del parent[key]
            case 5 if isinstance(parent, dict):
                parent[random.choice(TEXTS + list(parent))] = parent.pop(key)
            case 6:
                parent[key] = [parent[key]] * random.choice((1, 1, 2, 100))
            case 7 if random.random() < 0.1:
                for _ in range(500):
                    parent[key] = [parent[key]]
    return root[0]


def _walk(parent: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    for key, item in list(parent.items() if isinstance(parent, dict) else enumerate(parent)):
        yield parent, key
        if isinstance(item, (dict, list)) and depth < 20:
            yield from _walk(item, depth + 1)


def mutate_arrays(random: Random, arrays: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Change values, dtypes, shapes or names of one to three arrays."""
    arrays = dict(arrays)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        name = random.choice([*arrays, "X"])
        array = arrays.get(name, np.zeros(random.choice(((), 0, 3, (2, 2)))))
        match random.randrange(8):
            case 0 | 1 | 2 if array.size and array.dtype.kind in "biufc":
                array = array.copy(order="K")
                number = random.choice(NUMBERS) if random.random() < 0.6 else random.randint(-3, 30)
                try:
                    array.flat[random.randrange(array.size)] = number
                except OverflowError:
                    array.reshape(-1).view(np.uint8)[-1:] = 255
            case 3:
                array = array.view("u1").astype(random.choice(DTYPES[:12])) if array.ndim else array.astype("S")
            case 4:
                array = array.astype(random.choice(DTYPES[:12])) if array.dtype.kind in "biuf" else array
            case 5:
                length = random.choice((0, 1, max(0, array.size - 1), array.size + 1, array.size))
                shape = random.choice([(length,), (length, 1), (1, length), (length, 0), (1, 1, length)])
                array = np.resize(array, shape)
            case 6:
                arrays.pop(name, None)
                name = random.choice([*arrays, *names, "other"])
            case 7:
                array = np.asfortranarray(array.T)
        if random.random() < 0.97:
            arrays[name] = array
    return arrays


def mutate_text(random: Random, data: bytes, other: bytes, tokens: Sequence[bytes]) -> bytes:
    """Change text, which may be compressed: then what is compressed, or the archive."""
    codec = next((codec for magic, codec in CODECS.items() if data.startswith(magic)), None)
    if codec is None or random.random() < 0.4:
        return mutate_bytes(random, data, other, tokens)
    try:
        content = codec.decompress(data)[: 4 * MAX_SIZE]
    except Exception:  # a seed that is broken already
        return mutate_bytes(random, data, other, tokens)
    options = {"preset": 0} if codec is lzma else {"compresslevel": 1}
    return codec.compress(mutate_bytes(random, content, other, tokens), **options)


def mutate_npz(random: Random, data: bytes, other: bytes, tokens: Sequence[bytes]) -> bytes:
    """Change the arrays of an archive, or its bytes."""
    try:
        if random.random() < 0.6:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                arrays = mutate_arrays(
                    random, dict(archive), ("X", "y", "weight", "data", "indices", "indptr", "shape")
                )
            content = io.BytesIO()
            (np.savez_compressed if random.random() < 0.2 else np.savez)(content, **arrays)
            return content.getvalue()
    except Exception:  # a seed that is broken already
        pass
    return mutate_bytes(random, data, other, tokens)


def mutate_model(random: Random, data: bytes, other: bytes, tokens: Sequence[bytes]) -> bytes:
    """Change the header or the tensors and make the digest right again, or change the directory, or the bytes."""
    try:
        size = 8 + int.from_bytes(data[:8], "little")
        directory, choice = json.loads(data[8:size]), random.random()
        if choice < 0.1:
            text = json.dumps(mutate_value(random, directory)).encode()
            return len(text).to_bytes(8, "little") + text + data[size:]
        if choice < 0.85:
            header, tensors = json.loads(directory["__metadata__"][KEY]), load(data)
            header.pop("digest", None)
            if random.random() < 0.7:
                header = mutate_value(random, header)
            if random.random() < 0.4:
                tensors = mutate_arrays(random, tensors, ("start", "heads", "classes", "linear.weights", "sparse.ids"))
            tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
            return save(tensors, {KEY: _seal_anything(header, tensors)})
    except Exception:  # a seed that is broken already, or a dtype that tensors cannot have
        pass
    return mutate_bytes(random, data, other, tokens)


def _seal_anything(header: Any, tensors: dict[str, Any]) -> str:
    try:
        return seal(header, tensors)
    except (ValueError, TypeError):  # NaN has no digest, and only an object has keys
        return json.dumps(header, sort_keys=True, separators=(",", ":"))

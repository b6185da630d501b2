"""What of gbun reads bytes that it did not make, and which exceptions it documents.

A further target is one more entry of `TARGETS`; seeds of its own are the files of tests/fuzz/corpus/NAME.
"""

from __future__ import annotations

import atexit
import json
import shutil
import socket
import tempfile
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from gbun.agreement import _merge_forms, decide_at_root
from gbun.collectives import WorkerError, channels, store
from gbun.collectives.channels import CODE, HEADER, NONCE, Channel
from gbun.collectives.health import Health
from gbun.collectives.links import Link, read_address
from gbun.collectives.store import StoreClient, StoreServer
from gbun.collectives.tree import TreeCollective
from gbun.data.files import read_table
from gbun.data.npz import NpzReader
from gbun.data.streams import MAGIC_BYTES
from gbun.data.worker_files import read_share
from gbun.model_io import read_model, read_model_bytes
from gbun.spark import progress
from tests.fuzz.mutations import MAX_SIZE, mutate_bytes, mutate_json, mutate_model, mutate_npz, mutate_text
from tests.fuzz.runner import Target

SECRET = b"the secret of this job, 32 bytes"
PATIENCE = 60.0
HONEST = (b"", b"first", b"", b"x" * 300)  # what the honest end of a handshake sends


# Files


@cache
def folder() -> Path:
    """A folder of this process, in memory where the system has such a place."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="gbun-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def write(name: str, data: bytes) -> Path:
    path = folder() / name
    path.write_bytes(data)
    return path


def names_file(error: BaseException) -> bool:
    """Whether this is a ValueError that begins with a path, or with an argument that the file does not fit."""
    beginnings = (str(folder()), "target: got", "weight: got")
    return isinstance(error, ValueError) and str(error).startswith(beginnings) and str(folder()) in str(error)


def choose(data: bytes, *options: Any) -> Any:
    """Choose an option by the content, so that an input alone can be tried again."""
    return options[zlib.crc32(data) % len(options)]


def read_data(name: str, data: bytes) -> None:
    path = write(name, data)
    share = choose(data, (0, 1), (0, 1), (0, 1), (0, 2), (1, 2), (2, 3)) if can_be_shared(path, data) else (0, 1)
    read_table(path, share=share)


def can_be_shared(path: Path, data: bytes) -> bool:
    """Whether several workers may read one file: not compressed text, nor sparse matrices whose rows lie apart."""
    if path.suffix != ".npz":
        return not data.startswith(tuple(MAGIC_BYTES.values()))
    try:
        with NpzReader(path) as archive:
            return archive.sparse_format in (None, "csr")
    except Exception:  # whatever it is: the target itself tells which errors are documented
        return True


def read_csv(data: bytes) -> None:
    options = choose(data, {}, {"target": "y"}, {"target": "y", "weight": "w"}, {"text": ["a"]}, {"share": (1, 2)})
    read_table(write("rows.csv", data), **options)


def read_labels(data: bytes) -> None:
    X = folder() / "X.npz"
    if not X.exists():
        np.savez(X, X=np.ones((3, 2)))
    read_table(X, labels=write("labels.npy", data), share=choose(data, (0, 1), (1, 2)))


def join_files(data: bytes) -> None:
    first = write("first.csv", b"a,b,y\n1,x,0\n2,,1\n")
    read_share([first, write("second.csv", data)], 0, 1, target="y")


def read_a_model(data: bytes) -> None:
    if choose(data, True, *[False] * 9):
        read_model(write("m.gbun", data))
    else:
        read_model_bytes(data, folder() / "m.gbun")


# Connections


class Tape:
    """A socket that reads from bytes, and keeps what is sent."""

    def __init__(self, incoming: bytes) -> None:
        self.recv_into, self.sent = BytesIO(incoming).readinto, bytearray()

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def settimeout(self, seconds: float) -> None: ...

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...


def fixed_nonces() -> Any:
    """Without chance, a recorded stream of an honest end is accepted again."""
    return patch.object(channels, "secrets", SimpleNamespace(token_bytes=bytes))


def make_stream(purpose: str, name: str, contents: Sequence[bytes], from_server: bool = False) -> bytes:
    """Return all bytes that one honest end of a connection sends."""
    tape = Tape(bytes(NONCE) + bytes([len(name)]) + name.encode())
    with fixed_nonces():
        channel = Channel(tape, SECRET, purpose, None if from_server else name, PATIENCE)  # type: ignore[arg-type]
    for content in contents:
        channel.send(content)
    return bytes(tape.sent)


def split_stream(stream: bytes, at: int) -> list[bytes]:
    """Return the contents of the messages from byte `at` on, as far as they are whole."""
    contents = []
    while at + HEADER + CODE <= len(stream):
        end = at + HEADER + CODE + int.from_bytes(stream[at : at + HEADER], "little")
        contents.append(stream[at + HEADER + CODE : end])
        at = end
    return contents


def mutate_stream(
    purpose: str, from_server: bool, random: Random, data: bytes, other: bytes, tokens: Sequence[bytes]
) -> bytes:
    """Change messages and make their codes right again, or change the bytes."""
    start = NONCE + (not from_server)
    contents = split_stream(data, start)
    if random.random() < 0.25 or not contents:
        return mutate_bytes(random, data, other, tokens)
    at = random.randrange(len(contents))
    match random.randrange(5):
        case 0:
            contents.insert(at, random.choice(split_stream(other, start) or [b"null"]))
        case 1:
            del contents[at]
        case _:
            contents[at] = mutate_json(random, contents[at], b"".join(split_stream(other, start)), tokens)
    return make_stream(purpose, "", contents, from_server)[:MAX_SIZE]


def open_channel(stack: ExitStack, data: bytes, purpose: str, name: str | None) -> Channel:
    """Return an end of a connection whose other end sends these bytes; `name` is that of a client."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        stack.callback(end.close)
    theirs.sendall(data)
    theirs.shutdown(socket.SHUT_WR)
    with fixed_nonces():
        return Channel(ours, SECRET, purpose, name, PATIENCE)


def receive_messages(name: str | None, data: bytes) -> None:
    """Nothing but the honest end's messages may be accepted, in their order."""
    with ExitStack() as stack:
        channel = open_channel(stack, data, "fuzz", name)
        for content in HONEST:
            if channel.receive(400) != content:
                raise AssertionError("a message that nobody sent was accepted")


@cache
def store_server() -> StoreServer:
    return StoreServer("127.0.0.1", SECRET)


def ask_store(data: bytes) -> None:
    """Send bytes to a store; whatever they are, it keeps texts only, and goes on."""
    server = store_server()
    server._values.clear()
    with fixed_nonces(), socket.create_connection(server.address) as client, suppress(OSError):
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        while client.recv(2**16):
            pass
    for thread in threading.enumerate():
        if thread.name == "gbun-greeting":
            thread.join()
    if not all(isinstance(text, str) for pair in server._values.items() for text in pair):
        raise AssertionError("the store keeps what is no text")


def read_answers(data: bytes) -> None:
    """Let a client of the store read the bytes of a server."""
    with ExitStack() as stack:
        client: Any = StoreClient.__new__(StoreClient)
        client._lock, client._channel = threading.Lock(), open_channel(stack, data, store.PURPOSE, "")
        client.set("key", "value")
        client.check(["key"])
        client.compare_set("key", "", "value")
        for keys in (["key"], ["key", "other"]):
            with suppress(KeyError):  # there is no value
                if not all(isinstance(value, bytes) for value in client.multi_get(keys)):
                    raise AssertionError("the client returns what is no text")


def receive_sums(data: bytes) -> None:
    """Let worker 0 of 2 read what worker 1 sends: sums in three formats, a broadcast, and vectors of any length."""
    with ExitStack() as stack:
        link: Any = Link.__new__(Link)
        link._channel = open_channel(stack, data, "sums", None)
        collective = TreeCollective(SimpleNamespace(rank=0, size=2, __getitem__=None))  # type: ignore[arg-type]
        collective._links = {1: link}  # type: ignore[assignment]
        with np.errstate(all="ignore"):
            collective.sum(np.ones(300), 0, [(290, "int16"), (8, "float32"), (2, "float64")])
        collective.broadcast(np.zeros(3), root=1)
        collective.gather(np.zeros(2, np.uint8))
        collective.gather(np.zeros(2))


def read_reports(data: bytes) -> None:
    """Let the driver of Spark read progress; a report is shown as text."""
    listener: Any = progress.ProgressListener.__new__(progress.ProgressListener)
    listener._closed, listener._on_report = False, str
    lines = iter(data.split(b"\n"))

    def receive(limit: int) -> bytearray:
        for line in lines:
            return bytearray(line)
        raise ConnectionError

    listener._read(SimpleNamespace(receive=receive, close=lambda: None))


# Messages


@cache
def health() -> Health:
    answers = SimpleNamespace(set=lambda *_: None, check=lambda keys: True, get=lambda key: health_records[-1])
    monitor = Health(answers, 0, 2, PATIENCE)  # type: ignore[arg-type]
    monitor._ended.set()
    return monitor


health_records: list[bytes] = [b""]


def read_failure(data: bytes) -> None:
    health_records[-1] = data
    failure = health()._read_failure()
    if failure is None or type(failure.rank) not in (int, type(None)) or type(failure.lost) is not bool:
        raise AssertionError("a failure is lost")


def agree(data: bytes) -> None:
    """Decide at the root from this message, or follow it as the decision of the root."""
    message = np.frombuffer(data, np.uint8)
    form = {"rows": 2, "kind": "frame", "columns": 1, "names": ["a"], "categorical": [False], "missing": [False]}
    received = iter((np.array([len(data)]), message))
    root = SimpleNamespace(rank=0, size=2, gather=lambda own: [own, message], broadcast=lambda own: own)
    other = SimpleNamespace(rank=1, size=2, gather=lambda own: None, broadcast=lambda own: next(received))
    for collective in (other,) if data.startswith((b'{"result"', b'{"error"')) else (root,):
        decide_at_root(collective, form, _merge_forms)  # type: ignore[arg-type]


def raises(*kinds: type[BaseException]) -> Callable[[BaseException], bool]:
    return lambda error: isinstance(error, kinds)


JSON = tuple(
    json.dumps(value).encode() for value in ("set", "check", "multi_get", "compare_set", None, True, [], {}, 1e9)
)
SVM = (
    b"1 1:1\n",
    b" 7:0.5",
    b"qid:3",
    b"#",
    b"nan",
    b"-1e-400",
    b"inf",
    b"9223372036854775806:1",
    b"\r\n",
    b"1_0",
    b"0x1",
)
CSV = (
    b"a,b,y,w\n",
    b'"',
    b'""',
    b",,",
    b"\r",
    b"NA",
    b"\xef\xbb\xbf",
    b"\0",
    b"1e999",
    b"true",
    b"2020-01-01",
    b"\xff",
)
NPY = (
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"\x93NUMPY\x01\0",
    b"|O",
    b"<f8",
    b"(2, 2)",
    b"(-1,)",
    b"True",
    b"X.npy",
    b"format.npy",
)
MODEL = (b'"version":1', b'"F64"', b'"BF16"', b'"I4"', b'"shape":[', b"__metadata__", b"digest", b"null", b"\\ud800")

TARGETS = {
    "model": Target(read_a_model, names_file, mutate_model, MODEL, "golden/*.gbun"),
    "svmlight": Target(partial(read_data, "rows.svm"), names_file, mutate_text, SVM),
    "csv": Target(read_csv, names_file, mutate_text, CSV),
    "joined": Target(join_files, names_file, mutate_text, CSV),
    "parquet": Target(partial(read_data, "rows.parquet"), names_file, mutate_bytes, (b"PAR1", b"schema", b"pandas")),
    "npz": Target(partial(read_data, "rows.npz"), names_file, mutate_npz, NPY),
    "labels": Target(read_labels, names_file, mutate_bytes, NPY),
    "handshake_server": Target(partial(receive_messages, None), raises(ConnectionError), mutate_bytes),
    "handshake_client": Target(partial(receive_messages, "1"), raises(ConnectionError), mutate_bytes),
    "store_server": Target(ask_store, mutate=partial(mutate_stream, store.PURPOSE, False), tokens=JSON),
    "store_client": Target(
        read_answers, raises(ConnectionError), partial(mutate_stream, store.PURPOSE, True), tokens=JSON
    ),
    "sums": Target(receive_sums, raises(ConnectionError), partial(mutate_stream, "sums", False)),
    "progress": Target(read_reports, mutate=mutate_json, tokens=JSON),
    "failure": Target(read_failure, raises(WorkerError), mutate_json, JSON),
    "address": Target(read_address, raises(ConnectionError), mutate_json, JSON),
    "agreement": Target(agree, raises(ValueError, WorkerError), mutate_json, JSON),
}

"""A key-value store for the processes of one job, in which workers meet and report failures.

It has the methods of torch's stores that gbun uses, over authenticated connections: a process that does not know the
secret of the job reads and writes nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import sleep
from typing import Any, Protocol

from gbun.checks import brief, parse_strict_json
from gbun.collectives.channels import Address, Channel, Listener, connect

MESSAGE_LIMIT = 2**24  # bytes
POLL_INTERVAL = 0.02  # seconds
PURPOSE = "store"


class Store(Protocol):
    """What `gbun` needs of a store: one of torch, or a `StoreClient`."""

    def set(self, key: str, value: str, /) -> None: ...

    def get(self, key: str, /) -> bytes: ...

    def check(self, keys: list[str], /) -> bool:
        """Return whether all keys have values."""

    def multi_get(self, keys: list[str], /) -> list[bytes]: ...

    def compare_set(self, key: str, expected: str, value: str, /) -> bytes:
        """Set a value if the key has the expected one, or none at all; return the value it has then."""

    def clone(self) -> Any:
        """Return a client with a connection of its own: one that waits blocks all its other calls."""


def wait_for_keys(store: Store, keys: Sequence[str], is_over: Callable[[], bool] = lambda: False) -> None:
    """Wait until all keys have values, or until `is_over`."""
    while not is_over() and not store.check(list(keys)):
        sleep(POLL_INTERVAL)


def close_store(store: Store) -> None:
    """Close a client of ours; those of torch close with their last reference."""
    if isinstance(store, StoreClient):
        store.close()


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _read_message(message: bytearray) -> Any:
    return parse_strict_json(message.decode(), "the message")


def _read_request(message: bytearray) -> tuple[str, list[str]]:
    """Return an operation and its texts; anything else that a client sends gives a ValueError."""
    request = _read_message(message)
    match request:
        case ["check" | "multi_get" as operation, list(texts)]:
            pass
        case ["set" as operation, _, _] | ["compare_set" as operation, _, _, _]:
            texts = request[1:]
        case _:
            raise ValueError(f"no request: {brief(request)}")
    if not all(map(_is_text, texts)):
        raise ValueError(f"no request: {brief(request)}")
    return operation, texts


class StoreServer:
    """Keeps the values, in threads of this process."""

    def __init__(self, host: str, secret: bytes) -> None:
        self._values: dict[str, str] = {}
        self._lock = threading.Lock()
        self._listener = Listener(host, secret, PURPOSE, self._serve)
        self.address = self._listener.address

    def _serve(self, channel: Channel) -> None:
        with suppress(OSError, ValueError):  # the client is gone, or does not speak our language
            while True:
                operation, arguments = _read_request(channel.receive(MESSAGE_LIMIT))
                with self._lock:
                    answer = self._answer(operation, arguments)
                channel.send(json.dumps(answer).encode())
        channel.close()

    def _answer(self, operation: str, arguments: list[str]) -> Any:
        values = self._values
        if operation == "set":
            key, value = arguments
            values[key] = value
            return None
        if operation == "compare_set":
            key, expected, value = arguments
            if values.get(key, expected) == expected:
                values[key] = value
            return values[key]
        if operation == "check":
            return all(key in values for key in arguments)
        return [values.get(key) for key in arguments]

    def close(self) -> None:
        self._listener.close()
        self._listener.disconnect()


class StoreClient:
    """A connection to a `StoreServer`; several threads may use it.

    An answer may take `timeout` seconds. After one that did not come, the connection is closed.
    """

    def __init__(self, address: Address, secret: bytes, timeout: float) -> None:
        self._address, self._secret, self._timeout = address, secret, timeout
        self._lock = threading.Lock()
        self._channel = connect(address, secret, PURPOSE, timeout=timeout, wait=timeout)

    def set(self, key: str, value: str) -> None:
        self._ask(lambda answer: answer is None, "set", key, value)

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask(lambda answer: isinstance(answer, bool), "check", keys))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        def are_values(answer: Any) -> bool:
            is_list = isinstance(answer, list) and len(answer) == len(keys)
            return is_list and all(value is None or _is_text(value) for value in answer)

        values = self._ask(are_values, "multi_get", keys)
        if None in values:
            raise KeyError(keys[values.index(None)])
        return [value.encode() for value in values]

    def compare_set(self, key: str, expected: str, value: str) -> bytes:
        return str(self._ask(_is_text, "compare_set", key, expected, value)).encode()

    def clone(self) -> StoreClient:
        return StoreClient(self._address, self._secret, self._timeout)

    def set_timeout(self, timeout: float) -> None:
        self._channel.end_handshake(timeout)

    def close(self) -> None:
        self._channel.close()

    def _ask(self, is_answer: Callable[[Any], bool], *request: Any) -> Any:
        with self._lock:
            try:
                self._channel.send(json.dumps(request).encode())
                message = self._channel.receive(MESSAGE_LIMIT)
            except BaseException:  # a late answer must not be taken for that to the next request
                self._channel.close()
                raise
        try:
            answer = _read_message(message)
        except ValueError as error:
            raise ConnectionError(f"the store does not speak our language: {error}") from None
        if not is_answer(answer):
            raise ConnectionError(f"the store answered {brief(answer)}, which is no answer to {request[0]!r}")
        return answer

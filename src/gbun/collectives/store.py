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
                operation, *arguments = json.loads(bytes(channel.receive(MESSAGE_LIMIT)))
                with self._lock:
                    answer = self._answer(operation, *arguments)
                channel.send(json.dumps(answer).encode())
        channel.close()

    def _answer(self, operation: str, *arguments: Any) -> Any:
        values = self._values
        if operation == "set":
            values.update([arguments])
            return None
        if operation == "compare_set":
            key, expected, value = arguments
            if values.get(key, expected) == expected:
                values[key] = value
            return values[key]
        (keys,) = arguments
        return all(key in values for key in keys) if operation == "check" else [values.get(key) for key in keys]

    def close(self) -> None:
        self._listener.close()
        self._listener.disconnect()


class StoreClient:
    """A connection to a `StoreServer`; several threads may use it. An answer may take `timeout` seconds."""

    def __init__(self, address: Address, secret: bytes, timeout: float) -> None:
        self._address, self._secret, self._timeout = address, secret, timeout
        self._lock = threading.Lock()
        self._channel = connect(address, secret, PURPOSE, timeout=timeout, wait=timeout)

    def set(self, key: str, value: str) -> None:
        self._ask("set", key, value)

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask("check", keys))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        values = self._ask("multi_get", keys)
        if None in values:
            raise KeyError(keys[values.index(None)])
        return [value.encode() for value in values]

    def compare_set(self, key: str, expected: str, value: str) -> bytes:
        return str(self._ask("compare_set", key, expected, value)).encode()

    def clone(self) -> StoreClient:
        return StoreClient(self._address, self._secret, self._timeout)

    def set_timeout(self, timeout: float) -> None:
        self._channel.end_handshake(timeout)

    def close(self) -> None:
        self._channel.close()

    def _ask(self, *request: Any) -> Any:
        with self._lock:
            self._channel.send(json.dumps(request).encode())
            return json.loads(bytes(self._channel.receive(MESSAGE_LIMIT)))

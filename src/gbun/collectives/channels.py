"""Authenticated connections between the processes of one job.

Both ends of a connection prove that they know the secret of the job before anything else is read, and every message
carries a code that depends on the secret, on this connection, and on the messages before it. So nobody without the
secret can join a job, change a message, repeat one or leave one out. Messages are not encrypted.

    client -> server    nonce (32 bytes), length of its name (1 byte), name          server -> client    nonce
    key = BLAKE2b(secret; direction, nonces, name of the client, purpose of the connection)
    message = length (8 bytes), code (16 bytes), content    code = BLAKE2b(key; number of the message, length, content)

Each end says for itself what the connection is for. If they disagree, about a service, a training or a rank, their keys
differ, and the first message, which is empty, is refused.
"""

from __future__ import annotations

import secrets
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from random import random
from time import monotonic, sleep

NONCE, HEADER, CODE = 32, 8, 16  # bytes
FIRST_ALLOCATION = 2**24  # bytes for a message; more only as they come
HANDSHAKE_SECONDS = 10.0  # for a client to prove that it knows the secret
MAX_HANDSHAKES = 256  # under way at one time; then the oldest is dropped
ACCEPT_SECONDS = 0.5  # between looks whether a listener was closed
RETRY_SECONDS = 0.2  # about, between tries to connect
REFUSALS = 3  # of the secret, after which it is not tried again; a listener that is busy refuses, too
DEAD_PEER_SECONDS = 60  # without an answer of its system, after which the machine at the other end is given up
Address = tuple[str, int]


def make_secret() -> bytes:
    """Draw the secret of a job."""
    return secrets.token_bytes(32)


def read_secret(text: str | None) -> bytes | None:
    """Return the secret that a user gives as text of any length; None if it is empty."""
    return blake2b(text.encode(), digest_size=32).digest() if text else None


class AuthenticationError(ConnectionError):
    """The other end does not know the secret of the job, or a message was changed on its way."""


class Channel:
    """A connection whose messages are authenticated. One thread may send while another receives."""

    def __init__(
        self, connection: socket.socket, secret: bytes, purpose: str, name: str | None, seconds: float
    ) -> None:
        """Agree on keys within some seconds; `name` is that of the client, None at the server."""
        self._socket = connection
        self._deadline: float | None = monotonic() + seconds
        local = secrets.token_bytes(NONCE)
        if name is None:
            remote = bytes(self._read(NONCE))
            name = bytes(self._read(self._read(1)[0])).decode(errors="replace")
            connection.sendall(local)
            nonces, keys_of = remote + local, (1, 0)
        else:
            connection.sendall(local + bytes([len(name.encode())]) + name.encode())
            nonces, keys_of = local + bytes(self._read(NONCE)), (0, 1)
        self.name = name
        context = repr((name, purpose)).encode()
        keys = [blake2b(way + nonces + context, key=secret).digest() for way in (b"to server ", b"to client ")]
        self._send_key, self._receive_key = (keys[i] for i in keys_of)
        self._n_sent = self._n_received = 0

    def end_handshake(self, timeout: float | None) -> None:
        """Let every later wait take `timeout` seconds, or any time."""
        self._deadline = None
        self._socket.settimeout(timeout)

    def send(self, content: bytes | memoryview) -> None:
        header = len(content).to_bytes(HEADER, "little")
        code = _compute_code(self._send_key, self._n_sent, header, content)
        self._n_sent += 1
        if len(content) < 2**14:  # a copy is cheaper than a second call
            self._socket.sendall(b"".join((header, code, content)))
        else:
            self._socket.sendall(header + code)
            self._socket.sendall(content)

    def receive(self, limit: int) -> bytearray:
        """Return the next message, of at most `limit` bytes."""
        header = bytes(self._read(HEADER + CODE))
        header, code = header[:HEADER], header[HEADER:]
        length = int.from_bytes(header, "little")
        if length > limit:
            raise ConnectionError(f"a message of {length} bytes came, expected at most {limit}")
        content = self._read(length)
        if not compare_digest(code, _compute_code(self._receive_key, self._n_received, header, content)):
            raise AuthenticationError("a message is not from a worker of this job, or was changed on its way")
        self._n_received += 1
        return content

    def _read(self, length: int) -> bytearray:
        content, at = bytearray(min(length, FIRST_ALLOCATION)), 0
        while at < length:
            if at == len(content):  # memory grows with what came, whatever length a header states
                content += bytes(min(length - at, at))
            if self._deadline is not None:  # one limit for the whole handshake, however slowly bytes come
                self._socket.settimeout(max(self._deadline - monotonic(), 1e-3))
            count = self._socket.recv_into(memoryview(content)[at:])
            if not count:
                raise ConnectionError("the connection was closed")
            at += count
        return content

    def close(self) -> None:
        close_socket(self._socket)


def close_socket(connection: socket.socket) -> None:
    with suppress(OSError):  # it may be closed by the other end
        connection.shutdown(socket.SHUT_RDWR)  # ends a `recv` of another thread
    connection.close()


def _compute_code(key: bytes, number: int, header: bytes, content: bytes | bytearray | memoryview) -> bytes:
    code = blake2b(header, digest_size=CODE, key=key, salt=number.to_bytes(16, "little"))
    code.update(content)
    return code.digest()


def _prepare_socket(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * DEAD_PEER_SECONDS)


def connect(
    address: Address, secret: bytes, purpose: str, name: str = "", timeout: float = 60.0, wait: float | None = None
) -> Channel:
    """Connect to a `Listener` that knows the same secret and purpose.

    Parameters
    ----------
    address : (str, int)
        Host and port.
    secret : bytes
    purpose : str
    name : str
        Who this is, in at most 255 bytes.
    timeout : float
        Seconds within which a connection must be made. A listener that is busy may drop it: then it is tried again.
    wait : float, optional
        Seconds that any later message may take; None: no limit.
    """
    deadline, n_refused = monotonic() + timeout, 0
    while True:
        connection = socket.create_connection(address, max(deadline - monotonic(), 1e-3))
        channel = None
        try:
            _prepare_socket(connection)
            channel = Channel(connection, secret, purpose, name, deadline - monotonic())
            channel.send(b"")
            channel.receive(0)  # the server knows the secret, too
            channel.end_handshake(wait)
            return channel
        except OSError as error:
            connection.close()
            n_refused += channel is not None
            if n_refused == REFUSALS:
                raise AuthenticationError(f"{address[0]} port {address[1]} refused this process: {error}") from error
            if monotonic() > deadline:
                raise
            sleep(RETRY_SECONDS * (0.5 + random()))
        except BaseException:
            connection.close()
            raise


class Listener:
    """Accepts connections of those who know the secret; `on_connect(channel)` runs in a thread for each.

    A stranger can open a connection and gets 32 random bytes. It is dropped as soon as its first message is wrong, or
    after `HANDSHAKE_SECONDS`, or when too many others wait.
    """

    def __init__(self, host: str, secret: bytes, purpose: str, on_connect: Callable[[Channel], None]) -> None:
        self._secret, self._purpose, self._on_connect = secret, purpose, on_connect
        family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        self._socket = socket.create_server(address[:2], family=family, backlog=1024)
        self._socket.settimeout(ACCEPT_SECONDS)
        self.address: Address = (host, self._socket.getsockname()[1])
        self._lock, self._closed = threading.Lock(), False
        self._strangers: dict[socket.socket, None] = {}  # who have not proved anything yet, the oldest first
        self.connections: dict[Channel, threading.Thread] = {}  # whose `on_connect` runs
        threading.Thread(target=self._accept, name="gbun-listener", daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._greet, args=(connection,), name="gbun-greeting", daemon=True).start()
            except TimeoutError:
                continue
            except (OSError, RuntimeError):  # closed; or a client that went away, or no more files or threads just now
                sleep(0.0 if self._closed else ACCEPT_SECONDS)

    def _greet(self, connection: socket.socket) -> None:
        with self._lock:
            if self._closed:  # after it was accepted
                close_socket(connection)
                return
            if len(self._strangers) >= MAX_HANDSHAKES:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                close_socket(oldest)
            self._strangers[connection] = None
        channel = None
        try:
            _prepare_socket(connection)
            channel = Channel(connection, self._secret, self._purpose, None, HANDSHAKE_SECONDS)
            channel.receive(0)
            channel.end_handshake(None)
            with self._lock:
                if connection not in self._strangers:
                    raise ConnectionError("the connection was dropped")
                del self._strangers[connection]
                self.connections[channel] = threading.current_thread()  # before the other end knows
            channel.send(b"")
        except OSError:  # a stranger, or someone who went away
            with self._lock:
                self._strangers.pop(connection, None)
                if channel is not None:
                    self.connections.pop(channel, None)
            connection.close()
            return
        try:
            self._on_connect(channel)
        except BaseException:
            channel.close()  # so that nobody waits for an answer
            raise
        finally:
            with self._lock:
                del self.connections[channel]

    def close(self) -> None:
        """Accept no more connections and end handshakes; connections whose `on_connect` runs stay open."""
        with self._lock:
            self._closed = True
            strangers = list(self._strangers)
            self._strangers.clear()
        close_socket(self._socket)  # where a system does not end `accept` at once, that looks at the flag
        for stranger in strangers:
            close_socket(stranger)

    def disconnect(self) -> None:
        """Close all connections whose `on_connect` runs."""
        with self._lock:
            channels = list(self.connections)
        for channel in channels:
            channel.close()

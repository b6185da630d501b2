"""Authenticated connections between the processes of one job.

Both ends of a connection prove that they know the secret of the job before anything else is read, and every message
carries a code that depends on the secret, on this connection, and on the messages before it. So nobody without the
secret can join a job, change a message, repeat one or leave one out. Messages are not encrypted.

    client -> server    nonce of 32 bytes                   server -> client    nonce of 32 bytes
    key = BLAKE2b(secret, direction, both nonces)           one for each direction
    message = length (8 bytes), code (16 bytes), content    code = BLAKE2b(key, number of the message, length, content)
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest

NONCE, HEADER, CODE = 32, 8, 16  # bytes
HELLO_LIMIT = 256  # bytes of the first message, from someone who has proved nothing yet
HANDSHAKE_SECONDS = 30.0  # for the client to prove that it knows the secret
MAX_HANDSHAKES = 64  # under way at one time; further connections are closed at once
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

    def __init__(self, connection: socket.socket, secret: bytes, *, server: bool) -> None:
        self._socket = connection
        local = secrets.token_bytes(NONCE)
        connection.sendall(local)
        remote = bytes(self._read(NONCE))
        nonces = remote + local if server else local + remote  # the client's first
        keys = [blake2b(way + nonces, key=secret).digest() for way in (b"to the server", b"to the client")]
        self._send_key, self._receive_key = keys[::-1] if server else keys
        self._n_sent = self._n_received = 0

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
            raise AuthenticationError(f"a message of {length} bytes came, expected at most {limit}")
        content = self._read(length)
        if not compare_digest(code, _compute_code(self._receive_key, self._n_received, header, content)):
            raise AuthenticationError("a message is not from a worker of this job, or was changed on its way")
        self._n_received += 1
        return content

    def _read(self, length: int) -> bytearray:
        content = bytearray(length)
        rest = memoryview(content)
        while rest:
            count = self._socket.recv_into(rest)
            if not count:
                raise ConnectionError("the connection was closed")
            rest = rest[count:]
        return content

    def close(self) -> None:
        with suppress(OSError):  # it may be closed by the other end
            self._socket.shutdown(socket.SHUT_RDWR)  # ends a `receive` of another thread
        self._socket.close()


def _compute_code(key: bytes, number: int, header: bytes, content: bytes | bytearray | memoryview) -> bytes:
    code = blake2b(header, digest_size=CODE, key=key, salt=number.to_bytes(16, "little"))
    code.update(content)
    return code.digest()


def connect(address: Address, secret: bytes, hello: bytes, timeout: float) -> Channel:
    """Connect to a `Listener` and say who this is."""
    connection = socket.create_connection(address, timeout)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = Channel(connection, secret, server=False)
        channel.send(hello)
        channel.receive(0)  # the server knows the secret, too
    except BaseException:
        connection.close()
        raise
    connection.settimeout(None)
    return channel


class Listener:
    """Accepts connections of those who know the secret; `on_connect(hello, channel)` runs in a thread for each.

    A stranger can open a connection, and is dropped without an answer after `HANDSHAKE_SECONDS` or as soon as its
    first message is wrong.
    """

    def __init__(self, host: str, secret: bytes, on_connect: Callable[[bytes, Channel], None]) -> None:
        self._secret, self._on_connect = secret, on_connect
        family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        self._socket = socket.create_server(address[:2], family=family, backlog=1024)
        self.address: Address = (host, self._socket.getsockname()[1])
        self._handshakes = threading.BoundedSemaphore(MAX_HANDSHAKES)
        self.connections: list[tuple[threading.Thread, Channel]] = []  # of those who know the secret
        threading.Thread(target=self._accept, name="gbun-listener", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            if self._handshakes.acquire(blocking=False):
                threading.Thread(target=self._greet, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _greet(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(HANDSHAKE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = Channel(connection, self._secret, server=True)
            hello = bytes(channel.receive(HELLO_LIMIT))
            self.connections.append((threading.current_thread(), channel))  # before the other end knows
            channel.send(b"")
            connection.settimeout(None)
        except OSError:  # a stranger, or someone who went away
            connection.close()
            return
        finally:
            self._handshakes.release()
        self._on_connect(hello, channel)

    def close(self) -> None:
        """Accept no more connections; those that were accepted stay open."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._socket.close()

    def disconnect(self) -> None:
        """Close all connections."""
        for _, channel in self.connections:
            channel.close()

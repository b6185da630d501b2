"""The connections of a worker with all others: every pair of workers has one authenticated channel."""

from __future__ import annotations

import json
import os
import queue
import socket
import struct
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from ipaddress import ip_address

from gbun.collectives.channels import Address, Channel, Listener, connect
from gbun.collectives.store import Store, wait_for_keys


class Links:
    """Connects this worker with all others: those of higher rank connect to those of lower rank.

    `job` distinguishes trainings that have the same secret: a worker of another one is refused.
    """

    def __init__(self, rank: int, size: int, job: str = "") -> None:
        self.rank, self.size, self.job = rank, size, job
        self._links: dict[int, Link] = {}
        self._changed, self.closed = threading.Condition(), False

    def connect(self, store: Store, host: str, secret: bytes, timeout: float) -> None:
        """Wait until all workers are connected, or until `close` is called by another thread.

        Parameters
        ----------
        store : Store
            Where workers leave their addresses.
        host : str
            The address at which the others reach this worker, and the only one at which it listens.
        secret : bytes
            That of the job.
        timeout : float
            Seconds for a worker that has left its address to answer.
        """
        listener = Listener(host, secret, self._purpose(self.rank), lambda channel: self._add(channel.name, channel))
        try:
            store.set(f"address/{self.rank}", json.dumps(listener.address))
            for peer in range(self.rank):
                wait_for_keys(store, [f"address/{peer}"], lambda: self.closed)
                if self.closed:
                    return
                peer_host, port = read_address(store.get(f"address/{peer}"))
                _check_reachable(host, self.rank, peer_host, peer)
                purpose = self._purpose(peer)
                self._add(str(peer), connect((peer_host, port), secret, purpose, str(self.rank), timeout))
            with self._changed:
                self._changed.wait_for(lambda: self.closed or len(self._links) == self.size - 1)
        finally:
            listener.close()  # nobody else is expected

    def _purpose(self, server: int) -> str:
        return f"sums of {self.job!r} at rank {server} of {self.size}"

    def _add(self, name: str, channel: Channel) -> None:
        with self._changed:
            peer = int(name) if name.isdecimal() else -1
            if self.closed or peer in self._links or not 0 <= peer < self.size:
                channel.close()
                return
            self._links[peer] = Link(channel)
            self._changed.notify_all()

    def __getitem__(self, peer: int) -> Link:
        return self._links[peer]

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()
            links = list(self._links.values())
        for link in links:
            link.close()


def read_address(text: bytes) -> Address:
    """Read the address that a worker left in the store; a ConnectionError if it is none."""
    try:
        host, port = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        host, port = None, None
    if not isinstance(host, str) or type(port) is not int or not 0 < port < 2**16:
        raise ConnectionError(f"a worker left {text[:100]!r} in the store, expected its host and port")
    return host, port


def _check_reachable(host: str, rank: int, peer_host: str, peer: int) -> None:
    """Refuse a mixture of addresses of one machine and of several."""
    if is_loopback(host) != is_loopback(peer_host):
        raise ConnectionError(
            f"worker {rank} is at {host} and worker {peer} at {peer_host}: other machines cannot reach a loopback "
            "address; set GLOO_SOCKET_IFNAME to the network interface that all workers share"
        )


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.1.1"), is_loopback("10.0.0.1")
    (True, False)
    """
    return ip_address(socket.gethostbyname(host) if not host[:1].isdigit() and ":" not in host else host).is_loopback


class Link:
    """A channel to one worker. A thread sends its messages, in their order, while the worker goes on."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._queue: queue.SimpleQueue[tuple[memoryview, Future[None]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._send_queued, name="gbun-link", daemon=True).start()

    def _send_queued(self) -> None:
        while (item := self._queue.get()) is not None:
            content, sent = item
            try:
                self._channel.send(content)
                sent.set_result(None)
            except OSError as error:  # raised where the end of the sending is waited for
                sent.set_exception(error)

    def send(self, content: memoryview) -> Callable[[], None]:
        """Start to send; the function returned waits for the end. The content must not change before."""
        sent: Future[None] = Future()
        self._queue.put((content, sent))
        return sent.result

    def receive(self, length: int) -> bytearray:
        """Return the next message, which must have this length."""
        content = self._channel.receive(length)
        if len(content) != length:
            raise ConnectionError(f"a message of {len(content)} bytes came, expected {length}")
        return content

    def close(self) -> None:
        self._queue.put(None)
        self._channel.close()


def find_local_address(peer: str | None) -> str:
    """Return the address by which other machines reach this one.

    It is that of the network interface that GLOO_SOCKET_IFNAME names, as torch.distributed reads it, or the address
    from which this machine would send to `peer`, or that of its own name.

    >>> find_local_address("127.0.0.1")
    '127.0.0.1'
    """
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if interface:
        return _interface_address(interface)
    if peer is None:
        return socket.gethostbyname(socket.gethostname())
    family, *_, address = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
        probe.connect(address)
        return str(probe.getsockname()[0])


def _interface_address(name: str) -> str:
    """Return the IPv4 address of a network interface."""
    if sys.platform == "win32":
        raise ValueError(f"GLOO_SOCKET_IFNAME is not supported on Windows, got {name!r}; unset it")
    from fcntl import ioctl  # not on every system

    request = 0x8915 if sys.platform == "linux" else 0xC0206921  # SIOCGIFADDR
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = ioctl(any_socket, request, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            raise ValueError(f"GLOO_SOCKET_IFNAME must name a network interface, got {name!r}: {error}") from None
    return socket.inet_ntoa(answer[20:24])

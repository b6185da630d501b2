"""Connections of a job: whoever does not know its secret can neither join, read its store, nor change a message."""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import threading
from contextlib import suppress

import pytest

from gbun.collectives import channels
from gbun.collectives.channels import AuthenticationError, Channel, Listener, connect, make_secret
from gbun.collectives.links import Links, find_local_address
from gbun.collectives.store import StoreClient, StoreServer, wait_for_keys

HOST = "127.0.0.1"
PATIENCE = 60.0
SECRET = b"the secret of this job, 32 bytes"


@pytest.fixture
def pair():
    """The two ends of a channel, and the sockets below them."""
    sockets = socket.socketpair()
    ends = {}
    server = threading.Thread(target=lambda: ends.update(server=Channel(sockets[1], SECRET, "test", None, PATIENCE)))
    server.start()
    ends["client"] = Channel(sockets[0], SECRET, "test", "a client", PATIENCE)
    server.join()
    yield ends["client"], ends["server"], *sockets
    for end in sockets:
        end.close()


@pytest.fixture
def server():
    store = StoreServer(HOST, SECRET)
    yield store
    store.close()


@pytest.mark.parametrize("length", [0, 1, 2**14, 10**6])
def test_messages_arrive_as_they_were_sent(pair, length):
    client, server, *_ = pair
    message = os.urandom(length)
    for sender, receiver in ((client, server), (server, client)):
        thread = threading.Thread(target=sender.send, args=(message,))
        thread.start()
        assert receiver.receive(length) == message
        thread.join()


@pytest.mark.parametrize(
    "forge",
    [
        lambda message: message[:-1] + bytes([message[-1] ^ 1]),
        lambda message: message[:10] + bytes([message[10] ^ 1]) + message[11:],
        lambda message: bytes([message[0] - 1]) + message[1:-1],
        lambda message: os.urandom(len(message)),
    ],
    ids=["content", "code", "length", "all of it"],
)
def test_changed_message_is_refused(pair, forge):
    client, server, client_end, server_end = pair
    client.send(b"sums of a round")
    sent = server_end.recv(1000)
    client_end.sendall(forge(sent))
    with pytest.raises(ConnectionError, match=r"was changed on its way|expected at most"):
        server.receive(100)


def test_message_cannot_be_repeated_left_out_or_sent_back(pair):
    client, server, client_end, server_end = pair
    client.send(b"first")
    first = server_end.recv(1000)
    client.send(b"second")
    second = server_end.recv(1000)
    server_end.sendall(first)  # back to its sender
    with pytest.raises(AuthenticationError):
        client.receive(100)
    client_end.sendall(second)  # without the first
    with pytest.raises(AuthenticationError):
        server.receive(100)
    client_end.sendall(first + first)
    assert server.receive(100) == b"first"
    with pytest.raises(AuthenticationError):
        server.receive(100)


def test_length_is_limited_before_anything_is_allocated(pair):
    client, server, *_ = pair
    client.send(b"x" * 101)
    with pytest.raises(ConnectionError, match="101 bytes came, expected at most 100"):
        server.receive(100)


def test_wrong_secret_cannot_connect(server):
    with pytest.raises(ConnectionError):
        StoreClient(server.address, make_secret(), PATIENCE)
    StoreClient(server.address, SECRET, PATIENCE).set("key", "value")  # the store goes on


def test_client_does_not_talk_to_a_server_without_the_secret():
    stranger = StoreServer(HOST, make_secret())
    with pytest.raises(ConnectionError):
        StoreClient(stranger.address, SECRET, PATIENCE)
    stranger.close()


def test_strangers_do_not_keep_workers_out(server, monkeypatch):
    """The oldest stranger is dropped when there are too many; noise is dropped at once."""
    monkeypatch.setattr(channels, "MAX_HANDSHAKES", 8)
    silent = [socket.create_connection(server.address) for _ in range(20)]
    noisy = socket.create_connection(server.address)
    noisy.sendall(os.urandom(10_000))
    with suppress(ConnectionResetError):  # or the stream ends after the server's nonce
        while noisy.recv(1000):
            pass
    client = StoreClient(server.address, SECRET, PATIENCE)
    client.set("key", "value")
    assert client.get("key") == b"value"
    for connection in (*silent, noisy):
        connection.close()


def test_honest_clients_that_are_dropped_try_again(monkeypatch):
    """One is dropped when it connects, and as often as may be when it is about to prove that it knows the secret."""
    monkeypatch.setattr(channels, "RETRY_SECONDS", 0.0)
    dropped = itertools.count()

    class Busy(Listener):
        def _greet(self, connection):
            count = next(dropped)
            if count > channels.REFUSALS:
                super()._greet(connection)
                return
            if count > 1:
                connection.recv(channels.NONCE, socket.MSG_PEEK)
                connection.sendall(bytes(channels.NONCE))
            channels.close_socket(connection)

    listener = Busy(HOST, SECRET, "test", lambda channel: channel.send(b"welcome"))
    assert connect(listener.address, SECRET, "test", timeout=PATIENCE).receive(10) == b"welcome"
    listener.close()


@pytest.mark.parametrize("slowly", [False, True])
def test_handshake_has_one_deadline(monkeypatch, slowly):
    """Whether a stranger is silent, or sends a byte now and then."""
    clock = itertools.count(step=1.0)
    monkeypatch.setattr(channels, "monotonic", lambda: next(clock))
    monkeypatch.setattr(channels, "HANDSHAKE_SECONDS", 3.0)
    listener = Listener(HOST, SECRET, "test", lambda channel: None)
    with socket.create_connection(listener.address) as stranger, suppress(ConnectionError):
        while slowly:  # ends when the listener has dropped it
            stranger.sendall(b"x")
        assert stranger.recv(1000) == b""
    listener.close()


def test_disagreement_about_the_purpose_is_refused(server):
    with pytest.raises(AuthenticationError, match="refused this process"):
        connect(server.address, SECRET, "sums of 'another job' at rank 0 of 2", "1", PATIENCE)


def test_request_that_is_no_json_ends_the_connection(server):
    channel = connect(server.address, SECRET, "store", timeout=PATIENCE)
    channel.send(b"what?")
    with pytest.raises(ConnectionError):
        channel.receive(10)


def test_request_to_a_store_that_does_not_answer_ends():
    listener = Listener(HOST, SECRET, "store", lambda channel: asked.wait())  # frozen
    asked = threading.Event()
    client = StoreClient(listener.address, SECRET, PATIENCE)
    client.set_timeout(0.01)
    with pytest.raises(TimeoutError):
        client.get("key")
    asked.set()
    listener.close()


def test_late_answer_is_not_taken_for_that_to_the_next_request():
    late = threading.Event()

    def serve(channel):
        channel.receive(1000)
        late.wait()
        with suppress(OSError):
            channel.send(b"true")  # the answer to the first request
            channel.receive(1000)

    listener = Listener(HOST, SECRET, "store", serve)
    client = StoreClient(listener.address, SECRET, PATIENCE)
    client.set_timeout(0.01)
    with pytest.raises(TimeoutError):
        client.check(["first"])
    late.set()

    def ask_patiently():
        client.set_timeout(PATIENCE)
        return client.check(["second"])

    with pytest.raises(OSError, match=r"."):
        ask_patiently()
    listener.close()


def test_listener_that_closes_ends_handshakes_too():
    listener = Listener(HOST, SECRET, "test", lambda channel: None)
    with socket.create_connection(listener.address) as stranger:
        stranger.sendall(bytes(channels.NONCE) + b"\0")
        assert len(stranger.recv(channels.NONCE, socket.MSG_WAITALL)) == channels.NONCE  # it waits for a first message
        listener.close()
        with suppress(ConnectionResetError):
            assert stranger.recv(1) == b""


def test_store_waits_compares_and_checks(server):
    first = StoreClient(server.address, SECRET, PATIENCE)
    second = first.clone()
    reader = threading.Thread(target=wait_for_keys, args=(second, ["late"]))
    reader.start()
    first.set("late", "now")
    reader.join()
    assert second.get("late") == b"now"
    assert not first.check(["late", "never"])
    assert first.multi_get(["late"]) == [b"now"]
    with pytest.raises(KeyError, match="never"):
        first.get("never")
    assert first.compare_set("failure", "", "mine") == b"mine"
    assert second.compare_set("failure", "", "too late") == b"mine"
    wait_for_keys(first, ["never"], is_over=lambda: True)


def test_links_of_every_pair_and_none_of_a_stranger(server):
    size = 4
    store = StoreClient(server.address, SECRET, PATIENCE)
    links = [Links(rank, size) for rank in range(size)]
    threads = [threading.Thread(target=mine.connect, args=(store, HOST, SECRET, PATIENCE)) for mine in links]
    threads[0].start()
    wait_for_keys(store, ["address/0"])
    with pytest.raises(ConnectionError):
        connect(tuple(json.loads(store.get("address/0"))), make_secret(), links[1]._purpose(0), "1", PATIENCE)
    for name in ("99", "0x1", "-1"):  # no worker of this job
        channel = connect(tuple(json.loads(store.get("address/0"))), SECRET, links[1]._purpose(0), name, PATIENCE)
        with pytest.raises(ConnectionError):
            channel.receive(1)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    for a in range(size):
        for b in range(a):
            sent = links[a][b].send(memoryview(f"{a} to {b}".encode()))
            assert links[b][a].receive(6) == f"{a} to {b}".encode()
            sent()
    links[0][1].send(memoryview(b"longer"))
    with pytest.raises(ConnectionError):
        links[1][0].receive(5)
    for mine in links:
        mine.close()
    with pytest.raises(OSError, match=r"."):
        links[2][3].receive(1)


def test_connecting_ends_when_links_are_closed(server):
    """A worker that waits for one that failed gives up its port."""
    store, links = StoreClient(server.address, SECRET, PATIENCE), Links(0, 2)
    thread = threading.Thread(target=links.connect, args=(store, HOST, SECRET, PATIENCE))
    thread.start()
    wait_for_keys(store, ["address/0"])
    links.close()
    thread.join()
    with pytest.raises(OSError, match=r"."):
        socket.create_connection(tuple(json.loads(store.get("address/0")))).recv(1)


def test_secret_that_never_came_is_not_read_when_links_are_closed(server):
    distributed = pytest.importorskip("gbun.distributed")
    links = Links(1, 2)
    links.close()
    with pytest.raises(ConnectionError, match="closed before rank 0 had left the secret"):
        distributed._share_secret(StoreClient(server.address, SECRET, PATIENCE), links)


def test_workers_of_two_trainings_with_one_secret_do_not_meet(server):
    store = StoreClient(server.address, SECRET, PATIENCE)
    mine, other = Links(0, 2, "mine"), Links(1, 2, "other")
    thread = threading.Thread(target=mine.connect, args=(store, HOST, SECRET, PATIENCE))
    thread.start()
    with pytest.raises(AuthenticationError):
        other.connect(store, HOST, SECRET, PATIENCE)
    mine.close()
    thread.join()


def test_mixture_of_loopback_and_other_addresses_is_refused(server):
    store = StoreClient(server.address, SECRET, PATIENCE)
    store.set("address/0", json.dumps(["10.77.0.1", 9]))
    with pytest.raises(ConnectionError, match=r"worker 1 is at 127\.0\.0\.1 and worker 0 at 10\..* GLOO_SOCKET"):
        Links(1, 2).connect(store, HOST, SECRET, PATIENCE)


@pytest.mark.parametrize(
    ("interface", "expected"), [("", "127.0.0.1"), ("lo,eth9", "127.0.0.1"), ("nothing0", ValueError)]
)
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other names")
def test_local_address(monkeypatch, interface, expected):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    if expected is ValueError:
        with pytest.raises(ValueError, match="GLOO_SOCKET_IFNAME must name a network interface, got 'nothing0'"):
            find_local_address(HOST)
    else:
        assert find_local_address(HOST) == expected

"""Connections of a job: whoever does not know its secret can neither join, read its store, nor change a message."""

from __future__ import annotations

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
    server = threading.Thread(target=lambda: ends.update(server=Channel(sockets[1], SECRET, server=True)))
    server.start()
    ends["client"] = Channel(sockets[0], SECRET, server=False)
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
    with pytest.raises(AuthenticationError):
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
    with pytest.raises(AuthenticationError, match="101 bytes came, expected at most 100"):
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


def test_strangers_do_not_keep_workers_out(server):
    silent = [socket.create_connection(server.address) for _ in range(channels.MAX_HANDSHAKES - 1)]
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


def test_silent_strangers_are_dropped(monkeypatch):
    monkeypatch.setattr(channels, "HANDSHAKE_SECONDS", 0.01)
    listener = Listener(HOST, SECRET, lambda hello, channel: None)
    with socket.create_connection(listener.address) as silent:
        while silent.recv(1000):  # ends when the listener has dropped it
            pass
    listener.close()


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
        connect(tuple(json.loads(store.get("address/0"))), make_secret(), b"1", PATIENCE)
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

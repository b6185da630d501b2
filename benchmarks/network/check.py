"""Check the hosts: rates of TCP transfers, bytes of the counters, nothing left when they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from benchmarks.network.hosts import Hosts
from benchmarks.network.namespaces import Unavailable, namespaces, remove_leftovers
from benchmarks.report import Row, show

TOLERANCE, TRIES = 0.1, 3
COUNTED = 1.15  # headers are 4.5 %; many senders to one send some packets again
PORT = "5001"
RECEIVE = """
import selectors, socket, sys, time
address, port, senders = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
server, selector = socket.create_server((address, port)), selectors.DefaultSelector()
for connection in [server.accept()[0] for _ in range(senders)]:
    connection.sendall(b"go")
    selector.register(connection, selectors.EVENT_READ)
buffer, began, total = bytearray(1 << 20), None, 0
while selector.get_map():
    for key, _ in selector.select():
        n = key.fileobj.recv_into(buffer)
        if not n:
            selector.unregister(key.fileobj)
        elif began is None:
            began = time.perf_counter()
        else:
            total += n
print(total / (time.perf_counter() - began))
"""
SEND = """
import socket, sys, time
address, port, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for attempt in range(200):
    try:
        connection = socket.create_connection((address, port))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
connection.recv(2)
connection.sendall(bytes(n))
"""


def transfer(hosts: Hosts, n_bytes: int, senders: int, timeout: float = 120.0) -> float:
    """Bytes a second that host 0 receives from the `senders` next hosts, which send `n_bytes` in all."""
    share = n_bytes // senders
    commands = [[sys.executable, "-c", RECEIVE, hosts.addresses[0], PORT, str(senders)]]
    commands += [[sys.executable, "-c", SEND, hosts.addresses[0], PORT, str(share)] for _ in range(senders)]
    group = hosts.start(commands)
    try:
        rate = group.processes[0].communicate(timeout=timeout)[0]
        if any(process.wait(timeout) for process in group.processes):
            raise RuntimeError(f"a transfer failed: {[group.errors(i) for i in range(len(commands))]}")
    finally:
        group.close()
    return float(rate)


def check(hosts: Hosts, bandwidths: Sequence[float], seconds: float) -> list[Row]:
    """One sender, then all others at once. A busy machine gets further tries."""
    rows: list[Row] = []
    for bandwidth in bandwidths:
        hosts.limit(bandwidth)
        for senders in (1, len(hosts.names) - 1):
            for tries in range(1, TRIES + 1):
                row = measure_transfer(hosts, bandwidth, seconds, senders) | {"tries": tries}
                if row["good"]:
                    break
            rows.append(row)
    return rows


def measure_transfer(hosts: Hosts, bandwidth: float, seconds: float, senders: int) -> Row:
    n, before = int(bandwidth * seconds), hosts.counters()
    rate = transfer(hosts, n, senders)
    moved = [now.since(then) for now, then in zip(hosts.counters(), before, strict=True)]
    sent, received = sum(m.sent for m in moved[1 : 1 + senders]), moved[0].received
    return {
        "table": f"a transfer of {seconds:g} s to one host",
        "asked, bytes/s": bandwidth,
        "senders": senders,
        "measured, bytes/s": rate,
        "of the asked": rate / bandwidth,
        "counted / sent": sent / n,
        "counted / received": received / n,
        "good": abs(rate / bandwidth - 1.0) <= TOLERANCE and all(1.0 <= m / n <= COUNTED for m in (sent, received)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network.check", description=__doc__)
    parser.add_argument("--bandwidth", type=float, nargs="+", default=[1e6, 1e7], help="bytes a second")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each transfer")
    args = parser.parse_args()
    console = Console(width=160)
    try:
        leftovers = remove_leftovers()
        with Hosts(args.hosts) as hosts:
            rows = check(hosts, args.bandwidth, args.seconds)
    except Unavailable as error:
        print(f"benchmarks.network: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    show(rows, console)
    left = namespaces(hosts.prefix)
    console.print(f"leftovers of dead runs removed: {leftovers or 'none'}; left of this one: {left or 'nothing'}")
    raise SystemExit(0 if not left and all(row["good"] for row in rows) else 1)


if __name__ == "__main__":
    main()

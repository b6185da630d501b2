"""Hosts that are network namespaces: one interface each, of limited bandwidth, on a bridge they share.

The bridge has a namespace of its own, so the root namespace sees none of it, and nothing is routed out. A limit is a
token bucket at both ends of a host's cable, so it holds for what the host sends and for what it receives.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

from benchmarks.network.namespaces import (
    PREFIX,
    SECONDS,
    Unavailable,
    call,
    end_processes,
    missing,
    namespaces,
    remove,
    remove_leftovers,
    start_time,
)

INTERFACE = "eth0"  # of each host, in its namespace
BRIDGE = "br0"
MOST_HOSTS = 250
MTU = 1500
LEAST_BURST = 2 * (MTU + 14)  # what a bucket holds is not limited, so it must be small beside a message
FAST, LEAST_FAST_BURST = 3e7, 2 * 2**16  # from this rate on, packets are not cut before they are counted
LEAST_QUEUE = 4 * 2**20  # holds what many hosts send to one at a time: no packets are lost, as behind a good switch
SETTINGS = """
cd /proc/sys/net/ipv4
echo cubic > tcp_congestion_control || echo reno > tcp_congestion_control
echo 1 > tcp_no_metrics_save
"""  # the same on every machine, and nothing learnt at one bandwidth is used at the next


class Counters(NamedTuple):
    """Bytes of a host's interface, with headers."""

    received: int
    sent: int

    def since(self, before: Counters) -> Counters:
        return Counters(self.received - before.received, self.sent - before.sent)


class Group:
    """A process in each of these namespaces: pipes for stdin and stdout, a file for stderr."""

    def __init__(
        self, names: Sequence[str], commands: Sequence[Sequence[str]], env: Sequence[dict[str, str]], cwd: Path | None
    ) -> None:
        self.names = names
        self.processes: list[subprocess.Popen[str]] = []
        self._errors: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in names]  # noqa: SIM115 - until close()
        for name, command, variables, errors in zip(names, commands, env, self._errors, strict=True):
            process = subprocess.Popen(
                ["ip", "netns", "exec", name, *command],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **variables}, cwd=cwd,
                text=True, errors="replace", start_new_session=True,
            )  # fmt: skip
            self.processes.append(process)

    def errors(self, i: int) -> str:
        """What a process has written to stderr so far. Read without a seek: it writes where the file is at."""
        file = self._errors[i].fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

    def close(self) -> None:
        """End all that runs in the namespaces."""
        end_processes(self.names)
        for process in self.processes:
            process.kill()  # it may not yet have entered its namespace
            process.wait(SECONDS)
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):  # a line that nobody read
                    if stream is not None:
                        stream.close()
        for errors in self._errors:
            errors.close()


class Hosts:
    """`n` hosts as a context, at first without a limit of their bandwidth."""

    _numbers = count()

    def __init__(self, n: int) -> None:
        if not 1 <= n <= MOST_HOSTS:
            raise ValueError(f"n must be from 1 to {MOST_HOSTS}, got {n}")
        # The number distinguishes hosts that this process has at the same time.
        self.prefix = f"{PREFIX}-{os.getpid()}-{start_time(os.getpid())}-{next(self._numbers)}"
        self.names = [f"{self.prefix}-h{i}" for i in range(n)]
        self.addresses = [f"10.77.0.{i + 1}" for i in range(n)]
        self._bandwidth: float | None = None
        self._switch = f"{self.prefix}-sw"
        self._group: Group | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Hosts:
        why_not = missing()
        if why_not:
            raise Unavailable(why_not)
        self._handle_signals()
        atexit.register(self.close)  # where an interrupt comes between the lines of a with statement
        try:
            remove_leftovers()
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def limit(self, bandwidth: float | None) -> None:
        """Set the bytes a second of either direction of each host; None is no limit."""
        if bandwidth is None and self._bandwidth is None:
            return
        limit = "del dev {} root" if bandwidth is None else f"replace dev {{}} root {token_bucket(bandwidth)}"
        command = f"qdisc {limit}"
        call(["tc", "-n", self._switch, "-batch", "-"], [command.format(f"h{i}") for i in range(len(self.names))])
        for name in self.names:
            call(["tc", "-n", name, "-batch", "-"], [command.format(INTERFACE)])
        self._bandwidth = bandwidth

    def counters(self) -> list[Counters]:
        """Of each host, since it was built."""
        found = []
        for name in self.names:
            link = json.loads(call(["ip", "-n", name, "-s", "-j", "link", "show", "dev", INTERFACE]))[0]["stats64"]
            found.append(Counters(link["rx"]["bytes"], link["tx"]["bytes"]))
        return found

    def start(
        self, commands: Sequence[Sequence[str]], env: Sequence[dict[str, str]] | None = None, cwd: Path | None = None
    ) -> Group:
        """Start one process on each of the first hosts; `env` is added to the environment of this process.

        There is one group at a time: when it ends, all that runs on its hosts ends.
        """
        if self._group is not None:
            self._group.close()
        self._group = Group(self.names[: len(commands)], commands, env or [{}] * len(commands), cwd)
        return self._group

    def close(self) -> None:
        """End every process, remove every namespace; signals are ignored meanwhile."""
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)
        try:
            if self._group is not None:
                self._group.close()
            remove(namespaces(self.prefix))
            atexit.unregister(self.close)
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._handlers.clear()

    def _build(self) -> None:
        no_ipv6 = "link set {} addrgenmode none"  # so that counters stand still when nobody sends
        call(["ip", "-batch", "-"], [f"netns add {name}" for name in (self._switch, *self.names)])
        switch = [f"link add {BRIDGE} type bridge mcast_snooping 0", no_ipv6.format(BRIDGE), f"link set {BRIDGE} up"]
        for i, name in enumerate(self.names):
            switch.append(f"link add h{i} mtu {MTU} type veth peer name {INTERFACE} mtu {MTU} netns {name}")
            switch += [no_ipv6.format(f"h{i}"), f"link set h{i} master {BRIDGE} up"]
        call(["ip", "-n", self._switch, "-batch", "-"], switch)
        for name, address in zip(self.names, self.addresses, strict=True):
            commands = [f"address add {address}/24 dev {INTERFACE}", no_ipv6.format(INTERFACE)]
            commands += [f"link set {INTERFACE} up", "link set lo up"]
            call(["ip", "-n", name, "-batch", "-"], commands)
            call(["ip", "netns", "exec", name, "sh", "-c", SETTINGS])

    def _handle_signals(self) -> None:
        """SIGTERM and SIGHUP raise SystemExit, as SIGINT raises KeyboardInterrupt; Python allows it in one thread."""
        if threading.current_thread() is threading.main_thread():
            self._handlers = {
                number: signal.signal(number, lambda number, _: sys.exit(128 + number))
                for number in (signal.SIGTERM, signal.SIGHUP)
            }
            self._handlers[signal.SIGINT] = signal.getsignal(signal.SIGINT)


def token_bucket(bandwidth: float) -> str:
    """The queueing discipline, as tc reads it: a token bucket that holds a millisecond's bytes.

    >>> token_bucket(1e6)
    'tbf rate 8000000bit burst 3028 limit 4197332'
    """
    if not 1e4 <= bandwidth <= 4e9:
        raise ValueError(f"bandwidth must be from 10 KB/s to 4 GB/s, got {bandwidth}")
    burst = max(LEAST_BURST if bandwidth < FAST else LEAST_FAST_BURST, round(bandwidth / 1000))
    return f"tbf rate {round(8 * bandwidth)}bit burst {burst} limit {burst + max(LEAST_QUEUE, round(bandwidth / 20))}"

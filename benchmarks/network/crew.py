"""Workers, one on each host, that stay and do one job after the other together."""

from __future__ import annotations

import json
import selectors
import sys
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from benchmarks.network.hosts import INTERFACE, Hosts
from benchmarks.network.namespaces import GRACE
from benchmarks.report import read_bytes
from benchmarks.timing import Failed

ROOT = Path(__file__).resolve().parents[2]
START = 300.0  # seconds until all have imported torch, which on few cores takes a while, and have connected
LEAST_MEMORY = 1.2e9  # bytes; with less the system would end processes, and not only of these
LONGEST = 3000  # characters of what a worker said, where one failed
_ports = count(29500)


class Crew(AbstractContextManager["Crew"]):
    """`size` workers on the first hosts, as a context. If one does not answer in time, all end with `Failed`."""

    def __init__(self, hosts: Hosts, size: int) -> None:
        common = {
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": hosts.addresses[0],
            "MASTER_PORT": str(next(_ports)),
            "GLOO_SOCKET_IFNAME": INTERFACE,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "HOST_ADDRESSES": ",".join(hosts.addresses[:size]),
        }
        command = [sys.executable, "-m", "benchmarks.network.worker"]
        self.size = size
        self._group = hosts.start([command] * size, [{**common, "RANK": str(i)} for i in range(size)], ROOT)
        self._collect_answers(START)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def ask(self, job: dict[str, Any], timeout: float) -> dict[str, Any]:
        """The answer of rank 0, once all have answered."""
        return self.ask_all(job, timeout)[0]

    def ask_all(self, job: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
        """The answers of all, by rank."""
        for process in self._group.processes:
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(job) + "\n")
                process.stdin.flush()
            except OSError:  # it has ended, which is reported below
                break
        return self._collect_answers(timeout)

    def close(self) -> None:
        self._group.close()

    def _collect_answers(self, timeout: float) -> list[dict[str, Any]]:
        """A line from each worker; a worker that ends, late answers and little memory are failures."""
        deadline, lines = monotonic() + timeout, [""] * self.size
        with selectors.DefaultSelector() as selector:
            for rank, process in enumerate(self._group.processes):
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ, rank)
            while selector.get_map():
                for key, _ in selector.select(0.5):
                    rank, lines[key.data] = key.data, key.fileobj.readline()  # type: ignore[union-attr]
                    if not lines[rank]:
                        code, words = self._group.processes[rank].poll(), self._group.errors(rank).strip().splitlines()
                        last = f"exit code {code}: {words[-1][:200] if words else 'no message'}"
                        # A table takes [...] for a style.
                        self._fail(f"worker {rank} ended, {last.translate(str.maketrans('[]', '()'))}")
                    selector.unregister(key.fileobj)
                waiting = len(selector.get_map())
                if waiting and monotonic() > deadline:
                    self._fail(f"{waiting} of {self.size} workers did not answer in {timeout:.0f} s")
                if waiting and (read_bytes("/proc/meminfo", "MemAvailable") or 0) < LEAST_MEMORY:
                    least = f"{LEAST_MEMORY / 1e9:.1f} GB"
                    self._fail(f"out of memory: {self.size} workers left less than {least}", verbose=False)
        return [dict(json.loads(line)) for line in lines]

    def _fail(self, why: str, verbose: bool = True) -> None:
        peak = max(read_bytes(f"/proc/{process.pid}/status", "VmHWM") or 0 for process in self._group.processes)
        if verbose:
            sleep(GRACE)  # for the other workers to write their errors
        for rank in range(self.size if verbose else 0):
            print(f"worker {rank}:\n{self._group.errors(rank)[-LONGEST:]}", file=sys.stderr)
        self.close()
        raise Failed(f"{why}; a worker had at most {peak / 1e6:,.0f} MB" if peak else why)

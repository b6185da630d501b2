"""What the hosts of test_strangers.py run: workers of a job, which end after the stranger has tried to disturb it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from time import sleep
from types import SimpleNamespace

from gbun import distributed
from gbun.collectives.channels import connect, make_secret
from tests.spark.arrow_batches import X, Y, dense_batches, job

DONE, SECRET = "stranger has tried", b"known to the two workers only..."


def wait_for(path: Path) -> str:
    while not path.exists():
        sleep(0.01)
    return path.read_text()


def publish(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def wait_for_stranger(folder: Path):
    """Return a loss whose fifth computation waits for the stranger."""
    calls = []

    def loss(y, scores, weight):
        calls.append(1)
        if len(calls) == 5:
            (folder / "training").touch()
            wait_for(folder / DONE)
        return weight * (scores - y), weight

    return loss


def work_as(rank: int, folder: Path, addresses: list[str], timeout: float = 60.0) -> None:
    """Train as a Spark task does, with files in the place of Spark's all-gather."""
    from gbun.spark.worker import work

    def all_gather(text: str) -> list[str]:
        publish(folder / f"address {rank}", text)
        return [wait_for(folder / f"address {peer}") for peer in range(2)]

    meeting = SimpleNamespace(rank=rank, hosts=addresses, all_gather=all_gather)
    parameters = {"objective": wait_for_stranger(folder), "init": "constant", "n_estimators": 6}
    batches = dense_batches()
    shared = replace(job(parameters=parameters, secret=SECRET), timeout=timeout)
    outcome = work(batches[rank::2], meeting, shared)
    publish(folder / f"outcome {rank}", str(outcome.error))
    if rank == 0:
        (folder / "model.gbun").write_bytes(outcome.model or b"")


def lose_network(rank: int, folder: Path, addresses: list[str]) -> None:
    """Train as above; write what the worker raises when it hears nothing of the other one for three seconds."""
    from gbun.collectives import WorkerError

    try:
        work_as(rank, folder, addresses, timeout=3.0)
    except WorkerError as error:
        publish(folder / f"outcome {rank}", f"{error}")


def launch_in(folder: Path) -> None:
    distributed.launch(train_share, 2, (folder,))
    publish(folder / "outcome 0", "None")


def train_share(folder: Path) -> None:
    import torch.distributed as dist

    share = slice(dist.get_rank(), None, 2)
    parameters = {"objective": wait_for_stranger(folder), "init": "constant", "n_neurons": 16}
    distributed.train(parameters, (X[share], Y[share]), 6, task="regression")


def disturb(addresses: list[tuple[str, int]], folder: Path) -> None:
    """Try to join the job, to write to its store as torch would, and to crash it with noise; report what worked."""
    from datetime import timedelta

    import torch.distributed as dist

    found = []
    for host, port in addresses:
        attempts = {
            "join": lambda: connect((host, port), make_secret(), "store", timeout=5.0),  # noqa: B023 - called here
            "noise": lambda: connect((host, port), bytes(32), "x", "noise" * 40, timeout=5.0),  # noqa: B023
            "torch": lambda: dist.TCPStore(host, port, timeout=timedelta(seconds=2)).set("failure", "[0, 'x', true]"),  # noqa: B023
        }
        for name, attempt in attempts.items():
            try:
                attempt()
                found.append(f"{name} at {host}")
            except (OSError, RuntimeError):
                pass  # refused
    publish(folder / "stranger", str(found))


if __name__ == "__main__":
    role, where, *more = sys.argv[1:]
    if role == "launch":
        launch_in(Path(where))
    elif role == "lose network":
        lose_network(int(more[0]), Path(where), more[1:])
    elif role == "disturb":
        disturb([(address.split(":")[0], int(address.split(":")[1])) for address in more], Path(where))
    else:
        work_as(int(role), Path(where), more)

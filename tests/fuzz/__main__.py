"""Feed mutated input to everything that reads bytes: python -m tests.fuzz --seconds 600."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import time

from tests.fuzz.runner import Fuzzer, Limits, attempt, load_targets, report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--tries", type=int, help="of each target in each process, instead of a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="TARGET")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("results/fuzz"))
    parser.add_argument("--replay", type=Path, metavar="FILE", help="an input in a folder with the name of its target")
    parser.add_argument("--targets", default="tests.fuzz.targets", metavar="MODULE", help="that has TARGETS")
    arguments = parser.parse_args()
    targets = load_targets(arguments.targets)
    if arguments.replay:
        outcome, kind, text = attempt(targets[arguments.replay.parent.name], arguments.replay.read_bytes())
        sys.stdout.write(f"{outcome}\n{text}")
        return int(kind is not None)
    if unknown := set(arguments.only or ()) - set(targets):
        parser.error(f"no such targets: {', '.join(sorted(unknown))}; there are {', '.join(targets)}")
    until = float("inf") if arguments.tries else time() + arguments.seconds
    limits = Limits(arguments.tries, until, stuck=10.0, growth=2**30)
    fuzzer = Fuzzer(arguments.targets, arguments.only or list(targets), arguments.seed, arguments.processes, limits)
    fuzzer.run()
    sys.stdout.write(report(fuzzer, arguments.output) + "\n")
    return int(bool(fuzzer.findings))


if __name__ == "__main__":
    sys.exit(main())

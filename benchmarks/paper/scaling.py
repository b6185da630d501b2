"""Tables "KDD12.sub" and "KDD12" of the paper: the same rows on more and more workers.

    python -m benchmarks.paper.scaling [--data FOLDER] [--quick] [--workers 1,2,4,8,16] [--scaling-sizes 64,1024]
        [--kdd12-workers 4,16] [--kdd12-rows N] [--scaling-rows N] [--scaling-seconds 5]

Workers are processes of this machine, each in a network namespace of its own, so that its bytes can be counted (see
benchmarks.network): Linux, root and iproute2 are needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cells import Cell, Finding
from benchmarks.data import KDD12_FEATURES, KDD12_ROWS, SEED, Source, clicks, read
from benchmarks.network.learners import FIRST_ROUND, KINDS, Team, run_team, settings_of, to_json
from benchmarks.network.namespaces import missing
from benchmarks.paper.experiment import Experiment, Picture, Plan, draw_panels, main, memory
from benchmarks.paper.figures import KDD12_ALL_FEATURES, KDD12_ALL_ROWS, SCALING_SECONDS
from benchmarks.peers.hosts import MODULES, PACKAGES, SEEDS
from benchmarks.report import COLOURS, Row, number, numbers, plot_line
from benchmarks.timing import Absent, Failed, ratio

TEXT = """The paper: Spark on 4 to 64 machines, KDD12.sub, and GBUN alone on all of KDD12, which neither peer could
hold, on 16 to 96. Here: 1 to 16 workers of one thread, the rows divided among them (row i belongs to worker i mod S),
LightGBM (tree_learner=data) and XGBoost (hist, level by level: 6 levels for 64 leaves, 10 for 1024) through their own
connections. KDD12.sub is generated in the paper's shape, book_crossing is real. KDD12 has the paper's features and as
many generated rows as this machine's memory allows: do not compare its seconds with the paper's, whose rows are 150
million. The peers are tried on it too, on one worker and on the most, with the same ten minutes as GBUN for the set-up
and for a first round. To limit the total time, a cell has rounds of about 5 seconds, of GBUN at least 5 rounds and of a
peer at least one; 1024 is measured on KDD12.sub only, on 1, 4 and 16 workers, book_crossing on 1 and 16, KDD12 on 4 and
16.

The workers share this machine's cores, so seconds of a round say little about many machines. Computation is therefore
measured separately: "busiest cpu s" are the seconds of a core that the busiest worker uses in a round, "waiting s" is
the rest of the round: waiting for others, for the network, and for a core. "A core each s" is what a round would take
if every worker had a core of its own: the busiest worker's computation plus its bytes over 1 GB/s, one after the other
and without network delay, which favours the peers, whose rounds have many more steps. "Deviation s" is that of single
rounds; GBUN reports its rounds late and in groups, so its deviation is larger than it should be."""

CAPTION = (
    "Seconds of a round by the number of workers: lines are computation and exchange with a core for each, crosses "
    "what this machine took with its few cores, dotted lines the paper's."
)
GENERATED, REAL = "KDD12.sub", "book_crossing"
Rows = tuple[Source, dict[str, Any]]
"""The source, and what figures depend on beside its name."""
QUICK_ROWS, QUICK_FEATURES = 20_000, 10_000
WHOLE = {"workers": [1, 2, 4, 8, 16], "scaling_sizes": [64, 1024], "scaling_seconds": 5.0}
WHOLE |= {"kdd12_workers": [4, 16], "kdd12_rows": None, "kdd12_peers": ("LightGBM", "XGBoost")}
WHOLE |= {"kdd12_features": KDD12_ALL_FEATURES}
QUICK = {"workers": [2], "scaling_sizes": [16], "scaling_seconds": 0.5}
QUICK |= {"kdd12_workers": [2], "kdd12_rows": QUICK_ROWS, "kdd12_peers": (), "kdd12_features": KDD12_FEATURES}
KDD12 = "KDD12"
ROW_BYTES, STEP = 1900, 4_000_000  # memory for a row of KDD12, on all workers together; rows
RATE = 1e9  # bytes a second, the paper's network


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("scaling").add_argument
    workers = "numbers of workers, 1,2,4,8,16 by default; larger sizes and the real set have some of them"
    add("--workers", type=numbers(), help=workers)
    add("--scaling-sizes", type=numbers(least=2), help="K or leaves, 64,1024 by default")
    add("--scaling-rows", type=number(), help="the first rows of each set only; all by default")
    add("--scaling-seconds", type=number(float, 0.1), help="of rounds in each cell, 5 by default")
    add("--kdd12-workers", type=numbers(), help="4,16 by default")
    add("--kdd12-rows", type=number(), help="as many as memory allows by default")


def make_sources(folder: Path | None, quick: bool, most_rows: int | None = None) -> dict[str, Rows]:
    """By name; `most_rows` keeps the first ones only. The real set is there also where the folder lacks it, so that
    reports list it among what was not run."""
    rows = QUICK_ROWS if quick else min(KDD12_ROWS, most_rows or KDD12_ROWS)
    features = QUICK_FEATURES if quick else KDD12_FEATURES
    found: dict[str, Rows] = {GENERATED: (clicks(rows, features), {"rows": rows, "features": features})}
    if not quick:
        n_bytes = sum(file.stat().st_size for file in (folder / REAL).glob("*")) if folder else 0
        source = Source(REAL, partial(_read_first, folder, most_rows))
        found[REAL] = source, {"rows": most_rows or "all", "bytes of files": n_bytes}
    return found


def _read_first(folder: Path, most: int | None) -> tuple[Any, Any]:
    try:
        X, y = read(folder, REAL)
    except FileNotFoundError as error:
        raise Absent(f"{REAL} is not in the data folder: {error.strerror}") from None
    return X[:most], y[:most]


def make_cell(name: str, learner: str, size: int, rows: Rows, limits: dict[str, Any], run: Callable[[], Any]) -> Cell:
    """A cell of a learner on hosts; `limits` are the settings of the experiment, which name "hosts" or "workers"."""
    n_hosts = limits.get("hosts") or limits["workers"]
    settings = {"data": rows[0].name, **rows[1], **limits, **settings_of(learner, size, n_hosts)}
    missing = f"{rows[0].name} is not in the data folder" if rows[1].get("bytes of files") == 0 else ""
    seeds = {"rows": "as they come" if rows[0].name == REAL else SEED, learner: SEEDS[learner]}
    return Cell(name, settings, run, PACKAGES[learner], [MODULES[learner]], seeds, missing)


def cells(plan: Plan) -> Sequence[Cell]:
    if why_not := missing():
        raise Failed(why_not)
    given = plan.options(WHOLE, QUICK)
    found = [
        _cell(rows, learner, size, n_workers, given.scaling_seconds)
        for data, rows in make_sources(plan.data, plan.quick, given.scaling_rows).items()
        for size in given.scaling_sizes
        for n_workers in _workers(data, size, given)
        for learner in KINDS  # one after the other, so that they meet the machine in the same state
    ]
    return [*found, *_kdd12_cells(given)]


def _workers(data: str, size: int, given: argparse.Namespace) -> Sequence[int]:
    """All numbers of workers for the paper's first question, some for the rest: see TEXT."""
    smallest = size == min(given.scaling_sizes)
    if data == REAL:
        return list(given.workers)[::4] if smallest else []
    return list(given.workers)[:: 1 if smallest else 2]


def _kdd12_cells(given: argparse.Namespace) -> Iterator[Cell]:
    """GBUN by the number of workers; the peers on one, where nothing is held twice, and on the most."""
    n_rows = given.kdd12_rows or rows_that_fit(memory())
    rows = clicks(n_rows, given.kdd12_features, KDD12), {"rows": n_rows, "features": given.kdd12_features}
    wanted = [("GBUN", n_workers) for n_workers in given.kdd12_workers]
    wanted += [(peer, n_workers) for peer in given.kdd12_peers for n_workers in (1, max(given.kdd12_workers))]
    for learner, n_workers in wanted:
        yield _cell(rows, learner, min(given.scaling_sizes), n_workers, given.scaling_seconds)


def rows_that_fit(n_bytes: int) -> int:
    """
    >>> rows_that_fit(24 * 10**9), rows_that_fit(2 * 10**9)
    (12000000, 1000000)
    """
    return max(1_000_000, min(KDD12_ALL_ROWS, n_bytes // ROW_BYTES // STEP * STEP))


def _cell(rows: Rows, learner: str, size: int, n_workers: int, seconds: float) -> Cell:
    run = partial(measure_cell, learner, rows[0], size, n_workers, seconds)
    name = f"{rows[0].name}, {learner}, {size}, {n_workers} workers"
    return make_cell(name, learner, size, rows, {"workers": n_workers, "seconds": seconds}, run)


def measure_cell(learner: str, source: Source, size: int, n_workers: int, seconds: float) -> dict[str, Any]:
    with run_team(learner, source, size, n_workers, FIRST_ROUND) as team:
        return measure_unlimited(team, seconds)


def measure_unlimited(team: Team, seconds: float) -> dict[str, Any]:
    """Rounds without a limit of the network."""
    rounds = to_json(team.measure(None, team.round_seconds, seconds))
    return {"setup s": team.setup, **rounds, **team.describe_trees()}


def tables(findings: Sequence[Finding]) -> list[Row]:
    """Speed-ups are over the smallest number of workers that succeeded, of each learner."""
    known = sorted((one for one in findings if one.found), key=lambda one: -one.settings["workers"])
    fewest = {_series(one.settings): one for one in known}
    order = ("data", "size", "learner", "workers")
    return [_row(one, fewest) for one in sorted(findings, key=lambda one: tuple(one.settings[key] for key in order))]


def _row(finding: Finding, fewest: Mapping[tuple[Any, ...], Finding]) -> Row:
    at, found = finding.settings, finding.found
    rows = at["rows"] if isinstance(at["rows"], str) else f"{at['rows']:,}"
    title = f"scaling: {at['data']}, {rows} rows"
    if at["data"] == KDD12:
        title = f"scaling: {KDD12}'s {at['features']:,} features, {rows} rows (the paper's has {KDD12_ALL_ROWS:,})"
    row: Row = {"table": title, **{key: at[key] for key in ("data", "size", "learner", "workers")}}
    if found:
        first = fewest[_series(at)]
        row |= {
            "round s": found["seconds"],
            "deviation s": found.get("deviation"),
            "rounds": found["rounds"],
            "busiest cpu s": found["busiest cpu"],
            "mean cpu s": found["mean cpu"],
            "waiting s": found["seconds"] - found["busiest cpu"],
            "sent": round(found["sent"]),
            "exchange s": found["most"] / RATE,
            "a core each s": a_core_each(found),
            "speed-up": ratio(a_core_each(first.found), a_core_each(found)),
            "ideal": at["workers"] / first.settings["workers"],
            "setup s": found["setup s"],
            "peak MB": found["peak MB"],
            "leaves": found.get("leaves"),
            "features used": found.get("features used"),
        }
    else:
        row["round s"] = "out of memory" if "out of memory" in finding.failed else "none: see the note"
    paper = SCALING_SECONDS.get((at["data"], at["size"], at["learner"], at["workers"]))
    return {**row, "paper s": paper, "note": finding.failed}


def _series(at: Mapping[str, Any]) -> tuple[Any, ...]:
    return at["data"], at["size"], at["learner"]


def a_core_each(found: Mapping[str, Any]) -> float:
    """Seconds of a round where every worker has a core: computation of the busiest, then its bytes."""
    return float(found["busiest cpu"] + found["most"] / RATE)


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    known = [(one.settings, one.found) for one in findings if one.found]
    panels = [partial(_panel, panel, known) for panel in sorted({_series(at)[:2] for at, _ in known})]
    return draw_panels(panels, folder / "scaling.png", CAPTION, 4.0)


def _panel(panel: tuple[Any, ...], known: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], ax: Any) -> None:
    for learner in KINDS:
        series, colour = (*panel, learner), COLOURS[learner]
        found = {at["workers"]: one for at, one in known if _series(at) == series}
        plot_line(ax, [(n, a_core_each(one)) for n, one in found.items()], "o-", colour, learner)
        plot_line(ax, [(n, one["seconds"]) for n, one in found.items()], "x", colour, f"{learner}, cores shared")
        paper = [(n, seconds) for (*of, n), seconds in SCALING_SECONDS.items() if tuple(of) == series]
        plot_line(ax, paper, ":", colour, f"the paper's {learner}")
    label_panel(ax, panel, "workers")


def label_panel(ax: Any, panel: tuple[Any, ...], label: str) -> None:
    ax.set(xscale="log", yscale="log", xlabel=label, ylabel="seconds of a round")
    ax.set_title(f"{panel[0]}, K or leaves = {panel[1]}")


EXPERIMENT = Experiment("scaling", "More workers", TEXT, cells, tables, draw, options)

if __name__ == "__main__":
    main(EXPERIMENT)

"""Tables "KDD12.sub" and "KDD12" of the paper: the same rows on more and more workers.

    python -m benchmarks.paper.scaling [--data FOLDER] [--quick]

Workers are processes of this machine, each in a network namespace of its own, so that its bytes can be counted (see
benchmarks.network): Linux, root and iproute2 are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.cells import Cell, Finding
from benchmarks.data import KDD12_FEATURES, KDD12_ROWS, SEED, Source, clicks, read
from benchmarks.network.learners import KINDS, Team, run_team, settings_of, to_json
from benchmarks.network.namespaces import missing
from benchmarks.paper.experiment import Experiment, Picture, Plan, draw_panels, main, memory
from benchmarks.paper.figures import KDD12_ALL_FEATURES, KDD12_ALL_ROWS, SCALING_SECONDS
from benchmarks.peers.hosts import MODULES, PACKAGES, SEEDS
from benchmarks.report import COLOURS, Row, plot_line
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
KDD12 = "KDD12"
ROW_BYTES, STEP = 1900, 4_000_000  # memory for a row of KDD12, on all workers together; rows
RATE = 1e9  # bytes a second, the paper's network
WORKERS, KDD12_WORKERS, QUICK_WORKERS = (1, 2, 4, 8, 16), (4, 16), (2,)
SIZES, QUICK_SIZES = (64, 1024), (16,)  # K or leaves
SECONDS, QUICK_SECONDS = 5.0, 0.5  # of rounds in each cell


def make_sources(plan: Plan) -> dict[str, Rows]:
    """By name. The real set is there also where the folder lacks it, so that reports list it among what was not run."""
    if why_not := missing():
        raise Failed(why_not)
    rows, features = plan.pick((KDD12_ROWS, KDD12_FEATURES), (QUICK_ROWS, QUICK_FEATURES))
    found: dict[str, Rows] = {GENERATED: (clicks(rows, features), {"rows": rows, "features": features})}
    if not plan.quick:
        n_bytes = sum(file.stat().st_size for file in (plan.data / REAL).glob("*")) if plan.data else 0
        found[REAL] = Source(REAL, partial(_read_real, plan.data)), {"rows": "all", "bytes of files": n_bytes}
    return found


def _read_real(folder: Path) -> tuple[Any, Any]:
    try:
        return read(folder, REAL)
    except FileNotFoundError as error:
        raise Absent(f"{REAL} is not in the data folder: {error.strerror}") from None


def make_cell(
    name: str, learner: str, size: int, rows: Rows, limits: dict[str, Any], work: Callable[[Team], dict[str, Any]]
) -> Cell:
    """A cell of a learner on hosts; `limits` are the settings of the experiment, which name "hosts" or "workers"."""
    source, n_hosts = rows[0], limits.get("hosts") or limits["workers"]

    def run() -> dict[str, Any]:
        with run_team(learner, source, size, n_hosts) as team:
            return work(team)

    settings = {"data": source.name, **rows[1], **limits, **settings_of(learner, size, n_hosts)}
    missing = f"{source.name} is not in the data folder" if rows[1].get("bytes of files") == 0 else ""
    seeds = {"rows": "as they come" if source.name == REAL else SEED, learner: SEEDS[learner]}
    return Cell(
        f"{source.name}, {learner}, {size}, {name}",
        settings,
        run,
        PACKAGES[learner],
        [MODULES[learner]],
        seeds,
        missing,
    )


def cells(plan: Plan) -> list[Cell]:
    sizes, seconds = plan.pick(SIZES, QUICK_SIZES), plan.pick(SECONDS, QUICK_SECONDS)
    workers, kdd12_workers = plan.pick(WORKERS, QUICK_WORKERS), plan.pick(KDD12_WORKERS, QUICK_WORKERS)
    smallest = min(sizes)
    wanted: list[tuple[Rows, str, int, int]] = []
    for (data, rows), size in product(make_sources(plan).items(), sizes):
        # All numbers of workers for the paper's first question, some for the rest: see TEXT.
        step = 4 if data == REAL else 1 if size == smallest else 2
        if data == GENERATED or size == smallest:
            # Learners one after the other, so that they meet the machine in the same state.
            wanted += [(rows, learner, size, n) for n in workers[::step] for learner in KINDS]
    n_rows = QUICK_ROWS if plan.quick else rows_that_fit(memory())
    n_features, peers = (KDD12_FEATURES, ()) if plan.quick else (KDD12_ALL_FEATURES, ("LightGBM", "XGBoost"))
    kdd12 = clicks(n_rows, n_features, KDD12), {"rows": n_rows, "features": n_features}
    wanted += [(kdd12, "GBUN", smallest, n) for n in kdd12_workers]
    # The peers on one worker, where nothing is held twice, and on the most.
    wanted += [(kdd12, peer, smallest, n) for peer in peers for n in (1, max(kdd12_workers))]
    work = partial(measure_unlimited, seconds=seconds)
    return [
        make_cell(f"{n} workers", learner, size, rows, {"workers": n, "seconds": seconds}, work)
        for rows, learner, size, n in wanted
    ]


def rows_that_fit(n_bytes: int) -> int:
    """
    >>> rows_that_fit(24 * 10**9), rows_that_fit(2 * 10**9)
    (12000000, 1000000)
    """
    return max(1_000_000, min(KDD12_ALL_ROWS, n_bytes // ROW_BYTES // STEP * STEP))


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


EXPERIMENT = Experiment("scaling", "More workers", TEXT, cells, tables, draw)

if __name__ == "__main__":
    main(EXPERIMENT)

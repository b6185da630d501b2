"""The paper's table of time costs: seconds of a boosting round, mean and deviation.

    python -m benchmarks.paper.rounds --data FOLDER
    python -m benchmarks.paper.rounds --quick

A cell is a set. Learners have models of the same size, K outputs or K leaves. Each has its own process; they take
turns, a round each, until they have used up their seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.accuracy.sets import SPLIT_SEED
from benchmarks.cells import Cell, Finding
from benchmarks.data import Source
from benchmarks.paper.accuracy.sets import find_sets, plan_sets
from benchmarks.paper.experiment import Experiment, Picture, Plan, draw_panels, main
from benchmarks.paper.figures import ROUND_SECONDS, ROUNDS
from benchmarks.paper.figures import TITLES as PAPER_TITLES
from benchmarks.peers import rounds as peers
from benchmarks.peers.hosts import SEEDS
from benchmarks.report import Row, bars
from benchmarks.timing import Absent, Limits, Worker, ratio, take_turns

TEXT = """\
The paper gives the mean and the deviation of the seconds of 300 rounds, with settings tuned for each learner, on 24
cores and a graphics card. Here gbun begins with a constant, as there, and has K outputs, LightGBM has K leaves and
XGBoost trees of depth log2 K, without a graphics card. Learners take turns, a round each, for the same seconds or 300
rounds, but at least three. The first two rounds, in which they build structures, are not counted; the first has a
column. A learner that needs more memory than a third of the machine's is measured alone after the others. Compare
seconds within a row, not with the paper's: its machine, its settings and some of its sets are different (epsilon here
has 4,000 rows of 100 columns). With C classes, the peers grow C trees a round; gbun adds one network whose head has C
columns."""
SETS: tuple[str, ...] = ("letter", "epsilon", "news20_binary", "rcv1_binary", "aloi", "news20_multi", "book_crossing")
QUICK_SETS: tuple[str, ...] = ("clicks", "classes")
SECONDS, QUICK_SECONDS = 10.0, 0.5  # of each learner on each set
SIZE, QUICK_SIZE = 256, 32  # outputs of a network, leaves of a tree; a power of two, as trees of a depth have leaves
QUICK_ROUNDS = 10
LEAST_ROUNDS = 3  # of each, however long they take: a mean without a deviation says little
MEMORY, ALONE = 7 * 10**9, 20 * 10**9  # bytes for each, as all are alive at once; for a learner alone
START = 300.0  # seconds: a first round may take long with 1000 classes
TITLES = {"gbun": "gbun", "xgboost": "XGBoost", "lightgbm": "LightGBM"}
PACKAGES = ("gbun", "numba", "xgboost", "xgboost-cpu", "lightgbm")
TABLE = "rounds: seconds of a round, mean ± deviation; in words by medians"
FULL = "rounds: in full"


def cells(plan: Plan) -> list[Cell]:
    """A cell for each set; sets that the folder does not have say so."""
    sets, seconds = plan.pick(SETS, QUICK_SETS), plan.pick(SECONDS, QUICK_SECONDS)
    size, rounds = plan.pick(SIZE, QUICK_SIZE), plan.pick(ROUNDS, QUICK_ROUNDS)
    found = []
    for one in plan_sets(plan, sets):
        settings = {"data": one.name, "source": one.source, "bytes": one.size, "seconds": seconds, "size": size}
        settings |= {"threads": plan.threads, "memory": [MEMORY, ALONE], "rounds": [LEAST_ROUNDS, rounds]}
        run = partial(compare, one.name, plan.data, size, seconds, rounds, plan.threads)
        seeds = {"split": SPLIT_SEED, **SEEDS}
        found.append(Cell(one.name, settings, run, PACKAGES, ("xgboost", "lightgbm"), seeds, one.missing))
    return found


def compare(name: str, folder: Path | None, size: int, seconds: float, rounds: int, threads: int) -> dict[str, Any]:
    """Seconds of each learner's rounds, by its name among "learners". One that fails has the reason in its note."""
    source = Source(name, partial(training_rows, name, folder))
    builds = {
        "gbun": (peers.gbun, {"init": "constant", "n_neurons": size}),  # a round costs the same after any start
        "xgboost": (peers.xgboost, size.bit_length() - 1),
        "lightgbm": (peers.lightgbm, size),
    }

    def starter(learner: str, memory: int) -> Callable[[], Worker]:
        build, model = builds[learner]
        return partial(Worker, build, source, model, threads, limits=Limits(memory, START + 2 * seconds))

    found = _take_turns({learner: starter(learner, MEMORY) for learner in builds}, rounds, seconds)
    if absent := [one["note"] for one in found.values() if one["note"].startswith("FileNotFoundError: ")]:
        raise Absent(absent[0])  # all read the same rows
    for learner in [learner for learner, one in found.items() if "mean" not in one]:
        again = _take_turns({learner: starter(learner, ALONE)}, rounds, seconds)[learner]
        why = f"measured alone, after the others; beside them: {found[learner]['note']}"
        found[learner] = {**again, "note": again["note"] or why}
    medians = {f"{learner} median": one["median"] for learner, one in found.items() if one.get("median") is not None}
    return {**medians, "learners": found}


def _take_turns(starters: dict[str, Callable[[], Worker]], rounds: int, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for learner, times in take_turns(starters, "round", rounds, seconds, LEAST_ROUNDS).items():
        mean = fmean(times.seconds) if times.seconds else None
        deviation = stdev(times.seconds) if len(times.seconds) > 1 else None
        figures = {"rounds": len(times.seconds), "mean": mean, "deviation": deviation, "median": times.median}
        found[learner] = {**times.facts, **figures, "note": times.note} if times.facts else {"note": times.note}
    return found


def training_rows(name: str, folder: Path | None) -> tuple[Any, Any]:
    return find_sets(folder)[name].read()[0]


def tables(findings: Sequence[Finding]) -> list[Row]:
    """A table like the paper's with the paper's figures beside, and the same in full."""
    rows: list[Row] = []
    for finding in findings:
        name, found, paper = finding.settings["data"], finding.found.get("learners", {}), ROUND_SECONDS
        row: Row = {"table": TABLE, "data": name, "K": finding.settings["size"]}
        if finding.failed:
            rows.append({**row, "in words": finding.failed})
            continue
        row |= {TITLES[learner]: _describe(found[learner]) for learner in TITLES} | {"in words": _verdict(found)}
        beside = {who: paper[name][who] for who in TITLES if who in paper.get(name, {})}
        rows.append(row | {f"paper's {PAPER_TITLES[who]}": _plus_minus(*figures) for who, figures in beside.items()})
    return rows + [row for finding in findings for row in _in_full(finding)]


def _verdict(found: dict[str, Any]) -> str:
    """Who is fastest by medians, by how much if that is not gbun, and who has no figure."""
    medians = {learner: float(one["median"]) for learner, one in found.items() if one.get("median") is not None}
    if "gbun" not in medians or len(medians) < 2:
        return "nothing to compare"
    ours = medians.pop("gbun")
    fastest = min(medians, key=lambda learner: medians[learner])
    words = f"gbun takes {ours / medians[fastest]:.2f} times as long as {TITLES[fastest]}"
    if ours <= medians[fastest]:
        words = f"gbun is fastest, {medians[fastest] / ours:.1f} times"
    without = sorted(found.keys() - medians.keys() - {"gbun"})
    return words + (f"; without {', '.join(TITLES[learner] for learner in without)}" if without else "")


def _describe(one: dict[str, Any]) -> str:
    if one.get("mean") is None:
        return f"none: {one['note']}"
    return _plus_minus(one["mean"], one["deviation"]) + (f" ({one['note']})" if one["note"] else "")


def _plus_minus(mean: float, deviation: float | None) -> str:
    """
    >>> _plus_minus(0.123456, 0.01), _plus_minus(12.5, None)
    ('0.123 ± 0.01', '12.5')
    """
    return f"{mean:.3g}" if deviation is None else f"{mean:.3g} ± {deviation:.2g}"


def _in_full(finding: Finding) -> list[Row]:
    rows, at, found = [], finding.settings, finding.found.get("learners", {})
    ours = found.get("gbun", {}).get("median")
    for learner, one in found.items():
        row = {"table": FULL, "data": at["data"], "learner": TITLES[learner], "K": at["size"]}
        row |= {key: one.get(key) for key in ("setup", "first round", "rounds", "mean", "deviation", "median")}
        rows.append({**row, "gbun's median of its": ratio(ours, one.get("median")), "note": one["note"]})
    return rows


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    rows = [row for finding in findings for row in _in_full(finding) if row["mean"] is not None]
    caption = "Seconds of a boosting round: learners of the same size, taking turns."

    def fill(ax: Any) -> None:
        names = [f"{row['data']}: {row['learner']}" for row in rows]
        words = [_plus_minus(row["mean"], row["deviation"]) for row in rows]
        bars(ax, names, [row["mean"] for row in rows], words, [row["learner"] for row in rows])
        ax.set_xscale("log")
        ax.set_title(f"seconds of a round, mean ± deviation, size {rows[0]['K']}")

    return draw_panels([fill] if rows else [], folder / "rounds.png", caption, 1.0 + 0.3 * len(rows))


EXPERIMENT = Experiment("rounds", "Time per round", TEXT, cells, tables, draw)

if __name__ == "__main__":
    main(EXPERIMENT)

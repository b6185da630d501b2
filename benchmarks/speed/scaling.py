"""What a round costs as rows, features and outputs grow, and what training holds in memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

from benchmarks.data import KDD12_ROWS, Options, Source, clicks, spread_clicks
from benchmarks.peers import rounds as learners
from benchmarks.report import Row, goal
from benchmarks.timing import Facts, Limits, Times, Worker, interleave, ratio, start_all

K = 64
ROWS = (75_000, 150_000, 300_000, 600_000, KDD12_ROWS)
FEATURES = (10_000, 100_000, 1_000_000, 10_000_000, 54_000_000)
NEURONS = (16, 32, 64, 128, 256, 512, 1024)
SWEEPS = 9
FIXED_ROWS, PEER_ROWS = 200_000, 20_000
PEERS_MAY = Limits(12 * 10**9, 60.0)


def run(options: Options) -> list[Row]:
    return [row for part in (by_rows, by_features, peers_by_features, by_neurons, by_budget) for row in part(options)]


def measure(cases: Mapping[str, tuple[Source, dict[str, Any]]], options: Options, sweeps: int) -> dict[str, Times]:
    """Rounds of gbun on several cases, taking turns, each in a process of its own."""
    starters = {
        name: partial(Worker, learners.gbun, source, settings, options.threads)
        for name, (source, settings) in cases.items()
    }
    with start_all(starters) as (workers, failed):
        if failed:
            raise RuntimeError(f"gbun failed: {failed}")
        times = interleave({name: w.unit("round") for name, w in workers.items()}, options.sweeps(sweeps))
        for name, worker in workers.items():
            times[name].facts = collect_facts(worker)
    return times


def collect_facts(worker: Worker) -> Facts:
    """Those of its setup, megabytes by which training raised the peak, and the peak."""
    _, peak = worker.ask("memory")
    return {**worker.facts, "training MB": peak - worker.facts["megabytes before"], "process MB": peak}


def by_rows(options: Options) -> list[Row]:
    """All rows make the Gram here: by default their number hardly grows, and time would grow slower than rows do."""
    sizes = [options.rows(n) for n in options.pick(ROWS, ROWS[2:])]
    results = measure({str(n): (clicks(n), {"n_neurons": K, "gram_rows": 1.0}) for n in sizes}, options, SWEEPS)
    rows = []
    for n in sizes:
        row = {"table": f"scaling: rows, 390,000 features, K = {K}, Gram of all rows", "rows": n}
        row |= {**results[str(n)].row(), "per million rows": results[str(n)].median / n * 1e6}
        fewest = rows[0] if rows else row
        rows.append({**row, "to the fewest": row["per million rows"] / fewest["per million rows"]})
    return rows


def by_features(options: Options) -> list[Row]:
    """Drawn anew, fewer features repeat within a block of rows, so more weights are made. The same rows with larger ids
    show what the number of features alone costs."""
    n, sizes = options.rows(FIXED_ROWS), options.pick(FEATURES, FEATURES[:3])
    sources = {
        "drawn anew, fewer repeat": [clicks(n, m) for m in sizes],
        "the same but for their ids": [spread_clicks(n, m, FEATURES[0]) for m in sizes],
    }
    rows: list[Row] = []
    for how, drawn in sources.items():
        cases = {str(m): (source, {"n_neurons": K}) for m, source in zip(sizes, drawn, strict=True)}
        results = measure(cases, options, SWEEPS)
        first = results[str(sizes[0])]
        for m, of in results.items():
            row = {"table": f"scaling: features, {n:,} rows {how}, K = {K}", "features": int(m)}
            row |= {"setup": of.facts["setup"], **of.row(), "seconds ratio": ratio(of.median, first.median)}
            row |= {"training MB": of.facts["training MB"]}
            row |= {"memory ratio": of.facts["training MB"] / first.facts["training MB"]}
            rows.append({**row, "process MB": of.facts["process MB"]})
    for what, most in (("seconds", 1.15), ("memory", 1.1)):
        largest = max(row[f"{what} ratio"] for row in rows[len(sizes) : 2 * len(sizes)])
        rows.append(goal("scaling", f"{what} with any number of ids / with 10,000", largest, most=most))
    return rows


def peers_by_features(options: Options) -> list[Row]:
    """A tenth of the rows, because the peers' time and memory do grow; who takes too much is stopped, and said so."""
    n = options.pick(PEER_ROWS, PEER_ROWS // 4)
    rows: list[Row] = []
    for m in options.pick(FEATURES, FEATURES[:2]):
        source = clicks(n, m)
        builds: dict[str, tuple[Any, Any]] = {
            "gbun K=64": (learners.gbun, {"n_neurons": K}),
            "LightGBM 64 leaves": (learners.lightgbm, 64),
            "XGBoost depth 6": (learners.xgboost, 6),
        }
        starters = {
            name: partial(Worker, build, source, size, options.threads, limits=PEERS_MAY)
            for name, (build, size) in builds.items()
        }
        with start_all(starters) as (workers, failed):
            times = interleave({name: w.unit("round") for name, w in workers.items()}, options.sweeps(3))
            for name in starters:
                row = {"table": f"scaling: features, {n:,} rows, beside the peers", "features": m, "learner": name}
                if name in failed:
                    row["note"] = failed[name]
                elif times[name].note:
                    row |= times[name].row()
                else:
                    facts = collect_facts(workers[name])
                    row |= {"setup": facts["setup"], **times[name].row(), "training MB": facts["training MB"]}
                rows.append(row)
    return rows


def by_neurons(options: Options) -> list[Row]:
    n, sizes = options.rows(FIXED_ROWS), options.pick(NEURONS, (16, 64))
    ways: dict[str, float | None] = {"all rows": 1.0, "by default": None}
    cases = {f"{k}, {w}": (clicks(n), {"n_neurons": k, "gram_rows": share}) for k in sizes for w, share in ways.items()}
    results = measure(cases, options, 5)
    rows = []
    for way, k in product(ways, sizes):
        times = results[f"{k}, {way}"]
        row = {"table": f"scaling: outputs K, {n:,} rows", "Gram": way, "K": k}
        rows.append({**row, **times.row(), "ns a row and output": times.median / n / k * 1e9})
    return rows


def by_budget(options: Options) -> list[Row]:
    """Memory beside that of the data and two n x K buffers, and what time it costs to do with less."""
    n, rows = options.rows(KDD12_ROWS), []
    for k in options.pick((64, 256), (64,)):
        budgets = options.pick((None, "500MB", "200MB"), (None, "60MB"))
        cases = {str(b): (clicks(n), {"n_neurons": k, "memory_budget": b}) for b in budgets}
        results = measure(cases, options, 5)
        for budget, of in results.items():
            data, training, buffers = of.facts["X megabytes"], of.facts["training MB"], 2 * n * k * 4 / 2**20
            row = {"table": f"scaling: memory of training, {n:,} rows", "K": k, "memory_budget": budget}
            row |= {"plan": of.facts["plan"], **of.row(), "seconds ratio": ratio(of.median, results["None"].median)}
            row |= {"data MB": data, "training MB": training, "two n x K buffers MB": buffers}
            rows.append({**row, "data + training / data + buffers": (data + training) / (data + buffers)})
    return rows


def draw(ax: Any, rows: list[Row]) -> None:
    """Seconds of a round, or of a million rows, in units of the first of each series."""
    series = {
        "rows, per row": ("scaling: rows", "rows", "per million rows"),
        "features, the same rows": ("scaling: features, ", "features", "median"),
        "outputs, per row and output": ("scaling: outputs", "K", "ns a row and output"),
    }
    for label, (table, x, y) in series.items():
        selected = [row for row in rows if row["table"].startswith(table) and "drawn" not in row["table"]]
        selected = [row for row in selected if "learner" not in row and row.get("Gram") != "all rows"]
        if selected:
            first = selected[0]
            ax.plot([row[x] / first[x] for row in selected], [row[y] / first[y] for row in selected], "o-", label=label)
    ax.set_xscale("log")
    ax.set_ylim(bottom=0.0)
    ax.axhline(1.0, color="#999999", linewidth=0.5)
    ax.set_xlabel("times the first", fontsize=8)
    ax.legend(fontsize=7)
    ax.set_title("scaling: seconds of a round relative to the first")
